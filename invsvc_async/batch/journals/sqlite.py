"""The journal of a batch in one SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from msgspec.structs import replace

from invsvc_async.batch.checkpoint import RUNS, Checkpoint, decoded
from invsvc_async.batch.deliveries import Deliveries
from invsvc_async.batch.restored import close_mark, kept_in_doubt, mark_all
from invsvc_async.batch.result import Summary
from invsvc_async.durable.entry import Entry, Mark, State
from invsvc_async.durable.epoch import CountedEntries
from invsvc_async.durable.intents import Packed, not_overtaken
from invsvc_async.durable.last_writes import LastWrite, Left
from invsvc_async.durable.restored import FACT, last_of
from invsvc_async.durable.sqlite_entries import entries, row_of
from invsvc_async.durable.sqlite_file import fact
from invsvc_async.errors import JournalError
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.storage.slices import slices
from invsvc_async.storage.sqlite_writer import transaction

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from invsvc_async.durable.intents import Commons

__all__ = ["SqliteBatch", "read_checkpoint"]

_DONE = int(State.DONE)
# One statement for all rows of a group, because each further statement releases the GIL several times.
_LEAVE = """
INSERT INTO states (thing, seq, team, state, stamp)
SELECT json_extract(each.value, '$[1]'), entries.seq, json_extract(each.value, '$[2]'),
    json_extract(each.value, '$[3]'), json_extract(each.value, '$[4]')
FROM json_each(?) AS each JOIN entries ON entries.key = json_extract(each.value, '$[0]') WHERE true
ON CONFLICT (thing) DO UPDATE SET seq = max(seq, excluded.seq), team = excluded.team, state = excluded.state,
    stamp = excluded.stamp
