"""Which run of a shared batch gives a result, when a run was silent for a while and goes on."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async.batch import Batch
from invsvc_async.batch.journals.postgres import PostgresBatch
from invsvc_async.durable.entry import Entry, State
from tests.batch.conftest import client_of
from tests.batch.writing import all_of, creates
from tests.support.database import database


@pytest.fixture
def address(request):
    return database().journal(f"r{abs(hash(request.node.name))}", silence=1)


@pytest.fixture
async def journals(address):
    """Return three open journals of one batch, each of a run that has begun."""
    opened = [PostgresBatch(address) for _ in range(3)]
    for each in opened:
        await each.open()
        await each.begin_run()
    yield opened
    for each in opened:
        await each.aclose()


async def finished(journal, key):
    """Finish a write; return its position."""
    await journal.hand_out([(Entry(key=key, state=State.TO_DO, operation="x"), None)])
    [row] = await journal.fetch("SELECT chunk FROM entries WHERE key = $1", key)
    await journal.take(row["chunk"], f"token-{key}")
    done = Entry(key=key, state=State.DONE, operation="x", verdict="applied", done_at=1)
    await journal.put(done, row["chunk"], f"token-{key}")
    return done.position


async def falls_silent(journal):
    """Set the latest sign of life of the journal's run to an hour ago."""
    text = "UPDATE runs SET seen = seen - interval '1 hour' WHERE run = ANY ($1)"
    await journal.fetch(text, journal.runs)


async def given_by(journal):
    """Return the keys that *journal* gives of other runs."""
    keys = []
    for deliveries, run in await journal.adopt():
        for entry in await journal.untaken_of(run, deliveries.last, 100):
            deliveries.add(entry.position)
            keys.append(entry.key)
    return keys


async def test_run_whose_results_were_adopted(journals):
    """It gives only what it finishes from then on; each result is given by one run."""
    silent, other, _ = journals
    first = await finished(silent, "a")
    await falls_silent(silent)
    assert await given_by(other) == ["a"]
    await silent.keep_giving()
    second = await finished(silent, "b")

    assert silent.deliveries_of(first).is_lost
    assert not silent.deliveries_of(second).is_lost
    assert await given_by(other) == []


async def test_run_that_was_silent_and_lost_nothing(journals):
    """It gives what it has, under its number."""
    silent, *_ = journals
    position = await finished(silent, "a")
    await falls_silent(silent)
    await silent.keep_giving()
    assert not silent.deliveries_of(position).is_lost
    assert len(silent.runs) == 1
    assert await given_by(journals[1]) == []


async def test_result_that_is_stored_after_the_adoption(journals):
    """It is for the run that has adopted the others, because its run cannot know which those were."""
    silent, other, _ = journals
    await finished(silent, "a")
    await falls_silent(silent)
    assert await given_by(other) == ["a"]
    position = await finished(silent, "b")  # it has not noticed yet
    await silent.keep_giving()

    assert silent.deliveries_of(position).is_lost
    assert await given_by(other) == ["b"]


async def test_result_that_is_being_stored_while_its_run_notices(journals):
    """It belongs to the number under which it is stored."""
    silent, other, _ = journals
    await finished(silent, "a")
    await falls_silent(silent)
    assert await given_by(other) == ["a"]
    position, _ = await asyncio.gather(finished(silent, "b"), silent.keep_giving())

    lost = silent.deliveries_of(position).is_lost
    assert await given_by(other) == (["b"] if lost else [])


async def test_adopted_results_that_are_adopted_again(journals):
    """The run that had them gives no more of them, and what is its own."""
    gone, silent, other = journals
    await finished(gone, "a")
    await gone.end_run()
    [(deliveries, _)] = await silent.adopt()
    own = await finished(silent, "b")
    await silent.save_taken()
    silent.deliveries.take(own)
    await silent.save_taken()
    await falls_silent(silent)
    assert await given_by(other) == ["a"]
    await silent.keep_giving()
    assert deliveries.is_lost
    assert not silent.deliveries.is_lost

    await other.end_run()
    [(deliveries, _)] = await silent.adopt()  # it gets them back
    assert not deliveries.is_lost


async def test_adopted_results_of_a_run_that_takes_another_number(journals):
    """They stay its own, if nobody adopted them."""
    gone, silent, other = journals
    await gone.end_run()
    await finished(silent, "b")
    await falls_silent(silent)
    assert await given_by(other) == ["b"]
    await finished(gone, "a")
    [(deliveries, _)] = await silent.adopt()
    await silent.keep_giving()
    assert len(silent.runs) == 2
    assert not deliveries.is_lost
    await silent.keep_giving()
    assert not deliveries.is_lost


async def test_runs_that_have_ended_and_wait_for_others(journals):
    """Only one of them gives what a run leaves that is gone later."""
    gone, one, two = journals
    await finished(gone, "a")
    await one.end_run()
    await two.end_run()
    await falls_silent(gone)
    assert [*await given_by(one), *await given_by(two)] == ["a"]


async def test_results_of_a_run_that_was_stopped_and_is_still_read(service, client, address):
    """They are not given by another worker, which ends soon after the last of them was taken."""
    async with client_of(service) as other, Batch.open(address, client, on_secret=lambda *_: None) as one:
        running, taken = one.run(creates(client, 30)), []
        async for result in running:
            taken.append(result.key)
            if len(taken) == 5:
                break
        while (await one.summary()).done < 30:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
        await one.stop(0.0)
        async with Batch.open(address, other, on_secret=lambda *_: None) as two:
            rest, again = await asyncio.gather(drained(running), all_of(two))
    assert again == []
    assert len({*taken, *rest}) == len(taken) + len(rest) == 30


async def test_input_that_goes_on_after_another_run_closed_it(journals):
    """It counts as open again, so that the batch is known to be incomplete if its run is killed now."""
    silent, other, _ = journals
    await silent.begin_input()
    await finished(silent, "a")
    await falls_silent(silent)
    assert await other.close_inputs() == 1
    assert await other.open_inputs() == 0

    await finished(silent, "b")
    assert await other.open_inputs() == 1
    await silent.end_input(None)
    await finished(silent, "c")
    assert await other.open_inputs() == 0


async def drained(running):
    """Take what is left of a run, slowly."""
    keys = []
    async for result in running:
        keys.append(result.key)
        await asyncio.sleep(0.02)
    return keys
