"""The parts of an input that no store keeps, and entries waiting for them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from invsvc_async.batch.feeding import Feeding
    from invsvc_async.batch.intake import Asked
    from invsvc_async.batch.item import Item
    from invsvc_async.batch.lane_news import LaneNews
    from invsvc_async.durable.leases import Leases


_KEPT = 10_000  # writes of the input, at most: those of other processes are not needed


class AwaitedInput:
    """
    The user-supplied readers of the input's writes, and their unpacked intents.

    An entry has only the name of its reader. While the input ``is_open``, an entry that lacks its reader
    waits for the write of the input with its key, and so do all later entries of its thing. Once the input is
    at its end, none waits: an entry that is not in the input is settled without its reader.

    An entry of a restored journal that could be sent over a later write of the input waits, too
    (``Restored.lacks_later``).

    The input does not end the waiting itself: it makes the lane be read again from its beginning, and only
    that read ends it (``read_anew``). What was read before may have later entries of the thing: these would
    be sent before those that waited.
    """

    def __init__(
        self,
        feeding: Feeding,
        leases: Leases,
        news: LaneNews,
        *,
        is_open: bool,
    ) -> None:
        self._feeding = feeding
        self._leases = leases
        self._news = news
        self.is_open: bool = is_open
        self._asked: OrderedDict[str, Asked] = OrderedDict()  # by key; the oldest go
        # By lane, what may not begin: things, or keys of entries without one.
        self._waiting: dict[int, set[str]] = {}
        # By lane, the keys of the writes of the input that these wait for.
        self._awaited: dict[int, set[str]] = {}

    # --- the input

    def get(self, key: str) -> Asked | None:
        """Return what is kept of the write of *key*."""
        return self._asked.get(key)

    def keep(self, asked: Asked) -> None:
        """Keep *asked* if an entry waits for *asked*, or it has readers, or it is new in an own lane."""
        is_new_here = asked.entry is not None and asked.entry.lane in self._leases.lanes
        lanes = [lane for lane, keys in self._awaited.items() if asked.key in keys]
        has_reader = asked.spec.reader is not None or callable(
            asked.spec.policy.journey_reader
        )
        if lanes or is_new_here or has_reader:
            self._asked[asked.key] = asked
            if len(self._asked) > _KEPT:
                self._asked.popitem(last=False)
        if lanes:
            self._news.read_again(lanes)

    def close(self) -> None:
        """End all waiting, because the input is at its end, and all of it is in the store."""
        self._feeding.end_input()
        self.is_open = False
        self._news.read_again(self._waiting)

    @property
    def is_awaited(self) -> bool:
        """Whether something waits for the input."""
        return any(self._waiting.values())

    # --- the entries

    def read_anew(self, lane: int) -> None:
        """End the wait of *lane*: a read from its beginning shows what still has to wait."""
        self._waiting.pop(lane, None)
        self._awaited.pop(lane, None)

    def hold_back(self, item: Item) -> bool:
        """
        Return whether *item* has to wait for the input, and note that.

        An item that need not wait gets its readers from what is kept of the input.
        """
        lane = item.lane.number
        name = item.entry.thing or item.entry.key
        if name in self._waiting.get(lane, ()):
            return True
        if self.is_open and item.lacks_later:
            self._waiting.setdefault(lane, set()).add(name)
            return True
        if self._is_complete(item):
            return False
        self._waiting.setdefault(lane, set()).add(name)
        self._awaited.setdefault(lane, set()).add(item.entry.key)
        return True

    def _is_complete(self, item: Item) -> bool:
        """Pass the readers of the input to *item*; return whether it need not wait for any."""
        asked = self._asked.pop(item.entry.key, None)
        if asked is None:
            return not (self.is_open and item.names_reader)
        if item.spec is None:
            item.take_readers(asked.spec)
        return True
