"""
Keys of the user's own: a write under a key has one effect, whichever process runs it, and however often.

The entry of a key stays in the journal once it is done.  A run of a write first claims its key, in one
statement that inserts an entry, or returns the one that is there; ``key_steps`` says what it does then.

An entry is in the lane of the process that runs it, so what a zombie stores is rejected, as in all stores.  A
run that ends without a verdict releases its entry to the lane ``FREED``, where any run may take it.  What a
process left that is provably done with it is in the lane ``ENDED``.

The writes to one thing have one order in all processes, that of their claims: see ``store/order``, and
``key_queue`` for what a run waits for.  The statements are in ``store/claims``.

A verdict is returned once it is stored.  If another process has the entry by then, that one's verdict counts.

A run passes through these methods, each of which adds one thing:

========================  =================================================================================
``run``                   the close of the client ends its waits
``_in_order_of_starts``   the keys of one thing are claimed in the order in which their runs were started
``_one_at_a_time``        one run of the key at a time in this process; the next returns its outcome
``KeySteps.by_entry``     does what the entry says, until there is an outcome
========================  =================================================================================
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from invsvc_async.durable.entries import Entries
from invsvc_async.durable.entry import is_same_row
from invsvc_async.durable.key_claims import Claims
from invsvc_async.durable.key_drivers import replay
from invsvc_async.durable.key_names import (
    Doubts,
    Namespaces,
)
from invsvc_async.durable.key_queue import Queue
from invsvc_async.durable.key_runs import KeyRuns, outcome_since
from invsvc_async.durable.key_scopes import KeyScopes
from invsvc_async.durable.key_starts import StartOrder
from invsvc_async.durable.key_steps import KeySteps
from invsvc_async.durable.keyed_run import changed_by
from invsvc_async.durable.left_keys import LeftKeys
from invsvc_async.durable.resolve import is_being_done, note, resolve
from invsvc_async.durable.store.claims import (
    Finished,
    Held,
    released_in_doubt,
)
from invsvc_async.durable.store.findings import entry_of
from invsvc_async.durable.stored_keys import StoredKeys
from invsvc_async.errors import InvalidRequestError, JournalError
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.reconcile.intent import Intent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from invsvc_async.durable.journal import ClientJournal
    from invsvc_async.durable.key_starts import KeyStart
    from invsvc_async.durable.resolve import CheckEntry, Resolution
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.reconcile.outcome import AnyOutcome, Outcome
    from invsvc_async.settings import AnyReader
    from invsvc_async.transport.client_core import ClientCore, ClientOptions
    from invsvc_async.writes.driver import AnyDriver, Driver
    from invsvc_async.writes.spec import WriteSpec


log: logging.Logger = logging.getLogger("invsvc_async.writes")

_OLDEST: Final = 1e11  # s; the store counts in 64 bits


class Keys:
    """The keys of a journal.  *named* are the options about keys in the journal's address."""

    def __init__(
        self,
        journal: ClientJournal,
        store: Store,
        named: Mapping[str, str],
    ) -> None:
        life = journal.life
        self._journal = journal
        self._life = life
        self._store = store
        self.claims: Claims = Claims(life, store)
        self.doubts: Doubts = Doubts(store, complete="complete" in named)
        self._names = Namespaces(
            store, named=named.get("namespace"), same_mode="same_mode" in named
        )
        self._runs = KeyRuns(self.claims)
        self._starts = StartOrder()
        self._naming = asyncio.Lock()  # for runs, so that they are named in their order
        self._stored = StoredKeys(store, self.claims, self.doubts, life)
        self._scopes = KeyScopes(
            life, self.claims, self._stored, is_named="namespace" in named
        )
        self._left = LeftKeys(
            self._names, self.claims, self._runs, self._stored, self._scopes, life
        )
        self.queue: Queue = Queue(
            self.claims, self._runs, self._left, self._stored, life
        )
        self._steps = KeySteps(
            life=life,
            claims=self.claims,
            starts=self._starts,
            queue=self.queue,
            stored=self._stored,
            scopes=self._scopes,
            doubts=self.doubts,
        )

    @property
    def core(self) -> ClientCore:
        """The state of the journal's client."""
        core = self._life.core
        assert core is not None
        return core

    # --- what users call

    def run(self, spec: WriteSpec) -> Awaitable[AnyDriver]:
        """
        Run a write under its key, and return the driver with the verdict.

        Raises:
            KeyConflictError: The key has another write.
            ConfigurationError: The namespace of its key is not certain, or the client is closed.
            JournalError: The journal cannot be used; nothing was sent.
        """
        return spec.options.core.under_way.tracked(
            partial(self._in_order_of_starts, spec)
        )

    async def _name(self, key: str, team: str | None, *, is_run: bool = False) -> str:
        await self._life.open()
        return await self._names.name(key, team, self.core, is_run=is_run)

    async def outcome_of(self, key: str, team: str | None) -> AnyOutcome | None:
        """
        Return the stored outcome under *key*, or ``None`` if there is none.

        Raises:
            KeyConflictError: Another team or base URL has the key.
        """
        name = await self._name(key, team)
        found = await self._scopes.look(name, key, team)
        if isinstance(found, Finished):
            return await self._stored.outcome_of(found)
        return None

    async def has(self, key: str, team: str | None) -> bool:
        """
        Return whether there is a write under *key*, with a verdict or without one.

        Raises:
            KeyConflictError: Another team or base URL has the key.
        """
        name = await self._name(key, team)
        return await self._scopes.look(name, key, team) is not None

    async def settled(
        self,
        intent: Intent,
        options: ClientOptions,
        reader: AnyReader | None,
    ) -> AnyOutcome | None:
        """
        Return the stored outcome of a keyed *intent*, or settle it by reads, and store the verdict.

        A run of the key that is under way is waited for: its verdict counts.

        ``None`` if the key has another write or none, or nothing of the write was sent.
        """
        name = await self._name(intent.key, intent.scope.team)
        found = await self._left.settle_intent(name, intent, options, reader)
        if found is not None and found.verdict is not Verdict.UNKNOWN:
            self.core.writes.forget(intent.identity)
        return found

    async def forget(self, key: str, team: str | None) -> bool:
        """
        Delete *key* and all that is stored of its write; return whether the key was there.

        Raises:
            JournalError: The write may have been sent, and has no verdict.
            KeyConflictError: Another team or base URL has the key.
        """
        name = await self._name(key, team)
        while (entry := await entry_of(self._store, name)) is not None:
            await self._scopes.check(key, team, "Nothing was deleted.", entry)
            # One that was changed meanwhile is looked at again: it may be another team's by now.
            if await Entries(self._store).drop(name, seen=entry):
                return True
            found = await self.claims.look(name)
            if found is not None and is_same_row(found.entry, entry):
                raise _may_have_been_sent(key, is_held=isinstance(found, Held))
        return False

    async def resolve(
        self,
        key: str | Intent,
        team: str | None,
        finding: Resolution,
    ) -> AnyOutcome:
        """
        Store what a person has found out about the write under *key*, or of an intent; return its outcome.

        Raises:
            InvalidRequestError: *key* is neither; or as :func:`resolve`.
            KeyConflictError: Another team or base URL has the key.
            JournalError: A run of it lives, here or elsewhere; or as :func:`resolve`.
        """
        if isinstance(key, str):
            check = partial(self._scopes.check, key, team, "Nothing was stored.")
            return await self._resolve(key, team, finding, check=check)
        if not isinstance(key, Intent):
            raise InvalidRequestError(
                f"key: must be a key or an Intent, not a {type(key).__name__}"
            )
        if key.nonce is None:  # without a key of the user's own
            return await self._journal.resolve(key, finding)
        return await self._resolve(
            key.key, key.scope.team, finding, identity=key.identity
        )

    async def _resolve(
        self,
        key: str,
        team: str | None,
        finding: Resolution,
        *,
        identity: str | None = None,
        check: CheckEntry | None = None,
    ) -> AnyOutcome:
        name = await self._name(key, team)
        if self._runs.has(name):
            raise is_being_done(key)
        async with self._runs.kept_waiting(name):
            await self.claims.ends.until_stored(name)
            mine = (await self._life.own_lane()).token
            resolved = await resolve(
                self._store,
                name,
                finding,
                key=key,
                identity=identity,
                mine=mine,
                check=check,
            )
        note(self.core, resolved)
        return resolved.outcome

    async def prune(self, older_than: float) -> int:
        """Delete what was done more than *older_than* seconds ago, but for UNKNOWN ones; return how many."""
        # The comparison is false for NaN, too.
        if not (isinstance(older_than, (int, float)) and abs(older_than) < _OLDEST):
            raise InvalidRequestError(
                f"older_than: must be a number of seconds, not {older_than!r:.50}"
            )
        await self._life.open()
        entries = Entries(self._store, self.core)
        return await entries.prune(await entries.ago(older_than), unacknowledged=True)

    # --- a run

    def enter(self, thing: str) -> KeyStart:
        """Return the start of a write to *thing* without a key, among those of keys."""
        return self._starts.enter(thing, is_keyed=False)

    async def _in_order_of_starts(self, spec: WriteSpec) -> Driver[Any]:
        """Run the write; its key is claimed after the keys of earlier starts for the same thing."""
        thing = changed_by(spec)
        if thing is None:
            return await self._one_at_a_time(spec, None, None)
        start = self._starts.enter(thing)  # at once: what follows waits for the journal
        try:
            return await self._one_at_a_time(spec, thing, start)
        finally:
            start.end()

    async def _one_at_a_time(
        self,
        spec: WriteSpec,
        thing: str | None,
        start: KeyStart | None,
    ) -> Driver[Any]:
        """Run the write to *thing*, or return the outcome of a run in this process that ended meanwhile."""
        called = self.core.clock.now()
        # Two runs of a key take place in the order of their starts: others may have started between them.
        async with self._naming:
            name = await self._name(spec.key or "", spec.team, is_run=True)
        with self._runs.of(name) as runs:
            before = runs.last
            may_have_to_wait = runs.many > 1 or spec.options.core.under_way.closed
            if may_have_to_wait:
                # The run before this one claims the key, so later starts need not wait for this one.
                if start is not None:
                    start.leave()
                await self.claims.waits.while_open(runs.lock.acquire())
            else:
                # The lock is free: there is no wait that a close of the client would have to end.
                await runs.lock.acquire()
            try:
                outcome = await outcome_since(before, runs, spec, self._scopes)
                if outcome is not None:
                    return replay(spec, outcome)
                runs.start = start
                runs.last = await self._steps.by_entry(
                    spec, thing, name, runs, start, called
                )
                return runs.last
            finally:
                runs.end_present()

    # --- what processes have left

    async def left_in_doubt(self) -> list[Intent]:
        """
        Return the intents that nobody has and that may have been sent, for writes to the same things.

        Unreadable ones are logged.
        """
        found: list[Intent] = []
        for entry in await released_in_doubt(self._store):
            try:
                found.append(await self._stored.intent_in(entry))
            except JournalError as error:
                _pass_over(self._store, error)
        return found

    async def settle_left(
        self, options: ClientOptions, *, same_mode: bool
    ) -> list[Outcome[Any]]:
        """Settle the keyed writes that nobody has and this client may read; return their outcomes."""
        settled: list[Outcome[Any] | None] = []
        for entry in await released_in_doubt(self._store):
            try:
                if await self._left.may_settle(entry, options, same_mode=same_mode):
                    settled.append(await self._left.settle(entry.key, options))
            except JournalError as error:
                _pass_over(self._store, error)
        return [outcome for outcome in settled if outcome is not None]


def _pass_over(store: Store, error: JournalError) -> None:
    """Log the *error* of an entry, or raise errors of a file, and of a database that is away."""
    if not store.is_shared or store.is_away(error):
        raise error
    log.error("left in the journal: %s", error)


def _may_have_been_sent(key: str, *, is_held: bool) -> JournalError:
    """Return the error for *key*, which is not to be forgotten; *is_held*: a living process has it."""
    why = ", because it is being done" if is_held else ""
    return JournalError(
        f"forget: the write under the key {key!r} may have been sent, and has no verdict{why}. Await it, or "
        "resolve it.",
        is_conflict=True,
    )
