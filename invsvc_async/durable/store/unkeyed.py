"""The entries of a client's writes without keys, which are removed once the application has the verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from invsvc_async.durable.entry import State
from invsvc_async.durable.store.conditions import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.opening import Store


_IS_UNFINISHED: Final = f"e.{UNFINISHED}"
_IS_DONE: Final = f"e.state = {State.DONE:d}"
_REMOVE: Final = "DELETE FROM {s}entries WHERE key {any 1 text} AND lane {any 2 bigint}"


async def entries_of(store: Store, keys: Sequence[str], *, done: bool) -> list[Entry]:
    """Return the entries of *keys*, oldest first: those that are done, or those that are not."""
    which = _IS_DONE if done else _IS_UNFINISHED
    return await store.entries(f"e.key {{any 1 text}} AND {which} ORDER BY e.seq", keys)


async def remove(store: Store, keys: Sequence[str], lanes: Sequence[int]) -> None:
    """
    Delete the entries of *keys*, unless they are in other lanes than *lanes* by now.

    The application has their verdicts, so it does not matter whether this process still owns the lanes.
    """
    await store.rows(_REMOVE, keys, lanes)
