"""An input file that did not change is not parsed again, and each of its writes still happens once."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from invsvc_async import InvalidRequestError, Timeouts
from invsvc_async.batch import Batch, file_check
from invsvc_async.batch.file_check import FileWrites, check_file, rereadable
from tests.batch.conftest import client_of
from tests.batch.writing import (
    SECRETS,
    all_of,
    create_line,
    create_lines,
    line_of,
    opened,
)

pytestmark = pytest.mark.one_python


async def checkpoint_in(journal):
    async with opened(journal) as entries:
        return await entries.input_notes.checkpoint()


async def unread(file, client, journal):
    """Return how many writes of *file* are parsed by the next run."""
    with rereadable(file) as opened:
        writes = FileWrites(opened, client)
        check_file(writes, await checkpoint_in(journal))
        assert not writes.bad
        return writes.good - (
            0 if writes.checkpoint is None else writes.checkpoint.writes
        )


async def run(client, journal, file, *lines):
    """Run *file*, which has *lines* from now on if any are given; return the results and the progress."""
    if lines:
        file.write_text("".join(lines))
    async with Batch.open(journal, client, **SECRETS) as batch:
        results = await all_of(batch, file)
        return results, batch.progress


@pytest.fixture
def file(tmp_path):
    return tmp_path / "writes.jsonl"


async def test_finished_file_is_not_parsed_again(service, client, journal, file):
    """All of it counts as skipped; lines that were added are sent."""
    lines = create_lines(300)
    await run(client, journal, file, *lines)
    assert await unread(file, client, journal) == 0

    results, progress = await run(client, journal, file)
    assert (results, progress.skipped, service.arrivals("webhooks.create")) == (
        [],
        300,
        300,
    )
    file.write_text("".join([*lines, create_line(300), create_line(301)]))
    assert await unread(file, client, journal) == 2
    results, progress = await run(client, journal, file)
    assert (len(results), progress.skipped, progress.done) == (2, 300, 2)
    assert await unread(file, client, journal) == 0


async def test_lines_without_keys_are_read_again(service, client, journal, file):
    """Which of equal ones are before a checkpoint could not be told; each is sent once all the same."""
    await run(
        client,
        journal,
        file,
        *create_lines(200),
        create_line(7, None),
        create_line(7, None),
    )
    results, progress = await run(client, journal, file)
    assert (results, progress.skipped, service.arrivals("webhooks.create")) == (
        [],
        202,
        202,
    )
    file.write_text(file.read_text() + create_line(7, None))
    # a checkpoint is before the first of them
    assert await unread(file, client, journal) == 203 - 128
    results, progress = await run(client, journal, file)
    assert (len(results), progress.skipped, service.arrivals("webhooks.create")) == (
        1,
        202,
        203,
    )


async def test_file_that_was_changed_is_read_from_its_start(
    service, client, journal, file
):
    """A write that was put in on top is sent, and nothing else."""
    lines = create_lines(300)
    await run(client, journal, file, *lines)
    file.write_text("".join([create_line(999), *lines]))
    assert await unread(file, client, journal) == 301
    results, progress = await run(client, journal, file)
    assert (len(results), progress.skipped, service.arrivals("webhooks.create")) == (
        1,
        300,
        301,
    )


async def test_last_line_without_an_end(client, journal, file):
    """What is added to it makes it another line, so it is read again."""
    await run(client, journal, file, *create_lines(299), create_line(299).rstrip("\n"))
    with pytest.raises(InvalidRequestError, match="line 300"):
        await run(client, journal, file, file.read_text(), " {}\n")


@pytest.mark.one_python
async def test_equal_writes_on_both_sides_of_checkpoints(
    service, client, journal, file
):
    """However often a run is left, each line is applied as often as the file has it."""
    chance = random.Random(5)
    urls = [chance.randrange(12) for _ in range(600)]
    file.write_text("".join(create_line(url, None) for url in urls))
    seen, lefts = 0, 0
    while True:
        async with Batch.open(journal, client, **SECRETS, concurrency=20) as batch:
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


async def test_another_input_in_between(service, client, journal, file):
    """Neither it nor a run without input ends the checkpoint."""
    await run(client, journal, file, *create_lines(200))
    other = client.webhooks.create(
        url="https://me.example/5", events=["invoice.created"]
    )
    await run(client, journal, [other])
    await run(client, journal, ())
    file.write_text("".join(create_lines(202)))
    assert await unread(file, client, journal) == 2
    results, _ = await run(client, journal, file)
    assert (len(results), service.arrivals("webhooks.create")) == (2, 203)


async def test_retry_in_between(service, client, journal, file):
    """A write that is done again is not counted as skipped."""
    service.script("webhooks.create", "403")
    await run(client, journal, file, *create_lines(200))
    async with Batch.open(journal, client, **SECRETS) as batch:
        assert await batch.retry(failed=True) == 1
    assert await unread(file, client, journal) == 0
    _, progress = await run(client, journal, file)
    assert (progress.done, progress.skipped) == (1, 199)


@pytest.mark.one_python
async def test_write_that_waited_is_not_skipped(service, journal, file):
    """One whose turn had not come when the run was stopped is sent by the next, also before a checkpoint."""
    service.latency = 0.05  # or the limit that follows the latency has room for the hanging write alone
    journey = service.seed_journey(name="before").id
    renames = [
        line_of("journeys.update", name, journey=journey, name=name) for name in "ab"
    ]
    file.write_text("".join([*renames, *create_lines(400)]))
    service.script("journeys.update", "hang")
    # the update hangs until the other writes are done
    patience = Timeouts(attempt=60.0)
    async with (
        client_of(service, timeout=patience) as client,
        Batch.open(journal, client, **SECRETS, concurrency=20) as batch,
    ):
        taken = 0
        async for _ in batch.run(file):
            taken += 1
            if taken == 270:
                await batch.stop(0.0)
    assert (await checkpoint_in(journal)).writes >= 270
    async with client_of(service) as client:
        await run(client, journal, file)
        assert await unread(file, client, journal) == 0
    assert [
        entry.body["name"] for entry in service.ledger.effects("journeys.update")
    ] == ["a", "b"]
    assert len(service.book().webhooks.items) == 400


async def test_client_of_another_team(client, journal, file):
    """The same lines are other writes for another team, so they are not skipped."""
    await run(client, journal, file, *create_lines(200))
    assert await unread(file, client.for_team("team_2"), journal) == 200


async def test_lines_that_were_skipped_as_bad(client, journal, file):
    """They are named again if they are not to be skipped."""
    file.write_text("".join(create_lines(200)) + "{}\n" + create_line(200))
    with rereadable(file) as opened:
        writes = FileWrites(opened, client, skips_bad=True)
        check_file(writes)
        await run(client, journal, writes)
    with rereadable(file) as opened:
        again = FileWrites(opened, client, skips_bad=True)
        check_file(again, await checkpoint_in(journal))
    assert (again.good, again.bad, again.first) == (201, 1, [])
    with pytest.raises(InvalidRequestError, match="line 201"):
        await run(client, journal, file)


async def test_file_with_a_byte_order_mark(client, journal, file):
    """The mark is skipped, also if it is all there is in the first line."""
    file.write_text("".join(create_lines(3)), encoding="utf-8-sig")
    assert len((await run(client, journal, file))[0]) == 3
    file.write_bytes(b"\xef\xbb\xbf\n" + create_line(4).encode())
    assert len((await run(client, journal, file))[0]) == 1


async def test_damaged_checkpoint(client, journal, file):
    """It does not count."""
    await run(client, journal, file, *create_lines(200))
    async with Batch.open(journal, client) as batch:
        await batch.entries.store.rows(
            "UPDATE {s}facts SET value = '{}' WHERE name = 'checkpoint'"
        )
    assert await unread(file, client, journal) == 200
    assert (await run(client, journal, file))[0] == []


def test_check_of_a_large_file(client, tmp_path, monkeypatch):
    """It tells its progress every ten seconds, before a checkpoint and after it."""
    file, told = tmp_path / "writes.jsonl", []
    file.write_text("".join(create_lines(500)))
    with rereadable(file) as opened:
        writes = FileWrites(opened, client, name="writes.jsonl")
        check_file(writes, tell=told.append)
        assert told == []
        monkeypatch.setattr(file_check, "_TELL_EVERY", 0.0)
        check_file(writes, tell=told.append)
        assert told[-1].startswith("writes.jsonl: checked 77%, 385 lines so far")
        for write in writes:
            write.close()
        check_file(
            FileWrites(opened, client, name="again"), writes.reached(), told.append
        )
    assert told[-1] == "again: checked 100%, 0 lines so far"
