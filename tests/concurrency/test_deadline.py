"""Waiting for an event with a limit."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async.concurrency.deadline import set_within

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
