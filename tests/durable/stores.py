"""Stores of the tests, of both kinds, and entries in them."""

from __future__ import annotations

import sqlite3
from contextlib import asynccontextmanager, closing

from invsvc_async.durable.entry import State
from invsvc_async.durable.leases import Leases
from invsvc_async.durable.store.postgres import PostgresStore
from invsvc_async.durable.store.sqlite import SqliteStore
from invsvc_async.durable.store.tables import Opening
from tests.support.database import database

KINDS = ("PostgreSQL", "SQLite")
SENT = '{"sent":[{"attempt_timeout":30}],"nonce":"a"}'
SCAN = f"""
SELECT state, coalesce(verdict, ''), CASE WHEN outcome LIKE '%"had":"lost"%' THEN 1 ELSE 0 END
    + CASE WHEN outcome LIKE '%"overtaken":true%' THEN 2 ELSE 0 END, count(*) FROM {{s}}entries
    WHERE state <> {State.DONE:d} OR outcome IS NOT NULL GROUP BY 1, 2, 3
"""
COUNTED = """
SELECT state, verdict, flags, CAST(sum(many) AS bigint) FROM {s}counts GROUP BY state, verdict, flags
"""
_INSERT = """
INSERT INTO {s}entries (place, key, lane, thing, digest, operation, state, intent)
SELECT given.at, given.key, 1, given.thing, '', 'webhooks.update', 0, '{}'
FROM {rows 1 at:bigint key:text thing:text} WHERE true RETURNING seq
"""


def store_of(kind, folder, name, *, lanes=2, counted=True):
    """Return a store of a batch in *folder*, or in the database under *name*; not open yet."""
    how = Opening("batch", lanes, counted=counted, run_by="the batch")
    if kind == "SQLite":
        return SqliteStore(folder / "store.db", how)
    address = database().journal(f"s{abs(hash(name))}", silence=60)
    return PostgresStore(address, how)


@asynccontextmanager
async def opened(store):
    await store.open_for(None, same_mode=False)
    try:
        await store.check_place()
        yield store
    finally:
        await store.aclose()


async def lanes_of(store, clock, most=1):
    """Return lanes that a new process has acquired."""
    leases = Leases(store, clock)
    await leases.beat()
    return await leases.take(most)


async def fill(store, *keys, thing="thing"):
    """Insert entries with these keys; return them, with intents that say nothing of a send."""
    await store.rows(
        _INSERT, [(number, key, thing) for number, key in enumerate(keys, 1)]
    )
    return await store.entries("e.key {any 1 text} ORDER BY e.place", [*keys])


async def end(lane, entry, verdict="refused", done_at=None):
    """Store the verdict of *entry*, as if it had come at *done_at* (epoch ms), if that is given."""
    entry.state, entry.verdict, entry.outcome, entry.done_at = (
        State.DONE,
        verdict,
        "{}",
        done_at or 1000,
    )
    await lane.put(entry)
    if done_at is None:
        return
    text = "UPDATE {s}entries SET done_at = {arg 1 bigint} WHERE seq = $2 AND done_at IS NOT NULL"
    await lane.leases.store.rows(text, done_at, entry.seq)


async def numbers(store, text, *values):
    """Return the first column of rows."""
    return [number for (number,) in await store.rows(text, *values)]


def rows_in(path, columns="key, state"):
    """Return columns of the entries in the file at *path*, in use or not."""
    with closing(sqlite3.connect(path)) as looking:
        return looking.execute(f"SELECT {columns} FROM entries ORDER BY seq").fetchall()


def spoil(path, *texts):
    """Change something in the file at *path*, which nobody has."""
    with closing(sqlite3.connect(path)) as spoiling:
        for text in texts:
            spoiling.execute(text)
        spoiling.commit()


async def unheard(store):
    """Return the numbers of entries whose verdict nobody has acknowledged."""
    return await numbers(store, "SELECT seq FROM {s}unheard ORDER BY seq")


async def counts(store, text=COUNTED):
    """Return the counts that *store* keeps, by state, verdict and flags."""
    return {tuple(which): many for *which, many in await store.rows(text) if many}


async def copy_tables(store, *names):
    """Copy tables of a store in PostgreSQL, as a backup does."""
    for name in names:
        await store.rows(f"CREATE TABLE {{s}}{name}_before AS TABLE {{s}}{name}")


async def put_tables_back(store, *names):
    """Put copies of tables back as a restore does, on another timeline of the server."""
    for name in names:
        await store.rows(f"TRUNCATE {{s}}{name}")
        await store.rows(f"INSERT INTO {{s}}{name} TABLE {{s}}{name}_before")
    await go_to_another_timeline(store)


async def go_to_another_timeline(store):
    """Let the server of a store be another one than that of its tables, as after a restore."""
    await store.rows(
        "UPDATE {s}facts SET value = '00000077' WHERE name = 'place timeline'"
    )
