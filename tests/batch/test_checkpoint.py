"""An input file that did not change is not parsed again, and each of its writes still happens once."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from invsvc_async import InvalidRequestError, Timeouts
from invsvc_async.batch import Batch
from invsvc_async.batch.checkpoint import Checkpoint, Intaken
from invsvc_async.batch.file_check import FileWrites
from invsvc_async.batch.file_reader import rereadable
from invsvc_async.batch.journals.sqlite import SqliteBatch, read_checkpoint
from tests.batch.conftest import client_of
from tests.batch.writing import all_of

SECRETS = {"on_secret": lambda _key, _hook: None}


def create(number, key=None):
    url = f"https://me.example/{number}"
    line = {"operation": "webhooks.create", "arguments": {"url": url, "events": ["invoice.created"]}}
    return json.dumps(line | ({} if key is None else {"key": key})) + "\n"


def rename(journey, name):
    arguments = {"journey": journey.id, "name": name}
    return json.dumps({"operation": "journeys.update", "arguments": arguments}) + "\n"


def unread(file, client, path):
    """Return how many writes of *file* are parsed by the next run with the journal at *path*."""
    with rereadable(file) as opened:
        writes = FileWrites(opened, client)
        for _ in writes.check(read_checkpoint(path)):
            pass
        assert not writes.checked.bad
        return writes.checked.good


async def run(client, path, file, **settings):
    async with Batch.open(path, client, **SECRETS, **settings) as batch:
        results = await all_of(batch, file)
        return results, batch.progress


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.db"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "writes.jsonl"


@pytest.mark.parametrize("keyed", [True, False])
async def test_finished_file_is_not_parsed_again(service, client, path, file, keyed):
    """All of it counts as skipped; lines that were added are sent."""
    lines = [create(i, f"row-{i}" if keyed else None) for i in range(300)]
    file.write_text("".join(lines))
    await run(client, path, file)
    assert unread(file, client, path) == 0

    results, progress = await run(client, path, file)
    assert (results, progress.skipped, service.arrivals("webhooks.create")) == ([], 300, 300)
    file.write_text("".join([*lines, create(300), create(301)]))
    assert unread(file, client, path) == 2
    results, progress = await run(client, path, file)
    assert (len(results), progress.skipped, progress.done) == (2, 300, 2)
    assert unread(file, client, path) == 0


async def test_file_that_was_changed_is_read_from_its_start(service, client, path, file):
    """A write that was put in on top is sent, and nothing else."""
    lines = [create(i) for i in range(300)]
    file.write_text("".join(lines))
    await run(client, path, file)
    file.write_text("".join([create(999), *lines]))
    assert unread(file, client, path) == 301
    results, progress = await run(client, path, file)
    assert (len(results), progress.skipped, service.arrivals("webhooks.create")) == (1, 300, 301)


async def test_last_line_without_an_end(service, client, path, file):
    """What is added to it makes it another line, so it is read again."""
    file.write_text("".join(create(i) for i in range(300)).rstrip("\n"))
    await run(client, path, file)
    with file.open("a") as more:
        more.write(" {}\n")
    with pytest.raises(InvalidRequestError, match="line 300"):
        await run(client, path, file)


@pytest.mark.one_python
async def test_equal_writes_on_both_sides_of_checkpoints(service, client, path, file):
    """However often a run is left, each line is applied as often as the file has it."""
    chance = random.Random(5)  # noqa: S311 - moments, not secrets
    urls = [chance.randrange(12) for _ in range(900)]
    file.write_text("".join(map(create, urls)))
    seen, lefts = 0, 0
    while True:
        async with Batch.open(path, client, **SECRETS, concurrency=20) as batch:
            until = chance.randrange(1, 300)
            async for _ in batch.run(file):
                seen += 1
                if seen % until == 0:
                    break
            else:
                break
        lefts += 1
    made = Counter(hook["url"] for hook in service.book().webhooks.items.values())
    assert made == Counter(f"https://me.example/{number}" for number in urls)
    assert lefts > 3
    assert unread(file, client, path) == 0


async def test_another_input_in_between(service, client, path, file, tmp_path):
    """The checkpoint no longer counts, so that equal writes are counted for each input."""
    other = tmp_path / "other.jsonl"
    file.write_text("".join(create(i) for i in range(200)))
    other.write_text("".join(create(i) for i in range(200)))
    await run(client, path, file)
    async with Batch.open(path, client, **SECRETS) as batch:
        await all_of(
            batch,
            (
                client.webhooks.create(url=f"https://me.example/{i}", events=["invoice.created"])
                for i in range(200)
            ),
        )
    file.write_text("".join(create(i) for i in [*range(200), 5, 5]))
    assert unread(file, client, path) == 202
    results, _ = await run(client, path, file)
    assert (len(results), service.arrivals("webhooks.create")) == (2, 202)


async def test_run_without_input_in_between(service, client, path, file):
    """Neither it nor a retry ends the checkpoint; the write that is done again is not counted as skipped."""
    service.script("webhooks.create", "403")
    file.write_text("".join(create(i) for i in range(200)))
    await run(client, path, file, concurrency=1)
    async with Batch.open(path, client, **SECRETS) as batch:
        await all_of(batch)
        assert await batch.retry(failed=True) == 1
    assert unread(file, client, path) == 0
    _, progress = await run(client, path, file)
    assert (progress.done, progress.skipped) == (1, 199)


@pytest.fixture
async def patient(service):
    """Yield a client whose update hangs until the other writes are done, also on a slow machine."""
    async with client_of(service, timeout=Timeouts(attempt=60.0)) as made:
        yield made


@pytest.mark.one_python
async def test_write_that_waited_is_not_skipped(service, patient, path, file):
    """A checkpoint is before each write that was not stored, because an earlier one to its thing was open."""
    service._app.latency = 0.05  # or the limit that follows the latency has room for the hanging write alone
    journey = service.seed_journey(name="before")
    lines = [create(i) for i in range(400)]
    file.write_text("".join([rename(journey, "a"), rename(journey, "b"), *lines]))
    service.script("journeys.update", "hang")
    async with Batch.open(path, patient, **SECRETS, concurrency=20) as batch:
        taken = 0
        async for _ in batch.run(file):
            taken += 1
            if taken == 270:  # two groups of 128 that were stored at once
                await batch.stop(0.0)
    found = read_checkpoint(path)
    assert found is None or found.writes == 0
    await run(patient, path, file)
    assert service.book().journeys.items[journey.id]["name"] == "b"
    assert len(service.book().webhooks.items) == 400
    assert unread(file, patient, path) == 0


async def test_client_of_another_team(service, client, path, file):
    """The same lines are other writes for another team, so they are not skipped."""
    file.write_text("".join(create(i) for i in range(200)))
    await run(client, path, file)
    assert unread(file, client.for_team("team_2"), path) == 200


async def test_lines_that_were_skipped_as_bad(client, path, file):
    """They are named again if they are not to be skipped."""
    file.write_text("".join(create(i) for i in range(200)) + "{}\n" + create(200))
    with rereadable(file) as opened:
        writes = FileWrites(opened, client, skips_bad=True)
        for _ in writes.check():
            pass
        await run(client, path, writes)
    with rereadable(file) as opened:
        again = FileWrites(opened, client, skips_bad=True)
        for _ in again.check(read_checkpoint(path)):
            pass
    assert (again.checked.good, again.checked.bad, again.total) == (0, 0, 201)
    with pytest.raises(InvalidRequestError, match="line 201"):
        await run(client, path, file)


async def test_journal_that_another_run_used_since_the_check(client, path, file):
    """The run is refused: what it would skip may be another run's."""
    file.write_text("".join(create(i) for i in range(200)))
    await run(client, path, file)
    with rereadable(file) as opened:
        writes = FileWrites(opened, client)
        for _ in writes.check(read_checkpoint(path)):
            pass
        await run(
            client, path, [client.webhooks.create(url="https://me.example/5", events=["invoice.created"])]
        )
        with pytest.raises(Exception, match="used by another run meanwhile"):
            await run(client, path, writes)


