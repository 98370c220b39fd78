"""Exceptions that come from outside, as those of a signal handler do: at any line of the package."""

from __future__ import annotations

import dis
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

    from tests.walk.program import End


_NOP: Final = dis.opmap["NOP"]


class SoftLimitError(Exception):
    """What a handler of signals raises, such as that of a soft time limit."""


class Signal:
    """
    A trace function, which raises once: at the line number *left* that is run in *file* of the package.

    If a *function* is named, the lines of functions of this name are counted alone.  It is in force during the
    steps of one process.
    """

    def __init__(self, file: str, left: int, function: str = "") -> None:
        self._end = f"invsvc_async/{file}.py"
        self._left = left
        self._function = function
        self.place = ""  # where it was raised

    @property
    def is_over(self) -> bool:
        """Whether it was raised."""
        return bool(self.place)

    @classmethod
    def of(cls, end: End) -> Signal:
        """Return the signal with which a process is to *end*."""
        return cls(end.file, end.step or 1, end.function)

    # Any: a local trace function
    def __call__(self, frame: FrameType, _event: str, _arg: object) -> Any:
        code = frame.f_code
        is_asked = self._function in ("", code.co_name)
        if self.place or not is_asked or not code.co_filename.endswith(self._end):
            return None
        return self._line

    def _line(self, frame: FrameType, event: str, _arg: object) -> Any:
        if event == "line" and not self.place:
            self._left -= 1
            if self._left <= 0 and not _does_nothing(frame):
                self.place = f"{self._end}:{frame.f_lineno}"
                raise SoftLimitError(self.place)
        return self._line


def _does_nothing(frame: FrameType) -> bool:
    """
    Return whether the line that is about to run is one such as ``try:``.

    Python handles signals at calls, jumps back and starts of functions. Behind an ``await``, none can come
    before the block is entered.
    """
    return frame.f_code.co_code[frame.f_lasti] == _NOP


@contextmanager
def no_signal() -> Generator[None]:
    """Run the block as what another thread, or the database, does."""
    before = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(before)
