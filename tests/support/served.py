"""
Run `invsvc serve` in a process of its own, with its administration open to judges.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import urllib.request
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@attrs.frozen
class Served:
    """Where the service is, and its door for judges."""

    base_url: str
    api_key: str

    async def ask(self, path: str, body: str | None = None) -> Any:
        """Ask ``/_simulator/``, in a thread: the loop is busy with what is measured."""

        def fetch() -> Any:
            url = f"{self.base_url.removesuffix('/v2')}/_simulator/{path}"
            content = None if body is None else body.encode()
            with urllib.request.urlopen(url, data=content, timeout=60) as answer:  # noqa: S310 - the loopback
                return json.loads(answer.read())

        return await asyncio.to_thread(fetch)

    async def arrivals(self) -> int:
        """Count the requests that have arrived."""
        return int((await self.ask("arrivals"))["arrivals"])


@asynccontextmanager
async def served(*options: str) -> AsyncIterator[Served]:
    """Start it with the *options* of ``invsvc serve``; it ends with the block."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "invsvc_async.cli", "serve", "--json", "--admin", *options,
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert child.stdout is not None
    try:
        facts = json.loads(await child.stdout.readline())
        yield Served(facts["base_url"], facts["api_key"])
    finally:
        child.send_signal(signal.SIGINT)
        await child.wait()
