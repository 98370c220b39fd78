"""Wall clocks that are wrong: those of processes are compared with nothing, and the database's may be set back."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from invsvc_async import JournalError, Outbox, Verdict
from invsvc_async.batch import Batch
from invsvc_async.batch.restored import restored_of
from invsvc_async.client import options_of
from invsvc_async.durable.entry import Entry, State
from invsvc_async.durable.store import schemas
from invsvc_async.durable.store.restored import mark_restored
from invsvc_async.durable.unknown_writes import UnknownWrites
from invsvc_async.simulator import Simulator
from invsvc_async.simulator.state import ServiceClock
from invsvc_async.storage.dialect import PostgresDialect
from tests.batch.conftest import HOOK, client_of
from tests.batch.writing import all_of, creates, opened
from tests.durable.child import process
from tests.outbox.conftest import enqueue, update, verdict_of
from tests.support.database import connected, database
from tests.support.inside import store_beneath
from tests.support.waiting import until

pytestmark = [pytest.mark.one_python, pytest.mark.silence(1)]

DAY = 86_400.0
HOUR = 3600.0
# s: much more than silence lasts, and much less than the clock was set back
LIMIT = 120.0


@pytest.fixture
def clock(monkeypatch):
    """Return the wall clock of this process, whose ``offset`` in seconds makes it wrong; the service's is right."""
    real, made = SimpleNamespace(**vars(time)), SimpleNamespace(offset=0.0)
    monkeypatch.setattr("invsvc_async.simulator.state.time", real)
    monkeypatch.setattr(time, "time", lambda: real.time() + made.offset)
    monkeypatch.setattr(
        time, "time_ns", lambda: real.time_ns() + round(made.offset * 1e9)
    )
    return made


@pytest.fixture
def batch_place(request):
    """Return the address of the journal of a batch; a silent process counts as dead after 1 s."""
    return database().journal(f"c{abs(hash(request.node.nodeid))}", silence=1)


def keyed(client, key):
    return client.webhooks.create(
        url=f"https://me.example/{key}", events=["invoice.created"]
    ).keyed(key)


async def set_back(address, kind, seconds=HOUR):
    """Let the database's clock be set back: what the store has is later than now."""
    async with connected() as admin:
        name = address.partition(f"{kind}=")[2].partition("&")[0]
        where = f"nspname LIKE 'invoicing_{kind}_{name}%'"
        schema = await admin.fetchval(f"SELECT nspname FROM pg_namespace WHERE {where}")
        await admin.execute(f"UPDATE {schema}.members SET seen = seen + {seconds}")
        if kind == "batch":
            text = "UPDATE {}.facts SET value = CAST(value AS float8) + {} WHERE name LIKE 'input %'"
            await admin.execute(text.format(schema, seconds))


# --- what is deleted


@pytest.mark.parametrize("kind", ["PostgreSQL", "SQLite"])
async def test_prune_on_a_machine_that_is_ahead(
    service, request, tmp_path, clock, kind
):
    """Yesterday's keys stay, and are replayed: of a database, its clock counts, of a file at most the service's."""
    address = (
        request.getfixturevalue("shared")
        if kind == "PostgreSQL"
        else tmp_path / "calls.db"
    )
    async with client_of(service, journal=address) as client:
        await keyed(client, "k")
    clock.offset = 100 * DAY
    async with client_of(service, journal=address) as client:
        # an answer, which shows the service's clock
        await client.webhooks.list(limit=1)
        assert await client.prune(older_than=30 * DAY) == 0
        assert (await keyed(client, "k").outcome()).replayed
    assert service.arrivals("webhooks.create") == 1


