"""The server on streamable HTTP: who may call it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager

import aiohttp
import httpx2
import pytest
from mcp import Client as Agent
from mcp.client.streamable_http import streamable_http_client

from invsvc_async import ConfigurationError
from invsvc_async.agents.http import WithToken, token_of
from tests.agents.conftest import HOOK, facts

pytestmark = pytest.mark.one_python
CALL = {**HOOK, "key": "order-1"}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@asynccontextmanager
async def served(service, folder, **variables):
    """Run the command, and yield what it printed."""
    environment = {
        **os.environ,
        "INVSVC_BASE_URL": service.base_url,
        "INVSVC_API_KEY": service.api_key,
        "PYTHONUNBUFFERED": "",  # as for users
        **variables,
    }
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "invsvc_async.cli", "mcp", "--http", "0", "--json",
        "--journal", "calls.db", "--no-secrets",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env=environment,
    )  # fmt: skip
    try:
        async with asyncio.timeout(300):
            yield json.loads(await child.stdout.readline())
    finally:
        child.send_signal(signal.SIGINT)
        _, errors = await asyncio.wait_for(child.communicate(), 60)
        assert b"Traceback" not in errors


@pytest.mark.slow
async def test_call(service, tmp_path):
    """An agent with the token calls tools as on standard input and output."""
    async with served(service, tmp_path) as facts_of:
        headers = {"Authorization": f"Bearer {facts_of['token']}"}
        async with httpx2.AsyncClient(headers=headers) as http:
            transport = streamable_http_client(facts_of["url"], http_client=http)
            async with Agent(transport) as agent:
                for _ in range(2):
                    said = facts(await agent.call_tool("webhooks_create", CALL))
    assert said["verdict"] == "applied"
    assert "thrown away" in said["message"]
    assert len(service.ledger.effects("webhooks.create")) == 1


async def test_who_may_call(service, tmp_path):
    """Without the token, with another one, or from a page of another site, nothing is answered."""
    token = "a-token-of-my-own-1"
    async with served(service, tmp_path, INVSVC_MCP_TOKEN=token) as facts_of:
        assert "token" not in facts_of
        right = {"Authorization": f"Bearer {token}", **ACCEPT}
        statuses = {}
        async with aiohttp.ClientSession() as http:
            for name, headers in {
                "right": right,
                "none": ACCEPT,
                "wrong": {**right, "Authorization": "Bearer a-token-of-my-own-2"},
                "site": {**right, "Origin": "https://evil.example"},
                "name": {**right, "Host": "evil.example"},
            }.items():
                async with http.post(
                    facts_of["url"], json=HELLO, headers=headers
                ) as answer:
                    statuses[name] = answer.status
                    assert token not in await answer.text()
    assert statuses["right"] == 200
    assert statuses["none"] == statuses["wrong"] == 401
    assert statuses["site"] in {403, 421}
    assert statuses["name"] in {403, 421}


@pytest.mark.parametrize("given", ["", "short", "with a space in it, long", "ñ" * 20])
def test_bad_token(given):
    """A token that can be guessed or not be sent is refused, and not shown."""
    with pytest.raises(ConfigurationError) as caught:
        token_of(given)
    assert not given or given not in str(caught.value)


async def test_token_is_needed():
    """Only a request with exactly the token reaches the application."""
    passed = []

    async def app(scope, _receive, _send):
        passed.append(scope["headers"])

    async def send(message):
        statuses.append(message.get("status"))

    statuses = []
    guarded = WithToken(app, "the-token-of-this")
    right = (b"authorization", b"Bearer the-token-of-this")
    for headers in (
        [],
        [(b"authorization", b"Bearer the-token-of-thiS")],
        [(b"authorization", b"the-token-of-this")],
        [right, right],
        [right],
    ):
        await guarded({"type": "http", "headers": headers}, None, send)
    assert passed == [[right]]
    assert statuses.count(401) == 4
