"""What the entries of keys say: the intent of a write, its outcome, and how a run goes on with it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import attrs
from msgspec.structs import replace

from invsvc_async.durable.intents import in_doubt
from invsvc_async.durable.key_names import key_in
from invsvc_async.durable.records import (
    intent_of,
    outcome_of,
    scope_of,
    verdict_and_record,
)
from invsvc_async.durable.store.claims import Finished, load_common_of
from invsvc_async.durable.store.conditions import Teller
from invsvc_async.reconcile.safety import safer_of_both
from invsvc_async.writes.driver import run_of
from invsvc_async.writes.new_intent import with_reader

if TYPE_CHECKING:
    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.journal_life import JournalLife
    from invsvc_async.durable.key_claims import Claims
    from invsvc_async.durable.key_names import Doubts
    from invsvc_async.durable.keyed_run import KeyedRun
    from invsvc_async.durable.store.claims import Seen
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.reconcile.intent import Intent, Scope
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.settings import AnyReader
    from invsvc_async.writes.driver import Driver
    from invsvc_async.writes.spec import WriteSpec


# These settings of an intent are replaced by those of the run that goes on with it, as are, for what it sends
# itself, the safer ones.
_OF_A_RUN: Final = ("deadline", "resend", "max_resends", "journey_reader")
_TO_RETURN = 5.0  # s that a run has to note that it returned a secret
_LOOK = 0.02  # s between looks


class StoredKeys:
    """
    The writes of keys in *store*, as their entries have them.

    Entries of an older copy are in doubt (*doubts*); *life* tells since when senders of earlier processes
    are gone.
    """

    def __init__(
        self,
        store: Store,
        claims: Claims,
        doubts: Doubts,
        life: JournalLife,
    ) -> None:
        self._store = store
        self._claims = claims
        self._doubts = doubts
        self._life = life

    async def intent_in(self, entry: Entry) -> Intent:
        """Return the intent of *entry*, under the user's key."""
        return intent_of(await self._readable(entry), self._store.commons)

    async def scope_of(self, entry: Entry) -> Scope:
        """Return where the write of *entry* belongs, without its credential."""
        return scope_of(await self._readable(entry), self._store.commons)

    async def _readable(self, entry: Entry) -> Entry:
        """Return *entry* under the user's key; load its common part if another process has stored that."""
        if self._store.commons.lack([entry]):
            await load_common_of(self._store, entry)
        return replace(entry, key=key_in(entry.key))

    async def outcome_of(self, done: Finished) -> Outcome[Any]:
        """Return the outcome of an entry that is done."""
        entry = done.entry
        outcome = outcome_of(await self._readable(entry), self._store.commons)
        had_secret = verdict_and_record(entry)[1].had == "returned"
        if had_secret and await self._until_returned(done):
            outcome = attrs.evolve(outcome, secret="not stored")
        return attrs.evolve(outcome, replayed=True)

    async def _until_returned(self, done: Finished) -> bool:
        """
        Wait, some seconds, for the note that the secret was returned; return whether it came.

        The run that made a webhook notes that soon after its verdict, which others see before.
        """
        latest: Seen | None = done
        until = asyncio.get_running_loop().time() + _TO_RETURN
        while (
            isinstance(latest, Finished)
            and latest.teller is Teller.LIVING
            and asyncio.get_running_loop().time() < until
        ):
            await asyncio.sleep(_LOOK)
            latest = await self._claims.look(done.entry.key)
        return isinstance(latest, Finished) and latest.teller is Teller.NOBODY

    async def driver_of(
        self,
        run: KeyedRun,
        entry: Entry,
        *,
        sender_gone: bool,
        spec: WriteSpec | None = None,
        reader: AnyReader | None = None,
    ) -> Driver[Any]:
        """Return a driver that goes on with *entry*, which may have been sent; without *spec*, by reads."""
        intent = attrs.evolve(await self.intent_in(entry), newest=not run.overtaken)
        if await self._doubts.has(entry):
            intent = in_doubt(intent)
        # A run that was cancelled before it began has left it open, without its place in the order.
        run.options.core.writes.open_writes.note_order(intent)
        own = None
        if spec is not None:
            policy = attrs.evolve(
                intent.policy,
                **{name: getattr(spec.policy, name) for name in _OF_A_RUN},
            )
            intent = attrs.evolve(intent, policy=policy)
            own = safer_of_both(policy, spec.policy)
            reader = spec.reader
        gone_since = None
        if sender_gone:
            gone_since = self._known_gone_since(run)
        return run_of(
            run.bound(),
            with_reader(intent, reader),
            reader=reader,
            policy=own,
            journaled=True,
            gone_since=gone_since,
            reads_only=spec is None,
        )

    def _known_gone_since(self, run: KeyedRun) -> float:
        """
        Return since when a sender that is provably gone is known to be gone (local s).

        A file was opened only after its last process had ended; in a database, that is known from now on.
        """
        if self._store.is_shared:
            return run.options.core.clock.now()
        return self._life.opened
