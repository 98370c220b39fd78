"""Synchronous code enqueues into tables of an earlier version, which no process of this version has opened yet."""

from __future__ import annotations

import re
import sqlite3
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from invsvc_async import JournalError, Outbox
from invsvc_async.durable.entry import WRITTEN_NAMES
from invsvc_async.durable.store.migrations import schema_of
from invsvc_async.storage.schema import FIRST
from invsvc_async.writes.noted import NOTED_NAMES
from tests.batch.conftest import client_of
from tests.durable.test_noted import example_of
from tests.golden.loading import golden, schemas
from tests.support.database import connected

pytestmark = pytest.mark.one_python

MIGRATIONS = {
    each.version: each.statements for each in schema_of(counted=False).migrations
}
# The columns that 0.1.0 does not make, and for which a new write may have a value; the first version of each.
LATER = {
    name: version
    for version, statements in MIGRATIONS.items()
    for name in re.findall(r"ADD COLUMN (\w+) ", " ".join(statements))
    if name in {*WRITTEN_NAMES, "not_before"}
}
STATEMENTS = 3  # of an enqueue: find the outbox, store the common part, insert


class Counted(psycopg.Cursor):
    """A cursor that notes its statements."""

    noted: list[str] = []  # noqa: RUF012 - of all of them

    def execute(self, query, *arguments, **settings):
        self.noted.append(query)
        return super().execute(query, *arguments, **settings)


def too_old_for(name):
    """Return the pattern of the error for tables that lack the column *name*."""
    return (
        f"^{name}: cannot be stored, .* of an earlier version .* Nothing was inserted"
    )


def enqueue(outbox, connection, client, name=None):
    """Enqueue a write that has *name*, one of ``LATER``, or none of them."""
    owner = client.for_team("team_9") if name == "team" else client
    notes = {name: example_of(name).given} if name in NOTED_NAMES else {}
    write = owner.webhooks.update("wh_1", description="x").keyed("new", **notes)
    when = datetime.now(UTC) + timedelta(days=1) if name == "not_before" else None
    return outbox.enqueue_sync(connection, write, not_before=when)


async def upgrade(owner, schema, version):
    """Bring the tables in *schema* from the version before up to *version*."""
    for text in MIGRATIONS[version]:
        if "{sqlite}" not in text:
            await owner.execute(
                text.replace("{s}", f"{schema}.").replace("{at}", "strpos")
            )


async def test_tables_of_each_version_in_postgres(service, tmp_path):
    """What they cannot store is named, and nothing is inserted; all else goes on, in as many statements as ever."""
    async with (
        golden(service, "v0_1_0", "outbox", "postgres", tmp_path) as place,
        client_of(service) as client,
        connected(address := place.partition("&")[0]) as owner,
    ):
        [schema] = await schemas(owner)
        inserted = (
            f"SELECT (SELECT count(*) FROM {schema}.entries WHERE key = 'new'), "
            f"(SELECT count(*) FROM {schema}.commons)"
        )
        before = (await owner.fetchrow(inserted))[1]
        outbox = Outbox.open(place, client)
        with psycopg.connect(address, cursor_factory=Counted) as connection:
            for version in (FIRST, *MIGRATIONS):
                if version > FIRST:
                    await upgrade(owner, schema, version)
                for name in (None, *LATER):
                    is_lacking = name is not None and version < LATER[name]
                    with connection.transaction(force_rollback=True):
                        Counted.noted.clear()
                        if is_lacking:
                            with pytest.raises(JournalError, match=too_old_for(name)):
                                enqueue(outbox, connection, client, name)
                        else:
                            enqueue(outbox, connection, client, name)
                            assert len(Counted.noted) == STATEMENTS
                        entries, commons = connection.execute(inserted).fetchone()
                    is_stored = (entries == 1, commons > before)
                    assert is_stored == (not is_lacking, not is_lacking)


async def test_several_at_once(service, tmp_path):
    """Each of what the tables cannot store is named; the transaction of the application goes on."""
    async with (
        golden(service, "v0_1_0", "outbox", "postgres", tmp_path) as place,
        client_of(service) as client,
    ):
        outbox = Outbox.open(place, client)
        url = place.partition("&")[0].replace("postgresql", "postgresql+psycopg", 1)
        engine = create_engine(url, poolclass=NullPool)
        team = client.for_team("team_9")
        write = team.webhooks.update("wh_1", description="x")
        with Session(engine) as session, session.begin():
            with pytest.raises(JournalError, match=r"^labels, team: "):
                outbox.enqueue_sync(session, write.keyed("new", labels={"a": "b"}))
            enqueue(outbox, session, client)
        engine.dispose()
        async with Outbox.open(place, client) as opened, opened.dispatching():
            await opened.wait("new")


async def test_table_of_the_first_version_in_a_file(service, tmp_path):
    """The same; once this version has opened the file, all can be enqueued."""
    async with (
        golden(service, "v0_1_0", "outbox", "sqlite", tmp_path) as place,
        client_of(service) as client,
    ):
        outbox = Outbox.open(place, client)
        connection = sqlite3.connect(place, isolation_level=None)
        try:
            for name in (None, *LATER):
                connection.execute("BEGIN")
                if name is None:
                    enqueue(outbox, connection, client)
                else:
                    with pytest.raises(JournalError, match=too_old_for(name)):
                        enqueue(outbox, connection, client, name)
                connection.execute("ROLLBACK")
            async with Outbox.open(place, client):
                pass
            for name in (None, *LATER):
                connection.execute("BEGIN")
                enqueue(outbox, connection, client, name)
                connection.execute("ROLLBACK")
        finally:
            connection.close()
