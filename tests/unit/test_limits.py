"""Places are handed out in turn, a share is kept for reads that settle, and none is ever lost."""

from __future__ import annotations

import asyncio
import heapq
import random

import pytest

from invsvc_async.limits import Knee, Limiter


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


async def test_settling_read_that_waits_while_calls_are_full():
    """It gets the place that another settling read gives back, though no call could have it."""
    limiter = Limiter(3)
    for lane in ("call", "call", "settle"):
        await turn(limiter, lane)
    waiting = asyncio.create_task(turn(limiter, "settle"))
    await settled()
    limiter.leave("settle")

    await asyncio.wait_for(waiting, 1)

    assert (limiter.in_use, limiter.calls) == (3, 2)


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


def flat(_):
    """Every request takes the same time."""
    return 1.0


def uneven(dice):
    """Most take about as long."""
    return dice.lognormvariate(-0.03, 0.25)


def wild(dice):
    """Half of the time is exponential."""
    return 0.5 + dice.expovariate(2)


class Service:
    """Works on *places* requests at once, *seconds* each, and queues the rest; callers fill what the knee allows."""

    def __init__(self, places, *, seconds=0.05, shape=uneven, callers=500, seed=1):
        self.places, self.seconds, self.shape, self.callers = places, seconds, shape, callers
        self.knee, self.now, self.answered, self.area = Knee(), 0.0, 0, 0.0
        self._dice = random.Random(seed)  # noqa: S311 - not for secrets
        self._ending, self._queue, self._in_flight = [], [], 0

    def run(self, until):
        """Let time pass; return the mean in flight and the rate as a share of the best, over the second half."""
        half, area, answered = (self.now + until) / 2, 0.0, 0
        while self.now < until:
            self._fill()
            ended, started = heapq.heappop(self._ending)
            if ended > half:
                area += self._in_flight * (ended - max(half, self.now))
                answered += 1
            self.now = ended
            self._in_flight -= 1
            self.knee.note(started, ended, refused=False, in_flight=min(self.knee.size, self.callers))
        return area / (until - half), answered / (until - half) / (self.places / self.seconds)

    def _fill(self):
        while self._in_flight < min(self.knee.size, self.callers):
            self._in_flight += 1
            self._queue.append(self.now)
        while self._queue and len(self._ending) < self.places:
            took = self.seconds * self.shape(self._dice)
            heapq.heappush(self._ending, (self.now + took, self._queue.pop(0)))


@pytest.mark.parametrize("shape", [flat, uneven])
@pytest.mark.parametrize("places", [5, 20, 80])
def test_knee_of_a_service(places, shape):
    """Within 20 s about as many are in flight as the service works on at once, and it is kept busy."""
    for seed in range(3):
        in_flight, rate = Service(places, shape=shape, seed=seed).run(20)

        assert 0.75 * places <= in_flight <= 1.25 * places
        assert rate >= 0.9


@pytest.mark.parametrize("places", [20, 80])
def test_knee_of_a_service_of_wild_latency(places):
    """Noise does not make it collapse."""
    for seed in range(5):
        in_flight, rate = Service(places, shape=wild, seed=seed).run(20)

        assert 0.7 * places <= in_flight <= 1.25 * places
        assert rate >= 0.8


def test_knee_of_a_service_with_few_callers():
    """Where fewer are in flight than it allows, it is cut by what there was."""
    service = Service(150, shape=flat, callers=200)

    assert service.run(20)[0] <= 1.25 * 150


def test_knee_after_one_slow_round():
    """It is halved at most, however slow."""
    knee = Knee()
    knee.size, knee._doubling, knee._quickest = 40, False, 0.05
    for _ in range(40):
        knee.note(1.0, 2.0, refused=False, in_flight=40)

    assert knee.size == 20


