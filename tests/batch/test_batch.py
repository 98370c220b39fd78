"""Batches on one SQLite file: keys, order, resuming, what is kept, what is refused."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sqlite3
from collections import Counter
from datetime import UTC, datetime, timedelta
from weakref import WeakSet

import pytest

from invsvc_async import Absent, Applied, ConfigurationError, InvalidRequestError, JournalError, Verdict
from invsvc_async.batch import Batch
from invsvc_async.batch.intake import AT_ONCE
from tests.batch.conftest import HOOK, client_of
from tests.batch.database import database


def creates(client, n, start=0):
    """Make keyed creates, each of a URL of its own."""
    return (
        client.webhooks.create(url=f"https://me.example/{i}", events=["invoice.created"]).keyed(f"row-{i}")
        for i in range(start, start + n)
    )


def updates(client, hooks, value):
    """Make one update of each hook."""
    return [client.webhooks.update(hook.id, description=value) for hook in hooks]


async def all_of(batch, writes=()):
    """Run *writes* to the end."""
    return [result async for result in batch.run(writes)]


async def shelve_one(service, client, path, write, operation):
    """Leave *write* in the journal as sent, its answer never received; the service hangs."""
    async with Batch.open(path, client) as batch:
        running = asyncio.create_task(all_of(batch, [write]))
        await service.arrived(operation)
        running.cancel()
        await asyncio.wait([running])


async def test_writes_of_an_input_happen_once(service, client, tmp_path):
    """Every write is applied, its secret handed over; given again, all are skipped."""
    secrets = []
    path = tmp_path / "run.db"
    async with Batch.open(
        path, client, on_secret=lambda key, hook: secrets.append((key, hook.secret))
    ) as batch:
        results = await all_of(batch, creates(client, 40))
        again = await all_of(batch, creates(client, 40))
        skipped, summary = batch.progress.skipped, await batch.summary()

    assert {result.verdict for result in results} == {Verdict.APPLIED}
    assert sorted(result.key for result in results) == sorted(f"row-{i}" for i in range(40))
    assert (again, skipped, service.arrivals("webhooks.create")) == ([], 40, 40)
    assert len({secret for _, secret in secrets if secret}) == 40
    assert (summary.total, summary.verdicts) == (40, {Verdict.APPLIED: 40})


async def test_secret_is_in_no_file(service, client, tmp_path):
    """Neither the secret of a webhook nor the token is in the journal."""
    secrets = []
    async with Batch.open(
        tmp_path / "run.db", client, on_secret=lambda _key, hook: secrets.append(hook.secret)
    ) as batch:
        await all_of(batch, creates(client, 3))
        content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert len(secrets) == 3
    assert not any(secret.encode() in content for secret in [*secrets, service.api_key])


async def test_creates_whose_secrets_nobody_takes(service, client, tmp_path, caplog):
    """A batch that creates webhooks without `on_secret` says so once and goes on."""
    async with Batch.open(tmp_path / "run.db", client) as batch:
        assert len(await all_of(batch, creates(client, 3))) == 3
    assert [record.levelname for record in caplog.records if "secrets" in record.message] == ["WARNING"]


async def test_line_put_in_on_top_changes_no_key(service, client, tmp_path):
    """Without keys of the caller's, a write put in on top of the input is the only one that is sent."""
    hooks = [service.seed_webhook() for _ in range(5)]
    async with Batch.open(tmp_path / "run.db", client) as batch:
        await all_of(batch, updates(client, hooks[1:], "a"))
        results = await all_of(batch, updates(client, hooks, "a"))
    assert [result.thing for result in results] == [hooks[0].id]


async def test_equal_writes_are_counted(service, client, tmp_path):
    """Equal writes each happen as often as the input holds them, and a longer input adds the difference."""

    def equal(n):
        return (client.webhooks.create(**HOOK) for _ in range(n))

    async with Batch.open(tmp_path / "run.db", client) as batch:
        first = await all_of(batch, equal(AT_ONCE + 3))
        second = await all_of(batch, equal(AT_ONCE + 5))
    assert (len(first), len(second), service.arrivals("webhooks.create")) == (AT_ONCE + 3, 2, AT_ONCE + 5)


