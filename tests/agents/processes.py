"""Servers of agents as hosts start them, in processes that can be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from mcp import Client as Agent, StdioServerParameters
from mcp.client.stdio import stdio_client

ROOT = Path(__file__).parents[2]
# It writes its number before it becomes the server.
_START = 'echo $$ > "$1"; shift; exec "$@"'
SETTINGS = """
[profiles.soak]
base_url = "{base_url}"
[profiles.soak.reconcile]
settle_after_error = 3.0
settle_after_loss = 4.0
reads_lag = 1.0
deadline = 60.0
"""


class Host:
    """Starts the server of *folder* and connects an agent to it; both can be lost at any time."""

    def __init__(self, folder, service, *options, journal="calls.db"):
        self._folder = Path(folder)
        self._journal = journal
        self._options = options
        self.agent = None
        self._holding = None
        self._ended = asyncio.Event()
        settings = self._folder / "invsvc.toml"
        settings.write_text(SETTINGS.format(base_url=service.base_url))
        inherited = {
            name: each for name, each in os.environ.items() if "INVSVC" not in name
        }
        self._environment = {
            **inherited,
            "PYTHONPATH": str(ROOT),
            "INVSVC_CONFIG": str(settings),
            "INVSVC_PROFILE": "soak",
            "INVSVC_API_KEY": service.api_key,
        }
        self.errors = self._folder / "stderr.txt"

    async def __aenter__(self):
        await self.connect()
        return self

    async def __aexit__(self, *_):
        await self.disconnect()

    @property
    def number(self):
        """The number of the server's process."""
        return int((self._folder / "number").read_text())

    async def connect(self):
        """Start a server, and connect to it."""
        server = ["-m", "invsvc_async.cli", "mcp", "--journal", self._journal]
        parameters = StdioServerParameters(
            command="sh",
            args=["-c", _START, "sh", "number", sys.executable, *server, "--secrets-to", "secrets.jsonl", *self._options],
            env=self._environment,
            cwd=str(self._folder),
        )  # fmt: skip
        opened = asyncio.get_running_loop().create_future()
        self._ended = asyncio.Event()
        self._holding = asyncio.create_task(self._hold(parameters, opened, self._ended))
        await asyncio.wait([opened, self._holding], return_when="FIRST_COMPLETED")
        if not opened.done():
            await self._holding  # raises
        self.agent = opened.result()

    async def _hold(self, parameters, opened, ended):
        """Hold the connection: the SDK's client has to be closed by the task that opened it."""
        with self.errors.open("a") as errors:
            transport = stdio_client(parameters, errlog=errors)
            async with Agent(transport, mode="legacy") as agent:
                opened.set_result(agent)
                await ended.wait()

    async def disconnect(self):
        """Close the connection, as a host that ends does: the server's input ends."""
        self.agent = None
        self._ended.set()
        if self._holding is not None:
            with suppress(Exception):  # the server may be dead
                await self._holding

    def kill(self):
        """Kill the server."""
        os.kill(self.number, signal.SIGKILL)
