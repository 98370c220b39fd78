"""A server on standard input and output, as hosts of agents start it."""

from __future__ import annotations

import asyncio
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mcp.server.stdio import stdio_server

if TYPE_CHECKING:
    from typing import BinaryIO

    from mcp.server.lowlevel import Server

LONGEST: Final = 4_000_000  # bytes of one message
_TOO_LONG: Final = "too long"  # no JSON: the SDK drops it


async def serve_stdio(server: Server[Any]) -> None:
    """Answer the messages of standard input, one a line, until its end."""
    lines: Any = Lines(sys.stdin.buffer)  # Any: the SDK names a class of anyio for it
    async with stdio_server(stdin=lines) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


class Lines:
    """
    The lines of *source*, read by a thread that nobody has to wait for, so that Ctrl-C ends the server.

    Of a line that is too long, no more than ``LONGEST`` bytes are in memory; it becomes a line that is no
    message.
    """

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, daemon=True).start()

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> str:
        line = await self._queue.get()
        if line is None:
            raise StopAsyncIteration
        return line

    def _read(self) -> None:
        is_rest = False  # of a line that is too long
        for part in iter(partial(self._source.readline, LONGEST), b""):
            is_end = part.endswith(b"\n")
            is_whole = is_end and not is_rest
            is_rest = not is_end
            if is_whole:
                self._put(part.decode(errors="replace"))
            elif is_end:
                self._put(_TOO_LONG)
        self._put(None)

    def _put(self, line: str | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, line)
        except RuntimeError:  # the loop is closed: the server has ended
            sys.exit()
