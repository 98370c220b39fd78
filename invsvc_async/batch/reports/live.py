"""
The state of a batch while it runs, read beside it once a second.

It only reads, and no statement reads more rows the larger the journal is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

import attrs

from invsvc_async.batch.journals.open import entries_of, is_shared, name_of
from invsvc_async.batch.reports.live_file import NOT_APPLIED, LiveFile, Reading
from invsvc_async.batch.reports.not_applied import Groups
from invsvc_async.batch.result import Result
from invsvc_async.batch.run_status import RUN, TOTAL, statuses_in
from invsvc_async.durable.entry import entry_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

    from invsvc_async.batch.journals.postgres import PostgresBatch
    from invsvc_async.batch.reports.not_applied import Group
    from invsvc_async.batch.run_status import Status
    from invsvc_async.durable.entry import Entry
    from invsvc_async.reconcile.history import Verdict

__all__ = ["GROUPED", "Live", "LiveReader", "Watch", "live_reader"]

GROUPED = 200  # writes of each verdict that are grouped: the latest of the input
_LATEST = """
SELECT * FROM entries WHERE verdict = $1 AND verdict <> 'applied' AND state = 2 ORDER BY seq DESC LIMIT $2
"""


@attrs.frozen(kw_only=True)
class Live:
    """The state of a batch: a reading, what limits its processes, and its latest failures by cause."""

    name: str
    reading: Reading
    limits: list[Status]
    groups: list[Group]

    @property
    def done(self) -> int:
        """How many writes have a verdict."""
        return sum(self.reading.verdicts.values())

    @property
    def expected(self) -> int:
        """How many writes there are, those included that are still only in the input."""
        total = self.reading.facts.get(TOTAL, "") if self.reading.open_inputs else ""
        return max(self.reading.total, int(total) if total.isdecimal() else 0)


class LiveReader(Protocol):
    """Reads one journal."""

    async def open(self) -> None:
        """Open the journal, or raise JournalError."""
        ...

    async def read(self) -> Reading:
        """Read the counts and facts."""
        ...

    async def latest(self, verdict: Verdict, most: int) -> list[Entry]:
        """Return the latest entries of the input with *verdict*, which is not APPLIED."""
        ...

    async def aclose(self) -> None:
        """Close the journal."""
        ...


def live_reader(journal: str | Path) -> LiveReader:
    """
    Return the reader of *journal*, not open yet.

    Raises:
        ConfigurationError: The extra ``postgres`` is not installed, or it is an address of another form.
        JournalError: The file does not exist.

    """
    entries = entries_of(journal, reading=True)
    return _LiveDatabase(cast("PostgresBatch", entries)) if is_shared(journal) else LiveFile(journal)


class Watch:
    """Reads the state of one batch; the failures only if their number has changed."""

    def __init__(self, journal: str | Path, reader: LiveReader) -> None:
        self.name: str = name_of(journal)
        self._reader = reader
        self._grouped: Mapping[Verdict, int] = {}
        self._groups: list[Group] = []

    async def read(self) -> Live:
        """
        Read the state.

        Raises:
            JournalError: The journal cannot be read.

        """
        reading = await self._reader.read()
        failed = {verdict: reading.verdicts.get(verdict, 0) for verdict in NOT_APPLIED}
        if failed != self._grouped and reading.counted == 1.0:
            self._groups, self._grouped = await self._read_groups(failed), failed
        limits = [each for each in statuses_in(reading.facts) if each.is_current]
        return Live(name=self.name, reading=reading, limits=limits, groups=self._groups)

    async def _read_groups(self, failed: Mapping[Verdict, int]) -> list[Group]:
        groups = Groups()
        for verdict, count in failed.items():
            for entry in await self._reader.latest(verdict, GROUPED) if count else ():
                groups.add(Result.of(entry))
        return groups.sorted()


class _LiveDatabase:
    """Reads a journal in PostgreSQL, which keeps its counts itself."""

    def __init__(self, entries: PostgresBatch) -> None:
        self._entries = entries

    async def open(self) -> None:
        await self._entries.open()

    async def read(self) -> Reading:
        summary, workers = await self._entries.summary(), await self._entries.workers()
        facts = await self._entries.facts(RUN)
        return Reading(
            total=summary.total,
            sending=summary.sending,
            verdicts=summary.verdicts,
            open_inputs=summary.open_inputs,
            facts=facts,
            began=_milliseconds(min((each.begun for each in workers), default=None)),
            changed=_milliseconds(max((each.seen for each in workers), default=None)),
            workers=workers,
        )

    async def latest(self, verdict: Verdict, most: int) -> list[Entry]:
        rows: list[Any] = await self._entries.fetch(_LATEST, str(verdict), most)  # Any: asyncpg's
        return [entry_of(row) for row in rows]

    async def aclose(self) -> None:
        await self._entries.aclose()


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)
