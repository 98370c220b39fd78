"""
A person, who resolves what is in doubt as the service's ledger says, once no send of it can still land.

One opens the store beside the processes, as the command line does; another one asks a process, which uses its client,
its batch or its outbox.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import attrs

from invsvc_async.batch.entries import BatchEntries
from invsvc_async.conformance.reasons import Told
from invsvc_async.durable.entries import JournalEntries
from invsvc_async.durable.entry import State
from invsvc_async.durable.resolve import resolution, resolve
from invsvc_async.errors import JournalError
from invsvc_async.outbox.entries import OutboxEntries
from invsvc_async.outbox.postgres import PostgresEnqueuing
from invsvc_async.outbox.sqlite import SqliteOutbox
from invsvc_async.reconcile.history import Verdict
from tests.support.inline_writer import InlineWriter
from tests.walk.errors import SILENT_ERRORS
from tests.walk.heard import Heard

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import Self

    from invsvc_async.reconcile.outcome import Outcome
    from tests.interleavings.service import Sent
    from tests.walk.process import Process
    from tests.walk.stage import WalkStage

    # Resolves one write: it is given whether that was applied, or the id of what it made.
    Resolve = Callable[[bool | str], Awaitable[Outcome[Any]]]

BECAUSE = "seen in the ledger"
EVERY = 2.5  # s between two looks: longer than a process may be silent


@attrs.define(eq=False)
class Person:
    """The life of a person: it opens the store, looks some times, and closes it."""

    stage: WalkStage
    process: Process
    entries: Any

    @classmethod
    def of(cls, stage: WalkStage, process: Process) -> Self:
        process.member = stage.member(process.life)
        return cls(stage, process, entries_of(stage, process))

    def drop(self) -> None:
        drop_entries(self.entries)

    async def live(self, process: Process) -> None:
        await self.entries.open()
        async with aclosing(self.entries):
            for _ in range(process.life.looks):
                await self._look()
                await asyncio.sleep(EVERY)

    async def close(self) -> None:
        """Do nothing: a person ends soon."""

    async def _look(self) -> None:
        for name, key in in_doubt(self.stage):
            await find(self.stage, self.process, key, partial(self._resolve, name, key))

    async def _resolve(self, name: str, key: str, applied: bool | str) -> Outcome[Any]:
        finding = resolution(applied, BECAUSE, self.process.name)
        return (await resolve(self.entries.store, name, finding, key=key)).outcome


def entries_of(stage: WalkStage, process: Process) -> Any:
    """Return the entries of the store, as the command line opens it."""
    run = f"{process.name}/run"
    match stage.program.use:
        case "batch":
            return BatchEntries(stage.journal.store(run, "batch"))
        case "outbox":
            return outbox_entries(stage, process)
    store = stage.journal.store(run, "journal")
    with patch("invsvc_async.durable.entries.store_at", lambda *_, **__: store):
        return JournalEntries(stage.program.address, None)


def outbox_entries(stage: WalkStage, process: Process) -> Any:
    """Return the entries of the outbox, for *process*."""
    core = process.member.state
    if stage.journal.is_shared:
        store = stage.journal.store(f"{process.name}/run", "outbox")
        enqueuing = PostgresEnqueuing(store, same_mode=False)
        return OutboxEntries(store, core, enqueuing, same_mode=False)
    with patch("invsvc_async.outbox.sqlite.file_at", stage.journal.store_at):
        return SqliteOutbox(stage.journal.path, core)


async def find_all(
    stage: WalkStage, process: Process, writes: Iterable[tuple[str, Resolve]]
) -> None:
    """Let a person resolve *writes* through *process*, each by its key and the method for it."""
    for key, act in writes:
        await find(stage, process, key, act)


async def find(stage: WalkStage, process: Process, key: str, act: Resolve) -> None:
    """Let a person look at the write *key*, and resolve it by *act*; what is refused stays as it is."""
    begun, applied = stage.loop.now, seen_in_ledger(stage, key)
    if applied is None:
        return
    had_owner = key in owners(stage)
    try:
        outcome = await act(applied)
    except SILENT_ERRORS as error:
        is_refused = isinstance(error, JournalError) and (
            error.is_conflict or error.is_missing
        )
        if not is_refused:
            stage.note_error(process, key, error)
            stage.note_perhaps_found(process, key, begun)
    except asyncio.CancelledError:
        stage.note_perhaps_found(process, key, begun)
        raise
    else:
        heard = Heard(key, process.name, begun, Told.of(outcome), had_owner=had_owner)
        stage.note_found(process, heard)


def in_doubt(stage: WalkStage) -> list[tuple[str, str]]:
    """Return the names of the entries that are in doubt, with the keys that the program has for them."""
    rows = stage.journal.fetch(
        "SELECT key, state, verdict FROM {s}entries ORDER BY seq"
    )
    return [
        (name, stage.key_of(name))
        for name, state, verdict in rows
        if (state == State.SENDING or verdict == Verdict.UNKNOWN)
        and not stage.program.is_without_key(stage.key_of(name))
    ]


def owners(stage: WalkStage) -> dict[str, str]:
    """Return the token of the process that is sending each write, by what is stored; it may be only silent."""
    rows = stage.journal.fetch(
        "SELECT e.key, e.state, l.owner FROM {s}entries e JOIN {s}lanes l ON l.id = e.lane WHERE l.owner IS NOT NULL"
    )
    return {
        stage.key_of(name): owner
        for name, state, owner in rows
        if state == State.SENDING
    }


def seen_in_ledger(stage: WalkStage, key: str) -> bool | str | None:
    """Return whether the write *key* was applied, or what it made; ``None`` if that may change, or is neither."""
    service = stage.service
    effects = [each for each in service.effects if each.writer == key]
    landed = {each.number for each in effects}
    may_land = any(
        sent.writer == key
        and number not in landed
        and stage.loop.now < _latest_effect(sent)
        for number, sent in enumerate(service.sends)
    )
    if may_land:
        return None
    whole = [each for each in effects if each.number not in service.in_part]
    if not whole:
        return None if effects else False
    return whole[-1].made or True


def _latest_effect(sent: Sent) -> float:
    """Return until when *sent* may land, as far as one can know who does not see what became of it."""
    if not sent.fate.window:
        return sent.effect_at or 0.0
    lasts = sent.started + sent.fate.lasts
    ended = lasts if sent.ended is None else min(sent.ended, lasts)
    return ended + sent.fate.window


def drop_entries(entries: Any) -> None:
    """Close the files of *entries*, as the end of its process does."""
    entries.store.drop()
    writer = getattr(entries, "_writer", None)
    if isinstance(writer, InlineWriter) and writer.connection is not None:
        writer.connection.close()
        writer.connection = None
