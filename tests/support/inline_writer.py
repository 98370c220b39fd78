"""The writer of a journal in a file, without its thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from invsvc_async.concurrency.cancellation import settle
from invsvc_async.errors import JournalError
from invsvc_async.storage.sqlite_writer import Writer

if TYPE_CHECKING:
    import sqlite3

__all__ = ["InlineWriter"]


class InlineWriter(Writer):
    """A group is committed in one step of the loop, some time after it was asked for."""

    connection: sqlite3.Connection | None = None

    def delay(self) -> float:
        """Return how long the commit of what is under way takes, in seconds of the loop."""
        raise NotImplementedError

    def start_thread(self) -> None:
        """Open the connection; there is no thread."""
        try:
            self.connection = self._committer.connect()
        except JournalError as error:
            self._died(error)
        else:
            settle(self._opened, None, None)

    async def stop(self) -> None:
        """Commit what was asked for, and close."""
        self._ended = JournalError(f"{self._name}: it is closed. Open it again.")
        connection, self.connection = self.connection, None
        try:
            for jobs in (self._under_way, self._waiting):
                if connection is not None and jobs:
                    self._commit(connection, jobs)
                for job in jobs:
                    job.resolve()
        finally:  # the thread closes it, whatever a signal handler interrupts here
            if connection is not None:
                self._close(connection)

    def _hand_over(self) -> None:
        if self._waiting and not self._under_way and self._ended is None:
            self._under_way, self._waiting = self._waiting, []
            self._loop.call_later(self.delay(), self._land)

    def _commit(self, connection: sqlite3.Connection, jobs: list[Any]) -> bool:
        return self._committer.commit(connection, jobs)

    def _close(self, connection: sqlite3.Connection) -> None:
        connection.close()

    def _land(self) -> None:
        if self.connection is not None:
            jobs = self._under_way
            is_clean = self._commit(self.connection, jobs)
            try:
                self._committed(jobs)
            except (
                Exception
            ):  # as a signal handler's; the thread asks for it twice, too
                self._committed(jobs)
                raise
            self._committer.end_group(self.connection, is_clean=is_clean)
