"""An agent beside the embedded service: the official SDK's client, connected to the server in this process."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from mcp import Client as Agent

from invsvc_async.agents.server import server_of
from invsvc_async.agents.toolbox import Toolbox
from invsvc_async.testing import quick_client

HOOK = {"url": "https://me.example/in", "events": ["invoice.created"]}


class Secrets:
    """What stores the secrets of new webhooks, by the keys of their writes."""

    def __init__(self):
        self.of = {}

    def take(self, key, webhook):
        self.of[key] = webhook.secret


@pytest.fixture
def secrets():
    return Secrets()


@asynccontextmanager
async def connected(service, journal, secrets, *, reconcile=None, **offered):
    """Yield an agent, and close both ends afterwards."""
    settings = {} if reconcile is None else {"reconcile": reconcile}
    made = quick_client(service, journal=journal, on_secret=secrets.take, **settings)
    async with made as client, agent_of(Toolbox(client, **offered)) as agent:
        yield agent


@asynccontextmanager
async def agent_of(toolbox):
    """
    Yield an agent with the tools of *toolbox*.

    The SDK's client has to be closed by the task that opened it, and a fixture ends in another one.
    """
    opened = asyncio.get_running_loop().create_future()
    ended = asyncio.Event()

    async def hold():
        async with Agent(server_of(toolbox)) as agent:
            opened.set_result(agent)
            await ended.wait()

    holding = asyncio.create_task(hold())
    done, _ = await asyncio.wait([opened, holding], return_when="FIRST_COMPLETED")
    try:
        yield (opened if opened in done else holding).result()
    finally:
        ended.set()
        await holding


@pytest.fixture
async def agent(service, tmp_path, secrets):
    """Yield an agent with all tools."""
    async with connected(service, str(tmp_path / "calls.db"), secrets) as made:
        yield made


def facts(result):
    """Return the structured content of an answer, after a check that its texts say the same."""
    words, plain = (block.text for block in result.content)
    data = result.structured_content
    assert words == f"{data['message']} Next: {data['next']}"
    assert plain.isascii()
    return data