@pytest.mark.parametrize("answers", [True, False])
async def test_prune_of_a_file_by_a_program_that_does_nothing_else(tmp_path, answers):
    """It reads the service's clock, by which the file's writes are new; without an answer, its own counts."""
    path = tmp_path / "calls.db"
    async with Simulator(clock=ServiceClock(offset=-100 * DAY)) as service:
        async with client_of(service, journal=path) as client:
            await keyed(client, "k")
        before = service.arrivals("webhooks.list")
        if not answers:
            service.script("webhooks.list", *["reset"] * 5)
        async with client_of(service, journal=path) as client:
            assert await client.prune(older_than=DAY) == (0 if answers else 1)
        assert service.arrivals("webhooks.list") == before + 1


async def test_prune_of_what_a_machine_that_was_behind_has_done(service, shared, clock):
    """The database notes when it was done."""
    clock.offset = -100 * DAY
    async with client_of(service, journal=shared) as client:
        await keyed(client, "k")
        clock.offset = 0.0
        assert await client.prune(older_than=30 * DAY) == 0
        assert await client.prune(older_than=-60) == 1


@pytest.fixture
def database_behind(monkeypatch):
    """Return a context in which stores that are opened take the database's clock for one that is 100 days behind."""

    class Behind(PostgresDialect):
        def __init__(self, *kinds, **names):
            late = {
                "now": f"({names['now']} - {100 * DAY})",
                "ms": f"({names['ms']} - {100_000 * DAY})",
            }
            super().__init__(*kinds, **{**names, **late})

    @contextmanager
    def behind():
        with monkeypatch.context() as patched:
            # reaches: the clock of a database server cannot be turned
            patched.setattr(schemas, "PostgresDialect", Behind)
            yield

    return behind


async def test_prune_of_what_was_done_while_the_clock_of_the_database_was_behind(
    service, shared, database_behind
):
    """The service's answers have shown that it is later; a verdict that a person has found is not older."""
    service.script("sheets.save_mapping", "apply, then reset")
    with database_behind():
        async with client_of(service, journal=shared) as client:
            await keyed(client, "k")
            unknown = (
                await client.sheets.save_mapping({"a": "b"}).keyed("lost").outcome()
            )
            assert unknown.verdict is Verdict.UNKNOWN, unknown.explain()
            await client.resolve("lost", applied=True, because="seen in the dashboard")
    async with client_of(service, journal=shared) as client:
        assert await client.prune(older_than=30 * DAY) == 0
        assert (await keyed(client, "k").outcome()).replayed
    assert service.arrivals("webhooks.create") == 1


async def test_prune_of_a_batch_and_an_outbox_while_the_clock_of_the_database_was_behind(
    service, client, batch_place, database_behind
):
    """The same of what a batch and an outbox have done."""
    outbox_place = database().at(outbox="prune_behind", silence=1)
    with database_behind():
        async with Batch.open(batch_place, client) as batch:
            await all_of(batch, creates(client, 1))
        async with Outbox.open(outbox_place, client) as outbox, outbox.dispatching():
            [key] = await enqueue(outbox, update(client, service))
            await verdict_of(outbox, key)
    async with Outbox.open(outbox_place, client) as outbox:
        assert await outbox.prune(older_than=30 * DAY, unacknowledged=True) == 0
    async with opened(batch_place) as entries:
        assert (
            await entries.prune(await entries.ago(30 * DAY), unacknowledged=True) == 0
        )


@pytest.mark.parametrize("offset", [-100 * DAY, 100 * DAY])
async def test_prune_of_an_outbox(service, client, clock, offset):
    """The same of an outbox, whoever's clock is wrong."""
    async with Outbox.open(
        database().at(outbox=f"prune_{offset < 0:d}", silence=1), client
    ) as outbox:
        clock.offset = min(offset, 0.0)
        [key] = await enqueue(outbox, update(client, service))
        async with outbox.dispatching():
            await verdict_of(outbox, key)
        clock.offset = max(offset, 0.0)
        assert await outbox.prune(older_than=30 * DAY, unacknowledged=True) == 0
        assert await outbox.get(key) is not None


# --- what is compared otherwise