"""
_MAY_REOPEN = "verdict <> 'applied' AND state = 2 AND intent IS NOT NULL"
_THESE = (
    f"SELECT seq, verdict, key, common, intent FROM entries WHERE {_MAY_REOPEN} "  # noqa: S608 - our own text
    "AND seq IN (SELECT value FROM json_each(:these)) ORDER BY seq"
)
# Without the number: to set it, even to what it is, writes all indexes, that of the keys in random places.
_REOPEN = """
UPDATE entries SET state = 0, verdict = NULL, outcome = NULL, done_at = NULL, position = NULL
WHERE seq IN (SELECT value FROM json_each(?))
"""
# With a new identity: what this client remembers of the earlier write is not about this one.
_REOPEN_ANEW = _REOPEN.replace(
    "position = NULL",
    "position = NULL, intent = json_set(json_remove(intent, '$.sent', '$.bounds', '$.baseline'), "
    "'$.nonce', hex(randomblob(8)))",
)
_MOVE = "UPDATE entries SET seq = ?, intent = ? WHERE seq = ?"
_AT_ONCE = 500  # entries reopened in one transaction
_LOOKED_AT = 2000  # rows that one transaction of a prune looks at
_encode = msgspec.json.Encoder().encode


class SqliteBatch(CountedEntries):
    """The journal of a batch on one machine."""

    it: ClassVar[str | None] = "the batch"  # what errors advise to run

    def __init__(
        self, path: str | Path, *, reading: bool = False, restored: bool = False, moved: bool = False
    ) -> None:
        super().__init__(path, "a batch", reading=reading, restored=restored, moved=moved)
        self.deliveries: Deliveries = Deliveries()
        self._last_position = 0
        self._met: tuple[tuple[int, int | float], ...] = ()  # the numbers of this input's parts, from and to

    async def open(self) -> None:
        """
        Acquire the file; create it if it does not exist.

        Raises:
            JournalError: Another process owns it, it is damaged, or it is not the journal of a batch.

        """
        await super().open()
        cursor, self._last_position = await self.ask(_positions)
        self.deliveries = Deliveries(cursor)

    def put(self, entry: Entry, left: Left | None = None) -> asyncio.Future[None]:
        """
        Store *entry*, replacing any of its key, and the state in which it *left* its thing.

        The future completes once it is on the disk.
        """
        if entry.state is State.DONE:
            self._last_position += 1
            entry.position = self._last_position
            self.deliveries.add(self._last_position)
        row = row_of(entry)
        return self._open_writer.store((entry.key, row if left is None else (*row, left)))

    async def last_writes(self, things: Sequence[str]) -> list[LastWrite]:
        """Return the last finished write to each of *things*, and the state it left."""
        return await self.ask(partial(_last_writes, things)) if things else []

    async def has_last_writes(self) -> bool:
        """Return whether any finished write left a state."""
        text = "SELECT EXISTS (SELECT 1 FROM states)"
        return bool(await self.ask(lambda connection: connection.execute(text).fetchone()[0]))

    async def fact(self, name: str, value: str | None = None) -> str | None:
        """Return a fact about the whole batch; set it to *value* first if it is unknown."""
        return await self.ask(partial(_fact, name, value))

    async def facts(self, prefix: str) -> dict[str, str]:
        """Return the facts whose names begin with *prefix*."""
        text = "SELECT name, value FROM facts WHERE substr(name, 1, ?) = ?"
        return await self.ask(
            lambda connection: dict(connection.execute(text, (len(prefix), prefix)).fetchall())
        )

    def put_fact(self, name: str, value: str | None) -> asyncio.Future[None]:
        """Set a fact about the whole batch to *value*, or delete it, in the next transaction."""
        return self.ask(partial(_put_fact, name, value))

    async def checkpoint(self) -> Checkpoint | None:
        """Return how far the latest input was taken in, if that is known."""
        return await self.ask(checkpoint_in)

    async def begin_input(self, before: Checkpoint | None) -> int:
        """
        Note that an input is read, from the checkpoint *before* on. Return the first number of its parts.

        Until :meth:`note_input`, the input counts as incomplete.

        Raises:
            JournalError: Another run used the journal since the checkpoint was read.

        """
        start = await self.ask(partial(_begin_input, before))
        self._met = (*(() if before is None else before.runs), (start, inf))
        return start

    def note_input(self, checkpoint: Checkpoint | None, *, is_whole: bool) -> None:
        """Store a checkpoint, and with *is_whole* that the input was read to its end, without waiting."""
        self.ask(partial(_note_input, checkpoint, is_whole=is_whole))

    async def close_inputs(self) -> int:
        """Mark incomplete inputs as complete, as far as they were read; return how many there were."""
        return await self.ask(_close_inputs)

    async def close_restored(self) -> None:
        """Note that the input was read again since the journal was restored."""
        await self.ask(close_mark)

    async def marks(self, keys: Sequence[str], run: int) -> Mapping[str, Mark]:
        """Return the stored entries of *keys*, and note that the input's part *run* contains them."""
        return await self.ask(partial(_marks, keys, run, self._met))

    async def not_done(self, after: int, limit: int) -> list[Entry]:
        """Return the next page of entries that are not done, in input order."""
        where = "state < 2 AND seq > ? ORDER BY seq LIMIT ?"
        return await self.ask(lambda connection: entries(connection, where, (after, limit)))

    async def creates_webhooks(self) -> bool:
        """Return whether an entry that is not done creates a webhook."""
        where = "state < 2 AND operation = 'webhooks.create' LIMIT 1"
        return bool(await self.ask(lambda connection: entries(connection, where, ())))

    async def in_flight(self, after: int, limit: int) -> list[Entry]:
        """Return the next page of entries that were stored before a send, and are not done."""
        where = "state < 2 AND state = 1 AND seq > ? ORDER BY seq LIMIT ?"  # state < 2: to use the index
        return await self.ask(lambda connection: entries(connection, where, (after, limit)))

    async def done(self, verdict: Verdict | None, after: int, limit: int) -> list[Entry]:
        """Return the next page of entries that are done."""
        chosen = "" if verdict is None else f"verdict = '{verdict}' AND "
        if verdict not in (None, Verdict.APPLIED):
            chosen += "verdict <> 'applied' AND "  # to use the index of these few
        where = f"{chosen}state = 2 AND seq > ? ORDER BY seq LIMIT ?"
        return await self.ask(lambda connection: entries(connection, where, (after, limit)))

    async def finished(
        self, verdict: Verdict | None, since: int, limit: int, until: int | None = None
    ) -> list[Entry]:
        """Return the next page of entries that are done, after position *since*, in that order."""
        chosen = "" if verdict is None else f"verdict = '{verdict}' AND "
        where = f"{chosen}state = 2 AND position > ? AND position <= ? ORDER BY position LIMIT ?"
        values = since, self._last_position if until is None else until, limit
        return await self.ask(lambda connection: entries(connection, where, values))

    async def untaken(self, since: int, limit: int) -> list[Entry]:
        """Return the next page of finished entries whose results were not taken."""
        return await self.finished(None, since, limit)

    async def last_position(self) -> int:
        """Return the position of the entry that finished last."""
        return self._last_position

    def save_taken(self) -> asyncio.Future[None]:
        """Store which results were taken, in the next transaction."""
        return self.ask(partial(_save_taken, self.deliveries.cursor))

    async def summary(self) -> Summary:
        """Return the counts of entries."""
        return await self.ask(_summary)

    async def reopen(self, verdict: Verdict, *, keep_sends: bool, keys: Sequence[str] | None = None) -> int:
        """
        Reopen the entries with *verdict*, all or those of *keys*; return how many.

        Without *keep_sends*, they are reopened as if they had never been sent. It takes many short
        transactions. If it is stopped, what they did stays, and another call does the rest.
        """
        return await self._reopen({verdict: keep_sends}, keys, newest=False)

    async def reopen_as_newest(
        self, keep_sends: Mapping[Verdict, bool], keys: Sequence[str] | None = None
    ) -> int:
        """
        Reopen entries at the end of the order, so that they overtake what came after them; return how many.

        They keep their order among themselves. *keep_sends* has each verdict that is meant.
        """
        return await self._reopen(keep_sends, keys, newest=True)

    async def _reopen(
        self, keep_sends: Mapping[Verdict, bool], keys: Sequence[str] | None, *, newest: bool
    ) -> int:
        count = 0
        if keys is not None:
            for some in slices(await self._in_order(keys), _AT_ONCE):
                values = {"these": _encode(some).decode()}
                reopen = partial(_reopen_some, keep_sends, _THESE, values, self.commons, newest=newest)
                count += len(await self.ask(reopen))
            return count
        # Up to the last entry of today: those moved behind it may be finished again meanwhile.
        after, last, text = 0, await self.ask(_last_seq), _first_of([*keep_sends])
        while True:
            part = {"after": after, "last": last, "limit": _AT_ONCE}
            reopen = partial(_reopen_some, keep_sends, text, part, self.commons, newest=newest)
            if not (again := await self.ask(reopen)):
                return count
            count, after = count + len(again), max(again)

    async def _in_order(self, keys: Sequence[str]) -> list[int]:
        """Return the numbers of the entries of *keys*, in their order."""
        found: set[int] = set()
        for some in slices(keys, _AT_ONCE):
            found.update(await self.ask(partial(_numbers, some)))
        return sorted(found)

    async def prune(self, before: int) -> int:
        """
        Reduce entries done before *before* (epoch ms) to key, digest and verdict; return how many.

        It takes many short transactions. If it is stopped, what they did stays, and another call does the
        rest.
        """
        count, after, thing = 0, 0, ""
        while (last := await self.ask(partial(_end_of_slice, "entries", "seq", after))) is not None:
            count, after = count + await self.ask(partial(_prune, before, after, last)), last
        while (to := await self.ask(partial(_end_of_slice, "states", "thing", thing))) is not None:
            await self.ask(partial(_prune_states, before, thing, to))
            thing = to
        return count

    async def claims(self, limit: int) -> Iterable[tuple[str, str]]:
        """Return (webhook id, key) of the latest untagged creates."""
        text = "SELECT claim, key FROM entries WHERE claim IS NOT NULL ORDER BY seq DESC LIMIT ?"
        return await self.ask(lambda connection: connection.execute(text, (limit,)).fetchall())

    # --- on the writer's thread

    def _mark_restored(self, connection: sqlite3.Connection) -> None:
        mark_all(connection)

    def _store(self, connection: sqlite3.Connection, rows: dict[str, tuple[Any, ...] | None]) -> None:
        """Write *rows*, and the states in which some of them left their things, in one transaction."""
        left = {key: row[-1] for key, row in rows.items() if row is not None and type(row[-1]) is Left}
        if not left:
            super()._store(connection, rows)
            return
        with transaction(connection):
            whole = {key: row[:-1] if row is not None and key in left else row for key, row in rows.items()}
            super()._store(connection, whole)
            _leave(connection, left)


