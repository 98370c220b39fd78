"""The status of a run, stored in its journal for those who watch it: what limits it, and its writes."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from invsvc_async.batch.file_check import FileWrites
from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async.batch.entries import BatchEntries
    from invsvc_async.batch.result import Progress

__all__ = ["RUN", "TOTAL", "Status", "note_status", "note_total", "statuses_in"]

RUN = "run "  # the facts that begin so are about runs
TOTAL = f"{RUN}total"  # the number of writes in the input that is read
_STATUS = f"{RUN}status "  # one for each process
_LATE = 10.0  # s after which a status is that of a process that is gone


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What limited one process at the time *at* (epoch ms), and what did for how many seconds in all."""

    host: str
    pid: int
    at: int
    limited_by: str | None
    is_paused: bool
    next_probe: float | None  # s from then
    seconds: dict[str, float]

    @property
    def age(self) -> float:
        """The seconds since then."""
        return time.time() - self.at / 1000

    @property
    def is_current(self) -> bool:
        """Whether it is limited now."""
        return self.limited_by is not None and self.age < _LATE


def note_status(entries: BatchEntries, progress: Progress, seconds: dict[str, float]) -> None:
    """Store what limits this process now, and what did for how many *seconds*."""
    status = Status(
        host=socket.gethostname(), pid=os.getpid(), at=round(time.time() * 1000),
        limited_by=progress.limited_by, is_paused=progress.paused is not None,
        next_probe=progress.next_probe, seconds=seconds,
    )  # fmt: skip
    with suppress(JournalError):  # of a batch that is closed
        entries.put_fact(f"{_STATUS}{status.host}:{status.pid}", msgspec.json.encode(status).decode())


def note_total(entries: BatchEntries, writes: object) -> None:
    """Store how many writes the input has, if it is a file. Otherwise nobody knows before its end."""
    entries.put_fact(TOTAL, str(writes.total) if isinstance(writes, FileWrites) else None)


def statuses_in(facts: Mapping[str, str]) -> list[Status]:
    """Return the statuses that *facts* contain, also those of processes that are gone."""
    found: list[Status] = []
    for name, text in facts.items():
        if name.startswith(_STATUS):
            with suppress(msgspec.DecodeError):  # of a newer package
                found.append(msgspec.json.decode(text, type=Status))
    return found
