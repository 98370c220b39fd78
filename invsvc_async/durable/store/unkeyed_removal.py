"""A client's entries without keys: reading what was left, and removing what the application has heard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.durable.store.statements import entry_sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.opening import Store


async def entries_of(
    store: Store,
    keys: Sequence[str],
    *,
    done: bool,
) -> list[Entry]:
    """Return the entries of *keys*, oldest first: the *done* ones, or else the unfinished ones."""
    where = entry_sql.DONE_OF_KEYS if done else entry_sql.UNFINISHED_OF_KEYS
    return await store.entries(where, keys)


async def remove(
    store: Store,
    keys: Sequence[str],
    lanes: Sequence[int],
) -> None:
    """
    Delete the entries of *keys*, unless they are in other lanes than *lanes* by now.

    The application has their verdicts, or has cancelled what was not sent yet.  So it does not matter whether
    this process still owns the lanes.
    """
    await store.rows(entry_sql.REMOVE, keys, lanes)
