"""Which store of writes a command is for: its kind, where it is, and how it is opened."""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import attrs

from invsvc_async.cli.options import Calling, argument, names_service
from invsvc_async.storage.address import is_postgres

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from invsvc_async.durable.entries import Entries

Place = Annotated[
    str, argument("A file, or postgresql://…", "ADDRESS", show_default=False)
]


@attrs.frozen
class StoreKind:
    """A kind of store, with the words, and the missing commands and options, in which it differs."""

    name: str
    example: str  # of a place, in the help
    again: str  # what sends a write again that was marked so
    lacks: str = "team"
    resent: str = "mark it with `retry`"  # what marks one that was not applied
    # of `drop` and `prune`: what they delete, and what that means
    dropped: str = "that are finished, or were not sent yet"
    dropping: str = (
        "Of a finished one, the verdict is deleted, also if it was applied: a write under its key is then a "
        "new one, and happens again.  So resolve what is unknown instead."
    )
    dropped_too: str = " (finished ones with their verdicts)"
    pruned: str = "Delete finished writes"
    pruning: str = "A write under the key of a deleted one is sent as a new one."
    # the journal that replaces lost secrets, in the example of the help and in words
    journal: str = " --journal calls.db"
    named: str = (
        "Name the same one each time: that of your application, if it replaces webhooks, too; otherwise a "
        "file. Without --journal, it is that of INVSVC_JOURNAL."
    )


BATCH = StoreKind(
    "batch",
    "run.db",
    "run the batch",
    "team profile unacknowledged",
    dropped="that were not sent yet",
    dropping="Take them out of the input of the batch, too: it may add them again.",
    dropped_too="",
    pruned="Empty finished writes",
    pruning=(
        "Their bodies, evidence and stories are deleted. Their keys and verdicts stay, so that the same "
        "input is still skipped."
    ),
)
OUTBOX = StoreKind("outbox", "outbox.db", "whoever sends its writes does it")
_ONCE = "run the same write under its key"
JOURNAL = StoreKind(
    "journal",
    "journal.db",
    _ONCE,
    "team verdict force failed journal",
    _ONCE,
    journal="",
    named="It is this one.",
)


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

            core = None
            if is_shared and names_service(self.profile):
                core = self.core
            entries = JournalEntries(self.place, core, reading=reading)
        await entries.open()
        async with aclosing(entries):
            yield entries
