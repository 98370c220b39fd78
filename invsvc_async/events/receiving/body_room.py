"""How many bytes of bodies a receiver holds at once."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from invsvc_async.events.receiving.receipt import Receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["BodyRoom", "NoRoomError"]

_log: Final = logging.getLogger("invsvc_async.events")


class NoRoomError(Exception):
    """Other bodies take all the room; ``receipt`` is the answer, which makes the sender come back."""

    receipt: Final = Receipt(503, "unavailable", headers={"Retry-After": "5"})


class BodyRoom:
    """Room for *size* bytes of bodies from their arrival until their answers, in all threads together."""

    def __init__(self, size: int) -> None:
        self._size = self._free = size
        self._lock = threading.Lock()

    @contextmanager
    def body(self) -> Generator[Callable[[int], None]]:
        """
        Yield a function that takes room for some bytes of one body; the block's end gives it back.

        Raises:
            NoRoomError: By the function: there is no room for them.
        """
        taken = 0

        def take(size: int) -> None:
            nonlocal taken
            with self._lock:
                if size > self._free:
                    _log.warning("A delivery was refused: others fill the %s bytes for bodies", self._size)
                    raise NoRoomError
                self._free -= size
            taken += size

        try:
            yield take
        finally:
            with self._lock:
                self._free += taken
