"""What a power cut leaves, and the check of a file that comes then."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING

from invsvc_async.durable.store import sqlite as sqlite_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    import pytest

__all__ = ["check_that_lasts", "cut_power"]


def cut_power(path: Path) -> None:
    """Let the journal at *path*, which is closed, seem to have been open when the machine lost its power."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "INSERT OR REPLACE INTO facts VALUES ('open', 'in an earlier run of the machine')"
        )


@asynccontextmanager
async def check_that_lasts(
    monkeypatch: pytest.MonkeyPatch, path: Path
) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """Let the check of the journal at *path* last as long as the block; yield what waits until it has begun."""
    begun, may_end = threading.Event(), threading.Event()
    cut_power(path)

    def check(*_: object) -> None:
        begun.set()
        may_end.wait(30)

    monkeypatch.setattr(sqlite_store, "check_file", check)
    yield lambda: asyncio.to_thread(begun.wait, 30)
    may_end.set()
