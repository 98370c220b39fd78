"""Databases with the tables of the examples, and servers in processes of their own."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg

from tests.support.database import database

ROOT = Path(__file__).parents[2]
KEY = "a secret of the dashboard"
# A transaction of a customer called "undone-…" fails at its commit.
TABLES = """
CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'not this one'; END $$;
CREATE CONSTRAINT TRIGGER undone AFTER INSERT ON customers DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.name LIKE 'undone-%') EXECUTE FUNCTION undo();
"""


@asynccontextmanager
async def fresh_database(name, more=""):
    """Create the database called *name* with the tables of the examples, and give its address."""
    admin = await asyncpg.connect(database().address)
    await admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    await admin.execute(f"CREATE DATABASE {name}")
    place = database().address.replace("/postgres?", f"/{name}?")
    inside = await asyncpg.connect(place)
    await inside.execute((ROOT / "examples/tables.sql").read_text() + TABLES + more)
    await inside.close()
    try:
        yield place
    finally:
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await admin.close()


@asynccontextmanager
async def served(server, *options, **environment):
    """Run the *server*, such as uvicorn, in a process; give the process and the address that it prints."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", server, *options, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environment},
    )  # fmt: skip
    log: list[bytes] = []
    while not log or not (found := re.search(rb"unning on (http://127[\d.:]+)", log[-1])):
        log.append(await child.stdout.readline())
        assert log[-1], b"".join(log).decode()
    reading = asyncio.create_task(child.stdout.read())
    try:
        yield child, found[1].decode()
    finally:
        with suppress(ProcessLookupError):
            child.send_signal(signal.SIGTERM)
        await child.wait()
        print((b"".join(log) + await reading).decode()[-20_000:])  # noqa: T201 - shown if the test fails
