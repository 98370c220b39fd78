"""
The state of a batch while it runs, read beside it once a second.

It only reads, and no statement reads more rows the larger the journal is.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import attrs

from invsvc_async.batch.entries import BEGUN
from invsvc_async.batch.places import entries_of, is_shared, name_of
from invsvc_async.batch.reports.not_applied import Groups
from invsvc_async.batch.result import Result
from invsvc_async.batch.run_status import RUN, TOTAL, statuses_in
from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from invsvc_async.batch.reports.not_applied import Group
    from invsvc_async.batch.result import Summary, Worker
    from invsvc_async.batch.run_status import Status

__all__ = ["GROUPED", "Live", "Watch"]

GROUPED = 200  # writes of each verdict that are grouped: the latest of the input
_NOT_APPLIED: tuple[Verdict, ...] = tuple(each for each in Verdict if each is not Verdict.APPLIED)


@attrs.frozen(kw_only=True)
class Live:
    """
    The state of a batch: its counts, what limits its processes, and its latest failures by cause.

    ``began`` and ``changed`` are epoch ms: the first sign of the batch and the last one. ``workers`` is
    ``None`` for a file.
    """

    name: str
    summary: Summary
    total: int | None  # writes of the input, if that is known
    limits: list[Status]
    groups: list[Group]
    began: int | None = None
    changed: int | None = None
    workers: list[Worker] | None = None

    @property
    def expected(self) -> int:
        """How many writes there are, those included that are still only in the input."""
        return max(self.summary.total, (self.total or 0) if self.summary.open_inputs else 0)

    @property
    def is_finished(self) -> bool:
        """Whether all writes have a verdict, and nothing is left of the input."""
        return self.summary.done == self.summary.total and not self.summary.open_inputs


class Watch:
    """
    Reads the state of one batch, within ``async with``; the failures only if their number has changed.

    Raises:
        ConfigurationError: The extra ``postgres`` is not installed, or it is an address of another form.
        JournalError: It cannot be read, or it is not the journal of a batch.

    """

    def __init__(self, journal: str | Path) -> None:
        self.name: str = name_of(journal)
        self._file: Path | None = None if is_shared(journal) else Path(journal)
        self._entries = entries_of(journal, reading=True)
        self._grouped: Mapping[Verdict, int] = {}
        self._groups: list[Group] = []

    async def __aenter__(self) -> Self:
        await self._entries.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._entries.aclose()

    async def read(self) -> Live:
        """
        Read the state.

        Raises:
            JournalError: The journal cannot be read.

        """
        entries, summary = self._entries, await self._entries.summary()
        facts, began = await entries.facts(RUN), await entries.fact(BEGUN)
        workers = await entries.workers() if self._file is None else None
        failed = {verdict: summary.verdicts.get(verdict, 0) for verdict in _NOT_APPLIED}
        if failed != self._grouped:
            self._groups, self._grouped = await self._read_groups(failed), failed
        total = facts.get(TOTAL, "")
        return Live(
            name=self.name, summary=summary, total=int(total) if total.isdecimal() else None,
            limits=[each for each in statuses_in(facts) if each.is_current], groups=self._groups,
            began=None if began is None else int(began), workers=workers,
            changed=_last_sign(workers or ()) if self._file is None else _changed(self._file),
        )  # fmt: skip

    async def _read_groups(self, failed: Mapping[Verdict, int]) -> list[Group]:
        groups = Groups()
        for verdict, count in failed.items():
            for entry in await self._entries.latest(verdict, GROUPED) if count else ():
                groups.add(Result.of(entry))
        return groups.sorted(self.name)


def _last_sign(workers: Iterable[Worker]) -> int | None:
    return max((round(each.seen.timestamp() * 1000) for each in workers), default=None)


def _changed(file: Path) -> int | None:
    """Return when a file, or its log, was changed last, in epoch ms. To read creates an empty log."""
    found: list[float] = []
    for path in (file, file.with_name(f"{file.name}-wal")):
        with suppress(OSError):
            state = path.stat()
            found += [state.st_mtime] if state.st_size else []
    return round(max(found) * 1000) if found else None
