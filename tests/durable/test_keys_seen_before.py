"""Entries of keys that others change between the look of a run and its next statement, in PostgreSQL."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager

import pytest

from invsvc_async import Verdict
from invsvc_async.durable.entry import LostEntryError, State
from invsvc_async.durable.store.conditions import FREED
from tests.batch.conftest import client_of
from tests.durable.writing import cut_off, rename
from tests.support.database import database
from tests.support.inside import journal_of, store_beneath
from tests.support.waiting import cancel, until

pytestmark = pytest.mark.one_python


@pytest.fixture
def shared(request):
    """Return the address of a shared journal, in which nobody counts as dead here."""
    return database().at(journal=f"s{abs(hash(request.node.nodeid))}", silence=600)


class Late:
    """A statement that is about to run: ``reached`` is set then, and it waits for ``go_on``."""

    def __init__(self):
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()


@contextmanager
def late(client, monkeypatch, script):
    """Hold the next *script* of *client*, as a slow network does."""
    store, held = store_beneath(client), Late()
    run = store.run

    async def running(act, *given):
        if script in repr(act) and not held.reached.is_set():
            held.reached.set()
            await held.go_on.wait()
        return await run(act, *given)

    with monkeypatch.context() as patches:
        patches.setattr(store, "run", running)
        yield held


async def leave_unsent(service, client, write):
    """Leave *write* to do, and to nobody: its run is cancelled in the read before its first send."""
    before = service.arrivals("journeys.get")
    service.script("journeys.get", "hang")
    running = asyncio.create_task(write.outcome())
    await service.arrived("journeys.get", before + 1)
    await cancel(running)
    await until_released(client)


async def until_released(client):
    """Wait until nobody has the one entry of the journal of *client*."""
    store = store_beneath(client)

    async def is_free():
        [entry] = await store.entries("true")
        return entry.lane == FREED

    await until(is_free)


async def refused(service, client):
    """Let the service refuse a write under the key "k"."""
    service.script("journeys.update", "400")
    outcome = await rename(client, "x", "k").outcome()
    assert outcome.verdict is Verdict.REFUSED


async def claims_and_lane(client):
    journal = journal_of(client)
    return journal.keys.claims, await journal.life.own_lane()


async def steal(client, lane):
    """Set the owner of *lane*, as another process would that takes it."""
    stolen = "UPDATE {s}lanes SET owner = 'thief.1' WHERE id = $1"
    await store_beneath(client).rows(stolen, lane.number)


def names(service):
    return [each.body["name"] for each in service.ledger.effects("journeys.update")]


async def test_write_that_another_process_has_sent_since(service, shared, monkeypatch):
    """It is settled, not sent again: the entry that was seen is not the one that is there."""
    async with (
        asyncio.timeout(300),
        client_of(service, journal=shared) as one,
        client_of(service, journal=shared) as other,
    ):
        await leave_unsent(service, one, rename(one, "x", "k"))
        with late(one, monkeypatch, "_take") as taking:
            running = asyncio.create_task(rename(one, "x", "k").outcome())
            await taking.reached.wait()
            service.script("journeys.update", "apply, then hang")
            await cut_off(service, rename(other, "x", "k"))
            await until_released(other)
            taking.go_on.set()
            outcome = await running
    assert (outcome.verdict, names(service)) == (Verdict.APPLIED, ["x"])
    assert service.arrivals("journeys.update") == 1


@pytest.mark.parametrize("in_process", [True, False])
async def test_wait_for_a_write_that_is_done_anew_to_another_thing(
    service, shared, monkeypatch, in_process
):
    """Who waited for it goes on, and does not wait for what it waits for now."""

    def made(client, key, url):
        write = client.webhooks.create(
            url=url, events=["invoice.created"], tag=False, description=key
        )
        return write.keyed(key, match="operation").outcome()

    before, now = "https://me.example/typo", "https://me.example/in"
    async with (
        asyncio.timeout(300),
        client_of(service, journal=shared) as one,
        client_of(service, journal=shared) as other,
    ):
        service.script("webhooks.create", "400", "apply, then hang")
        assert (await made(one, "x", before)).verdict is Verdict.REFUSED
        ahead = asyncio.create_task(made(other, "w", now))
        await service.arrived("webhooks.create", 2)
        with late(one, monkeypatch, "_note_anew") as noting:
            anew = asyncio.create_task(made(one, "x", now))
            await noting.reached.wait()
            waiting = asyncio.create_task(
                made(one if in_process else other, "y", before)
            )
            await asyncio.sleep(0.5)  # sleeps: a look or two at what it waits for
            assert not waiting.done()
            noting.go_on.set()
            async with asyncio.timeout(10):
                assert (await waiting).applied
        assert not anew.done()
        for task in (anew, ahead):
            await cancel(task)


@pytest.mark.parametrize("is_lost", [False, True])
async def test_entry_that_is_reopened_twice(service, shared, is_lost):
    """The second try, as if the reply to the first was lost, finds what that has done; and nobody else may."""
    async with (
        client_of(service, journal=shared) as one,
        client_of(service, journal=shared) as other,
    ):
        await refused(service, one)
        claims, lane = await claims_and_lane(one)
        store = store_beneath(one)
        [seen] = await store.entries("true")
        assert await claims.reopen(seen, State.TO_DO, lane)
        if is_lost:
            claims, lane = await claims_and_lane(other)
        assert await claims.reopen(seen, State.TO_DO, lane) is not is_lost
        [entry] = await store.entries("true")
        assert (entry.state, entry.lane == lane.number) == (State.TO_DO, not is_lost)


async def test_entry_is_not_reopened_in_a_lane_that_was_taken_over(service, shared):
    """There, nobody would run it, and other processes would wait for its run."""
    async with client_of(service, journal=shared) as one:
        await refused(service, one)
        claims, lane = await claims_and_lane(one)
        store = store_beneath(one)
        [seen] = await store.entries("true")
        await steal(one, lane)
        with pytest.raises(LostEntryError):
            await claims.reopen(seen, State.TO_DO, lane)
        assert (await store.entries("true"), lane.doubtful) == ([seen], True)
        assert (await rename(one, "x", "k").outcome()).applied


@pytest.mark.parametrize("is_its_own", [True, False])
async def test_write_that_is_done_anew_by_a_process_that_has_lost_its_lane(
    service, shared, is_its_own
):
    """Nobody else runs it, so no verdict of before is that of the run, whoever has found it."""
    async with (
        client_of(service, journal=shared) as one,
        client_of(service, journal=shared) as other,
    ):
        await refused(service, one if is_its_own else other)
        _, lane = await claims_and_lane(one)
        await steal(one, lane)
        assert (await rename(one, "x", "k").outcome()).applied
    assert names(service) == ["x"]
