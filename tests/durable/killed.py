"""Writes that are cut off: by a cancellation, or as their process is killed."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from invsvc_async import Write
    from invsvc_async.simulator import Simulator

__all__ = ["cut_off", "killed_before_its_await_returns"]

PROGRAM = """
import asyncio, os, signal, sys
from invsvc_async import ApiKey, Client
from invsvc_async.durable.journal import ClientJournal
class Killing(ClientJournal):
    async def settled(self, outcome):
        await super().settled(outcome)
        os.kill(os.getpid(), signal.SIGKILL)
async def main(url, key, path):
    async with Client(url, ApiKey(key), journal=Killing(path)) as client:
        await client.webhooks.WRITE
asyncio.run(main(*sys.argv[1:]))
"""


async def killed_before_its_await_returns(service: Simulator, path: Path, write: str) -> None:
    """Run such a process, with the journal at *path*; *write* is a call of a method of ``client.webhooks``."""
    program = PROGRAM.replace("WRITE", write)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, service.base_url, service.api_key, str(path)
    )
    assert await child.wait() == -signal.SIGKILL


async def cut_off(service: Simulator, write: Write[Any]) -> None:
    """Await *write*, and cancel that once its request has arrived."""
    operation = write._spec.operation.name
    number, running = service.arrivals(operation) + 1, asyncio.create_task(write.outcome())
    await service.arrived(operation, number)
    running.cancel()
    await asyncio.wait([running])
