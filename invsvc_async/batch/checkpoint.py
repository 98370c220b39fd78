"""
How far the input of a batch was taken in, so that the next run need not read a file from its start.

A checkpoint is stored only once all writes before it are in the journal.
"""

from __future__ import annotations

from collections import deque

import attrs
import msgspec

__all__ = ["Checkpoint", "Intaken", "Part", "decoded"]

RUNS = 2**20  # numbers that a run takes: one for each part of its input
_PARTS = 1000  # parts remembered; if there are more, they become larger


class Checkpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A position in a file of writes.

    ``offset``, ``lines``, ``writes``, ``bad`` (skipped lines) and ``keyless`` (writes) count what is before
    it, and ``digest`` identifies it. ``team`` is that of the client. ``runs`` are the numbers, from and to,
    that the entries of these writes have as their ``run``: a later write that is equal is another one.
    """

    offset: int
    digest: str
    lines: int
    writes: int
    bad: int = 0
    keyless: int = 0
    team: str | None = None
    runs: tuple[tuple[int, int], ...] = ()


@attrs.define(eq=False)
class Part:
    """A part of the input: its number, how many of its writes are not stored yet, and its end in a file."""

    run: int
    size: int = 0  # lists of writes
    open: int = 0
    end: Checkpoint | None = None

    def note_stored(self) -> None:
        """Note that one of its writes is stored."""
        self.open -= 1


class Intaken:
    """The parts of the input of one run, from number *start* on. *before* is the checkpoint it began at."""

    def __init__(self, start: int, before: Checkpoint | None = None) -> None:
        self._start = start
        self._earlier = () if before is None else before.runs
        self._parts: deque[Part] = deque([Part(start)])
        self._latest: Checkpoint | None = None
        self.ended: bool = False  # the input has no more writes

    def next(self) -> Part:
        """Return the part to which the next list of writes belongs."""
        last = self._parts[-1]
        is_full = last.size >= 2 ** (len(self._parts) // _PARTS)
        if is_full and last.end is not None and last.run < self._start + RUNS - 1:
            last = Part(last.run + 1)
            self._parts.append(last)
        last.size += 1
        last.end = None
        return last

    @property
    def is_stored(self) -> bool:
        """Whether the input has ended and all its writes are stored."""
        return self.ended and not any(part.open for part in self._parts)

    def checkpoint(self) -> Checkpoint | None:
        """Return the last checkpoint before which all is stored, if it is another than the last time."""
        parts, latest = self._parts, None
        most = self._start + RUNS - 1  # this one has no end
        while (end := parts[0].end) is not None and not parts[0].open and parts[0].run < most:
            latest = msgspec.structs.replace(end, runs=(*self._earlier, (self._start, parts[0].run)))
            if len(parts) == 1:
                break
            parts.popleft()
        if latest == self._latest:
            return None
        self._latest = latest or self._latest
        return latest


def decoded(text: str | None) -> Checkpoint | None:
    """Return the checkpoint in *text*, or ``None`` if there is none."""
    try:
        return None if text is None else msgspec.json.decode(text, type=Checkpoint)
    except msgspec.MsgspecError:
        return None
