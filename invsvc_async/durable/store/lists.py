"""Lists and counts of the entries of a store, as people see them, and the owners of lanes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from invsvc_async.durable.entry import State
from invsvc_async.durable.store.conditions import (
    DONE_AND_OPEN,
    KEYED,
    NOT_APPLIED,
    NOT_ASIDE,
    OPEN,
    UNFINISHED,
    UNKEYED,
)
from invsvc_async.durable.store.migrations import (
    FLAGS_IN_TEXT,
    WITH_DUE_TIMES,
    WITH_FLAGS,
)
from invsvc_async.durable.store.noted import columns_in, noted_in, wanted_by
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.storage.dialect import in_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.noted import Chosen
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.storage.dialect import Cell
    from invsvc_async.writes.noted import Noted


_NEXT_PART = "SELECT seq FROM {s}entries WHERE seq > $1 ORDER BY seq LIMIT $2"
_END_OF_PART = f"SELECT max(seq) FROM ({_NEXT_PART}) AS part"
_OF_VERDICT = f"""
SELECT seq, key FROM {{s}}entries WHERE verdict = $1 AND {NOT_APPLIED} AND intent IS NOT NULL
    AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4
"""
# The conditions of entries in a state.  Of the verdicts that nobody has acknowledged, only as many are looked
# at as entries are asked for: $1, the limit of the whole statement.
_IN_STATE: Final[dict[str | None, str]] = {
    None: "true",
    "open": f"e.{OPEN} AND e.{UNFINISHED}",
    "applied": "e.verdict = 'applied'",
    "untold": "e.seq IN (SELECT seq FROM {s}unheard ORDER BY seq LIMIT $1)",
}
_AMONG_ALL_UNTOLD: Final = "e.seq IN (SELECT seq FROM {s}unheard)"


# Since when the first of the entries could be sent, but for those that wait for their time, or behind such
# ones.
_READY_SINCE = f"""
SELECT min(since) FROM (
    SELECT CASE WHEN e.due_at > e.added_at THEN e.due_at ELSE e.added_at END AS since
    FROM {{s}}entries AS e WHERE {_IN_STATE["open"]} AND e.{NOT_ASIDE} LIMIT {{arg 1 bigint}}
) AS chosen
"""


def _count_text(condition: str) -> str:
    """Return the statement that counts entries with *condition*, up to $1, and tells how old they are."""
    return f"""
SELECT count(*), min(added_at) FROM (
    SELECT e.added_at FROM {{s}}entries AS e WHERE {condition} LIMIT {{arg 1 bigint}}
) AS chosen
"""


def _counts(flags: str) -> str:
    """Return the statement that counts entries, of which *flags* are in a column or in the outcome's text."""
    return f"""
SELECT state, coalesce(verdict, ''), {flags}, count(*) FROM {{s}}entries AS e GROUP BY 1, 2, 3
"""


_COUNT_ENTRIES = _counts("e.flags")
_COUNT_ENTRIES_BY_TEXT = _counts(FLAGS_IN_TEXT)
_KEPT_COUNTS = """
SELECT state, verdict, flags, CAST(sum(many) AS bigint) FROM {s}counts GROUP BY state, verdict, flags
"""
_STATUS_OF_OWNER = """
SELECT l.owner, m.status, {now} - m.seen, m.silence, m.sends FROM {s}lanes AS l
    LEFT JOIN {s}members AS m ON l.owner LIKE m.name || '.%' WHERE l.id = $1
"""

# Entries that people call $1.  That is the whole key, or a part of it, which is of one of two forms:
#
# - a namespace without spaces, a space, and the user's key: it ends with a space and $1, and has exactly one
#   space more than $1
# - a made-up key, a space, and a nonce.  It begins with $1 and a space
_NAMED = f"""
e.key = {{arg 1 text}}
    OR e.{KEYED} AND substr(e.key, length(e.key) - length({{arg 1 text}})) = ' ' || {{arg 1 text}}
        AND length(replace(e.key, ' ', '')) = length(e.key) - 1 - length({{arg 1 text}})
            + length(replace({{arg 1 text}}, ' ', ''))
    OR e.{UNKEYED} AND substr(e.key, 1, length({{arg 1 text}}) + 1) = {{arg 1 text}} || ' '
ORDER BY e.seq LIMIT 10
"""
_KEPT_OPEN: Final = f"SELECT coalesce(sum(many), 0) FROM {{s}}counts WHERE {UNFINISHED}"
_OPEN_OF: Final = f"""
SELECT 1 FROM {{s}}entries WHERE {OPEN} AND operation {{any 1 text}} LIMIT 1
"""
_LAST_NUMBER: Final = "SELECT coalesce(max(seq), 0) FROM {s}entries"


class Counted(NamedTuple):
    """How many entries there are, up to the most asked for, and when the oldest was stored (epoch ms)."""

    many: int
    oldest: int | None


class Notes(NamedTuple):
    """
    What people see of an entry besides its progress.

    When it was stored first (epoch ms), whether its verdict was not acknowledged, the time before which it
    is not sent (epoch ms), and what users have noted.
    """

    added_at: int | None
    is_unheard: bool
    not_before: int | None
    noted: Noted


class LaneOwner(NamedTuple):
    """
    The owner of a lane: the last status of the process, as JSON, and how long it has been silent (s).

    ``is_alive`` says nothing in a file, where silence has no end: there the lock of the file shows who lives.
    """

    status: str | None
    silent: float | None
    is_alive: bool


async def count_open(store: Store) -> int:
    """Count the entries of a store that keeps counts which are not done."""
    return int((await store.rows(_KEPT_OPEN))[0][0])


async def has_open(store: Store, operations: Sequence[str]) -> bool:
    """Return whether an entry of one of *operations* is not done."""
    return bool(await store.rows(_OPEN_OF, operations))


