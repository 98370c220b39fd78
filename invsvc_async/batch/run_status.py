"""The status of a run, stored in the journal for people who watch: the limits of the run, and its writes."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async.batch.entries import BatchEntries
    from invsvc_async.batch.result import Progress


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


def _now() -> int:
    return round(time.time() * 1000)


class Status(msgspec.Struct, kw_only=True):
    """
    The limit of a process at the time ``at`` (epoch ms), and for how many ``seconds`` each limit held in all.

    ``ended`` is whether the process said that it ended. A process that is killed does not.
    """

    host: str
    pid: int
    begun: int
    at: int
    ended: bool = False
    pauses: list[Pause] = []
    limited_by: str | None = None
    is_paused: bool = False
    next_probe: float | None = None  # s from then
    seconds: dict[str, float] = {}

    @classmethod
    def of_this_process(cls) -> Status:
        """Return the status of a run of this process that begins now."""
        return cls(
            host=socket.gethostname(),
            pid=os.getpid(),
            begun=_now(),
            at=_now(),
        )

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
        """Whether the process went without a word: killed, or without its machine."""
        return not self.ended and self.age >= _LATE

    def note_pause(self, why: str) -> None:
        """Note a pause of this process: its last pause goes on, or another pause begins."""
        now = _now()
        last = self.pauses[-1] if self.pauses else None
        if last is not None and last.why == why and now - last.ended < _SAME:
            last.ended = now
        else:
            self.pauses.append(
                Pause(
                    begun=now,
                    ended=now,
                    why=why,
                )
            )
            del self.pauses[:-_PAUSES]

    def store(
        self,
        entries: BatchEntries,
        progress: Progress,
        *,
        ended: bool = False,
    ) -> None:
        """Store this status, with the present limit of this process."""
        self.at = _now()
        self.ended = ended
        self.limited_by = progress.limited_by
        self.next_probe = progress.next_probe
        self.is_paused = progress.paused is not None
        entries.facts.put(
            f"{_STATUS}{self.host}:{self.pid}", msgspec.json.encode(self).decode()
        )


def statuses_in(facts: Mapping[str, str]) -> list[Status]:
    """Return the statuses in *facts*, also of processes that are gone, the latest first."""
    found: list[Status] = []
    for name, text in facts.items():
        if name.startswith(_STATUS):
            with suppress(msgspec.DecodeError):  # of a newer package
                found.append(msgspec.json.decode(text, type=Status))
    return sorted(found, key=lambda each: -each.at)