def _leave(connection: sqlite3.Connection, left: Mapping[str, Left]) -> None:
    """Store the states in which writes left their things, by the keys of the writes."""
    rows = [(key, each.thing, each.team, each.state, each.stamp) for key, each in left.items()]
    connection.execute(_LEAVE, (_encode(rows).decode(),))


def _last_writes(things: Sequence[str], connection: sqlite3.Connection) -> list[LastWrite]:
    text = "SELECT thing, seq, team, state, stamp FROM states WHERE thing IN (SELECT value FROM json_each(?))"
    found = connection.execute(text, (_encode(things).decode(),))
    names = ("thing", "seq", "team", "state", "stamp")
    return [LastWrite(**dict(zip(names, row, strict=True))) for row in found]


def _fact(name: str, value: str | None, connection: sqlite3.Connection) -> str | None:
    if value is not None:
        connection.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, value))
    return fact(connection, name)


def _put_fact(name: str, value: str | None, connection: sqlite3.Connection) -> None:
    if value is None:
        connection.execute("DELETE FROM facts WHERE name = ?", (name,))
    else:
        _set_fact(connection, name, value)


def _positions(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the last position whose result was taken, and the last one that was assigned."""
    taken, reopened = (int(fact(connection, name) or 0) for name in ("taken", "position"))
    (last,) = connection.execute("SELECT max(position) FROM entries WHERE position IS NOT NULL").fetchone()
    return taken, max(taken, reopened, last or 0)


def _save_taken(position: int, connection: sqlite3.Connection) -> None:
    _set_fact(connection, "taken", position)


def checkpoint_in(connection: sqlite3.Connection) -> Checkpoint | None:
    """
    Return how far the latest input was taken in, if that is known.

    A checkpoint counts only for the runs that it names and their successor: another input in between may
    contain equal writes, which then count as its own.
    """
    found = decoded(fact(connection, "checkpoint"))
    latest = int(fact(connection, "runs") or 0)
    return found if found is not None and found.runs and found.runs[-1][0] + RUNS - 1 == latest else None


def read_checkpoint(path: Path) -> Checkpoint | None:
    """Return the same for the file at *path*, which another process may have, or which may not exist."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            return checkpoint_in(connection)
    except (sqlite3.Error, ValueError):  # the journal is opened later, which says what is wrong
        return None


def _begin_input(before: Checkpoint | None, connection: sqlite3.Connection) -> int:
    if before is not None and checkpoint_in(connection) != before:
        raise JournalError("the journal was used by another run meanwhile. Run again.")
    start = int(fact(connection, "runs") or 0) + 1
    _set_fact(connection, "runs", start + RUNS - 1)
    _set_fact(connection, "input", "incomplete")
    if before is None:
        connection.execute("DELETE FROM facts WHERE name = 'checkpoint'")
    else:
        runs = (*before.runs, (start, start - 1))  # nothing yet
        _set_fact(connection, "checkpoint", _encode(replace(before, runs=runs)).decode())
    return start


def _note_input(checkpoint: Checkpoint | None, connection: sqlite3.Connection, *, is_whole: bool) -> None:
    if checkpoint is not None:
        _set_fact(connection, "checkpoint", _encode(checkpoint).decode())
    if is_whole:
        _close_inputs(connection)


def _close_inputs(connection: sqlite3.Connection) -> int:
    return connection.execute("DELETE FROM facts WHERE name = 'input'").rowcount


def _set_fact(connection: sqlite3.Connection, name: str, value: object) -> None:
    connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, str(value)))


