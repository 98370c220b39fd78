"""
Make the stores that a released version leaves behind, as SQL text in a folder beside this file.

    python -m tests.golden.make VERSION

Run it once with the code of each release, before its tables change again.  What it makes is never made anew: the tests
show that each later version opens, continues, prunes and judges these stores.

For each kind of store there is a file for SQLite and one for PostgreSQL, and ``effects.json``: what the service had
done until then.  Some writes were cut off by a kill in the middle, so each kind is left as a crash leaves it.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invsvc_async import Client, Outbox, Verdict
from invsvc_async.batch import Batch
from invsvc_async.events.stores import Delivery
from invsvc_async.events.stores.postgres import PostgresStore
from invsvc_async.events.stores.sqlite import SqliteStore
from invsvc_async.simulator import Simulator
from invsvc_async.simulator.operations import BY_OPERATION
from tests.batch.child import begin
from tests.batch.conftest import HOOK, client_of
from tests.batch.writing import all_of, create_line, creates
from tests.durable.child import process
from tests.durable.queue_child import queue
from tests.durable.writing import create, cut_off, rename
from tests.outbox.conftest import enqueue, verdict_of
from tests.support.children import gone_after
from tests.support.database import connected, database

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HERE = Path(__file__).parent
DAY = 86_400.0  # s


# --- what is done in each store, the same in both databases


async def fill_journal(service: Simulator, place: Path | str) -> None:
    """Leave keyed writes in every state, and one without a key, in the journal of a client at *place*."""
    hook = service.seed_webhook().id
    service.script("webhooks.update", "hang")
    async with queue(service, place, "webhooks", hook, ("first", "to do")):
        await service.arrived("webhooks.update")
    async with client_of(service, journal=place) as client:
        await create(client, "done")
        await rename(client, "renamed", "renamed")
        service.script("webhooks.create", "422")
        refused = await create(client, "refused").outcome()
        assert refused.verdict is Verdict.REFUSED
        service.script("webhooks.create", "apply, then reset")
        lost = await create(client, "secret lost").outcome()
        assert (lost.verdict, lost.secret) == (Verdict.APPLIED, "lost")
        await _leave_unknown(service, client, "unknown")
        await _leave_unknown(service, client, "resolved")
        await client.resolve("resolved", applied=True, because="seen", by="ann")
        service.script("webhooks.create", "apply, then hang")
        await cut_off(service, create(client, "released"))
    for key, at in (
        ("unsent", "SIGKILL before the socket"),
        ("sending", "SIGKILL before the verdict"),
        ("unheard", "SIGKILL after the verdict"),
        (None, "SIGKILL before the verdict"),
    ):
        named = {} if key is None else {"key": key}
        url = f"https://me.example/{key}"
        arguments = {**HOOK, "url": url, **named}
        async with process(service, place, "webhooks.create", at, **arguments) as child:
            await child.wait()


async def _leave_unknown(service: Simulator, client: Client, key: str) -> None:
    service.script("sheets.save_mapping", "apply, then reset")
    outcome = await client.sheets.save_mapping({"a": "b"}).keyed(key).outcome()
    assert outcome.verdict is Verdict.UNKNOWN


async def fill_batch(service: Simulator, place: Path | str) -> None:
    """Leave results of all kinds, and the writes of a process that was killed, in the batch at *place*."""
    hook = service.seed_webhook().id
    async with (
        client_of(service) as client,
        Batch.open(place, client, on_secret=_give_up) as batch,
    ):
        await all_of(batch, creates(client, 2))
        await batch.prune(done_before=datetime.now(UTC) + timedelta(hours=1))
        service.script("webhooks.create", "apply, then reset")
        await all_of(batch, creates(client, 1, 2))
        service.script("webhooks.update", "422")
        older = client.webhooks.update(hook, description="older").keyed("older")
        newer = client.webhooks.update(hook, description="newer").keyed("newer")
        await all_of(batch, [older])
        await all_of(batch, [newer])
        assert await batch.retry(failed=True, keys=["older"]) == 1
        await all_of(batch)
        service.script("sheets.save_mapping", "apply, then reset")
        mapping = client.sheets.save_mapping({"a": "b"}).keyed("unknown")
        await all_of(batch, [mapping])
        summary = await batch.summary()
        assert (summary.secrets_lost, summary.overtaken) == (1, 1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "input.jsonl")
        lines = "".join(create_line(number) for number in range(10, 40))
        file.write_text(lines)  # noqa: ASYNC240 - nothing else runs
        dies = ("before it is done", 4)
        child = await begin(
            service.base_url, place, file, key=service.api_key, dies=dies
        )
        async with gone_after(child):
            await child.wait()


def _give_up(_key: str, _hook: object) -> None:
    """Take a secret."""


async def fill_outbox(service: Simulator, place: Path | str) -> None:
    """Leave verdicts that nobody was told, and writes that were cut off or not begun, in the outbox at *place*."""
    hook = service.seed_webhook().id
    async with client_of(service) as client, Outbox.open(place, client) as outbox:
        service.script("webhooks.create", "apply, then reset")
        service.script("sheets.save_mapping", "apply, then reset")
        writes = [
            client.webhooks.update(hook, description="told").keyed("told"),
            client.webhooks.update(hook, description="untold").keyed("untold"),
            client.webhooks.create(**HOOK).keyed("secret lost"),
            client.sheets.save_mapping({"a": "b"}).keyed("unknown"),
        ]
        keys = await _enqueue(outbox, place, *writes)
        async with outbox.dispatching():
            for key in keys:
                await verdict_of(outbox, key)
        results = outbox.results()
        assert (await anext(results)).key == "told"
        await anext(results)  # which acknowledges the one before
        await results.aclose()
        service.script("webhooks.create", "apply, then hang")
        arrivals = service.arrivals("webhooks.create") + 1
        sent = client.webhooks.create(**{**HOOK, "url": "https://me.example/sent"})
        await _enqueue(outbox, place, sent.keyed("sent"))
        async with outbox.dispatching(grace=0.0):
            await service.arrived("webhooks.create", arrivals)
        await _enqueue(
            outbox,
            place,
            client.webhooks.update(hook, description="to do").keyed("to do"),
            client.webhooks.update(hook, description="last").keyed("last"),
        )


async def _enqueue(outbox: Outbox, place: Path | str, *writes: Any) -> list[str]:
    """Enqueue *writes* in a transaction of an application in PostgreSQL, or of one in the same file."""
    if isinstance(place, Path):
        return await enqueue(outbox, *writes)
    address, _, _ = place.partition("&outbox=")  # noqa: ASYNC240 - it is a text
    async with connected(address) as connection, connection.transaction():
        return [await outbox.enqueue(connection, write) for write in writes]


async def fill_events(store: SqliteStore | PostgresStore) -> None:
    """Leave deliveries in every state in *store*."""
    await store.open()

    def event(key: str, **more: Any) -> Delivery:
        body = b'{"key": "%s"}' % key.encode()
        return Delivery(**{"key": key, "type": "invoice.created", "body": body, **more})

    for key in ("handled", "kept", "dead", "leased"):
        await store.put(event(key))
    found = {each.key: each for each in await store.take(limit=4, lease=DAY)}
    await store.handled(found["handled"])
    await store.handled(found["kept"], body=b'{"key": "kept"}')
    await store.bury(found["dead"], reason="it cannot be read")
    await store.put(event("open"))
    for key in ("first", "second"):
        await store.put(event(key, handler="of one", ordering_key="thing"))
    await store.claim(event("claimed", body=None), lease=DAY)
    await store.close()


# --- as text


def text_of_file(path: Path) -> str:
    """Return the database in the file at *path* as statements, also what a crash has left in its log."""
    with tempfile.TemporaryDirectory() as folder:
        for each in path.parent.glob(f"{path.name}*"):
            shutil.copy(each, folder)
        with closing(sqlite3.connect(Path(folder, path.name))) as connection:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            lines = [*connection.iterdump()]
    lines.insert(0, f"PRAGMA application_id = {application};")
    text = _of_no_machine(lines)
    return re.sub(r",Inf(?=[,)])", ",9e999", text)  # which no statement can say


async def text_of_schema(address: str, *options: str) -> str:
    """Return tables of the database at *address* as statements; *options* of ``pg_dump`` say which."""
    server = database()._server
    command = [server.bin_path / "pg_dump", "--inserts", "--no-owner", "--no-acl"]
    child = await asyncio.create_subprocess_exec(
        *map(str, command), *options, address, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await child.communicate()
    assert child.returncode == 0
    lines = out.decode().splitlines()
    kept = [line for line in lines if line and not line.startswith(("--", "\\", "SET"))]
    return _of_no_machine(kept)


def _of_no_machine(lines: Sequence[str]) -> str:
    """Return *lines* as a text that does not name this machine."""
    text = "\n".join([*lines, ""])
    return re.sub(rf"\b{re.escape(socket.gethostname())}\b", "host", text)


def effects_of(service: Simulator) -> list[dict[str, Any]]:
    """Return the requests that had an effect in *service*, in their order, with their times in epoch seconds."""
    effects = sorted(service.ledger.effects(), key=lambda each: each.applied_at or 0.0)
    began = time.time() - service.ledger.steady()
    return [
        {
            "at": round(began + (each.applied_at or 0.0), 3),
            "method": BY_OPERATION[each.operation].method,
            "path": BY_OPERATION[each.operation].path,
            "id": each.path_id,
            "body": each.body,
            "target": each.target,
        }
        for each in effects
    ]


async def make(kind: str, fill: Callable[..., Any], folder: Path) -> None:
    """Make the stores of a *kind* in both databases, each beside a service of its own."""
    made: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as work:
        file = Path(work, "store.db")
        async with Simulator() as service:
            await fill(service, file)
            made["sqlite"] = _of(service)
        for each in Path(work).iterdir():  # noqa: ASYNC240 - nothing else runs
            if found := re.fullmatch(r"store\.db(-outbox-[0-9a-f]{8})?", each.name):
                beside = ".beside" if found[1] else ""
                (folder / f"{kind}{beside}.sqlite.sql").write_text(text_of_file(each))
    async with database().fresh("golden") as address, Simulator() as service:
        place = f"{address}&{kind}=golden"
        await fill(service, place)
        made["postgres"] = _of(service)
        text = await text_of_schema(address, f"--schema=invoicing_{kind}_*")
        (folder / f"{kind}.postgres.sql").write_text(text)
    (folder / f"{kind}.json").write_text(json.dumps(made, indent=1) + "\n")


def _of(service: Simulator) -> dict[str, Any]:
    return {"base_url": service.base_url, "effects": effects_of(service)}


async def make_events(folder: Path) -> None:
    """Make the event stores."""
    with tempfile.TemporaryDirectory() as work:
        path = Path(work, "events.db")
        await fill_events(SqliteStore(path))
        (folder / "events.sqlite.sql").write_text(text_of_file(path))
    async with database().fresh("golden") as address:
        await fill_events(PostgresStore(address))
        text = await text_of_schema(address, "--table=invsvc_delivery")
        (folder / "events.postgres.sql").write_text(text)


async def main(version: str) -> None:
    folder = HERE / f"v{version.replace('.', '_')}"
    folder.mkdir()
    await make("journal", fill_journal, folder)
    await make("batch", fill_batch, folder)
    await make("outbox", fill_outbox, folder)
    await make_events(folder)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
