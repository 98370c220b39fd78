"""Processes of the tests that print lines, which are there to be stopped or killed."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


async def started(module: str, *arguments: object) -> asyncio.subprocess.Process:
    """Start ``python -m MODULE ARGUMENTS``, whose output can be read."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)


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


@asynccontextmanager
async def gone_after(child: asyncio.subprocess.Process) -> AsyncIterator[asyncio.subprocess.Process]:
    """Yield *child*; whatever happens, it is gone in the end, and what it printed is read."""
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()
