"""The settling, by reads alone, of keyed writes whose processes have died."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from invsvc_async.durable.entry import AnotherIsHeldError, Entry, LostEntryError, State
from invsvc_async.durable.key_drivers import drive
from invsvc_async.durable.key_names import by_value
from invsvc_async.durable.keyed_run import KeyedRun
from invsvc_async.durable.store.claims import Abandoned, Finished, Held
from invsvc_async.durable.store.lanes import lost_entry
from invsvc_async.durable.store.order import is_overtaken
from invsvc_async.errors import InvalidRequestError
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.writes.new_intent import untagged_body
from invsvc_async.writes.recovery import check_scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.durable.journal_life import JournalLife
    from invsvc_async.durable.key_claims import Claims
    from invsvc_async.durable.key_names import Namespaces
    from invsvc_async.durable.key_runs import KeyRuns
    from invsvc_async.durable.key_scopes import KeyScopes
    from invsvc_async.durable.leases import Lane
    from invsvc_async.durable.store.claims import Seen
    from invsvc_async.durable.stored_keys import StoredKeys
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.settings import AnyReader
    from invsvc_async.transport.client_core import ClientOptions


T = TypeVar("T")

_LOOK: Final = 0.2  # s between looks whether an entry can be acquired
_MAY_HAVE_EFFECT: Final = Verdict.APPLIED, Verdict.UNKNOWN


class LeftKeys:
    """The writes of keys that nobody has, and that may have been sent."""

    def __init__(
        self,
        names: Namespaces,
        claims: Claims,
        runs: KeyRuns,
        stored: StoredKeys,
        scopes: KeyScopes,
        life: JournalLife,
    ) -> None:
        self._names = names
        self._claims = claims
        self._runs = runs
        self._stored = stored
        self._scopes = scopes
        self._life = life

    async def may_settle(
        self,
        entry: Entry,
        options: ClientOptions,
        *,
        same_mode: bool = False,
    ) -> bool:
        """
        Return whether reads of this client may show the write of *entry*.

        They may if its key is one that this client may run, or its credential is the same.
        """
        same_mode = same_mode or await self._names.has(entry.key, options.core)
        try:
            check_scope(
                options.without_team(),
                await self._stored.intent_in(entry),
                same_mode=same_mode,
            )
        except InvalidRequestError:
            return False
        return True

    async def settle(self, name: str, options: ClientOptions) -> Outcome[Any] | None:
        """
        Settle the write of an entry that nobody has, by reads alone; return ``None`` if somebody has it now.

        ``None``, too, if it is a create that has to wait for another one of its URL, or if a run of the key
        has begun here.
        """

        async def settle_if_left(lane: Lane, found: Seen | None) -> Outcome[Any] | None:
            match found:
                case Abandoned(entry=entry, sent=True):
                    return await self._take_and_settle(entry, lane, options, None)
                case _:
                    return None

        if self._runs.has(name):
            return None
        try:
            return await self._in_turn(name, settle_if_left)
        except (AnotherIsHeldError, LostEntryError):
            return None

    async def settle_intent(
        self,
        name: str,
        intent: Intent,
        options: ClientOptions,
        reader: AnyReader | None,
    ) -> Outcome[Any] | None:
        """
        Settle the write of *intent* by reads, and store the outcome; or return the stored verdict.

        A run of its key, here or elsewhere, may send it again, so the verdict of that run is waited for.  A
        create may have to wait for another one of its URL, too.

        ``None``: its entry is gone, or of another write, or nothing of it was sent.  *intent* may be that of
        an earlier run of the same write.  Then the later one is settled first, and ``None`` is returned if
        that had no effect: that says nothing about the earlier one.
        """

        async def settle_if_same(
            lane: Lane, found: Seen | None
        ) -> Outcome[Any] | Held | None:
            if found is None:
                return None
            stored = await self._stored.intent_in(found.entry)
            is_its_own = stored.identity == intent.identity
            if not (is_its_own or await self._is_same_write(stored, intent)):
                return None
            outcome: Outcome[Any] | None
            match found:
                case Held():
                    return found
                case Finished() if found.entry.verdict != Verdict.UNKNOWN:
                    outcome = await self._stored.outcome_of(found)
                case Finished() | Abandoned(sent=True):
                    outcome = await self._take_and_settle(
                        found.entry, lane, options, reader
                    )
                case _:
                    return None
            if is_its_own or outcome is None or outcome.verdict in _MAY_HAVE_EFFECT:
                return outcome
            return None

        while True:
            with suppress(AnotherIsHeldError, LostEntryError):
                found = await self._in_turn(name, settle_if_same)
                if not isinstance(found, Held):
                    return found
                await self._claims.waits.wait(found)
                continue
            await self._claims.waits.while_open(asyncio.sleep(_LOOK))

    async def _in_turn(
        self, name: str, act: Callable[[Lane, Seen | None], Awaitable[T]]
    ) -> T:
        """
        Return the result of *act*, called with the lane of this process and the entry of a key.

        It waits for the runs of the key here that have begun; those that begin meanwhile wait for it.
        """
        async with self._runs.kept_waiting(name):
            await self._claims.ends.until_stored(name)
            lane = await self._life.own_lane()
            return await act(lane, await self._claims.look(name, lane.token))

    async def _is_same_write(self, one: Intent, other: Intent) -> bool:
        """Return whether two intents with one key are of the same write, perhaps of different runs."""
        if not _asks_for_same(one, other):
            return False
        return await self._scopes.compared(one.scope, other.scope.team) is None

    async def _take_and_settle(
        self,
        entry: Entry,
        lane: Lane,
        options: ClientOptions,
        reader: AnyReader | None,
    ) -> Outcome[Any] | None:
        """
        Acquire *entry*, and settle its write by reads alone.

        Raises:
            AnotherIsHeldError: It cannot be acquired yet.
            LostEntryError: Another process has it.
        """
        run = KeyedRun.of_entry(entry, self._claims, lane, options.without_team())
        try:
            sender_gone = await self._acquire(run, entry)
            if run.thing is not None and not run.creates:
                run.overtaken = await is_overtaken(
                    self._claims.store, run.thing, run.place
                )
            driver = await self._stored.driver_of(
                run, entry, sender_gone=sender_gone, reader=reader
            )
            await drive(run, driver)
        except (AnotherIsHeldError, LostEntryError):
            run.lose_entry()
            raise
        finally:
            run.let_go()
        return run.outcome

    async def _acquire(self, run: KeyedRun, entry: Entry) -> bool:
        """
        Move *entry*, which is open or UNKNOWN, to the lane of *run*.

        Return whether its sender is provably gone.

        Raises:
            AnotherIsHeldError: See ``store/order``.
            LostEntryError: Another run has moved it.
        """
        if entry.state is State.DONE:
            if not await self._claims.reopen(entry, State.SENDING, run.lane):
                raise lost_entry()
            return False
        taken = await self._claims.take(entry, run.lane)
        if taken is None:
            raise lost_entry()
        return taken.is_gone


def _asks_for_same(one: Intent, other: Intent) -> bool:
    """Return whether two intents ask for the same, whatever their tags are."""
    called = (one.operation, one.path, one.query)
    if called != (other.operation, other.path, other.query):
        return False
    if one.has_body != other.has_body:
        return False
    is_same: bool = by_value(untagged_body(one)) == by_value(untagged_body(other))
    return is_same
