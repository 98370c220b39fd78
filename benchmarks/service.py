"""
Answer as the service would, from a process of its own, with as little work as an asyncio protocol can do.

It is not the bottleneck: it makes no object and parses nothing but the length of the request.  nginx would be
quicker still, but cannot put the time of the moment into a body, without which a client learns a wrong clock.
The simulator makes and checks whole resources, which takes it half a millisecond.

    python -m benchmarks.service DELAY [PLACES]

Each answer comes DELAY seconds after its request; with PLACES, it works on only so many requests at once, and
the others queue.  It ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import time
from collections import deque
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from benchmarks import bodies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["UNKNOWN", "Connection", "Work", "service"]

_HEAD = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
_PAGES = 100
_MADE = itertools.count(1)
UNKNOWN = 5  # unknown fields in each invoice of its pages


@contextmanager
def service(delay: float = 0.0, *, places: int = 0) -> Iterator[str]:
    """Start it on a free port of the loopback and give its base URL."""
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.service", str(delay), str(places)],
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


class Work:
    """What is done after *delay* seconds of work, on *places* at once; 0: on any number."""

    def __init__(self, delay: float, places: int) -> None:
        self._delay, self._free, self._is_bounded = delay, places, bool(places)
        self._queue: deque[Callable[[], None]] = deque()

    def then(self, act: Callable[[], None]) -> None:
        """Do *act* once the work is done."""
        if not self._delay:
            act()
        elif not self._is_bounded:
            asyncio.get_running_loop().call_later(self._delay, act)
        elif self._free:
            self._free -= 1
            asyncio.get_running_loop().call_later(self._delay, self._finish, act)
        else:
            self._queue.append(act)

    def _finish(self, act: Callable[[], None]) -> None:
        self._free += 1
        if self._queue:
            self.then(self._queue.popleft())
        act()


class Connection(asyncio.Protocol):
    """One connection, its requests answered in order."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._waiting = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._waiting += data
        while (end := self._waiting.find(b"\r\n\r\n")) >= 0:
            head = self._waiting[:end]
            at = head.lower().find(b"content-length:")
            whole = (
                end + 4 + (int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0)
            )
            if len(self._waiting) < whole:
                return
            body, self._waiting = self._waiting[end + 4 : whole], self._waiting[whole:]
            line = head[: head.find(b"\r\n")]
            self._work.then(lambda line=line, body=body: self.answer(line, body))  # type: ignore[misc]

    def answer(self, line: bytes, body: bytes) -> None:
        """Answer the request with this first *line* and *body*."""
        status, now = b"200 OK", time.time_ns() // 1_000_000
        if line.startswith(b"POST"):
            url = body[body.index(b'"url":"') + 7 :].split(b'"', 1)[0]
            status, text = b"201 Created", bodies.created(now, next(_MADE), url)
        elif b"/invoices/" in line:
            number = int(
                line.partition(b"next=c")[2].split(b" ")[0].split(b"&")[0] or b"0"
            )
            following = f"c{number + 1}" if number + 1 < _PAGES else None
            text = bodies.page(following=following, unknown=UNKNOWN)
        elif b"/webhooks/" in line:
            text = bodies.webhook(
                now, line.partition(b"/webhooks/")[2].split(b" ")[0].split(b"?")[0]
            )
        else:
            text = (bodies.USER if b"/users/" in line else bodies.NONE) % now
        self._transport.write(_HEAD % (status, len(text), text))


async def _serve(delay: float, places: int) -> None:
    loop, work = asyncio.get_running_loop(), Work(delay, places)
    server = await loop.create_server(
        lambda: Connection(work), "127.0.0.1", 0, backlog=16_384
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    bodies.page(following=None, unknown=UNKNOWN)
    try:
        import uvloop
    except ImportError:
        run = asyncio.run
    else:
        run = uvloop.run
    run(_serve(float(sys.argv[1]), int(sys.argv[2])))
