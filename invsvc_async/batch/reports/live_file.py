"""
The counts of a batch's file, read while another process writes it.

The file keeps no counts. They are made once, in slices of the file, and then of the writes that have finished
since. All of them are made anew if other counts, of a bounded number of rows, show that writes were reopened.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import Counter
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import attrs

from invsvc_async.batch.run_status import RUN
from invsvc_async.durable.entry import State
from invsvc_async.durable.sqlite_entries import entries
from invsvc_async.durable.sqlite_file import fact
from invsvc_async.errors import JournalError
from invsvc_async.reconcile.history import Verdict
from invsvc_async.storage.sqlite_errors import in_words
from invsvc_async.storage.table_version import check_version

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from invsvc_async.batch.worker import Worker
    from invsvc_async.durable.entry import Entry

__all__ = ["NOT_APPLIED", "LiveFile", "Reading"]

T = TypeVar("T")

NOT_APPLIED: tuple[Verdict, ...] = tuple(each for each in Verdict if each is not Verdict.APPLIED)

_SLICE = 5000  # rows read by one statement
_MOST = 2000  # rows counted to compare
_BUDGET = 0.25  # s of each second for counting
_PATIENCE = 2.0  # s to wait for a lock
_LAST = """
SELECT coalesce(max(seq), 0), (SELECT max(position) FROM entries WHERE position IS NOT NULL) FROM entries
"""
_ROWS = """
SELECT seq, iif(state = 2, verdict, NULL), position FROM entries
WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?
"""
_FINISHED = "SELECT position, verdict FROM entries WHERE position > ? ORDER BY position LIMIT ?"
_OPEN = "SELECT state FROM entries WHERE state < 2 ORDER BY seq LIMIT ?"
_NOT_APPLIED = """
SELECT count(*) FROM (SELECT 1 FROM entries WHERE verdict = ? AND verdict <> 'applied' LIMIT ?)
"""
_DONE_AT = "SELECT done_at FROM entries WHERE position IS NOT NULL ORDER BY position {} LIMIT 1"
_FACTS = f"SELECT name, value FROM facts WHERE name > '{RUN}' AND name < '{RUN}~'"  # noqa: S608 - our own text
_LATEST = "verdict = ? AND verdict <> 'applied' AND state = 2 ORDER BY seq DESC LIMIT ?"


@attrs.frozen(kw_only=True)
class Reading:
    """
    What was read at one moment.

    ``counted`` is below 1 while a journal is counted for the first time: then ``total`` and ``verdicts`` are
    of that part. ``sending`` is at most 2,000 for a file. ``expected`` is how many writes the input
    has, if that is known and it is not read to its end. ``began`` and ``changed`` are epoch ms: the first
    sign of the batch and the last one. ``workers`` is ``None`` for a file.
    """

    total: int
    sending: int
    verdicts: Mapping[Verdict, int]
    open_inputs: int
    facts: Mapping[str, str]
    counted: float = 1.0
    began: int | None = None
    changed: int | None = None
    workers: list[Worker] | None = None


class _Counts:
    """The counts of the entries up to ``seq``, and of what finished up to ``position``."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.last, position = connection.execute(_LAST).fetchone()
        self.position: int = position or 0
        self._begun_at = self.position
        self.run = fact(connection, "runs")
        self.seq = self.rows = 0
        self.verdicts: Counter[Verdict] = Counter()

    @property
    def share(self) -> float:
        """How much of the file was counted."""
        return 1.0 if self.seq >= self.last else self.seq / self.last

    def add_slice(self, connection: sqlite3.Connection) -> bool:
        """Count some more rows, and return whether there may be others."""
        if self.seq < self.last:
            rows = connection.execute(_ROWS, (self.seq, self.last, _SLICE)).fetchall()
            self.seq = rows[-1][0] if len(rows) == _SLICE else self.last
            self.rows += len(rows)
            self.verdicts.update(
                Verdict(verdict) for _, verdict, at in rows if verdict and (at or 0) <= self._begun_at
            )
            return True
        found = connection.execute(_FINISHED, (self.position, _SLICE)).fetchall()
        self.position = found[-1][0] if found else self.position
        self.verdicts.update(Verdict(verdict) for _, verdict in found)
        return len(found) == _SLICE

    def total(self, last: int) -> int:
        """Return the number of entries, if the number of the last one is *last*."""
        return self.rows + last - self.last if self.share == 1.0 else self.rows

    def is_wrong(self, connection: sqlite3.Connection, last: int, open_rows: int) -> bool:
        """Return whether entries were reopened or moved since they were counted."""
        if fact(connection, "runs") != self.run:
            return True
        if min(self.total(last) - self.verdicts.total(), _MOST) != open_rows:
            return True
        return any(
            connection.execute(_NOT_APPLIED, (verdict, _MOST)).fetchone()[0]
            != min(self.verdicts[verdict], _MOST)
            for verdict in NOT_APPLIED
        )


