"""How many items a run takes in."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from invsvc_async.batch.pacing import Slots
    from invsvc_async.batch.run_end import RunEnd
    from invsvc_async.batch.run_items import RunItems


async def next_change(changed: asyncio.Event) -> None:
    """Wait until *changed* is set from now on."""
    changed.clear()
    await changed.wait()


class Room:
    """
    The room for more *items* in a run of so many writes at once, *concurrency*.

    There is room until memory is used for as many items as it may be, or enough items are ready: so a slow
    consumer slows the input down. A run that is halted has none.

    There are two bounds of what is ready. Items that were read are added up to a part of *concurrency*, which
    stays the same. But before more entries are read (``until_low``), fewer items must be ready than there are
    slots now: a service that is slow leaves fewer slots than that part.
    """

    def __init__(
        self,
        concurrency: int,
        items: RunItems,
        slots: Slots,
        run_end: RunEnd,
        changed: asyncio.Event,
    ) -> None:
        self._concurrency = concurrency
        self._items = items
        self._slots = slots
        self._run_end = run_end
        self._changed = changed
        # Whether ``until_low`` waits: only then is it a change that an item begins.
        self.is_low_awaited: bool = False

    @property
    def is_available(self) -> bool:
        """Whether an item may be added."""
        return not (self._run_end.is_halted or self._is_full)

    @property
    def is_at_limit(self) -> bool:
        """
        Whether there are as many items, with results that nobody has taken, as memory is used for.

        That leaves room for those that are settled beside those in slots, and for results that wait.
        """
        return len(self._items) >= 8 * self._concurrency + 64

    @property
    def _is_full(self) -> bool:
        """Whether the limit is reached, or enough items are ready: more would slow garbage collection."""
        return self.is_at_limit or self._items.ready.startable >= max(
            1, self._concurrency // 2
        )

    async def until_available(self) -> None:
        """Wait until an item may be added. Of a halted run, the task that adds items is cancelled."""
        while not self.is_available:
            await next_change(self._changed)

    async def until_low(self) -> None:
        """Wait until fewer items are ready than there are slots, so that no slot stays empty."""
        self.is_low_awaited = True
        try:
            while not self.is_available or self._has_one_for_each_slot:
                await next_change(self._changed)
        finally:
            self.is_low_awaited = False

    @property
    def _has_one_for_each_slot(self) -> bool:
        """Whether an item is ready for each slot that there is now."""
        slots = self._slots
        return self._items.ready.startable >= slots.free + slots.in_use
