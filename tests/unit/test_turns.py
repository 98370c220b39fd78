"""Turns of creates, and lists that are shared: who waits, who is forgotten, and what is ended."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async.testing import VirtualClock
from invsvc_async.turns import Listings, Turns


async def test_lines_that_nobody_waits_in_are_forgotten():
    """More than a thousand lines whose time has passed do not pile up; those still held back stay."""
    clock, turns = VirtualClock(), Turns()

    async def no_pause(_seconds):
        raise AssertionError("nobody has to wait")

    for number in range(1001):
        async with turns.turn(number, clock, no_pause) as turn:
            turn.free_at = clock.now() + (60 if number % 2 else 1)
    assert len(turns._lines) == 1001
    clock.advance(2)
    async with turns.turn("last", clock, no_pause):
        pass
    assert set(turns._lines) == set(range(1, 1001, 2))


async def test_list_whose_only_asker_leaves_before_it_is_begun():
    """It is not fetched any more, and the next who asks begins one of their own."""
    listings, begun, release = Listings(), [], asyncio.Event()

    async def fetch():
        begun.append(1)
        await release.wait()
        return len(begun)

    first = asyncio.create_task(listings.share("hooks", fetch))
    for _ in range(3):
        await asyncio.sleep(0)
    second = asyncio.create_task(listings.share("hooks", fetch))  # waits for the one under way
    for _ in range(3):
        await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    third = asyncio.create_task(listings.share("hooks", fetch))
    release.set()
    assert [await first, await third] == [1, 2]
    assert not listings._next


async def test_list_that_is_left_while_under_way():
    """Its fetch is ended with its last asker."""
    listings, ended = Listings(), asyncio.Event()

    async def fetch():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    asking = asyncio.create_task(listings.share("hooks", fetch))
    for _ in range(3):
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.wait_for(ended.wait(), 5)
