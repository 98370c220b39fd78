"""A way to the tests' PostgreSQL on which a reply can be lost."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from tests.batch.database import database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_READY = b"Z\0\0\0\5"  # the end of a reply: it was done


class Way:
    """Connections of a port of this machine to the database's socket."""

    def __init__(self) -> None:
        address = urlsplit(database().address)
        asked = dict(parse_qsl(address.query))
        self._socket = f"{asked['host']}/.s.PGSQL.{asked.get('port', address.port or 5432)}"
        self._user, self._name = address.username, address.path.strip("/")
        self._marks: list[bytes] = []
        self.port = 0
        self.lost = 0

    def journal(self, name: str) -> str:
        """Give the address of the journal called *name*, by this way."""
        return f"postgresql://{self._user}@127.0.0.1:{self.port}/{self._name}?batch={name}&sslmode=disable&silence=1"

    def lose(self, *marks: str) -> None:
        """Lose the reply to the first question that holds the last of *marks*, after such that hold the others."""
        self._marks = [mark.encode() for mark in marks]

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection, until a reply of it is lost."""
        its_reader, its_writer = await asyncio.open_unix_connection(self._socket)
        losing = False

        def asked(piece: bytes) -> None:
            nonlocal losing
            if self._marks and self._marks[0] in piece:
                losing = len(self._marks) == 1
                del self._marks[0]

        def replied(piece: bytes) -> bool:
            if losing and _READY in piece:
                self.lost += 1
                writer.transport.abort()
                its_writer.transport.abort()
            return not losing

        await asyncio.gather(
            _carry(reader, its_writer, lambda piece: (asked(piece), True)[1]),
            _carry(its_reader, writer, replied),
        )


async def _carry(
    source: asyncio.StreamReader, to: asyncio.StreamWriter, see: Callable[[bytes], bool]
) -> None:
    """Pass on what *see* lets through."""
    with suppress(OSError):
        while piece := await source.read(65536):
            if see(piece):
                to.write(piece)
                await to.drain()
    to.close()


@asynccontextmanager
async def lossy() -> AsyncIterator[Way]:
    """Give a way of the test's own."""
    way = Way()
    server = await asyncio.start_server(way.take, "127.0.0.1", 0)
    way.port = server.sockets[0].getsockname()[1]
    try:
        yield way
    finally:
        server.close()
