"""Whether an outbox is open, and for which event loop; or away, because its database could not be reached."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.outbox.pauses import pause_after

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.outbox.entries import OutboxEntries


log: logging.Logger = logging.getLogger("invsvc_async.outbox")


class OutboxOpening:
    """
    The opening of an outbox, whose writes are *entries*.

    It is closed; or open; or away, since it was entered without its database. Then a task opens it as soon as
    that can be reached.
    """

    def __init__(self, entries: OutboxEntries) -> None:
        self._entries = entries
        self.is_open: bool = False
        self._loop: asyncio.AbstractEventLoop | None = None  # while it is entered
        # While its database has not been reached since it was entered: why, and what tries again.
        self._away: JournalError | None = None
        self._arriving: asyncio.Task[None] | None = None

    @property
    def problem(self) -> str | None:
        """Why the database has not been reached since the outbox was entered; ``None`` once it has."""
        if self._away is None:
            return None
        return str(self._away)

    @property
    def has_loop(self) -> bool:
        """Whether the event loop in which the outbox was entered can still run tasks."""
        return self._loop is not None and not self._loop.is_closed()

    async def enter(self, on_arrival: Callable[[], None]) -> None:
        """
        Open the outbox; call *on_arrival* once it is open, if its database is away now.

        Raises:
            JournalError: It cannot be opened, or is away and the address does not allow to start so.
            ConfigurationError: It is open already.
        """
        if self._loop is not None:  # what the first opening has would never be closed
            raise ConfigurationError("outbox: it is open already. Enter it once.")
        self._loop = asyncio.get_running_loop()
        try:
            await self._entries.open()
        except JournalError as error:
            if not (error.is_away and self._entries.store.starts_away):
                self._loop = None
                raise
            log.error(
                "outbox: it starts without its database, and refuses writes until then: %s",
                error,
            )
            self._away = error
            self._arriving = asyncio.create_task(
                self._arrive(on_arrival), name="invsvc outbox opening"
            )
        except BaseException:
            self._loop = None
            raise
        else:
            self.is_open = True

    async def _arrive(self, on_arrival: Callable[[], None]) -> None:
        """Open it, again and again, until its database is there."""
        failures = 1
        while self._away is not None:
            await asyncio.sleep(pause_after(failures))
            try:
                await self._entries.open()
            except JournalError as error:
                failures += 1
                self._away = error
                log.error("outbox: it is still without its database: %s", error)
            else:
                self._away = None
        log.warning("outbox: its database can be reached again")
        self.is_open = True
        on_arrival()

    def shut(self) -> None:
        """Note that the outbox is about to be closed: nothing begins any more."""
        self.is_open = False
        self._away = None

    async def stop_arriving(self) -> None:
        """End the task that tries to open the outbox."""
        if self._arriving is not None:
            self._arriving.cancel()
            await asyncio.wait([self._arriving])
            self._arriving = None

    def leave(self) -> None:
        """Note that the outbox is closed: another event loop may enter it."""
        self._loop = None

    def check_open(self) -> None:
        """Raise an error unless the outbox is open, for changes too, in this event loop."""
        self.check_reached()
        if not self.is_open:
            raise JournalError("outbox: it is not open. Use it with `async with`.")
        self.check_writing()
        self.check_loop()

    def check_reached(self) -> None:
        """Raise JournalError if the database has not been reached since the outbox was entered."""
        if self._away is not None:
            raise JournalError(
                f"outbox: its database has not been reached since the start. Nothing was done. {self._away}",
                is_away=True,
            )

    def check_writing(self) -> None:
        """Raise JournalError if the outbox only reads."""
        if self._entries.store.how.reading:
            raise JournalError(
                "outbox: it was opened with reading=True. Open it without for anything else."
            )

    def check_loop(self) -> None:
        """Raise ConfigurationError if the outbox is open in another event loop."""
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise ConfigurationError(
                "outbox: it belongs to the event loop that opened it. Open one in each process, and for each "
                "loop."
            )
