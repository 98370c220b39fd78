"""Places are handed out in turn, a share is kept for reads that settle, and none is ever lost."""

from __future__ import annotations

import asyncio
import random

import pytest

from invsvc_async.limits import Limiter


async def turn(limiter, lane="call"):
    """Take a place, as the transport does."""
    if not limiter.enter(lane):
        await limiter.wait(lane)


async def settled():
    """Let whoever can go on go on."""
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("total", "for_calls"), [(1, 1), (2, 1), (3, 2), (10, 9), (19, 18), (20, 18), (100, 90), (1000, 900)]
)
def test_share_of_calls(total, for_calls):
    """Calls get all but a tenth, at least one place each; settling reads all."""
    limiter = Limiter(total)

    assert sum(limiter.enter("call") for _ in range(total + 1)) == for_calls
    assert sum(limiter.enter("settle") for _ in range(total + 1)) == total - for_calls
    assert limiter.in_use == total


def test_settling_reads_alone():
    """They may have every place, and then calls have none."""
    limiter = Limiter(5)

    assert sum(limiter.enter("settle") for _ in range(9)) == 5
    assert not limiter.enter("call")


async def test_turns_in_order_of_arrival():
    """Whoever waits longest is next, over both lanes, and nobody overtakes the queue of a lane."""
    limiter, order = Limiter(2), []

    async def caller(name, lane):
        await turn(limiter, lane)
        order.append(name)
        limiter.leave(lane)

    await turn(limiter)
    await turn(limiter, "settle")
    async with asyncio.TaskGroup() as group:
        for name, lane in (("a", "call"), ("b", "settle"), ("c", "call"), ("d", "settle")):
            group.create_task(caller(name, lane))
            await asyncio.sleep(0)
        limiter.leave("call")
        assert not limiter.enter("call")
        limiter.leave("settle")

    assert order == ["a", "b", "c", "d"]
    assert limiter.in_use == 0


async def test_call_that_waits_does_not_hold_up_settling():
    """The reserve stays free while calls queue."""
    limiter = Limiter(3)
    await turn(limiter)
    await turn(limiter)
    waiting = asyncio.create_task(turn(limiter))
    await settled()

    assert limiter.enter("settle")
    assert not waiting.done()

    limiter.leave("settle")
    await settled()
    assert not waiting.done()
    limiter.leave("call")
    await waiting
    assert limiter.in_use == 2


async def test_waiter_that_is_cancelled():
    """It takes no place, and the next one does not miss its turn."""
    limiter = Limiter(2)
    await turn(limiter)
    first, second = (asyncio.create_task(turn(limiter)) for _ in range(2))
    await settled()
    first.cancel()
    limiter.leave("call")  # before the cancelled task has run

    await second
    await asyncio.gather(first, return_exceptions=True)

    assert first.cancelled()
    assert limiter.in_use == 1


async def test_many_waiters_that_are_cancelled():
    """They leave nothing behind, though no place comes back meanwhile."""
    limiter = Limiter(2)
    await turn(limiter)
    tasks = [asyncio.create_task(turn(limiter, lane)) for lane in ("call", "settle") * 100]
    await settled()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert not any(limiter._queues.values())


async def test_waiter_that_is_cancelled_with_its_turn():
    """A place handed over in the moment of cancelling goes on to the next."""
    limiter = Limiter(2)
    await turn(limiter)
    first, second = (asyncio.create_task(turn(limiter)) for _ in range(2))
    await settled()
    limiter.leave("call")
    first.cancel()

    await asyncio.wait_for(second, 1)

    assert limiter.in_use == 1


async def test_resizing():
    """More places wake those who wait; fewer are kept to as places come back."""
    limiter = Limiter(2)
    tasks = [asyncio.create_task(turn(limiter)) for _ in range(20)]
    await settled()
    assert limiter.in_use == 1

    limiter.resize(11)
    await settled()
    assert (limiter.in_use, limiter.total) == (10, 11)

    limiter.resize(3)
    for _ in range(9):
        limiter.leave("call")
    await settled()
    assert limiter.in_use == 2
    for task in tasks:
        task.cancel()


async def test_any_order_of_events():
    """Over thousands of random turns, cancellations and changes of size no place is lost or invented."""
    dice, limiter, running = random.Random(7), Limiter(5), set()  # noqa: S311 - not for secrets

    async def caller(lane):
        await turn(limiter, lane)
        try:
            running.add(me := object())
            assert len(running) <= 12
            for _ in range(dice.randrange(4)):
                await asyncio.sleep(0)
        finally:
            running.discard(me)
            limiter.leave(lane)

    tasks = []
    for _ in range(4000):
        tasks.append(asyncio.create_task(caller(dice.choice(["call", "call", "settle"]))))
        if dice.random() < 0.3:
            dice.choice(tasks[-20:]).cancel()
        if dice.random() < 0.02:
            limiter.resize(dice.randint(1, 12))
        if dice.random() < 0.5:
            await asyncio.sleep(0)
        assert limiter.in_use >= len(running)
    await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)

    assert limiter.in_use == 0
    assert not any(task.exception() for task in tasks if not task.cancelled())
    assert limiter.enter("call")
