"""Which lanes of a store a process reads, and which it acquires."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from invsvc_async.batch.lane_share import LaneShare
from invsvc_async.batch.read_places import ReadPlaces


class Leases:
    """The leases of a process that is alone: all lanes are free, and acquiring them takes until ``answered``."""

    def __init__(self):
        self.lanes, self.living, self.hungry = {}, 1, False
        self.answered = asyncio.Event()
        self.acquired = 0

    async def take(self, most):
        await self.answered.wait()
        self.acquired += most
        taken = [lane(number) for number in range(most)]
        self.lanes.update((each.number, each) for each in taken)
        return taken

    async def give_up(self, lanes):
        for each in lanes:
            del self.lanes[each.number]

    async def leave(self):
        self.lanes.clear()


class Lane(SimpleNamespace):
    """A lane, which is equal to itself alone."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


def lane(number, **state):
    return Lane(
        number=number,
        **{"leaving": False, "doubtful": False, "has_ended": True, **state},
    )


@pytest.fixture
def leases():
    return Leases()


@pytest.fixture
def under_way():
    return {}


@pytest.fixture
def share(leases, under_way):
    engine = SimpleNamespace(
        items=SimpleNamespace(held=under_way),
        slots=SimpleNamespace(share=lambda _: None),
    )
    signs = SimpleNamespace(is_hungry=False, show_soon=lambda: None)
    earlier = SimpleNamespace(has_any=True, forget=lambda: None)
    entries = SimpleNamespace(lanes=4)
    return LaneShare(leases, entries, engine, ReadPlaces(), signs, earlier)


async def test_lanes_that_are_acquired_as_the_process_stops(share, leases):
    """They are released again: nobody would send what is in them."""
    dividing = asyncio.create_task(share.divide(has_more=False))
    await asyncio.sleep(0)
    await share.release_all()
    leases.answered.set()
    await dividing
    assert leases.acquired == 4
    assert leases.lanes == {}


@pytest.mark.parametrize("many", [1, 4])
async def test_lanes_that_were_released_for_hungry_processes(share, leases, many):
    """It leaves them to these, and takes its share again once nobody is hungry."""
    leases.answered.set()
    leases.lanes = {number: lane(number) for number in range(many)}
    leases.living, leases.hungry = 1, True
    for left in (2, 1, 1):
        await share.divide(has_more=True)
        assert len(leases.lanes) == min(left, many)
    assert leases.acquired == 0
    leases.hungry = False
    await share.divide(has_more=True)
    assert leases.acquired == 3


async def test_process_without_a_lane_beside_hungry_ones(share, leases):
    """It acquires its share, although it has more to send."""
    leases.answered.set()
    leases.living, leases.hungry = 1, True
    await share.divide(has_more=True)
    assert len(leases.lanes) == 4


async def test_division_after_the_process_has_stopped(share, leases):
    """It acquires nothing."""
    leases.answered.set()
    await share.release_all()
    await share.divide(has_more=False)
    assert leases.acquired == 0


async def test_lane_that_was_lost_and_acquired_again(share, leases, under_way):
    """It is read once what was added before its loss has ended, which has no verdict."""
    before, again, other = (lane(number) for number in (1, 1, 2))
    leases.lanes = {1: again, 2: other}
    under_way[7] = SimpleNamespace(lane=before)
    assert share.to_read() == {2: other}
    under_way.clear()
    assert share.to_read() == {1: again, 2: other}


@pytest.mark.parametrize("state", ["leaving", "doubtful"])
async def test_lane_that_may_be_of_another(share, leases, state):
    """It is not read."""
    leases.lanes = {1: lane(1, **{state: True})}
    assert share.to_read() == {}
