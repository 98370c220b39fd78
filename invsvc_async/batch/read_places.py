"""The place up to which the entries of each lane were read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from invsvc_async.durable.entry import Entry


class ReadPlaces:
    """
    Where each lane of this process is read next.

    A lane is *read to its end* from a fetch until something new is heard of it, and otherwise read after a
    place. A lane of which nothing is noted is read after place 0. A place that is too low costs a query; one
    that is too high leaves entries out until the next sign of life, at which all lanes are read again.
    """

    def __init__(self) -> None:
        self._places: dict[int, int | None] = {}  # by lane; None: read to its end
        # Things with an entry that was passed over, because a newer one runs.
        self._passed: set[str] = set()

    # --- what is to be read

    def is_at_end(self, lane: int) -> bool:
        """Return whether *lane* was read to its end."""
        return self._places.get(lane, 0) is None

    def are_at_ends(self, lanes: Iterable[int]) -> bool:
        """Return whether all *lanes* were read to their ends."""
        return all(self._places.get(lane, 0) is None for lane in lanes)

    def have_more(self, lanes: Iterable[int]) -> bool:
        """
        Return whether any of *lanes* has entries behind those that were fetched.

        A lane of which nothing is noted was released during the fetch, and does not count: what was fetched
        of it is not sent.
        """
        return any(self._places.get(lane) is not None for lane in lanes)

    # --- a fetch

    def begin_fetch(self, lanes: Iterable[int]) -> dict[int, int]:
        """
        Return the place after which to read, for each of *lanes* that is not at its end.

        They count as read to their ends from now on, so that what is heard during the fetch is not lost.
        """
        places = {
            lane: place
            for lane in lanes
            if (place := self._places.get(lane, 0)) is not None
        }
        self._places.update(dict.fromkeys(places))
        return places

    def end_fetch(
        self,
        lanes: Iterable[int],
        found: Collection[Entry],
        each: int,
    ) -> None:
        """
        Note what was *found* in *lanes*; one with *each* entries, the most asked for, may have more.

        A lane that was forgotten since the fetch began is still read from its beginning: what was found in
        it is not sent.
        """
        counts = Counter(entry.lane for entry in found)
        last = {entry.lane: entry.place for entry in found}
        for lane in lanes:
            if counts[lane] == each and lane in self._places:
                # Something new may have been heard of the lane since the fetch began.
                since = self._places.get(lane)
                self._places[lane] = (
                    last[lane] if since is None else min(since, last[lane])
                )

    # --- what makes a lane be read again

    def read_again(self, lane: int, after: int) -> None:
        """Read *lane* once more, from behind the place *after*, or from an earlier one if that is noted."""
        place = self._places.get(lane, 0)
        self._places[lane] = after if place is None else min(place, after)

    def forget(self, lane: int) -> None:
        """Note nothing of *lane* any more: it was acquired, or released."""
        self._places.pop(lane, None)

    def pass_over(self, thing: str) -> None:
        """Read the lane of *thing* from its beginning once a write of *thing* has ended."""
        self._passed.add(thing)

    def note_ended(self, thing: str | None, lane: int) -> None:
        """Note that a write of *thing*, in *lane*, has ended."""
        if thing in self._passed:
            self._passed.discard(thing)
            self._places[lane] = 0
