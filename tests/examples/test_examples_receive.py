"""Receivers in each framework, on its own server: the same answers, and each event is handled once."""

from __future__ import annotations

import socket
from importlib.util import find_spec

import httpx
import pytest

from invsvc_async.events.stores import open_store
from tests.examples.serving import EVENT, KEY, running
from tests.support.waiting import until

pytestmark = pytest.mark.untraced

# a server may end a connection after an answer
ANEW = httpx.Limits(max_keepalive_connections=0)
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
    """A forged delivery, one of another type and one without JSON are refused; a duplicate is not handled."""
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
        await handled("events.db")

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


async def handled(path):
    """Wait until the one event in the store at *path* is handled."""
    store = open_store(path)
    await store.open()
    await until(lambda: store.events(state="handled"))
    await store.close()
