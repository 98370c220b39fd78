"""Where an outbox is stored, by its path or address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.durable.store import database_at
from invsvc_async.errors import ConfigurationError
from invsvc_async.outbox.postgres import PostgresOutbox
from invsvc_async.outbox.sqlite import SqliteOutbox
from invsvc_async.storage.address import check_path, is_postgres

if TYPE_CHECKING:
    from pathlib import Path

    from invsvc_async.outbox.entries import OutboxEntries
    from invsvc_async.transport.session import ClientState

__all__ = ["outbox_at"]


def outbox_at(
    path: str | Path, session: ClientState, *, same_mode: bool = False, **how: bool
) -> OutboxEntries:
    """Return the outbox of *session* at *path*, not open yet. The settings are those of ``Outbox.open``."""
    if is_postgres(str(path)):
        return PostgresOutbox(database_at(str(path), "outbox", **how), session, same_mode=same_mode)
    check_path(str(path), "outbox")
    if str(path) in ("", ".", ":memory:"):
        raise ConfigurationError(
            f"outbox: {str(path)!r} is not a file. Use postgresql://… or the path of a file."
        )
    return SqliteOutbox(path, session, same_mode=same_mode, **how)
