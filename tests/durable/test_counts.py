"""The counts of a batch, which are kept as its entries change: they are those of its entries."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack

import pytest

from invsvc_async import Verdict
from invsvc_async.batch.entries import BatchEntries, summary_of
from invsvc_async.client import options_of
from invsvc_async.durable.entries import reopen_all
from invsvc_async.durable.entry import Entry, LostEntryError, State
from invsvc_async.durable.leases import Leases
from invsvc_async.durable.store.lanes import lane_for
from invsvc_async.durable.store.noted import Chosen
from tests.durable.stores import KINDS, SCAN, counts, opened, store_of

pytestmark = pytest.mark.one_python

LATER = 2**50
ENDS = {  # the texts of outcomes, and their flags
    '{"had":"lost"}': 1,
    '{"overtaken":true}': 2,
    '{"had":"lost","overtaken":true}': 3,
    "{}": 0,
}
VERDICTS = ["applied", "refused", "unknown"]


async def process(store, clock, number, chance):
    """Add entries, send and end them, let some be to do again, and take lanes from others, or lose them."""
    entries, leases = BatchEntries(store), Leases(store, clock)
    await leases.beat()
    for turn in range(6):
        keys = [f"{number}-{turn}-{i}" for i in range(chance.randint(1, 9))]
        new = [
            Entry(
                key=key, digest="", state=State.TO_DO, operation="x", intent="{}",
                lane=lane_for(key, None, entries.lanes),
            )
            for key in keys
        ]  # fmt: skip
        await entries.input_notes.add(new, leases.name, None)
        await leases.take(store.how.lanes)
        found = (
            await store.open_in(dict.fromkeys(leases.lanes, 0), (), 5)
            if leases.lanes
            else []
        )
        for state in (State.SENDING, State.DONE):
            stored = [
                put(leases, entry, state, chance)
                for entry in found
                if chance.random() < 0.8
            ]
            for error in await asyncio.gather(*stored, return_exceptions=True):
                assert error is None or isinstance(error, LostEntryError)
        match chance.randrange(4):
            case 0:
                await reopen_all(
                    entries,
                    [chance.choice(["refused", "unknown"])],
                    at_end=chance.random() < 0.5,
                )
            case 1:
                await entries.do_again([entry.key for entry in found])
            case 2:
                await entries.drop(keys[0])
            case 3:  # another process may take its lanes, even while it stores
                await store.rows(
                    "UPDATE {s}members SET seen = seen - 3600 WHERE name = $1",
                    leases.name,
                )
        if not (await entries.count(1, Chosen(state="open")))[0]:
            await entries.prune(LATER)
        await leases.beat()


async def put(leases, entry, state, chance):
    entry.state = state
    if state is State.DONE:
        entry.verdict = chance.choice(VERDICTS)
        entry.outcome = chance.choice([*ENDS])
        entry.flags = ENDS[entry.outcome]
        entry.done_at = 1
    lane = leases.lanes.get(entry.lane)
    if lane is not None:
        await lane.put(entry)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 5, 6])
async def test_counts_of_processes_at_once(
    seed, client, tmp_path, request, monkeypatch
):
    """Whatever they do, also to each other's entries, no entry is counted twice or not at all."""
    # some share theirs
    monkeypatch.setattr("invsvc_async.durable.store.schemas._PARTS", 2)
    chance = random.Random(seed)
    async with AsyncExitStack() as stack:
        processes = []
        for number in range(6):
            store = store_of("PostgreSQL", tmp_path, request.node.nodeid, lanes=4)
            await stack.enter_async_context(opened(store))
            processes.append(
                process(store, options_of(client).core.clock, number, chance)
            )
        await asyncio.gather(*processes)
        assert await counts(store) == await counts(store, SCAN)
        assert sum((await counts(store)).values()) > 50


@pytest.mark.parametrize("kind", KINDS)
async def test_counts_look_at_no_entry(kind, client, tmp_path, request):
    """However many entries there are, a few rows are added up."""
    async with opened(store_of(kind, tmp_path, request.node.nodeid)) as store:
        text = "INSERT INTO {s}counts (part, state, verdict, flags, many) SELECT * FROM {rows 1 a:smallint b:smallint c:text d:smallint e:bigint}"
        await store.rows(
            text,
            [
                (part, 2, "applied", flags, 100)
                for part in range(64)
                for flags in range(4)
            ],
        )
        await store.rows("ALTER TABLE {s}entries RENAME TO hidden")
        summary = await summary_of(BatchEntries(store))
        await store.rows("ALTER TABLE {s}hidden RENAME TO entries")
    assert summary.verdicts == {Verdict.APPLIED: 25600}
    assert (summary.secrets_lost, summary.overtaken) == (12800, 12800)
