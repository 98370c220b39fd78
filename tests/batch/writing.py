"""The writes that the tests of batches make."""

from __future__ import annotations

import asyncio

from invsvc_async import Absent, Applied
from invsvc_async.batch import Batch
from tests.batch.conftest import HOOK

SECRETS = {"on_secret": lambda _key, _hook: None}


def creates(client, n, start=0):
    """Make keyed creates, each of a URL of its own."""
    return (
        client.webhooks.create(url=f"https://me.example/{i}", events=["invoice.created"]).keyed(f"row-{i}")
        for i in range(start, start + n)
    )


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


async def shelve_one(service, client, path, write, operation):
    """Leave *write* in the journal as sent, its answer never received; the service hangs."""
    async with Batch.open(path, client) as batch:
        running = asyncio.create_task(all_of(batch, [write]))
        await service.arrived(operation)
        running.cancel()
        await asyncio.wait([running])


async def looked_for(client, intent):
    """Find the webhook of an unlisted write by its URL: a user-supplied reader."""
    found = [hook for hook in await client.webhooks.list() if hook.url == intent.body["url"]]
    return Applied(found[0]) if found else Absent()


def unlisted(client, reader=looked_for):
    """Make a write that nothing but the caller's reader can settle."""
    body = {**HOOK, "url": "https://own.example/"}
    return client.write("POST", "/webhooks", json=body, reader=reader).keyed("own")