async def test_write_in_flight_is_settled_before_it_is_sent(service, client, tmp_path):
    """A create whose answer was never received is found by the next run, and not sent again."""
    path = tmp_path / "run.db"
    service.script("webhooks.create", "apply, then hang")
    [write] = creates(client, 1)
    await shelve_one(service, client, path, write, "webhooks.create")

    async with client_of(service) as other, Batch.open(path, other) as batch:
        [result] = await all_of(batch, creates(other, 1))
    assert (result.verdict, result.secret_lost) == (Verdict.APPLIED, True)
    assert service.arrivals("webhooks.create") == 1


async def test_write_in_flight_is_settled_without_its_input(service, client, tmp_path):
    """A run without an input does what the journal has left."""
    path, hook = tmp_path / "run.db", service.seed_webhook()
    service.script("webhooks.update", "hang")
    await shelve_one(
        service, client, path, client.webhooks.update(hook.id, description="a"), "webhooks.update"
    )

    async with client_of(service) as other, Batch.open(path, other) as batch:
        [result] = await all_of(batch)
    assert (result.verdict, service.arrivals("webhooks.update")) == (Verdict.APPLIED, 2)


async def looked_for(client, intent):
    """Find the webhook of an unlisted write by its URL: a reader of the caller's own."""
    found = [hook for hook in await client.webhooks.list() if hook.url == intent.body["url"]]
    return Applied(found[0]) if found else Absent()


def unlisted(client, reader=looked_for):
    """Make a write that nothing but the caller's reader can settle."""
    body = {**HOOK, "url": "https://own.example/"}
    return client.write("POST", "/webhooks", json=body, reader=reader).keyed("own")


@pytest.mark.parametrize("step", ["apply, then hang", "hang"])
async def test_write_in_flight_is_settled_with_the_reader_of_its_input(service, client, tmp_path, step):
    """An own reader, which no journal can hold, comes again with the input and settles what was in flight."""
    path = tmp_path / "run.db"
    service.script("webhooks.create", step)
    await shelve_one(service, client, path, unlisted(client), "webhooks.create")

    async with client_of(service) as other, Batch.open(path, other, concurrency=1) as batch:
        results = await all_of(batch, [*creates(other, 3), unlisted(other)])
    assert {result.key: result.verdict for result in results}["own"] is Verdict.APPLIED
    assert Counter(entry.body["url"] for entry in service.ledger.effects())["https://own.example/"] == 1
    assert len(results) == 4


async def test_write_in_flight_whose_reader_does_not_come(service, client, tmp_path):
    """Without the input, or with one that brings no reader, its fate stays unknown and is not sent again."""
    path = tmp_path / "run.db"
    service.script("webhooks.create", "apply, then hang")
    write = unlisted(client).with_policy(deadline=0.5)
    await shelve_one(service, client, path, write, "webhooks.create")

    async with client_of(service) as other, Batch.open(path, other) as batch:
        results = await all_of(batch, [*creates(other, 2), unlisted(other, None)])
    assert {result.key: result.verdict for result in results}["own"] is Verdict.UNKNOWN
    assert service.arrivals("webhooks.create") == 3


async def test_write_of_the_same_thing_waits_for_the_one_in_flight(service, client, tmp_path):
    """What was in flight on a thing is settled before anything else of that thing is sent."""
    path, hook = tmp_path / "run.db", service.seed_webhook()
    service.script("webhooks.update", "late 0.15, then hang")
    await shelve_one(
        service, client, path, client.webhooks.update(hook.id, description="a"), "webhooks.update"
    )

    async with client_of(service) as other, Batch.open(path, other) as batch:
        writes = [other.webhooks.update(hook.id, description=value) for value in ("a", "b")]
        results = await all_of(batch, writes)
    assert [result.verdict for result in results] == [Verdict.APPLIED] * 2
    assert [entry.body["description"] for entry in service.ledger.effects()] == ["a", "b"]


