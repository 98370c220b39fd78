"""The status of a run, stored in its journal for those who watch it: pauses, and the number of writes."""

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
    from collections.abc import Iterable

    from invsvc_async.batch.journals.protocol import Entries

__all__ = ["PAUSE", "TOTAL", "Pause", "note_pause", "note_total", "pauses_in"]

PAUSE = "pause "  # the facts that begin so, one for each process, are pauses
TOTAL = "input total"  # the fact that is the number of writes in the input that is read
_LATE = 30.0  # s after the time of a probe, until which its process counts as alive


class Pause(msgspec.Struct, frozen=True):
    """The pause of one process: why, and when (epoch ms) the service is tried again."""

    why: str
    probe_at: int
    host: str
    pid: int

    @property
    def seconds(self) -> float:
        """The time until the probe; negative while it runs."""
        return self.probe_at / 1000 - time.time()


def note_pause(entries: Entries, why: str | None, seconds: float) -> None:
    """Store that this process pauses because of *why*, or with ``None`` that it goes on."""
    pause = None
    if why is not None:
        pause = Pause(why, round((time.time() + seconds) * 1000), socket.gethostname(), os.getpid())
    text = None if pause is None else msgspec.json.encode(pause).decode()
    with suppress(JournalError):  # of a batch that is closed
        entries.put_fact(f"{PAUSE}{socket.gethostname()}:{os.getpid()}", text)


def note_total(entries: Entries, writes: object) -> None:
    """Store how many writes the input has, if it is a file. Otherwise nobody knows before its end."""
    entries.put_fact(TOTAL, str(writes.total) if isinstance(writes, FileWrites) else None)


def pauses_in(facts: Iterable[str]) -> list[Pause]:
    """Return the pauses that *facts* describe, without those of processes that are gone."""
    found: list[Pause] = []
    for text in facts:
        try:
            found.append(msgspec.json.decode(text, type=Pause))
        except msgspec.DecodeError:  # of a newer package
            continue
    return [each for each in found if each.seconds > -_LATE]
