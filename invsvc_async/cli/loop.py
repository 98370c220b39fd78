"""Run a command on the quickest loop there is: uvloop's, where it is installed; never ask for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["until_done"]

T = TypeVar("T")


def until_done(command: Coroutine[Any, Any, T]) -> T:
    """Run *command* on a loop of its own to its end; Ctrl-C cancels it, as under ``asyncio.run``."""
    with asyncio.Runner(loop_factory=_quickest()) as runner:
        return runner.run(command)


def _quickest() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # an extra, and not for Windows
        return None
    return uvloop.new_event_loop
