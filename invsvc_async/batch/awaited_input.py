"""The parts of an input that no store keeps, and entries waiting for them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    at its end, none waits: an entry that is not in the input is settled without its reader. When entries need
    not wait any more, the lanes of this process are read again.
    """

    def __init__(self, leases: Leases, news: LaneNews, *, is_open: bool) -> None:
        self._leases = leases
        self._news = news
        self.is_open: bool = is_open
        self._asked: OrderedDict[str, Asked] = OrderedDict()  # by key; the oldest go
        # by thing, or key without one: the key that may not begin yet
        self._waiting: dict[str, str] = {}

    def get(self, key: str) -> Asked | None:
        """Return what is kept of the write of *key*."""
        return self._asked.get(key)

    def keep(self, asked: Asked) -> None:
        """Keep *asked* if an entry waited for *asked*, or it has readers, or it is new in an own lane."""
        is_new_here = asked.entry is not None and asked.entry.lane in self._leases.lanes
        has_waited = self._release(asked.key)
        has_reader = asked.spec.reader is not None or callable(
            asked.spec.policy.journey_reader
        )
        if has_waited or is_new_here or has_reader:
            self._asked[asked.key] = asked
            if len(self._asked) > _KEPT:
                self._asked.popitem(last=False)
        if has_waited:
            self._news.read_again(self._leases.lanes)

    def close(self) -> None:
        """Wait for no readers any more."""
        self.is_open = False
        if self._release(None):
            self._news.read_again(self._leases.lanes)
        self._news.woken.set()

    def hold_back(self, item: Item) -> bool:
        """
        Return whether *item* has to wait for the input, and note that.

        An item that need not wait gets its readers from what is kept of the input.
        """
        name = item.entry.thing or item.entry.key
        if name not in self._waiting and self._is_complete(item):
            return False
        self._waiting.setdefault(name, item.entry.key)
        return True

    def _is_complete(self, item: Item) -> bool:
        """Pass the readers of the input to *item*; return whether it need not wait for any."""
        asked = self._asked.pop(item.entry.key, None)
        if asked is not None and item.spec is None:
            item.take_readers(asked.spec)
        return asked is not None or not (self.is_open and item.names_reader)

    def _release(self, key: str | None) -> bool:
        """Allow the write of *key* (None: any) to begin; return whether any write waited."""
        names = [name for name, waits in self._waiting.items() if key in (None, waits)]
        for name in names:
            del self._waiting[name]
        return bool(names)
