"""
Make a journal of each kind, with the package that is on the path, and store it as JSON beside this module.

    PYTHONPATH=CHECKOUT:. python -m tests.batch.journals.make NAME

It holds writes that are done, unknown and in flight, on journeys and webhooks, and an untagged create.  The
JSON has the rows of the journal's tables, and the things of the service as they were at the end.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
import sys
import tempfile
from pathlib import Path

import asyncpg

from invsvc_async.batch import Batch
from invsvc_async.simulator import Simulator
from tests.batch.conftest import HOOK, client_of
from tests.support.database import database

TABLES = ("facts", "commons", "chunks", "entries")


def begun(client, journeys, hooks):
    """Return the writes that finish, each with its verdict and the faults that cause it."""
    update, describe = client.journeys.update, client.webhooks.update
    return [
        (update(journeys[0].id, name="a1"), "a1", "refused", {"journeys.update": ["403"]}),
        (update(journeys[0].id, name="a2"), "a2", "applied", {}),
        (
            update(journeys[1].id, name="b1"), "b1", "unknown",
            {"journeys.update": ["reset"], "journeys.get": ["403"]},
        ),
        (describe(hooks[0].id, description="k1"), "k1", "applied", {}),
        (
            describe(hooks[1].id, description="u1"), "u1", "unknown",
            {"webhooks.update": ["apply, then reset"], "webhooks.get": ["pass", "403"]},
        ),
        (client.webhooks.create(**HOOK), "made", "applied", {}),
    ]  # fmt: skip


def in_flight(client, journeys, hooks):
    """Return the writes that are in flight when the process ends."""
    return [
        client.journeys.update(journeys[2].id, name="c1").keyed("c1"),  # applied
        client.webhooks.update(hooks[2].id, description="d1").keyed("d1"),  # not applied
    ]


async def fill(service, journal):
    """Fill the journal at *journal*."""
    journeys = [service.seed_journey(name="before") for _ in range(3)]
    hooks = [service.seed_webhook(description="before") for _ in range(3)]
    async with client_of(service) as client:
        await client.webhooks.list()  # by which the service's clock is known
        for write, key, verdict, faults in begun(client, journeys, hooks):
            for operation, steps in faults.items():
                service.script(operation, *steps)
            async with Batch.open(journal, client, tag=False) as batch:
                [result] = [result async for result in batch.run([write.keyed(key)])]
                assert result.verdict == verdict, result
        async with Batch.open(journal, client, tag=False) as batch:
            service.script("journeys.update", "apply, then hang")
            service.script("webhooks.update", "hang")

            async def run():
                async for _ in batch.run(in_flight(client, journeys, hooks)):
                    pass

            running = asyncio.create_task(run())
            await service.arrived("journeys.update", 4)
            await service.arrived("webhooks.update", 3)
            running.cancel()
            await asyncio.wait([running])


def rows_of_file(path):
    with sqlite3.connect(path) as connection:
        connection.row_factory = sqlite3.Row
        tables = [name for name in TABLES if name != "chunks"]
        found = {name: [dict(row) for row in connection.execute(f"SELECT * FROM {name}")] for name in tables}  # noqa: S608 - our own text
    connection.close()
    return found


async def rows_of_database(name):
    connection = await asyncpg.connect(database().address, server_settings={"search_path": f"invsvc_{name}"})
    found = {}
    for table in TABLES:
        rows = await connection.fetch(f"SELECT * FROM {table}")  # noqa: S608 - our own text
        found[table] = [dict(row) for row in rows]
    await connection.close()
    return found


def plain(value):
    """Encode what JSON has no form for: the bytes of a digest, and the exact numbers of a graph."""
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else float(value)


async def main(name: str) -> None:
    for kind in ("file", "database"):
        async with Simulator() as service:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "run.db"
                await fill(service, path if kind == "file" else database().journal("made", silence=1))
                tables = rows_of_file(path) if kind == "file" else await rows_of_database("made")
            book = service.book()
            things = {
                room: [dict(each) for each in getattr(book, room).items.values()]
                for room in ("journeys", "webhooks")
            }
            for hook in things["webhooks"]:
                hook.pop("secret", None)
            whole = {"base_url": service.base_url, "things": things, "tables": tables}
        target = Path(__file__).with_name(f"{name}-{kind}.json")
        text = json.dumps(whole, default=plain, indent=1)
        target.write_text(text.replace(service.base_url, "BASE_URL") + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
