"""Verdicts that were forgotten after a slow consumer has taken them: it does not give them any more."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import Outbox, Verdict
from invsvc_async.durable import results
from invsvc_async.durable.leases import Leases
from invsvc_async.durable.results import Consumer
from invsvc_async.durable.store.members import Sign
from tests.outbox.conftest import finished, update
from tests.support.inside import store_beneath

pytestmark = pytest.mark.one_python

BY = {"because": "seen in the dashboard", "by": "ann"}


def refused(service, client, *keys):
    """Return updates of as many webhooks, which the service refuses once each."""
    service.script("webhooks.update", *["403"] * len(keys))
    return [update(client, service).keyed(key) for key in keys]


async def until_looked_at_again():
    # sleeps: so that what the store said of the page counts no more; nothing tells
    await asyncio.sleep(0.3)


async def test_slow_consumer_and_writes_that_were_retried_or_dropped(
    service, client, place
):
    """It gives neither the verdict that another one has by now in a newer form, nor that of a deleted write."""
    async with Outbox.open(place, client) as outbox, asyncio.timeout(300):
        await finished(
            outbox, *refused(service, client, "first", "dropped", "again", "last")
        )
        slow, other = outbox.results(), outbox.results()
        assert (await anext(slow)).key == "first"
        assert await outbox.drop("dropped")
        assert await outbox.retry("again") == ["again"]
        async with outbox.dispatching():
            newer = await anext(other)
        assert (newer.key, newer.verdict) == ("again", Verdict.APPLIED)
        await until_looked_at_again()
        given = await anext(slow)
        assert (given.key, given.verdict) == ("last", Verdict.REFUSED)
        await other.aclose()
        await slow.aclose()
    assert service.arrivals("webhooks.update") == 5


async def test_slow_callback_and_a_write_that_a_person_has_resolved(
    service, client, place
):
    """It gets the finding, and not the verdict from before it."""
    service.script("sheets.save_mapping", "apply, then reset")
    service.script("webhooks.update", "403")
    given, (first, may_go_on, last) = [], (asyncio.Event() for _ in range(3))

    async def slow(result):
        given.append((result.key, result.verdict))
        first.set()
        await may_go_on.wait()
        if len(given) == 2:
            last.set()

    async with Outbox.open(place, client) as outbox, asyncio.timeout(300):
        await finished(outbox, update(client, service).keyed("first"))
        await finished(outbox, client.sheets.save_mapping({"a": "k"}).keyed("k"))
        assert (await outbox.get("k")).verdict is Verdict.UNKNOWN
        async with outbox.dispatching(on_result=slow):
            await first.wait()
            await outbox.resolve("k", applied=True, **BY)
            await until_looked_at_again()
            may_go_on.set()
            await last.wait()
    assert given == [("first", Verdict.REFUSED), ("k", Verdict.APPLIED)]


class SetClock:
    """A clock that stands still until it is set."""

    time = 1000.0

    def now(self):
        return self.time


async def test_consumer_asks_once_about_all_that_it_took_a_while_ago(
    service, client, place, monkeypatch
):
    """What was taken, or asked about, just now is given without a question."""
    asked = []

    async def counted(store, taker, seqs):
        asked.append(len(seqs))
        return await kept(store, taker, seqs)

    kept = results.kept
    # reaches: nothing else tells how often the store is asked
    monkeypatch.setattr(results, "kept", counted)
    clock = SetClock()
    keys = [f"k{number}" for number in range(6)]
    async with Outbox.open(place, client) as outbox:
        await finished(outbox, *(update(client, service).keyed(key) for key in keys))
        leases = Leases(store_beneath(outbox), clock, gives=True)
        await leases.beat(Sign(sends=False))
        consumer = Consumer(leases)
        for later, questions in ((0.0, []), (0.1, []), (0.2, [4]), (0.1, [4])):
            clock.time += later
            assert (await consumer.next(16)).key == keys.pop(0)
            assert asked == questions
        await leases.end()
