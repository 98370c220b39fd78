"""
Create a webhook under a key, and replace it if its secret is lost, in a process that may kill itself.

    python -m tests.resources.replacing BASE_URL API_KEY JOURNAL URL SECRETS [STEP [BATCH]]

With BATCH, the journal of a batch, that creates it.  The process kills itself at its STEP (from 1): each time that something is about to be sent, was answered, is about to
be stored or was stored, and around each call of ``on_secret``.  SECRETS is a file to which that appends lines.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from itertools import count
from pathlib import Path

from invsvc_async import (
    ApiKey,
    Batch,
    Client,
    ReconcilePolicy,
    SecretLostError,
    Timeouts,
)
from invsvc_async.batch.item import Item
from invsvc_async.durable.keyed_run import KeyedRun

POLICY = ReconcilePolicy(
    settle_after_error=0.1, settle_after_loss=0.2, reads_lag=0.0, deadline=60.0
)
KEY = "order-17"


def killed_at(last: int):
    """Return a function that kills this process when it is called for the time *last*."""
    steps = count(1)

    def step(*_: object) -> None:
        if next(steps) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    return step


def with_steps(kind: type, name: str, step) -> None:
    """Call *step* before and after the method *name* of *kind*, the journal of a write."""
    real = getattr(kind, name)

    async def noted(*arguments: object) -> object:
        step()
        result = await real(*arguments)
        step()
        return result

    setattr(kind, name, noted)


async def replaced(client: Client, url: str):
    """Return the webhook for *url*, which has a secret if this run made it."""
    write = client.webhooks.create(url=url, events=["invoice.created"])
    try:
        return await write.keyed(KEY)
    except SecretLostError as error:
        return await client.webhooks.replace_lost(error)


async def replaced_in_batch(client: Client, url: str, place: str, keep) -> None:
    """Create the webhook for *url* by the batch at *place*, and replace it as often as its result says so."""
    async with Batch.open(place, client, on_secret=keep) as batch:
        write = client.webhooks.create(url=url, events=["invoice.created"])
        async for result in batch.run([write.keyed(KEY)]):
            if result.secret_lost:
                await client.webhooks.replace_lost(result)


async def main(
    base_url: str,
    key: str,
    journal: str,
    url: str,
    secrets: str,
    last: str = "0",
    batch: str = "",
) -> None:
    """Do it."""
    step = killed_at(int(last))
    for kind in (KeyedRun, Item):
        for name in ("sending", "settled"):
            with_steps(kind, name, step)

    def keep(key: str, webhook) -> None:
        step()
        line = json.dumps([key, webhook.id, webhook.secret])
        with Path(secrets).open("a") as file:
            file.write(f"{line}\n")
        step()

    settings = {"reconcile": POLICY, "timeout": Timeouts(attempt=5.0)}
    async with Client(
        base_url, ApiKey(key), journal=journal, on_secret=keep, on_attempt=step, **settings
    ) as client:  # fmt: skip
        if batch:
            await replaced_in_batch(client, url, batch, keep)
        else:
            await replaced(client, url)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
