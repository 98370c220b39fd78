"""The pytest plugin, in suites of its users that run as processes of their own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.database import database

pytestmark = pytest.mark.untraced

ROOT = Path(__file__).parents[2]

BODY = """
import pytest

from invsvc_async import Verdict

{mark}

{mark_each}
async def test_create_whose_answer_is_lost(invsvc_service, invsvc_client):
    invsvc_service.script("webhooks.create", "apply, then reset")
    write = invsvc_client.webhooks.create(url="https://me.example/in", events=["invoice.created"], tag=True)
    outcome = await write.outcome()
    assert outcome.verdict is Verdict.APPLIED
    assert invsvc_service.arrivals("webhooks.create") == 1


{mark_each}
async def test_create_that_is_lost(invsvc_service, invsvc_client):
    invsvc_service.script("webhooks.create", "reset")
    write = invsvc_client.webhooks.create(url="https://me.example/in", events=["invoice.created"])
    outcome = await write.outcome()
    assert (outcome.verdict, outcome.resends) == (Verdict.APPLIED, 1)


{mark_each}
async def test_client_alone(invsvc_client):
    assert (await invsvc_client.users.get("usr_1")).id == "usr_1"


@pytest.fixture
def invsvc_service_options():
    return {{"seed": 11}}


@pytest.fixture
def invsvc_client_options():
    return {{"user_agent": "suite"}}
"""

ANYIO_BACKEND = """
@pytest.fixture
def anyio_backend():
    return "asyncio"
"""

SUITES = {
    "pytest-asyncio auto": (("-o", "asyncio_mode=auto"), "", ""),
    "pytest-asyncio strict": (("-o", "asyncio_mode=strict"), "", "@pytest.mark.asyncio"),
    "pytest-asyncio strict, one loop": (
        ("-o", "asyncio_mode=strict"), "pytestmark = pytest.mark.asyncio(loop_scope='session')", "",
    ),
    "pytest-asyncio auto, one loop": (
        ("-o", "asyncio_mode=auto", "-o", "asyncio_default_test_loop_scope=module"), "", "",
    ),
    "anyio": (("-p", "no:asyncio"), "pytestmark = pytest.mark.anyio" + ANYIO_BACKEND, ""),
    "anyio beside pytest-asyncio": (
        ("-o", "asyncio_mode=strict"), "pytestmark = pytest.mark.anyio" + ANYIO_BACKEND, "",
    ),
    "aiohttp": (
        ("-p", "no:asyncio", "-p", "aiohttp.pytest_plugin", "-W", "ignore:aiohttp.pytest_plugin:DeprecationWarning"),
        "", "",
    ),
}  # fmt: skip


# An installed package brings the plugin with it; from a checkout it is named.
INSTALLED = any(each.name == "invsvc_async" for each in entry_points(group="pytest11"))
BY_HAND = () if INSTALLED else ("-p", "invsvc_async.pytest_plugin")


def run(tmp_path, source, *options, **environment):
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tmp_path / "test_suite.py").write_text(source)
    command = [
        sys.executable,
        *[
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-p",
            "no:cov",
        ],
    ]
    if find_spec("pytest_asyncio") and "no:asyncio" not in options:
        options = ("-o", "asyncio_default_fixture_loop_scope=function", *options)
    return subprocess.run(  # noqa: S603
        [*command, *BY_HAND, *options, str(tmp_path)],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", **environment},
    )  # fmt: skip


@pytest.mark.parametrize("kind", SUITES)
def test_fixtures_in_a_suite_of(kind, tmp_path):
    """Service and client share the loop of the test, and settle a lost answer in it, without a warning."""
    options, mark, mark_each = SUITES[kind]

    ran = run(tmp_path, BODY.format(mark=mark, mark_each=mark_each), *options)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "3 passed" in ran.stdout


def test_fixtures_in_a_test_that_is_not_async(tmp_path):
    """A plain test gets a service on a thread; a client is refused in words."""
    source = """
import json
import urllib.request

