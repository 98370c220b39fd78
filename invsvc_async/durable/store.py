"""The protocol of a store of writes, in a file or a database, and what both have in common."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from invsvc_async.durable.entry import Entry, entry_of
from invsvc_async.durable.restored import FACT, FIND, SET, closed

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from invsvc_async.durable.intents import Commons
    from invsvc_async.durable.last_writes import Left
    from invsvc_async.errors import JournalError
    from invsvc_async.storage.dialect import Script
    from invsvc_async.transport.session import ClientState

__all__ = [
    "ENTRY", "SENT", "TAKER", "Owned", "Store", "close_restored", "columns_of", "count", "entry_in",
    "flags_in", "keep", "note_fact",
]  # fmt: skip

T = TypeVar("T")

# The columns of an entry, in the order of `entry_in`.
ENTRY: Final = (
    "e.seq, e.place, e.key, e.lane, e.thing, e.digest, e.operation, e.state, e.common, e.intent, e.verdict,"
    " e.outcome, e.claim, e.done_at"
)
_NAMES: Final = tuple(name.partition(".")[2] for name in ENTRY.split(", "))
# What changes in an entry, in the order of ``columns_of``.
SENT: Final = "state:smallint common:bigint intent:text claim:text verdict:text outcome:text done_at:bigint"
columns_of = attrgetter("state", "common", "intent", "claim", "verdict", "outcome", "done_at")
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


class Owned(Protocol):
    """A lane that a process owns, as long as its token is on it."""

    number: int
    token: str

    def doubt(self) -> None:
        """Note that something was not stored, so another process may have it."""
        ...


class Store(Protocol):
    """The writes of one kind, in one file or one schema of a database."""

    commons: Commons
    silence: float  # s without a sign of life after which a process counts as dead; infinite in a file
    part: int | None  # of the counts to which this process adds; None: they are not kept

    async def open_for(self, session: ClientState | None, *, same_mode: bool) -> None:
        """
        Open it for the base URL and credential of *session*; create it if it does not exist.

        A file may be opened without a session.

        Raises:
            JournalError: It cannot be used, or it is of another version.

        """
        ...

    async def aclose(self) -> None:
        """Store what is pending, and close it."""
        ...

    async def run(self, script: Callable[[], Script[T]]) -> T:
        """Run a new *script* in a transaction, and return its result."""
        ...

    async def rows(self, text: str, *values: Any) -> Sequence[Any]:  # Any: as the columns
        """Run one statement, which is its own transaction, and return its rows."""
        ...

    def put(self, entry: Entry, lane: Owned, left: Left | None = None) -> asyncio.Future[None]:
        """
        Store *entry*, and the state in which it *left* its thing, with others, if *lane* is still owned.

        The future completes once it is durable, or fails with LostLaneError.
        """
        ...

    async def open_in(self, places: Mapping[int, int], held: Sequence[int], each: int) -> list[Entry]:
        """
        Return entries that are not done, in their order; not those of *held*, which has their numbers.

        *places* has the lanes, and after which place to look in each. *each* limits the entries of one lane.
        """
        ...

    async def hear(self, woken: Callable[[str], None]) -> None:
        """
        Call *woken* with the number of each lane that has something new, until cancelled.

        ``""`` stands for all lanes, and ``"beat"`` says that another process has joined, needs writes, or has
        left.
        """
        ...

    async def tell(self, *what: str) -> None:
        """Wake those that hear, in all processes, with the number of a lane, or ``"beat"``."""
        ...

    async def check_place(self) -> None:
        """
        Check that it is where it was used before, and use it nowhere else from now on.

        Raises:
            JournalError: It is not, so it may lack sends that were made.

        """
        ...

    def forget_place(self) -> None:
        """Note that nothing is sent any more, so its place does not matter."""
        ...

    def is_away(self, error: JournalError) -> bool:
        """Return whether *error* says that it cannot be reached, and not that it refused a statement."""
        ...

    async def entries(self, where: str, *values: Any) -> list[Entry]:  # Any: as the columns
        """Select entries; *where* is our own text, and calls the table *e*."""
        ...

    async def idle(self) -> None:
        """Wait until everything pending is stored."""
        ...

    def hurried(self) -> AbstractAsyncContextManager[None]:
        """Wait only briefly for the statements in the block."""
        ...


def keep(given: Sequence[tuple[Entry, Owned]]) -> tuple[str, Sequence[Any]]:  # Any: as the columns
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
    return entry_of(dict(zip(_NAMES, row, strict=True)))


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


def note_fact(name: str, value: str | None) -> Script[None]:
    """Set a fact about the whole store to *value*, or delete it."""
    if value is None:
        yield "DELETE FROM {s}facts WHERE name = $1", (name,)
    else:
        yield SET, (name, value)


def close_restored() -> Script[None]:
    """Note that the input was read again since the store was restored."""
    found = yield FIND, (FACT,)
    if found:
        yield SET, (FACT, closed(found[0][0]))
