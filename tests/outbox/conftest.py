"""A database of the tests, outboxes in it, and the connections of an application."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import aiosqlite
import asyncpg
import psycopg
import pytest
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.pool import NullPool

from invsvc_async import Outbox
from invsvc_async.durable.store.noted import Chosen
from tests.batch.conftest import client, client_of, silence_of  # noqa: F401 - pytest finds the first by name
from tests.support.away_at_start import away, sooner  # noqa: F401 - pytest finds them by name
from tests.support.database import database
from tests.support.inside import outbox_entries, store_beneath
from tests.support.waiting import until


def outbox_at(name: str, **settings: object) -> str:
    return database().at(outbox=name, **settings)


@pytest.fixture
def address(request):
    """
    Return the address of an outbox for this test.

    No process counts as dead on a busy machine, unless the test is marked with ``silence``.
    """
    return outbox_at(f"t{abs(hash(request.node.nodeid))}", silence=silence_of(request))


@pytest.fixture(params=["PostgreSQL", "SQLite"])
def place(request, address, tmp_path):
    """Return the place of an outbox in each database."""
    return address if request.param == "PostgreSQL" else tmp_path / "app.db"


@pytest.fixture
async def outbox(address, client):  # noqa: F811 - a fixture
    async with Outbox.open(address, client) as opened:
        yield opened


@pytest.fixture
async def connection():
    made = await asyncpg.connect(database().address)
    yield made
    await made.close()


class Rollback(Exception):  # noqa: N818 - it is no error
    """Ends a transaction without a commit."""


@asynccontextmanager
async def engine_at(driver, path=None, **settings):
    """Yield an engine of SQLAlchemy, for the tests' database or the file at *path*."""
    address = database().address.replace("postgresql", f"postgresql+{driver}", 1)
    engine = create_async_engine(
        address if path is None else f"sqlite+{driver}:///{path}",
        poolclass=NullPool,
        **settings,
    )
    try:
        yield engine
    finally:
        await engine.dispose()


@asynccontextmanager
async def of_asyncpg(_path=None):
    made = await asyncpg.connect(database().address)
    try:
        yield made, made.transaction
    finally:
        await made.close()


@asynccontextmanager
async def of_asyncpg_pool(_path):
    async with (
        asyncpg.create_pool(database().address, min_size=1, max_size=1) as pool,
        pool.acquire() as made,
    ):
        yield made, made.transaction


@asynccontextmanager
async def of_psycopg(_path=None, **settings):
    async with await psycopg.AsyncConnection.connect(
        database().address, **settings
    ) as made:
        yield made, made.transaction


def dict_row(cursor, row):
    """Return a row as the recipe in Python's documentation does."""
    return dict(zip([column[0] for column in cursor.description], row, strict=True))


@asynccontextmanager
async def of_aiosqlite(path, rows=None):
    async with aiosqlite.connect(path) as made:
        made.row_factory = rows

        @asynccontextmanager
        async def transaction():
            await made.execute("BEGIN")
            try:
                yield
            except BaseException:
                await made.rollback()
                raise
            await made.commit()

        yield made, transaction


@asynccontextmanager
async def of_scoped_session(_path):
    async with engine_at("asyncpg") as engine:
        made = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
        yield made, made.begin
        await made.remove()


@asynccontextmanager
async def of_session(driver, path):
    async with engine_at(driver, path) as engine, AsyncSession(engine) as made:
        yield made, made.begin


@asynccontextmanager
async def of_engine(driver, path):
    async with engine_at(driver, path) as engine, engine.connect() as made:
        yield made, made.begin


CONNECTIONS = {
    "asyncpg": of_asyncpg,
    "asyncpg's pool": of_asyncpg_pool,
    "psycopg": of_psycopg,
    "psycopg's raw cursors": lambda path: of_psycopg(
        path, cursor_factory=psycopg.AsyncRawCursor
    ),
    "aiosqlite": of_aiosqlite,
    "aiosqlite with rows as dicts": lambda path: of_aiosqlite(path, rows=dict_row),
    "AsyncSession on asyncpg": lambda path: of_session("asyncpg", path),
    "AsyncSession on psycopg": lambda path: of_session("psycopg", path),
    "AsyncSession on aiosqlite": lambda path: of_session("aiosqlite", path),
    "scoped session": of_scoped_session,
    "AsyncConnection on asyncpg": lambda path: of_engine("asyncpg", path),
}


async def verdict_of(outbox, key, seconds=300.0):
    return await until(lambda: outbox.get(key), every=0.02, within=seconds)


def written(entries, hook=None):
    """Return what updates have written, to *hook* or to all, in their order."""
    return [
        entry.body["description"] for entry in entries if hook in (None, entry.path_id)
    ]


async def verdicts_of(outbox, keys):
    return [(await verdict_of(outbox, key)).verdict for key in keys]


async def spoil(outbox, before, after):
    """Replace a text in what is stored of each write, as if another version of the code had stored it."""
    text = "UPDATE {} SET intent = replace(intent, $1, $2)"
    await store_beneath(outbox).rows(text.format("{s}entries"), before, after)
    if outbox_entries(outbox).enqueuing.database == "SQLite":
        text = text.format("invsvc_outbox").replace("$", "?")
        await outbox_entries(outbox).file.table.act(
            lambda own: own.execute(text, (before, after)).rowcount
        )


@asynccontextmanager
async def transaction_of(outbox):
    """Yield a connection of an application to the database of *outbox*, in a transaction."""
    if outbox_entries(outbox).enqueuing.database == "PostgreSQL":
        made = await asyncpg.connect(database().address)
    else:
        made = await aiosqlite.connect(
            outbox_entries(outbox).file.path, isolation_level=None
        )
    try:
        await made.execute("BEGIN")
        yield made
        await made.execute("COMMIT")
    finally:
        await made.close()


async def enqueue(outbox, *writes):
    """Enqueue *writes* in one transaction, and return their keys."""
    async with transaction_of(outbox) as made:
        return [await outbox.enqueue(made, write) for write in writes]


async def finished(outbox, *writes):
    """Enqueue and send writes, whose verdicts nobody has had; return their keys."""
    keys = await enqueue(outbox, *writes)
    async with outbox.dispatching():
        await verdicts_of(outbox, keys)
    return keys


async def ended(outbox, *writes):
    """Enqueue writes while something dispatches, and return their verdicts."""
    return await verdicts_of(outbox, await enqueue(outbox, *writes))


def update(client, service, text="mine", hook=None):  # noqa: F811 - no fixture
    """Return an update of *hook*, or of a new webhook."""
    return client.webhooks.update(hook or service.seed_webhook().id, description=text)


def changes(client, hook, *texts):  # noqa: F811 - no fixture
    """Return updates of *hook*, one for each text."""
    return [client.webhooks.update(hook, description=text) for text in texts]


async def entries_of(outbox, state=None):
    """Return the first entries, as commands show them."""
    return await outbox_entries(outbox).first(100, Chosen(state=state))


async def untold(outbox):
    """Return the last error of ``on_result`` by key."""
    facts = await outbox_entries(outbox).facts.beginning("untold ")
    return {name.split(" ", 2)[2]: error for name, error in facts.items()}


__all__ = [
    "CONNECTIONS", "Rollback", "changes", "ended", "engine_at", "enqueue", "entries_of", "finished", "of_asyncpg",
    "of_psycopg", "outbox_at", "spoil", "transaction_of", "untold", "update", "verdict_of", "verdicts_of", "written",
]  # fmt: skip
