"""Whether the input of a batch was read to its end is known, after every way in which a producer can die."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import ConfigurationError
from invsvc_async.batch import Batch
from invsvc_async.durable.store.statements.store_sql import SET_FACT
from tests.batch.child import begin
from tests.batch.writing import SECRETS, all_of, creates, run_all
from tests.support.children import first_lines, read_on


def failing(client, count):
    """Yield *count* writes, then fail."""
    yield from creates(client, count)
    raise RuntimeError("the producer died")


async def open_inputs(journal, client):
    async with Batch.open(journal, client, **SECRETS) as batch:
        return (await batch.summary()).open_inputs


async def test_input_that_was_read_to_its_end(client, journal):
    """It is complete, an empty one too; a run without input says nothing about it."""
    async with Batch.open(journal, client, **SECRETS) as batch:
        assert (await batch.summary()).open_inputs == 0
        await all_of(batch, creates(client, 200))
        assert (await batch.summary()).open_inputs == 0
        await all_of(batch)
        await all_of(batch, [])
        assert (await batch.summary()).open_inputs == 0


@pytest.mark.parametrize(
    ("end", "error", "words"),
    [
        (RuntimeError("the producer died"), RuntimeError, "the producer died"),
        (
            asyncio.CancelledError(),
            ConfigurationError,
            "was cancelled, but not by this run",
        ),  # its own await
    ],
)
async def test_input_that_raises(client, journal, end, error, words):
    """It is incomplete until a later one ends by itself; a run without input does not help."""

    async def source():
        for write in creates(client, 20):
            yield write
        raise end

    async with asyncio.timeout(300), Batch.open(journal, client, **SECRETS) as batch:
        with pytest.raises(error, match=words):
            await all_of(batch, source())
        assert (await batch.summary()).open_inputs == 1
    async with Batch.open(journal, client, **SECRETS) as batch:
        await all_of(batch)
        assert (await batch.summary()).open_inputs == 1
        await all_of(batch, creates(client, 30))
        summary = await batch.summary()
    assert (summary.open_inputs, summary.total) == (0, 30)


async def test_input_of_a_run_that_was_left(client, journal):
    """It is incomplete, unless all of it was in the journal by then."""
    async with Batch.open(journal, client, **SECRETS, concurrency=1) as batch:
        async for _ in batch.run(creates(client, 900)):
            break
        assert (await batch.summary()).total < 900
    assert await open_inputs(journal, client) == 1
    await run_all(journal, client, creates(client, 900), **SECRETS)
    assert await open_inputs(journal, client) == 0


async def test_incomplete_input_that_is_closed(client, journal):
    """`close_input` says how many there were, and does so only between runs."""
    async with Batch.open(journal, client, **SECRETS) as batch:
        with pytest.raises(RuntimeError):
            await all_of(batch, failing(client, 20))
        run = batch.run()
        with pytest.raises(Exception, match="under way"):
            await batch.close_input()
        [_ async for _ in run]
        assert await batch.close_input() == 1
        assert await batch.close_input() == 0
        assert (await batch.summary()).open_inputs == 0


async def test_many_incomplete_inputs(client, journal):
    """Of a batch whose process was killed again and again, more than one statement has room for."""
    async with Batch.open(journal, client, **SECRETS) as batch:
        for number in range(300):
            await batch.entries.store.rows(SET_FACT, f"input gone{number}", "1.0")
        assert (await batch.summary()).open_inputs == 300
        assert await batch.close_input() == 300
        assert (await batch.summary()).open_inputs == 0


@pytest.mark.slow
@pytest.mark.one_python
@pytest.mark.silence(1)
async def test_process_that_is_killed_while_it_reads(service, client, journal):
    """Its input is incomplete, until it is run to its end right afterwards."""
    child = await begin(service.base_url, journal, "", key=service.api_key, prints=True)
    keys = await first_lines(child, 20)
    child.kill()
    await read_on(child, keys)
    assert await open_inputs(journal, client) == 1
    async with Batch.open(journal, client, **SECRETS) as batch:
        await all_of(batch, creates(client, 30))
        summary = await batch.summary()
    assert (summary.open_inputs, summary.total) == (0, 30)


async def test_input_of_another_worker(client, shared):
    """A worker that ends completes the input of one that died before it began, not that of a living one."""
    begun, ends = asyncio.Event(), asyncio.Event()

    async def slow():
        for write in creates(client, 3):
            yield write
        begun.set()
        await ends.wait()

    async with (
        Batch.open(shared, client, **SECRETS) as dead,
        Batch.open(shared, client, **SECRETS) as living,
        Batch.open(shared, client, **SECRETS) as other,
    ):
        with pytest.raises(RuntimeError):
            await all_of(dead, failing(client, 5))
        feeding = asyncio.create_task(all_of(living, slow()))
        await begun.wait()
        assert (await other.summary()).open_inputs == 2
        await all_of(other, creates(client, 10))
        assert (await other.summary()).open_inputs == 1
        ends.set()
        await feeding
        assert (await other.summary()).open_inputs == 0