async def test_file_with_a_byte_order_mark(client, path, file):
    """The mark is skipped, also if it is all there is in the first line."""
    file.write_text("".join(create(i) for i in range(3)), encoding="utf-8-sig")
    assert len((await run(client, path, file))[0]) == 3
    file.write_bytes(b"\xef\xbb\xbf\n" + create(4).encode())
    assert len((await run(client, path, file))[0]) == 1


async def test_damaged_checkpoint(client, path, file):
    """It does not count."""
    file.write_text("".join(create(i) for i in range(200)))
    await run(client, path, file)
    entries = SqliteBatch(path)
    await entries.open()
    await entries.ask(lambda c: c.execute("UPDATE facts SET value = '{}' WHERE name = 'checkpoint'"))
    await entries.aclose()
    assert unread(file, client, path) == 200
    assert (await run(client, path, file))[0] == []


def test_checkpoint_of_many_parts():
    """It is before the first part with a write that is not stored, and there are not too many parts."""

    def end(number):
        return Checkpoint(offset=number, digest="", lines=number, writes=number)

    intaken = Intaken(1)
    first = intaken.next()
    first.open, first.end = 1, end(1)
    runs = set()
    for number in range(2, 20_000):
        part = intaken.next()
        part.end = end(number)
        runs.add(part.run)
    assert intaken.checkpoint() is None
    assert len(runs) < 5000
    first.note_stored()
    found = intaken.checkpoint()
    assert (found.offset, found.runs) == (19_999, ((1, max(runs)),))
    assert intaken.next().run == max(runs) + 1
    assert intaken.checkpoint() is None
