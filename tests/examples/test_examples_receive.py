"""Receivers in each framework, on its own server: the same answers, and each event is handled once."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from importlib.util import find_spec

import httpx
import pytest

from invsvc_async.events.stores import open_store
from tests.examples.serving import EVENT, KEY, running
from tests.support.waiting import until

pytestmark = pytest.mark.untraced

# a server may end a connection after an answer
ANEW = httpx.Limits(max_keepalive_connections=0)
VERSIONS = ("v1", "v1.1", "v2")
COMMANDS = {
    "fastapi": "uvicorn --port {port} examples.receive_fastapi:app",
    "litestar": "uvicorn --port {port} examples.receive_litestar:app",
    "quart": "hypercorn -b 127.0.0.1:{port} examples.receive_quart:app",
    "django": "examples.receive_django runserver --noreload 127.0.0.1:{port}",
    "django_asgi": "uvicorn --port {port} examples.receive_django_asgi:application",
    "flask": "flask --app examples.receive_flask run --port {port}",
    "aiohttp": "aiohttp.web -H 127.0.0.1 -P {port} examples.receive_aiohttp:create_app",
}


@pytest.mark.parametrize("framework", COMMANDS)
async def test_receiver(framework, tmp_path, monkeypatch):
    """
    A forged delivery, one of another type and one without JSON are refused; a duplicate is not handled.

    Events of each version, as `invsvc trigger` sends them, are handled.
    """
    if find_spec(framework.partition("_")[0]) is None:
        pytest.skip(f"{framework} is not installed")
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    key = {"X-Events-Key": KEY}
    async with (
        running(COMMANDS[framework].format(port=port), EVENTS_KEY=KEY),
        httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=30, limits=ANEW
        ) as browser,
    ):
        await serving(browser)
        answers = [
            await browser.post("/events", json=EVENT, headers=key),
            await browser.post("/events", json=EVENT, headers=key),
            await browser.post("/events", json=EVENT),
            await browser.post("/events", data=EVENT, headers=key),
            await browser.get("/events"),
        ]
        await handled("events.db", 1)
        codes = [await triggered(port, version) for version in VERSIONS]
        await handled("events.db", 1 + len(VERSIONS))

    assert codes == [0] * len(VERSIONS)
    assert [answer.status_code for answer in answers] == [200, 200, 401, 415, 405]
    assert [answer.text for answer in answers[:4]] == [
        "stored",
        "duplicate",
        "refused",
        "refused",
    ]


async def serving(browser):
    """Wait until the server answers."""

    async def answers():
        try:
            return await browser.get("/")
        except httpx.TransportError:
            return None

    await until(answers, every=0.05)


async def handled(path, count):
    """Wait until so many events in the store at *path* are handled, and no other waits."""
    store = open_store(path)
    await store.open()

    async def are_handled():
        counts = await store.counts()
        return counts["handled"] == count and not counts["open"] + counts["dead"]

    await until(are_handled)
    await store.close()


async def triggered(port, version):
    """Send an event of *version* by the command, and return its exit code."""
    words = f"trigger invoice.created --version {version} --to http://127.0.0.1:{port}/events"
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "invsvc_async.cli", *words.split()),
        env={**os.environ, "INVSVC_SHARED_HEADER": f"X-Events-Key={KEY}"},
    )
    return await child.wait()
