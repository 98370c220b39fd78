"""Writes that are not sent before a time: they wait, later ones to the same thing wait behind them, and others pass."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta, timezone
from functools import partial

import pytest

from invsvc_async import InvalidRequestError, JournalError, Outbox, Verdict
from invsvc_async.concurrency.clock import SystemClock
from invsvc_async.durable.entries import not_due
from invsvc_async.durable.leases import Leases
from invsvc_async.durable.store import due, lists
from invsvc_async.durable.store.lanes import lane_for
from invsvc_async.durable.store.noted import Chosen
from invsvc_async.durable.store.restored import mark_restored
from invsvc_async.durable.store.team_turns import next_of_teams
from invsvc_async.outbox.outbox import _epoch_ms  # reaches: the time as it is stored
from tests.batch.conftest import client_of
from tests.golden.loading import LAST, golden
from tests.outbox.conftest import (
    changes,
    enqueue,
    entries_of,
    transaction_of,
    update,
    verdict_of,
    verdicts_of,
    written,
)
from tests.support.inside import outbox_entries, store_beneath
from tests.support.waiting import until

LATER = timedelta(days=1)
SOON = timedelta(seconds=1.5)


def now():
    return datetime.now(UTC)


@pytest.fixture
def place(request, address, tmp_path):
    """Return the place of an outbox in each database, whose processes look around each ten minutes."""
    if request.param == "SQLite":
        return tmp_path / "app.db"
    return address.replace("silence=60", "silence=2400")


both = pytest.mark.parametrize("place", ["PostgreSQL", "SQLite"], indirect=True)


async def at(outbox, when, *writes):
    """Enqueue *writes*, not to be sent before *when*, in one transaction; return their keys."""
    async with transaction_of(outbox) as made:
        return [await outbox.enqueue(made, each, not_before=when) for each in writes]


async def moved(outbox):
    """Take what transactions have committed into the store, without sending."""
    if outbox_entries(outbox).enqueuing.database == "SQLite":
        while (await outbox_entries(outbox).move()).many:
            pass


async def aside(outbox):
    """Return the keys of the writes that wait for their time, or behind such ones."""
    entries = outbox_entries(outbox)
    return [each.key for each in await due.first(entries.store, entries.lanes, 9999)]


async def until_read(outbox, key):
    """Send until the write of *key* waits aside."""
    async with outbox.dispatching():
        await until(lambda: _is_aside(outbox, key))


async def _is_aside(outbox, key):
    return key in await aside(outbox)


def sent_at(service):
    """Return when each effect was, as a time of day in seconds, by what it wrote."""
    began = time.time() - service.ledger.steady()
    effects = service.ledger.effects()
    return {each.body["description"]: began + each.applied_at for each in effects}


# --- their order


@both
async def test_waits_and_holds_back_its_thing(service, client, place):
    """Later writes to the thing are sent after it, in their order; earlier ones and those to others at once."""
    hook, other = (service.seed_webhook().id for _ in range(2))
    before, first, second, third = changes(client, hook, "before", "1", "2", "3")
    async with Outbox.open(place, client) as outbox, outbox.dispatching():
        [key] = await enqueue(outbox, before)
        await verdict_of(outbox, key)  # so the first looks are over
        when = now() + SOON
        keys = await at(outbox, when, first)
        keys += await enqueue(outbox, second, third)
        await at(outbox, now() + LATER, update(client, service, "never"))
        keys += await enqueue(outbox, update(client, service, "other", other))
        assert {*await verdicts_of(outbox, [key, *keys])} == {Verdict.APPLIED}
    effects = service.ledger.effects()
    assert written(effects, hook) == ["before", "1", "2", "3"]
    assert len(effects) == 5
    assert sent_at(service)["1"] >= when.timestamp()


@both
async def test_times_that_cross(service, client, place):
    """A later write with an earlier time waits for its thing; one with a later time keeps its own."""
    hook = service.seed_webhook().id
    one, two, three = changes(client, hook, "1", "2", "3")
    async with Outbox.open(place, client) as outbox:
        begun = now()
        keys = await at(outbox, begun + 2 * SOON, one)
        keys += await at(outbox, begun + SOON, two)
        keys += await at(outbox, begun + 3 * SOON, three)
        async with outbox.dispatching():
            await verdicts_of(outbox, keys)
    assert written(service.ledger.effects()) == ["1", "2", "3"]
    times = sent_at(service)
    for text, many in ("1", 2), ("2", 2), ("3", 3):
        assert times[text] >= (begun + many * SOON).timestamp()


@pytest.mark.slow
@both
async def test_many_behind_one(service, client, place):
    """They are moved aside once, however many they are, and come back in their order."""
    hook = service.seed_webhook().id
    many = 250  # more than one read
    async with Outbox.open(place, client, concurrency=20) as outbox:
        await at(outbox, now() + LATER, *changes(client, hook, "first"))
        keys = await enqueue(
            outbox, *changes(client, hook, *(str(number) for number in range(many)))
        )
        await until_read(outbox, keys[-1])
        assert len(await aside(outbox)) == many + 1
        assert service.arrivals() == 0
        await _bring_forward(outbox)
        async with outbox.dispatching():
            await verdict_of(outbox, keys[-1])
    assert written(service.ledger.effects()) == ["first", *map(str, range(many))]


async def _bring_forward(outbox):
    """Let the time of what waits come."""
    await store_beneath(outbox).rows("UPDATE {s}entries SET due_at = 1 WHERE lane < 0")


@both
async def test_dropped_before_its_time(service, client, place, monkeypatch):
    """What waited behind it is sent, unless it has a time of its own that is still to come."""
    # reaches: a look each minute would find it, too
    monkeypatch.setattr("invsvc_async.batch.due_times._LONGEST", 3600.0)
    hook = service.seed_webhook().id
    one, two, three, four = changes(client, hook, "1", "2", "3", "4")
    async with Outbox.open(place, client) as outbox:
        [first] = await at(outbox, now() + LATER, one)
        [second] = await enqueue(outbox, two)
        [third] = await at(outbox, now() + LATER, three)
        [fourth] = await enqueue(outbox, four)
        await until_read(outbox, fourth)
        assert await aside(outbox) == [first, second, third, fourth]
        async with outbox.dispatching():
            assert await outbox.drop(first)
            assert await verdict_of(outbox, second)
            await until(lambda: _is_aside(outbox, fourth))
            assert written(service.ledger.effects()) == ["2"]
            assert await outbox.drop(third)
            assert await verdict_of(outbox, fourth)
    assert written(service.ledger.effects()) == ["2", "4"]


@both
async def test_drop_as_those_behind_are_moved(service, client, place, monkeypatch):
    """They are sent in their order, however late the processes hear of the drop."""
    hook = service.seed_webhook().id
    texts = [str(number) for number in range(210)]  # more than one read
    may_tell = asyncio.Event()
    move_aside = due.move_aside
    dropping = []

    async def drop_and_move(store, *behind):
        if not dropping:
            dropping.append(asyncio.create_task(outbox.drop(first)))
            await until(lambda: _is_gone(outbox, first))
        await move_aside(store, *behind)

    # reaches: the drop is between the statement that reads what is behind and the one that moves it
    monkeypatch.setattr("invsvc_async.batch.lane_reader.move_aside", drop_and_move)
    async with Outbox.open(place, client, concurrency=20) as outbox:
        [first] = await at(outbox, now() + LATER, *changes(client, hook, "first"))
        store = store_beneath(outbox)
        notify = store.notify

        async def late(*what):
            if what[0].isdecimal():  # a lane
                await may_tell.wait()
            await notify(*what)

        monkeypatch.setattr(store, "notify", late)  # reaches: it takes its time
        async with outbox.dispatching():
            [other] = await enqueue(outbox, update(client, service))
            await verdict_of(outbox, other)  # what is read at the start has been read
            keys = await enqueue(outbox, *changes(client, hook, *texts))
            await verdict_of(outbox, keys[-1])
            may_tell.set()
            assert await dropping[0]
            await verdicts_of(outbox, keys)
    assert written(service.ledger.effects())[1:] == texts


async def _is_gone(outbox, key):
    rows = await store_beneath(outbox).rows(
        "SELECT 1 FROM {s}entries WHERE key = $1", key
    )
    return not rows


@both
async def test_drop_of_what_a_person_has_seen(service, client, place):
    """It is dropped if it is still the same; its labels and its time are no difference."""
    async with Outbox.open(place, client) as outbox:
        write = update(client, service).keyed("a", labels={"customer": "c-1"})
        await at(outbox, now() + LATER, write)
        await moved(outbox)
        [seen] = await entries_of(outbox)
        assert seen.noted.labels
        assert await outbox_entries(outbox).drop("a", seen=seen)
        assert await entries_of(outbox) == []


@both
async def test_retried_write_before_one_that_waits(service, client, place):
    """A write that was refused keeps its place, before one that waits; that one waits on."""
    hook = service.seed_webhook().id
    service.script("webhooks.update", "403")
    early, late = changes(client, hook, "early", "late")
    async with Outbox.open(place, client) as outbox, outbox.dispatching():
        [key] = await enqueue(outbox, early)
        assert (await verdict_of(outbox, key)).verdict is Verdict.REFUSED
        await at(outbox, now() + LATER, late)
        assert await outbox.retry(key) == [key]
        assert (await verdict_of(outbox, key)).verdict is Verdict.APPLIED
    assert written(service.ledger.effects()) == ["early"]


# --- stops, copies and other versions


@both
async def test_stop_before_the_time(service, client, place):
    """It stays, with its time, and the next process sends it then."""
    async with Outbox.open(place, client) as outbox:
        when = now() + LATER
        [key] = await at(outbox, when, update(client, service, "later"))
        async with outbox.dispatching():
            await until(lambda: _is_aside(outbox, key))
        assert service.arrivals() == 0
    async with Outbox.open(place, client) as outbox:
        [kept] = await entries_of(outbox, "open")
        assert (kept.key, kept.not_before) == (key, _epoch_ms(when))
        when = now() + SOON  # brought forward, so as not to wait for a day
        await outbox_entries(outbox).store.rows(
            "UPDATE {s}entries SET due_at = $1", _epoch_ms(when)
        )
        async with outbox.dispatching():
            await verdict_of(outbox, key)
    assert sent_at(service)["later"] >= when.timestamp()


@both
async def test_finding_of_a_write_that_waits_in_a_copy(service, client, place):
    """What waited behind it is due then, and not at its time."""
    hook = service.seed_webhook().id
    first, second = changes(client, hook, "1", "2")
    async with Outbox.open(place, client) as outbox:
        [key] = await at(outbox, now() + LATER, first)
        [behind] = await enqueue(outbox, second)
        await until_read(outbox, behind)
        store = outbox_entries(outbox).store
        [entry] = await store.entries("e.key = $1", key)
        await store.run(partial(mark_restored, entry.seq))
        await outbox.resolve(key, applied=True, by="me", because="it is there")
        [(due_at,)] = await store.rows(
            "SELECT due_at FROM {s}entries WHERE key = $1", behind
        )
        assert due_at <= _epoch_ms(now())
        async with outbox.dispatching():
            assert (await verdict_of(outbox, behind)).verdict is Verdict.APPLIED
    assert written(service.ledger.effects()) == ["2"]


@both
async def test_same_key_again(service, client, place):
    """It is inserted once, and the first time stays."""
    hook = service.seed_webhook().id
    async with Outbox.open(place, client) as outbox:
        when = now() + LATER
        for given in when, None, now():
            [write] = changes(client, hook, "x")
            await at(outbox, given, write.keyed("a"))
            await moved(outbox)
        [only] = await entries_of(outbox)
        assert only.not_before == _epoch_ms(when)
        assert await aside(outbox) == ["a"]


async def test_row_that_is_moved_again(service, client, tmp_path):
    """After a kill between the two files, a write whose time has come is not moved aside again."""
    path = tmp_path / "app.db"
    async with Outbox.open(path, client) as outbox:
        await at(outbox, now() + LATER, update(client, service).keyed("a"))
        await moved(outbox)
        entries = outbox_entries(outbox)
        await entries.store.rows("UPDATE {s}entries SET lane = 1, due_at = 1")
        more = json.dumps({"not_before": _epoch_ms(now() + LATER)})
        await entries.file.table.act(
            lambda own: (
                own.execute(
                    "UPDATE invsvc_outbox SET moved = 0, more = ?", (more,)
                ).rowcount
            )
        )
        await moved(outbox)
        assert await aside(outbox) == []


@pytest.mark.parametrize("which", ["sqlite", "postgres"])
async def test_store_of_an_earlier_version(service, tmp_path, which):
    """Synchronous code is refused in words until this version has opened it, and then it waits."""
    import psycopg

    from tests.outbox.sync_connections import of_sqlite3

    async with (
        golden(service, "v0_1_0", "outbox", which, tmp_path) as place,
        client_of(service) as client,
    ):
        outbox = Outbox.open(place, client)
        address = str(place).partition("&")[0]

        def connected():
            if which == "postgres":
                return psycopg.connect(address)
            return next(iter([of_sqlite3(place)])).__enter__()[0]

        write = update(client, service, "later").keyed("later")
        connection = connected()
        try:
            if which == "sqlite":
                connection.execute("BEGIN")
            else:
                connection.execute("SELECT 1")
            with pytest.raises(JournalError, match="earlier version"):
                outbox.enqueue_sync(connection, write, not_before=now() + LATER)
            connection.rollback()
            async with Outbox.open(place, client) as opened:
                assert store_beneath(opened).version == LAST
            connection.execute("BEGIN" if which == "sqlite" else "SELECT 1")
            again = update(client, service, "later").keyed("later")
            outbox.enqueue_sync(connection, again, not_before=now() + LATER)
            connection.commit()
        finally:
            connection.close()
        async with Outbox.open(place, client) as opened, opened.dispatching():
            await until(lambda: _is_aside(opened, "later"))
        assert "later" not in [
            each.body.get("description")
            for each in service.ledger.effects()
            if isinstance(each.body, dict)
        ]


@both
async def test_what_an_older_copy_has(client, service, place):
    """Writes that wait count as open: they may have been sent from the newer one, so the doubt stays."""
    async with Outbox.open(place, client) as outbox:
        await at(outbox, now() + LATER, update(client, service).keyed("a"))
        await moved(outbox)
        [found] = await outbox_entries(outbox).not_done(1)
        assert found.key == "a"


# --- arguments


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (datetime(2026, 1, 1), "time zone"),  # noqa: DTZ001 - that is the error
        (3600, "time zone"),
        (datetime.max.replace(tzinfo=timezone(-timedelta(hours=12))), "too late"),
    ],
)
async def test_time_that_cannot_be(service, client, tmp_path, wrong, words):
    """It is refused in words, and nothing is inserted; the write can be enqueued then."""
    async with Outbox.open(tmp_path / "app.db", client) as outbox:
        write = update(client, service)
        with pytest.raises(InvalidRequestError, match=words):
            await at(outbox, wrong, write)
        assert await entries_of(outbox) == []
        assert len(await at(outbox, None, write)) == 1


def test_time_in_milliseconds():
    """It is rounded up, whatever its zone is; one before 1970 is at once."""
    zone = timezone(timedelta(hours=5))
    assert _epoch_ms(datetime(1970, 1, 1, 5, 0, 1, 1, tzinfo=zone)) == 1001
    assert _epoch_ms(datetime(1, 1, 1, tzinfo=UTC)) == 0
    assert _epoch_ms(None) is None


# --- what it costs, and what people see


@both
async def test_worker_that_waits_asks_seldom(client, service, place, monkeypatch):
    """It asks once when the next write is due, and then not before that time."""
    looks = []
    real = due.bring_back

    async def noted(store, lanes):
        looks.append(len(lanes))
        return await real(store, lanes)

    # reaches: the looks are counted
    monkeypatch.setattr("invsvc_async.batch.due_times.bring_back", noted)
    async with Outbox.open(place, client) as outbox:
        await at(outbox, now() + LATER, update(client, service))
        async with outbox.dispatching():
            [key] = await enqueue(outbox, update(client, service))
            await verdict_of(outbox, key)
            await asyncio.sleep(1.0)  # sleeps: over which looks are counted
    assert 0 < len(looks) <= 12


@both
async def test_age_of_what_waits(client, service, place):
    """The time before it is due is no lag; what is due counts from then on."""
    async with Outbox.open(place, client) as outbox:
        [key] = await at(outbox, now() + LATER, update(client, service))
        await moved(outbox)
        store = store_beneath(outbox)
        assert await lists.ready_since(store, 100) is None
        assert (await outbox_entries(outbox).count(100, Chosen(state="open")))[0] == 1
        moment = int(time.time() * 1000) + 5_000
        lane = lane_for(
            key, (await entries_of(outbox))[0].thing, outbox_entries(outbox).lanes
        )
        text = "UPDATE {s}entries SET lane = $1, due_at = $2"
        await store.rows(text, lane, moment)
        assert await lists.ready_since(store, 100) == moment


@both
async def test_first_of_more_than_are_counted(client, service, place):
    """When the first one is due is known also if only some are counted."""
    hours = range(9, 0, -1)
    first = now() + timedelta(hours=1)
    async with Outbox.open(place, client) as outbox:
        hooks = [service.seed_webhook().id for _ in hours]
        for each, hook in zip(hours, hooks, strict=True):
            await at(
                outbox,
                first + timedelta(hours=each - 1),
                update(client, service, "new", hook),
            )
        await moved(outbox)
        found = [await not_due(outbox_entries(outbox), most) for most in (1, 9)]
    assert [each.many for each in found] == [1, 9]
    assert {each.first for each in found} == {_epoch_ms(first)}


@both
async def test_turns_leave_it_out(client, service, place):
    """What waits, and what is behind it, is not among the next writes of its team."""
    hook = service.seed_webhook().id
    async with Outbox.open(place, client) as outbox:
        await at(outbox, now() + LATER, *changes(client, hook, "1"))
        await enqueue(outbox, *changes(client, hook, "2"))
        await moved(outbox)
        entries = outbox_entries(outbox)
        lanes = range(1, entries.lanes + 1)
        assert await next_of_teams(entries.store, {"": 9}, lanes, ()) == []


@both
async def test_clock_of_the_file_or_database(client, service, place, monkeypatch):
    """In a file it is that of the process; in PostgreSQL that of a process does not matter."""
    async with Outbox.open(place, client) as outbox:
        [key] = await at(outbox, now() + LATER, update(client, service))
        await moved(outbox)
        entries = outbox_entries(outbox)
        leases = Leases(entries.store, SystemClock())
        await leases.beat()
        await leases.take(64)
        found = await due.bring_back(entries.store, leases.lanes.values())
        assert found.lanes == {}
        assert 0 < found.next_in <= LATER.total_seconds()
        real = time.time
        # reaches: the wall clock of the process
        monkeypatch.setattr(
            "invsvc_async.durable.store.due.time.time",
            lambda: real() + 2 * LATER.total_seconds(),
        )
        found = await due.bring_back(entries.store, leases.lanes.values())
        monkeypatch.undo()
        is_file = entries.enqueuing.database == "SQLite"
        assert (await aside(outbox) == []) == is_file
        assert (key in await aside(outbox)) != is_file
