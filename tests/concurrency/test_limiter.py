"""The limit on requests in flight: order, the reserve of settling reads, cancellation, adaptation."""

from __future__ import annotations

import asyncio
import random
from math import log

import pytest
from yarl import URL

from invsvc_async.batch.pacing import Slots
from invsvc_async.concurrency.adaptive_limit import AdaptiveLimit
from invsvc_async.concurrency.limiter import Limiter
from invsvc_async.reconcile.enums import End
from invsvc_async.transport.exchange import Exchange
from tests.support.queueing import Service, spread

pytestmark = pytest.mark.one_python


async def turn(limiter, lane="call", request=None):
    """Start a request, as the transport does."""
    if not limiter.enter(lane, request):
        await limiter.wait(lane, request)


async def settled():
    """Run all tasks until they wait."""
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("total", "for_calls"),
    [(1, 1), (2, 1), (3, 2), (10, 9), (19, 18), (20, 18), (100, 90), (1000, 900)],
)
def test_share_of_calls(total, for_calls):
    """Calls may use all but a tenth of the limit, at least one; settling reads may use all."""
    limiter = Limiter(total)

    assert sum(limiter.enter("call") for _ in range(total + 1)) == for_calls
    assert sum(limiter.enter("settle") for _ in range(total + 1)) == total - for_calls
    assert limiter.in_use == total


def test_settling_reads_alone():
    """Settling reads may use the whole limit, and then calls get nothing."""
    limiter = Limiter(5)

    assert sum(limiter.enter("settle") for _ in range(9)) == 5
    assert not limiter.enter("call")


async def test_wait_that_is_closed():
    """A coroutine that is closed while it waits, as a write can be, takes no place when one is free."""
    limiter = Limiter(1)
    assert limiter.enter("call")
    waiting = limiter.wait("call")
    waiting.send(None)
    waiting.close()
    limiter.leave("call")

    assert limiter.in_use == 0
    assert limiter.enter("call")


async def test_turns_in_order_of_arrival():
    """The one that has waited longest is next, over both lanes."""
    limiter, order = Limiter(2), []

    async def caller(name, lane):
        await turn(limiter, lane)
        order.append(name)
        limiter.leave(lane)

    await turn(limiter)
    await turn(limiter, "settle")
    async with asyncio.TaskGroup() as group:
        for name, lane in (
            ("a", "call"),
            ("b", "settle"),
            ("c", "call"),
            ("d", "settle"),
        ):
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
    """A settling read gets the slot of another one, which no call could have."""
    limiter = Limiter(3)
    for lane in ("call", "call", "settle"):
        await turn(limiter, lane)
    waiting = asyncio.create_task(turn(limiter, "settle"))
    await settled()
    limiter.leave("settle")

    await asyncio.wait_for(waiting, 30)

    assert (limiter.in_use, limiter.calls) == (3, 2)


@pytest.mark.parametrize("has_turn", [False, True])
async def test_waiter_that_is_cancelled(has_turn):
    """It gets no slot, or passes on the one that it was just handed; the next one keeps its position."""
    limiter = Limiter(2)
    await turn(limiter)
    first, second = (asyncio.create_task(turn(limiter)) for _ in range(2))
    await settled()
    if has_turn:
        limiter.leave("call")
    first.cancel()
    if not has_turn:
        limiter.leave("call")  # before the cancelled task has run

    await asyncio.wait_for(second, 30)
    await asyncio.gather(first, return_exceptions=True)

    assert first.cancelled()
    assert limiter.in_use == 1


async def test_many_waiters_that_are_cancelled():
    """Cancelled waiters leave nothing behind, even if no request ends meanwhile."""
    limiter = Limiter(2)
    await turn(limiter)
    tasks = [
        asyncio.create_task(turn(limiter, lane)) for lane in ("call", "settle") * 100
    ]
    await settled()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert not any(limiter._queues.values())


