"""A server on standard input and output, as hosts of agents start it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from mcp.server.stdio import stdio_server

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

_log: Final = logging.getLogger("invsvc_async.agents")
LONGEST: Final = 4_000_000  # bytes of one message
_PART: Final = 65_536  # bytes that are read at once
_TOO_LONG: Final = b"too long"  # no JSON: the SDK drops it


async def serve_stdio(server: Server[Any]) -> None:
    """Answer the messages of standard input, one a line, until its end."""
    lines: Any = InputLines(sys.stdin.fileno())  # Any: the SDK names a class of anyio
    async with stdio_server(stdin=lines) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


class InputLines:
    """
    The lines of the file descriptor *number*, read by a daemon thread.

    So Ctrl-C ends the server, although its input is open.  The thread reads without Python's buffer, because
    an interpreter that ends would wait for the buffer's lock.  A line of more than ``LONGEST`` bytes is
    replaced by one that is no message.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, daemon=True).start()

    def __aiter__(self) -> InputLines:
        return self

    async def __anext__(self) -> str:
        line = await self._queue.get()
        if line is None:
            raise StopAsyncIteration
        return line

    def _read(self) -> None:
        line = LineEnd()
        try:
            while part := os.read(self._number, _PART):
                for whole in line.after(part):
                    self._put(whole.decode(errors="replace"))
        except OSError as error:  # a terminal that was hung up, for example
            _log.error("Standard input cannot be read: %s", error)
        finally:
            self._put(None)

    def _put(self, line: str | None) -> None:
        # the loop is closed: the server has ended
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._queue.put_nowait, line)


class LineEnd:
    """The beginning of a line whose end was not read yet."""

    def __init__(self) -> None:
        self._begun = bytearray()
        self._is_too_long = False

    def after(self, part: bytes) -> list[bytes]:
        """Return the lines that end in *part*."""
        *ended, rest = part.split(b"\n")
        lines = [self._ended(each) for each in ended]
        self._add(rest)
        return lines

    def _ended(self, last: bytes) -> bytes:
        self._add(last)
        line = _TOO_LONG if self._is_too_long else bytes(self._begun)
        self._begun.clear()
        self._is_too_long = False
        return line

    def _add(self, part: bytes) -> None:
        if len(self._begun) + len(part) > LONGEST:
            self._is_too_long = True
            self._begun.clear()
        if not self._is_too_long:
            self._begun += part
