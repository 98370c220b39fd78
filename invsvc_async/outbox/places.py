"""Where an outbox is stored, by its path or address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from invsvc_async.errors import ConfigurationError
from invsvc_async.outbox.sqlite_dispatch import SqliteOutbox
from invsvc_async.storage.address import check_path, is_postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from invsvc_async.batch.batch import Batch
    from invsvc_async.batch.journals.protocol import Entries
    from invsvc_async.durable.entry import Entry
    from invsvc_async.outbox.caller_connections import Database
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.transport.session import ClientState

__all__ = ["Store", "store_of"]


class Store(Protocol):
    """The entries of one outbox."""

    database: Database

    @property
    def entries(self) -> Entries:
        """The journal of the batch that sends them."""
        ...

    @property
    def silence(self) -> float:
        """After how many seconds without a sign of life a process counts as dead."""
        ...

    async def open_for(self, session: ClientState, *, same_mode: bool) -> None:
        """Open it, for the base URL and credential of *session*."""
        ...

    async def aclose(self) -> None:
        """Store everything and close it."""
        ...

    async def insert(self, connection: object, intent: Intent, content: bytes, thing: str | None) -> bool:
        """
        Insert a write to *thing* in the transaction of *connection*; return whether its key was new.

        *content* is the digest of its request.
        """
        ...

    async def content_seen_by(self, connection: object, key: str) -> bytes | None:
        """Return the digest of the entry of *key*, as the transaction of *connection* sees it."""
        ...

    async def dispatch(self, batch: Batch, grace: float, on_verdict: Callable[[], None]) -> None:
        """Send what is committed, until cancelled. *on_verdict* is called when verdicts were stored."""
        ...

    async def show_life(self, name: str) -> None:
        """Note that the member *name* lives."""
        ...

    async def leave(self, name: str) -> None:
        """Delete the member *name*: it counts as dead at once."""
        ...

    async def take_verdicts(self, taker: str, limit: int) -> list[Entry]:
        """Assign done entries to *taker*: those that nobody has acknowledged, and no living member has."""
        ...

    async def keep_verdicts(self, taker: str, seqs: Sequence[int]) -> set[int]:
        """Note that *taker* lives; return which of its verdicts nobody else has taken meanwhile."""
        ...

    async def release_verdicts(self, taker: str, seqs: Sequence[int]) -> None:
        """Return the verdicts of these entries that *taker* has, so that anybody may take them."""
        ...

    async def acknowledge(self, taker: str, seqs: Sequence[int]) -> None:
        """Note that *taker* acknowledged the verdicts of these entries. Those reopened meanwhile stay."""
        ...

    async def entry(self, key: str) -> Entry | None:
        """Return the entry of *key*."""
        ...

    async def first(self, limit: int, state: str | None) -> list[Entry]:
        """
        Return the first entries: all, or those of a verdict.

        ``"open"`` ones have none, ``"untold"`` ones have one that nobody has acknowledged.
        """
        ...

    async def do_again(self, keys: Iterable[str]) -> list[str]:
        """Reopen entries that are done and not applied; return their keys."""
        ...

    async def drop(self, key: str) -> bool:
        """Delete an entry of which nothing was sent, or that is done; return whether there was one."""
        ...

    async def delete_done(self, before: int, *, unacknowledged: bool) -> int:
        """
        Delete entries done before *before* (epoch ms), in short transactions; return how many.

        UNKNOWN ones stay, and so do those whose verdict nobody has acknowledged, unless *unacknowledged*.
        """
        ...


def store_of(
    path: str | Path,
    *,
    create: bool = True,
    restored: bool = False,
    moved: bool = False,
    reading: bool = False,
) -> Store:
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
        return SqliteOutbox(
            path, create=create and not reading, restored=restored, moved=moved, reading=reading
        )
    try:
        from invsvc_async.outbox.dispatch import PostgresOutbox
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"outbox: {error.name} is not installed. Run: pip install 'invsvc-async[postgres]'"
        ) from error
    return PostgresOutbox(str(path), create=create and not reading, restored=restored, moved=moved)
