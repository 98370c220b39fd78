"""A proxy that cuts a connection whose commit goes on at the server: it waits for a standby that is away."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.support.database import connected
from tests.support.database_proxy import DatabaseProxy, both
from tests.support.door import carry
from tests.support.waiting import until

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


async def set_standby(name: str) -> None:
    """Let all commits wait for the standby *name*, which there is none of; ``""``: for nothing."""
    async with connected() as admin:
        await admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
        await admin.execute("SELECT pg_reload_conf()")

        async def is_set() -> bool:
            return bool(await admin.fetchval("SHOW synchronous_standby_names") == name)

        await until(is_set)


class SlowCommits(DatabaseProxy):
    """
    After ``hold``, a commit outlasts its connection.

    ``held`` is whether there was such a commit.
    """

    _mark: bytes | None = None
    _until: bytes = b""
    _cuts: bool = True
    held: bool = False

    def hold(self, mark: str, *, commit: str = "COMMIT", cuts: bool = True) -> None:
        """
        Cut the connection that says *mark*, and then *commit*, once the server waits in that.

        Nothing is cut if *cuts* is false. The server goes on after ``let_go``.
        """
        self._mark = mark.encode()
        self._until = commit.encode()
        self._cuts = cuts

    async def let_go(self) -> None:
        """Let the server end its commits."""
        await set_standby("")

    async def _take(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        its_reader, its_writer = await self._connected(writer)
        is_marked = False

        async def asked(piece: bytes) -> bool:
            nonlocal is_marked
            if self._mark is not None and self._mark in piece:
                is_marked = True
            if self._mark is None or not is_marked or self._until not in piece:
                return True
            self._mark = None
            await set_standby("absent")
            its_writer.write(piece)
            async with connected() as admin:

                async def is_waiting() -> bool:
                    return bool(await admin.fetchval(_WAITING))

                await until(is_waiting)
            self.held = True
            if self._cuts:
                writer.transport.abort()
                its_writer.transport.abort()
            return False

        await both(carry(reader, its_writer, asked), carry(its_reader, writer))


@asynccontextmanager
async def slow_commits() -> AsyncIterator[SlowCommits]:
    """Yield a proxy; at the end its connections are closed, and commits wait for nothing."""
    proxy = SlowCommits()
    await proxy.open()
    try:
        yield proxy
    finally:
        proxy.cut()
        await proxy.let_go()
