"""
Ask the questions of a batch of one SQLite file; never while another process owns it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from invsvc_async.batch.entries import Entry, Mark, State
from invsvc_async.batch.results import Summary
from invsvc_async.batch.sqlite import SqliteEntries, entries, fact
from invsvc_async.reconcile.evidence import Verdict

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

__all__ = ["SqliteBatch"]

_DONE = int(State.DONE)


class SqliteBatch(SqliteEntries):
    """The journal of a batch on one machine."""

    def __init__(self, path: str | Path, *, reading: bool = False) -> None:
        super().__init__(path, "a batch", reading=reading)

    async def fact(self, name: str, value: str | None = None) -> str | None:
        """Tell a fact about the whole batch; with *value*, set it where it was not known."""
        return await self.ask(partial(_fact, name, value))

    async def marks(self, keys: Sequence[str], run: int) -> Mapping[str, Mark]:
        """Find the entries of *keys*, as they were, and note that the input of *run* holds them."""
        return await self.ask(partial(_marks, keys, run))

    async def not_done(self, after: int, limit: int) -> list[Entry]:
        """Page through the entries that are not done, in the order in which they came."""
        where = "state < 2 AND seq > ? ORDER BY seq LIMIT ?"
        return await self.ask(lambda connection: entries(connection, where, (after, limit)))

    async def done(self, verdict: Verdict | None, after: int, limit: int) -> list[Entry]:
        """Page through those that are done."""
        chosen = "" if verdict is None else f"verdict = '{verdict}' AND "
        if verdict not in (None, Verdict.APPLIED):
            chosen += "verdict <> 'applied' AND "  # so that the index of the few is used
        where = f"{chosen}state = 2 AND seq > ? ORDER BY seq LIMIT ?"
        return await self.ask(lambda connection: entries(connection, where, (after, limit)))

    async def summary(self) -> Summary:
        """Count the entries."""
        return await self.ask(_summary)

    async def reopen(self, verdict: Verdict, *, keep_sends: bool) -> int:
        """Make those of *verdict* to do again; without their sends where it is certain that none landed."""
        return await self.ask(partial(_reopen, verdict, keep_sends))

    async def prune(self, before: int) -> int:
        """Empty what was done before *before* (epoch ms) of all but key, digest and verdict."""
        return await self.ask(partial(_prune, before))

    async def claims(self, limit: int) -> Iterable[tuple[str, str]]:
        """Give (webhook id, key) of untagged creates, the latest ones."""
        text = "SELECT claim, key FROM entries WHERE claim IS NOT NULL ORDER BY seq DESC LIMIT ?"
        return await self.ask(lambda connection: connection.execute(text, (limit,)).fetchall())


def _fact(name: str, value: str | None, connection: sqlite3.Connection) -> str | None:
    if value is not None:
        connection.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, value))
    return fact(connection, name)


def _marks(keys: Sequence[str], run: int, connection: sqlite3.Connection) -> dict[str, Mark]:
    marks = ", ".join("?" * len(keys))
    found = connection.execute(
        f"SELECT key, content, state, run FROM entries WHERE key IN ({marks})",  # noqa: S608 - our own text
        keys,
    ).fetchall()
    if found:
        seen = [(run, key) for key, _, _, last in found if last != run]
        connection.executemany("UPDATE entries SET run = ? WHERE key = ?", seen)
    return {key: Mark(content, state, last == run) for key, content, state, last in found}


def _summary(connection: sqlite3.Connection) -> Summary:
    counted = connection.execute("SELECT state, verdict, count(*) FROM entries GROUP BY state, verdict")
    states: dict[int, int] = {}
    verdicts: dict[Verdict, int] = {}
    for state, verdict, count in counted:
        if state == _DONE:
            verdicts[Verdict(verdict)] = count
        else:
            states[state] = states.get(state, 0) + count
    text = "SELECT count(*) FROM entries WHERE outcome LIKE '%\"lost\":true%'"
    (lost,) = connection.execute(text).fetchone()
    return Summary(
        to_do=states.get(State.TO_DO, 0),
        sending=states.get(State.SENDING, 0),
        verdicts=verdicts,
        secrets_lost=lost,
    )


def _reopen(verdict: Verdict, keep_sends: bool, connection: sqlite3.Connection) -> int:  # noqa: FBT001 - bound by partial
    intent = "intent" if keep_sends else "json_remove(intent, '$.sent', '$.bounds', '$.baseline')"
    changed = connection.execute(
        f"UPDATE entries SET state = 0, verdict = NULL, outcome = NULL, done_at = NULL, intent = {intent} "  # noqa: S608 - our own text
        "WHERE state = 2 AND verdict = ? AND intent IS NOT NULL",
        (verdict,),
    )
    return changed.rowcount


def _prune(before: int, connection: sqlite3.Connection) -> int:
    changed = connection.execute(
        "UPDATE entries SET intent = NULL, outcome = NULL, claim = NULL "
        "WHERE state = 2 AND done_at < ? AND (intent IS NOT NULL OR outcome IS NOT NULL)",
        (before,),
    )
    return changed.rowcount
