"""The simulator for other processes: the command line and the admin API."""

from __future__ import annotations

import asyncio
import json
import signal
import sys

import aiohttp
import pytest
from aiohttp import web

from invsvc_async.simulator import Simulator

from .conftest import HOOK, Caller, plain_session

pytestmark = pytest.mark.one_python


@pytest.mark.untraced
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_command_line_until_a_signal(number):
    """One line of JSON has the address; a signal ends the process with 0, and closes its connections."""
    plans = ("--faults", "rate=1,kinds=503", "--stores", "words=no-emoji,partly=0.5")
    options = ("--json", "--seed", "3", *plans, "--admin")
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "invsvc_async.cli",
        "serve",
        *options,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(300), plain_session() as session:
        about = json.loads(await program.stdout.readline())
        headers = {"Authorization": f"Bearer {about['api_key']}"}
        async with session.get(
            f"{about['base_url']}/webhooks", headers=headers
        ) as response:
            assert response.status == 503
        assert about["stores"] == "words=no-emoji,partly=0.5"
        assert about["teams"] == ["team_1", "team_2", "team_3"]
        program.send_signal(number)
        assert await program.wait() == 0
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(f"{about['base_url']}/webhooks/health")
    program._transport.close()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"latency": -1}, "latency must be seconds, 0 or more, not -1"),
        ({"latency": float("nan")}, "latency must be seconds"),
        ({"delivery_backoff": float("inf")}, "delivery_backoff must be seconds"),
        ({"delivery_timeout": "10"}, "delivery_timeout must be seconds"),
        ({"at_once": 0}, "at_once must be 1 or more, or None, not 0"),
        ({"at_once": 1.5}, "at_once must be 1 or more"),
        (
            {"journey_reads": "live"},
            "journey_reads must be one of draft, published, off, not 'live'",
        ),
    ],
)
def test_service_that_cannot_be(settings, reason):
    """An invalid setting is rejected before the service starts."""
    with pytest.raises(ValueError, match=reason):
        Simulator(**settings)


async def test_admin_door():
    """A test in another process scripts faults, waits for late effects, and reads the ledger."""
    async with Simulator(admin=True) as service, plain_session() as session:
        door = service.pages["admin_url"]
        step = {"operation": "webhooks.create", "steps": ["late 0.05, then 500"]}
        async with session.post(f"{door}script", json=step) as response:
            assert await response.json() == {"scripted": 1}
        assert (
            await Caller(session, service)("POST", "/webhooks", json=HOOK)
        ).status == 500
        async with session.get(f"{door}settled") as response:
            assert response.status == 200
        async with session.get(f"{door}ledger") as response:
            (entry,) = await response.json()
        assert (entry["operation"], entry["body"], entry["late"]) == (
            "webhooks.create",
            HOOK,
            True,
        )
        assert entry["applied_at"] > entry["received_at"]
        async with session.get(f"{door}arrivals?operation=webhooks.create") as response:
            assert await response.json() == {"arrivals": 1}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("script", "{"),
        ("script", '{"operation": "webhooks.create", "steps": ["x"]}'),
        ("script", "{}"),
        ("faults", "x=1"),
    ],
)
async def test_admin_door_and_bad_requests(path, body):
    """An invalid request is a 400 with the reason."""
    async with Simulator(admin=True) as service, plain_session() as session:
        door = service.pages["admin_url"]
        async with session.post(f"{door}{path}", data=body) as response:
            assert response.status == 400
            assert (await response.json())["problem"]


async def test_admin_door_sets_faults():
    """The plan can be replaced from outside."""
    async with Simulator(admin=True) as service, plain_session() as session:
        door = service.pages["admin_url"]
        async with session.post(f"{door}faults", data="rate=1,kinds=500") as response:
            assert (await response.json())["rate"] == 1
        assert service.faults.kinds == ("500",)


async def test_admin_door_is_closed_by_default(service, call):
    """By default, the admin API does not exist."""
    async with call.session.get(
        service.base_url.removesuffix("/v2") + "/_simulator/ledger"
    ) as response:
        assert response.status == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:8000"}, 200),
        ({"Host": "[::1]:8000"}, 200),
        ({"Host": "127.0.0.1:80", "Origin": "http://127.0.0.1:80"}, 200),
        ({"Host": "service"}, 403),
        ({"Host": "service:80", "Origin": "http://service:80"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example:80"}, 403),
        ({"Host": "[evil"}, 403),
        ({"Host": ":80"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 200),
    ],
)
async def test_admin_api_and_other_sites(headers, status):
    """The admin API refuses what a web page could send, and names that another site could point here."""
    script = json.dumps({"operation": "webhooks.create", "steps": ["500"]})
    async with Simulator(admin=True) as service, plain_session() as session:
        door = service.pages["admin_url"]
        async with session.post(
            f"{door}script", data=script, headers=headers
        ) as response:
            assert response.status == status
        async with session.get(f"{door}ledger", headers=headers) as response:
            assert response.status == status


async def test_admin_api_and_other_machines(monkeypatch):
    """On all interfaces, the admin API answers this machine only; the operations answer everybody."""
    # the address of whoever sends
    monkeypatch.setattr(web.BaseRequest, "remote", "192.0.2.7")
    async with (
        Simulator(admin=True, host="0.0.0.0") as service,  # noqa: S104
        plain_session() as session,
    ):
        door = service.pages["admin_url"]
        for path in ("ledger", "arrivals", "settled"):
            async with session.get(f"{door}{path}") as response:
                assert response.status == 403
        script = '{"operation": "webhooks.list", "steps": ["500"]}'
        for path, body in (("script", script), ("faults", "rate=1")):
            async with session.post(f"{door}{path}", data=body) as response:
                assert response.status == 403
        assert ([*service.scripts], service.faults.rate) == ([], 0)
        assert (await Caller(session, service)("GET", "/webhooks")).status == 200