async def test_writes_of_one_thing_keep_their_order(service, client, tmp_path):
    """Updates of one webhook arrive in the order of the input, those of others beside them."""
    service._app.latency = 0.002
    hooks = [service.seed_webhook() for _ in range(4)]
    writes = [client.webhooks.update(hook.id, description=str(i)) for i in range(6) for hook in hooks]
    async with Batch.open(tmp_path / "run.db", client) as batch:
        await all_of(batch, writes)
    for hook in hooks:
        came = [entry.body["description"] for entry in service.ledger.entries if entry.path_id == hook.id]
        assert came == list("012345")


async def test_input_that_changed_under_a_key(service, client, tmp_path):
    """Another write under a key that the journal has is refused in words, and not sent."""
    async with Batch.open(tmp_path / "run.db", client) as batch:
        await all_of(batch, creates(client, 2))
        changed = client.webhooks.create(url="https://else.example/", events=["invoice.created"]).keyed(
            "row-1"
        )
        with pytest.raises(InvalidRequestError, match="'row-1': this is another write"):
            await all_of(batch, [changed])
    assert service.arrivals("webhooks.create") == 2


async def test_key_that_is_given_twice(service, client, tmp_path):
    """Two writes of one key in one input are refused, in one chunk or far apart."""
    for gap in (0, 3 * AT_ONCE):
        async with Batch.open(tmp_path / f"{gap}.db", client) as batch:
            writes = [*creates(client, 1), *creates(client, gap, start=1), *creates(client, 1)]
            with pytest.raises(InvalidRequestError, match="'row-0' is given to two writes"):
                await all_of(batch, writes)


async def test_what_is_no_write_is_refused(service, client, tmp_path):
    """A value that is no write, one of another client, or one under way is refused in words."""
    async with client_of(service) as other, Batch.open(tmp_path / "run.db", client) as batch:
        done = client.webhooks.create(**HOOK)
        await done
        for wrong, words in (
            (7, "given a int"),
            (other.webhooks.create(**HOOK), "another client"),
            (done, "not begun"),
        ):
            with pytest.raises(InvalidRequestError, match=words):
                await all_of(batch, [wrong])


async def test_input_is_read_as_results_are_taken(service, client, tmp_path):
    """A consumer that stops taking results stops the reading of the input."""
    given = 0

    def source():
        nonlocal given
        for write in creates(client, 5000):
            given += 1
            yield write

    async with Batch.open(tmp_path / "run.db", client, concurrency=4) as batch:
        async for _ in batch.run(source()):
            break
        while batch.progress.under_way:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
        assert given < 500


async def test_async_input_is_not_held_up(service, client, tmp_path):
    """What a slow asynchronous source has given is written while the source waits."""
    gate = asyncio.Event()

    async def source():
        for write in creates(client, 1):
            yield write
        await gate.wait()
        for write in creates(client, 1, start=1):
            yield write

    async with Batch.open(tmp_path / "run.db", client) as batch:
        keys = []
        async for result in batch.run(source()):
            keys.append(result.key)
            gate.set()
    assert keys == ["row-0", "row-1"]


async def test_input_that_fails_ends_the_run(service, client, tmp_path):
    """An exception of the source's own comes out of the run; what was given before is written."""

    async def source():
        for write in creates(client, 2):
            yield write
        raise LookupError("no more")

    async with Batch.open(tmp_path / "run.db", client) as batch:
        with pytest.raises(LookupError, match="no more"):
            await all_of(batch, source())


async def test_file_of_lines(service, client, tmp_path):
    """A file of lines is an input, and a bad line is named by its number."""
    good = [
        {
            "operation": "webhooks.create",
            "arguments": {"url": f"https://a.example/{i}", "events": ["invoice.created"]},
        }
        for i in range(3)
    ]
    file = tmp_path / "writes.jsonl"
    file.write_text("\n".join(map(json.dumps, good)))
    async with Batch.open(tmp_path / "run.db", client) as batch:
        assert len(await all_of(batch, file)) == 3
        file.write_text(json.dumps(good[0]) + '\n{"operation": "webhooks.create", "arguments": {"url": 1}}')
        with pytest.raises(InvalidRequestError, match="line 2: "):
            await all_of(batch, file)


