"""Which store of writes a command is for: its kind, where it is, and how it is opened."""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import attrs

from invsvc_async.cli.options import Calling, argument
from invsvc_async.storage.address import is_postgres

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from invsvc_async.durable.entries import Entries

Place = Annotated[
    str, argument("A file, or postgresql://…", "PLACE", show_default=False)
]


@attrs.frozen
class StoreKind:
    """A kind of store, with the words, and the missing commands and options, in which it differs."""

    name: str
    example: str  # of a place, in the help
    again: str  # what sends a write again that was marked so
    lacks: str = "team"
    resent: str = "mark it with `retry`"  # what marks one that was not applied


BATCH = StoreKind("batch", "run.db", "run the batch", "team profile unacknowledged")
OUTBOX = StoreKind("outbox", "outbox.db", "whoever sends its writes does it")
_ONCE = "run the same write under its key"
JOURNAL = StoreKind("journal", "journal.db", _ONCE, "team verdict force failed", _ONCE)


@attrs.frozen
class StoreOptions(Calling):
    """A store; where it is, and whose, are options of each command."""

    place: Place
    kind: StoreKind

    @asynccontextmanager
    async def opened(self, *, reading: bool = False) -> AsyncGenerator[Entries]:
        """Open the store, which must exist; with *reading*, also while another process has it."""
        is_shared = is_postgres(self.place)
        given = {"create": False, "reading": reading}
        if self.kind is BATCH:
            from invsvc_async.batch.entries import entries_of

            entries: Entries = entries_of(self.place, **given)
        elif self.kind is OUTBOX:
            from invsvc_async.outbox.outbox import outbox_at

            # Nothing is sent, so the credential need not be that of the writes in a file.
            entries = outbox_at(self.place, self.core, same_mode=not is_shared, **given)
        else:
            from invsvc_async.durable.entries import JournalEntries

            entries = JournalEntries(
                self.place, self.core if is_shared else None, reading=reading
            )
        await entries.open()
        async with aclosing(entries):
            yield entries
