"""
How the runs of keys in one process end, also after they were cancelled: before the next run of the key here.

What has to be done beside the runs is done in tasks, which the close of the journal waits for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from invsvc_async.durable.entry import LostEntryError, State
from invsvc_async.durable.key_names import key_in
from invsvc_async.durable.store.claims import release
from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.leases import Lane
    from invsvc_async.durable.run_waits import RunWaits
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.durable.store.states import Left


T = TypeVar("T")
_AGAIN: Final = 1.0  # s between tries to store how a run ended
_TO_LEAVE: Final = 10.0  # s for which the next run waits for that
TO_END: Final = 1.0  # s that the journal has to store how runs have ended


class RunEnds:
    """The ends of runs in *store*, by the keys of their entries; *waits* tells those who wait for them."""

    def __init__(self, store: Store, waits: RunWaits) -> None:
        self._store = store
        self._waits = waits
        self._is_closing = False
        self._tasks: set[asyncio.Task[object]] = set()
        # By key: what the next run waits for.  It is `_store_end`; or, if a run was cancelled while its entry
        # was inserted or moved, that, until `end_run` is called: then `_store_end` awaits it.
        self._unfinished: dict[str, asyncio.Future[Any]] = {}

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run *coroutine* beside the runs."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def end_run(
        self,
        name: str,
        lane: Lane,
        entry: Entry | None = None,
        left: Left | None = None,
        *,
        unsent: str | None = None,
    ) -> None:
        """
        End a run of a key before the next run in this process: store *entry*, and release it if open.

        One with the intent *unsent* was inserted as one that is being sent, and was not: it becomes TO DO.
        """
        earlier = self._unfinished.get(name)
        self._unfinished[name] = self.start(
            self._store_end(name, lane, entry, left, earlier, unsent)
        )

    async def _store_end(
        self,
        name: str,
        lane: Lane,
        entry: Entry | None,
        left: Left | None,
        earlier: asyncio.Future[object] | None,
        unsent: str | None,
    ) -> bool:
        """Do what :meth:`end_run` says, until it is done; return whether there was a verdict."""
        has_verdict = entry is not None and entry.state is State.DONE
        if earlier is not None:
            await asyncio.wait([earlier])
        while True:
            try:
                if entry is not None:
                    await lane.put(entry, left)
                if not has_verdict:
                    await release(self._store, name, lane, unsent)
                break
            except LostEntryError:  # another process has the entry, and ends it
                break
            except (
                JournalError
            ):  # the store is away: try again while the journal is open
                if self._is_closing:
                    break
            await asyncio.sleep(_AGAIN)
        self._waits.notify(lane.number)
        has_no_later_end = self._unfinished.get(name) is asyncio.current_task()
        if has_no_later_end:
            del self._unfinished[name]
        return has_verdict

    async def until_stored(self, name: str) -> bool:
        """
        Wait until the last run of a key in this process has ended; return whether it had a verdict to store.

        Raises:
            JournalError: It has not, because the journal cannot store that.
        """
        has_verdict = False
        # What a cancelled run has begun, and then the release of what came of it.
        while (ended := self._unfinished.get(name)) is not None:
            await self._waits.while_open(asyncio.wait([ended], timeout=_TO_LEAVE))
            if not ended.done():
                raise JournalError(
                    f"key {key_in(name)!r}: the journal could not store yet how its last run ended. Nothing "
                    "was sent now. Run it again.",
                    is_away=self._store.is_shared,
                )
            if self._unfinished.get(name) is ended:
                del self._unfinished[name]
            has_verdict = bool(ended.result())
        return has_verdict

    async def to_its_end(self, name: str, moving: Coroutine[Any, Any, T]) -> T:
        """Await *moving*; if the wait is cancelled, *moving* goes on, and the end of the run waits for it."""
        task = self.start(moving)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self.wait_for(name, task)
            raise

    def wait_for(self, name: str, ended: asyncio.Future[Any]) -> None:
        """Make the next run of a key wait for *ended*, begun by a cancelled run, unless that is done."""
        if not ended.done():
            self._unfinished[name] = ended
            ended.add_done_callback(_note_error)

    def begin_close(self) -> None:
        """Try nothing again from now on: the journal is about to be closed."""
        self._is_closing = True

    async def close(self) -> None:
        """Wait for what is under way beside the runs, all of which have ended."""
        if self._tasks:
            await asyncio.wait([*self._tasks], timeout=TO_END)


def _note_error(ended: asyncio.Future[Any]) -> None:
    """Look at the error of *ended*, which nobody awaits any more: asyncio would log it as not retrieved."""
    if not ended.cancelled():
        ended.exception()
