"""Verdicts: given at least once, to a callback or an iterator, until they are acknowledged."""

from __future__ import annotations

import asyncio
import logging
import signal

import pytest

from invsvc_async import Outbox, Verdict
from invsvc_async.client import options_of
from invsvc_async.durable.leases import Leases
from invsvc_async.durable.results import Consumer
from invsvc_async.durable.store.members import Sign
from invsvc_async.outbox import changes
from tests.batch.conftest import client_of
from tests.outbox.conftest import enqueue, entries_of, finished, untold, update
from tests.support.children import first_lines, read_on, started
from tests.support.inside import outbox_entries, store_beneath
from tests.support.waiting import until, until_no


def updates(client, service, count):
    """Return updates of *count* webhooks."""
    return [update(client, service) for _ in range(count)]


async def taken(outbox, count):
    """Read *count* verdicts, without a request for more."""
    keys, results = [], outbox.results()
    async with asyncio.timeout(300):
        while len(keys) < count:
            keys.append((await anext(results)).key)
    await results.aclose()
    return keys


async def test_consumer_that_leaves_wakes_the_others(
    service, client, outbox, monkeypatch
):
    """What it has not acknowledged is given to them at once, and not when they look the next time."""
    monkeypatch.setattr(changes, "_POLL", 600.0)
    [key] = await finished(outbox, *updates(client, service, 1))
    leaving, waiting = outbox.results(), outbox.results()
    assert (await anext(leaving)).key == key
    coming = asyncio.create_task(anext(waiting))
    await asyncio.sleep(0.2)  # sleeps: so that both wait for a verdict; nothing tells
    await leaving.aclose()
    async with asyncio.timeout(300):
        assert (await coming).key == key
    await waiting.aclose()


@pytest.mark.parametrize("kept", [True, False])
async def test_outbox_that_is_closed_before_its_consumer(service, client, place, kept):
    """What was acknowledged is not given again, and the next process has the rest at once."""
    place = str(place).replace("silence=60", "silence=600")
    async with Outbox.open(place, client) as outbox:
        keys = await finished(outbox, *updates(client, service, 4))
        results = outbox.results()
        seen = [(await anext(results)).key for _ in range(3)]
        if not kept:  # its end is scheduled, as after a break
            del results
    async with Outbox.open(place, client) as outbox, asyncio.timeout(300):
        assert seen == keys[:3]
        assert await taken(outbox, 2) == keys[2:]


async def test_consumer_that_was_taken_for_dead_acknowledges_nothing(
    service, client, outbox
):
    """The verdict is another's, which may not have passed it on yet."""
    keys = await finished(outbox, *updates(client, service, 1))
    clock = options_of(client).core.clock
    dead, other = (
        Consumer(Leases(store_beneath(outbox), clock, gives=True)) for _ in range(2)
    )
    for consumer in (dead, other):
        await consumer._leases.beat(Sign(sends=False))
    [entry] = await dead.take(5)
    await dead._leases.end()
    assert [each.key for each in await other.take(5)] == keys
    dead.acknowledge(entry)
    await dead.save()
    assert [each.key for each in await entries_of(outbox, state="untold")] == keys


@pytest.mark.untraced
@pytest.mark.silence(1)
async def test_consumer_that_was_stopped_for_a_while(service, client, outbox, address):
    """What another one has acknowledged meanwhile is not given to it."""
    keys, mine = await finished(outbox, *updates(client, service, 16)), []
    child = await started(
        "tests.outbox.taking", service.base_url, service.api_key, address
    )
    seen = await first_lines(child, 3)
    child.send_signal(signal.SIGSTOP)
    reading = asyncio.create_task(read_on(child, seen))
    async for result in outbox.results():
        mine.append(result.key)
        if {*seen, *mine} >= {*keys}:
            break
    before = len(seen)
    child.send_signal(signal.SIGCONT)
    write = update(client, service, "x").keyed("last")
    async with outbox.dispatching():
        await enqueue(outbox, write)
        await reading

    *acknowledged, _ = mine
    assert len(acknowledged) > 5
    # it may have had one when it was stopped
    assert len({*acknowledged}.intersection(seen[before:])) <= 1


@pytest.mark.untraced
@pytest.mark.silence(1)
async def test_kill_after_verdicts_were_acknowledged(service, client, outbox, address):
    """They are not given again, but for those of the last moment."""
    await finished(outbox, *updates(client, service, 16))
    child = await started(
        "tests.outbox.taking", service.base_url, service.api_key, address
    )
    seen = await first_lines(child, 15)
    child.kill()
    await read_on(child, seen)
    again = await taken(outbox, 1)
    assert again[0] not in seen[:1]


async def test_callback_that_fails_gets_its_verdict_again(
    service, client, place, caplog
):
    """In the same process, others meanwhile; until then a process that only reads shows the error."""
    told, again = [], asyncio.Event()

    async def failing(result):
        told.append(result.key)
        if told.count(keys[0]) > 2:
            again.set()
        elif result.key == keys[0]:
            raise OSError("no")

    with caplog.at_level(logging.CRITICAL, "invsvc_async.outbox"):
        async with Outbox.open(place, client) as outbox:
            keys = await finished(outbox, *updates(client, service, 2))
            async with outbox.dispatching(on_result=failing), asyncio.timeout(300):
                await until(lambda: untold(outbox))
                async with (
                    client_of(service) as other,
                    Outbox.open(place, other, reading=True) as beside,
                ):
                    assert await untold(beside) == {keys[0]: "OSError: no"}
                    waiting = {
                        entry.key: entry.heard
                        for entry in await entries_of(beside, state="untold")
                    }
                    assert waiting[keys[0]] is False
                await again.wait()
                await until_no(lambda: entries_of(outbox, state="untold"))
                await until_no(lambda: untold(outbox))
                assert (await outbox_entries(outbox).entry(keys[0])).heard
    assert (told[:2], told.count(keys[0]), told.count(keys[1])) == (keys, 3, 1)


async def test_callback_whose_own_await_is_cancelled(service, client, outbox, caplog):
    """It has failed like any other: the verdicts after it are given."""
    keys = await finished(outbox, *updates(client, service, 2))
    first, both = [], asyncio.Event()

    async def cut(result):
        first.append(result.key)
        both.set() if len(first) == 2 else None
        if result.key == keys[0]:
            raise asyncio.CancelledError

    with caplog.at_level(logging.CRITICAL, "invsvc_async.outbox"):
        async with outbox.dispatching(on_result=cut), asyncio.timeout(300):
            await both.wait()
    assert first == keys
    assert await taken(outbox, 1) == keys[:1]


async def test_write_that_is_retried_as_its_verdict_is_taken(
    service, client, outbox, monkeypatch
):
    """It has none then. Its consumer waits for the new one."""
    service.script("webhooks.update", "403")
    keys = await finished(outbox, *updates(client, service, 1))
    store, entries = store_beneath(outbox), store_beneath(outbox).entries

    async def late(*values):
        monkeypatch.setattr(store, "entries", entries)
        await outbox_entries(outbox).do_again(keys)
        return await entries(*values)

    monkeypatch.setattr(store, "entries", late)
    results = outbox.results()
    async with outbox.dispatching(), asyncio.timeout(300):
        assert (await anext(results)).verdict is Verdict.APPLIED
        await results.aclose()
