"""A port of this machine that stays taken while nobody listens on it: until then, it refuses connections."""

from __future__ import annotations

import asyncio
import socket
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class KeptPort:
    """
    Two sockets share the port: one never listens and keeps it, because a server of another test would get it.

    Its clients would then write to that one.
    """

    def __init__(self) -> None:
        keeper = socket.socket()
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        keeper.bind(("127.0.0.1", 0))
        self.number: int = keeper.getsockname()[1]
        weakref.finalize(self, keeper.close)

    async def listen(
        self,
        serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    ) -> asyncio.Server:
        """Return a server that accepts connections on it, until it is closed."""
        return await asyncio.start_server(
            serve, "127.0.0.1", self.number, reuse_address=False, reuse_port=True
        )
