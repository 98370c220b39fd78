"""
The state of a batch, an outbox or a journal, read beside those who send once a second.

It only reads.  Of a batch, no statement reads more rows the larger its journal is.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from invsvc_async.batch.entries import BEGUN, name_of, summary_of, workers_of
from invsvc_async.batch.reports.not_applied import NOT_APPLIED, Groups, words_of
from invsvc_async.batch.run_status import RUN, TOTAL, Status, statuses_in
from invsvc_async.codec.exact_json import WireObject
from invsvc_async.durable.store.lists import latest
from invsvc_async.errors import JournalError
from invsvc_async.storage.address import is_postgres

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from invsvc_async.batch.result import Summary, Worker
    from invsvc_async.durable.entries import Entries
    from invsvc_async.reconcile.history import Verdict


_GROUPED = 200  # writes of each verdict that are grouped: the latest of the input
_EVERY = 1.0  # s between readings, however many pages are open
_QUIET = 10.0  # s without a change, after which a batch may not be running
_WRITES = 5  # of each group that are told
_WORDS = 300  # characters of one message

Plain = WireObject


class Watch:
    """
    Reads the state of *entries*, which are at *place*; the failures only if their number has changed.

    *kind* is the command that they are for.
    """

    def __init__(
        self,
        entries: Entries,
        place: str,
        kind: str = "batch",
    ) -> None:
        self.name: str = name_of(place)
        self._kind = kind
        self._file: Path | None = None if is_postgres(place) else Path(place)
        self._entries = entries
        self._reading = asyncio.Lock()
        self._read_at = 0.0
        self._latest = Plain()
        self._grouped: Mapping[Verdict, int] = {}
        self._groups: list[Plain] = []

    async def data(self, _query: Mapping[str, str]) -> Plain:
        """Return the state, at most 1 s old, or ``problem`` if the journal cannot be read."""
        async with self._reading:
            if not self._latest or time.monotonic() - self._read_at >= _EVERY:
                try:
                    self._latest = await self.read()
                except JournalError as error:
                    self._latest = {"name": self.name, "problem": str(error)}
                self._read_at = time.monotonic()
        return self._latest

    async def read(self) -> Plain:
        """Return the state as JSON values; times in seconds."""
        entries = self._entries
        summary = await summary_of(entries)
        counts = attrs.asdict(summary, recurse=False) | {
            "done": summary.done,
            "total": summary.total,
        }
        facts = await entries.facts.beginning(RUN)
        began = await entries.facts.get(BEGUN)
        workers = await workers_of(entries) if self._file is None else None
        limits = self._running_in(facts)
        await self._read_groups(summary)
        now = time.time()
        changed = self._changed(workers or ())
        is_finished = summary.done == summary.total and not summary.open_inputs
        ended = changed if is_finished else now
        age = None if changed is None else now - changed
        return {
            **counts,
            "name": self.name,
            "kind": self._kind,
            "at": now,
            "expected": _expected(summary, facts),
            "state": _state_of(summary, limits, workers, age),
            "changed": None if age is None else max(age, 0.0),
            "seconds": _seconds_between(began, ended),
            "limits": [*map(_plain_limit, limits)],
            "workers": None if workers is None else [*map(plain_worker, workers)],
            "groups": self._groups,
        }

    def _running_in(self, facts: Mapping[str, str]) -> list[Status]:
        """Return the statuses in *facts* of processes that run now."""
        runs = statuses_in(facts)
        # only one process has it, so that the others are gone
        if self._file is not None:
            del runs[1:]
        return [each for each in runs if each.is_current]

    async def _read_groups(self, summary: Summary) -> None:
        failed = {verdict: summary.verdicts.get(verdict, 0) for verdict in NOT_APPLIED}
        if failed == self._grouped:
            return
        groups = Groups()
        for verdict, count in failed.items():
            if count:
                await groups.add_page(
                    self._entries, await latest(self._entries.store, verdict, _GROUPED)
                )
        self._grouped = failed
        self._groups = []
        # of few writes, and of those only the reason
        for group in groups.sorted(self.name, self._kind):
            writes = [
                {
                    "key": each.key,
                    "operation": each.operation,
                    "message": words_of(each)[:_WORDS],
                }
                for each in group.results[:_WRITES]
            ]
            told = {
                name: getattr(group, name)
                for name in ("verdict", "cause", "count", "advice")
            }
            self._groups.append(told | {"writes": writes})

    def _changed(self, workers: Sequence[Worker]) -> float | None:
        """Return when it was changed last, in epoch s. To read a file creates an empty log beside it."""
        if self._file is None:
            return max((each.seen.timestamp() for each in workers), default=None)
        found: list[float] = []
        for path in (self._file, Path(f"{self._file}-wal")):
            with suppress(OSError):
                state = path.stat()
                if state.st_size:
                    found.append(state.st_mtime)
        return max(found, default=None)


def _expected(summary: Summary, facts: Mapping[str, str]) -> int:
    """Return how many writes there will be: while the input is read, as many as its file has, if known."""
    if not summary.open_inputs:
        return summary.total
    total = facts.get(TOTAL, "")
    if not total.isdecimal():
        return summary.total
    return max(summary.total, int(total))


def _seconds_between(began: str | None, ended: float | None) -> float | None:
    """Return the time from *began* (epoch ms) to *ended* (epoch s), if both are known."""
    if began is None or ended is None:
        return None
    return max(ended - int(began) / 1000, 0.0)


def _plain_limit(status: Status) -> Plain:
    """Return the limit of a process that runs now as JSON values; times in seconds."""
    limit: Plain = {
        "host": status.host,
        "pid": status.pid,
        "why": status.limited_by,
        "paused": status.is_paused,
    }
    if status.next_probe is not None:
        limit["next_probe"] = status.next_probe - status.age
    return limit


def _state_of(
    summary: Summary,
    limits: list[Status],
    workers: list[Worker] | None,
    age: float | None,
) -> str:
    """Return the state in a word; ``quiet`` means that the run waits, or that no process runs."""
    if any(each.is_paused for each in limits):
        return "paused"
    if summary.done == summary.total and not summary.open_inputs:
        if summary.done:
            return "finished"
        return "empty"
    if any(each.alive for each in workers or ()):
        return "running"
    if age is not None and age < _QUIET:
        return "running"
    return "quiet"


def plain_worker(worker: Worker) -> Plain:
    """Return a worker as JSON values; times in seconds, and in ISO 8601."""
    times = {"begun": worker.begun.isoformat(), "seen": worker.seen.isoformat()}
    return attrs.asdict(worker) | times | {"state": _state_of_worker(worker)}


def _state_of_worker(worker: Worker) -> str:
    """Return the state of a process in a word."""
    if worker.ended:
        return "ended"
    if not worker.alive:
        return "silent"
    if worker.lanes:
        return "working"
    return "idle"
