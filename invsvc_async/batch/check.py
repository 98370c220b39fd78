"""
Look through a file of writes before anything is sent, in constant memory; never send or keep one.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.batch.lines import BadLine, as_write, check_line, read_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from invsvc_async.batch.lines import Line
    from invsvc_async.client import Client
    from invsvc_async.writes import Write

__all__ = ["Checked", "check_file", "good_writes"]

_EMPTY = "the file holds no write"


@attrs.frozen(kw_only=True)
class Checked:
    """What a file holds: how many writes, and which lines are none, the first ones of them."""

    good: int
    bad: int
    problems: tuple[BadLine, ...]
    creates_webhooks: bool


def check_file(path: Path, client: Client, *, most: int = 1_000_000) -> Checked:
    """Check every line of the file at *path*; of the problems, *most* are kept."""
    problems: list[BadLine] = []
    good = bad = 0
    creates = False
    for line in _judged(path, client):
        if isinstance(line, BadLine):
            bad += 1
            if len(problems) < most:
                problems.append(line)
        else:
            good += 1
            creates = creates or line.operation == "webhooks.create"
    if not good and not bad:
        problems.append(BadLine(0, _EMPTY))
        bad = 1
    return Checked(good=good, bad=bad, problems=tuple(problems), creates_webhooks=creates)


def good_writes(path: Path, client: Client) -> Iterator[Write[Any]]:  # Any: of any operation
    """Give the writes of the lines that are sound, leaving the others out."""
    for line in _judged(path, client):
        if not isinstance(line, BadLine):
            yield as_write(client, line.operation, line.arguments, key=line.key)


def _judged(path: Path, client: Client) -> Iterator[Line | BadLine]:
    """Give each line, or what is wrong with it: among its own faults, a key that an earlier line has."""
    # The keys are in a file of their own, gone afterwards.
    with Path(path).open("rb") as file, closing(sqlite3.connect("")) as keys:
        keys.execute("CREATE TABLE seen (key TEXT PRIMARY KEY, line INTEGER) WITHOUT ROWID")
        for line in read_lines(file):
            if isinstance(line, BadLine):
                yield line
                continue
            yield check_line(client, line) or _twice(keys, line) or line


def _twice(keys: sqlite3.Connection, line: Line) -> BadLine | None:
    if line.key is None:
        return None
    before = keys.execute("SELECT line FROM seen WHERE key = ?", (line.key,)).fetchone()
    if before is not None:
        return BadLine(line.number, f"has the key {line.key!r}, which line {before[0]} has")
    keys.execute("INSERT INTO seen VALUES (?, ?)", (line.key, line.number))
    return None