async def test_bodies_of_what_is_applied_are_not_kept(service, client, tmp_path):
    """The body of an applied write is gone from its entry; a refused one keeps it, for it may be tried again."""
    path, hook = tmp_path / "run.db", service.seed_webhook()
    async with Batch.open(path, client) as batch:
        writes = [client.webhooks.update(each, description="personal") for each in (hook.id, "wh_none")]
        await all_of(batch, writes)
    with sqlite3.connect(path) as connection:
        rows = dict(connection.execute("SELECT verdict, intent FROM entries"))
    connection.close()
    assert rows["applied"] is None
    assert "personal" in rows["refused"]


async def test_refused_writes_are_tried_again(service, client, tmp_path):
    """`retry` makes what was refused to do again, and the next run does it without any input."""
    service.script("webhooks.create", "403", "403")
    async with Batch.open(tmp_path / "run.db", client) as batch:
        first = await all_of(batch, creates(client, 3))
        count = await batch.retry(verdict="refused")
        second = await all_of(batch)
        with pytest.raises(InvalidRequestError, match="second effect"):
            await batch.retry(verdict=Verdict.APPLIED)
    assert sorted(result.verdict for result in first) == ["applied", "refused", "refused"]
    assert (count, [result.verdict for result in second]) == (2, [Verdict.APPLIED] * 2)
    assert service.arrivals("webhooks.create") == 5


async def test_unknown_writes_are_settled_when_tried_again(service, client, tmp_path):
    """An unknown write that is tried again is read about first, and not sent where the state shows it."""
    service.script("webhooks.create", "apply, then reset")
    service.script("webhooks.list", "pass", "403")
    async with Batch.open(tmp_path / "run.db", client) as batch:
        [first] = await all_of(batch, creates(client, 1))
        assert await batch.retry(verdict=Verdict.UNKNOWN) == 1
        [second] = await all_of(batch)
        kept = [result async for result in batch.results(verdict=Verdict.APPLIED)]
    assert (first.verdict, second.verdict) == (Verdict.UNKNOWN, Verdict.APPLIED)
    assert "HTTP 403" in first.message
    assert (service.arrivals("webhooks.create"), [each.key for each in kept]) == (1, ["row-0"])


async def test_results_are_kept(service, client, tmp_path):
    """The journal tells verdict, reason and evidence of each write after the run, in the input's order."""
    service.script("webhooks.create", "400", "apply, then reset")
    async with Batch.open(tmp_path / "run.db", client, concurrency=1) as batch:
        live = {result.key: result for result in await all_of(batch, creates(client, 3))}
        kept = [result async for result in batch.results()]
        refused = [result.key async for result in batch.results(verdict="refused")]
    assert kept == [live[f"row-{i}"] for i in range(3)]
    assert (kept[0].status, kept[1].basis, kept[2].basis, refused) == (400, "tag", "answered", ["row-0"])


async def test_pruned_entries_still_skip_their_input(service, client, tmp_path):
    """Pruning empties what is done of all but key, digest and verdict, so the same input is still skipped."""
    service.script("webhooks.create", "400")
    path = tmp_path / "run.db"
    async with Batch.open(path, client) as batch:
        await all_of(batch, creates(client, 3))
        assert await batch.prune(done_before=datetime.now(UTC) - timedelta(days=1)) == 0
        assert await batch.prune(done_before=datetime.now(UTC) + timedelta(days=1)) == 3
        assert await all_of(batch, creates(client, 3)) == []
        assert (await batch.summary()).verdicts == {Verdict.APPLIED: 2, Verdict.REFUSED: 1}


async def test_limited_writes_wait(service, client, tmp_path):
    """A write refused for its rate waits as long as the service says, as do those that have not begun."""
    service.script("webhooks.create", "429 after 1")
    async with Batch.open(tmp_path / "run.db", client, concurrency=1) as batch:
        results = await all_of(batch, creates(client, 3))
    times = [entry.received_at for entry in service.ledger.entries]
    assert {result.verdict for result in results} == {Verdict.APPLIED}
    assert len(times) == 4
    assert times[1] - times[0] >= 1.0


