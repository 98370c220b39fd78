"""The guards of a store's statements, the same in SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest
from msgspec.structs import replace

from invsvc_async.client import options_of
from invsvc_async.durable.entries import NOT_APPLIED, Entries
from invsvc_async.durable.entry import Entry, LostEntryError, State
from invsvc_async.durable.leases import Leases
from invsvc_async.durable.store import lists
from invsvc_async.durable.store.deleting import drop, old_entries, prune
from invsvc_async.durable.store.facts import Facts
from invsvc_async.durable.store.lanes import take_lanes
from invsvc_async.durable.store.noted import Chosen
from invsvc_async.durable.store.reopening import reopen
from invsvc_async.durable.store.restored import place_of
from invsvc_async.durable.store.sqlite import SqliteStore
from invsvc_async.durable.store.statements.store_sql import SIGN_OF_LIFE
from invsvc_async.durable.store.states import Left
from invsvc_async.durable.store.tables import Opening
from invsvc_async.durable.store.unheard import (
    count_untold,
    keep_verdicts,
    take_verdicts,
)
from invsvc_async.errors import JournalError
from tests.batch.conftest import client_of
from tests.durable.stores import (
    KINDS,
    SENT,
    end,
    fill,
    lanes_of,
    numbers,
    opened,
    store_of,
    unheard,
)
from tests.support.database import database
from tests.support.inside import store_beneath


@pytest.fixture(params=["PostgreSQL", "PostgreSQL that counts", "SQLite"])
async def store(request, tmp_path):
    """Yield a store with two lanes."""
    kind, _, counts = request.param.partition(" that ")
    is_counted = bool(counts) or kind == "SQLite"
    async with opened(
        store_of(kind, tmp_path, request.node.nodeid, counted=is_counted)
    ) as made:
        yield made


@pytest.fixture
async def lane(store, client):
    """Return the first lane, which this process has."""
    return (await lanes_of(store, options_of(client).core.clock))[0]


async def test_facts_are_put_in_their_order(store):
    """Also if the store takes longer for the first one, as on a new connection."""
    facts, rows, pauses = Facts(store), store.rows, iter([0.1, 0.0])

    async def late(text, *values):
        await asyncio.sleep(next(pauses))  # sleeps: the first one takes longer
        return await rows(text, *values)

    store.rows = late
    await asyncio.gather(*(facts.put("name", value) for value in ("first", "second")))
    del store.rows
    assert await facts.get("name") == "second"


async def test_put_updates_its_entry_and_what_follows(store, lane):
    """A send is stored, then the verdict, which nobody has had yet, and the state that the write left."""
    first, second = await fill(store, "one", "two")
    first.state, first.intent = State.SENDING, SENT
    await lane.put(first)
    assert (await store.entries("e.key = 'one'"))[0].intent == SENT
    assert await unheard(store) == []
    await end(lane, first)
    assert await unheard(store) == [first.seq]
    second.state, second.verdict, second.done_at = State.DONE, "applied", 1000
    await lane.put(second, Left("thing", state="{}"))
    await lane.put(first)  # again, as after a lost reply
    assert await store.rows("SELECT place, state FROM {s}states") in (
        [(2, "{}")],
        [(2, "{}")],
    )
    assert await unheard(store) == [first.seq, second.seq]


async def test_entry_that_is_dropped_while_a_lane_is_read(store, lane):
    """Those behind it are the next ones, so that a lane is not taken as read to its end."""
    await fill(store, "one", "two", "three")
    entries = store.entries

    async def after_a_drop(*given):
        await store.run(lambda: drop("one", [], done=False))
        return await entries(*given)

    store.entries = after_a_drop
    found = await store.open_in({lane.number: 0}, [], 2)
    assert [entry.key for entry in found] == ["two", "three"]


async def test_end_that_is_put_again(store, lane):
    """It is stored, as after a lost reply, and leaves what a later write left as it is."""
    first, second = await fill(store, "one", "two")
    for entry, state in ((first, "{}"), (second, '{"name":"b"}')):
        entry.state, entry.verdict, entry.outcome = State.DONE, "applied", "{}"
        entry.done_at = 1000
        await lane.put(entry, Left("thing", state=state))
    await lane.put(first, Left("thing", state="{}"))
    [(place, state)] = await store.rows("SELECT place, state FROM {s}states")
    assert (place, state) == (2, '{"name":"b"}')


async def test_put_before_one_that_is_cancelled(store, lane):
    """It is not told that its entry is stored before that is so."""
    (entry,) = await fill(store, "one")
    entry.state, entry.intent = State.SENDING, SENT
    first, second = lane.put(entry), lane.put(entry)
    second.cancel()
    await first
    assert (await store.entries("e.key = 'one'"))[0].intent == SENT


@pytest.mark.parametrize("gone", ["dropped", "done", "sent elsewhere", "another"])
async def test_put_of_an_entry_that_is_not_open_any_more(store, lane, gone):
    """It is refused, so that nothing is sent for it."""
    (entry,) = await fill(store, "one")
    if gone == "dropped":
        await store.run(lambda: drop("one", [], done=False))
    elif gone == "done":
        await end(lane, entry)
    elif isinstance(store, SqliteStore):
        pytest.skip("a file has one process")
    elif (
        gone == "another"
    ):  # the server is an older copy now, which has given the number again
        await store.rows("UPDATE {s}entries SET key = 'another'")
    else:
        await store.rows("UPDATE {s}lanes SET owner = 'other.1'")
    entry.state, entry.verdict, entry.done_at = State.SENDING, None, None
    with pytest.raises(LostEntryError):
        await lane.put(entry)
    # of which nobody else has a lane
    assert lane.doubtful is not isinstance(store, SqliteStore)


async def test_put_by_a_key_of_another_lane(store, client):
    """It is refused: another process has it, so nothing is sent for it, and nothing is changed."""
    first, second = await lanes_of(store, options_of(client).core.clock, most=2)
    new = Entry(
        key="one", state=State.SENDING, operation="webhooks.update", intent=SENT
    )
    await first.put(new)
    with pytest.raises(LostEntryError):
        await second.put(replace(new, state=State.DONE, verdict="applied", done_at=1))
    assert await numbers(store, "SELECT state FROM {s}entries") == [State.SENDING]


async def test_verdicts_are_given_to_one_consumer(store, lane):
    """What one has, another gets only once the first has given no sign of life, or has released it."""
    entries = await fill(store, "one", "two", "three")
    for entry in entries:
        await end(lane, entry)
    seqs = [entry.seq for entry in entries]
    for name in ("a", "b"):
        await store.rows(SIGN_OF_LIFE, name, 60.0)
    assert await store.run(lambda: take_verdicts("a.0", 60.0, 2)) == seqs[:2]
    assert await store.run(lambda: take_verdicts("a.0", 60.0, 2)) == seqs[:2]
    assert await store.run(lambda: take_verdicts("b.0", 60.0, 3)) == seqs[2:]
    assert await store.run(lambda: keep_verdicts("b.0", 60.0, seqs)) == {seqs[2]}
    await store.rows("DELETE FROM {s}members WHERE name = 'a'")
    assert await store.run(lambda: take_verdicts("b.1", 60.0, 3)) == seqs[:2]


async def test_consumer_that_lives_again_keeps_its_verdicts(store, lane):
    """It has shown so between the look at the verdicts and the look at the living."""
    (entry,) = await fill(store, "one")
    await end(lane, entry)
    await store.run(lambda: take_verdicts("a.0", 60.0, 2))

    def alive_meanwhile():
        taking = take_verdicts("b.0", 60.0, 2)
        rows = yield next(taking)
        assert [tuple(row) for row in rows] == [(entry.seq, "a.0")]
        yield SIGN_OF_LIFE, ("a", 60.0)
        return (yield from then(taking, rows))

    assert await store.run(alive_meanwhile) == []


async def test_owner_that_lives_again_keeps_its_lanes(store, lane):
    """It has shown so between the look at the lanes and the look at the living."""
    await store.rows("UPDATE {s}lanes SET owner = 'a.1' WHERE id = 1")

    def alive_meanwhile():
        taking = take_lanes("b.1-", 60.0, 2, "%", ["b.1-"], None)
        rows = yield next(taking)
        assert [tuple(row) for row in rows] == [(1, "a.1"), (2, None)]
        yield SIGN_OF_LIFE, ("a", 60.0)
        return (yield from then(taking, rows))

    assert await store.run(alive_meanwhile) == {2: True}
    assert await numbers(store, "SELECT owner FROM {s}lanes ORDER BY id") == [
        "a.1",
        "b.1-2",
    ]


def then(script, rows):
    """Run the rest of *script*, which has asked for *rows*; return its result."""
    try:
        text = script.send(rows)
        while True:
            text = script.send((yield text))
    except StopIteration as done:
        return done.value


async def test_reopening(store, lane):
    """What is applied or open stays; an UNKNOWN one keeps its sends; nobody gets the earlier verdicts any more."""
    applied, refused, unknown, waiting = await fill(
        store, "applied", "refused", "unknown", "open"
    )
    for entry in (refused, unknown, waiting):
        entry.intent = SENT
    await end(lane, applied, "applied")
    await end(lane, refused)
    await end(lane, unknown, "unknown")
    keys = ["applied", "refused", "unknown", "open", "none"]
    again = await store.run(lambda: reopen(keys, [*NOT_APPLIED, "applied"], {}))
    assert {(each.key, each.lane) for each in again} == {("refused", 1), ("unknown", 1)}
    found = {entry.key: entry for entry in await store.entries("true")}
    assert [entry.state for entry in found.values()].count(State.TO_DO) == 3
    assert (found["applied"].verdict, found["unknown"].intent) == ("applied", SENT)
    # that it was sent is kept
    assert found["refused"].intent.count('"end":{"kind":"not applied"}') == 1
    assert '"nonce":"a"' not in found["refused"].intent
    assert await unheard(store) == [applied.seq]


async def test_dropping(store, lane):
    """What may have been sent stays, and so does what an older copy has as open."""
    fresh, _, sent = await fill(store, "fresh", "late", "sent")
    sent.state, sent.intent = State.SENDING, SENT
    await lane.put(sent)
    await store.rows(
        "INSERT INTO {s}facts (name, value) VALUES ('restored', $1)",
        f'{{"through": {fresh.seq}, "since": null}}',
    )
    dropped = [
        await store.run(lambda key=key: drop(key, [], done=False)) is not None
        for key in ("sent", "fresh", "late", "none")
    ]
    assert dropped == [False, False, True, False]
    assert await numbers(store, "SELECT seq FROM {s}entries ORDER BY seq") == [
        fresh.seq,
        sent.seq,
    ]
    await end(lane, sent)
    assert await store.run(lambda: drop("sent", [], done=True)) == (sent.seq, None)
    assert await unheard(store) == []


async def test_pruning(store, lane):
    """UNKNOWN, unheard, recent and open ones stay, and what was reopened between the look and the deletion."""
    names = ("old", "unknown", "unheard", "recent", "open", "reopened")
    entries = dict(zip(names, await fill(store, *names), strict=True))
    for name in names:
        if name != "open":
            at = 9000 if name == "recent" else 1000
            await end(
                lane, entries[name], "unknown" if name == "unknown" else "refused", at
            )
    kept = entries["unheard"].seq
    await store.rows("DELETE FROM {s}unheard WHERE seq <> $1", kept)
    old = dict(await old_entries(store, 5000, 0, 10**9, unacknowledged=False))
    assert [*old.values()] == ["old", "reopened"]
    await store.run(lambda: reopen(["reopened"], NOT_APPLIED, {}))
    everything = [entry.seq for entry in entries.values()]
    for seqs, unacknowledged, gone in (
        ([*old], False, {entries["old"].seq}),
        (everything, False, set()),
        (everything, True, {kept}),
    ):
        script = partial(prune, 5000, seqs, unacknowledged=unacknowledged, tried=set())
        assert await store.run(script) == gone
    assert await unheard(store) == []


async def test_time_of_a_verdict(store, lane):
    """In a database it is the server's, whatever the clock of the process says, and it stays as it was first."""
    (entry,) = await fill(store, "one")
    entry.state, entry.verdict, entry.outcome, entry.done_at = (
        State.DONE,
        "refused",
        "{}",
        1000,
    )
    await lane.put(entry)
    [(first,)] = await store.rows("SELECT done_at FROM {s}entries")
    await lane.put(entry)  # as if the reply to the first one was lost
    assert await numbers(store, "SELECT done_at FROM {s}entries") == [first]
    if isinstance(store, SqliteStore):
        assert first == 1000
        return
    [(now,)] = await store.rows("SELECT {now}")
    assert 0 <= now * 1000 - first < 600_000
    other = replace(entry, outcome='{"why":"another"}')
    with pytest.raises(LostEntryError):
        await lane.put(other)