async def test_resizing():
    """A higher limit wakes waiters; a lower one applies as requests end."""
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
    """Over thousands of random requests, cancellations and resizes, no slot is lost or gained."""
    dice, limiter, running = random.Random(7), Limiter(5), set()

    async def caller(lane):
        me = object()
        await turn(limiter, lane, me)
        try:
            running.add(me)
            assert len(running) <= 12
            for _ in range(dice.randrange(4)):
                await asyncio.sleep(0)
        finally:
            running.discard(me)
            limiter.leave(lane, me)
            # as after a signal handler's exception: it changes nothing
            limiter.leave(lane, me)

    tasks = []
    for _ in range(4000):
        tasks.append(
            asyncio.create_task(caller(dice.choice(["call", "call", "settle"])))
        )
        if dice.random() < 0.3:
            dice.choice(tasks[-20:]).cancel()
        if dice.random() < 0.02:
            limiter.resize(dice.randint(1, 12))
        if dice.random() < 0.5:
            await asyncio.sleep(0)
        assert limiter.in_use >= len(running)
    await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30)

    assert limiter.in_use == 0
    assert not any(task.exception() for task in tasks if not task.cancelled())
    assert limiter.enter("call")


def near(places, in_flight, *, by=0.25):
    """Return whether so many in flight are within *by*; a limit of one sometimes tries two."""
    return abs(in_flight - places) <= max(by * places, 0.75)