def _marks(
    keys: Sequence[str], run: int, met: tuple[tuple[int, int | float], ...], connection: sqlite3.Connection
) -> dict[str, Mark]:
    def is_met(last: int) -> bool:
        return any(first <= last <= to for first, to in met)

    marks = ", ".join("?" * len(keys))
    found = connection.execute(
        f"SELECT key, seq, content, state, run FROM entries WHERE key IN ({marks})",  # noqa: S608 - our own text
        keys,
    ).fetchall()
    if found:
        seen = [(run, key) for key, _, _, _, last in found if not is_met(last)]
        connection.executemany("UPDATE entries SET run = ? WHERE key = ?", seen)
    return {key: Mark(seq, content, state, is_met(last)) for key, seq, content, state, last in found}


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
    text = (
        "SELECT count(*) FROM entries WHERE verdict = 'not applied' AND verdict <> 'applied' "
        "AND outcome LIKE '%\"overtaken\":true%'"
    )
    (overtaken,) = connection.execute(text).fetchone()
    return Summary(
        to_do=states.get(State.TO_DO, 0),
        sending=states.get(State.SENDING, 0),
        verdicts=verdicts,
        secrets_lost=lost,
        overtaken=overtaken,
        open_inputs=int(fact(connection, "input") is not None),
    )