async def test_age_by_the_clock_of_the_store(store, lane, monkeypatch):
    """A machine that is 100 days ahead prunes nothing of yesterday."""
    (entry,) = await fill(store, "one")
    await end(lane, entry)
    await store.rows("UPDATE {s}entries SET done_at = CAST({now} * 1000 AS bigint)")
    ahead = time.time() + 100 * 86_400
    monkeypatch.setattr(time, "time", lambda: ahead)
    entries = Entries(store)
    assert await entries.prune(await entries.ago(86_400), unacknowledged=True) == 0
    assert await entries.prune(await entries.ago(-60), unacknowledged=True) == 1


async def test_place(store):
    """It names all that tells a database that was copied or restored from the original."""
    if isinstance(store, SqliteStore):
        pytest.skip("the file beside a file shows it")
    assert sorted(await store.run(place_of)) == [
        "database",
        "entries",
        "system",
        "timeline",
    ]


@pytest.mark.parametrize("by", ["prune", "drop"])
async def test_state_of_a_deleted_write(store, lane, by):
    """The state that a deleted write left is emptied, unless a later write has left another."""
    first, second = await fill(store, "one", "two")
    for entry in (first, second):
        entry.state, entry.verdict, entry.done_at = State.DONE, "applied", 1000
        await lane.put(entry, Left("thing", state="{}"))
        await store.rows(
            "UPDATE {s}entries SET done_at = 1000 WHERE seq = $1", entry.seq
        )
        if by == "prune":
            delete = partial(prune, 5000, [entry.seq], unacknowledged=True, tried=set())
        else:
            delete = partial(drop, entry.key, [], done=True)
        await store.run(delete)
        states = await numbers(
            store, "SELECT count(*) FROM {s}states WHERE state IS NOT NULL"
        )
        assert states == [0]
    assert await numbers(store, "SELECT place FROM {s}states") == [2]


