"""The axis of a report's timeline, on which times without sends are narrow."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_BUSY_TO_STILL = 3  # places of times with sends for one of those without, at least


class Knot(NamedTuple):
    """A time (epoch ms) with its place; between two of them, places are proportional to times."""

    at: int
    place: float


class _Stretch(NamedTuple):
    """A part of the axis (epoch ms), in which something was sent or nothing."""

    begun: int
    ended: int
    is_still: bool


@attrs.frozen
class Axis:
    """
    The places, from 0 to 1, of times.

    Args:
        knots: In their order; the first has place 0 and the last has place 1.
        is_shortened: Whether times without sends are narrower than others.
    """

    knots: Sequence[Knot]
    is_shortened: bool

    def place_of(self, at: int) -> float:
        """Return the place of a time (epoch ms); times outside are at the ends."""
        for left, right in pairwise(self.knots):
            if at <= right.at:
                part = (at - left.at) / (right.at - left.at)
                return left.place + (right.place - left.place) * max(part, 0.0)
        return 1.0

    def time_at(self, place: float) -> int:
        """Return the time (epoch ms) that is at a place from 0 to 1."""
        for left, right in pairwise(self.knots):
            if place <= right.place:
                part = (place - left.place) / (right.place - left.place)
                return round(left.at + (right.at - left.at) * part)
        return self.knots[-1].at


def axis_of(
    begun: int,
    ended: int,
    still: Iterable[tuple[int, int]],
) -> Axis:
    """
    Return the axis from *begun* to *ended*.

    If the *still* times, in which nothing was sent, would take more than a quarter of it, they are made
    narrower, all by the same factor.
    """
    stretches = [*_stretches(begun, ended, still)]
    quiet = sum(each.ended - each.begun for each in stretches if each.is_still)
    busy = ended - begun - quiet
    is_shortened = 0 < busy < _BUSY_TO_STILL * quiet
    factor = busy / (_BUSY_TO_STILL * quiet) if is_shortened else 1.0
    whole = busy + factor * quiet
    knots = [Knot(begun, 0.0)]
    reached = 0.0
    for each in stretches:
        length: float = each.ended - each.begun
        if each.is_still:
            length *= factor
        reached += length
        knots.append(Knot(each.ended, reached / whole))
    knots[-1] = Knot(ended, 1.0)  # whatever was lost by rounding
    return Axis(knots, is_shortened)


def _stretches(
    begun: int,
    ended: int,
    still: Iterable[tuple[int, int]],
) -> Iterator[_Stretch]:
    """Yield the parts between *begun* and *ended*, without the empty ones."""
    reached = begun
    for still_from, still_to in still:
        first = min(max(still_from, reached), ended)
        last = min(max(still_to, first), ended)
        if reached < first:
            yield _Stretch(reached, first, is_still=False)
        if first < last:
            yield _Stretch(first, last, is_still=True)
        reached = last
    if reached < ended:
        yield _Stretch(reached, ended, is_still=False)
