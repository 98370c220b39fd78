"""
Exceptions of signal handlers in the bookkeeping of keyed writes.

``python -m tests.interrupts`` raises one at every place; here are some of each function that others wait for.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from itertools import cycle

import attrs
import pytest

from invsvc_async.api.operations import BY_NAME
from invsvc_async.writes.register import WriteRegister
from tests.interrupts.program import WatchedQueue, World
from tests.interrupts.tracer import Interrupter
from tests.interrupts.trial import KINDS, TimeLimit, Trials, watched
from tests.reconcile.test_decide_at_once import intent_of
from tests.support.database import database

pytestmark = [
    pytest.mark.untraced,  # the tracer takes the place of that of coverage
    # What is interrupted leaves coroutines that were not awaited, and clients that were not closed.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

MOST = 4  # places of one function
FUNCTIONS = (
    "Driver._run", "send_once", "_record_end", "conclude", "Driver._leave",
    "Lines.leave", "Transport.send", "Transport._conclude", "Limiter.leave", "Answers.attempt",
    "Writer._put", "Writer._hand_over", "Writer._committed", "_Job.resolve", "Writer.end",
    "JournalLife._open", "JournalLife._close", "Claims._claim_all", "Claims._choose", "_answer",
    "KeyedRun.sending", "KeyedRun.settled",
    "KeyedRun.let_go", "RunEnds.end_run", "Write._driven", "Awaiters.end_run",
    "RunRecord.mark", "RunRecord.add", "WritePlace.take", "Driver._start", "_store_send", "_note_verdict",
)  # fmt: skip


@pytest.fixture(scope="module")
def file_world():
    world = World()
    with watched():
        yield world
    world.close()


@pytest.fixture(scope="module")
def database_world():
    world = World(in_real_time=True)
    yield world
    world.close()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_function(file_world, tmp_path, function):
    """At most one effect, no wait for ever, a true verdict: in the next process, or in the same client."""
    number = FUNCTIONS.index(function)
    kind, goes_on = ("create", "update")[number % 2], number % 4 < 2
    trials = Trials(
        file_world, lambda number: tmp_path / f"{number}.db", kind, goes_on=goes_on
    )
    places = trials.places(function)
    step = max(places // MOST, 1)

    wrong = []
    for place, error in zip(
        range(1 + number % step, places + 1, step), cycle(KINDS), strict=False
    ):
        wrong += trials.at(place, error, function)
    assert wrong == []


@pytest.mark.parametrize("kind", ["create", "update"])
@pytest.mark.parametrize("function", ["Driver._run", "Driver._start"])
def test_run_that_goes_on(file_world, tmp_path, kind, function):
    """The same, if another process has sent the write before: that is not forgotten."""
    trials = Trials(
        file_world, lambda number: tmp_path / f"{number}.db", kind, was_sent=True
    )
    wrong = []
    places = range(1, trials.places(function) + 1)
    for place, error in zip(places, cycle(KINDS), strict=False):
        wrong += trials.at(place, error, function)
    assert wrong == []


@pytest.mark.parametrize("kind", ["create", "update"])
@pytest.mark.parametrize(
    "function", ["send_once", "KeyedRun.settled", "PostgresStore._flush"]
)
def test_function_with_a_database(database_world, kind, function):
    """The same, where the journal is shared."""
    name = f"interrupts_{kind}_{function.rpartition('.')[2].strip('_')}"
    trials = Trials(
        database_world, lambda _: database().at(journal=name, silence=1), kind
    )
    places = trials.places(function)

    wrong = []
    for place, error in zip((1, places // 2, places), KINDS, strict=True):
        wrong += trials.at(place, error, function)
    assert wrong == []


async def test_line_that_is_handed_over():
    """Wherever that is interrupted, once it is done again the line is the next one's, and nobody else's."""
    place = 0
    while True:
        place += 1
        register = WriteRegister(is_of_one_mode=True)
        thing = register.records.of("a")
        assert thing.enter(1)
        waiting = [
            asyncio.create_task(register.lines.turn(thing, None, asyncio.sleep, run))
            for run in (2, 3)
        ]
        await asyncio.sleep(0)
        interrupter = Interrupter(TimeLimit, place, within="Lines.leave")
        try:
            with interrupter:
                register.lines.leave(thing, 1)
        except TimeLimit:
            register.lines.leave(thing, 1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [task.done() for task in waiting] == [True, False]
        assert thing.held == 2
        register.lines.leave(thing, 2)
        await asyncio.wait(waiting)
        register.lines.leave(thing, 3)
        assert register.records.all() == {}
        if not interrupter.where:
            break
    assert place > 5


def test_open_intent_that_is_replaced():
    """Wherever that is interrupted, the earlier or the later one is there."""
    earlier = intent_of(BY_NAME["journeys.update"])
    later = attrs.evolve(earlier, newest=False)
    place = 0
    while True:
        place += 1
        writes = WriteRegister(is_of_one_mode=True).open_writes
        writes.leave_open(earlier, "line")
        interrupter = Interrupter(TimeLimit, place, within="OpenWrites.leave_open")
        with suppress(TimeLimit), interrupter:
            writes.leave_open(later, "line")
        assert writes.opened(earlier.identity) is not None, interrupter.where
        if not interrupter.where:
            break
    assert place > 2


def test_thread_that_has_ended_does_not_rest():
    """A program that joins it is about to go on, so it is not stuck."""
    queue = WatchedQueue()
    thread = threading.Thread(target=queue.get)
    thread.start()
    queue.put(None)
    thread.join()
    assert not queue.waits_in(thread)
