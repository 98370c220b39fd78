"""A service in another process, and the command line run in this one."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import NamedTuple

import pytest

from invsvc_async.cli.app import run
from tests.support.watchdog import MARK

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {  # with the mark by which the watchdog stops what a test leaves behind
    name: value
    for name, value in os.environ.items()
    if not name.startswith("INVSVC_") or name == MARK
}
# output is buffered, as users have it
ENVIRONMENT |= {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def printed(call, *arguments, **options):
    """Return what a call prints on a terminal, as people read it."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screened(call, *arguments, **options))


def screened(call, *arguments, **options):
    screen = Terminal()
    with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
        call(*arguments, **options)
    return screen.getvalue()


class Served:
    """The service that `invsvc serve` runs."""

    def __init__(self, facts):
        self.base_url, self.api_key = facts["base_url"], facts["api_key"]

    def ask(self, path, body=None):
        url = self.base_url.removesuffix("/v2") + path
        with urllib.request.urlopen(  # noqa: S310
            url, data=None if body is None else body.encode(), timeout=300
        ) as answer:
            return json.loads(answer.read())

    def script(self, operation, *steps):
        self.ask(
            "/_simulator/script", json.dumps({"operation": operation, "steps": steps})
        )


def child(*arguments, start=("-m", "invsvc_async.cli"), **options):
    return subprocess.Popen(  # noqa: S603
        [sys.executable, *start, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **{"env": ENVIRONMENT, **options},
    )  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def hang_up_is_not_inherited():
    """Under `nohup`, let programs that tests start not ignore SIGHUP: those that are ended by it would never end."""
    has_signal = hasattr(signal, "SIGHUP")  # not on Windows
    ignored = has_signal and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    if ignored:
        signal.signal(signal.SIGHUP, lambda *_: None)  # programs inherit no handler
    yield
    if ignored:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


@pytest.fixture(scope="session")
def served():
    serving = child("serve", "--json", "--admin")
    yield Served(json.loads(serving.stdout.readline()))
    if sys.platform == "win32":  # no Ctrl-C for a process alone
        serving.kill()
        serving.communicate(timeout=300)
        return
    serving.send_signal(signal.SIGINT)
    _, errors = serving.communicate(timeout=300)
    assert (serving.returncode, errors) == (0, "")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return an empty directory, without inherited settings."""
    monkeypatch.chdir(tmp_path)
    for name in (
        "BASE_URL",
        "API_KEY",
        "OAUTH_TOKEN",
        "PERSON_TOKEN",
        "TEAM",
        "PROFILE",
    ):
        monkeypatch.delenv(f"INVSVC_{name}", raising=False)
    return tmp_path


@pytest.fixture
def invsvc(here, monkeypatch, served, capsys):
    """Run one command line against the service."""
    monkeypatch.setenv("INVSVC_BASE_URL", served.base_url)
    monkeypatch.setenv("INVSVC_API_KEY", served.api_key)
    return lambda *arguments: called(capsys, *arguments)


@pytest.fixture
def invsvc_in_thread(service, monkeypatch, tmp_path, capsys):
    """Run a command line in a thread, beside the service's loop."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INVSVC_BASE_URL", service.base_url)
    monkeypatch.setenv("INVSVC_API_KEY", service.api_key)

    async def call(*arguments):
        code = await asyncio.to_thread(run, [*map(str, arguments)])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def offline(here, capsys):
    """Run one command line without any setting."""
    return lambda *arguments: called(capsys, *arguments)


def called(capsys, *arguments):
    capsys.readouterr()
    return Ran(run(arguments), *capsys.readouterr())
