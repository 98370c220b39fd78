"""What is loaded by whom, and what is said where an extra is missing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.one_python

LATE = {
    "aiohttp.web",
    "asyncpg",
    "cryptography",
    "mcp",
    "opentelemetry",
    "pyarrow",
    "rich",
    "sqlite3",
    "typer",
}


@pytest.mark.parametrize(
    "code",
    [
        "import invsvc_async",
        "from invsvc_async import ApiKey, Client, ReconcilePolicy, events, models",
    ],
)
def test_import_of_the_package(code):
    """Importing it, or what each user imports of it, loads no extra, no database and no web framework."""
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith("COV")
    }  # it loads sqlite3
    command = [sys.executable, "-X", "importtime", "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=plain)  # noqa: S603
    loaded = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}

    assert "invsvc_async" in loaded
    assert not {
        name for name in loaded if name in LATE or name.partition(".")[0] in LATE
    }


MISSING = """
import asyncio, sys
sys.modules[{module!r}] = None  # as if it were not there
from invsvc_async import Client, ConfigurationError, OAuthToken, Outbox, export
from invsvc_async.batch import Batch
from invsvc_async.events.stores import open_store

async def use(client):
    {use}

async def main():
    async with Client("https://host.example/v2", OAuthToken("x")) as client:
        await use(client)

try:
    asyncio.run(main())
except ConfigurationError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("use", "module", "extra"),
    [
        (
            "await Batch.open('postgresql://nowhere.example/x', client).__aenter__()",
            "asyncpg",
            "postgres",
        ),
        (
            "await Outbox.open('postgresql://nowhere.example/x', client).__aenter__()",
            "asyncpg",
            "postgres",
        ),
        (
            "Client('https://h/v2', OAuthToken('x'), journal='postgresql://n/x')",
            "asyncpg",
            "postgres",
        ),
        (
            "await open_store('postgresql://nowhere.example/x').open()",
            "asyncpg",
            "postgres",
        ),
        (
            "await export.invoices(client.invoices.egress(), 'never.parquet')",
            "pyarrow",
            "parquet",
        ),
        (
            "from invsvc_async.tracing import instrument; instrument(client)",
            "opentelemetry",
            "otel",
        ),
        (
            "from invsvc_async.agents.server import server_of",
            "mcp_types",
            "mcp",
        ),
        (
            "from invsvc_async.reconcile import receipt; receipt.public_key_of('')",
            "cryptography",
            "receipts",
        ),
    ],
)
def test_extra_that_is_missing(use, module, extra):
    """What needs an extra that is not installed names the extra, and no package that an index may have."""
    command = [sys.executable, "-c", MISSING.format(use=use, module=module)]
    ran = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=True, timeout=60
    )

    assert f"Install invsvc-async with its extra '{extra}'." in ran.stdout, ran.stdout
    assert "pip install" not in ran.stdout
