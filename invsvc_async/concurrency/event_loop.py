"""The event loop of commands: uvloop if it is installed, and fewer garbage collections."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


T = TypeVar("T")

# a batch keeps tens of thousands of objects alive, and hardly any cycles
GARBAGE = (10_000, 20, 20)


def until_done(command: Coroutine[Any, Any, T], *, short: bool = False) -> T:
    """
    Run *command* to its end on a new event loop.  Ctrl-C cancels it, as with ``asyncio.run``.

    A *short* command makes a few requests only, so importing uvloop would take longer than it saves.
    """
    before = gc.get_threshold()
    gc.set_threshold(*GARBAGE)
    try:
        make_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
        if not short:
            with suppress(ImportError):  # an extra, and not for Windows
                import uvloop

                make_loop = uvloop.new_event_loop
        with asyncio.Runner(loop_factory=make_loop) as runner:
            return runner.run(command)
    finally:
        gc.set_threshold(*before)
