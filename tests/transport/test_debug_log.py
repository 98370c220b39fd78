"""``INVSVC_LOG``: what it logs, where, and which secrets it leaves out."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from invsvc_async import ApiKey, Client
from invsvc_async.errors import ConfigurationError

# the script prints its secrets, to be searched for here
pytestmark = pytest.mark.no_secret_scan

SCRIPT = """
import asyncio, sys
from invsvc_async import Client, ApiKey
from invsvc_async.simulator import Simulator
from invsvc_async.testing import quick_client
{before}
async def main():
    async with Simulator(seed=7) as service, quick_client(service) as client:
        await client.users.get("usr_1")
        service.script("webhooks.create", "apply, then reset")
        hook = await client.webhooks.create(url="https://me.example/in", events=["invoice.created"], on_lost_secret="keep")
        hook = await client.webhooks.create(url="https://me.example/in2", events=["invoice.created"])
        print(service.api_key, hook.secret)
asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def sender():
    """Run these once: other processes choose the way to send by themselves."""


def ran(level, before=""):
    environment = {**os.environ, "INVSVC_LOG": level} if level else os.environ
    return subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", SCRIPT.format(before=before)], capture_output=True, text=True, check=True, env=environment
    )  # fmt: skip


def test_debug_log_on_stderr():
    """Each request and decision is a line on stderr; the key and the secret are in none."""
    done = ran("debug")
    key, secret = done.stdout.split()

    assert "users.get (GET): answered HTTP 200" in done.stderr
    assert "webhooks.create (POST): lost" in done.stderr
    assert "webhooks.list (GET): answered HTTP 200" in done.stderr
    assert key not in done.stderr
    assert secret not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("level", ["", "error"])
def test_quiet_log(level):
    """Without the variable, and at a higher level, nothing is written."""
    assert ran(level).stderr == ""


def test_log_of_an_application():
    """An application's own handlers get the messages, once."""
    done = ran(
        "info", before="import logging; logging.basicConfig(format='OWN %(message)s')"
    )

    assert done.stderr.count("OWN") == len(done.stderr.splitlines()) > 0


def test_unknown_level(monkeypatch):
    """Refused in words when a client is made."""
    monkeypatch.setenv("INVSVC_LOG", "loud")
    with pytest.raises(
        ConfigurationError, match=r"INVSVC_LOG: must be one of debug, info"
    ):
        Client("https://service.example/v2", ApiKey("key"))