async def test_resumed_batch_on_a_machine_that_is_behind(
    service, client, batch_place, clock
):
    """What was done before counts as skipped."""
    async with Batch.open(batch_place, client) as batch:
        await all_of(batch, creates(client, 3))
    clock.offset = -100 * DAY
    async with Batch.open(batch_place, client) as batch:
        await all_of(batch, creates(client, 4))
        assert (batch.progress.skipped, batch.progress.done) == (3, 1)


@pytest.mark.parametrize("kind", ["PostgreSQL", "SQLite"])
async def test_write_in_doubt_that_cannot_be_read_on_a_machine_that_is_ahead(
    service, client, clock, monkeypatch, tmp_path, kind
):
    """It is waited for as if the clock were right, or, in a file, from its opening on."""
    waits = []

    async def unreadable(_entry):
        raise JournalError("of another version")

    class Clock:
        def now(self):
            return 1000.0

        async def sleep(self, seconds):
            waits.append(seconds)

    place = (
        tmp_path / "app.db"
        if kind == "SQLite"
        else database().at(outbox="unreadable", silence=1)
    )
    monkeypatch.setattr(options_of(client).core, "clock", Clock())
    async with Outbox.open(place, client) as outbox:
        [(now,)] = await store_beneath(outbox).rows("SELECT {now}")
        unknown = Entry(
            key="k", thing="webhook wh_1", state=State.DONE, done_at=round(now * 1000), verdict="unknown",
            operation="webhooks.update", common=1, intent="{}",
        )  # fmt: skip
        clock.offset = 11 * 60.0
        await UnknownWrites(store_beneath(outbox), unreadable).close_lines(
            [unknown], options_of(client)
        )
    [waited] = waits
    assert waited > options_of(client).timeouts.attempt


async def test_write_in_doubt_that_cannot_be_read_and_a_slow_database(
    client, monkeypatch
):
    """The time that the question for the verdict's age takes counts once."""
    until = []

    async def unreadable(_entry):
        raise JournalError("of another version")

    class Clock:
        time = 1000.0

        def now(self):
            return self.time

        async def sleep(self, seconds):
            until.append(self.time + seconds)

    class Slow:
        silence = 15.0
        is_shared = True

        async def rows(self, _text):
            slow.time += 5.0
            return [[505.0]]

    slow = Clock()
    monkeypatch.setattr(options_of(client).core, "clock", slow)
    unknown = Entry(
        key="k", thing="webhook wh_1", state=State.DONE, done_at=500_000, verdict="unknown",
        operation="webhooks.update", common=1, intent="{}",
    )  # fmt: skip
    for since in (float("inf"), 990.0):
        await UnknownWrites(Slow(), unreadable).close_lines(
            [unknown], options_of(client), since=since
        )
    first, second = until
    assert first - second == 10.0
    policy = options_of(client).reconcile
    assert (
        first >= 1000.0 + options_of(client).timeouts.attempt + policy.settle_after_loss
    )


async def test_restored_journal_on_a_machine_that_is_behind(
    service, client, batch_place, clock
):
    """What may have been sent since the copy was made was not sent later than now."""
    async with Batch.open(batch_place, client) as batch:
        await all_of(batch, creates(client, 1))
        await batch.entries.store.run(mark_restored)
        clock.offset = -11 * 60.0
        restored = await restored_of(batch.entries.store, client)
    assert restored.earliest < service.clock.now_ms() / 1000


@pytest.mark.parametrize("kind", ["PostgreSQL", "SQLite"])
@pytest.mark.parametrize("offset", [-100.0, 100.0])
async def test_restored_journal_whose_clock_is_not_the_service_s(
    service, client, request, tmp_path, kind, offset
):
    """What may have been sent since the copy was made, 200 s ago, may have been sent at once."""
    address = (
        request.getfixturevalue("batch_place")
        if kind == "PostgreSQL"
        else tmp_path / "run.db"
    )
    service.clock.offset = offset
    async with Batch.open(address, client) as batch:
        await all_of(batch, creates(client, 1))
        made = service.clock.now_ms() / 1000 - 200
        store = batch.entries.store
        await store.rows("UPDATE {s}entries SET done_at = done_at - 200000")
        await store.run(mark_restored)
        restored = await restored_of(store, client)
    # The clocks of the processes that wrote it may disagree by a minute.
    assert made - 60 - 100 - 5 < restored.earliest < made - 60 + 5


