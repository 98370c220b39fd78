"""The status of a run, stored in its journal for those who watch it: what limits it, and its writes."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async.batch.entries import BatchEntries
    from invsvc_async.batch.result import Progress

__all__ = ["RUN", "TOTAL", "Pause", "Status", "note_pause", "note_status", "statuses_in"]

RUN = "run "  # the facts that begin so are about runs
TOTAL = f"{RUN}total"  # the number of writes in the input that is read
_STATUS = f"{RUN}status "  # one for each process
_LATE = 10.0  # s after which a status is that of a process that is gone
_SAME = 1000  # ms between two notes of one pause, at most
_PAUSES = 100  # of one process that are kept, the latest


class Pause(msgspec.Struct, kw_only=True):
    """A time (epoch ms) in which a process sent nothing, and why."""

    begun: int
    ended: int
    why: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """
    What limited one process at the time ``at`` (epoch ms), and what did for how many ``seconds`` in all.

    ``ended`` is whether it said that it ended. One that is killed does not.
    """

    host: str
    pid: int
    begun: int
    at: int
    ended: bool
    pauses: list[Pause]
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

    @property
    def is_lost(self) -> bool:
        """Whether it went without a word: it was killed, or lost its machine."""
        return not self.ended and self.age >= _LATE


def note_pause(pauses: list[Pause], why: str) -> None:
    """Note in *pauses* that this process is paused now: the last of them goes on, or another one begins."""
    now = round(time.time() * 1000)
    if pauses and pauses[-1].why == why and now - pauses[-1].ended < _SAME:
        pauses[-1].ended = now
    else:
        pauses.append(Pause(begun=now, ended=now, why=why))
        del pauses[:-_PAUSES]


def note_status(
    entries: BatchEntries, progress: Progress, seconds: dict[str, float], pauses: list[Pause] | None = None,
    *, ended: bool = False,
) -> None:  # fmt: skip
    """Store what limits this process now, what did for how many *seconds*, and its *pauses*."""
    now = time.time()
    status = Status(
        host=socket.gethostname(), pid=os.getpid(), begun=round((now - progress.seconds) * 1000),
        at=round(now * 1000), ended=ended, pauses=pauses or [], limited_by=progress.limited_by,
        is_paused=progress.paused is not None, next_probe=progress.next_probe, seconds=seconds,
    )  # fmt: skip
    with suppress(JournalError):  # of a batch that is closed
        entries.facts.put(f"{_STATUS}{status.host}:{status.pid}", msgspec.json.encode(status).decode())


def statuses_in(facts: Mapping[str, str]) -> list[Status]:
    """Return the statuses that *facts* contain, also those of processes that are gone, the latest first."""
    found: list[Status] = []
    for name, text in facts.items():
        if name.startswith(_STATUS):
            with suppress(msgspec.DecodeError):  # of a newer package
                found.append(msgspec.json.decode(text, type=Status))
    return sorted(found, key=lambda each: -each.at)
