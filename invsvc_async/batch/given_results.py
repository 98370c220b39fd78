"""The results that a run gives: its own, and the unclaimed ones of other runs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs
from msgspec.structs import replace

from invsvc_async.batch.notices import BEAT
from invsvc_async.batch.replaced import with_replacements
from invsvc_async.batch.result import Result, kept_outcome
from invsvc_async.durable.records import encoded, flags_of, verdict_and_record
from invsvc_async.durable.results import Consumer
from invsvc_async.durable.store.unheard import note_secret_lost
from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.batch.entries import BatchEntries
    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.leases import Leases
    from invsvc_async.durable.records import VerdictRecord


_PAGE = 128  # unclaimed results that are claimed together
_SOON = 0.05  # s before looking again whether other processes have ended; each time after that, twice as long


class GivenResults:
    """
    The results that a run gives.

    A result that was given is acknowledged once the next one is asked for: whoever asks for that has it. A
    result of a run that has ended without that is *unclaimed*, until another run claims it.
    """

    def __init__(self, leases: Leases) -> None:
        self._consumer = Consumer(leases)
        self._given: list[Entry] = []  # and not acknowledged
        # Whether unclaimed results are being given, so that they need not be prepared for again.
        self._is_giving_unclaimed = False

    def acknowledge(self) -> None:
        """Acknowledge the results that were given."""
        while self._given:
            self._consumer.acknowledge(self._given.pop())

    def note(self, entry: Entry) -> None:
        """Note that the result of *entry* is given now."""
        self._given.append(entry)

    async def may_give(self, entry: Entry) -> bool:
        """Return whether this run may give the result of *entry*, its own; if not, another run has."""
        return await self._consumer.has(entry)

    async def next_unclaimed(
        self, prepare: Callable[[], Awaitable[None]]
    ) -> Entry | None:
        """
        Return the next entry with an unclaimed result, of a run earlier or at the same time as this one.

        *prepare* is awaited before the first one.
        """
        if not self._is_giving_unclaimed:
            await prepare()
            self._is_giving_unclaimed = True
        found = await self._consumer.next(_PAGE)
        if found is None:
            self._is_giving_unclaimed = False
        return found

    async def save(self) -> None:
        """Store which results were acknowledged, if the store answers soon."""
        await self._consumer.save()


async def told_again(entry: Entry, entries: BatchEntries) -> Result:
    """Return the result of *entry*, whose run ended before anybody got the value, or a secret in it."""
    outcome = kept_outcome(entry, entries.store.commons)
    _, record = verdict_and_record(entry)
    had_secret = (
        record.had == "returned"
    )  # nobody but whoever got the value, and nobody got it
    if not had_secret:
        [result] = await with_replacements(entries, [Result.of(entry, outcome=outcome)])
        return result
    await _note_lost(entry, record, entries)
    if outcome is not None:
        outcome = attrs.evolve(outcome, secret="lost")
    return Result.of(entry, record, outcome)


async def _note_lost(
    entry: Entry,
    record: VerdictRecord,
    entries: BatchEntries,
) -> None:
    """Store that nobody has the secret in the result of *entry*: its next reader cannot know that."""
    before = replace(entry, flags=flags_of(record))
    record.had = "lost"
    after = replace(entry, outcome=encoded(record), flags=flags_of(record))
    with suppress(JournalError):  # the store is away: the result says it all the same
        await note_secret_lost(entries.store, before, after)


async def until_decided(entries: BatchEntries, process: str) -> None:
    """
    Wait until each further process is known to live, or to be dead; *process* is this one.

    The processes of a batch end at about the same time, so one that was silent just now may still be
    there.
    """
    now = await entries.input_notes.now()
    pause = _SOON
    await entries.store.notify(BEAT)  # Those that live show it at once.
    while await entries.input_notes.is_undecided(now, process):
        await asyncio.sleep(pause)
        pause = min(2 * pause, entries.store.silence / 4)
