"""Deleting writes of an outbox in SQLite: entries in the store, and their rows in the application's file."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from invsvc_async.durable.store import application_table, deleted_rows
from invsvc_async.durable.store.adding import known_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from invsvc_async.durable.store.opening import Store
    from invsvc_async.outbox.application_file import ApplicationFile
    from invsvc_async.storage.dialect import Script


T = TypeVar("T")


class FileDeletions:
    """
    The deletions of entries in *store* whose rows are in *file*.

    They come one at a time, and none comes beside a move of rows.
    """

    def __init__(self, store: Store, file: ApplicationFile) -> None:
        self._store = store
        self._file = file
        # whether a deletion may have been interrupted, by which process ever
        self._may_have_note = True
        # Whether the store was restored from a copy at this start.
        self.is_of_copy: bool = False

    async def delete(
        self,
        keys: Sequence[str],
        deletion: Callable[[], Script[T]],
    ) -> T:
        """
        Run *deletion* of entries of *keys*, then delete the rows of deleted entries.

        See ``deleted_rows`` for the order. Rows that are not marked as moved, because of a kill, are marked
        before: else, a kill now would leave a row that counts as new.
        """
        await self.settle()
        known = await known_of(self._store, keys)
        if digests := [(key, each.digest) for key, each in known.items()]:
            mark = application_table.mark_rows_of(self._file.base_url, digests)
            await self._file.do(mark)
        self._may_have_note = True
        script = partial(deleted_rows.deleting, keys, deletion)
        result, gone = await self._store.run(script)
        if gone:
            await self._delete_rows(gone)
            await self._store.run(deleted_rows.forget)
        self._may_have_note = False
        return result

    async def settle(self) -> None:
        """Settle what a deletion has left that was interrupted; before any row is moved or deleted."""
        if not self._may_have_note:
            return
        if deleted := await self._store.run(deleted_rows.noted):
            rows = application_table.moved_of(self._file.base_url, [*deleted])
            moved = {key for (key,) in await self._file.do(rows)}
            ended = [key for key in moved if deleted[key] is None]
            # A copy of the store does not know what had the key later, and was perhaps sent.
            if ended and not self.is_of_copy:
                free = await self._store.run(
                    partial(deleted_rows.without_entries, ended)
                )
                if free:
                    await self._delete_rows(free)
            settle = partial(deleted_rows.settle, deleted, moved)
            lanes = await self._store.run(settle)
            await self._store.notify(*map(str, lanes))
        self._may_have_note = False

    async def _delete_rows(self, keys: Sequence[str]) -> None:
        await self._file.do(application_table.delete_moved(self._file.base_url, keys))
