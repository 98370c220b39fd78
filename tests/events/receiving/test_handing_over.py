"""Stored events that are given to a queue of the application, instead of being handled here."""

from __future__ import annotations

import asyncio
import threading

import pytest

from invsvc_async import ConfigurationError, events
from tests.events.bodies import SECRET, encoded, headers_of, signed_body, v1, v2
from tests.events.receiving.test_receiver import (
    FAST,
    HEADER,
    eventually,
    until_none_is_open,
)
from tests.support.waiting import forever

pytestmark = pytest.mark.one_python

SETTINGS = {"secrets": [SECRET], "shared_header": HEADER, "mode": "inbox", "inbox": FAST}  # fmt: skip
BODIES = [v2("invoice.created"), v1("payment.created"), signed_body("sat.invoice.synced")]  # fmt: skip


async def deliver(receiver, *bodies):
    """Deliver *bodies*, each twice."""
    receipts = []
    for body in bodies * 2:
        raw = encoded(body)
        signed = "created_at" in body
        found = await receiver.receive(raw, headers_of(raw, signed=signed, shared=not signed))  # fmt: skip
        receipts.append(found)
    return receipts


class Queue:
    """A queue of the application, which fails as often as set, after it has taken an event."""

    def __init__(self, failures=0):
        self.failures = failures
        self.taken = []
        self.threads = set()

    def take(self, event):
        self.taken.append(event)
        self.threads.add(threading.current_thread())
        if self.failures:
            self.failures -= 1
            raise OSError("the broker is away")
        return "an id"

    async def take_async(self, event):
        await asyncio.sleep(0)
        return self.take(event)


@pytest.mark.parametrize("kind", ["plain", "async", "lambda"])
async def test_events_of_every_family(tmp_path, kind):
    """Each is given once, as it came, and is handled then; duplicates are not given."""
    queue = Queue()
    hand_over = {"plain": queue.take, "async": queue.take_async, "lambda": lambda event, /: queue.take_async(event)}  # fmt: skip
    receiver = events.Receiver(store=tmp_path / "events.db", hand_over=hand_over[kind], **SETTINGS)  # fmt: skip
    async with receiver:
        receipts = await deliver(receiver, *BODIES)
        await until_none_is_open(receiver.store)
        counts = await receiver.store.counts()

    assert [each.outcome for each in receipts[:3]] == ["stored"] * 3
    # v1 has no key by which a duplicate is told
    given = sorted(event.raw for event in queue.taken)
    assert given == sorted(map(encoded, [*BODIES, BODIES[1]]))
    assert (counts["handled"], counts["dead"]) == (4, 0)
    assert (threading.main_thread() in queue.threads) == (kind != "plain")


async def test_queue_that_is_away(tmp_path):
    """It is asked again, as a handler is, until it has taken the event; what it never takes is a dead letter."""
    queue = Queue(failures=2)
    receiver = events.Receiver(store=tmp_path / "events.db", hand_over=queue.take, **SETTINGS)  # fmt: skip
    async with receiver:
        await deliver(receiver, BODIES[0])
        await until_none_is_open(receiver.store)
        assert len(queue.taken) == 3
        queue.failures = 1_000
        await deliver(receiver, BODIES[2])
        await until_none_is_open(receiver.store)
        [dead] = await receiver.store.events(state="dead")

    assert (dead.type, dead.handler) == ("sat.invoice.synced", "hand_over")
    assert "the broker is away" in dead.reason


async def test_receiver_that_ends_before_the_queue_has_answered(tmp_path):
    """The next receiver on the store gives the event again: at least once."""
    begun = []

    async def hang(event):
        begun.append(event)
        await forever()

    place = tmp_path / "events.db"
    first = events.Receiver(store=place, hand_over=hang, deadline=0.1, **SETTINGS)
    async with first:
        await deliver(first, BODIES[0])
        await eventually(lambda: begun)
    queue = Queue()
    second = events.Receiver(store=place, hand_over=queue.take, **SETTINGS)
    async with second:
        await until_none_is_open(second.store)
    assert [event.raw for event in queue.taken] == [encoded(BODIES[0])]


async def test_misuse(tmp_path):
    """Events that are not stored, a handler beside it, and what is no function are refused in words."""
    store = {"store": tmp_path / "events.db"}
    with pytest.raises(ConfigurationError, match="only stored events are handed over"):
        events.Receiver(secrets=[SECRET], hand_over=print)
    with pytest.raises(
        ConfigurationError, match="hand_over: 'queue' is not a function"
    ):
        events.Receiver(hand_over="queue", **store, **SETTINGS)
    receiver = events.Receiver(hand_over=print, **store, **SETTINGS)
    with pytest.raises(ConfigurationError, match="hands its events over"):
        receiver.on("invoice.created")


async def test_function_that_hangs(tmp_path):
    """The end of the process does not wait for it: no thread of the loop's own pool has it."""
    may_end, names = threading.Event(), []

    def hang(_event):
        names.append(threading.current_thread())
        may_end.wait(60)

    receiver = events.Receiver(store=tmp_path / "e.db", hand_over=hang, **SETTINGS)
    async with receiver:
        await deliver(receiver, BODIES[0])
        await eventually(lambda: names)
        assert names[0].daemon
        may_end.set()
