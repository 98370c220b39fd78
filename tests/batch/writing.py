"""The writes that the tests of batches make."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

from invsvc_async import Absent, Applied
from invsvc_async.batch import Batch
from invsvc_async.batch.entries import entries_of
from tests.batch.conftest import HOOK
from tests.support.waiting import cancel, until

SECRETS = {"on_secret": lambda _key, _hook: None}


def creates(client, n, start=0):
    """Make keyed creates, each of a URL of its own."""
    return (
        client.webhooks.create(
            url=f"https://me.example/{i}", events=["invoice.created"]
        ).keyed(f"row-{i}")
        for i in range(start, start + n)
    )


def line_of(operation, key=None, **arguments):
    """Return the line of a file for a write."""
    found = {"operation": operation, "arguments": arguments} | (
        {} if key is None else {"key": key}
    )
    return json.dumps(found) + "\n"


def create_line(number, key=...):
    """Return the line of a create of a URL of its own; its key is that of :func:`creates`, if none is given."""
    url, key = f"https://me.example/{number}", f"row-{number}" if key is ... else key
    return line_of("webhooks.create", key, url=url, events=["invoice.created"])


def create_lines(count):
    """Return the lines of the same writes as :func:`creates`."""
    return [create_line(number) for number in range(count)]


def updates(client, hooks, value):
    """Make one update of each hook."""
    return [client.webhooks.update(hook.id, description=value) for hook in hooks]


async def all_of(batch, writes=()):
    """Run *writes* to the end."""
    return [result async for result in batch.run(writes)]


async def run_all(place, client, writes=(), **settings):
    """Open the batch at *place*, run *writes* to the end, and close it."""
    async with Batch.open(place, client, **settings) as batch:
        return await all_of(batch, writes)


@asynccontextmanager
async def opened(place, **settings):
    """Open the entries of the batch at *place*, as commands and reports do, and close them."""
    entries = entries_of(place, **settings)
    await entries.open()
    try:
        yield entries
    finally:
        await entries.aclose()


async def all_end(batch, count):
    """Wait until the journal has *count* writes as done."""

    async def is_done():
        return (await batch.summary()).done >= count

    await until(is_done)


def made_once(service):
    """Check against the ledger that no create took effect twice; return how many did."""
    urls = [entry.body["url"] for entry in service.ledger.effects("webhooks.create")]
    assert len({*urls}) == len(urls)
    return len(urls)


async def shelve_one(service, client, path, write, operation):
    """Leave *write* in the journal as sent, its answer never received; the service hangs."""
    async with Batch.open(path, client) as batch:
        await shelve(service, batch, [write], operation)


async def shelve(service, batch, writes, operation, count=1):
    """Run *writes* until *count* requests of *operation* have arrived, and cancel the run then."""
    running = asyncio.create_task(all_of(batch, writes))
    await service.arrived(operation, count)
    await cancel(running)


async def looked_for(client, intent):
    """Find the webhook of an unlisted write by its URL: a user-supplied reader."""
    found = [
        hook for hook in await client.webhooks.list() if hook.url == intent.body["url"]
    ]
    return Applied(found[0]) if found else Absent()


def unlisted(client, reader=looked_for):
    """Make a write that nothing but the caller's reader can settle."""
    body = {**HOOK, "url": "https://own.example/"}
    return client.write("POST", "/webhooks", json=body, reader=reader).keyed("own")
