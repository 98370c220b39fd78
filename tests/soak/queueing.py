"""
Serve a number of requests at once, each for the same time, and queue the rest, at little cost of CPU.

The service in a box makes and checks whole resources, which takes it half a millisecond: with 80 places of 50
ms its own loop would be the limit, not its places.  This one answers from two texts.

    python -m tests.soak.queueing PLACES SECONDS
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_HEAD = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
_USER = b'{"success":true,"data":{"id":"usr_1","email":"ana@me.example"},"message":"found","timestamp":%d}'
_HOOK = (
    b'{"success":true,"data":{"id":"wh_%d","url":"https://me.example/in","events":["invoice.created"],'
    b'"status":"active","owner":"usr_1","created_at":1780000000000,"secret":"whsec_x"},"message":"stored",'
    b'"timestamp":%d}'
)


class Places:
    """The places, and those who wait for one, in the order in which they came."""

    def __init__(self, places: int, seconds: float) -> None:
        self._free, self._seconds = places, seconds
        self._queue: deque[Connection] = deque()
        self._loop = asyncio.get_running_loop()

    def enter(self, who: Connection) -> None:
        """Work on *who*'s request, now or when a place is free."""
        if not self._free:
            self._queue.append(who)
            return
        self._free -= 1
        self._loop.call_later(self._seconds, self._finish, who)

    def _finish(self, who: Connection) -> None:
        self._free += 1
        if self._queue:
            self.enter(self._queue.popleft())
        who.answer()


class Connection(asyncio.Protocol):
    """One connection; a client sends its next request once it has the answer."""

    made = 0

    def __init__(self, places: Places) -> None:
        self._places, self._buffer = places, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way out."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Start each request that is whole."""
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n") + 4
        if end < 4:
            return
        _, found, after = self._buffer[:end].lower().partition(b"content-length:")
        if len(self._buffer) >= end + (int(after.split(b"\r\n", 1)[0]) if found else 0):
            self._creates, self._buffer = self._buffer.startswith(b"POST"), b""
            self._places.enter(self)

    def answer(self) -> None:
        """Answer the request."""
        now = time.time_ns() // 1_000_000
        if self._creates:
            Connection.made += 1
            status, body = b"201 Created", _HOOK % (Connection.made, now)
        else:
            status, body = b"200 OK", _USER % now
        self._transport.write(_HEAD % (status, len(body), body))


async def _serve(places: int, seconds: float) -> None:
    shared = Places(places, seconds)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(shared), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - for who started it
    await server.serve_forever()


@asynccontextmanager
async def queueing(places: int, seconds: float) -> AsyncIterator[str]:
    """Run it in a process of its own; gives its base URL."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.soak.queueing", str(places), str(seconds),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(await child.stdout.readline())}/v2"
    finally:
        child.kill()
        await child.wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2])))
