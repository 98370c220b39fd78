"""
A schedule: what was chosen at each point where something could go on in more than one way.

The first way of each point is what happens by default.  A schedule contains only what differs from that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@attrs.frozen
class Point:
    """One point of a run where a choice was made."""

    kind: str
    ways: tuple[str, ...]
    costs: tuple[int, ...]
    taken: int
    at: float

    def __str__(self) -> str:
        return f"{self.at:.3f} s: {self.kind}: {self.ways[self.taken]}"


@attrs.define
class Schedule:
    """Choices for one execution: *deviations* by the number of their point."""

    deviations: Mapping[int, int] = attrs.field(factory=dict)
    points: list[Point] = attrs.field(factory=list)

    def choose(
        self,
        kind: str,
        ways: Sequence[str],
        *,
        at: float = 0.0,
        costs: Sequence[int] | None = None,
    ) -> int:
        """Return which of *ways* is taken; each but the first costs 1 unless *costs* says otherwise."""
        taken = self.deviations.get(len(self.points), 0)
        if taken >= len(ways):
            raise LookupError(
                f"the schedule is of another run: {kind} has no way {taken}"
            )
        prices = (0, *[1] * (len(ways) - 1)) if costs is None else tuple(costs)
        self.points.append(Point(kind, tuple(ways), prices, taken, at))
        return taken

    @property
    def cost(self) -> int:
        """How far it is from what happens by default."""
        return sum(point.costs[point.taken] for point in self.points)

    def told(self) -> list[str]:
        """Return what was chosen, where it is not the default."""
        return [str(point) for point in self.points if point.taken]
