"""What the clients in this folder share: reading the writes and reporting on them."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BASE_URL, API_KEY = os.environ["INVSVC_BASE_URL"], os.environ["INVSVC_API_KEY"]
CONCURRENCY = int(os.environ.get("INVSVC_CONCURRENCY", "50"))
SETTLE = float(os.environ.get("INVSVC_SETTLE", "1"))
ATTEMPT = 1.5  # seconds for one attempt, of every client here
TRIES = 3
Task = dict[str, Any]
WRITES: list[Task] = [
    json.loads(line)
    for line in Path(os.environ["INVSVC_WRITES"]).read_bytes().splitlines()
]


async def each(write: Callable[[Task], Awaitable[tuple[str, str]]]) -> None:
    """
    Run every write of the file concurrently, and print what *write* believes: a verdict and a reason.

    A write waits until the one in its ``after`` has been reported.
    """
    waiting = iter(WRITES)
    reported = {task["key"]: asyncio.Event() for task in WRITES}

    async def work() -> None:
        for task in waiting:
            if task["after"] is not None:
                await reported[task["after"]].wait()
            verdict, reason = await write(task)
            print(
                json.dumps({"key": task["key"], "verdict": verdict, "reason": reason}),
                flush=True,
            )
            reported[task["key"]].set()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(CONCURRENCY):
            tasks.create_task(work())


def believed(status: int, body: bytes) -> tuple[str, str]:
    """Trust the status of an answer, as most clients do."""
    if status >= 400:
        return "refused", f"HTTP {status}"
    try:
        json.loads(body)
    except ValueError:
        return "unknown", "the answer could not be read"
    return "applied", f"HTTP {status}"
