"""Batches in PostgreSQL within one process: what comes out, limits of all workers together, clocks, readers."""

from __future__ import annotations

import asyncio
import hashlib
import time
from contextlib import asynccontextmanager
from itertools import count
from types import SimpleNamespace

import pytest

from invsvc_async import InvalidRequestError, JournalError, Timeouts, Verdict
from invsvc_async.batch import Batch
from invsvc_async.reconcile.compare import url_key
from tests.batch.conftest import HOOK, client_of
from tests.batch.writing import (
    all_of,
    creates,
    line_of,
    made_once,
    run_all,
    shelve,
    unlisted,
)


@asynccontextmanager
async def worker(service, journal, **settings):
    """Open the batch with a client of its own, as another machine would."""
    # On a busy machine, requests may wait for seconds before they are sent.
    patient = Timeouts(attempt=120.0, connect=120.0, call=240.0)
    async with (
        client_of(service, timeout=patient) as client,
        Batch.open(journal, client, **settings) as batch,
    ):
        yield client, batch


async def work(batch):
    """Work until stopped; gives the results."""
    return [result async for result in batch.work()]


async def test_errors_of_a_shared_batch_come_alone(service, client, shared):
    """What ends a shared run comes out as itself, not in a group: of the source's own, and of this package."""

    async def source():
        for write in creates(client, 2):
            yield write
        raise LookupError("no more") from OSError("unplugged")

    async with Batch.open(shared, client) as batch:
        with pytest.raises(LookupError, match="no more") as failure:
            await all_of(batch, source())
        assert isinstance(failure.value.__cause__, OSError)
        await all_of(batch, creates(client, 2))
        changed = client.webhooks.create(**HOOK).keyed("row-1")
        with pytest.raises(
            InvalidRequestError, match="another write under the key 'row-1'"
        ):
            await all_of(batch, [changed])
        await batch.entries.store.rows("ALTER TABLE {s}entries RENAME TO gone")
        with pytest.raises(JournalError, match="refused"):
            await all_of(batch, creates(client, 3))
        await batch.entries.store.rows("ALTER TABLE {s}gone RENAME TO entries")


async def test_clock_of_this_machine_that_steps(service, client, journal, monkeypatch):
    """The time of day may step by hours while a batch runs, and before it is resumed: no verdict changes."""
    real, steps = SimpleNamespace(**vars(time)), count()
    # the service's own clock is right
    monkeypatch.setattr("invsvc_async.simulator.state.time", real)

    def stepping():
        return real.time() + (-7200, 0, 7200)[next(steps) % 3]

    monkeypatch.setattr(time, "time", stepping)
    monkeypatch.setattr(time, "time_ns", lambda: round(stepping() * 1e9))
    service.script("webhooks.create", "pass", "apply, then reset", "500", "reset")
    async with Batch.open(journal, client) as batch:
        await shelve(service, batch, creates(client, 30), "webhooks.create", 10)
        await all_of(batch, creates(client, 30))
        assert (await batch.summary()).verdicts == {Verdict.APPLIED: 30}
    assert made_once(service) == 30
    assert next(steps) > 10


@pytest.mark.silence(10)
async def test_pace_of_all_workers_together(service, shared):
    """Two workers of a pace of 60 a second keep to it together, the second one joining in the middle."""
    async with (
        worker(service, shared, rate=60, concurrency=4) as (client, one),
        worker(service, shared, rate=60, concurrency=4) as (_, two),
    ):
        # they take 10 s; the second one waits for two beats, which are 5 s, before it begins to send
        running = asyncio.create_task(all_of(one, creates(client, 600)))
        await service.arrived("webhooks.create", 30)
        other = asyncio.create_task(work(two))
        first = await running
        await two.stop()
        second = await other
    times = sorted(
        entry.received_at
        for entry in service.ledger.entries
        if entry.operation == "webhooks.create"
    )
    assert len(first) + len(second) == 600
    assert second
    # Each worker starts with one, may make up for 0.05 s, and has four under way, which may arrive together.
    assert fastest(times, within=0.5) <= 60 * 0.5 + 2 * (1 + 2 + 4)
    # it takes 10 s where nothing else runs
    assert times[-1] - times[0] < 600 / 60 * 25


