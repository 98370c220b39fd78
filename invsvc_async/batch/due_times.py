"""When the next write of an outbox that waits for its time is due."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Final

from invsvc_async.durable.store.due import bring_back

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from invsvc_async.durable.store.lanes import OwnedLane
    from invsvc_async.durable.store.opening import Store


_SOON: Final = 0.05  # s between looks after news
# s between looks while something waits: the clocks that tell when it is due may be set
_LONGEST: Final = 60.0


class DueTimes:
    """When to look at what waits for its time in *store*; only an outbox has such writes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._can_have = store.how.kind == "outbox"
        self._looked = 0.0  # loop time
        self._next = 0.0 if self._can_have else inf

    @property
    def next_in(self) -> float:
        """In how many seconds to look; 0.0 or less: now."""
        return self._next - asyncio.get_running_loop().time()

    @property
    def is_up(self) -> bool:
        """Whether it is time to look."""
        return self.next_in <= 0

    def look_soon(self) -> None:
        """Look soon, because there may be something new."""
        if self._can_have:
            self._next = min(self._next, self._looked + _SOON)

    async def bring_back(self, lanes: Collection[OwnedLane]) -> Mapping[int, int]:
        """
        Bring entries that are due back into *lanes*; return the place after which to read each lane.

        A call moves a few; there is another look at once then.
        """
        self._next = inf
        self._looked = asyncio.get_running_loop().time()
        found = await bring_back(self._store, lanes)
        if found.next_in is not None:
            soonest = 0.0 if found.lanes else _SOON  # if the lanes are another's by now
            wait = max(min(found.next_in, _LONGEST), soonest)
            # what was heard meanwhile may be earlier
            self._next = min(self._next, self._looked + wait)
        return found.lanes