def _numbers(keys: Sequence[str], connection: sqlite3.Connection) -> list[int]:
    """Return the numbers of the entries of *keys*."""
    text = "SELECT seq FROM entries WHERE key IN (SELECT value FROM json_each(?))"
    return [number for (number,) in connection.execute(text, (_encode(keys).decode(),))]


def _last_seq(connection: sqlite3.Connection) -> int:
    last: int = connection.execute("SELECT coalesce(max(seq), 0) FROM entries").fetchone()[0]
    return last


def _first_of(verdicts: Sequence[Verdict]) -> str:
    """Return the query for the first entries with one of *verdicts* in a part of the order."""
    parts = " UNION ALL ".join(
        "SELECT * FROM (SELECT seq, verdict, key, common, intent FROM entries "  # noqa: S608 - our own text
        f"WHERE verdict = '{each}' AND {_MAY_REOPEN} "
        "AND seq > :after AND seq <= :last ORDER BY seq LIMIT :limit)"
        for each in verdicts
    )
    return f"SELECT * FROM ({parts}) ORDER BY seq LIMIT :limit"  # noqa: S608 - our own text


def _reopen_some(
    keep_sends: Mapping[Verdict, bool],
    text: str,
    values: Mapping[str, object],
    commons: Commons,
    connection: sqlite3.Connection,
    *,
    newest: bool,
) -> list[int]:
    """Reopen the entries that the query *text* finds, in one transaction; return their earlier numbers."""
    found = [row for row in connection.execute(text, values) if Verdict(row[1]) in keep_sends]
    again = places = [row[0] for row in found]
    _set_fact(connection, "position", _positions(connection)[1])  # that of a reopened entry is not used again
    keeping = [keep_sends[Verdict(row[1])] for row in found]
    if newest:
        through, end = last_of(fact(connection, FACT)), _last_seq(connection)
        places = [end + number for number in range(1, len(found) + 1)]
        for at, (seq, _, key, common, intent) in enumerate(found):
            if seq <= through:
                packed = Packed(common=common, text=intent)
                intent = kept_in_doubt(key, packed, commons, keep_sends=keeping[at])  # noqa: PLW2901
                keeping[at] = True
            connection.execute(_MOVE, (places[at], not_overtaken(intent), seq))
    for statement, keeps in ((_REOPEN, True), (_REOPEN_ANEW, False)):
        these = [place for place, keep in zip(places, keeping, strict=True) if keep is keeps]
        if these:
            connection.execute(statement, (_encode(these).decode(),))
    return again


def _end_of_slice(table: str, column: str, after: Any, connection: sqlite3.Connection) -> Any:
    """Return the last number, or name, of the next rows of *table*. Any: an integer or a text."""
    text = (
        f"SELECT max({column}) FROM "  # noqa: S608 - our own text
        f"(SELECT {column} FROM {table} WHERE {column} > ? ORDER BY {column} LIMIT {_LOOKED_AT})"
    )
    return connection.execute(text, (after,)).fetchone()[0]


def _prune(before: int, after: int, last: int, connection: sqlite3.Connection) -> int:
    changed = connection.execute(
        "UPDATE entries SET intent = NULL, outcome = NULL, claim = NULL "
        "WHERE state = 2 AND done_at < ? AND verdict <> 'unknown' "  # it keeps what settles it
        "AND (intent IS NOT NULL OR outcome IS NOT NULL) AND seq > ? AND seq <= ?",
        (before, after, last),
    )
    return changed.rowcount


def _prune_states(before: int, thing: str, to: str, connection: sqlite3.Connection) -> None:
    connection.execute(
        "UPDATE states SET team = NULL, state = NULL, stamp = NULL WHERE state IS NOT NULL "
        "AND thing > ? AND thing <= ? AND EXISTS "
        "(SELECT 1 FROM entries WHERE entries.seq = states.seq AND entries.done_at < ?)",
        (thing, to, before),
    )
