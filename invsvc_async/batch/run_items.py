"""The items of a run: those that have not ended, in the order of what they write to, and those that have."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from invsvc_async.batch.team_turns import ReadyItems

if TYPE_CHECKING:
    from invsvc_async.batch.item import Item


class RunItems:
    """
    The items of a run from ``add`` until their results are taken.

    The items of one thing are in a line, in their order. The first of a line is ready or under way, or has
    ended; then the line goes on with ``next_in_line``. An item without a thing is in no line.
    """

    def __init__(self, per_team: int | None) -> None:
        # What has not ended, by the number of the entry.
        self.held: dict[int, Item] = {}
        self.ready: ReadyItems = ReadyItems(per_team)
        self._lines: dict[str, deque[Item]] = {}
        self.finished: deque[Item] = deque()  # whose results nobody has taken

    def __len__(self) -> int:
        return len(self.held) + len(self.finished)

    @property
    def waiting_in_line(self) -> int:
        """How many items wait in lines, behind others of the same things."""
        return sum(len(line) - 1 for line in self._lines.values())

    def add(self, item: Item) -> None:
        """Add *item*, which is ready if no other is before it in its line."""
        self.held[item.entry.seq] = item
        thing = item.entry.thing
        if thing is not None:
            line = self._lines.setdefault(thing, deque())
            line.append(item)
            if line[0] is not item:
                return
        self.ready.append(item)

    def put_back(self, item: Item) -> None:
        """Make *item*, which was under way, begin next; its place in the line stays."""
        self.ready.end(item)
        self.ready.append_first(item)

    def end(self, item: Item) -> None:
        """Note that *item*, which was under way, has ended."""
        del self.held[item.entry.seq]
        self.ready.end(item)

    def next_in_line(self, thing: str) -> bool:
        """Make the item after the first of *thing*, which has ended, ready; return whether there is one."""
        line = self._lines[thing]
        line.popleft()
        if line:
            self.ready.append(line[0])
            return True
        del self._lines[thing]
        return False
