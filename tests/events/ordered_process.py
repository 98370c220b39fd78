"""
Be one of the processes that the tests kill: an inbox whose handler is called in the order of each invoice.

``python -m tests.events.ordered_process STORE LOG``: prints a line once it runs, and writes each begin and end of a handler to LOG.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys

from invsvc_async import events
from tests.events.bodies import HEADER

CONCURRENCY = 8


def receiver_on(store: str, log: str) -> events.Receiver:
    """Return a receiver with two handlers, which fail now and then."""
    policy = events.InboxPolicy(
        timeout=600.0,
        poll=0.02,
        concurrency=CONCURRENCY,
        initial=0.01,
        maximum=0.01,
        attempts=1000,
    )
    receiver = events.Receiver(
        secrets=(), shared_header=HEADER, mode="inbox", store=store, inbox=policy
    )
    written = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    @receiver.middleware
    async def record(handling: events.Handling, proceed: object) -> None:
        words = f"{handling.handler} {handling.event.data.uuid} {handling.event.dedupe_key} {os.getpid()}\n"
        os.write(written, f"begin {words}".encode())
        try:
            await proceed()  # type: ignore[operator]
        finally:
            os.write(written, f"end {words}".encode())

    async def work(_: events.Event) -> None:
        await asyncio.sleep(random.random() / 200)
        if random.random() < 0.1:
            raise RuntimeError("now and then")

    receiver.on("invoice.created", name="in_order", key=lambda event: event.data.uuid)(
        work
    )
    receiver.on("invoice.*", name="any_order")(work)
    return receiver


async def main(store: str, log: str) -> None:
    async with receiver_on(store, log):
        print("runs", flush=True)  # noqa: T201 - the test reads it
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
