"""Servers of agents as hosts start them, in processes that can be killed."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import AsyncExitStack, suppress
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
settle_after_error = 1.0
settle_after_loss = 1.5
reads_lag = 1.0
deadline = 60.0
"""


class Host:
    """Starts the server of *folder* and connects an agent to it; both can be lost at any time."""

    def __init__(self, folder, service, *options):
        self._folder = Path(folder)
        self._options = options
        self._stack = AsyncExitStack()
        self.agent = None
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
        server = ["-m", "invsvc_async.cli", "mcp", "--journal", "calls.db"]
        parameters = StdioServerParameters(
            command="sh",
            args=["-c", _START, "sh", "number", sys.executable, *server, "--secrets-to", "secrets.jsonl", *self._options],
            env=self._environment,
            cwd=str(self._folder),
        )  # fmt: skip
        errors = self._stack.enter_context(self.errors.open("a"))
        transport = stdio_client(parameters, errlog=errors)
        self.agent = await self._stack.enter_async_context(
            Agent(transport, mode="legacy")
        )

    async def disconnect(self):
        """Close the connection, as a host that ends does: the server's input ends."""
        stack = self._stack
        self._stack = AsyncExitStack()
        self.agent = None
        with suppress(Exception):  # the server may be dead
            await stack.aclose()

    def kill(self):
        """Kill the server."""
        os.kill(self.number, signal.SIGKILL)