def fastest(times, *, within):
    """Return the largest number of *times* within any *within* seconds."""
    return max(sum(start <= each < start + within for each in times) for start in times)


async def test_equal_writes_of_the_same_input_on_two_machines(service, shared):
    """Machines that read the same input in turns, each in its own time, write equal writes as often as it holds them."""
    turns = [asyncio.Event() for _ in range(6)]

    async def source(client, *mine):
        for turn in mine:
            await turns[turn].wait()
            yield client.webhooks.create(**HOOK)

    async with (
        worker(service, shared) as (client, one),
        worker(service, shared) as (other, two),
    ):
        running = [
            asyncio.create_task(all_of(one, source(client, 0, 2, 4))),
            asyncio.create_task(all_of(two, source(other, 1, 3, 5))),
        ]
        for turn in turns:
            turn.set()
            await asyncio.sleep(0.1)  # sleeps: so that it is its turn; nothing tells
        results = await asyncio.gather(*running)
        assert (await one.summary()).verdicts == {Verdict.APPLIED: 3}
    assert (sum(map(len, results)), service.arrivals("webhooks.create")) == (3, 3)


@pytest.mark.parametrize("step", ["apply, then reset", "reset"])
async def test_reader_of_a_write_of_a_shared_batch(service, client, shared, step):
    """In the process that hands a write out, it is settled with the reader that it came with."""
    service.script("webhooks.create", step)
    [result] = await run_all(shared, client, [unlisted(client)])
    assert result.verdict is Verdict.APPLIED
    assert len(service.ledger.effects()) == 1


async def test_key_that_two_machines_give_to_different_writes(
    service, shared, tmp_path, monkeypatch
):
    """Whoever comes second is refused in words, each time, also if both have looked before either has stored it."""
    file = tmp_path / "writes.jsonl"

    async def nothing(_keys):
        return {}

    def deletes(hook):
        file.write_text(line_of("webhooks.delete", "k", webhook=hook))
        return file

    async with worker(service, shared) as (_, one), worker(service, shared) as (_, two):
        monkeypatch.setattr(two.entries.input_notes, "known", nothing)
        await all_of(one, deletes("wh_a"))
        assert await all_of(two, deletes("wh_a")) == []  # the same one is no harm
        for _ in range(2):
            with pytest.raises(
                InvalidRequestError, match="another write under the key 'k'"
            ):
                await all_of(two, deletes("wh_b"))
    assert [entry.path_id for entry in service.ledger.entries] == ["wh_a"]


async def test_writes_to_things_with_long_names(service, client, shared):
    """A URL that no index of the database can contain holds nothing up; the order of its writes is kept."""
    url = "https://me.example/" + "".join(
        hashlib.sha512(bytes([n])).hexdigest() for n in range(200)
    )
    async with Batch.open(
        shared, client, tag=False, on_secret=lambda *_: None
    ) as batch:
        writes = [
            client.webhooks.create(
                url=url, events=["invoice.created"], description=text
            ).keyed(text)
            for text in ("first", "second")
        ]
        results = await all_of(batch, writes)
        assert [(each.key, each.verdict) for each in results] == [
            ("first", Verdict.APPLIED), ("second", Verdict.APPLIED),
        ]  # fmt: skip
        shorter = f"https://me.example/{'a' * 600}"
        await all_of(
            batch, [client.webhooks.create(url=shorter, events=["invoice.created"])]
        )
        rows = await batch.entries.store.rows("SELECT DISTINCT thing FROM {s}entries")
    long, whole = sorted((thing for (thing,) in rows), key=len)
    assert whole == f"url {url_key(shorter)}"
    assert long.startswith("url me.example/")
    assert len(long) < 600
