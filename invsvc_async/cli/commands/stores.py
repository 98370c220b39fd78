"""The three kinds of stores that commands look at: batches, outboxes and journals of clients."""

from __future__ import annotations

import inspect
from contextlib import asynccontextmanager
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer

from invsvc_async.cli.options import client_of
from invsvc_async.storage.address import is_postgres

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from invsvc_async.durable.entries import Entries
    from invsvc_async.transport.session import ClientState

__all__ = ["BATCH", "JOURNAL", "OUTBOX", "Keys", "Kind", "Place", "attach", "opened"]

Place = Annotated[str, typer.Argument(help="A file, or postgresql://…", metavar="PLACE", show_default=False)]
Keys = Annotated[list[str], typer.Argument(help="Keys, as `list` shows them.", metavar="KEY")]


@attrs.frozen
class Kind:
    """One kind, and the options that its commands do not have."""

    name: str
    lacks: frozenset[str] = frozenset()


BATCH = Kind("batch", frozenset({"profile", "unacknowledged"}))
OUTBOX = Kind("outbox")
JOURNAL = Kind("journal", frozenset({"verdict", "force", "failed"}))


def attach(app: typer.Typer, kind: Kind, *commands: Callable[..., None]) -> None:
    """Add *commands*, whose first argument is the kind, to the group of one kind."""
    for command in commands:
        app.command(command.__name__.rstrip("_"))(_of_kind(command, kind))


def _of_kind(command: Callable[..., None], kind: Kind) -> Callable[..., None]:
    @wraps(command)
    def call(**given: Any) -> None:  # Any: the command's own arguments
        command(kind, **given)

    signature = inspect.signature(command, eval_str=True)
    shown = [each for each in signature.parameters.values() if each.name not in {"kind", *kind.lacks}]
    call.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return call


@asynccontextmanager
async def opened(
    kind: Kind, place: str, profile: str | None = None, *, reading: bool = False
) -> AsyncGenerator[Entries]:
    """
    Open a store, which must exist; with *reading*, also while another process has it.

    Nothing is sent, so the credential need not be that of the writes in a file.
    """
    if kind is BATCH:
        from invsvc_async.batch.places import entries_of

        entries: Any = entries_of(place, create=False, reading=reading)  # Any: one of three classes
        opening = entries.open()
    elif kind is OUTBOX:
        from invsvc_async.outbox.places import store_of

        entries = store_of(place, create=False, reading=reading)
        opening = entries.open_for(_session(profile), same_mode=not is_postgres(place))
    else:
        from invsvc_async.durable.journal_entries import JournalEntries

        entries = JournalEntries(place, reading=reading)
        opening = entries.open_for(_session(profile) if is_postgres(place) else None)
    await opening
    try:
        yield entries
    finally:
        await entries.aclose()


def _session(profile: str | None) -> ClientState:
    """Return what a client knows of its service. It is not opened: it may have a journal of its own."""
    from invsvc_async.client import options_of

    return options_of(client_of(profile, None)).session
