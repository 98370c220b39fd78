"""The journal of a batch, by its path or address."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from invsvc_async.batch.entries import BatchEntries
from invsvc_async.durable.store import store_at
from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.storage.address import is_postgres, without_login

if TYPE_CHECKING:
    from pathlib import Path

    from invsvc_async.batch.file_check import Checkpoint

__all__ = ["checkpoint_at", "entries_of", "name_of"]

_SHOWN = ("host", "port", "batch", "outbox", "journal")  # the options that say which one it is


def name_of(path: str | Path) -> str:
    """Return *path* for display and for commands: an address without its login and most of its options."""
    if not is_postgres(str(path)):
        return str(path)
    place = without_login(str(path))
    if place is None:
        return "postgresql://…"
    options = [each for each in parse_qsl(str(path).partition("?")[2]) if each[0] in _SHOWN]
    return f"postgresql://{place}?{urlencode(options, safe='/,')}" if options else f"postgresql://{place}"


async def checkpoint_at(path: str | Path) -> Checkpoint | None:
    """Return how far the latest input was taken in at *path*, if that is known. It need not exist."""
    try:
        entries = entries_of(path, reading=True)
        await entries.open()
    except (ConfigurationError, JournalError):  # the journal is opened later, which says what is wrong
        return None
    try:
        return await entries.checkpoint()
    finally:
        await entries.aclose()


def entries_of(path: str | Path, **settings: bool) -> BatchEntries:
    """
    Return the entries at *path*, not open yet, as :func:`store_at` does.

    Raises:
        ConfigurationError: It is a PostgreSQL database, and the extra ``postgres`` is not installed; or an
            address of another form.
        JournalError: It does not exist, and is not to be created.

    """
    return BatchEntries(store_at(path, "batch", **settings))
