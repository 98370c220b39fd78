"""
Run a batch in a process that is there to be killed, and print the key of each result that is taken.

    python -m tests.batch.taking BASE_URL API_KEY JOURNAL FILE

It takes the first 100 results at once, and then one in 20 ms.  Without a FILE, the input has twenty creates
and then no end.
"""

from __future__ import annotations

import asyncio
import sys

from invsvc_async import ApiKey, Client
from invsvc_async.batch import Batch
from tests.batch.child import POLICY
from tests.batch.writing import creates


async def endless(client):
    """Yield twenty writes, then wait."""
    for write in creates(client, 20):
        yield write
    await asyncio.Event().wait()


async def main(url: str, key: str, journal: str, file: str) -> None:
    count = 0
    async with (
        Client(url, ApiKey(key), reconcile=POLICY) as client,
        Batch.open(journal, client, concurrency=24) as batch,
    ):
        async for result in batch.run(file or endless(client)):
            if count >= 100:
                await asyncio.sleep(0.02)
            print(result.key, flush=True)  # noqa: T201 - read by the test
            count += 1


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
