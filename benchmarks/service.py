"""
Answer as the service would, from a process of its own, with as little work as an asyncio protocol can do.

It is not the bottleneck: it makes no object and parses nothing but the length of the request.  nginx would be
quicker still, but cannot put the time of the moment into a body, without which a client learns a wrong clock.

Run with ``--delay SECONDS`` each answer waits that long.  It ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from benchmarks import bodies

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["UNKNOWN", "service"]

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
_PAGES = 100
UNKNOWN = 5  # unknown fields in each invoice of its pages


@contextmanager
def service(*, delay: float = 0.0) -> Iterator[str]:
    """Start it on a free port of the loopback and give its base URL."""
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.service", str(delay)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    with child:
        port = int(child.stdout.readline())
        try:
            yield f"http://127.0.0.1:{port}/v2"
        finally:
            child.stdin.close()


class _Connection(asyncio.Protocol):
    """One connection, its requests answered in order."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._waiting = b""
        self._pages: dict[bytes, bytes] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._waiting += data
        while (end := self._waiting.find(b"\r\n\r\n")) >= 0:
            head = self._waiting[:end]
            at = head.lower().find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._waiting) < end + 4 + length:
                return
            self._waiting = self._waiting[end + 4 + length :]
            self._answer(head)

    def _answer(self, head: bytes) -> None:
        line = head[: head.find(b"\r\n")]
        if b"/invoices/" in line:
            body = self._page(line)
        else:
            asked = line.partition(b"/webhooks/")[2].partition(b" ")[0]
            body = bodies.webhook(time.time_ns() // 1_000_000, asked or b"wh_1")
        if self._delay:
            asyncio.get_running_loop().call_later(self._delay, self._write, body)
        else:
            self._write(body)

    def _write(self, body: bytes) -> None:
        self._transport.write(_HEAD % (len(body), body))

    def _page(self, line: bytes) -> bytes:
        asked = line.partition(b"next=c")[2].split(b" ")[0].split(b"&")[0]
        number = int(asked or b"0")
        return bodies.page(following=f"c{number + 1}" if number + 1 < _PAGES else None, unknown=UNKNOWN)


async def _serve(delay: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(delay), "127.0.0.1", 0, backlog=16_384)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    bodies.page(following=None, unknown=UNKNOWN)
    try:
        import uvloop
    except ImportError:
        asyncio.run(_serve(float(sys.argv[1])))
    else:
        uvloop.run(_serve(float(sys.argv[1])))
