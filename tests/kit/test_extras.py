"""What is loaded by whom, and what is said where an extra is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module

import pytest

from invsvc_async import Client, ConfigurationError, OAuthToken, export
from invsvc_async.batch import Batch
from invsvc_async.events.stores import open_store

LATE = {"aiohttp.web", "asyncpg", "opentelemetry", "pgqueuer", "pyarrow", "rich", "sqlite3", "typer"}


@pytest.mark.parametrize(
    "code",
    ["import invsvc_async", "from invsvc_async import ApiKey, Client, ReconcilePolicy, events, models"],
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
    assert not {name for name in loaded if name in LATE or name.partition(".")[0] in LATE}


async def batch_of_many_machines(client):
    async with Batch.open("postgresql://nowhere.example/x", client):
        pass


async def store_of_many_machines(_client):
    await open_store("postgresql://nowhere.example/x").open()


async def parquet(client):
    await export.invoices(client.invoices.egress(), "never.parquet")


async def traces(client):
    import_module("invsvc_async.tracing").instrument(client)


@pytest.mark.parametrize(
    ("use", "module", "extra"),
    [
        (batch_of_many_machines, "pgqueuer", "postgres"),
        (store_of_many_machines, "asyncpg", "postgres"),
        (parquet, "pyarrow", "parquet"),
        (traces, "opentelemetry", "otel"),
    ],
)
async def test_extra_that_is_missing(monkeypatch, use, module, extra):
    """What needs an extra that is not installed names the extra and how to get it."""
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, module, None)
    for room in ("batch.postgres", "export.columns", "export.parquet", "tracing"):
        monkeypatch.delitem(sys.modules, f"invsvc_async.{room}", raising=False)
    async with Client("https://host.example/v2", OAuthToken("x")) as client:
        with pytest.raises(ConfigurationError, match=rf"install .*invsvc-async\[{extra}\]"):
            await use(client)
