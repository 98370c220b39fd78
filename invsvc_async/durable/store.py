"""What stores of writes in files and in databases have in common."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from invsvc_async.durable.entry import Entry, unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from invsvc_async.durable.leases import Lane
    from invsvc_async.durable.postgres_store import PostgresStore
    from invsvc_async.durable.sqlite_store import SqliteStore
    from invsvc_async.storage.dialect import Script

    Store: TypeAlias = SqliteStore | PostgresStore  # both have the same methods

__all__ = [
    "ENTRY", "SENT", "TAKER", "Store", "columns_of", "count", "entry_in",
    "flags_in", "keep",
]  # fmt: skip

# The columns of an entry, in the order of `entry_in`.
ENTRY: Final = (
    "e.seq, e.place, e.key, e.lane, e.thing, e.digest, e.operation, e.state, e.common, e.intent, e.verdict,"
    " e.outcome, e.claim, e.done_at"
)
_NAMES: Final = tuple(name.partition(".")[2] for name in ENTRY.split(", "))
# What changes in an entry, in the order of ``columns_of``.
SENT: Final = "state:smallint common:bigint intent:text claim:text verdict:text outcome:text done_at:bigint"
columns_of: attrgetter[tuple[Any, ...]] = attrgetter(  # Any: of each column its own
    "state", "common", "intent", "claim", "verdict", "outcome", "done_at"
)
_LOST, _OVERTAKEN = '"lost":true', '"overtaken":true'  # in an outcome
TAKER: Final = "taker"  # the fact that says in a file who gives the verdicts of what is sent now
_COUNT: Final = """
{postgres}INSERT INTO {s}counts AS c (part, state, verdict, flags, many)
    SELECT {arg 1 smallint}, state, verdict, flags, many
    FROM {rows 2 state:smallint verdict:text flags:smallint many:bigint} WHERE true
    ON CONFLICT (part, state, verdict, flags) DO UPDATE SET many = c.many + excluded.many
"""
_NEW: Final = "key:text lane:bigint token:text state:smallint operation:text common:bigint intent:text"
_ENDED: Final = "verdict:text outcome:text done_at:bigint"
# A new entry is inserted.  One that another process has taken over is in another lane, and stays as it is.
_KEEP: Final = f"""
WITH turn AS MATERIALIZED (SELECT {{durably}} AS done),
owned AS MATERIALIZED (SELECT id, owner FROM {{s}}lanes WHERE id {{any 2 bigint}} ORDER BY id {{share}})
INSERT INTO {{s}}entries AS e
    (place, key, lane, digest, operation, state, common, intent, verdict, outcome, done_at)
SELECT 0, given.key, given.lane, '', given.operation, given.state, given.common, given.intent, given.verdict,
    given.outcome, given.done_at
FROM turn CROSS JOIN {{rows 1 {_NEW} {_ENDED}}}
    JOIN owned ON owned.id = given.lane AND owned.owner = given.token WHERE true
ON CONFLICT (key) DO UPDATE SET state = excluded.state, common = excluded.common, intent = excluded.intent,
    verdict = excluded.verdict, outcome = excluded.outcome, done_at = excluded.done_at
    WHERE e.lane = excluded.lane
RETURNING key
"""  # noqa: S608 - our own text


def keep(given: Sequence[tuple[Entry, Lane]]) -> tuple[str, Sequence[Any]]:  # Any: as the columns
    """
    Return the statement that inserts or updates entries by their keys, and its values.

    It returns the keys of those whose lanes are still owned.
    """
    rows = [
        (
            entry.key, lane.number, lane.token, int(entry.state), entry.operation, entry.common, entry.intent,
            entry.verdict, entry.outcome, entry.done_at,
        )
        for entry, lane in given
    ]  # fmt: skip
    return _KEEP, (rows, list({lane.number for _, lane in given}))


def entry_in(row: Sequence[Any]) -> Entry:  # Any: as the columns
    """
    Return the entry in *row*, which has the columns ``ENTRY``.

    Raises:
        JournalError: A column contains a value of another type: the entry is damaged.

    """
    fields = dict(zip(_NAMES, row, strict=True))
    try:
        return msgspec.convert(fields, Entry)
    except msgspec.ValidationError as error:
        raise unreadable(fields["key"], error) from None


def flags_in(table: str) -> str:
    """
    Return an expression for the kind of an entry in *table*.

    It is 1 if the secret of a webhook is lost, plus 2 if the entry was overtaken.
    """
    lost, overtaken = (
        f"CASE WHEN {table}.outcome LIKE '%{text}%' THEN {value} ELSE 0 END"
        for text, value in ((_LOST, 1), (_OVERTAKEN, 2))
    )
    return f"{lost} + {overtaken}"


def count(part: int | None, changes: Mapping[tuple[int, str, int], int]) -> Script[None]:
    """
    Add *changes*, by state, verdict and flags, to the *part* of the counts, if they are kept.

    In a file, triggers do that.
    """
    rows = [(int(which[0]), *which[1:], many) for which, many in sorted(changes.items()) if many]
    if part is not None and rows:
        yield _COUNT, (part, rows)
