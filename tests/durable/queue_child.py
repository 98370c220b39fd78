"""
Start keyed updates of one thing together, in a process that is there to be killed or stopped.

    python -m tests.durable.queue_child BASE_URL API_KEY JOURNAL KIND THING KEYS

KEYS are comma-separated.  The process prints a line when all are claimed, while the first one is being sent or
read for.  SIGTERM cancels the writes, as servers do that are deployed anew.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from invsvc_async import ApiKey, Client, Timeouts
from invsvc_async.durable import key_steps
from tests.durable.child import POLICY
from tests.support.children import first_lines, gone_after, started
from tests.support.inside import store_beneath
from tests.support.waiting import until

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from invsvc_async import Write
    from invsvc_async.simulator import Simulator


def update(client: Client, kind: str, thing: str, key: str) -> Write[Any]:
    """Make the write of *key*, which the ledger shows by the text that it stores."""
    if kind == "journeys":
        return client.journeys.update(thing, name=key).keyed(key)
    return client.webhooks.update(thing, description=key).keyed(key)


@asynccontextmanager
async def queue(
    service: Simulator, journal: Path | str, kind: str, thing: str, keys: Sequence[str]
) -> AsyncIterator[Process]:
    """Run such a process until the block ends, which begins when all keys are claimed."""
    rest = journal, kind, thing, ",".join(keys)
    async with gone_after(
        await started(
            "tests.durable.queue_child", service.base_url, service.api_key, *rest
        )
    ) as child:
        await first_lines(child, 1)
        yield child


async def are_claimed(client: Client, many: int) -> bool:
    """Return whether so many keys are in the journal of *client*."""
    store = store_beneath(client)
    [(count,)] = await store.rows("SELECT count(*) FROM {s}entries")
    return count == many


def claim_each(_: object, __: object) -> bool:
    """Let each write claim its key before it waits, also one that could be sent as soon as its turn comes."""
    return False


async def main(
    url: str, token: str, journal: str, kind: str, thing: str, keys: str
) -> None:
    # reaches: those would claim their keys as they are sent
    key_steps._is_sent_at_once = claim_each
    times = {"reconcile": POLICY, "timeout": Timeouts(attempt=2.0)}
    async with Client(url, ApiKey(token), journal=journal, **times) as client:
        await client.outcome_of("none")  # opens the journal
        chosen = keys.split(",")
        running = asyncio.gather(
            *(update(client, kind, thing, key).outcome() for key in chosen)
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        await until(lambda: are_claimed(client, len(chosen)))
        print("claimed", flush=True)  # noqa: T201 - read by the test
        with suppress(asyncio.CancelledError):
            await running


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