# --- what a dead process left


@pytest.mark.untraced
@pytest.mark.parametrize("seconds", [45, HOUR, 2 * HOUR])
async def test_key_of_a_process_that_died_before_the_clock_was_set_back(
    service, shared, seconds
):
    """A run of the key takes its write over as soon as without that."""
    async with client_of(service, journal=shared) as client, asyncio.timeout(LIMIT):
        async with process(
            service,
            shared,
            "webhooks.create",
            "SIGKILL before the verdict",
            **HOOK,
            key="k",
        ) as child:
            await child.wait()
        await set_back(shared, "journal", seconds + LIMIT)
        outcome = await client.webhooks.create(**HOOK).keyed("k").outcome()
    assert outcome.verdict is Verdict.APPLIED
    assert service.arrivals("webhooks.create") == 1


async def test_recover_after_the_clock_was_set_back(service, shared):
    """It gives what a dead process left, as soon as without that."""
    service.script("webhooks.create", "apply, then hang")
    async with client_of(service, journal=shared) as client, asyncio.timeout(LIMIT):
        async with process(service, shared, "webhooks.create", **HOOK, key="k"):
            await service.arrived("webhooks.create")
        await set_back(shared, "journal")
        [outcome] = await until(client.recover)
    assert outcome.verdict is Verdict.APPLIED


async def dies(store, *, takes=True):
    """Let a process have all lanes, and if it *takes* them all verdicts, and die."""
    text = "INSERT INTO {s}members (name, seen, begun, silence, sends) VALUES ('dead', {now}, {now}, 1, 1)"
    await store.rows(text)
    await store.rows("UPDATE {s}lanes SET owner = 'dead.1'")
    if takes:
        await store.rows("UPDATE {s}unheard SET taker = 'dead.1'")


async def test_outbox_of_a_process_that_died_before_the_clock_was_set_back(
    service, client
):
    """What it would have sent is sent, and the verdict that it had taken is given, as soon as without that."""
    place = database().at(outbox="set_back", silence=1)
    given = asyncio.Queue()
    async with Outbox.open(place, client) as outbox, asyncio.timeout(LIMIT):
        [first] = await enqueue(outbox, update(client, service))
        async with outbox.dispatching():
            await verdict_of(outbox, first)
        [second] = await enqueue(outbox, update(client, service))
        await dies(store_beneath(outbox))
        await set_back(place, "outbox")
        async with outbox.dispatching(on_result=lambda result: given.put(result.key)):
            assert {await given.get(), await given.get()} == {first, second}
    assert service.arrivals("webhooks.update") == 2


async def test_batch_of_a_process_that_died_before_the_clock_was_set_back(
    service, client, batch_place
):
    """Its writes are sent, its results are given, and its input counts as read, as soon as without that."""
    async with asyncio.timeout(LIMIT):
        async with Batch.open(batch_place, client) as batch:
            await all_of(batch, creates(client, 2))
            store = batch.entries.store
            await store.rows("DELETE FROM {s}unheard")
            await store.rows("INSERT INTO {s}unheard (seq) SELECT seq FROM {s}entries")
            await dies(store)
            await store.rows(
                "INSERT INTO {s}facts (name, value) VALUES ('input dead', CAST({now} AS text))"
            )
        await set_back(batch_place, "batch")
        async with Batch.open(batch_place, client) as batch:
            results = {result.key for result in await all_of(batch, creates(client, 3))}
            summary = await batch.summary()
    assert results == {"row-0", "row-1", "row-2"}
    assert (summary.open_inputs, summary.to_do) == (0, 0)