def test_service(invsvc_service):
    for _ in range(2):
        request = urllib.request.Request(
            invsvc_service.base_url + "/webhooks", headers={"Authorization": f"Bearer {invsvc_service.api_key}"}
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            assert json.load(answer)["success"]
    assert invsvc_service.arrivals("webhooks.list") == 2

def test_client(invsvc_client):
    pass
"""
    ran = run(tmp_path, source)

    assert "1 passed, 1 error" in ran.stdout
    assert "invsvc_client: needs an async test" in ran.stdout


def test_fixtures_in_a_test_that_nothing_runs(tmp_path):
    """In strict mode, an async test without a mark gets no service; the words say what to do, each time."""
    ran = run(tmp_path, BODY.format(mark="", mark_each=""), "-o", "asyncio_mode=strict")

    assert "3 errors" in ran.stdout
    assert ran.stdout.count("Mark the test with pytest.mark.asyncio") == 3


def test_fixtures_on_trio(tmp_path):
    """On anyio's other backend, which the client does not run on, the words say what to do."""
    source = BODY.format(
        mark="pytestmark = pytest.mark.anyio"
        + ANYIO_BACKEND.replace("asyncio", "trio"),
        mark_each="",
    )

    ran = run(tmp_path, source, "-p", "no:asyncio")

    assert "3 errors" in ran.stdout
    assert "runs on asyncio, not trio. Override anyio_backend" in ran.stdout


DATABASE_SUITE = """
import asyncio

import asyncpg
import pytest

from invsvc_async import Outbox
from invsvc_async.testing import quick_client

async def found(address, sql):
    connection = await asyncpg.connect(address)
    rows = [row[0] for row in await connection.fetch(sql)]
    await connection.close()
    return rows

@pytest.mark.parametrize("number", [1, 2])
async def test_stores(invsvc_service, invsvc_database, number):
    async with quick_client(invsvc_service, journal=invsvc_database) as client:
        write = client.webhooks.create(url="https://me.example/in", events=["invoice.created"])
        assert not (await write.keyed("row").outcome()).replayed
        async with Outbox.open(invsvc_database, client, on_secret=print) as outbox:
            assert await outbox.get("row") is None
    schemas = await found(invsvc_database, "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'invoicing%'")
    assert sorted(name.split("_")[1] for name in schemas) == ["journal", "outbox"]

def test_without_async(invsvc_database):
    assert asyncio.run(found(invsvc_database, "SELECT 1")) == [1]

open_ones = []

async def test_that_fails_with_an_open_connection(invsvc_database):
    open_ones.append(await asyncpg.connect(invsvc_database))
    raise ZeroDivisionError
"""


async def test_database_of_each_test(tmp_path):
    """Each test has a database of its own, with one journal and one outbox, and it is gone afterwards."""
    import asyncpg

    ran = await asyncio.to_thread(
        run, tmp_path, DATABASE_SUITE, "-o", "asyncio_mode=auto", "-W", "ignore::ResourceWarning",
        "-W", "ignore::pytest.PytestUnraisableExceptionWarning", TEST_DATABASE_URL=database().address,
    )  # fmt: skip

    assert "1 failed, 3 passed" in ran.stdout, ran.stdout + ran.stderr
    assert "ZeroDivisionError" in ran.stdout
    connection = await asyncpg.connect(database().address)
    left = await connection.fetch(
        "SELECT 1 FROM pg_database WHERE datname LIKE 'invsvc_test%'"
    )
    await connection.close()
    assert left == []


def test_database_without_a_server(tmp_path):
    """Without the address of a server, tests of databases are skipped, and the reason says so."""
    ran = run(tmp_path, "def test_it(invsvc_database): pass", "-rs")

    assert "1 skipped" in ran.stdout
    assert "invsvc_database: TEST_DATABASE_URL is not set" in ran.stdout


def test_start_of_pytest_with_the_plugin(tmp_path):
    """Loading the plugin loads nothing of the client, the simulator or aiohttp."""
    source = """
import sys
import threading
def test_loaded():
    loaded = [name for name in sys.modules if name.startswith("invsvc_async.") or name == "aiohttp"]
    assert loaded == [
        "invsvc_async._version", "invsvc_async.testing", "invsvc_async.testing.pytest_plugin",
        "invsvc_async.pytest_plugin",
    ], loaded
"""
    ran = run(tmp_path, source, "-p", "no:asyncio")

    assert ran.returncode == 0, ran.stdout + ran.stderr