async def test_pace_is_smooth(service, client, tmp_path):
    """At a rate of 50 a second, 15 writes take as long as that says."""
    async with Batch.open(tmp_path / "run.db", client, rate=50) as batch:
        await all_of(batch, creates(client, 15))
    times = [entry.received_at for entry in service.ledger.entries]
    assert times[-1] - times[0] >= 14 / 50 - 0.13  # the first may arrive late, and a little is made up for


async def test_write_in_doubt_gives_its_place_up(service, client, tmp_path):
    """With one place, the next write is sent while the one before waits for its window."""
    hooks = [service.seed_webhook() for _ in range(2)]
    service.script("webhooks.update", "500")
    async with Batch.open(tmp_path / "run.db", client, concurrency=1) as batch:
        results = await all_of(batch, updates(client, hooks, "a"))
    assert [result.thing for result in results] == [hooks[1].id, hooks[0].id]
    assert [result.resends for result in results] == [0, 1]


async def test_stopped_run_says_what_it_left(service, client, tmp_path):
    """Stopped, a run lets what is under way end within the time given, and the next one does the rest."""
    service._app.latency = 0.05
    async with Batch.open(tmp_path / "run.db", client, concurrency=2) as batch:
        first = []
        async for result in batch.run(creates(client, 20)):
            first.append(result)
            if len(first) == 2:
                stopping = asyncio.create_task(batch.stop(grace=5.0))
        await stopping
        rest = await all_of(batch, creates(client, 20))
    assert 2 <= len(first) <= 6
    assert (len(first) + len(rest), service.arrivals("webhooks.create")) == (20, 20)


async def test_cancelled_run_shelves_at_once(service, client, tmp_path):
    """A cancelled consumer leaves promptly; what was in flight is in the journal and in `client.unsettled`."""
    service.script("webhooks.create", *["hang"] * 4)
    async with Batch.open(tmp_path / "run.db", client, concurrency=4) as batch:
        running = asyncio.create_task(all_of(batch, creates(client, 4)))
        await service.arrived("webhooks.create", 4)
        running.cancel()
        await asyncio.wait([running], timeout=1.0)
        assert running.cancelled()
        summary = await batch.summary()
    assert (summary.sending, len(client.unsettled)) == (4, 4)


async def test_claims_survive_restarts(service, tmp_path):
    """An untagged create in doubt does not take for its own a webhook that an earlier run's create made."""
    path = tmp_path / "run.db"
    async with client_of(service) as client, Batch.open(path, client, tag=False) as batch:
        [made] = await all_of(batch, [client.webhooks.create(**HOOK).keyed("a")])
    async with client_of(service) as client, Batch.open(path, client, tag=False):
        assert client._view.session.claims[made.thing] == "a"


async def test_second_owner_is_refused(service, client, tmp_path):
    """A second batch on the same journal is refused in words that name the process."""
    async with Batch.open(tmp_path / "run.db", client):
        with pytest.raises(JournalError, match=f"in use by process {os.getpid()} on "):
            async with Batch.open(tmp_path / "run.db", client):
                pass


async def test_batch_of_another_place_is_refused(service, client, tmp_path):
    """A journal is not opened for another address, nor for another credential unless its mode is said to be the same."""
    path = tmp_path / "run.db"
    async with Batch.open(path, client) as batch:
        await all_of(batch, creates(client, 1))
    from invsvc_async import ApiKey, Client
    from invsvc_async.simulator import Simulator

    async with Simulator() as elsewhere, client_of(elsewhere) as other:
        with pytest.raises(InvalidRequestError, match="was begun at"):
            async with Batch.open(path, other):
                pass
    async with Client(service.base_url, ApiKey(service.test_key)) as other:
        with pytest.raises(InvalidRequestError, match="another credential"):
            async with Batch.open(path, other):
                pass
        async with Batch.open(path, other, same_mode=True) as batch:
            assert (await batch.summary()).done == 1


