"""Shared fetches: who gets which, and what is left of them."""

from __future__ import annotations

import asyncio
import sys

import pytest

from invsvc_async.concurrency.single_flight import SingleFlight


async def settle_down():
    """Run all tasks until they wait."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_list_whose_only_asker_leaves_before_it_is_begun():
    """Its fetch is cancelled, and the next caller starts a new one."""
    listings, begun, release = SingleFlight(), [], asyncio.Event()

    async def fetch():
        begun.append(1)
        await release.wait()
        return len(begun)

    first = asyncio.create_task(listings.share("hooks", fetch))
    for _ in range(3):
        await asyncio.sleep(0)
    # waits for the one under way
    second = asyncio.create_task(listings.share("hooks", fetch))
    for _ in range(3):
        await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    third = asyncio.create_task(listings.share("hooks", fetch))
    release.set()
    assert [await first, await third] == [1, 2]
    assert not listings._next


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="tasks that begin at once are new in 3.12"
)
async def test_lists_of_tasks_that_begin_at_once():
    """Nobody receives a list that was begun before the call, and nothing remains."""
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    listings, begun = SingleFlight(), []

    async def fetch():
        begun.append(1)
        number = len(begun)
        await asyncio.sleep(0)
        return number

    assert [await listings.share("hooks", fetch) for _ in range(2)] == [1, 2]
    first = asyncio.create_task(listings.share("hooks", fetch))
    shared = [asyncio.create_task(listings.share("hooks", fetch)) for _ in range(2)]
    assert await asyncio.gather(first, *shared) == [3, 4, 4]
    assert not listings._next
    assert not listings._under_way


async def test_list_that_is_left_while_under_way():
    """Its fetch is cancelled with its last caller."""
    listings, ended = SingleFlight(), asyncio.Event()

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
    await asyncio.wait_for(ended.wait(), 30)
