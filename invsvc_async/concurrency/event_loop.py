"""
Run a command as quickly as its process can: on uvloop, where that is installed, with little looking for
garbage.
"""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["GARBAGE", "until_done"]

T = TypeVar("T")

GARBAGE = (10_000, 20, 20)  # a batch has tens of thousands of objects under way, and next to no cycles


def until_done(command: Coroutine[Any, Any, T]) -> T:
    """Run *command* on a loop of its own to its end; Ctrl-C cancels it, as under ``asyncio.run``."""
    before = gc.get_threshold()
    gc.set_threshold(*GARBAGE)
    try:
        with asyncio.Runner(loop_factory=_quickest()) as runner:
            return runner.run(command)
    finally:
        gc.set_threshold(*before)


def _quickest() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # an extra, and not for Windows
        return None
    return uvloop.new_event_loop
