"""Deadlines of blocks that share a timer, and waiting for an event with a limit."""

from __future__ import annotations

import asyncio
from math import inf

import pytest

from invsvc_async.concurrency.deadline import Deadline, Deadlines, set_within

pytestmark = pytest.mark.every_python


async def test_event_that_is_set():
    """The wait ends with the event, or with the time."""
    event = asyncio.Event()
    assert not await set_within(event, 0.001)
    waiting = asyncio.create_task(set_within(event, 60))
    await asyncio.sleep(0)
    event.set()
    assert await waiting


@pytest.mark.parametrize("turns", range(4))
async def test_cancellation_as_the_event_is_set(turns):
    """A cancellation is not lost, at whatever turn of the loop it arrives before the wait has ended."""
    event = asyncio.Event()
    waiting = asyncio.create_task(set_within(event, 60))
    await asyncio.sleep(0)
    event.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    if not waiting.done():
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()


async def within(deadlines, deadline, event=None):
    """Wait in a block with a deadline for *event*, or for ever; return whether the deadline ended it."""
    try:
        with Deadline(deadlines.loop, deadline, deadlines):
            await (event or asyncio.Event()).wait()
    except TimeoutError:
        return True
    return False


async def test_blocks_that_share_a_timer():
    """Each ends at its own deadline, also one that begins later and ends earlier."""
    loop = asyncio.get_running_loop()
    deadlines, event, now = Deadlines(loop), asyncio.Event(), loop.time()
    late = asyncio.create_task(within(deadlines, now + 60, event))
    await asyncio.sleep(0)
    early = [
        asyncio.create_task(within(deadlines, now + after))
        for after in (0.02, 0.01, 0.02, -1)
    ]

    assert await asyncio.gather(*early) == [True] * 4
    assert not late.done()
    event.set()
    assert await late is False


async def test_timer_for_many_blocks(monkeypatch):
    """There is one, and it is set again only if the block that it was for has ended at its time."""
    loop, timers = asyncio.get_running_loop(), []
    real = loop.call_at

    def call_at(when, *arguments, **more):
        timers.append(when)
        return real(when, *arguments, **more)

    monkeypatch.setattr(loop, "call_at", call_at)
    deadlines, event, now = Deadlines(loop), asyncio.Event(), loop.time()
    event.set()
    for number in range(100):
        assert not await within(deadlines, now + 60 + number, event)
    assert timers == [now + 60]

    open_one = asyncio.create_task(within(deadlines, now + 70))
    assert await within(deadlines, now)
    assert timers == [now + 60, now, now + 70]
    open_one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await open_one


async def test_looks_at_deadlines_close_together(monkeypatch):
    """The next comes no earlier than *every* allows, and there is none without a deadline."""
    loop, timers = asyncio.get_running_loop(), []
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)
    monkeypatch.setattr(loop, "call_at", lambda when, _: timers.append(when))
    deadlines = Deadlines(loop, every=0.005)
    with Deadline(loop, now + 0.001, deadlines), Deadline(loop, inf, deadlines):
        deadlines._expire_due()
    assert timers == [now + 0.001, now + 0.005]
    with Deadline(loop, inf, deadlines):
        deadlines._expire_due()
    assert (timers[2:], deadlines.timer_at) == ([], inf)


async def test_cancellation_in_a_block():
    """It is passed on, and is no timeout; the block is forgotten."""
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop)
    waiting = asyncio.create_task(within(deadlines, loop.time() + 60))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not deadlines.open
