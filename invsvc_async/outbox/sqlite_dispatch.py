"""The dispatcher of an outbox in SQLite: the run of the one process that sends."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from invsvc_async.durable.records import verdict_of_unfit
from invsvc_async.errors import InvalidRequestError, JournalError
from invsvc_async.outbox.run import OutboxRun
from invsvc_async.outbox.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.batch.batch import Batch
    from invsvc_async.batch.engine import Engine
    from invsvc_async.batch.journals.sqlite import SqliteBatch

__all__ = ["SqliteOutbox"]

_AT_ONCE = 128  # entries read together


class SqliteDispatcher(OutboxRun):
    """The run of the one process that sends."""

    def __init__(
        self, batch: Batch, store: SqliteStore, grace: float, on_verdict: Callable[[], None]
    ) -> None:
        super().__init__(batch, grace, on_verdict)
        self._store = store

    async def _feed_all(self, engine: Engine) -> None:
        store, journal = self._store, self._store.entries
        await self._end_unfit(journal)
        await self._feed_left(engine, journal, None)
        while True:
            await engine.room()
            again = await store.take_again(engine.held)
            new, more = await store.move(partial(self._check, in_doubt=False))
            if more:
                self._on_verdict()  # of rows that are unfit
            found = [*again, *new]
            items = [self._item(entry, journal) for entry in found]
            busy = {item.thing for item in engine.held.values() if item.thing is not None}
            await self._taken_up(found, items, {})
            for entry, item in zip(found, items, strict=True):
                if entry in again and item.thing in busy:  # what is under way is newer
                    store.put_off(entry.key)
                    continue
                await engine.room()
                engine.add(item)
            if not more:
                await store.changed()

    async def _end_unfit(self, journal: SqliteBatch) -> None:
        """Store a verdict for what an earlier process left, and this version cannot read."""
        after = 0
        while page := await journal.not_done(after, _AT_ONCE):
            for entry in page:
                is_of_copy = self._is_of_copy(entry)
                try:
                    intent = self._intent(entry)
                    self._check(intent, in_doubt=is_of_copy or bool(intent.sent))
                except (JournalError, InvalidRequestError) as error:
                    await journal.put(verdict_of_unfit(entry, error, is_of_copy=is_of_copy))
            after = page[-1].seq


class SqliteOutbox(SqliteStore):
    """The outbox in the application's file at *path*."""

    async def dispatch(self, batch: Batch, grace: float, on_verdict: Callable[[], None]) -> None:
        """Send what is committed, until cancelled. *on_verdict* is called when verdicts were stored."""

        def told() -> None:
            self.entries.deliveries.restart()  # not needed: consumers have their own list
            on_verdict()

        await SqliteDispatcher(batch, self, grace, told).dispatch()
