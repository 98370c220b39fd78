"""
Measure 10,000 calls in flight to a service that answers after one second: wall time, and memory a call.

Each wave runs in a process of its own, ours and raw aiohttp's in turn, for memory is a process's.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from benchmarks.harness import Row, Samples, ratio_of
from benchmarks.service import service
from invsvc_async import ApiKey, Client, Timeouts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_CALLS = 10_000
_PATH = "/webhooks/wh_1"
_PATIENCE = Timeouts(attempt=120.0, connect=60.0, call=120.0)


async def _ours(base: str) -> tuple[float, float]:
    async with Client(base, ApiKey("key"), max_concurrency=_CALLS + _CALLS // 8, timeout=_PATIENCE) as client:
        return await _wave(lambda: client.webhooks.get("wh_1"))


async def _raw(base: str) -> tuple[float, float]:
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), headers={"Authorization": "Bearer key"}
    ) as session:

        async def get() -> object:
            async with session.get(base + _PATH) as response:
                return json.loads(await response.read())

        return await _wave(get)


async def _wave(call: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Make one call, then all of them at once; tell their wall seconds and the KB of each."""
    await call()
    before, started = _resident(), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(_CALLS):
            group.create_task(_ended(call))
    took = time.perf_counter() - started
    return took, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / _CALLS


async def _ended(call: Callable[[], Awaitable[object]]) -> None:
    await call()


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


def rows(*, rounds: int = 2) -> list[Row]:
    """Measure this file's rows."""
    walls: Samples = {"ours": [], "raw": []}
    memory: Samples = {"ours": [], "raw": []}
    for at in range(rounds):
        for way in ("ours", "raw") if at % 2 else ("raw", "ours"):
            with service(delay=1.0) as base:
                command = [sys.executable, "-m", "benchmarks.bench_flight", way, base]
                said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            wall, each = map(float, said.split())
            walls[way].append(wall)
            memory[way].append(each)
    what, against = "10,000 calls in flight", "raw aiohttp without limit"
    return [
        Row(what=f"{what}, wall", against=against, limit=1.3, ratio=ratio_of(walls, "ours", "raw")),
        Row(what=f"{what}, memory", against=against, limit=1.4, ratio=ratio_of(memory, "ours", "raw")),
    ]


if __name__ == "__main__":
    ways = {"ours": _ours, "raw": _raw}
    print(*asyncio.run(ways[sys.argv[1]](sys.argv[2])))
