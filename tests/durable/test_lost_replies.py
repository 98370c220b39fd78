"""Statements of a store that are done, but whose reply is lost, so that they are run again."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial

import pytest
from msgspec.structs import replace

from invsvc_async import Verdict
from invsvc_async.batch import Batch
from invsvc_async.batch.entries import BatchEntries
from invsvc_async.client import options_of
from invsvc_async.durable.entries import NOT_APPLIED, Entries
from invsvc_async.durable.entry import Entry, LostEntryError, State, VerdictAt
from invsvc_async.durable.leases import Leases
from invsvc_async.durable.store.adding import add
from invsvc_async.durable.store.conditions import WaitsFor
from invsvc_async.durable.store.deleting import drop, prune
from invsvc_async.durable.store.findings import store_finding
from invsvc_async.durable.store.lanes import end_lane, new_lane
from invsvc_async.durable.store.order import Turn, WritesBeside, begin
from invsvc_async.durable.store.postgres import PostgresStore
from invsvc_async.durable.store.reopening import reopen
from invsvc_async.durable.store.statements import entry_sql
from invsvc_async.durable.store.tables import Opening
from invsvc_async.durable.store.unheard import acknowledge, take, take_verdicts
from invsvc_async.errors import JournalError
from invsvc_async.storage import postgres_pool
from tests.batch.conftest import client_of
from tests.batch.writing import all_of, creates, opened as opened_entries
from tests.durable.stores import (
    KINDS,
    SENT,
    counts,
    end,
    fill,
    lanes_of,
    numbers,
    opened,
    store_of,
    unheard,
)
from tests.support.database import database
from tests.support.database_proxy import database_proxy
from tests.support.inside import store_beneath
from tests.support.waiting import cancel, until

SCAN = "SELECT state, coalesce(verdict, ''), 0, count(*) FROM {s}entries GROUP BY state, verdict"


@pytest.fixture(params=KINDS)
async def store(request, tmp_path):
    """Yield a store of each kind, which loses the first reply about a script."""
    async with opened(store_of(request.param, tmp_path, request.node.nodeid)) as made:
        yield made


async def twice(store, script):
    """Run *script* as if the reply about its commit were lost; return what it returns then."""
    run = type(store).run
    await run(store, script)
    return await run(store, script)


def entry_to_add(key):
    return Entry(
        key=key, state=State.TO_DO, operation="x", digest=key, lane=1, intent="{}"
    )


async def test_adding(store, client):
    """It knows its own entries from those that were there."""
    entries = BatchEntries(store)
    there, new = map(entry_to_add, "ab")
    await entries.input_notes.add([there], "me", None)
    store.run = partial(twice, store)
    added = await entries.input_notes.add([there, new], "me", None)
    del store.run
    assert ([*added.new], [*added.others]) == (["b"], ["a"])
    assert await counts(store) == await counts(store, SCAN) == {(0, "", 0): 2}


async def test_adding_beside_a_deletion(store, client):
    """An entry whose key was known, and which is deleted before it is looked at, is added."""
    entries = BatchEntries(store)
    there, new = map(entry_to_add, "ab")
    await entries.input_notes.add([there], "me", None)

    def deleting() -> object:
        adding = add([there, new], store.commons.texts, ours=set())
        rows = None
        while True:
            try:
                text, values = adding.send(rows)
            except StopIteration as end:
                return [*end.value]
            if text == entry_sql.SELECT_KNOWN:
                yield "DELETE FROM {s}entries WHERE key = 'a'", ()
            rows = yield text, values

    assert sorted(await store.run(deleting)) == ["a", "b"]
    assert await numbers(store, "SELECT key FROM {s}entries ORDER BY seq") == ["b", "a"]


async def test_taking_lanes(store, client):
    """A process learns of the previous owners of its lanes, not of itself."""
    leases = Leases(store, options_of(client).core.clock)
    await store.rows("UPDATE {s}lanes SET owner = 'gone.1' WHERE id = 1")
    await leases.beat()
    store.run = partial(twice, store)
    taken = await leases.take(2)
    del store.run
    assert [lane.token for lane in taken] == await numbers(
        store, "SELECT owner FROM {s}lanes ORDER BY id"
    )
    # nothing says that the second one was free
    assert [lane.has_ended for lane in taken] == [False, False]


async def test_making_and_ending_a_lane(store, client):
    """There is one, and then none."""
    leases = Leases(store, options_of(client).core.clock)
    number = await twice(store, lambda: new_lane("a.1", ""))
    assert await numbers(store, "SELECT id FROM {s}lanes WHERE owner = 'a.1'") == [
        number
    ]
    lane = leases.hold(number, "a.1")
    await twice(store, lambda: end_lane(lane.number, lane.token))
    assert await numbers(store, "SELECT id FROM {s}lanes ORDER BY id") == [1, 2]


async def test_beginning_beside_a_take_over(store, client):
    """A write that is stored as being sent has begun, also if a living process has got an earlier one since."""
    _, own = await fill(store, "earlier", "own")
    leases = Leases(store, options_of(client).core.clock)
    await leases.beat()
    await store.rows("UPDATE {s}entries SET lane = 2 WHERE key = 'own'")
    lane = leases.hold(2, leases.token())
    await store.rows("UPDATE {s}lanes SET owner = $1 WHERE id = 2", lane.token)
    own.state, own.intent = State.SENDING, SENT
    beside = WritesBeside()
    beginning = partial(begin, store, own, lane, beside, WaitsFor.EARLIER)
    assert await beginning() is Turn.BEGUN
    other = Leases(store, options_of(client).core.clock)
    await other.beat()
    assert [each.number for each in await other.take(2)] == [1]
    assert await beginning() is Turn.BEGUN
    own.intent = SENT.replace("30", "31")  # another attempt, which has to wait
    assert await beginning() is Turn.WAITS


async def test_changes_of_entries(store, client):
    """Who reopens, drops or prunes learns what was changed, and each change is counted once."""
    (lane,) = await lanes_of(store, options_of(client).core.clock)
    refused, other, _, done = await fill(store, "refused", "other", "fresh", "done")
    await store.rows("DELETE FROM {s}counts")
    await store.rows(
        "INSERT INTO {s}counts (part, state, verdict, flags, many) VALUES (0, 0, '', 0, 4)"
    )
    for entry in (refused, other, done):
        await end(lane, entry, "applied" if entry is done else "refused", 1000)
    again = {"refused": {}, "other": {}}
    for key, at_end in (("refused", False), ("other", True)):
        script = partial(reopen, [key], NOT_APPLIED, again[key], at_end=at_end)
        assert [each.key for each in await twice(store, script)] == [key]
    assert await twice(store, partial(drop, "fresh", [], done=False))
    assert await counts(store) == await counts(store, SCAN)
    assert await twice(store, lambda: take_verdicts("me.1", 60.0, 9)) == [done.seq]
    script = partial(prune, 5000, [done.seq], unacknowledged=True, tried=set())
    assert await twice(store, script) == {done.seq}
    assert await unheard(store) == []


# --- rolled back


async def undone(store, meanwhile, script):
    """Run *script* as if its transaction were rolled back at its end, and again after *meanwhile*."""
    run = type(store).run

    def ends() -> object:
        yield from script()
        raise JournalError("rolled back")

    with pytest.raises(JournalError, match="rolled back"):
        await run(store, ends)
    await meanwhile()
    return await run(store, script)


async def test_drop_that_was_rolled_back(store, client):
    """The write is sent before the second run: then it was not dropped."""
    entries = Entries(store)
    (lane,) = await lanes_of(store, options_of(client).core.clock)
    [entry] = await fill(store, "sent")

    async def send():
        entry.state, entry.intent = State.SENDING, SENT
        await lane.put(entry)

    store.run = partial(undone, store, send)
    was_dropped = await entries.drop("sent")
    del store.run
    assert (was_dropped, len(await store.entries("true"))) == (False, 1)


async def test_drop_whose_reply_was_lost(store):
    """It was done, though the key is that of another write before the second run: that one stays."""
    entries = Entries(store)
    await fill(store, "again")

    async def enqueue():
        await store.rows("DELETE FROM {s}entries")
        await fill(store, "again")

    store.run = partial(undone, store, enqueue)
    was_dropped = await entries.drop("again")
    del store.run
    assert (was_dropped, len(await store.entries("true"))) == (True, 1)


async def test_retry_that_was_rolled_back(store, client):
    """Others are pruned or dropped before the second run: then they were not reopened."""
    entries = Entries(store)
    (lane,) = await lanes_of(store, options_of(client).core.clock)
    for entry in await fill(store, "emptied", "dropped", "refused"):
        await end(lane, entry, "refused", 1000)

    async def remove():
        await store.rows("UPDATE {s}entries SET intent = NULL WHERE key = 'emptied'")
        await store.rows("DELETE FROM {s}entries WHERE key = 'dropped'")

    store.run = partial(undone, store, remove)
    again = await entries.do_again(["emptied", "dropped", "refused"])
    del store.run
    assert again == ["refused"]


@pytest.mark.parametrize("verdict", ["applied", "refused"])
async def test_retry_whose_reply_was_lost(store, client, verdict):
    """It was done, though the write is done again before the second run: that verdict stays."""
    (lane,) = await lanes_of(store, options_of(client).core.clock)
    entry, _ = await fill(store, "a", "b")
    await end(lane, entry, "refused", 1000)
    script = partial(reopen, ["a"], NOT_APPLIED, {})
    await store.run(script)
    await end(lane, entry, verdict, 2000)
    assert [each.key for each in await store.run(script)] == ["a"]
    assert await numbers(store, "SELECT verdict FROM {s}entries ORDER BY seq") == [
        verdict,
        None,
    ]


async def test_prune_that_was_rolled_back(store, client):
    """A write is reopened before the second run: then it was not pruned."""
    entries = Entries(store)
    (lane,) = await lanes_of(store, options_of(client).core.clock)
    reopened, old = await fill(store, "reopened", "old")
    for entry in (reopened, old):
        await end(lane, entry, "refused", 1000)

    async def reopen_one():
        await store.rows(
            "UPDATE {s}entries SET state = 0, verdict = NULL, outcome = NULL, done_at = NULL"
            " WHERE key = 'reopened'"
        )

    store.run = partial(undone, store, reopen_one)
    pruned = await entries.prune(5000, unacknowledged=True)
    del store.run
    assert pruned == 1


async def test_closing_of_inputs_that_was_rolled_back(store):
    """The process begins another one before the second run: that one stays, and is not counted."""
    await store.rows("INSERT INTO {s}facts (name, value) VALUES ('input gone', '1')")

    async def begin():
        await store.rows("UPDATE {s}facts SET value = '100' WHERE name = 'input gone'")

    store.run = partial(undone, store, begin)
    closed = await BatchEntries(store).input_notes.close_of_dead(before=5.0)
    del store.run
    assert closed == 0


# --- on the wire


@pytest.fixture
async def proxy():
    """Yield a proxy of the database that can lose replies."""
    async with database_proxy() as made:
        yield made


def keyless(client, n):
    return [
        client.webhooks.create(
            url=f"https://me.example/{i}", events=["invoice.created"]
        )
        for i in range(n)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "lost", ["the digests", "INSERT INTO {s}entries", "UPDATE {s}entries"]
)
@pytest.mark.parametrize("make", [keyless, creates])
async def test_batch_that_is_run_again(service, client, proxy, make, lost, request):
    """Whatever reply is lost, nothing is sent twice, also when the same input is run again."""
    name = f"l{abs(hash(request.node.name))}"
    lost = lost.replace("{s}", f"invoicing_batch_{name}.")
    address = proxy.journal(name).replace("silence=1", "silence=60")
    async with Batch.open(address, client, on_secret=lambda *_: None) as batch:
        proxy.lose(lost, "COMMIT" if lost.startswith("INSERT") else "me.example/1")
        first = await all_of(batch, make(client, 3))
    assert proxy.lost == (lost != "the digests")
    async with Batch.open(address, client, on_secret=lambda *_: None) as batch:
        if lost == "the digests":
            proxy.lose(first[1].key)
        assert await all_of(batch, make(client, 3)) == []
    assert (proxy.lost, service.arrivals("webhooks.create")) == (1, 3)


async def test_take_over_that_is_cancelled(proxy, client, monkeypatch):
    """The next try takes the same lanes too, and not as free ones: their entries would else stay unsent."""
    address = proxy.journal("answer").replace("silence=1", "silence=60")
    async with opened(PostgresStore(address, Opening("batch", lanes=8))) as store:
        first, second = (Leases(store, options_of(client).core.clock) for _ in range(2))
        for leases in (first, second):
            await leases.beat()
        proxy.lose(".lanes AS l SET owner", "COMMIT")
        with monkeypatch.context() as patched:
            patched.setattr(postgres_pool, "_PAUSE", 600.0)
            taking = asyncio.create_task(first.take(5))
            await until(lambda: proxy.lost)
            await cancel(taking)
        assert len(await second.take(8)) == 3
        lanes = await first.take(8)
        assert [lane.has_ended for lane in lanes] == [False] * 5
        assert first.lanes == {lane.number: lane for lane in lanes}
        await first.beat()
        assert [lane.lost for lane in lanes] == [False] * 5


@asynccontextmanager
async def two_stores(proxy, name):
    """Yield two stores in the same tables; the first one is behind *proxy*."""
    called = f"p{abs(hash(name))}"
    how = Opening("batch", lanes=2, counted=True, run_by="the batch")
    address = proxy.journal(called).replace("silence=1", "silence=60")
    async with (
        opened(PostgresStore(address, how)) as store,
        opened(PostgresStore(database().journal(called, silence=60), how)) as other,
    ):
        yield store, other


async def test_put_that_is_run_again_after_a_retry(proxy, client, request):
    """The end was stored, and somebody has reopened the write since: that stays."""
    async with two_stores(proxy, request.node.name) as (store, other):
        (lane,) = await lanes_of(store, options_of(client).core.clock)
        [entry] = await fill(store, "a")
        entry.state, entry.intent = State.SENDING, SENT
        await lane.put(entry)
        proxy.lose("refused")
        storing = asyncio.ensure_future(end(lane, entry))
        await until(lambda: proxy.lost)
        proxy.cut()
        assert await Entries(other).do_again(["a"]) == ["a"]
        await proxy.open()
        with pytest.raises(LostEntryError):
            await storing
        [again] = await store.entries("true")
        assert (again.state, again.verdict, await unheard(store)) == (
            State.TO_DO,
            None,
            [],
        )


async def test_put_that_is_run_again_after_an_acknowledgement(proxy, client, request):
    """The end was stored, and the application has acknowledged it since: it is not given again."""
    async with two_stores(proxy, request.node.name) as (store, other):
        (lane,) = await lanes_of(store, options_of(client).core.clock)
        [entry] = await fill(store, "a")
        proxy.lose("refused")
        storing = asyncio.ensure_future(end(lane, entry))
        await until(lambda: proxy.lost)
        proxy.cut()
        given = await take(other, "other.1", 10)
        heard = [VerdictAt(each.seq, each.done_at) for each in given]
        await acknowledge(other, heard, "other.1")
        await proxy.open()
        await storing
        assert [each.seq for each in heard] == [entry.seq]
        assert await unheard(store) == []


async def test_finding_whose_reply_was_lost(store, client):
    """What has happened since the finding was stored stays: its acknowledgement, and what a later write has left."""
    [entry] = await fill(store, "a")
    (lane,) = await lanes_of(store, options_of(client).core.clock)
    await end(lane, entry, verdict="unknown")
    [seen] = await store.entries("true")
    tries = []

    def make(now):
        tries.append(f'{{"basis":"person","at":{now}}}')
        return replace(seen, verdict="applied", outcome=tries[-1], done_at=now)

    async def once_more(store, script):
        await type(store).run(store, script)
        await store.rows("DELETE FROM {s}unheard")
        return await type(store).run(store, script)

    store.run = partial(once_more, store)
    text = await store_finding(store, seen, make, tries, mine=None, called="a")
    del store.run
    assert [text] == tries[:1]
    assert await unheard(store) == []


async def test_retry_while_an_end_is_stored(service, client, proxy, request):
    """The process that stores the end, whose reply was lost, does the write anew."""
    name = f"w{abs(hash(request.node.name))}"
    service.script("webhooks.create", "400")
    async with Batch.open(
        proxy.journal(name), client, on_secret=lambda *_: None
    ) as batch:
        proxy.lose("refused")
        running = asyncio.create_task(all_of(batch, creates(client, 1)))
        await until(lambda: proxy.lost)
        proxy.cut()
        async with opened_entries(database().journal(name, silence=60)) as entries:
            assert await entries.do_again(["row-0"]) == ["row-0"]
        await proxy.open()
        [result] = await running
    assert result.outcome.verdict is Verdict.APPLIED
    assert service.arrivals("webhooks.create") == 2


def described(client, hook, text):
    return client.webhooks.update(hook.id, description=text).keyed(text)


@pytest.mark.parametrize("is_lost", [False, True])
async def test_end_stored_again_after_a_later_write(service, is_lost):
    """Its process hears of the end late; the next write there is compared with what the later write left."""
    hook = service.seed_webhook()
    name = f"journal=later_{is_lost}&silence=60".lower()
    async with (
        database_proxy() as proxy,
        client_of(service, journal=f"{proxy.address}&{name}") as one,
        client_of(service, journal=f"{database().address}&{name}") as other,
    ):
        if is_lost:
            proxy.lose('"basis":"answered"')
        first = asyncio.create_task(described(one, hook, "a").outcome())
        if is_lost:
            await until(lambda: proxy.lost)
            proxy.cut()
        else:
            await first
        assert (await described(other, hook, "b").outcome()).applied
        left = "SELECT place, state FROM {s}states"
        before = await store_beneath(other).rows(left)
        if is_lost:
            await proxy.open()
        assert (await first).applied
        assert await store_beneath(other).rows(left) == before
        service.script("webhooks.update", "reset")
        third = await described(one, hook, "c").outcome()
        assert third.applied, third.explain()
    effects = service.ledger.effects("webhooks.update")
    assert [entry.body["description"] for entry in effects] == ["a", "b", "c"]
