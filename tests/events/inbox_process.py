"""
The receiving process that the tests kill: an inbox on a store, served by aiohttp.

``python -m tests.events.inbox_process STORE LOG``: prints its port, and writes each key to LOG as its handler ends.
"""

from __future__ import annotations

import asyncio
import os
import sys

from aiohttp import web

from invsvc_async import events
from invsvc_async.events.receiving import worker
from tests.events.bodies import HEADER


async def main(store: str, log: str) -> None:
    worker._MARGIN = 0.5  # a lease is not to be waited for longer than the test lasts
    policy = events.InboxPolicy(timeout=0.5, poll=0.05, concurrency=32, initial=0.01)
    receiver = events.Receiver(
        secrets=(), shared_header=HEADER, mode="inbox", store=store, inbox=policy
    )
    written = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @receiver.on("*")
    async def handle(event: events.Event) -> None:
        await asyncio.sleep(0)  # a place to be killed at
        os.write(written, f"{event.dedupe_key}\n".encode())

    app = web.Application()
    app.router.add_post("/in", receiver.aiohttp_handler)
    runner = web.AppRunner(app, access_log=None)
    async with receiver:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        print(runner.addresses[0][1], flush=True)  # noqa: T201 - the test reads it
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