@pytest.mark.untraced
@pytest.mark.parametrize("share", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("seconds", [0.005, 0.05, 0.5])
@pytest.mark.parametrize("places", [1, 5, 20, 80, 200])
def test_knee_of_a_service(places, seconds, share):
    """After 400 latencies, about as many requests are in flight as the service processes at once."""
    settled_at = max(400 * seconds, 2.0)
    service = Service(places, seconds=seconds, shape=spread(share))

    in_flight, rate = service.run(settled_at, settled_at + max(100 * seconds, 1.0))

    assert near(places, in_flight)
    assert rate >= 0.9


@pytest.mark.parametrize(
    ("given", "places"),
    [
        *(({"first": 4}, places) for places in (1, 5, 20, 80)),
        *(({"cost": 0.0003, "pauses": 2}, places) for places in (5, 20, 80)),
        ({"callers": 200}, 150),
    ],
)
def test_knee_beside_what_is_not_the_service(given, places):
    """A first size above the capacity, slowness of the client, pauses of 10 to 60 ms, or few callers: it is found."""
    in_flight, rate = Service(places, shape=spread(0.1), **given).run(20, 40)

    assert near(places, in_flight)
    assert rate >= 0.9


@pytest.mark.parametrize("places", [5, 20, 80])
def test_knee_of_a_service_of_wild_latency(places):
    """Random latencies do not make it collapse or grow without bound."""
    for seed in range(3):
        in_flight, rate = Service(places, seed=seed).run(20, 40)

        assert near(places, in_flight, by=0.3)
        assert rate >= 0.8


@pytest.mark.parametrize(
    ("before", "after", "within"), [(80, (20, 80), 5), (1, (20,), 10), (2, (20,), 10)]
)
def test_knee_of_a_service_that_shrinks_or_grows(before, after, within):
    """It follows from a capacity of 80 to 20 and back in five seconds each, and from one or two to 20 in ten."""
    service = Service(before, shape=spread(0.1))
    service.run(0, 15)
    for places in after:
        service.resize(places)
        in_flight, rate = service.run(service.now + within, service.now + within + 5)

        assert near(places, in_flight)
        assert rate >= 0.9


def test_knee_that_was_given_nothing_in_flight():
    """A request that was alone in flight is not a round to compare with."""
    knee = steering(4)
    for at in (0.0, 100.0, 200.0):
        round_of(knee, 1.0, at, in_flight=0)

    assert 1 <= knee.size <= 6


@pytest.mark.parametrize("after", [0.1, 0.025])
def test_knee_of_a_service_that_changes_its_pace(after):
    """Twice or half the latency is not a queue: as many stay in flight."""
    service = Service(20, shape=spread(0.1))
    service.run(0, 10)
    service.seconds = after

    in_flight, rate = service.run(15, 20)

    assert near(20, in_flight)
    assert rate >= 0.9


def test_knee_after_an_outage():
    """After refusals for 10 s it is at one; 4 s later the service is as busy as before."""
    service = Service(80, shape=spread(0.1))
    service.run(0, 10)
    service.refuses_over = 0
    service.run(10, 20)
    assert service.knee.size == 1

    service.refuses_over = 10**9
    in_flight, rate = service.run(24, 29)

    assert near(80, in_flight)
    assert rate >= 0.9


def test_knee_of_a_service_that_refuses_before_it_queues():
    """If 429s begin at half of the capacity, it stays near that, with at most one request in fifty refused."""
    service = Service(80, shape=spread(0.1))
    service.refuses_over = 40
    service.run(0, 5)
    service.refused = 0

    in_flight, rate = service.run(5, 25)

    assert 20 <= in_flight <= 42
    assert service.refused <= 0.02 * rate * 20 * 80 / 0.05


def round_of(knee, latency, at, *, in_flight=None):
    """Record a settled round of equal latencies in *knee* that begins at *at*; return its size after it."""
    used = knee.size if in_flight is None else in_flight
    for _ in range(max(knee.size, 20)):
        knee.note(at, at + latency, refused=False, in_flight=used)
    knee.note(at + latency + 0.1, at + 2 * latency + 0.1, refused=False, in_flight=used)
    return knee.size


def seeking(size=1, *, most=1000):
    """Make a limit that begins at *size* and whose quick start is over, with nothing learnt."""
    knee = AdaptiveLimit(most=most, first=size)
    knee._start = None
    knee._sums = knee._settled_round(-1e9)
    return knee


def rounds_of(knee, *latencies, at=0.0):
    """Record separate rounds in *knee*; return its size after each."""
    return [
        round_of(knee, latency, at + 100 * i) for i, latency in enumerate(latencies)
    ]


def steering(size=20, *, most=1000):
    """Make a limit that has settled on *size*, for a service with 1 s latency, before time 0."""
    knee = seeking(size, most=most)
    knee._settle(size)
    round_of(knee, 1.0, -100.0)
    return knee


def test_knee_of_a_service_that_keeps_up():
    """Once the start is over, it doubles each round up to the maximum, where every eighth round tries fewer."""
    knee = seeking(most=30)

    assert rounds_of(knee, *[0.5] * 6) == [2, 4, 8, 16, 30, 30]
    assert rounds_of(knee, *[0.5] * 16, at=1000.0) == ([30] * 6 + [25] + [30]) * 2
    assert min(rounds_of(seeking(most=17), *[0.5] * 20)[4:]) == 15


def test_knee_of_a_service_that_queues():
    """From the first size that costs latency it goes to the capacity according to Little's law."""
    assert rounds_of(seeking(), 1.0, 1.0, 1.0, 1.0, 1.59) == [2, 4, 8, 16, 10]
    assert rounds_of(seeking(), 1.0, 1.0, 1.0, 1.0, 1.2, 2.4)[-1] == 13


def test_knee_that_begins_in_a_queue():
    """If the first doubling costs latency, it halves while that reduces the latency."""
    assert rounds_of(seeking(16), 4.0, 8.0, 2.0, 1.0, 1.0) == [
        32,
        8,
        4,
        2,
        5,
    ]


def test_knee_that_steers():
    """It alternates about its estimate, which rises while that costs no latency and falls otherwise."""
    knee = steering()
    assert knee.size == 24
    assert rounds_of(knee, 1.0) == [22]
    assert knee._steering._estimate.value == pytest.approx(20 * 1.1, rel=0.01)

    knee = steering()
    assert rounds_of(knee, 1.2) == [18]
    assert knee._steering._estimate.value == pytest.approx(20 * 0.95, rel=0.01)


def test_knee_that_steers_the_same_way():
    """Each step in the same direction is longer than the one before, up to three times."""
    knee, steps = steering(10), []
    for at in range(12):
        estimate = knee._steering._estimate.value
        round_of(knee, 1.0, 10.0 * at)
        steps.append(log(knee._steering._estimate.value / estimate) / (0.15 * 0.65))

    assert steps == pytest.approx([1, 1.25, 1.5, 1.75, 2, 2.25, 2.5, 2.75, 3, 3, 3, 3])


def test_knee_after_latency_that_rose():
    """It halves while that reduces the latency, and returns if it did not help."""
    assert rounds_of(steering(), 3.0, 3.0, 1.5, 1.0) == [18, 9, 4, 7]

    knee = steering()
    sizes = rounds_of(knee, 3.0, 3.0, 3.0)
    assert sizes[1] == sizes[0] // 2
    assert knee._steering._estimate.value == sizes[0]
    # it is the usual one from now on
    assert min(rounds_of(knee, 3.0, 3.0, 3.0, at=1000.0)) >= sizes[0]


def test_knee_after_latency_that_rose_with_few_in_flight():
    """It halves once; if that does not change what is in flight, it stops."""
    knee = steering(40)
    for at in range(6):
        round_of(knee, 3.0 if at else 1.0, 100.0 * at, in_flight=10)

    assert 20 <= knee.size <= 24


def test_knee_after_one_slow_round():
    """A single slow round may be a pause of this process: it costs a sixth, and nothing is halved."""
    knee = steering()
    rounds_of(knee, 3.0, 1.0)

    assert 16 < knee._steering._estimate.value < 17


def test_knee_of_a_lone_caller():
    """A caller that sends one request at a time does not make it grow."""
    knee = AdaptiveLimit()
    for at in range(40):
        knee.note(at, at + 0.5, refused=False, in_flight=0)

    assert knee.size == 1


def test_knee_without_demand():
    """Callers that use less than the limit do not make it grow."""
    service = Service(80, callers=10)
    service.run(20, 20)

    assert service.knee.size <= 16


def test_knee_whose_demand_falls():
    """The estimate stays: fewer in flight, however fast, show nothing about the capacity."""
    knee = steering()
    for at in range(9):
        round_of(knee, 1.0, 10.0 * at, in_flight=3 + at % 2)

    assert knee._steering._estimate.value == 20


def test_round_of_a_knee():
    """A round takes 20 answers and, near the capacity, 0.2 s; it ends with a request that began after the first."""
    knee = seeking()
    for started in range(20):
        knee.note(started, started + 0.5, refused=False, in_flight=1)
    assert (knee.size, knee._sums.answers) == (1, 20)
    knee.note(19.0, 29.0, refused=False, in_flight=1)  # a slow one, beside the last
    assert (knee.size, knee._sums.answers) == (1, 21)
    knee.note(20.0, 20.5, refused=False, in_flight=1)
    assert knee.size == 2

    knee = steering()
    since = knee._sums.since
    for turn in range(30):
        knee.note(
            since + turn / 200, since + (turn + 1) / 200, refused=False, in_flight=24
        )
    assert knee._sums.answers == 30
    knee.note(since + 0.2, since + 0.21, refused=False, in_flight=24)
    assert knee._sums.answers == 0


def test_knee_whose_demand_hardly_changes():
    """Two rounds with nearly as many in flight are not compared, however their latencies differ."""
    knee = steering()
    for at, latency in enumerate((1.0, 1.2, 1.0, 1.2)):
        round_of(knee, latency, 100.0 * at, in_flight=20 + at % 2)

    assert knee._steering._estimate.value == 20


def test_knee_and_requests_of_another_size():
    """After a change of size, requests that began within half a latency are ignored."""
    knee = seeking()
    assert round_of(knee, 0.5, 0.0) == 2  # at 1.1
    for started, answers in ((1.34, 0), (1.36, 1)):
        knee.note(started, started + 0.5, refused=False, in_flight=1)
        assert knee._sums.answers == answers


def test_knee_when_it_is_refused():
    """A 429 or a timeout halves it, once for all requests in flight, and not below one."""
    knee, sizes = AdaptiveLimit(first=40), []
    for started in (0.0, 0.0, 0.1, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0):
        knee.note(started, started + 0.5, refused=True, in_flight=40)
        sizes.append(knee.size)

    assert sizes == [20, 20, 20, 10, 5, 2, 1, 1, 1, 1]


def test_request_that_times_out_while_others_are_answered():
    """It says nothing about the load, and does not count any more long before; a timeout without answers halves."""
    knee = AdaptiveLimit(first=40)
    knee.note(1.0, 31.0, timed_out=True, in_flight=40)
    assert knee.size == 20
    knee.note(35.0, 35.5, in_flight=20)
    knee.note(34.0, 64.0, timed_out=True, in_flight=20)
    assert knee.size == 20


def test_requests_that_hang_do_not_count():
    """Several usual answers later, but not before a second, a request in flight counts no longer."""
    knee = AdaptiveLimit(first=4)
    knee.in_flight.begin("hangs", 0.0)
    knee.in_flight.begin("young", 0.5)
    assert [
        (knee.in_flight.hanging(at), knee.in_flight.next_hangs_at())
        for at in (0.9, 1.0)
    ] == [
        (0, 1.0),
        (1, 1.5),
    ]
    knee.in_flight.end("young")
    knee.in_flight.end("hangs")
    for _ in range(3):
        knee.note(1.0, 2.0, in_flight=1)
    knee.in_flight.begin("slow", 2.0)
    assert [knee.in_flight.hanging(at) for at in (6.5, 7.5)] == [0, 1]


def test_knee_that_is_refused_again():
    """After one refusal it continues from half; after two with nothing learnt between, it seeks again."""
    knee = steering()
    knee.note(10.0, 10.1, refused=True, in_flight=20)
    assert (knee.size, knee._search) == (12, None)

    knee.note(11.0, 11.1, refused=True, in_flight=12)
    assert rounds_of(knee, 1.0, 1.0, at=20.0) == [12, 24]


def sent(status=200, *, end=End.ANSWERED, timed_out=False):
    """Make a request that took half a second."""
    exchange = Exchange(
        "POST",
        URL("http://127.0.0.1/"),
        {},
        status=status,
        end=end,
        timed_out=timed_out,
    )
    exchange.started, exchange.ended = 100.0, 100.5
    return exchange


@pytest.mark.parametrize(
    ("exchange", "answers", "size"),
    [
        (sent(), 1, 12),
        (sent(404), 1, 12),
        (sent(429), 0, 6),
        (sent(500), 0, 12),
        (sent(503), 0, 12),
        (sent(None, end=End.LOST), 0, 12),
        (sent(None, end=End.LOST, timed_out=True), 0, 6),
        (sent(None, end=End.NOT_SENT, timed_out=True), 0, 12),
    ],
)
async def test_what_a_batch_learns_from(exchange, answers, size):
    """Answers count, 429s and timeouts after sending halve; errors of the service and of the network do not."""
    slots = Slots(100, None, lambda: None)
    slots._knee.size = 12
    slots.learn(exchange)

    assert (slots._knee._sums.answers, slots.free) == (answers, size)
    slots.close()


async def test_batch_whose_requests_time_out():
    """Four slots stay, so that one write that hangs does not stop all others; one if no more are allowed."""
    for most, left in ((100, 4), (2, 2), (1, 1)):
        slots = Slots(most, None, lambda: None)
        for at in range(0, 60, 10):
            slots._knee.note(at, at + 5.0, refused=True, in_flight=1)

        assert [slots.take(at) for at in range(left + 1)] == [True] * left + [False]
        slots.close()


@pytest.mark.parametrize("places", [1, 2, 9, 17, 18, 26, 27, 80, 100, 1000])
def test_places_of_calls_after_resizing(places):
    """Calls get exactly the given limit, in addition to the reserve."""
    limiter = Limiter(2)
    limiter.resize_calls(places)

    assert sum(limiter.enter("call") for _ in range(places + 1)) == places
    assert limiter.enter("settle")
