"""Golden stores, put where a test can open them, beside a service that has done what theirs had done."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import asynccontextmanager, closing
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from invsvc_async.durable.store.migrations import schema_of
from invsvc_async.events.stores.postgres import PostgresStore
from invsvc_async.events.stores.sqlite import SqliteStore
from tests.support.database import connected, database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from invsvc_async.simulator import Simulator

HERE = Path(__file__).parent
VERSIONS = sorted(each.name for each in HERE.glob("v*"))
KINDS = ("journal", "batch", "outbox")
DATABASES = ("sqlite", "postgres")
LAST = schema_of(counted=True).version  # of the tables that this version makes


def _digest(text: str, size: int) -> str:
    return blake2b(text.encode(), digest_size=size).hexdigest()


def names_of(base_url: str, api_key: str) -> list[str]:
    """Return what stores contain that is made of the base URL, in one order for all base URLs."""
    key = base_url.encode()[:64]
    mine = blake2b(api_key.encode(), key=key, digest_size=12).hexdigest()
    return [
        base_url,
        mine,
        _digest(f"{base_url} ", 8),  # the namespace of keys
        _digest(f"{base_url} ", 6),  # the schema of a journal in PostgreSQL
        _digest(f"{base_url} {mine}", 6),  # that of an outbox
    ]


def text_of(
    version: str, kind: str, which: str, made: dict[str, Any], service: Simulator
) -> str:
    """Return the text of a golden store, as if it had been made beside *service*."""
    text = (HERE / version / f"{kind}.{which}.sql").read_text()
    before = names_of(made["base_url"], service.api_key)
    now = names_of(service.base_url, service.api_key)
    for old, new in zip(before, now, strict=True):
        text = text.replace(old, new)
    return text


async def do_again(service: Simulator, effects: list[dict[str, Any]]) -> None:
    """Let *service* do what the service of a golden store had done, at the times at which that did it."""
    service.seed_webhook()
    headers = {"Authorization": f"Bearer {service.api_key}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        for each in effects:
            service.clock.offset = each["at"] - time.time()
            url = f"{service.base_url}{each['path']}".replace("{id}", str(each["id"]))
            request = partial(session.request, each["method"], url)
            async with request(json=each["body"]) as answer:
                assert answer.ok, await answer.text()
            assert service.ledger.entries[-1].target == each["target"]
    service.clock.offset = 0.0


def load_file(path: Path, text: str) -> None:
    """Make the file at *path*, and the file beside it that has the count of its sends."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(text)
        facts = "SELECT name FROM sqlite_master WHERE name = 'facts'"
        if not connection.execute(facts).fetchall():
            return
        found = dict(connection.execute("SELECT name, value FROM facts").fetchall())
    if "epoch" in found:
        count = json.dumps([found["epoch"], int(found["sends"])])
        path.with_name(f"{path.name}.epoch").write_text(f"{count:<79}\n")


@asynccontextmanager
async def golden(
    service: Simulator, version: str, kind: str, which: str, folder: Path
) -> AsyncIterator[str | Path]:
    """Yield the place of a golden store; *service* has done what is stored there."""
    made = json.loads((HERE / version / f"{kind}.json").read_text())[which]
    await do_again(service, made["effects"])
    text = text_of(version, kind, which, made, service)
    if which == "sqlite":
        path = folder / "store.db"
        load_file(path, text)
        if kind == "outbox":
            beside = f"{path.name}-outbox-{_digest(service.base_url, 4)}"
            more = text_of(version, "outbox.beside", which, made, service)
            load_file(path.with_name(beside), more)
        yield path
        return
    async with database().fresh(f"golden_{kind}") as address:
        async with connected(address) as connection:
            await connection.execute(text)
            [name] = await schemas(connection)
            # It is no copy, as far as it knows.
            await connection.execute(
                f"DELETE FROM {name}.facts WHERE name LIKE 'place %'"
            )
        yield f"{address}&{kind}=golden&silence=1"


async def schemas(connection: Any) -> list[str]:
    """Return the schemas of the stores in a database."""
    text = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'invoicing_%'"
    return [name for (name,) in await connection.fetch(text)]


@asynccontextmanager
async def golden_events(version: str, which: str, folder: Path) -> AsyncIterator[str]:
    """Yield the path or the address of a golden store of events."""
    text = (HERE / version / f"events.{which}.sql").read_text()
    if which == "sqlite":
        load_file(folder / "events.db", text)
        yield str(folder / "events.db")
        return
    async with database().fresh("golden_events") as address:
        async with connected(address) as connection:
            await connection.execute(text)
        yield address


def store_at(place: str) -> SqliteStore | PostgresStore:
    """Return the store of events at *place*, not open."""
    return PostgresStore(place) if "://" in place else SqliteStore(place)
