"""The state of a batch, read beside it: its counts, and what it costs."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3

import pytest

from invsvc_async import JournalError, Verdict
from invsvc_async.batch import Batch
from invsvc_async.batch.reports import live_file
from invsvc_async.batch.reports.live import Watch, live_reader
from invsvc_async.batch.reports.summary import report_of
from invsvc_async.batch.run_status import Status, statuses_in
from tests.batch.test_circuit_breaker import behind_door, paused
from tests.batch.writing import all_of, creates
from tests.support.database import database


async def read(path):
    """Open, read and close."""
    reader = live_reader(path)
    await reader.open()
    try:
        return await Watch(path, reader).read()
    finally:
        await reader.aclose()


def counts(live):
    """Return what a summary has too."""
    verdicts = {verdict: count for verdict, count in live.reading.verdicts.items() if count}
    return live.reading.total, verdicts, live.reading.open_inputs


def expected(summary):
    return summary.total, dict(summary.verdicts), summary.open_inputs


def mixed(client, n, start=0):
    """Make keyed creates of which every third is refused."""
    for i in range(start, start + n):
        write = client.webhooks.update("wh_none", description="x") if i % 3 == 0 else None
        yield (
            write or client.webhooks.create(url=f"https://me.example/{i}", events=["invoice.created"])
        ).keyed(f"row-{i}")


def lines(path, n):
    """Write a file of *n* creates."""
    path.write_text("".join(
        json.dumps({"operation": "webhooks.create", "arguments": {"url": f"https://me.example/{i}",
                    "events": ["invoice.created"]}, "key": f"row-{i}"}) + "\n" for i in range(n)
    ))  # fmt: skip
    return path


@pytest.fixture(params=["file", "database"])
def journal(request, tmp_path):
    """Give the place of a journal of the test's own."""
    if request.param == "file":
        return tmp_path / "run.db"
    return database().journal(f"l{abs(hash(request.node.name))}", silence=60)


async def test_counts_beside_a_run(client, journal):
    """They are those of the summary, during the run, after it, and after writes were made to do again."""
    async with Batch.open(journal, client) as batch:
        run = batch.run(mixed(client, 60))
        for _ in range(20):
            await anext(run)
        reader = live_reader(journal)
        await reader.open()
        watch = Watch(journal, reader)
        during = await watch.read()
        await all_of_rest(run)
        after = await watch.read()
        assert counts(after) == expected(await batch.summary())
        assert [(group.verdict, group.count) for group in after.groups] == [(Verdict.REFUSED, 20)]
        assert 20 <= during.done <= 60
        for force in (False, True):
            assert await batch.retry(failed=True, force=force) == 20
            await watch.read()
            reopened = await watch.read()
            assert counts(reopened) == expected(await batch.summary())
            assert reopened.done == 40
            await all_of(batch)
            await watch.read()
            assert counts(await watch.read()) == expected(await batch.summary())
        await reader.aclose()
    assert counts(await read(journal)) == (60, {Verdict.APPLIED: 40, Verdict.REFUSED: 20}, 0)


async def all_of_rest(run):
    async for _ in run:
        pass


async def test_pause_and_the_length_of_the_input(service, tmp_path, journal):
    """While the service is away, the reason and the next probe are shown, and how much the input has."""
    file = lines(tmp_path / "w.jsonl", 50)
    async with behind_door(service) as (client, door):
        await door.shut()
        async with Batch.open(journal, client, concurrency=4) as batch:
            running = asyncio.create_task(all_of(batch, file))
            await paused(batch)
            async with asyncio.timeout(60):
                while not any(each.is_paused for each in (await read(journal)).limits):  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0.01)
            live = await read(journal)
            await door.open()
            await running
        after = await read(journal)

    (pause,) = live.limits
    assert "cannot be reached" in pause.limited_by
    assert (pause.pid, pause.is_paused, pause.next_probe < 120) == (os.getpid(), True, True)
    assert (live.done, live.expected) == (0, 50)
    assert after.limits == []
    assert (after.done, after.expected) == (50, 50)
    assert (after.reading.workers is None) == (journal == tmp_path / "run.db")


def test_status_of_a_process_that_is_gone():
    """It is not current, and a text of another form is none."""
    given = '{"host": "h", "pid": 1, "at": 1, "limited_by": "x", "is_paused": true, "next_probe": 1, "seconds": {}}'
    (gone,) = statuses_in(
        {"run status 1": given, "run status 2": "{}", "run status 3": "x", "run total": "5"}
    )
    assert gone == Status(host="h", pid=1, at=1, limited_by="x", is_paused=True, next_probe=1.0, seconds={})
    assert not gone.is_current