def round_of(knee, latency, at):
    """Let *knee* note a whole round of answers, all used and equally slow, at a time of its own; return its size."""
    size = knee.size
    for _ in range(max(size, 20)):
        knee.note(at, at + latency, refused=False, in_flight=size)
    return knee.size


def test_knee_of_a_service_that_keeps_up():
    """It doubles round by round."""
    knee = Knee()

    assert [round_of(knee, 0.5, at) for at in (0.0, 10.0, 20.0)] == [2, 4, 8]


def test_knee_after_a_cut_that_did_not_help():
    """The latency is the service's own: from there it grows again, by a little, whatever it is in seconds."""
    knee = Knee()
    knee.size, knee._doubling, knee._quickest = 41, False, 1.0

    assert [round_of(knee, 2.0, at) for at in (0.0, 10.0, 20.0)] == [20, 21, 22]


def test_knee_of_a_lone_caller():
    """One that sends its requests one after another asks for no more places."""
    knee = Knee()
    for _ in range(40):
        knee.note(0.0, 0.5, refused=False, in_flight=0)

    assert knee.size == 1


def test_knee_that_no_longer_doubles():
    """It grows by a sixteenth, at least by one; a refusal ends the doubling."""
    knee = Knee()
    knee.size, knee._doubling, knee._quickest = 32, False, 1.0
    assert round_of(knee, 1.0, 0.0) == 34

    knee = Knee()
    knee.size, knee._quickest = 8, 1.0
    knee.note(0.0, 1.0, refused=True, in_flight=8)
    assert round_of(knee, 1.0, 10.0) == 5


def test_knee_and_requests_of_another_size():
    """After a change, those that began within one and a half latencies tell nothing; without one, all do."""
    knee = Knee()
    assert round_of(knee, 0.5, 0.0) == 2
    for started, answers in ((1.249, 0), (1.25, 1)):
        knee.note(started, started + 0.5, refused=False, in_flight=1)
        assert knee._answers == answers

    unchanged = Knee(most=1)
    assert round_of(unchanged, 0.5, 0.0) == 1
    unchanged.note(0.5, 1.0, refused=False, in_flight=1)
    assert unchanged._answers == 1


def test_knee_of_a_service_that_takes_one():
    """It hardly queues there, and never stops."""
    in_flight, rate = Service(1).run(20)

    assert in_flight <= 2
    assert rate >= 0.9


@pytest.mark.parametrize(
    ("before", "after"), [((20, 0.05), (20, 0.1)), ((40, 0.05), (10, 0.05)), ((10, 0.05), (60, 0.05))],
    ids=["slower", "smaller", "larger"],
)  # fmt: skip
def test_knee_of_a_service_that_changes(before, after):
    """It follows: a service that became slower is not taken for a queue."""
    service = Service(before[0], seconds=before[1])
    service.run(10)
    service.places, service.seconds = after

    in_flight, rate = service.run(40)

    assert 0.75 * after[0] <= in_flight <= 1.25 * after[0]
    assert rate >= 0.9


def test_knee_without_demand():
    """Callers that want less than it allows do not make it grow."""
    service = Service(80, callers=10)
    service.run(20)

    assert service.knee.size <= 16


def test_knee_when_it_is_refused():
    """A 429 or a timeout halves it, once for all that were in flight, and never below one."""
    knee, sizes = Knee(), []
    knee.size = 40
    for started in (0.0, 0.0, 0.1, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0):
        knee.note(started, started + 0.5, refused=True, in_flight=40)
        sizes.append(knee.size)

    assert sizes == [20, 20, 20, 10, 5, 2, 1, 1, 1, 1]


@pytest.mark.parametrize("places", [1, 2, 9, 17, 18, 26, 27, 80, 100, 1000])
def test_places_of_calls_after_resizing(places):
    """Calls get exactly what they were given, beside the reserve."""
    limiter = Limiter(2)
    limiter.resize_calls(places)

    assert sum(limiter.enter("call") for _ in range(places + 1)) == places
    assert limiter.enter("settle")
