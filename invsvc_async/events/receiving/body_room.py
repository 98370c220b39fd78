"""
Room in memory for the bodies of deliveries, from their first byte until their answers.

Anybody can send bodies, and most of them cannot be judged before their last byte.  So their sum is limited,
and three rules keep strangers from filling it, and from taking all the time of the event loop:

- Small bodies have a section of their own, which larger ones cannot take: an event has some kB.
- Where a section is full, the unfinished body that has been under way for longest gives its bytes up.  A body
  that comes as fast as others keeps them; one that comes slowly, or not at all, loses them to the others.
- Large bodies together are read at a limited rate, so that there is time for small ones.  What waits is not
  read: the server then stops its sender.

A body that is whole keeps its bytes until its answer.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from invsvc_async.concurrency.pace import Pace

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Generator

_log: Final = logging.getLogger("invsvc_async.events")
_BODIES: Final = 64  # of the largest size, in memory at once
# a small body has at most this fraction of the largest size: 64 KiB of 1 MiB
_SMALL: Final = 16
_FOR_SMALL: Final = 4  # this fraction of all the room is for small bodies alone
# Large bodies together are read at so many times the largest size in a second; if that is less than 1 MiB, at
# so many MiB.
_RATE: Final = 32
_MIB: Final = 2**20
_BURST: Final = 0.2  # s of that rate, for what comes after a pause


class Body:
    """
    A body on its way.

    Its repr shows its length alone, because error trackers record local variables.
    """

    def __init__(self, room: BodyRoom, section: _Section) -> None:
        self.section: _Section = section
        self.chunks: bytearray = bytearray()
        self.held: int = 0  # bytes of its section
        self.is_refused: bool = False
        self._room = room

    def __repr__(self) -> str:
        return f"<a body of {self.held} bytes so far>"

    def pause(self, size: int, now: float) -> float:
        """Return how many seconds to wait, at the loop's time *now*, once *size* bytes more were read."""
        return self._room.pause(self, size, now)

    def add(self, chunk: bytes) -> bool:
        """Add *chunk*; return ``False`` if there is no room for it, or the body has lost its bytes."""
        return self._room.hold(self, chunk)

    def whole(self) -> bytes | None:
        """Return the whole body; ``None`` if the body has lost its bytes to others."""
        return self._room.finish(self)


class _Section:
    """A section of the room: the bytes that are free, and its unfinished bodies, the oldest first."""

    def __init__(self, size: int) -> None:
        self.free: int = size
        self.unfinished: OrderedDict[Body, None] = OrderedDict()

    def take(self, body: Body, size: int) -> bool:
        """
        Reserve *size* bytes for *body*, and return whether that succeeded.

        If too few are free, older unfinished bodies are refused, and release theirs.
        """
        while self.free < size and self.unfinished:
            oldest = next(iter(self.unfinished))
            self.drop(oldest)
            oldest.is_refused = True
            # No other is unfinished for longer, so *body* has to go itself.
            if oldest is body:
                return False
        if self.free < size:
            return False
        self.free -= size
        body.held += size
        return True

    def release(self, body: Body) -> int:
        """Free the bytes that *body* has here, and return their number; its chunks stay."""
        held = body.held
        self.unfinished.pop(body, None)
        self.free += held
        body.held = 0
        return held

    def drop(self, body: Body) -> None:
        """Free the bytes that *body* has here, and drop its chunks."""
        self.release(body)
        body.chunks.clear()


class BodyRoom:
    """
    The room for the bodies of one receiver, the largest of which may have *largest* bytes.

    It can be used from several threads.
    """

    def __init__(self, largest: int) -> None:
        size = _BODIES * largest
        self.size: Final = size
        self._small_size = max(1, largest // _SMALL)
        self._small = _Section(size // _FOR_SMALL)
        self._large = _Section(size - size // _FOR_SMALL)
        self._lock = threading.Lock()
        # of the bytes of large bodies
        self._pace = Pace(_RATE * max(largest, _MIB), burst=_BURST)

    @property
    def free(self) -> int:
        """How many bytes are free, of both sections together."""
        return self._small.free + self._large.free

    @contextmanager
    def body(self, length: int | None = None) -> Generator[Body]:
        """Yield a body of *length* bytes, if known; the body gives its room back at the end of the block."""
        # Without a length, it begins as a small one: ``hold`` moves a body that outgrows that section.
        section = self._small
        if length is not None and length > self._small_size:
            section = self._large
        body = Body(self, section)
        try:
            yield body
        finally:
            with self._lock:
                body.section.drop(body)

    def pause(self, body: Body, size: int, now: float) -> float:
        """
        Return how many seconds to wait before more of *body* is read, of which *size* bytes have just come.

        A small body never waits.  All calls come from one event loop.
        """
        if body.section is self._small:
            return 0.0
        self._pace.use(size, now)
        return self._pace.wait(now)

    def hold(self, body: Body, chunk: bytes) -> bool:
        """Add *chunk* to *body*; return whether there is room for it."""
        with self._lock:
            if not body.is_refused and self._reserve(body, len(chunk)):
                body.chunks += chunk
                return True
            body.section.drop(body)
            body.is_refused = True
        _log.warning(
            "A delivery was refused: others fill the %s bytes for bodies", self.size
        )
        return False

    def _reserve(self, body: Body, size: int) -> bool:
        """Reserve *size* bytes more for *body*, in the section of its size; return whether that succeeded."""
        wanted = size
        outgrows = body.section is self._small and body.held + size > self._small_size
        if outgrows:  # nothing in its head said how long it is
            wanted += self._small.release(body)
            body.section = self._large
        body.section.unfinished.setdefault(body)
        return body.section.take(body, wanted)

    def finish(self, body: Body) -> bytes | None:
        """Return *body* as a whole, whose bytes are safe from now on; ``None`` if they were lost."""
        with self._lock:
            if body.is_refused:
                return None
            body.section.unfinished.pop(body, None)
            whole = bytes(body.chunks)
            body.chunks.clear()
            return whole


async def read_body(
    chunks: AsyncIterable[bytes],
    arriving: Body,
    largest: int,
) -> bool:
    """
    Read *chunks* into the body *arriving*, until it is whole or has more than *largest* bytes.

    Return whether there was room for it.
    """
    loop = asyncio.get_running_loop()
    async for chunk in chunks:
        size = len(chunk)
        has_room = arriving.add(chunk)
        del chunk  # While this waits for the next one, it holds none.
        if not has_room:
            return False
        # There was room, but the body is too large: ``Processing.receive`` sees that, and answers 413.
        if arriving.held > largest:
            return True
        pause = arriving.pause(size, loop.time())
        if pause:
            await asyncio.sleep(pause)
    return True
