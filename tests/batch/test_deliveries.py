"""Results are given at least once: the next run first gives those that were finished and not taken."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from unittest.mock import AsyncMock

import pytest

from invsvc_async import Verdict
from invsvc_async.batch import Batch, run as run_module
from tests.batch.child import begin
from tests.batch.writing import SECRETS, all_end, all_of, creates, line_of, run_all
from tests.support.children import first_lines, read_on
from tests.support.waiting import cancel, forever, until

KEYS = {f"row-{i}" for i in range(60)}


async def taken_of(batch, writes, count):
    """Read *count* results of a run, then leave it as a ``break`` does, once all is finished."""
    writes = list(writes)
    taken = []
    async for result in batch.run(writes):
        taken.append(result)
        if len(taken) == count:
            break
    await all_end(batch, len(writes))
    return taken


async def test_results_after_a_break(service, client, journal):
    """
    The next run gives what was not taken, the last one before the break included, and then what is new.

    Also if writes do not end in the order of the input, which a busy machine may cause at any time.
    """
    service.script("webhooks.create", *["pass"] * 9, "slow 1", "slow 1")
    async with Batch.open(journal, client, **SECRETS) as batch:
        first = await taken_of(batch, creates(client, 60), 20)
    async with Batch.open(journal, client, **SECRETS) as batch:
        results = await all_of(batch, creates(client, 70))
        done, skipped = batch.progress.done, batch.progress.skipped
        again = await all_of(batch, creates(client, 70))

    rest, new = results[:41], results[41:]
    assert len({result.key for result in rest}) == 41
    assert first[-1].key in {result.key for result in rest}
    assert {result.key for result in [*first, *rest]} == KEYS
    assert {(result.verdict, result.outcome) for result in rest} == {
        (Verdict.APPLIED, None)
    }
    assert {result.key for result in new} == {f"row-{i}" for i in range(60, 70)}
    assert (len(new), done, skipped, again) == (10, 10, 60, [])
    assert service.arrivals("webhooks.create") == 70


async def test_run_after_a_stop_in_the_same_batch(client, journal):
    """A second run of one batch gives what the first one did not get rid of."""
    async with Batch.open(journal, client, **SECRETS) as batch:
        first = await taken_of(batch, creates(client, 60), 20)
        await batch.stop(0.0)
        rest = await all_of(batch)
    assert len(rest) == 41
    assert {result.key for result in [*first, *rest]} == KEYS


async def test_run_that_is_left_while_it_gives_old_results(client, journal):
    """What was taken of the old results is not given again, and all others are."""
    seen = []
    async with Batch.open(journal, client, **SECRETS) as batch:
        await taken_of(batch, creates(client, 60), 1)
    for count in (20, 20, 22):
        async with Batch.open(journal, client, **SECRETS) as batch:
            async for result in batch.run():
                seen.append(result.key)
                if len(seen) % 20 == 0 and count == 20:
                    break
    assert {*seen} == KEYS
    assert len(seen) == 62  # each that was the last before a break, twice


async def test_result_whose_reading_is_cancelled(client, journal, monkeypatch):
    """A result that was not returned is given by the next run."""
    async with Batch.open(journal, client, **SECRETS) as batch:
        await taken_of(batch, creates(client, 3), 1)
    async with Batch.open(journal, client, **SECRETS) as batch:
        run = batch.run()
        reading = AsyncMock(side_effect=forever)
        with monkeypatch.context() as patch:
            # reaches: the store may answer slowly here
            patch.setattr(run_module, "told_again", reading)
            asking = asyncio.ensure_future(anext(run))
            await until(lambda: reading.called)
            await cancel(asking)
        with suppress(StopAsyncIteration):
            await anext(run)
    async with Batch.open(journal, client, **SECRETS) as batch:
        rest = await all_of(batch)

    assert {result.key for result in rest} == {"row-0", "row-1", "row-2"}


@pytest.mark.parametrize("left", [0, 20])
async def test_several_tasks_that_take_results(service, client, journal, left):
    """The run begins once, each of the equal writes is made, and each result is given to one of the tasks."""

    def equal():
        for _ in range(300):
            yield client.webhooks.create(
                url="https://me.example/in", events=["invoice.created"]
            )

    async def take(run):
        return [result.key async for result in run]

    async with Batch.open(journal, client, **SECRETS) as batch:
        if left:
            await taken_of(batch, equal(), 300 - left)
            await batch.stop(0.0)
        run = batch.run(equal())
        taken = [
            key
            for keys in await asyncio.gather(take(run), take(run), take(run))
            for key in keys
        ]
        summary, again = await batch.summary(), await all_of(batch)
    assert len(taken) == len({*taken}) == (left + 1 if left else 300)
    assert summary.verdicts == {Verdict.APPLIED: 300}
    assert len(service.ledger.effects("webhooks.create")) == 300
    assert again == []


async def test_write_that_is_retried_before_its_result_is_taken(
    service, client, journal
):
    """Only the result of the retry is given."""
    service.script("webhooks.create", "403")
    async with Batch.open(journal, client, **SECRETS) as batch:
        await taken_of(batch, creates(client, 1), 1)
        await batch.stop(0.0)
        await batch.retry(failed=True)
        rest = await all_of(batch)
        assert await all_of(batch) == []
    assert [result.verdict for result in rest] == [Verdict.APPLIED]


async def test_retry_while_results_wait_to_be_taken(client, journal):
    """Writes made to do again while their first results are not taken are done again, and both results come."""
    verdicts, more = [], asyncio.Event()

    async def source():
        for number in range(30):
            yield client.webhooks.update(f"wh_none{number}", description="x")
        await more.wait()

    async with Batch.open(journal, client) as batch:
        async for result in batch.run(source()):
            verdicts.append(result.verdict)
            if len(verdicts) == 1:
                await all_end(batch, 30)
                assert await batch.retry(verdict=Verdict.REFUSED) == 30
                await all_end(batch, 30)
                more.set()
    assert verdicts == [Verdict.REFUSED] * 60


async def begun(service, journal, tmp_path):
    """Run updates of 300 webhooks, whose keys are their ids, in a process; return it, their file, and 130 results."""
    file, hooks = (
        tmp_path / "writes.jsonl",
        [service.seed_webhook().id for _ in range(300)],
    )
    lines = [
        line_of("webhooks.update", hook, webhook=hook, description="new")
        for hook in hooks
    ]
    file.write_text("".join(lines))
    child = await begin(
        service.base_url, journal, file, key=service.api_key, prints=True
    )
    return child, file, await first_lines(child, 130)


@pytest.mark.untraced
@pytest.mark.one_python
@pytest.mark.silence(1)
async def test_results_after_a_kill(service, client, journal, tmp_path):
    """What a killed process did not take is given by the next one: no key is missing."""
    child, file, seen = await begun(service, journal, tmp_path)
    child.kill()
    await read_on(child, seen)
    rest = await run_all(journal, client, file, **SECRETS)

    hooks = service.book().webhooks.items
    assert {*seen, *(result.key for result in rest)} == {*hooks}
    assert len(rest) < 250
    assert all(
        hooks[result.key].get("description") == "new"
        for result in rest
        if result.applied
    )


@pytest.mark.untraced
@pytest.mark.one_python
@pytest.mark.silence(1)
async def test_results_of_a_process_that_was_stopped_for_a_while(
    service, client, shared, tmp_path
):
    """What others gave meanwhile is not given again by it, and what it finishes from then on is."""
    child, file, seen = await begun(service, shared, tmp_path)
    child.send_signal(signal.SIGSTOP)
    reading = asyncio.create_task(read_on(child, seen))
    mine = {result.key for result in await run_all(shared, client, file, **SECRETS)}
    before = len(seen)
    child.send_signal(signal.SIGCONT)
    await reading

    assert {*seen, *mine} == {*service.book().webhooks.items}
    assert len(mine) > 100
    # which it was given before it was stopped
    assert len(mine.intersection(seen[before:])) <= 1