class LiveFile:
    """Reads a journal in a file, without owning or changing it."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path).resolve()
        self._log = self._path.with_name(f"{self._path.name}-wal")
        self._name = f"journal {self._path}"
        self._counts: _Counts | None = None

    async def open(self) -> None:
        """
        Check the file.

        Raises:
            JournalError: It is not the journal of a batch, or of another version, or cannot be read.

        """
        await self._ask(lambda _connection: None)

    async def read(self) -> Reading:
        """Read the counts and facts, and go on counting."""
        return await self._ask(self._read)

    async def latest(self, verdict: Verdict, most: int) -> list[Entry]:
        """Return the latest entries of the input with *verdict*, which is not APPLIED."""
        return await self._ask(lambda connection: entries(connection, _LATEST, (verdict, most)))

    async def aclose(self) -> None:
        """Do nothing: the file is open only while it is read."""

    async def _ask(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """
        Run *act* on a thread, with a connection of its own.

        One that stays open would keep the batch from merging the file's log into the file at its end.
        """

        def ask() -> T:
            with closing(self._connect()) as connection:
                self._prepare(connection)
                return act(connection)

        try:
            return await asyncio.to_thread(ask)
        except (sqlite3.Error, ValueError) as error:  # ValueError: no such verdict
            raise in_words(self._name, error) from error

    # --- on a thread

    def _connect(self) -> sqlite3.Connection:
        # Without a log no process uses the file, and opening it otherwise would leave an empty log.
        is_used = self._log.exists()
        place = f"{self._path.as_uri()}?mode=ro{'' if is_used else '&immutable=1'}"
        return sqlite3.connect(place, uri=True, timeout=_PATIENCE, isolation_level=None)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        has_facts = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'facts'").fetchone()
        if not has_facts or fact(connection, "kind") != "a batch":
            raise JournalError(f"{self._name}: it is not the journal of a batch. Check the path.")
        check_version(self._name, fact(connection, "schema"))

    def _read(self, connection: sqlite3.Connection) -> Reading:
        counts = self._counted(connection)
        with _snapshot(connection):
            is_behind = counts.add_slice(connection) or counts.share < 1.0
            (last, _), states = (
                connection.execute(_LAST).fetchone(),
                connection.execute(_OPEN, (_MOST,)).fetchall(),
            )
            if not is_behind and counts.is_wrong(connection, last, len(states)):
                self._counts = None  # made anew by the next reading
            facts = dict(connection.execute(_FACTS).fetchall())
            return Reading(
                total=counts.total(last), sending=sum(state == State.SENDING for (state,) in states),
                verdicts=dict(counts.verdicts), facts=facts,
                open_inputs=int(fact(connection, "input") is not None),
                counted=min(counts.share, 0.999) if is_behind or self._counts is None else 1.0,
                began=_first(connection.execute(_DONE_AT.format("")).fetchone()),
                changed=self._changed(),
            )  # fmt: skip

    def _counted(self, connection: sqlite3.Connection) -> _Counts:
        """Return the counts, further than before by what can be read in a part of a second."""
        until = time.monotonic() + _BUDGET
        with _snapshot(connection):
            counts = self._counts = self._counts or _Counts(connection)
        while time.monotonic() < until:
            with _snapshot(connection):
                if not counts.add_slice(connection):
                    break
        return counts

    def _changed(self) -> int | None:
        """Return when the file was changed last, in epoch ms."""
        found: list[float] = []
        for path in (self._path, self._log):
            with suppress(OSError):
                found.append(path.stat().st_mtime)
        return round(max(found) * 1000) if found else None


@contextmanager
def _snapshot(connection: sqlite3.Connection) -> Generator[None]:
    """Read one state of the file in the block. It is short, so that the file's log can be emptied."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("COMMIT")


def _first(row: tuple[int | None] | None) -> int | None:
    return None if row is None else row[0]