async def test_what_limits_the_run(service, client, journal):
    """It is shown with its reason while it lasts, and by the report for how long it did."""
    service._app.latency = 0.05
    async with Batch.open(journal, client, concurrency=1) as batch:
        run = batch.run(creates(client, 60))
        await anext(run)
        running = asyncio.create_task(all_of_rest(run))
        shown, told = set(), set()
        while not running.done():
            shown.update(each.limited_by for each in (await read(journal)).limits)
            told.add(batch.progress.limited_by)
            await asyncio.sleep(0.01)
        report = await report_of(batch.entries, "run")
    assert "concurrency: 1 in flight" in shown & told
    assert (await read(journal)).limits == []
    assert report.limits["concurrency"] > 1


# --- a file


async def test_counting_in_slices(client, tmp_path, monkeypatch):
    """A long file is counted in parts, and writes that finish meanwhile are counted once."""
    monkeypatch.setattr(live_file, "_SLICE", 7)
    monkeypatch.setattr(live_file, "_BUDGET", 0.0)
    path = tmp_path / "run.db"
    async with Batch.open(path, client) as batch:
        run = batch.run(mixed(client, 60))
        for _ in range(30):
            await anext(run)
        reader = live_reader(path)
        first = await reader.read()
        await all_of_rest(run)
        shares = [first.counted]
        async with asyncio.timeout(60):
            while (reading := await reader.read()).counted < 1.0:
                shares.append(reading.counted)
        summary = await batch.summary()

    assert shares == sorted(shares)
    assert 0 < shares[0] < 1
    assert (reading.total, {k: v for k, v in reading.verdicts.items() if v}) == (60, dict(summary.verdicts))


async def test_what_a_reading_costs(tmp_path, client, monkeypatch):
    """Once counted, a reading of a file of many writes costs what one of few costs, in steps of SQLite."""
    steps = []

    class Counting(live_file.LiveFile):
        def _connect(self):
            connection = super()._connect()
            connection.set_progress_handler(lambda: steps.append(1) or 0, 10)
            return connection

    costs = []
    for many in (500, 8000):
        path = tmp_path / f"{many}.db"
        async with Batch.open(path, client) as batch:
            await all_of(batch, creates(client, 1, start=many))
        generated(path, many)
        reader = Counting(path)
        while (reading := await reader.read()).counted < 1.0:
            pass
        assert reading.total == many + 1
        steps.clear()
        await reader.read()
        costs.append(len(steps))

    assert costs[1] <= costs[0] + 5


def generated(path, many):
    """Add finished entries to a journal."""
    with sqlite3.connect(path) as connection:
        connection.execute(
            "INSERT INTO entries (key, content, state, run, operation, verdict, position, done_at) "
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "SELECT 'k' || i, x'00', 2, 1, 'webhooks.create', 'applied', 10 + i, 1 FROM n",
            (many,),
        )
    connection.close()


async def test_file_that_nobody_uses_stays_as_it_is(client, tmp_path):
    """Reading leaves no file beside it, and keeps no batch from merging its log."""
    path = tmp_path / "run.db"
    async with Batch.open(path, client) as batch:
        await all_of(batch, creates(client, 3))
        await read(path)
    before = {each.name: each.stat().st_mtime_ns for each in tmp_path.iterdir()}
    assert "run.db-wal" not in before
    assert counts(await read(path)) == (3, {Verdict.APPLIED: 3}, 0)
    assert {each.name: each.stat().st_mtime_ns for each in tmp_path.iterdir()} == before


@pytest.mark.parametrize("content", [None, "other", "text", "outbox", "verdict"])
async def test_bad_files(client, tmp_path, content):
    """What is no journal of a batch, or is damaged, is an error in words."""
    path = tmp_path / "bad.db"
    if content == "text":
        path.write_text("not a database at all" * 100)
    elif content == "other":
        sqlite3.connect(path).execute("CREATE TABLE a (b)").connection.close()
    elif content is not None:
        async with Batch.open(path, client) as batch:
            await all_of(batch, creates(client, 2))
        with sqlite3.connect(path) as connection:
            connection.execute({
                "outbox": "UPDATE facts SET value = 'the journal of a client' WHERE name = 'kind'",
                "verdict": "UPDATE entries SET verdict = 'maybe'",
            }[content])  # fmt: skip
        connection.close()

    with pytest.raises(JournalError, match=str(path)):
        await read(path)
