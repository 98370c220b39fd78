"""Locks by key, and shared fetches: order, closing, cancellation, memory."""

from __future__ import annotations

import asyncio
import sys

import pytest

from invsvc_async import ApiKey, Client
from invsvc_async.client import options_of
from invsvc_async.concurrency import keyed_lock
from invsvc_async.concurrency.keyed_lock import KeyedLock
from invsvc_async.concurrency.single_flight import SingleFlight
from invsvc_async.simulator import Simulator
from invsvc_async.testing import VirtualClock


async def never(_seconds):
    raise AssertionError("nobody has to wait")


async def settle_down():
    """Run all tasks until they wait."""
    for _ in range(5):
        await asyncio.sleep(0)


def waiting(lock, key, clock, *, owner=None, pause=never):
    return asyncio.create_task(lock.wait(key, owner, clock, pause))


async def test_free_lock():
    """A free lock is acquired at once and only once; nothing remains after its release."""
    lock, clock = KeyedLock(), VirtualClock()

    assert lock.enter("a")
    assert not lock.enter("a")
    assert lock.enter("b")
    lock.leave("a", clock)
    assert len(lock) == 1
    assert lock.enter("a")


async def test_waiters_are_served_in_order():
    """Each release wakes the one that has waited longest; nobody overtakes the queue."""
    lock, clock, served = KeyedLock(), VirtualClock(), []
    lock.enter("a")

    async def one(name):
        await lock.wait("a", None, clock, never)
        served.append(name)

    tasks = []
    for name in "bcd":
        tasks.append(asyncio.create_task(one(name)))
        await settle_down()
    for expected in ("b", "bc", "bcd"):
        lock.leave("a", clock)
        assert not lock.enter("a"), "it is handed over before the waiter runs"
        await settle_down()
        assert "".join(served) == expected
    lock.leave("a", clock)
    assert len(lock) == 0


async def test_waiter_that_is_cancelled_while_it_waits():
    """A cancelled waiter leaves the queue, and the next one gets the lock."""
    lock, clock = KeyedLock(), VirtualClock()
    lock.enter("a")
    gone, stays = waiting(lock, "a", clock), waiting(lock, "a", clock)
    await settle_down()
    gone.cancel()
    await settle_down()
    assert len(lock._lines["a"].waiters) == 1
    lock.leave("a", clock)

    await asyncio.wait_for(stays, 30)
    lock.leave("a", clock)
    assert gone.cancelled()
    assert len(lock) == 0


async def test_waiter_that_is_cancelled_as_the_lock_is_handed_over():
    """The lock is passed to the next one."""
    lock, clock = KeyedLock(), VirtualClock()
    lock.enter("a")
    gone, stays = waiting(lock, "a", clock), waiting(lock, "a", clock)
    await settle_down()
    lock.leave("a", clock)
    gone.cancel()

    await asyncio.wait_for(stays, 30)
    assert gone.cancelled()
    lock.leave("a", clock)
    assert len(lock) == 0


async def test_last_waiter_that_is_cancelled_as_the_lock_is_handed_over():
    """The lock is free again."""
    lock, clock = KeyedLock(), VirtualClock()
    lock.enter("a")
    gone = waiting(lock, "a", clock)
    await settle_down()
    lock.leave("a", clock)
    gone.cancel()
    await settle_down()

    assert gone.cancelled()
    assert len(lock) == 0


async def test_closed_lock():
    """It stays closed to the next one until its time has passed, even after its release."""
    lock, clock, paused = KeyedLock(), VirtualClock(), []

    async def pause(seconds):
        paused.append(seconds)
        clock.advance(seconds)
        return True

    lock.enter("a")
    lock.close("a", "first", clock.now() + 4, clock)
    lock.leave("a", clock)
    assert not lock.enter("a")
    assert lock.opens_at("a") == clock.now() + 4
    await lock.wait("a", None, clock, pause)

    assert paused == [4]
    lock.leave("a", clock)
    assert len(lock) == 0


async def test_closed_lock_and_its_owner():
    """The one that closed it ignores its own closing, but not that of others."""
    lock, clock, paused = KeyedLock(), VirtualClock(), []

    async def pause(seconds):
        paused.append(seconds)
        clock.advance(seconds)
        return True

    lock.close("a", "first", clock.now() + 4, clock)
    await lock.wait("a", "first", clock, never)
    lock.close("a", "second", clock.now() + 2, clock)
    lock.leave("a", clock)
    await lock.wait("a", "first", clock, pause)

    assert paused == [2]


