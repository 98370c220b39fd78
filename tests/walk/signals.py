"""Exceptions that come from outside, as those of a signal handler do: at any line of the package."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType


class SoftLimitError(Exception):
    """What a handler of signals raises, such as that of a soft time limit."""


class Signal:
    """
    A trace function, which raises once: at the line number *left* that is run in *file* of the package.

    It is in force during the steps of one process.
    """

    def __init__(self, file: str, left: int) -> None:
        self._end = f"invsvc_async/{file}.py"
        self._left = left
        self.place = ""  # where it was raised

    @property
    def is_over(self) -> bool:
        """Whether it was raised."""
        return bool(self.place)

    # Any: a local trace function
    def __call__(self, frame: FrameType, _event: str, _arg: object) -> Any:
        return (
            self._line
            if not self.place and frame.f_code.co_filename.endswith(self._end)
            else None
        )

    # Any: a local trace function
    def _line(self, frame: FrameType, event: str, _arg: object) -> Any:
        if event == "line" and not self.place:
            self._left -= 1
            if self._left <= 0:
                self.place = f"{self._end}:{frame.f_lineno}"
                raise SoftLimitError(self.place)
        return self._line


@contextmanager
def no_signal() -> Generator[None]:
    """Run the block as what another thread, or the database, does."""
    before = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(before)
