"""Places of rows, in virtual time: who waits for one, who gets it, and how often new rows begin."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from invsvc_async.engines.places import RowPlace, RowPlaces
from invsvc_async.transport.client_core import ClientCore

pytestmark = pytest.mark.loop_time


def places(most=1, rate=None, members=1):
    return RowPlaces(most, rate, lambda: members)


async def new():
    """Say of a row that its write has not happened."""
    return False


async def done():
    """Say of a row that an earlier run has done its write."""
    return True


async def noting(place, name, notes, *, again=False):
    await (place.acquire_again() if again else place.acquire(new))
    notes.append(name)


async def test_row_that_is_sent_again_goes_first():
    """A row that has begun gets the next place, before new rows, which get theirs in order."""
    shared = places()
    first = RowPlace(shared)
    await first.acquire(new)
    notes = []
    waiting = [
        asyncio.create_task(noting(RowPlace(shared), name, notes))
        for name in ("a", "b")
    ]
    await asyncio.sleep(0)
    again = RowPlace(shared)
    waiting.append(asyncio.create_task(noting(again, "again", notes, again=True)))
    await asyncio.sleep(0)
    first.release()
    await asyncio.sleep(0.1)
    assert notes == ["again"]
    again.release()
    await asyncio.gather(*waiting)  # a row that sends nothing leaves by itself
    assert notes == ["again", "a", "b"]


async def test_place_that_was_given_at_the_same_moment():
    """A row that is cancelled just then passes it on."""
    shared = places()
    first = RowPlace(shared)
    await first.acquire(new)
    notes = []
    cancelled, other = (
        asyncio.create_task(noting(RowPlace(shared), name, notes))
        for name in ("a", "b")
    )
    await asyncio.sleep(0)
    first.release()
    cancelled.cancel()
    async with asyncio.timeout(60.0):
        await other
    assert notes == ["b"]


async def test_row_that_was_cancelled_while_it_waited():
    """It gets no place."""
    shared = places()
    first = RowPlace(shared)
    await first.acquire(new)
    notes = []
    cancelled, other = (
        asyncio.create_task(noting(RowPlace(shared), name, notes))
        for name in ("a", "b")
    )
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.sleep(0)
    first.release()
    await other
    assert notes == ["b"]


async def test_row_that_sends_keeps_its_place():
    """However long its request takes; one that waits without sending leaves after a second."""
    shared = places(most=2)
    sends, waits = RowPlace(shared), RowPlace(shared)
    await sends.acquire(new)
    await waits.acquire(new)
    assert sends.keep()
    loop = asyncio.get_running_loop()
    began = loop.time()
    await RowPlace(shared).acquire(new)
    assert loop.time() - began == pytest.approx(1.0, abs=0.1)
    assert not waits.keep()
    assert sends.keep()


@pytest.mark.parametrize("members", [1, 4])
async def test_rate_is_shared(members):
    """New rows are spread evenly, at this process's part of the rate; a little delay is made up for."""
    shared = places(most=100, rate=10, members=members)
    loop = asyncio.get_running_loop()
    began = loop.time()
    times = []
    for _ in range(21):
        await RowPlace(shared).acquire(new)
        times.append(loop.time() - began)
    assert times[-1] == pytest.approx(2.0 * members, abs=0.1)
    assert times == sorted(times)


async def test_rows_of_an_earlier_run_do_not_count():
    """They send nothing, so they wait only for a place, and the turns are for new rows."""
    shared = places(most=100, rate=0.1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(50):
        await RowPlace(shared).acquire(done)
    await RowPlace(shared).acquire(new)
    assert loop.time() - began < 1.0
    await RowPlace(shared).acquire(new)
    assert loop.time() - began == pytest.approx(10.0, abs=0.1)


async def test_place_of_a_row_that_is_cancelled_before_its_turn():
    """It is free again."""
    shared = places(rate=0.1)
    first, second = RowPlace(shared), RowPlace(shared)
    await first.acquire(new)
    first.release()
    waiting = asyncio.create_task(second.acquire(new))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    second.release()
    again = asyncio.create_task(shared.acquire_again())
    await asyncio.sleep(0.1)
    assert again.done()


def test_members_of_a_journal():
    """They are the processes that have it open; those of a batch beside it do not count."""
    loop = object()
    batch, journal = SimpleNamespace(living=9), SimpleNamespace(living=3)
    core = SimpleNamespace(
        stores=Stores(((batch, "batch"), (journal, "journal")), loop)
    )
    assert ClientCore.members(core) == 3
    core.stores = Stores((), loop)
    assert ClientCore.members(core) == 1


class Stores:
    def __init__(self, given, loop):
        self._given, self._loop = given, loop

    def items(self):
        return [(leases, (kind, self._loop)) for leases, kind in self._given]
