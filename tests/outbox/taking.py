"""
Take the verdicts of an outbox in a process that is there to be stopped, and print their keys.

    python -m tests.outbox.taking BASE_URL API_KEY ADDRESS

It takes one in 20 ms, and ends after that of the write "last".
"""

from __future__ import annotations

import asyncio
import sys

from invsvc_async import ApiKey, Client, Outbox


async def main(url: str, key: str, address: str) -> None:
    async with (
        Client(url, ApiKey(key)) as client,
        Outbox.open(address, client) as outbox,
    ):
        async for result in outbox.results():
            print(result.key, flush=True)  # noqa: T201 - read by the test
            if result.key == "last":
                return
            await asyncio.sleep(0.02)  # sleeps: as a consumer that is slow


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
