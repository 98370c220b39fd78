"""The three kinds of stores that commands look at: batches, outboxes and journals of clients."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer

from invsvc_async.cli.option_groups import expanded
from invsvc_async.cli.options import Json, Profile, client_of
from invsvc_async.storage.address import is_postgres

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from invsvc_async.durable.entries import Entries
    from invsvc_async.transport.session import ClientState

__all__ = ["BATCH", "JOURNAL", "OUTBOX", "At", "Kind", "Place", "attach", "opened"]

Place = Annotated[str, typer.Argument(help="A file, or postgresql://…", metavar="PLACE", show_default=False)]


@attrs.frozen
class At:
    """The options of each command: where the store is, and how its content is printed."""

    place: Place
    json_: Json = False
    profile: Profile = None


@attrs.frozen
class Kind:
    """One kind, and the options that its commands do not have."""

    name: str
    example: str  # of a place, in the help
    lacks: frozenset[str] = frozenset()


BATCH = Kind("batch", "run.db", frozenset({"profile", "unacknowledged"}))
OUTBOX = Kind("outbox", "outbox.db")
JOURNAL = Kind("journal", "journal.db", frozenset({"verdict", "force", "failed"}))


def attach(app: typer.Typer, kind: Kind, *commands: Callable[..., Any]) -> None:
    """Add *commands*, which get the kind as their first argument, to the group of one kind."""
    for command in commands:
        made = expanded(command, lacks=kind.lacks, kind=kind)
        made.__doc__ = (command.__doc__ or "").replace("KIND", kind.name).replace("PLACE", kind.example)
        app.command(command.__name__.rstrip("_"))(made)


@asynccontextmanager
async def opened(kind: Kind, at: At, *, reading: bool = False) -> AsyncGenerator[Entries]:
    """
    Open a store, which must exist; with *reading*, also while another process has it.

    Nothing is sent, so the credential need not be that of the writes in a file.
    """
    place, is_shared = at.place, is_postgres(at.place)
    if kind is BATCH:
        from invsvc_async.batch.entries import entries_of

        entries: Entries = entries_of(place, create=False, reading=reading)
    elif kind is OUTBOX:
        from invsvc_async.outbox.places import outbox_at

        session = _session(at.profile)
        entries = outbox_at(place, session, same_mode=not is_shared, create=False, reading=reading)
    else:
        from invsvc_async.durable.entries import JournalEntries

        entries = JournalEntries(place, _session(at.profile) if is_shared else None, reading=reading)
    await entries.open()
    try:
        yield entries
    finally:
        await entries.aclose()


def _session(profile: str | None) -> ClientState:
    """Return what a client that is never opened knows of its service."""
    from invsvc_async.client import options_of

    return options_of(client_of(profile, None)).session