async def first_open(store: Store, limit: int) -> list[Entry]:
    """Return the first entries that are not done, of all lanes."""
    where = f"e.{OPEN} AND e.{UNFINISHED} ORDER BY e.seq LIMIT $1"
    return await store.entries(where, limit)


async def first(store: Store, chosen: Chosen, limit: int) -> list[Entry]:
    """Return the first of the *chosen* entries."""
    where, texts = _condition_of(chosen, store)
    return await store.entries(
        f"{where} ORDER BY e.seq LIMIT {{arg 1 bigint}}", limit, *texts
    )


async def count(store: Store, chosen: Chosen, most: int) -> Counted:
    """Count the *chosen* entries, up to *most*."""
    where, texts = _condition_of(chosen, store)
    [(many, oldest)] = await store.rows(_count_text(where), most, *texts)
    return Counted(int(many), oldest)


async def ready_since(store: Store, most: int) -> int | None:
    """
    Return when the first of the open entries could be sent (epoch ms); ``None`` if none can be sent.

    At most *most* entries are looked at.  The time for which the user let an entry wait does not count.  One
    that is tried again counts from when it was stored first.
    """
    [(since,)] = await store.rows(_READY_SINCE, most)
    return None if since is None else int(since)


async def counts(store: Store) -> Sequence[Cell]:
    """Count all entries by state, verdict (or "") and flags."""
    if store.how.counted:
        return await store.rows(_KEPT_COUNTS)
    if store.version < WITH_FLAGS:
        return await store.rows(_COUNT_ENTRIES_BY_TEXT)
    return await store.rows(_COUNT_ENTRIES)


async def done(
    store: Store, verdict: Verdict | None, after: int, limit: int
) -> list[Entry]:
    """Return the next entries *after* a number that are done, with *verdict*, or any."""
    where = f"{_in_state(verdict)} AND e.state = {State.DONE:d} AND e.seq > $1 ORDER BY e.seq LIMIT $2"
    return await store.entries(where, after, limit)


async def latest(store: Store, verdict: Verdict, limit: int) -> list[Entry]:
    """Return the last entries with *verdict*, which is not APPLIED, the last one first."""
    return await store.entries(
        f"{_in_state(verdict)} ORDER BY e.seq DESC LIMIT $1", limit
    )


async def of_verdict(
    store: Store, verdict: str, after: int, last: int, limit: int
) -> list[tuple[int, str]]:
    """Return numbers and keys of the next entries with *verdict*, *after* a number, up to the *last*."""
    rows = await store.rows(_OF_VERDICT, verdict, after, last, limit)
    return [(seq, key) for seq, key in rows]


async def last_number(store: Store) -> int:
    """Return the number of the last entry; 0 if there is none."""
    return int((await store.rows(_LAST_NUMBER))[0][0])


async def end_of_part(store: Store, after: int, size: int) -> int | None:
    """Return the number of the last of the next *size* entries *after* a number; ``None``: there is none."""
    last: int | None = (await store.rows(_END_OF_PART, after, size))[0][0]
    return last


async def notes_of(store: Store, seqs: Sequence[int]) -> dict[int, Notes]:
    """Return the notes of the entries *seqs*, by their numbers."""
    rows = await in_parts(partial(store.rows, _notes_text(store.version)), seqs)
    return {
        seq: Notes(added, unheard is not None, not_before, noted_in(noted))
        for seq, added, unheard, not_before, *noted in rows
    }


def _notes_text(version: int) -> str:
    """Return the statement that selects ``Notes`` from tables of a *version*, which may lack columns."""
    not_before = "e.not_before" if version >= WITH_DUE_TIMES else "NULL"
    return f"""
SELECT e.seq, e.added_at, u.seq, {not_before}, {columns_in(version)}
    FROM {{s}}entries AS e LEFT JOIN {{s}}unheard AS u ON u.seq = e.seq WHERE e.seq {{any 1 bigint}}
"""


async def owner_of(store: Store, lane: int) -> LaneOwner | None:
    """Return which process owns *lane*; ``None``: nobody does."""
    rows = await store.rows(_STATUS_OF_OWNER, lane)
    if not rows or rows[0][0] is None:
        return None
    _, status, silent, silence, sends = rows[0]
    has_ended = silent is None or sends == -1
    # As in ``members``, the longer silence counts: of the process, or of the one that asks.
    is_alive = not has_ended and silent < max(silence, store.silence)
    return LaneOwner(status, silent, is_alive)


async def keys_called(store: Store, key: str) -> list[str]:
    """Return the whole keys of up to ten entries of a journal that people call *key*."""
    return [entry.key for entry in await store.entries(_NAMED, key)]


def _condition_of(chosen: Chosen, store: Store) -> tuple[str, list[str]]:
    """
    Return the condition of *chosen* entries in the tables of *store*, and its values from the second on.

    The first value is how many entries are asked for.
    """
    wanted = wanted_by(chosen)
    if any(store.version < each.column.since for each in wanted):
        return "false", []
    condition = _in_state(chosen.state)
    if chosen.state == "untold" and store.how.kind == "journal":
        condition = f"e.{DONE_AND_OPEN}"
    elif chosen.state == "untold" and wanted:  # The first ones may lack what is wanted.
        condition = _AMONG_ALL_UNTOLD
    conditions = [each.condition(number) for number, each in enumerate(wanted, 2)]
    return " AND ".join([condition, *conditions]), [each.text for each in wanted]


def _in_state(state: str | None) -> str:
    """Return the condition of entries in *state*, or with that verdict."""
    return (
        _IN_STATE.get(state)
        or f"e.verdict = '{Verdict(str(state))}' AND e.{NOT_APPLIED}"
    )
