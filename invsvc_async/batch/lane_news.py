"""What is new in the lanes of a process, so that they are read again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from invsvc_async.batch.notices import Beat, Missed, NewAside, NewIn, notice_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from invsvc_async.batch.due_times import DueTimes
    from invsvc_async.batch.lane_share import LaneShare
    from invsvc_async.batch.read_places import ReadPlaces
    from invsvc_async.batch.signs_of_life import SignsOfLife
    from invsvc_async.batch.team_turns import TeamTurns
    from invsvc_async.durable.leases import Leases


class LaneNews:
    """
    The news of the lanes of this process: what is heard of other processes, and what becomes due.

    News of a lane changes the place from which the lane is read next, and sets ``woken``. What is no news of
    a lane makes this process give a sign of life, or look again at what is due. Who waits for the two events
    is at the top of ``dispatcher.py``.
    """

    def __init__(
        self,
        leases: Leases,
        share: LaneShare,
        places: ReadPlaces,
        due: DueTimes,
        turns: TeamTurns,
        signs: SignsOfLife,
    ) -> None:
        self._leases = leases
        self._share = share
        self._places = places
        self._due = due
        self._turns = turns
        self._signs = signs
        self.woken: asyncio.Event = asyncio.Event()  # there may be something to send
        # All lanes were read to their ends, and what was read is in the engine.
        self.caught_up: asyncio.Event = asyncio.Event()

    def heard(self, what: str, after: int = 0) -> None:
        """
        Look at what the notice *what* is about.

        What is new in a lane comes *after* a place, if that is known.
        """
        match notice_in(what):
            case Missed():
                self._signs.show_soon()
                self._due.look_soon()
                self.read_again(self._leases.lanes)
            case Beat():
                self._signs.show_soon()
            case NewIn(lane):
                self._turns.has_news = True
                self.read_again([lane], after)
            case NewAside(lane) if lane in self._leases.lanes:
                self._due.look_soon()
                self.woken.set()
            case _:
                pass  # It is about a lane of another process, or for other readers.

    def read_again(self, lanes: Iterable[int], after: int = 0) -> None:
        """
        Read this process's lanes among *lanes* once more, from behind the place *after*.

        A lane that is to be read from an earlier place is read from there.
        """
        for lane in lanes:
            if lane in self._leases.lanes:
                self._places.read_again(lane, after)
        self.caught_up.clear()
        self.woken.set()

    async def bring_back_due(self) -> None:
        """Bring entries that are due by now back into the lanes of this process."""
        if not self._due.is_up:
            return
        found = await self._due.bring_back(self._share.to_read().values())
        for lane, after in found.items():
            self._turns.has_news = True
            self.read_again([lane], after)
