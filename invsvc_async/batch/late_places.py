"""Which writes of a batch or outbox come too late, because a later one to their thing was sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class LatePlaces:
    """
    The last places of some writes, by thing; earlier writes to the same thing come too late.

    Begins with the last *places* that are known.
    """

    def __init__(self, places: Mapping[str, int] | None = None) -> None:
        self._places: dict[str, int] = {} if places is None else {**places}

    def note(self, thing: str | None, place: int) -> None:
        """Note a write to *thing* at *place*; without a thing, a write overtakes nothing."""
        if thing is not None and place > self._places.get(thing, 0):
            self._places[thing] = place

    def has_later(self, thing: str, place: int) -> bool:
        """Return whether one of the writes is later than that to *thing* at *place*."""
        return self._places.get(thing, 0) > place
