"""The state of a batch, read beside it: its counts, and what it costs."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager

import msgspec
import pytest

from invsvc_async import JournalError
from invsvc_async.batch import Batch
from invsvc_async.batch.reports.live import Watch
from invsvc_async.batch.reports.summary import report_of
from invsvc_async.batch.run_status import RUN, Status, statuses_in
from invsvc_async.durable.store.postgres import PostgresStore
from invsvc_async.durable.store.sqlite import SqliteStore
from tests.batch.test_circuit_breaker import behind_door, paused
from tests.batch.writing import all_of, create_lines, creates, opened, run_all
from tests.support.database import database
from tests.support.waiting import cancel, until

pytestmark = pytest.mark.one_python


@asynccontextmanager
async def watching(path):
    """Yield what reads the state of the batch at *path*."""
    async with opened(path, create=False, reading=True) as entries:
        yield Watch(entries, str(path))


async def read(path):
    async with watching(path) as watch:
        return await watch.read()


def told(summary):
    """Return what the state says of a summary."""
    verdicts = {
        str(verdict): count for verdict, count in summary.verdicts.items() if count
    }
    return summary.total, summary.done, summary.sending, summary.open_inputs, verdicts


def counts(live):
    return tuple(
        live[name] for name in ("total", "done", "sending", "open_inputs", "verdicts")
    )


def mixed(client, n, start=0):
    """Make keyed creates of which every third is refused."""
    for i in range(start, start + n):
        write = (
            client.webhooks.update("wh_none", description="x") if i % 3 == 0 else None
        )
        yield (
            write
            or client.webhooks.create(
                url=f"https://me.example/{i}", events=["invoice.created"]
            )
        ).keyed(f"row-{i}")


async def test_counts_beside_a_run(client, journal):
    """They are those of the summary, during the run, after it, and after writes were made to do again."""
    async with Batch.open(journal, client) as batch:
        run = batch.run(mixed(client, 60))
        for _ in range(20):
            await anext(run)
        async with watching(journal) as watch:
            during = await watch.read()
            await all_of_rest(run)
            after = await watch.read()
            assert counts(after) == told(await batch.summary())
            assert [
                (group["verdict"], group["count"]) for group in after["groups"]
            ] == [("refused", 20)]
            assert 20 <= during["done"] <= 60
            for force in (False, True):
                assert await batch.retry(failed=True, force=force) == 20
                reopened = await watch.read()
                assert counts(reopened) == told(await batch.summary())
                assert (reopened["done"], reopened["groups"]) == (40, [])
                await all_of(batch)
                assert counts(await watch.read()) == told(await batch.summary())
    assert (await read(journal))["verdicts"] == {"applied": 40, "refused": 20}


async def all_of_rest(run):
    async for _ in run:
        pass


async def test_pause_and_the_length_of_the_input(service, tmp_path, journal, path):
    """While the service is away, the reason and the next probe are shown, and how much the input has."""
    file = tmp_path / "w.jsonl"
    file.write_text("".join(create_lines(50)))
    async with behind_door(service) as (client, door):
        await door.shut()
        async with Batch.open(journal, client, concurrency=4) as batch:
            running = asyncio.create_task(all_of(batch, file))
            await paused(batch)

            async def is_told():
                runs = statuses_in(await batch.entries.facts.beginning(RUN))
                limits = (await read(journal))["limits"]
                return any(each["paused"] for each in limits) and any(
                    has_lasted(run) for run in runs
                )

            await until(is_told)
            live = await read(journal)
            await door.open()
            await running
            report = await report_of(batch.entries, "run")
        after = await read(journal)

    (run,) = report.runs
    assert (run.ended, run.is_lost) == (True, False)
    assert live["limits"][0]["why"] in {each.why for each in run.pauses}
    paused_for = sum(each.ended - each.begun for each in run.pauses) / 1000
    assert (
        0
        < paused_for
        == pytest.approx((run.at - run.begun) / 1000 - report.active_seconds, abs=0.002)
    )
    (pause,) = live["limits"]
    assert "cannot be reached" in pause["why"]
    assert (pause["pid"], pause["paused"], pause["next_probe"] < 120) == (
        os.getpid(),
        True,
        True,
    )
    assert (live["done"], live["expected"], live["state"]) == (0, 50, "paused")
    assert after["limits"] == []
    assert (after["done"], after["expected"], after["state"]) == (50, 50, "finished")
    if journal == path:
        assert after["workers"] is None
    else:
        [worker] = after["workers"]
        assert worker["done"] == 50
        assert {"host", "pid", "state", "silent", "rate"} <= worker.keys()


def has_lasted(run):
    return any(each.ended > each.begun for each in run.pauses)


def status(at):
    """Return the status of a process that did not end by itself."""
    return Status(
        host="h", pid=1, begun=1, at=at, ended=False, pauses=[], limited_by="away", is_paused=True, next_probe=1.0,
        seconds={},
    )  # fmt: skip


def test_status_of_a_process_that_is_gone():
    """It is not current, and a text of another form is none."""
    gone, text = status(at=1), msgspec.json.encode(status(at=1)).decode()
    given = {
        "run status 1": text,
        "run status 2": "{}",
        "run status 3": "x",
        "run total": "5",
    }
    assert [*statuses_in(given)] == [gone]
    assert gone.is_lost
    assert not gone.is_current


async def test_process_that_was_killed_before(service, client, path):
    """In a file, the status of a killed process says nothing of the batch once another process has it."""
    async with Batch.open(path, client) as batch:
        await all_of(batch, creates(client, 1))
        gone = status(at=round(time.time() * 1000) - 5)
        batch.entries.facts.put("run status h:1", msgspec.json.encode(gone).decode())
        await all_of(batch, creates(client, 5, start=1))
        live = await read(path)
    assert (live["state"], live["limits"], live["secrets_lost"]) == ("finished", [], 0)


@pytest.mark.slow
async def test_what_limits_the_run(service, client, journal):
    """It is shown with its reason while it lasts, and by the report for how long it did."""
    service.latency = 0.05
    async with Batch.open(journal, client, concurrency=1) as batch:
        run = batch.run(creates(client, 60))
        await anext(run)
        running = asyncio.create_task(all_of_rest(run))
        shown, told = set(), set()
        while not running.done():
            shown.update(each["why"] for each in (await read(journal))["limits"])
            told.add(batch.progress.limited_by)
            await asyncio.sleep(0.01)  # sleeps: between two looks at a batch that runs
        report = await report_of(batch.entries, "run")
    assert "concurrency: 1 in flight" in shown & told
    assert (await read(journal))["limits"] == []
    assert report.limits["concurrency"] > 1


async def test_what_limits_the_end_of_a_run(service, client, journal):
    """Once the input has ended, it is no limit, although a lost answer is still settled."""
    service.script("webhooks.create", "pass", "reset")
    async with Batch.open(journal, client, concurrency=1) as batch:
        running = asyncio.create_task(all_of(batch, creates(client, 2)))
        await until(lambda: batch.progress and batch.progress.settling == 1)
        await until(
            lambda: batch.progress.limited_by != "input: it has no more writes yet"
        )
        limit = batch.progress.limited_by
        await cancel(running)
    assert limit == "lost answers: nothing else is left"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["file", "database"])
async def test_what_a_reading_costs(client, tmp_path, monkeypatch, form):
    """A reading of many writes reads as few rows as one of few."""
    read_rows = []
    rows = (PostgresStore if form == "database" else SqliteStore).rows

    async def counting(store, text, *values):
        found = await rows(store, text, *values)
        read_rows.append((" ".join(text.split()), len(found)))
        return found

    costs = []
    for many in (10, 400):
        path = (
            tmp_path / f"{many}.db"
            if form == "file"
            else database().journal(f"cost{many}")
        )
        await run_all(path, client, creates(client, many, start=10 * many))
        async with watching(path) as watch:
            monkeypatch.setattr(type(watch._entries.store), "rows", counting)
            live = await watch.read()
            monkeypatch.undo()
        assert live["total"] == many
        assert not [text for text, _ in read_rows if "entries" in text]
        costs.append(sum(count for _, count in read_rows))
        read_rows.clear()
    assert costs[0] == costs[1] > 0


async def test_file_that_nobody_uses_stays_as_it_is(client, tmp_path, path):
    """Reading leaves no file beside it, changes none, and says when the batch changed it."""
    async with Batch.open(path, client) as batch:
        await all_of(batch, creates(client, 3))
        await read(path)
    before = {each.name: each.stat().st_mtime_ns for each in tmp_path.iterdir()}
    assert "run.db-wal" not in before
    live = await read(path)
    assert (live["verdicts"], live["at"] - live["changed"]) == (
        {"applied": 3}, pytest.approx(before["run.db"] / 1e9, abs=0.01)
    )  # fmt: skip
    assert {each.name: each.stat().st_mtime_ns for each in tmp_path.iterdir()} == before


async def test_batch_that_ends_while_it_is_watched(client, path):
    """The watch keeps nothing from the file: once it has ended too, there is no log beside it."""
    async with Batch.open(path, client) as batch:
        await all_of(batch, creates(client, 3))
        opened = watching(path)
        watch = await opened.__aenter__()
    async with Batch.open(path, client) as batch:
        await all_of(batch, creates(client, 3, start=3))
        assert (await watch.read())["total"] == 6
    await opened.__aexit__(None, None, None)
    assert not path.with_name("run.db-wal").exists()
    assert (await read(path))["total"] == 6


async def test_missing_file(tmp_path):
    """It is named, and not made."""
    with pytest.raises(JournalError, match=r"gone\.db: the file does not exist"):
        await read(tmp_path / "gone.db")
    assert [*tmp_path.iterdir()] == []
