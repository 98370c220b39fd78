"""Journals that an earlier commit has made: they open, what they hold goes on, and new writes follow."""

from __future__ import annotations

import base64
import json
import sqlite3
import time
from pathlib import Path

import pytest
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from invsvc_async import Verdict
from invsvc_async.batch import Batch
from invsvc_async.batch.identity import thing_of
from invsvc_async.batch.journals.postgres import PostgresBatch
from invsvc_async.journal.sqlite_entries import _APPLICATION, _TABLES, SCHEMA
from invsvc_async.simulator import Simulator
from invsvc_async.simulator.state import Clock
from tests.batch.conftest import client_of
from tests.batch.journals.old_schemas import BEFORE_STATES, old_schema
from tests.batch.writing import all_of
from tests.support.database import database

JOURNALS = sorted(Path(__file__).parent.glob("*.json"))


def loaded(path, base_url):
    """Read a journal as it was stored, of a service that is at *base_url* now."""

    def bytes_of(plain):
        return base64.b64decode(plain["base64"]) if plain.keys() == {"base64"} else plain

    return json.loads(path.read_text().replace("BASE_URL", base_url), object_hook=bytes_of)


def inserts(tables):
    """Return the statements that fill the tables; ``?`` stands for a value."""
    for table, rows in tables.items():
        for row in rows:
            marks = ", ".join("?" * len(row))
            yield f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values())  # noqa: S608 - our own text


def into_file(tables, path):
    with sqlite3.connect(path) as connection:
        connection.executescript(
            f"{_TABLES} PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {SCHEMA}"
        )
        for text, values in inserts(tables):
            connection.execute(text, values)
    connection.close()


async def into_database(tables, name):
    async with old_schema(f"invsvc_{name}", BEFORE_STATES) as connection:
        await connection.execute("DELETE FROM facts")
        for text, values in inserts(tables):
            marks = (f"${number}" for number in range(1, len(values) + 1))
            await connection.execute(text.replace("?", "{}").format(*marks), *values)
        for table, column in (("entries", "seq"), ("chunks", "id")):
            text = f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), 1000)"
            await connection.execute(text)
        for chunk in tables["chunks"]:
            if not chunk["done"]:
                await Queries(AsyncpgDriver(connection)).enqueue("invsvc_chunk", str(chunk["id"]).encode())


def seed(service, things):
    """Create in the service what it had when the journal was made."""
    for journey in things["journeys"]:
        if journey["id"] not in service.book().journeys.items:
            service.seed_journey(**journey)
    for hook in things["webhooks"]:
        service.seed_webhook(**hook)


def path_of(whole, key):
    """Return the id of the thing that the write of *key* writes to."""
    [entry] = [each for each in whole["tables"]["entries"] if each["key"] == key]
    text = entry["intent"] or entry["outcome"]
    plain = json.loads(text)
    return plain["path"]["id"] if "path" in plain else plain["thing"]


@pytest.mark.parametrize("stored", JOURNALS, ids=lambda path: path.stem)
async def test_journal_of_before(stored, tmp_path):
    """What was in flight is settled, the order of writes is kept, a bare claim is a guess, and new writes go on."""
    made = max(row["done_at"] or 0 for row in loaded(stored, "")["tables"]["entries"]) / 1000
    async with Simulator(
        clock=Clock(offset=made + 3600 - time.time())
    ) as service:  # an hour after it was made
        whole = loaded(stored, service.base_url)
        seed(service, whole["things"])
        if "chunks" in whole["tables"]:
            name = f"old{stored.stem.partition('-')[0]}"
            journal = database().journal(name, silence=1)
            await into_database(whole["tables"], name)
        else:
            journal = tmp_path / "run.db"
            into_file(whole["tables"], journal)
        async with (
            client_of(service) as client,
            Batch.open(journal, client, tag=False, same_mode=True) as batch,
        ):
            assert (await batch.summary()).total == 8
            assert client._view.session.writes.claims[path_of(whole, "made")] == ("made", False)
            assert await batch.retry(verdict=Verdict.REFUSED) == 1
            behind = client.journeys.update(path_of(whole, "c1"), name="c2").keyed("c2")
            first = {result.key: result.verdict for result in await all_of(batch, [behind])}
            assert await batch.retry(verdict=Verdict.UNKNOWN) == 3
            second = {result.key: result.verdict for result in await all_of(batch)}
            journey, hook = path_of(whole, "a2"), path_of(whole, "k1")
            new = [
                client.journeys.update(journey, name="a3").keyed("a3"),
                client.webhooks.update(hook, description="k2").keyed("k2"),
            ]
            third = {result.key: result.verdict for result in await all_of(batch, new)}
            summary = await batch.summary()
    # Long after it was sent, the absence of d1 proves nothing.
    assert first == {
        "a1": Verdict.NOT_APPLIED,
        "c1": Verdict.APPLIED,
        "c2": Verdict.APPLIED,
        "d1": Verdict.UNKNOWN,
    }
    assert second == {"b1": Verdict.APPLIED, "u1": Verdict.APPLIED, "d1": Verdict.UNKNOWN}
    assert third == {"a3": Verdict.APPLIED, "k2": Verdict.APPLIED}
    assert (summary.total, summary.to_do, summary.sending) == (11, 0, 0)
    assert [entry.body["name"] for entry in service.ledger.effects("journeys.update")] == ["c2", "b1", "a3"]


async def test_things_are_named_anew(client):
    """Entries of a shared journal that are open get the names by which new writes to their things go."""
    address, write = database().journal("namedanew", silence=1), client.webhooks
    url = "https://ME.example/in?a=1#part"
    hook = {"url": url, "events": ["invoice.created"]}
    before = {  # what stood in the column, and a write to the same thing
        "None /journeys/jrn_1": client.journeys.update("jrn_1", name="x"),
        "team_1 /webhooks/wh_1": write.update("wh_1", description="x", team="team_1"),
        "team_2 /webhooks/wh_2": write.delete("wh_2", team="team_2"),
        "None /sheets/mapping": client.sheets.save_mapping({"a": "b"}),
        "team_1 /raw/thing": client.write("PUT", "/raw/thing", json={}),
        "None new https://me.example/in?a=1#part ": write.create(**hook),
        "team_1 new https://me.example/in?a=1#part my own text": write.create(**hook, tag="my own text"),
    }
    made = PostgresBatch(address)
    await made.open()
    for number, (thing, each) in enumerate(before.items()):
        text = "INSERT INTO entries (key, chunk, thing, content, state, run, operation) VALUES ($1, $2, $1, '', 0, 1, $3)"
        await made.fetch(text, thing, number, each._spec.operation.name)
        each.close()
    for _ in range(2):  # what has its new name keeps it
        await made.fetch("DROP TABLE states")
        await made.fetch("UPDATE facts SET value = '1' WHERE name = 'schema'")
        await made.aclose()
        await made.open()
        rows = {row["key"]: row for row in await made.fetch("SELECT key, thing, chunk FROM entries")}
    await made.aclose()
    for thing, each in before.items():
        spec = each._spec
        request = spec.request
        assert rows[thing]["thing"] == thing_of(request, request.team, spec.tag)
    chunks = [rows[thing]["chunk"] for thing in before]
    assert chunks == [0, 1, 2, 3, 4, 5, 5]  # one chunk for one thing
