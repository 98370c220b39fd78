"""The indexes of a PostgreSQL event store that a table of an older version of this package lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from invsvc_async.storage.postgres_pool import Pool

__all__ = ["CONNECTIONS", "build", "build_small"]

CONNECTIONS: Final = 2  # that ``build`` uses: one has the lock, one builds
_INDEXES: Final = {
    "{table}_open": "{table} (id) WHERE state = 'open'",
    "{table}_next": "{table} (handler, due, id) WHERE state = 'open' AND body IS NOT NULL",
}
_SMALL: Final = 32 << 20  # bytes of a table whose index is built before its first use: about 0.1 s
_SIZE: Final = "SELECT pg_relation_size(to_regclass($1))"
_VALID: Final = "SELECT 1 FROM pg_index WHERE indexrelid = to_regclass($1) AND indisvalid"


async def build_small(connection: Any, table: str) -> bool:  # Any: asyncpg has no types
    """Build the indexes at once if the table is small, in a transaction; return whether all are there."""
    for name, on in _of(table).items():
        if not await connection.fetchval(_VALID, name):
            if await connection.fetchval(_SIZE, table) > _SMALL:
                return False
            await connection.execute(f"DROP INDEX IF EXISTS {name}; CREATE INDEX {name} ON {on}")
    return True


async def build(pool: Pool, table: str) -> None:
    """
    Build the indexes of a table of any size, while others use it.

    Raises:
        JournalError: The database cannot be used, or the role may not change the table.
    """

    async def missing() -> dict[str, str]:
        return {name: on for name, on in _of(table).items() if not await pool.fetch(_VALID, name)}

    async def run() -> None:
        for name, on in (await missing()).items():
            # One of a build that was interrupted is dropped; if that still runs, this waits for its end.
            await pool.at_leisure(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
            await pool.at_leisure(f"CREATE INDEX CONCURRENTLY {name} ON {on}")

    if await missing():
        await pool.alone(f"{table} indexes", run)


def _of(table: str) -> dict[str, str]:
    return {name.format(table=table): on.format(table=table) for name, on in _INDEXES.items()}
