"""Large stores: what is looked for is found by an index, and what takes long is done in short transactions."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async.batch import Batch
from invsvc_async.batch.entries import BatchEntries
from invsvc_async.batch.reports.not_applied import failed_writes
from invsvc_async.concurrency.clock import SystemClock
from invsvc_async.durable import entries as module
from invsvc_async.durable.entries import reopen_all
from invsvc_async.durable.last_writes import take_claims, take_claims_on
from invsvc_async.durable.leases import Leases
from invsvc_async.durable.results import Consumer
from invsvc_async.durable.store.noted import Chosen
from invsvc_async.durable.store.order import in_flight_of, unknown_of
from invsvc_async.writes.register import WriteRegister
from tests.batch.conftest import client_of
from tests.batch.writing import all_of, creates
from tests.durable.stores import KINDS, numbers, opened, store_of
from tests.durable.test_leases import transaction, until_blocked
from tests.support.database import connected, database
from tests.support.inside import store_beneath
from tests.support.waiting import until

pytestmark = [pytest.mark.one_python, pytest.mark.slow]

ROWS = 6_000
LATER = 2**50
MADE = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {arg 1 bigint})
INSERT INTO {s}entries (place, key, lane, thing, digest, operation, state, verdict, intent, outcome, done_at)
SELECT n, 'row-' || n, 1 + n % 2, '/webhooks/' || n, '', 'webhooks.update', 2, 'applied', '{}', '{}', 1 FROM numbers
"""
STATES = "INSERT INTO {s}states (thing, place, state) SELECT thing, place, '{}' FROM {s}entries"
FULL = "SELECT count(*) FROM {s}entries WHERE outcome IS NOT NULL"


@pytest.fixture(params=KINDS)
async def store(request, tmp_path):
    """Yield a store of ROWS finished entries, each with the state that it left."""
    async with opened(store_of(request.param, tmp_path, request.node.nodeid)) as made:
        await made.rows(MADE, ROWS)
        await made.rows(STATES)
        yield made


@pytest.fixture
def entries(store):
    return BatchEntries(store)


async def plans(store, act):
    """Return the plans of the statements that *act* runs, from a store whose tables were not analysed."""
    asked, rows = [], store.rows

    async def noted(text, *values):
        asked.append((text, values))
        return await rows(text, *values)

    store.rows = noted
    try:
        await act()
    finally:
        del store.rows
    explain = "EXPLAIN" if store.silence < 100 else "EXPLAIN QUERY PLAN"
    found = [
        await rows(f"{explain} {text}", *values)
        for text, values in asked
        if "entries" in text
    ]
    return "\n".join(str(tuple(row)) for plan in found for row in plan)


@pytest.mark.parametrize(
    ("index", "look"),
    [
        (
            "claimed",
            lambda entries: take_claims(
                None, entries.store, ["/webhooks/7", "/webhooks/8"]
            ),
        ),
        (
            "unknown_of_thing",
            lambda entries: unknown_of(entries.store, ["/webhooks/7"]),
        ),
        ("open_of_thing", lambda entries: in_flight_of(entries.store, ["/webhooks/7"])),
        ("not_applied", lambda entries: entries.first(5, Chosen(state="refused"))),
        ("open_in_lane", lambda entries: entries.store.open_in({1: 0}, (), 5)),
    ],
)
async def test_look_by_an_index(store, entries, index, look):
    """It reads no entry in vain, even before the table is analysed."""
    plan = await plans(store, lambda: look(entries))
    assert index in plan
    assert "Seq Scan" not in plan
    assert "SCAN e" not in plan.replace("SCAN entries_", "")


async def test_look_for_claims_by_webhooks(store):
    """It reads the entries that have a claim, and no others; in PostgreSQL, once the table is analysed."""
    register = WriteRegister(is_of_one_mode=True)
    await store.rows("UPDATE {s}entries SET claim = '=wh_' || seq WHERE seq % 1000 = 7")
    if store.is_shared:
        await store.rows("ANALYZE {s}entries")
    plan = await plans(
        store, lambda: take_claims_on(register, store, ["wh_7", "wh_8", "wh_1007"])
    )
    assert "claimed" in plan
    assert "Seq Scan" not in plan
    assert register.claims.keys() == {"wh_7", "wh_1007"}


async def test_failed_writes_to_many_things(store, entries):
    """The last write to each thing of a page is looked for, however many those are."""
    await store.rows("UPDATE {s}entries SET verdict = 'refused'")
    assert len([key async for key, *_ in failed_writes(entries)]) == ROWS


async def test_verdicts_that_are_given_back_together(store, entries):
    """However many they are, all are free again."""
    leases = Leases(store, SystemClock(), gives=True)
    await leases.beat()
    consumer, taker = Consumer(leases), leases.token()
    await store.rows(
        "INSERT INTO {s}unheard (seq, taker) SELECT seq, {arg 1 text} FROM {s}entries",
        taker,
    )
    for entry in await entries.done(None, 0, 1000):
        consumer.give_back(entry, 0.0)
    assert len(await consumer.take(5)) == 5
    free = await numbers(store, "SELECT count(*) FROM {s}unheard WHERE taker IS NULL")
    assert free == [995]


