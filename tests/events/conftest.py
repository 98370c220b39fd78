"""A real PostgreSQL, and a store of each kind with a clock in the test's hand."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from invsvc_async import events
from tests.support.database import connected, database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres() -> str:
    """Return the address of a server that lives as long as this process."""
    return database().address


@pytest.fixture
async def own_postgres() -> AsyncIterator[str]:
    """Yield the address of a database for this test, whose tables have their default names."""
    async with database().fresh(f"events{next(_numbers)}") as address:
        yield address


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the path, or the address, of a new store of each kind."""
    if request.param == "SQLite":
        return str(tmp_path / "events.db")
    address: str = request.getfixturevalue("own_postgres")
    return address


class Kept:
    """A store, and the passing of its time."""

    def __init__(self, store: events.Store) -> None:
        self.store = store
        self.now = 1_000_000.0

    async def pass_time(self, seconds: float) -> None:
        """Advance the store's clock."""
        self.now += seconds


class KeptInPostgres(Kept):
    """The server's clock cannot be turned, so all times in the table are."""

    def __init__(self, store: events.Store, dsn: str, table: str) -> None:
        super().__init__(store)
        self._dsn = dsn
        self._table = table

    async def pass_time(self, seconds: float) -> None:
        """Advance the store's clock."""
        async with connected(self._dsn) as connection:
            await connection.execute(
                f"UPDATE {self._table} SET due = due - $1", seconds
            )


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kept]:
    """Yield a new store of each kind."""
    kept: Kept
    if request.param == "postgres":
        dsn: str = request.getfixturevalue("postgres")
        table = f"events_{next(_numbers)}"
        kept = KeptInPostgres(events.PostgresStore(dsn, table=table), dsn, table)
    else:
        made: list[Kept] = []

        def clock() -> float:
            return made[0].now

        store: Any = events.MemoryStore(clock=clock, steady=clock)
        if request.param == "sqlite":
            store = events.SqliteStore(
                tmp_path / "events.db", clock=clock, steady=clock
            )
        kept = Kept(store)
        made.append(kept)
    yield kept
    await kept.store.close()
