"""The settling, by reads alone, of keyed writes whose processes have died."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from invsvc_async.durable.entry import Entry, LostLaneError
from invsvc_async.durable.key_drivers import drive
from invsvc_async.durable.keyed_run import KeyedRun
from invsvc_async.durable.store.claims import Abandoned
from invsvc_async.durable.store.order import is_overtaken
from invsvc_async.errors import InvalidRequestError
from invsvc_async.writes.recovery import check_scope

if TYPE_CHECKING:
    from invsvc_async.durable.journal_life import JournalLife
    from invsvc_async.durable.key_claims import Claims
    from invsvc_async.durable.key_names import Namespaces
    from invsvc_async.durable.key_runs import KeyRuns
    from invsvc_async.durable.stored_keys import StoredKeys
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.transport.client_core import ClientOptions


class LeftKeys:
    """The writes of keys that nobody has, and that may have been sent."""

    def __init__(
        self,
        names: Namespaces,
        claims: Claims,
        runs: KeyRuns,
        stored: StoredKeys,
        life: JournalLife,
    ) -> None:
        self._names = names
        self._claims = claims
        self._runs = runs
        self._stored = stored
        self._life = life

    async def may_settle(
        self, entry: Entry, options: ClientOptions, *, same_mode: bool = False
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
        """Settle the write of an entry that nobody has, by reads alone, unless a run of it began here."""
        if self._runs.has(name):
            return None
        with self._runs.of(name) as runs:
            async with runs.lock:
                await self._claims.ends.until_stored(name)
                lane = await self._life.own_lane()
                match await self._claims.look(name, lane.token):
                    case Abandoned(entry=entry, sent=True):
                        run = KeyedRun.of_entry(
                            entry, self._claims, lane, options.without_team()
                        )
                        return await self._take_and_settle(run, entry)
                    case _:
                        return None

    async def _take_and_settle(
        self, run: KeyedRun, entry: Entry
    ) -> Outcome[Any] | None:
        """Acquire *entry*, and settle its write by reads alone; return ``None`` if another run has it."""
        try:
            taken = await self._claims.take(entry, run.lane)
            if taken is None:
                run.lose_entry()
                return None
            if run.thing is not None and not run.creates:
                run.overtaken = await is_overtaken(
                    self._claims.store, run.thing, run.place
                )
            driver = await self._stored.driver_of(run, entry, sender_gone=taken.is_gone)
            await drive(run, driver)
        except LostLaneError:
            run.lose_entry()
        finally:
            run.let_go()
        return run.outcome