async def test_full_disk_ends_the_run_with_nothing_sent_unstored(service, client, tmp_path):
    """When nothing can be stored any more the run ends in words, and what was not stored was not sent."""
    path = tmp_path / "run.db"
    async with Batch.open(path, client) as batch:
        await all_of(batch, creates(client, 2))
        pages = await batch.entries.ask(
            lambda connection: connection.execute("PRAGMA page_count").fetchone()[0]
        )
        limit = f"PRAGMA max_page_count = {pages}"
        await batch.entries.ask(lambda connection: connection.execute(limit).fetchone())
        with pytest.raises(JournalError, match="disk is full"):
            await all_of(batch, creates(client, 300, start=2))
        await batch.entries.ask(
            lambda connection: connection.execute("PRAGMA max_page_count = 1000000").fetchone()
        )
        stored = (await batch.summary()).total
        arrived = service.arrivals("webhooks.create")
        assert arrived <= stored
        await all_of(batch, creates(client, 302))
        assert (await batch.summary()).verdicts == {Verdict.APPLIED: 302}
    urls = [entry.body["url"] for entry in service.ledger.effects()]
    assert len(urls) == len(set(urls)) == 302


async def test_run_that_fails_is_over_before_its_error_is_seen(service, client, tmp_path):
    """What ends while a failed run is being stopped is given before the error; after it the next run may begin."""

    def disk_is_full(key, _hook):
        if key == "row-0":
            raise OSError("no room")

    async with Batch.open(tmp_path / "run.db", client, concurrency=4, on_secret=disk_is_full) as batch:
        run, came = batch.run(creates(client, 3)), []
        engine = run._start()
        stop = engine.stop

        async def stop_late(grace):
            """Let everything that is under way end first: the order that was once seen by chance."""
            await asyncio.wait(engine._tasks)
            await stop(grace)

        engine.stop = stop_late
        with pytest.raises(OSError, match="no room"):
            async for result in run:
                came.append(result.key)  # noqa: PERF401 - what came before the error counts
        again = await all_of(batch, creates(client, 3))
    assert sorted(came) == ["row-1", "row-2"]
    assert [result.key for result in again] == ["row-0"]


async def test_stopped_run_makes_room_for_the_next(service, client, tmp_path):
    """A run that was stopped bars no other, though results of it were never taken."""
    async with Batch.open(tmp_path / "run.db", client) as batch:
        async for _ in batch.run(creates(client, 20)):
            break
        await batch.stop()
        await all_of(batch, creates(client, 20))
        assert (await batch.summary()).verdicts == {Verdict.APPLIED: 20}


async def test_second_run_at_once_is_refused(service, client, tmp_path):
    """One batch runs one input at a time."""
    async with Batch.open(tmp_path / "run.db", client) as batch:
        async for _ in batch.run(creates(client, 2)):
            with pytest.raises(ConfigurationError, match="under way"):
                batch.run()
            break


async def test_run_that_is_dropped_leaves_nothing_behind(service, client, tmp_path):
    """A run whose results are not taken to the end is ended with the batch, without a warning."""
    async with Batch.open(tmp_path / "run.db", client, concurrency=2) as batch:
        async for _ in batch.run(creates(client, 50)):
            break
    gc.collect()
    left = [task for task in asyncio.all_tasks() if "/batch/" in task.get_coro().cr_code.co_filename]
    assert [task for task in left if task is not asyncio.current_task()] == []


@pytest.mark.parametrize("where", ["file", "database"])
async def test_what_is_done_is_freed_at_once(service, client, tmp_path, where):
    """Nothing of a write that is done waits for a collection of garbage."""
    written, path = (
        WeakSet(),
        tmp_path / "run.db" if where == "file" else database().journal("freed", silence=1),
    )

    def source():
        for write in creates(client, 50):
            written.add(write._request)
            yield write

    async with Batch.open(path, client) as batch:
        gc.collect()
        gc.disable()
        try:
            results = await all_of(batch, source())
            count = len(results)
            del results
            await asyncio.sleep(0)
            left = len(written)
        finally:
            gc.enable()
    assert (count, left) == (50, 0)


@pytest.mark.parametrize("settings", [{"concurrency": 0}, {"rate": 0}, {"rate": -1.0}])
def test_settings_that_cannot_work(tmp_path, client, settings):
    """A concurrency below one, or a rate that is not positive, is refused at once."""
    with pytest.raises(ConfigurationError):
        Batch.open(tmp_path / "run.db", client, **settings)
