"""A door in front of the simulator: while it is shut, its port refuses connections."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from yarl import URL

from tests.support.kept_port import KeptPort

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.simulator import Simulator


async def carry(
    source: asyncio.StreamReader,
    to: asyncio.StreamWriter,
    see: Callable[[bytes], Awaitable[bool]] | None = None,
) -> None:
    """Pass on what comes, or of it what *see* lets through, and the end."""
    with suppress(OSError):
        while piece := await source.read(65536):
            if see is None or await see(piece):
                to.write(piece)
                await to.drain()
    to.close()


class Door:
    """
    Forwards one port to the simulator. While it is shut, the port refuses connections.

    *see* is asked about each piece that a client sends, whether it is to be passed on.
    """

    def __init__(
        self, service: Simulator, see: Callable[[bytes], Awaitable[bool]] | None = None
    ) -> None:
        self._see = see
        self._inner = URL(service.base_url)
        self._writers = set()
        self._server = None
        self._port = KeptPort()

    @property
    def base_url(self):
        """The address of the service, through the door."""
        return str(self._inner.with_port(self._port.number))

    async def open(self):
        self._server = await self._port.listen(self._forward)

    async def shut(self):
        """Refuse connections, and break those that are open."""
        loop = asyncio.get_running_loop()
        for listening in self._server.sockets:
            loop.remove_reader(listening.fileno())
        # What was accepted gets its transport first: asyncio cannot give it one of a server that is closed.
        for _ in range(3):
            await asyncio.sleep(0)
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _forward(self, reader, writer):
        # it was shut since the connection was accepted
        if not self._server.is_serving():
            writer.transport.abort()
            return
        self._writers.add(writer)
        try:
            inner_reader, inner_writer = await asyncio.open_connection(
                "127.0.0.1", self._inner.port
            )
        except OSError:
            self._writers.discard(writer)
            writer.close()
            return
        if writer not in self._writers:  # it was shut meanwhile
            inner_writer.transport.abort()
            return
        self._writers.add(inner_writer)
        await asyncio.gather(
            carry(reader, inner_writer, self._see), carry(inner_reader, writer)
        )
        self._writers -= {writer, inner_writer}
