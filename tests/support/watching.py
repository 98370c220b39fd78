"""
Watch one process for what a client may leave behind: tasks, sockets, files, unclosed things, lost exceptions.

Must never change what it watches.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

PATIENCE = 2.0  # s until transports that were closed are gone


def open_files() -> Counter[str]:
    """Count this process's file descriptors by kind (socket, pipe, a file's path …)."""
    found: Counter[str] = Counter()
    for each in Path("/proc/self/fd").iterdir():
        try:
            found[str(each.readlink()).partition(":")[0]] += 1
        except OSError:  # the listing's own
            continue
    return found


class Watch:
    """What was there when the block began, and what became of it; use it inside the loop."""

    def __enter__(self) -> Self:
        gc.collect()
        self.said: list[str] = []
        self._loop = asyncio.get_running_loop()
        self._tasks = set(asyncio.all_tasks())
        self._files = open_files()
        self._warnings = warnings.catch_warnings(record=True)
        self._caught = self._warnings.__enter__()
        warnings.simplefilter("always", ResourceWarning)
        warnings.simplefilter("always", RuntimeWarning)
        self._hook, sys.unraisablehook = (
            sys.unraisablehook,
            lambda what: self.said.append(f"unraisable {what}"),
        )
        self._loop.set_exception_handler(
            lambda _loop, context: self.said.append(str(context))
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.set_exception_handler(None)
        sys.unraisablehook = self._hook
        self._warnings.__exit__(kind, error, trace)

    async def leaks(self) -> list[str]:
        """Name what is left that was not there; waits for transports that are closing."""
        until = self._loop.time() + PATIENCE
        while (found := self._left()) and self._loop.time() < until:
            await asyncio.sleep(0.05)  # sleeps: in which transports that are closing go
            gc.collect()
        caught = [
            str(each.message)
            for each in self._caught
            if "unclosed" in str(each.message) or each.category is RuntimeWarning
        ]
        return found + self.said + caught

    def _left(self) -> list[str]:
        tasks = [f"task left: {each!r}" for each in asyncio.all_tasks() - self._tasks]
        files = [
            f"{count} {kind} left open"
            for kind, count in (open_files() - self._files).items()
        ]
        return tasks + files