async def test_lock_that_is_closed_again():
    """The later of two times counts, in any order; a time in the past does not."""
    lock, clock = KeyedLock(), VirtualClock()
    begun = clock.now()
    lock.close("a", "first", begun + 4, clock)
    lock.close("a", "first", begun + 2, clock)
    lock.close("a", "second", begun + 3, clock)

    assert lock.opens_at("a") == begun + 4
    clock.advance(5)
    lock.close("a", "third", begun + 6, clock)
    assert lock.opens_at("a") == begun + 6
    assert set(lock._lines["a"].closed_until) == {"third"}
    assert lock.opens_at("b") < begun


async def test_lock_that_is_closed_while_somebody_waits():
    """The next one waits until it opens, and is woken if the client is closed."""
    lock, clock, paused = KeyedLock(), VirtualClock(), []

    async def interrupted(seconds):
        paused.append(seconds)
        return False

    lock.enter("a")
    waiter = waiting(lock, "a", clock, pause=interrupted)
    await settle_down()
    lock.close("a", "first", clock.now() + 4, clock)
    lock.leave("a", clock)
    await asyncio.wait_for(waiter, 30)

    assert paused == [4]


async def test_lock_that_is_closed_for_longer_during_a_pause():
    """The next one waits for the rest of the time, too."""
    lock, clock, paused = KeyedLock(), VirtualClock(), []

    async def pause(seconds):
        paused.append(seconds)
        clock.advance(seconds)
        if len(paused) == 1:
            lock.close("a", "second", clock.now() + 3, clock)
        return True

    lock.close("a", "first", clock.now() + 4, clock)
    await lock.wait("a", None, clock, pause)

    assert paused == [4, 3]


async def test_waiter_that_is_cancelled_while_the_lock_is_closed():
    """It passes the lock to the next one, which waits for the rest of the time."""
    lock, clock, paused = KeyedLock(), VirtualClock(), []
    forever = asyncio.Event()

    async def stuck(_seconds):
        return await forever.wait()

    async def pause(seconds):
        paused.append(seconds)
        clock.advance(seconds)
        return True

    lock.close("a", "first", clock.now() + 4, clock)
    gone = waiting(lock, "a", clock, pause=stuck)
    await settle_down()
    stays = waiting(lock, "a", clock, pause=pause)
    await settle_down()
    clock.advance(1)
    gone.cancel()
    await asyncio.wait_for(stays, 30)

    assert gone.cancelled()
    assert paused == [3]


async def test_locks_that_nobody_needs_are_forgotten(monkeypatch):
    """Expired keys are removed; those that are held, closed or awaited stay."""
    monkeypatch.setattr(keyed_lock, "_SWEEP", 10)
    lock, clock = KeyedLock(), VirtualClock()
    for number in range(9):
        lock.close(number, "owner", clock.now() + (60 if number % 2 else 1), clock)
    lock.enter("held")
    lock.enter("waited for")
    waiter = waiting(lock, "waited for", clock)
    await settle_down()
    clock.advance(2)
    lock.enter("last")
    lock.close("last", "owner", clock.now() + 60, clock)
    lock.leave("last", clock)

    assert set(lock._lines) == {1, 3, 5, 7, "held", "waited for", "last"}
    lock.leave("waited for", clock)
    await asyncio.wait_for(waiter, 30)


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


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks that begin at once are new in 3.12")
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


def test_last_users_of_very_many_keys():
    """The latest 20,000 are known, and memory does not grow with the rate of writes."""
    lock = KeyedLock()
    for number in range(100_000):
        lock.use(number, ("me",), now=number / 10_000)

    assert all(lock.last_users(number) == ("me",) for number in range(80_000, 100_000))
    assert not any(lock.last_users(number) for number in range(60_000))


def test_last_users_of_a_time():
    """They are known for two minutes, and for at most four."""
    lock = KeyedLock()
    lock.use("a", ("me",), now=0.0)
    lock.use("b", ("me",), now=119.0)
    lock.use("c", ("me",), now=121.0)
    assert [lock.last_users(key) for key in "abc"] == [("me",)] * 3
    lock.use("d", ("me",), now=242.0)
    assert [lock.last_users(key) for key in "abcd"] == [(), (), ("me",), ("me",)]


async def test_users_that_a_client_remembers():
    """A create cannot be overtaken, so a batch of creates does not fill the memory with their keys."""
    async with Simulator() as service, Client(service.base_url, ApiKey(service.api_key)) as client:
        journey = service.seed_journey(status="draft")
        await client.journeys.update(journey.id, name="new")
        await client.webhooks.create(url="https://me.example/1", events=["invoice.created"], tag=False)
        await client.webhooks.create(url="https://me.example/2", events=["invoice.created"], tag=True)
        lines = options_of(client).session.writes.lines

        assert list(lines._users) == [f"/journeys/{journey.id}"]
