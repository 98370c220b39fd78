"""
Find the journal that a path or an address names; never open it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from invsvc_async._errors import ConfigurationError, JournalError
from invsvc_async.batch.journals.sqlite import SqliteBatch

if TYPE_CHECKING:
    from invsvc_async.batch.journals.protocol import Entries

__all__ = ["entries_of", "is_shared", "name_of"]


def is_shared(path: str | Path) -> bool:
    """Tell whether *path* is the address of a PostgreSQL database, which many machines share."""
    return str(path).startswith(("postgres://", "postgresql://"))


def name_of(path: str | Path) -> str:
    """Give what a person is shown of *path*: of an address where it is and which batch, no login."""
    if not is_shared(path):
        return str(path)
    parts = urlsplit(str(path))
    batch = dict(parse_qsl(parts.query)).get("batch")
    place = parts.netloc.rpartition("@")[2] + parts.path
    return place if batch is None else f"{place}?batch={batch}"


def entries_of(path: str | Path, *, create: bool = True, reading: bool = False) -> Entries:
    """
    Give the entries at *path*, not open yet; for *reading*, beside the process that owns them.

    Raises:
        ConfigurationError: It is a PostgreSQL database, and the extra `postgres` is not installed.
        JournalError: There is none, and *create* is false.

    """
    if is_shared(path):
        try:
            from invsvc_async.batch.journals.postgres import PostgresBatch
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"a journal in PostgreSQL needs {error.name}: pip install 'invsvc-async[postgres]'"
            ) from error
        return PostgresBatch(str(path), create=create and not reading)
    if (reading or not create) and not Path(path).exists():
        raise JournalError(f"journal {path}: there is none")
    return SqliteBatch(path, reading=reading)