async def test_prune_and_retry_at_the_same_time(store, entries):
    """They take turns, and each entry is counted once."""
    await store.rows("UPDATE {s}entries SET verdict = 'refused', thing = NULL")
    first, second, reopened = await asyncio.gather(
        entries.prune(LATER),
        entries.prune(LATER),
        reopen_all(entries, ["refused"], at_end=False),
    )
    assert first + second + reopened == ROWS
    assert await numbers(store, FULL.replace("outcome", "intent")) == [reopened]


async def test_prune_that_is_stopped(store, entries, monkeypatch):
    """What it did stays so, and the next one does the rest."""
    parts = module.parts_of

    async def first(which, _):
        async for number, part in enumerated(parts(which, 500)):
            if number == 3:
                raise asyncio.CancelledError
            yield part

    monkeypatch.setattr(module, "parts_of", first)
    with pytest.raises(asyncio.CancelledError):
        await entries.prune(LATER)
    monkeypatch.undo()
    assert await numbers(store, FULL) == [ROWS - 1500]
    assert await entries.prune(LATER) == ROWS - 1500
    assert await numbers(
        store, "SELECT count(*) FROM {s}states WHERE state IS NOT NULL"
    ) == [0]


async def enumerated(parts):
    number = 0
    async for part in parts:
        yield number, part
        number += 1


async def test_retry_of_many_keys(store, entries):
    """Keys that there are not, or that come twice, are no harm; the order of the entries stays."""
    await store.rows(
        "UPDATE {s}entries SET verdict = CASE seq % 2 WHEN 0 THEN 'refused' ELSE 'unknown' END"
    )
    keys = [f"row-{n % 700}" for n in range(1500, 0, -1)] + ["none"] * 500
    assert len(await entries.do_again(keys, verdicts=["refused"], at_end=True)) == 349
    found = await numbers(
        store, "SELECT seq FROM {s}entries WHERE state = 0 ORDER BY place"
    )
    assert found == sorted(found)
    assert await numbers(
        store, "SELECT count(*) FROM {s}entries WHERE state = 0 AND place <= $1", ROWS
    ) == [0]


@pytest.mark.parametrize("store", ["PostgreSQL"], indirect=True)
async def test_prune_beside_a_process_that_stores(store, entries):
    """It waits for that, and leaves alone what is another write's by then."""
    async with transaction(store) as storing:
        await storing.execute(
            "UPDATE states SET place = place + 1 WHERE thing = '/webhooks/7'"
        )
        pruning = asyncio.create_task(entries.prune(LATER))
        await until_blocked(store)
    assert await pruning == ROWS
    kept = "SELECT thing FROM {s}states WHERE state IS NOT NULL"
    assert await numbers(store, kept) == ["/webhooks/7"]


async def test_sends_write_no_index(client, request):
    """The note that a write is sent stays on the page of its row, so that no index grows with it."""
    many = 300
    async with Batch.open(
        database().journal("sends"), client, on_secret=lambda *_: None
    ) as batch:
        await all_of(batch, creates(client, many))
        row = await counted_by_server(batch.entries.store.schema, "n_tup_upd", 2 * many)
    assert row["n_tup_upd"] == 2 * many
    # a row that is done may have taken the room on a page
    assert row["n_tup_hot_upd"] > 0.9 * many


async def test_no_write_reads_the_table(service):
    """What a write with a key or without, a replay or a look at a key reads does not grow with the journal."""
    address, hook = database().at(journal="large"), service.seed_webhook()["id"]
    async with client_of(service, journal=address) as client:
        store = store_beneath(client)
        await store.rows(MADE, ROWS)
        await asyncio.gather(*(create(client, n) for n in range(20)))
        for n in range(20):
            await create(client, n % 15)
            await client.webhooks.update(hook, status="inactive").keyed(
                f"update {n % 15}"
            )
            await client.webhooks.update(hook, status="active")
            assert (await client.outcome_of(f"create {n}")).applied
    async with (
        client_of(service, journal=address) as one,
        client_of(service, journal=address) as other,
    ):
        for n in range(10):  # what another process has written is not known here
            for name, client in {"one": one, "other": other}.items():
                await client.webhooks.update(hook, status="inactive").keyed(
                    f"update {n} by {name}"
                )
        assert (await create(one, 1).outcome()).replayed
    row = await counted_by_server(store.schema, "n_tup_ins", ROWS + 50)
    assert row["seq_tup_read"] < ROWS


def create(client, number):
    url = f"https://me.example/{number}"
    return client.webhooks.create(url=url, events=["invoice.created"], tag=True).keyed(
        f"create {number}"
    )


async def counted_by_server(schema, what, least):
    """Return what the server has counted of entries, once it knows of so many changes."""
    text = f"SELECT * FROM pg_stat_user_tables WHERE (relname, schemaname) = ('entries', $1) AND {what} >= $2"
    async with connected() as owner:
        # some time after the commit
        return await until(lambda: owner.fetchrow(text, schema, least))
