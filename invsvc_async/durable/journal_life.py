"""
The life of the journal of a client: its opening and its close, each in one task for all that ask for it.

=============  =================================  ============================================================
the journal    is known by                        what happens
=============  =================================  ============================================================
not opened     no ``own``                         ``open`` opens it, in the task ``_opening``
away           ``_away``: why                     ``start`` went on without its database: the task
                                                  ``_arriving`` tries to open it, and each write does
open           ``own``: the leases and the lane   the task ``_beating`` gives signs of life, if it is shared
               of this process
closing        ``is_closing``; ``close_began``    the task ``_ending`` ends the other tasks, stores what is
               is set                             pending, and releases the lane; nothing is opened
closed         ``_is_closed``                     ``_ending`` is not started again
=============  =================================  ============================================================

A journal whose event loop was closed before it only gets to ``is_closing``: see ``aclose``.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final

from invsvc_async.concurrency.cancellation import finished
from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.own_lane import OwnLane
from invsvc_async.durable.store.earlier_names import use_names_of_today
from invsvc_async.durable.store.sqlite import SqliteStore
from invsvc_async.errors import ConfigurationError, JournalError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.durable.leases import Lane, Leases
    from invsvc_async.durable.left_writes import LeftWrites
    from invsvc_async.durable.removal import Removal
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.transport.client_core import ClientCore


log: logging.Logger = logging.getLogger("invsvc_async.writes")

_AGAIN: Final = (
    1.0  # s before the second try to open; each pause is twice the one before
)
_SELDOM: Final = 30.0  # s at most between tries to open
_SILENT: Final = "Writes wait until this process has given a sign of life again."


class JournalLife:
    """
    The life of the journal in *store*: see the top of the file.

    The tasks are of their own: whoever awaits them may be cancelled, and again while it would clean up.
    The opening of a file takes over what is *left* there. The close waits for the *removal* of verdicts,
    which *close_began* tells to hurry.
    """

    def __init__(
        self,
        store: Store,
        left: LeftWrites,
        removal: Removal,
        close_began: asyncio.Event,
    ) -> None:
        self._store = store
        self._left = left
        self._removal = removal
        self.core: ClientCore | None = None
        self.opened: float = 0.0  # local s
        self.own: OwnLane | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # that of the first opening
        self._opening: asyncio.Task[None] | None = None
        self._away: JournalError | None = None
        self._arriving: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self.is_closing: bool = False  # or closed
        self._close_began = close_began
        self._ending: asyncio.Task[None] | None = None
        self._is_closed = False
        self._unclosed: weakref.finalize[..., JournalLife] | None = None

    @property
    def has_company(self) -> bool:
        """Whether other processes use the journal now."""
        return self.own is not None and self.own.leases.living > 1

    @property
    def alone_since(self) -> float:
        """
        The local time since which only this process can have sent anything: the opening of a file.

        ``inf`` if processes share the journal: there is no such time.
        """
        if self._store.is_shared:
            return inf
        return self.opened

    async def open(self) -> None:
        """
        Open it, and begin to give signs of life; does nothing if it is open.

        Raises:
            JournalError: The file or database cannot be used; another process has the file, which is named;
                it is damaged, no journal of a client, or of another version.
            ConfigurationError: It belongs to another event loop.
        """
        try:
            await self._ensure_open()
        except JournalError as error:
            if self._away is None:
                raise
            raise JournalError(
                f"journal: it has not been reached since the start, so nothing was sent. {error}",
                is_away=error.is_away,
            ) from error

    async def _ensure_open(self) -> None:
        """Open the journal, unless it is open, in one task for all callers."""
        if self.is_closing:
            raise JournalError(
                "journal: the client is closed, so nothing was sent. Open a new client."
            )
        self._loop = self._loop or asyncio.get_running_loop()
        self._check_loop()
        if self.own is not None:
            self._go_on_beating(self.own.leases)
            return
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(_note_failure)
        await asyncio.shield(self._opening)

    async def start(self) -> None:
        """
        Open the journal as ``open`` does; go on without its database if the database is away.

        The address must allow that, or else the error is raised.  Each write then tries to open the journal,
        and is refused if that fails.  A task tries, too, until it succeeds.
        """
        if self._arriving is not None and not self._arriving.done():
            return
        try:
            await self._ensure_open()
        except JournalError as error:
            if not (error.is_away and self._store.starts_away):
                raise
            log.error(
                "The client starts without its journal, and refuses writes until then: %s",
                error,
            )
            self._away = error
            self._arriving = asyncio.create_task(
                self._open_when_reached(), name="invsvc journal opening"
            )

    async def _open_when_reached(self) -> None:
        """Try to open it, again and again, until its database is there."""
        pause = _AGAIN
        while self.own is None and not self.is_closing:
            await set_within(self._close_began, pause)
            pause = min(2 * pause, _SELDOM)
            try:
                await self._ensure_open()
            except JournalError as error:
                self._away = error
        if self.own is not None:
            self._away = None
            log.warning("The client's journal can be reached again")

    @property
    def problem(self) -> str | None:
        """Why its database has not been reached since the start; ``None`` once it has."""
        if self._away is None or self.own is not None:
            return None
        return str(self._away)

    async def _open(self) -> None:
        """Open the store, and begin to give signs of life. If that fails, close the store."""
        try:
            if self._unclosed is None:
                self._unclosed = weakref.finalize(self, self._store.abandon)
                self._unclosed.atexit = False
            await self._store.open_for(self.core, same_mode=False)
            if self.core is not None:
                await use_names_of_today(self._store, self.core)
            own = await OwnLane.made(self._store, self.core)
            if not self._store.is_shared:
                await self._left.take(own.lane, None)
        except BaseException:
            await self._store.aclose()
            raise
        self._go_on_beating(own.leases)
        if self.core is not None:
            self.core.note_store("journal", own.leases)
        self.opened = own.leases.clock.now()
        self.own = own

    def _go_on_beating(self, leases: Leases) -> None:
        """Start the task for the signs of life, unless it runs: a signal handler may have ended it."""
        if not self._store.is_shared or self.is_closing:
            return
        if self._beating is None or self._beating.done():
            self._beating = asyncio.create_task(leases.live(warning=_SILENT))
            weakref.finalize(self, _end_soon, self._beating).atexit = False

    def _check_loop(self) -> None:
        if self._loop is not asyncio.get_running_loop():
            raise ConfigurationError(
                "journal: its client belongs to the event loop that used it first. Make one client for each "
                "loop."
            )

    async def own_lane(self) -> Lane:
        """Return the lane of this process; make a new lane if another process took this process for dead."""
        await self.open()
        own = self.own
        assert own is not None
        if own.lane.lost or own.lane.doubtful:
            await own.renew()
        return own.lane

    async def aclose(self, end_runs: Callable[[], Awaitable[None]]) -> None:
        """
        Close the journal once everything is stored, even if the call is cancelled.

        *end_runs* ends what is under way beside the runs of keys. Open writes are left to other processes.
        A second call waits for the first one.

        Raises:
            ConfigurationError: The journal belongs to another event loop, which is not closed.
        """
        if self._loop is not None and self._loop.is_closed():
            # Connections cannot be used in another loop: others notice that this process is silent.
            was_closed = self.is_closing
            self.is_closing = True
            if not isinstance(self._store, SqliteStore):
                self._store.abandon()
                return
            if self.own is not None and not was_closed:
                self._store.forget([*self._removal.heard])
            await self._store.aclose()
            return
        if self._loop is not None:
            self._check_loop()
        if self._ending is None or (self._ending.done() and not self._is_closed):
            self._ending = asyncio.create_task(self._close(end_runs))
        await finished(self._ending)

    async def _close(self, end_runs: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(0)  # the application is about to get what was just returned
        self.is_closing = True
        self._close_began.set()
        try:
            for opening in (self._arriving, self._opening):
                if opening is not None and not opening.done():
                    opening.cancel()
                    await asyncio.wait([opening])
            await end_runs()
            if self.own is not None:
                await self.own.leave(self._removal)
        finally:  # also if that was cancelled: signs of life would keep others from what is open
            if self._beating is not None:
                self._beating.cancel()
                await asyncio.wait([self._beating])
            await self._store.aclose()
            self._is_closed = True


def _note_failure(opening: asyncio.Task[None]) -> None:
    """Mark the error of a failed opening as retrieved: the task that awaited it may have been cancelled."""
    if not opening.cancelled():
        opening.exception()


def _end_soon(task: asyncio.Task[None]) -> None:
    """Cancel *task* from any thread, because the journal that started it is gone."""
    with suppress(RuntimeError):  # its loop is closed
        task.get_loop().call_soon_threadsafe(task.cancel)
