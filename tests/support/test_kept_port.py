"""A port that is kept between two servers."""

import asyncio
import socket

import pytest

from tests.support.kept_port import KeptPort


async def test_nobody_else_gets_it():
    """It refuses connections while nobody listens, nobody else can bind it, and it can be served again and again."""
    port = KeptPort()
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port.number)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", port.number))

        async def answer(_reader, writer):
            writer.write(b"here")
            writer.close()

        server = await port.listen(answer)
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
        assert await reader.read() == b"here"
        writer.close()
        server.close()
        await server.wait_closed()
