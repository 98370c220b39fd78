"""Where an outbox is stored, by its path or address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.errors import ConfigurationError
from invsvc_async.outbox.sqlite import SqliteOutbox
from invsvc_async.storage.address import check_path, is_postgres

if TYPE_CHECKING:
    from pathlib import Path

    from invsvc_async.outbox.entries import OutboxEntries

__all__ = ["store_of"]


def store_of(
    path: str | Path, *, create: bool = True, restored: bool = False, moved: bool = False,
    reading: bool = False,
) -> OutboxEntries:  # fmt: skip
    """
    Return the outbox at *path*, not open yet. The settings are those of ``Outbox.open``.

    Raises:
        ConfigurationError: It is a PostgreSQL database, and the extra ``postgres`` is not installed; or an
            address of another form; or no file.

    """
    if not is_postgres(str(path)):
        check_path(str(path), "outbox")
        if str(path) in ("", ".", ":memory:"):
            raise ConfigurationError(
                f"outbox: {str(path)!r} is not a file. Use postgresql://… or the path of a file."
            )
        return SqliteOutbox(path, create=create, restored=restored, moved=moved, reading=reading)
    try:
        from invsvc_async.outbox.postgres import LANES, OutboxDatabase, PostgresOutbox
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"outbox: {error.name} is not installed. Run: pip install 'invsvc-async[postgres]'"
        ) from error
    database = OutboxDatabase(
        str(path), "outbox", it="the outbox", lanes=LANES, create=create and not reading,
        restored=restored, moved=moved,
    )  # fmt: skip
    return PostgresOutbox(database)