async def test_file_of_a_process_that_has_ended(tmp_path, client):
    """Its lock shows that nobody has a lane or a verdict any more, whatever the tables say."""
    core = options_of(client).core
    for name in ("first", "second"):
        made = SqliteStore(tmp_path / "store.db", Opening("test", lanes=1))
        await made.open_for(core, same_mode=False)
        leases = Leases(made, core.clock)
        await leases.beat()
        (lane,) = await leases.take(1)
        assert lane.has_ended
        if name == "first":
            (entry,) = await fill(made, "one")
            await end(lane, entry)
        await made.rows(SIGN_OF_LIFE, name, 60.0)
        assert await made.run(
            lambda name=name: take_verdicts(f"{name}.0", 60.0, 2)
        ) == [entry.seq]
        await made.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_store_with_other_lanes(kind, tmp_path, request):
    """It is refused in words: nobody would ever send what belongs to a lane that is not there."""
    async with opened(store_of(kind, tmp_path, request.node.nodeid, lanes=2)):
        pass
    with pytest.raises(
        JournalError,
        match="has 2 lanes instead of 3, so some of its writes would never be sent",
    ):
        async with opened(store_of(kind, tmp_path, request.node.nodeid, lanes=3)):
            pass


@pytest.mark.parametrize("kind", KINDS)
async def test_untold_in_the_journal_of_a_client(service, tmp_path, kind):
    """That is what is done and was not given to the application, and not a create whose secret is to be returned."""
    place = tmp_path / "journal.db"
    if kind != "SQLite":
        place = database().at(journal="untold", silence=60)
    async with client_of(service, journal=place) as client:
        assert await client.recover() == []
        store = store_beneath(client)
        text = (
            "INSERT INTO {s}entries (place, key, lane, digest, operation, state, verdict, outcome, intent) "
            "SELECT 1, given.key, 0, given.digest, 'webhooks.create', given.state, given.verdict, '{}', '{}' "
            "FROM {rows 1 key:text digest:text state:smallint verdict:text} WHERE true"
        )
        await store.rows(text, [("k", "d", 1, None), ("made up", "", 2, "applied")])
        text = "INSERT INTO {s}unheard (seq) SELECT seq FROM {s}entries WHERE key = 'k'"
        await store.rows(text)
        untold = Chosen(state="untold")
        assert [each.key for each in await lists.first(store, untold, 9)] == ["made up"]
        assert (await lists.count(store, untold, 9)).many == 1
        assert await count_untold(store, 9) == 1
