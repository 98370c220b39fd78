"""An application of a server that recycles its processes; its handler notes when it begins and ends."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from invsvc_async import events
from tests.events.bodies import HEADER, SECRET

receiver = events.Receiver(
    secrets=[SECRET],
    shared_header=HEADER,
    mode="inbox",
    store=os.environ["STORE"],
    inbox=events.InboxPolicy(concurrency=int(os.environ["CONCURRENCY"])),
)


def _note(word: str, event: events.Event) -> None:
    with Path(os.environ["NOTES"]).open("a", encoding="utf-8") as file:
        file.write(f"{word} {event.id}\n")


@receiver.on("*")
async def handle(event: events.Event) -> None:
    """Take as long as some requests do."""
    _note("begin", event)
    await asyncio.sleep(0.1)
    _note("end", event)


app = receiver.wsgi_app
