"""
Open a store once a line comes, in a process of its own, and close it.

    python -m tests.golden.opening KIND BASE_URL API_KEY PLACE

The process prints "ready", and in the end "open", or what the error says.
"""

from __future__ import annotations

import asyncio
import sys

from invsvc_async import ApiKey, Client, JournalError, Outbox
from invsvc_async.batch import Batch
from tests.golden.loading import store_at


async def opened(kind: str, url: str, key: str, place: str) -> None:
    """Open the store and close it."""
    if kind == "events":
        store = store_at(place)
        await store.open()
        await store.close()
        return
    journal = place if kind == "journal" else None
    async with Client(url, ApiKey(key), journal=journal) as client:
        match kind:
            case "journal":
                assert await client.outcome_of("done") is not None
            case "batch":
                async with Batch.open(place, client):
                    pass
            case _:
                async with Outbox.open(place, client):
                    pass


async def main(*arguments: str) -> None:
    print("ready", flush=True)  # noqa: T201 - read by the test
    sys.stdin.readline()
    try:
        await opened(*arguments)
    except JournalError as error:
        print(error)  # noqa: T201 - the same
    else:
        print("open")  # noqa: T201 - the same


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
