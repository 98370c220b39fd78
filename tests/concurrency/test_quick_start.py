"""The start of the adaptive limit: how soon many calls are done, beside the search in settled rounds alone."""

import heapq

import pytest

from invsvc_async.concurrency import rounds
from invsvc_async.concurrency.adaptive_limit import LEAST, AdaptiveLimit
from tests.support.queueing import Service

pytestmark = pytest.mark.one_python

# latencies with a mean of one
LATENCIES = {
    "constant": lambda _: 1.0,
    "exponential": lambda dice: dice.expovariate(1.0),
    "lognormal": lambda dice: dice.lognormvariate(-0.5, 1.0),
    "pareto": lambda dice: 0.5 * dice.paretovariate(2.0),
}


def starting():
    """Make the limit that a transport has."""
    return AdaptiveLimit(least=LEAST)


def seeking():
    """Make a limit without a quick start: it doubles in settled rounds from the first answer on."""
    knee = starting()
    knee._start = None
    knee._sums = knee._settled_round(-1e9)
    return knee


def done_in(knee, places, shape, *, calls, seed=1):
    """
    Let *calls* be made in a service of *places* that take 1 s each.

    Return the seconds until nineteen in twenty are answered, and until all are, and the largest size.
    """
    service = Service(places, seconds=1.0, shape=LATENCIES[shape], seed=seed)
    service.knee = knee
    begun = most = 0
    times = []
    while len(times) < calls:
        while service._in_flight < knee.size and begun < calls:
            service._begin()
            begun += 1
        service.now, started, _ = heapq.heappop(service._ending)
        knee.note(started, service.now, service._in_flight)
        service._in_flight -= 1
        times.append(service.now)
        most = max(most, knee.size)
    return times[calls * 19 // 20 - 1], times[-1], most


@pytest.mark.parametrize("shape", LATENCIES)
@pytest.mark.parametrize("places", [20, 200, 2000])
def test_start_beside_settled_rounds(places, shape, monkeypatch):
    """It is never slower than without, and never allows far more than the service has places."""
    for seed in range(3):
        most_done, done, most = done_in(
            starting(), places, shape, calls=4 * places, seed=seed
        )
        with monkeypatch.context() as patch:
            # reaches: so the limit was before it had a quick start; it stopped by chance, too
            patch.setattr(rounds, "_SURE", 0.0)
            slowly_most_done, slowly_done, _ = done_in(
                seeking(), places, shape, calls=4 * places, seed=seed
            )

        assert most_done <= slowly_most_done
        assert done <= 1.05 * slowly_done  # the slowest answer alone may decide it
        assert most <= 5 * places


def test_start_with_many_places():
    """8,000 calls of 1 s: 4, 16, 64 and 256 at once, and then the maximum eight times; before, it took 35 s."""
    assert done_in(starting(), 2000, "constant", calls=8000) == (12.0, 12.0, 1000)
    assert done_in(seeking(), 2000, "constant", calls=8000)[1] > 2.9 * 12


@pytest.mark.parametrize("shape", ["exponential", "lognormal", "pareto"])
def test_start_that_does_not_stop_by_chance(shape):
    """With 2,000 places, 95 % of 8,000 calls are done in at most 20 s, whatever the dice."""
    for seed in range(8):
        assert done_in(starting(), 2000, shape, calls=8000, seed=seed)[0] <= 20


@pytest.mark.parametrize("shape", ["exponential", "lognormal", "pareto"])
def test_start_that_finds_the_capacity(shape):
    """With 20 places, 760 of 800 calls take 38 s at best; it is near that, because it does not settle too low."""
    for seed in range(8):
        assert done_in(starting(), 20, shape, calls=800, seed=seed)[0] <= 50


def turn(knee, at, *latencies, in_flight=None):
    """Answer requests that all began *at*; return the size then."""
    used = knee.size if in_flight is None else in_flight
    for latency in sorted(latencies):
        knee.note(at, at + latency, used)
    return knee.size


def turns(knee, *latencies, at=0.0):
    """Answer as many requests as are allowed, with each of *latencies* in turn; return the sizes."""
    return [
        turn(knee, at + 100.0 * i, *[latency] * knee.size)
        for i, latency in enumerate(latencies)
    ]


def test_start_of_a_service_that_keeps_up():
    """Steady latencies let it leap to the maximum, about which it then swings as usual."""
    knee = AdaptiveLimit(first=4, most=30)

    assert turns(knee, 1.0, 1.0, 1.0) == [16, 30, 30]
    assert knee._start is None


@pytest.mark.parametrize(
    ("latencies", "size"),
    [((1.0,) * 4, 16), ((1.0, 1.05, 1.0, 1.05), 16), ((0.5, 1.0, 1.5, 2.0), 8)],
)
def test_start_with_spread(latencies, size):
    """If the latencies of few answers differ, it doubles only."""
    assert turn(AdaptiveLimit(first=4), 0.0, *latencies) == size


def test_start_with_latency_that_rises_a_little():
    """It does not leap either if more in flight costs something, but less than a queue would."""
    assert turns(AdaptiveLimit(first=4), 1.0, 1.2) == [16, 32]


def test_start_that_ends():
    """After slower answers it looks at what was not queued, in settled rounds, which decide."""
    knee = AdaptiveLimit(first=4)
    assert turns(knee, 1.0, 1.0, 2.0) == [16, 64, 32]
    assert (knee._start, knee._search._doubles) == (None, True)
    assert knee._search._before.in_flight == 16.0

    for _ in range(33):
        knee.note(1000.0, 1001.0, knee.size)
    knee.note(1002.0, 1003.0, knee.size)
    assert knee.size == 64  # it was no queue

    knee = AdaptiveLimit(first=4)
    turns(knee, 1.0, 1.0, 2.0)
    for _ in range(33):
        knee.note(1000.0, 1002.0, knee.size)
    knee.note(1003.0, 1005.0, knee.size)
    assert (knee.size, knee._search) == (16, None)  # it was one


def test_start_that_ends_not_far_from_what_was_good():
    """However slow the answers are, more is looked at than was good, so that rounds can be compared."""
    assert turns(AdaptiveLimit(first=4), 1.0, 1.0, 50.0) == [16, 64, 20]


def test_start_with_answers_slower_by_chance():
    """A rise that the spread of the answers explains does not end it."""
    knee = AdaptiveLimit(first=4)
    assert turn(knee, 0.0, 0.3, 0.5, 1.0, 2.5) == 8
    assert turn(knee, 100.0, *(0.3, 0.9, 2.7, 7.5) * 2) == 16


def test_search_with_answers_slower_by_chance():
    """The search in settled rounds goes on after such a rise, too."""
    knee = seeking()
    for at, latencies in ((0.0, (0.3, 1.0, 3.3)), (100.0, (0.5, 1.6, 5.2))):
        turn(knee, at, *latencies * 7)
        knee.note(at + 90.0, at + 91.0, knee.size)

    assert knee.size == 16


def test_start_in_a_queue():
    """If the first growth costs latency, the first size may have been too large: it seeks from there."""
    knee = AdaptiveLimit(first=4)

    assert turns(knee, 1.0, 4.0) == [16, 4]
    assert (knee._start, knee._search._before) == (None, None)


def test_start_with_late_answers():
    """Slow answers that come after their round count with it: the next round is compared with all."""
    knee = AdaptiveLimit(first=4)
    assert turn(knee, 0.0, *[1.0] * 4) == 16
    assert turn(knee, 10.0, *[1.0] * 16) == 64
    for _ in range(48):
        knee.note(10.5, 16.5, 64)
    assert turn(knee, 100.0, *[2.0] * 64) == 128  # else it would be slower


def test_start_without_demand():
    """A leap that callers do not use is taken back to a doubling; what they then do not use stays."""
    knee = AdaptiveLimit(first=4)
    turns(knee, 1.0)
    assert knee.size == 16
    for at in (100.0, 200.0, 300.0):
        turn(knee, at, *[1.0] * knee.size, in_flight=5)

    assert knee.size == 8
    assert turn(knee, 400.0, *[1.0] * 8, in_flight=8) == 32


def test_start_with_few_callers_in_a_queue():
    """Callers that do not fill the limit show a queue all the same, once more of them are in flight."""
    knee = AdaptiveLimit(first=4)
    turns(knee, 1.0, 1.0)
    turn(knee, 300.0, *[1.4] * 64, in_flight=25)

    assert knee._start is None


def test_start_with_few_callers_of_a_slower_service():
    """As many as before, or hardly more, show nothing about a queue."""
    knee = AdaptiveLimit(first=4)
    turns(knee, 1.0, 1.0)
    for in_flight in (10, 17):
        turn(knee, 300.0 + in_flight, *[1.4] * 64, in_flight=in_flight)
        assert knee._start is not None


def test_start_that_is_refused():
    """A 429 takes a leap back, or halves; the limit swings about that, or seeks if nothing was learnt."""
    knee = AdaptiveLimit(first=4)
    turns(knee, 1.0, 1.0)
    knee.note(300.0, 300.1, 64, refused=True)
    assert (knee.size, knee._start, knee._search) == (16, None, None)

    knee = AdaptiveLimit(first=4)
    turns(knee, 1.0, 1.2)
    knee.note(300.0, 300.1, 32, refused=True)
    assert (knee.size, knee._start, knee._search) == (16, None, None)

    knee = AdaptiveLimit(first=4)
    knee.note(0.0, 0.1, 4, refused=True)
    assert (knee.size, knee._start, knee._search._doubles) == (2, None, True)
