"""Which results of a batch were taken by the consumer of its runs."""

from __future__ import annotations

from heapq import heappop, heappush

__all__ = ["Deliveries"]


class Deliveries:
    """
    The positions of finished writes whose results are given, in order to know which of them were taken.

    All results up to ``cursor`` were taken. A journal stores this number, so that the next run first gives
    the results after it. Results may be taken in another order than that of their positions.
    """

    def __init__(self, cursor: int = 0) -> None:
        self.cursor: int = cursor
        self.last: int = cursor  # position that was added
        self.is_lost: bool = False  # another run gives the rest
        self._given: list[int] = []  # a heap: the first is the cursor's next
        self._taken: set[int] = set()  # after the cursor

    def add(self, position: int) -> None:
        """Note that the result at *position* is going to be given. Positions after it are added later."""
        heappush(self._given, position)
        self.last = position

    def __contains__(self, position: int) -> bool:
        """Return whether the result at *position* is given and not taken."""
        return position in self._given

    def take(self, position: int) -> None:
        """Note that the result at *position* was taken."""
        if position <= self.cursor:
            return
        self._taken.add(position)
        while self._given and self._given[0] in self._taken:
            self.cursor = heappop(self._given)
            self._taken.discard(self.cursor)

    @property
    def is_behind(self) -> bool:
        """Whether results were given that are not taken."""
        return bool(self._given)

    def restart(self) -> None:
        """Forget what is after the cursor: a new run gives it again."""
        self._given.clear()
        self._taken.clear()
        self.last = self.cursor
