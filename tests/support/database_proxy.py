"""A proxy before the tests' PostgreSQL, which can lose a reply, fall silent or be cut, and counts round trips."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from tests.support.database import database
from tests.support.door import carry
from tests.support.kept_port import KeptPort

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

_READY = b"Z\0\0\0\5"  # the end of a reply: it was done


class DatabaseProxy:
    """Passes connections of a port of this machine to the database's socket."""

    def __init__(self) -> None:
        address = urlsplit(database().address)
        asked = dict(parse_qsl(address.query))
        self._socket = (
            f"{asked['host']}/.s.PGSQL.{asked.get('port', address.port or 5432)}"
        )
        self._user, self._name = address.username, address.path.strip("/")
        self._marks: list[bytes] = []
        self._speaks = asyncio.Event()
        self._speaks.set()
        self._server: asyncio.Server | None = None
        self._carrying: set[asyncio.Task[None] | None] = set()
        self._ends: set[asyncio.StreamWriter] = set()
        self.port = KeptPort()
        self.lost = 0
        self.trips = 0  # messages from the application after which the database answered, of all connections

    async def open(self) -> None:
        """Accept connections, on the same port each time."""
        self._server = await self.port.listen(self._take)

    @property
    def address(self) -> str:
        """Return the address of the database, through this proxy."""
        return f"postgresql://{self._user}@127.0.0.1:{self.port.number}/{self._name}?sslmode=disable"

    def journal(self, name: str) -> str:
        """Return the address of the journal called *name*, through this proxy."""
        return f"{self.address}&batch={name}&silence=1"

    def lose(self, *marks: str) -> None:
        """Lose the reply to the first question that holds the last of *marks*, after such that hold the others."""
        self._marks = [mark.encode() for mark in marks]

    def silence(self) -> None:
        """Forward nothing any more, on present and new connections: the database hangs."""
        self._speaks.clear()

    def speak(self) -> None:
        """Forward again on new connections; the silent ones stay silent."""
        self._speaks = asyncio.Event()
        self._speaks.set()

    def cut(self) -> None:
        """End all connections and take no more: the database is gone."""
        if self._server is not None:
            self._server.close()
        self.break_off()

    def break_off(self) -> None:
        """End all present connections."""
        for task in self._carrying:
            if task is not None:
                task.cancel()
        for end in self._ends:
            end.transport.abort()
        self._carrying.clear()
        self._ends.clear()

    async def _connected(
        self, writer: asyncio.StreamWriter
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the database for the application behind *writer*."""
        self._carrying.add(asyncio.current_task())
        its_reader, its_writer = await asyncio.open_unix_connection(self._socket)
        self._ends |= {writer, its_writer}
        return its_reader, its_writer

    async def _take(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Relay one connection, until an answer on it is lost."""
        its_reader, its_writer = await self._connected(writer)
        losing = asking = False
        speaks = self._speaks  # of this connection: a silent one stays silent

        async def asked(piece: bytes) -> bool:
            nonlocal losing, asking
            await speaks.wait()
            self.trips += not asking
            asking = True
            if self._marks and self._marks[0] in piece:
                losing = len(self._marks) == 1
                del self._marks[0]
            return True

        async def replied(piece: bytes) -> bool:
            nonlocal asking
            await speaks.wait()
            asking = False
            if losing and _READY in piece:
                self.lost += 1
                writer.transport.abort()
                its_writer.transport.abort()
            return not losing

        await both(carry(reader, its_writer, asked), carry(its_reader, writer, replied))


async def both(*ways: Coroutine[None, None, None]) -> None:
    """Carry both *ways* of a connection, until it ends or is cut."""
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*ways)


@asynccontextmanager
async def database_proxy() -> AsyncIterator[DatabaseProxy]:
    """Yield a proxy; its connections are closed at the end."""
    proxy = DatabaseProxy()
    await proxy.open()
    try:
        yield proxy
    finally:
        proxy.cut()
