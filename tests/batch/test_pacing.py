"""The places of a batch: who waits for one, and who leaves while it is handed over."""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace

import pytest

from invsvc_async import Batch, Timeouts
from invsvc_async.batch.pacing import Slots
from tests.batch.conftest import client_of
from tests.batch.writing import creates
from tests.support.virtual_time import VirtualTimeLoop
from tests.support.waiting import until


def filled():
    """Return full places, and a counter of the notifications that there is room."""
    told = []
    slots = Slots(1, None, lambda: told.append(1))
    assert slots.take("first")
    return slots, told


async def test_write_that_is_sent_again_goes_first():
    """While one waits, no new write is begun; it gets the place that is given back, and then there is no room."""
    slots, told = filled()
    waiting = asyncio.create_task(slots.take_again(object()))
    await asyncio.sleep(0)
    slots.leave("first")
    assert not slots.take("first")
    await waiting
    assert (slots.in_use, slots.free, told) == (1, 0, [1])


@pytest.mark.parametrize(
    "moment", ["before its turn", "just before its turn", "in its turn"]
)
async def test_write_that_is_cancelled_while_it_waits(moment):
    """The place that it waits for, or that it was just handed, goes to the next one."""
    slots, _ = filled()
    gone, stays = (asyncio.create_task(slots.take_again(object())) for _ in range(2))
    await asyncio.sleep(0)
    if moment == "in its turn":
        slots.leave("first")
    gone.cancel()
    if moment == "before its turn":
        await asyncio.wait([gone])
    if moment != "in its turn":
        slots.leave("first")
    await asyncio.wait([gone, stays], timeout=300)
    assert gone.cancelled()
    assert stays.done()
    assert slots.in_use == 1


async def test_pace_that_a_service_holds_up():
    """The timer for the next send is kept if that is put off; the one after it is for the later time."""
    slots = Slots(4, 0.5, lambda: None)
    assert slots.take("first")
    assert not slots.take("second")
    first = slots._timer
    # reaches: as after a Retry-After
    slots._pace.due += 60
    assert not slots.take("second")
    assert slots._timer is first
    slots._wake()  # reaches: the timer's end, without waiting for it
    assert not slots.take("second")
    assert slots._timer.when() > first.when() + 50
    slots.close()
    assert slots._timer.cancelled()


async def test_pace_that_becomes_quicker():
    """A timer that would wake too late gives way to a sooner one."""
    slots = Slots(4, 0.5, lambda: None)
    # reaches: when the next may begin
    slots._pace.due = slots._loop.time() + 60
    assert not slots.take("first")
    first = slots._timer
    slots._pace.due -= 50  # reaches: the same
    assert not slots.take("first")
    assert first.cancelled()
    assert slots._timer.when() < first.when()
    slots.close()


async def test_timers_of_full_slots():
    """Writes that come and go while the slots are full share one timer, which waits for those that hang."""
    slots, loop = Slots(1000, None, lambda: None), asyncio.get_running_loop()
    now = loop.time()
    slots._loop = SimpleNamespace(time=lambda: now, call_at=loop.call_at)
    for each in range(4):
        assert slots.take(each)
        now += 0.1  # so that they would hang at different times
    assert not slots.take("one more")
    first = slots._timer
    for each in range(4):
        slots.leave(each)
        assert slots.take(each)
        assert not slots.take("one more")
    assert slots._timer is first
    slots.close()


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop is not for Windows")
def test_pace_on_uvloop():
    """A timer of less than a millisecond has no time there, and it wakes the batch all the same."""
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")

    async def paced():
        slots, loop = Slots(1000, 1e9, ready.set), asyncio.get_running_loop()
        begun = loop.time()
        slots._loop = SimpleNamespace(time=lambda: begun, call_at=loop.call_at)
        # reaches: when the next may begin
        for slots._pace.due in (begun + 0.0001, begun + 0.2):
            assert not slots.take("first")
        await ready.wait()
        slots.close()

    ready = asyncio.Event()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(paced())


def test_writes_that_hang_count_for_the_most_only():
    """They leave the adaptive limit after a while, one by one, and somebody is told; there are never more than the most."""

    async def filled_up():
        room = asyncio.Event()
        slots = Slots(10, None, room.set)
        for begun in (4, 8, 10):
            while slots.in_use < begun:
                room.clear()
                if not slots.take(slots.in_use):
                    await room.wait()
            assert not slots.take("one more")
            if begun < 10:
                assert slots.limit.startswith("adaptive limit: 4 writes in flight")
        assert slots.limit == "concurrency: 10 in flight"
        slots.leave(9)
        assert (slots.in_use, slots.free) == (9, 1)
        slots.close()

    # a machine that halts between two lines lets no write hang
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(filled_up())


async def test_batch_beside_requests_that_hang(service, path):
    """All others are done while they hang, and the progress shows how many do."""
    service.script("webhooks.create", *["pass"] * 40, *["hang"] * 30)
    shown, patient = [], Timeouts(attempt=300.0, call=300.0)
    async with (
        client_of(service, max_concurrency=150, timeout=patient) as client,
        Batch.open(path, client, concurrency=100, on_progress=shown.append) as batch,
        asyncio.timeout(100),
    ):
        run = batch.run(creates(client, 300))
        for _ in range(270):
            assert (await anext(run)).applied
        assert service.arrivals("webhooks.create") == 300
        await until(lambda: shown[-1].under_way == 30)
        await batch.stop(0.0)
