"""Processes of the tests that print lines, which are there to be stopped or killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path


async def started(module: object, *arguments: object) -> asyncio.subprocess.Process:
    """Start ``python -m MODULE ARGUMENTS``, whose output can be read."""
    command = [sys.executable, "-m", *map(str, (module, *arguments))]
    return await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE
    )


_COUNTS = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
print(db.execute(f"SELECT count(*) FROM {sys.argv[2]}").fetchone()[0])
db.close()
"""


async def counted_elsewhere(path: Path | str, table: str) -> int:
    """Return how many rows a table of a file of SQLite has, from a process that opens the file and closes it."""
    command = [sys.executable, "-c", _COUNTS, path, table]
    child = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE
    )
    return int((await child.communicate())[0])


async def first_lines(child: asyncio.subprocess.Process, count: int) -> list[str]:
    """Wait for *count* lines of *child*, and return them."""
    assert child.stdout is not None
    return [(await child.stdout.readline()).decode().strip() for _ in range(count)]


async def read_on(child: asyncio.subprocess.Process, lines: list[str]) -> None:
    """Append to *lines* what *child* prints until it ends."""
    assert child.stdout is not None
    async for line in child.stdout:
        lines.append(line.decode().strip())  # noqa: PERF401 - the caller looks at them meanwhile
    await child.wait()


async def until_stopped(child: asyncio.subprocess.Process) -> None:
    """Wait until *child* has stopped itself."""
    await asyncio.to_thread(os.waitpid, child.pid, os.WUNTRACED)


@asynccontextmanager
async def gone_after(
    child: asyncio.subprocess.Process,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Yield *child*; whatever happens, it is gone in the end, and what it printed is read."""
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


class Crew:
    """
    Processes of one program that are killed at random, and started anew, or stopped for a while.

    *command* returns the module and its arguments, by the number of the process and that of its start; *take* is
    called with each line that is printed.  A process that ends with 0 is not started again.
    """

    def __init__(
        self,
        size: int,
        chance: random.Random,
        command: Callable[[int, int], Sequence[object]],
        take: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        self.kills = self.stops = 0
        self._size, self._chance, self._command, self._take = (
            size,
            chance,
            command,
            take,
        )
        self._running: dict[int, asyncio.subprocess.Process] = {}

    async def __aenter__(self) -> Self:
        self._living = [
            asyncio.create_task(self._live(number)) for number in range(self._size)
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._living:
            task.cancel()
        await asyncio.gather(*self._living, return_exceptions=True)

    @property
    def is_done(self) -> bool:
        """Whether all have ended by themselves."""
        return all(task.done() for task in self._living)

    async def _live(self, number: int) -> None:
        for turn in count():
            async with gone_after(await started(*self._command(number, turn))) as child:
                self._running[number] = child
                assert child.stdout is not None
                async for line in child.stdout:
                    self._take(line)
                if await child.wait() == 0:
                    return

    async def hit(self) -> None:
        """Kill one of them, or stop it for so long that others may take it for dead."""
        child = self._running[self._chance.choice(list(self._running))]
        with suppress(ProcessLookupError):
            if self._chance.random() < 0.5:
                child.kill()
                self.kills += 1
            else:
                child.send_signal(signal.SIGSTOP)
                self.stops += 1
                # it counts as dead after 1 s
                await asyncio.sleep(self._chance.uniform(0.2, 2.5))
                child.send_signal(signal.SIGCONT)
