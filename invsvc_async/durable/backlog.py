"""What waits in a store of writes, and in the stores of one client."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakKeyDictionary

from invsvc_async.durable.entries import Entries
from invsvc_async.durable.store.lists import ready_since
from invsvc_async.durable.store.noted import Chosen
from invsvc_async.durable.store.unheard import count_untold
from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async.durable.leases import Leases


MOST: Final = 100_000  # entries that are counted


class StoreBacklog(NamedTuple):
    """
    The writes and verdicts that wait in a store, or in several stores of the same kind.

    ``open`` counts writes without a verdict, the oldest of which could have been sent ``oldest`` s ago:
    since it was stored, or since the time before which it was not to be sent.  ``untold`` counts verdicts
    that nobody has acknowledged; ``lanes`` the parts that this process has.
    """

    open: int
    oldest: float
    untold: int
    lanes: int

    def with_other(self, other: StoreBacklog) -> StoreBacklog:
        """Return that of both."""
        oldest = max(self.oldest, other.oldest)
        return StoreBacklog(
            self.open + other.open,
            oldest,
            self.untold + other.untold,
            self.lanes + other.lanes,
        )


class Backlogs:
    """
    What waits in *stores*, which are each of a kind (``"journal"``, ``"batch"``, ``"outbox"``) and in a loop.

    It is read by what collects metrics, in any thread: each reading gets what the one before has asked for,
    which the store's own connections answer in the loop of the client.
    """

    def __init__(
        self, stores: Mapping[Leases, tuple[str, asyncio.AbstractEventLoop]]
    ) -> None:
        self._stores = stores
        self._found: WeakKeyDictionary[Leases, StoreBacklog] = WeakKeyDictionary()
        self._asking: set[asyncio.Task[None]] = set()

    def found(self) -> dict[str, StoreBacklog]:
        """Return by kind of store what was found last."""
        found: dict[str, StoreBacklog] = {}
        for leases, (kind, _) in [*self._stores.items()]:
            if (mine := self._found.get(leases)) is not None:
                found[kind] = found[kind].with_other(mine) if kind in found else mine
        return found

    def ask(self) -> None:
        """Ask each store what waits in it, for the next reading."""
        for leases, (kind, loop) in [*self._stores.items()]:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._begin, kind, leases)

    def _begin(self, kind: str, leases: Leases) -> None:
        # as many wait already if a database is away
        if len(self._asking) < len(self._stores):
            task = asyncio.get_running_loop().create_task(self._find(kind, leases))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _find(self, kind: str, leases: Leases) -> None:
        try:
            many, oldest = await Entries(leases.store).count(MOST, Chosen(state="open"))
            if kind == "outbox":  # whose writes may wait for their time
                oldest = await ready_since(leases.store, MOST)
            untold = await count_untold(leases.store, MOST)
        except JournalError:  # it is closed or away
            self._found.pop(leases, None)
            return
        since = 0.0 if oldest is None else max(0.0, time.time() - oldest / 1000)
        self._found[leases] = StoreBacklog(many, since, untold, len(leases.lanes))
