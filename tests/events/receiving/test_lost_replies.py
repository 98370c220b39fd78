"""Deliveries whose store has lost the database's reply: they are stored, and the receiver cannot know."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from invsvc_async import events
from tests.events.bodies import signed_body, v2
from tests.events.receiving.test_receiver import Service, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = pytest.mark.one_python

_numbers = itertools.count()


class Line:
    """A port before the database; while ``loses`` is true, it drops each reply and the connection."""

    def __init__(self, address: str) -> None:
        self._socket = f"{parse_qs(urlsplit(address).query)['host'][0]}/.s.PGSQL.5432"
        self.loses = False
        self.lost = 0

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[str]:
        """Yield the address of the database behind it."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable"
        finally:
            server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_unix_connection(self._socket)
        try:
            with contextlib.suppress(ConnectionError):
                await asyncio.gather(
                    self._pass(reader, forth, replies=False), self._pass(back, writer, replies=True)
                )
        finally:  # also if the test ends before it notices that the connection was dropped
            forth.close()
            writer.close()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool
    ) -> None:
        while data := await reader.read(1 << 16):
            if replies and self.loses and b"INSERT 0 1" in data:  # the row is committed
                self.lost += 1
                writer.transport.abort()
                return
            writer.write(data)
        writer.close()


@pytest.mark.parametrize(
    ("body", "how"), [(v2("invoice.created"), "shared"), (signed_body("sat.invoice.synced"), "signed")]
)
async def test_delivery_whose_reply_of_the_database_is_lost(postgres: str, body, how: str) -> None:
    """
    The first answer is 503, the one to the copy is 200 as a duplicate, and the handler runs once.

    It also runs once if no copy comes, as of events that are sent only once.
    """
    line, table = Line(postgres), f"lost_{next(_numbers)}"
    async with line.open() as address:
        service = Service(mode="inbox", store=events.PostgresStore(address, table=table))
        await service.receiver.store.open()
        line.loses = True
        first = await service.deliver(body, **{how: True})
        line.loses = False
        assert (first.status, first.outcome, line.lost) == (503, "unavailable", 1)

        async with service.receiver:
            await eventually(lambda: service.seen)
            again = await service.deliver(body, **{how: True})
            found = service.receiver.stats()
        counts = await service.receiver.store.counts()  # once the worker has ended
        await service.receiver.store.close()

    assert (again.status, again.outcome) == (200, "duplicate")
    assert (len(service.seen), counts) == (1, {"open": 0, "handled": 1, "dead": 0})
    assert found.answers == {(503, "unavailable"): 1, (200, "duplicate"): 1}
    assert found.calls == 1
