"""Tables of an earlier version: brought up to date once, as a whole or not at all, by who may do it."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from contextlib import asynccontextmanager, closing

import pytest

from invsvc_async import JournalError, Outbox
from invsvc_async.client import options_of
from invsvc_async.concurrency.clock import SystemClock
from invsvc_async.durable.leases import Leases
from invsvc_async.durable.own_lane import OwnLane
from invsvc_async.durable.store import tables
from invsvc_async.durable.store.migrations import schema_of
from invsvc_async.durable.store.opening import store_at as writes_at
from invsvc_async.durable.store.postgres import PostgresStore
from invsvc_async.events.stores import (
    Delivery,
    postgres as events_in_postgres,
    sqlite as events_in_sqlite,
)
from invsvc_async.events.stores.statements import SCHEMA
from invsvc_async.storage.schema import Migration, Schema
from tests.batch.conftest import client_of
from tests.batch.writing import opened
from tests.durable.stores import rows_in
from tests.golden.loading import (
    DATABASES,
    LAST,
    golden,
    golden_events,
    schemas,
    store_at,
)
from tests.golden.make import text_of_schema
from tests.support.database import connected

pytestmark = pytest.mark.one_python

FIRST = "v0_1_0"
MORE = ("CREATE TABLE {s}more (a bigint)", "INSERT INTO {s}more VALUES (7)")
BAD = ("CREATE TABLE {s}more (a bigint)", "INSERT INTO {s}nowhere VALUES (7)")


def further(*statements):
    """Return a function that adds a migration to those of a store of writes."""

    def found(*, counted):
        known = schema_of(counted=counted)
        more = Migration(known.version + 1, statements)
        return Schema(known.anew, (*known.migrations, more))

    return found


async def version_of(place):
    """Return the version that is noted at *place*, of a batch."""
    async with opened(place, reading=True) as entries:
        return entries.store.version


@asynccontextmanager
async def owner_of(place):
    """Yield a connection of the owner of the store at *place*, and the name of its schema."""
    async with connected(place.partition("&")[0]) as connection:
        [schema] = await schemas(connection)
        yield connection, schema


async def test_again_and_again(service, tmp_path):
    """A second opening finds nothing to do, and a further migration is the only one that runs then."""
    async with golden(service, FIRST, "batch", "sqlite", tmp_path) as place:
        for _ in range(2):
            async with opened(place) as entries:
                assert entries.store.version == schema_of(counted=True).version
        assert len(rows_in(place, "flags")) == 36
        assert sorted({flags for (flags,) in rows_in(place, "flags")}) == [0, 1, 2]


@pytest.mark.parametrize("which", DATABASES)
async def test_further_migration(service, tmp_path, which, monkeypatch):
    """Each one that the tables lack runs once, also if several open the store at once; then older code refuses it."""
    async with golden(service, FIRST, "batch", which, tmp_path) as place:
        with monkeypatch.context() as later:
            later.setattr(tables, "schema_of", further(*MORE))
            many = 4 if which == "postgres" else 1
            async with asyncio.TaskGroup() as group:
                for _ in range(many):
                    group.create_task(version_after(place))
            async with opened(place) as entries:
                assert await entries.store.rows("SELECT a FROM {s}more") == [(7,)]
        with pytest.raises(
            JournalError, match=f"version {LAST + 1}, and this package knows"
        ):
            await version_of(place)


async def version_after(place):
    async with opened(place) as entries:
        assert entries.store.version == LAST + 1


@pytest.mark.parametrize("which", DATABASES)
async def test_migration_that_fails(service, tmp_path, which, monkeypatch):
    """Nothing of it stays, nor of those before it; the store can be opened afterwards."""
    async with golden(service, FIRST, "batch", which, tmp_path) as place:
        with monkeypatch.context() as later:
            later.setattr(tables, "schema_of", further(*BAD))
            with pytest.raises(JournalError):
                await version_after(place)
        assert await version_of(place) == 1
        with monkeypatch.context() as later:
            later.setattr(tables, "schema_of", further(*MORE))
            await version_after(place)


async def test_processes_of_the_earlier_version(service, tmp_path):
    """While one lives, nothing is changed, in words; what a suspended one has is taken from it."""
    async with (
        golden(service, FIRST, "batch", "postgres", tmp_path) as place,
        owner_of(place) as (owner, schema),
    ):
        now = "extract(epoch FROM clock_timestamp())::float8"
        alive = f"UPDATE {schema}.members SET seen = {now}, silence = %s, sends = 1"
        await owner.execute(alive % 3600)
        with pytest.raises(JournalError) as refused:
            await version_after(place)
        assert re.search(
            r"its tables have version 1, and processes of an earlier version of the package use them "
            r"\(pid \d+ on host.*\)\. Nothing was changed\. Stop them, and open it again\.",
            str(refused.value),
        )
        assert await version_of(place) == 1
        await owner.execute(alive % 1)  # it was killed just now
        await owner.execute(
            f"UPDATE {schema}.lanes SET owner = CASE WHEN id = 1 THEN 'suspended.1' END"
        )
        async with opened(place) as entries:
            assert entries.store.version == LAST
            lanes = f"SELECT count(*) FROM {schema}.lanes WHERE owner = 'suspended.1'"
            assert await owner.fetchval(lanes) == 0
            leases = Leases(entries.store, SystemClock())
            await leases.beat()
            first, *others = await leases.take(100)
            # it may still send, for as long as any that is silent
            assert not first.has_ended
            assert others
            assert all(lane.has_ended for lane in others)


@pytest.mark.parametrize("kind", ["batch", "journal"])
async def test_process_that_wakes_up_after_an_upgrade(
    service, tmp_path, monkeypatch, kind
):
    """It is given no lane any more, in words: it does not know what the later version has stored."""
    async with golden(service, FIRST, kind, "postgres", tmp_path) as place:
        store = writes_at(place, kind)
        async with client_of(service) as client, owner_of(place) as (owner, schema):
            core = options_of(client).core if kind == "journal" else None
            await store.open_for(core, same_mode=True)
            leases = Leases(store, SystemClock())
            await leases.beat()
            silent = f"UPDATE {schema}.members SET seen = seen - 3600"
            await owner.execute(silent)
            with monkeypatch.context() as later:
                later.setattr(tables, "schema_of", further(*MORE))
                other = writes_at(place, kind)
                await other.open_for(core, same_mode=True)
                await other.aclose()
            await leases.beat()
            with pytest.raises(
                JournalError,
                match=f"{kind}: its tables have version {LAST + 1} now.*Start this process again",
            ):
                if kind == "batch":
                    await leases.take(100)
                else:
                    await OwnLane.made(store, core)
            owned = f"SELECT count(*) FROM {schema}.lanes WHERE owner <> 'nobody.0'"
            assert await owner.fetchval(owned) == 0
            await store.aclose()


async def test_signs_of_the_far_future(service, tmp_path):
    """They are of before a clock was set back, and keep nobody out."""
    async with golden(service, FIRST, "batch", "postgres", tmp_path) as place:
        async with owner_of(place) as (owner, schema):
            await owner.execute(
                f"UPDATE {schema}.members SET seen = 4e9, silence = 10, sends = 1"
            )
        async with opened(place) as entries:
            assert entries.store.version == LAST


async def test_role_that_may_not_change_tables(service, tmp_path):
    """It is told so, and whose turn it is; the statements that the command prints do it."""
    async with (
        golden(service, FIRST, "outbox", "postgres", tmp_path) as place,
        owner_of(place) as (owner, schema),
    ):
        await owner.execute(
            f"DROP ROLE IF EXISTS worker; CREATE ROLE worker LOGIN; "
            f"GRANT USAGE, CREATE ON SCHEMA {schema} TO worker; "
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO worker; "
            f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO worker"
        )
        theirs = place.replace("postgres:@", "worker:@")
        assert theirs != place
        async with client_of(service) as client:
            with pytest.raises(JournalError) as refused:
                async with Outbox.open(theirs, client):
                    pass
            assert (
                "its tables have version 1, an earlier one, and the role of the address may not change them. "
                "Nothing was changed. Let their owner open the outbox once, or run what `invsvc outbox "
                "schema --from 1` prints for its address."
            ) in str(refused.value)
            store = writes_at(place, "outbox")
            assert isinstance(store, PostgresStore)
            statements = [*store.schemas.upgrade_of(options_of(client).core, 1)]
            await owner.execute("; ".join(statements))
            async with Outbox.open(theirs, client) as outbox:
                assert outbox._store.store.version == LAST
        await owner.execute("DROP OWNED BY worker; DROP ROLE worker")


async def test_transaction_of_the_application(service, tmp_path, monkeypatch):
    """One that uses the tables is waited for, but nobody waits for long behind the migration."""
    monkeypatch.setattr(
        "invsvc_async.durable.store.postgres._SHORT_LOCK_TIMEOUT",
        "SET LOCAL lock_timeout = '100ms'",
    )
    async with (
        golden(service, FIRST, "outbox", "postgres", tmp_path) as place,
        owner_of(place) as (owner, schema),
        client_of(service) as client,
    ):
        await owner.execute("BEGIN")
        lock = f"LOCK TABLE {schema}.entries IN ROW EXCLUSIVE MODE"
        await owner.execute(lock)
        opening = asyncio.create_task(open_outbox(place, client))
        await asyncio.sleep(0.5)
        async with connected(place.partition("&")[0]) as other:
            async with asyncio.timeout(60):
                await other.execute(f"BEGIN; {lock}; COMMIT")
        assert not opening.done()
        await owner.execute("COMMIT")
        async with asyncio.timeout(300):
            await opening


async def open_outbox(place, client):
    async with Outbox.open(place, client) as outbox:
        assert outbox._store.store.version == LAST


# --- the tables themselves


def tables_of(path):
    """Return the definitions of the tables of a file, by name."""
    with closing(sqlite3.connect(path)) as connection:
        text = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"
        return {
            name: re.sub(r"\s+", "", sql).replace('"', "")
            for name, sql in connection.execute(text)
        }


@pytest.mark.parametrize("kind", ["batch", "journal"])
@pytest.mark.parametrize("which", DATABASES)
async def test_tables_as_those_of_a_new_store(service, tmp_path, which, kind):
    """A store that was brought up to date has the tables of a new one."""
    async with golden(service, FIRST, kind, which, tmp_path) as place:
        if which == "sqlite":
            new = tmp_path / "new.db"
            for each in (place, new):
                await opened_once(kind, each, service)
            assert tables_of(place) == tables_of(new)
            return
        new = place.replace("=golden", "=anew")
        texts = []
        for each in (place, new):
            await opened_once(kind, each, service)
            name = re.search(r"=(golden|anew)", each)[1]
            text = await text_of_schema(
                place.partition("&")[0],
                "--schema-only",
                f"--schema=invoicing_{kind}_{name}*",
            )
            texts.append(sorted(text.replace(f"_{name}", "").splitlines()))
        assert texts[0] == texts[1]


async def opened_once(kind, place, service):
    if kind == "batch":
        async with opened(place):
            return
    async with client_of(service, journal=place) as client:
        await client.outcome_of("of nobody")


# --- stores of events


def further_of_events(statement):
    """Return the migrations of a store of events, and one more."""
    more = Migration(SCHEMA.version + 1, (statement,))
    return Schema(SCHEMA.anew, (*SCHEMA.migrations, more))


@pytest.mark.parametrize("which", DATABASES)
async def test_further_migration_of_events(tmp_path, which, monkeypatch):
    """It runs once, also if several open the store at once; then older code refuses it."""
    column = "ALTER TABLE {t} ADD COLUMN more bigint"
    later = further_of_events(column)
    async with golden_events(FIRST, which, tmp_path) as place:
        with monkeypatch.context() as patched:
            for module in (events_in_postgres, events_in_sqlite):
                patched.setattr(module, "SCHEMA", later)
            stores = [store_at(place) for _ in range(4)]
            await asyncio.gather(*(store.open() for store in stores))
            assert not await stores[0].put(Delivery(key="open", type="x", body=b"{}"))
            for store in stores:
                await store.close()
        known = f"its tables have version {later.version}, and this"
        with pytest.raises(JournalError, match=known):
            await store_at(place).open()


async def test_table_of_events_whose_upgrade_takes_long(tmp_path, monkeypatch):
    """It may take longer than a statement for a delivery, since it reads the whole table."""
    # reaches: a large table else
    monkeypatch.setattr(events_in_postgres, "_TIMEOUT", 3.0)
    # sleeps: in the server, longer than that
    monkeypatch.setattr(
        events_in_postgres, "SCHEMA", further_of_events("SELECT pg_sleep(4)")
    )
    async with golden_events(FIRST, "postgres", tmp_path) as place:
        store = store_at(place)
        await store.open()
        assert not await store.put(Delivery(key="open", type="x", body=b"{}"))
        await store.close()


async def test_role_that_may_not_change_the_table_of_events(tmp_path, monkeypatch):
    """It is told so, and nothing is changed."""
    column = "ALTER TABLE {t} ADD COLUMN more bigint"
    later = further_of_events(column)
    async with (
        golden_events(FIRST, "postgres", tmp_path) as place,
        connected(place) as owner,
    ):
        await owner.execute(
            "DROP ROLE IF EXISTS receiver; CREATE ROLE receiver LOGIN; "
            "GRANT ALL ON ALL TABLES IN SCHEMA public TO receiver"
        )
        theirs = place.replace("postgres:@", "receiver:@")
        monkeypatch.setattr(events_in_postgres, "SCHEMA", later)
        with pytest.raises(JournalError, match="Let its owner open the store once"):
            await store_at(theirs).open()
        await owner.execute("DROP OWNED BY receiver; DROP ROLE receiver")
