"""Databases with the tables of the examples, and servers in processes of their own."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg

from tests.support.database import database
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
KEY = "a secret of the dashboard"
EVENT = {
    "id": "whd_1",
    "type": "invoice.created",
    "created": 1,
    "livemode": True,
    "data": {"object": {}},
}
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
    async with database().fresh(name) as place:
        inside = await asyncpg.connect(place)
        await inside.execute((ROOT / "examples/tables.sql").read_text() + TABLES + more)
        await inside.close()
        yield place


@asynccontextmanager
async def running(command, **environment):
    """Run the module of *command* with its arguments in a process; give the process and the file of its output."""
    with tempfile.NamedTemporaryFile() as log:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *command.split(), stdout=log, stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environment},
        )  # fmt: skip
        try:
            yield child, Path(log.name)
        finally:
            with suppress(ProcessLookupError):
                child.send_signal(signal.SIGTERM)
            await child.wait()
            print(Path(log.name).read_text()[-20_000:])  # noqa: ASYNC240, T201 - shown if the test fails


@asynccontextmanager
async def served(command, **environment):
    """Run the server of *command* on a free port; give the process and the address that it prints."""
    async with running(command, **environment) as (child, log):

        def says_where():
            assert child.returncode is None, log.read_text()
            return re.search(r"unning on (http://127[\d.:]+)", log.read_text())

        found = await until(says_where)
        yield child, found[1]


def ran(name, *arguments):
    """Run the script *name* of the examples, in which a warning is an error, to its end."""
    return subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", str(ROOT / "examples" / name), *arguments],
        capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
