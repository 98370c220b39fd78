"""
Scripts: operations of a store that are written once for SQLite and PostgreSQL.

A script is a generator: it yields a statement with its values, and receives the rows.  A store runs it in one
transaction, and perhaps again from its start, if a reply of the database was lost.  Statements are in the SQL
that both databases have, with values as ``$1``, ``$2``, and these words for what differs:

=============================  =====================================================================
``{name}``                     a name or text that the store has chosen, such as that of a table; in
                               SQLite also the time, by one of its clocks
``{rows 1 a:text b:bigint}``   a table with these columns, of ``$1``, a list of tuples
``{any 1 text}``               as in ``key {any 1 text}``: equal to one of the list ``$1``
``{arg 1 text}``               the value ``$1``, where PostgreSQL cannot tell its type
``{share}``, ``{update}``      lock the rows that are selected, in PostgreSQL
``{skip}``                     the same, without those that others have locked
``{changed}``                  at the end of an INSERT, UPDATE or DELETE: the result has a row for each
                               that it changed (not after WITH, where Python's driver does not count)
``{postgres}``, ``{sqlite}``   at the start of a statement: it is for this database alone
``{counted}``                  the same: for a PostgreSQL store that counts; a file does so by triggers
=============================  =====================================================================

In SQLite, a list becomes ``VALUES`` with a mark for each value: of the ways tried, that takes the least time
(2.8 µs a row of 8 columns; ``json_each`` 6.5), and it accepts each text and blob.  Lists are filled up with
NULL to sizes that double, so that few statements are prepared, and have at most ``MOST`` rows.  Marks are not
numbered: Python 3.12.0 to 3.12.3 warn of that.
"""

from __future__ import annotations

import re
from collections.abc import (
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import cache, partial
from itertools import chain, repeat
from math import nan
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    import sqlite3


T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K", int, str)

Values: TypeAlias = Sequence[Any]  # Any: as the columns
Rows: TypeAlias = Sequence[Any]  # Any: tuples, or records of asyncpg
Cell: TypeAlias = Any  # as its column
Connection: TypeAlias = Any  # asyncpg has no types
Script: TypeAlias = Generator[tuple[str, Values], Rows, T]

MOST: Final = 256  # rows of a list
_WORDS: Final = re.compile(
    r"\{(?P<word>\w+)(?: (?P<number>\d+) (?P<types>[^}]+))?\}|\$(?P<plain>\d+)"
)
_LOCKS: Final = {
    "share": "FOR SHARE",
    "update": "FOR UPDATE",
    "skip": "FOR UPDATE SKIP LOCKED",
}
_ONLY: Final = {"postgres", "sqlite", "counted"}


class _Word(NamedTuple):
    """A word of a statement; ``number`` is the number of the value for which it stands, from 1, or 0."""

    word: str
    number: int = 0
    columns: tuple[tuple[str, str], ...] = ()  # names and types


class _Statement(NamedTuple):
    """The words of a statement, and which of its values are rows of so many columns."""

    parts: tuple[_Word, ...]
    rows: dict[int, int]
    only: str | None  # the stores that it is for
    is_counted: bool


@cache
def _parsed(text: str) -> _Statement:
    parts: list[_Word] = []
    for found in _WORDS.finditer(text):
        word, number, types, plain = found.group("word", "number", "types", "plain")
        columns = tuple(map(_column, (types or "").split()))
        if plain:
            parts.append(_Word("arg", int(plain), columns))
        else:
            parts.append(_Word(word, int(number or 0), columns))
    rows = {part.number: len(part.columns) for part in parts if part.word == "rows"}
    words = {part.word for part in parts}
    return _Statement(
        (*parts,), rows, next(iter(words & _ONLY), None), "changed" in words
    )


def _column(text: str) -> tuple[str, str]:
    """Return the name and the type of a column, written as ``name:type`` or ``type``."""
    name, _, kind = text.rpartition(":")
    return name, kind


class _Dialect:
    """Statements for stores of *kinds*; *names* stand for themselves in braces, and are our own text."""

    def __init__(self, *kinds: str, **names: str) -> None:
        self._kinds = {None, *kinds}
        self._names = {**dict.fromkeys(_ONLY, ""), **names}
        self._known: dict[object, str] = {}


def slices(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Divide *items*, for statements and transactions of bounded size."""
    for start in range(0, len(items), most):
        yield items[start : start + most]


async def in_parts(
    ask: Callable[[Sequence[T]], Awaitable[Iterable[R]]], items: Sequence[T]
) -> list[R]:
    """Return the rows that *ask* returns for *items*, of which it gets lists of at most ``MOST``."""
    return [row for some in slices(items, MOST) for row in await ask(some)]


def not_found(tried: Iterable[K], statement: str) -> Script[set[K]]:
    """
    Return which of *tried*, rows that earlier runs of a script have deleted, are gone.

    If such a run was rolled back, *statement*, which selects from its first parameter, still finds them.
    """
    gone = set(tried)
    for some in slices(sorted(tried), MOST):
        gone.difference_update(each for (each,) in (yield statement, (some,)))
    return gone


def run_script(script: Script[T], execute: Callable[[str, Values], Rows]) -> T:
    """Run *script*, whose statements *execute* executes, and return its result."""
    rows: Any = None  # Any: what starts a generator is no row
    while True:
        try:
            text, values = script.send(rows)
        except StopIteration as done:
            result: T = done.value
            return result
        rows = execute(text, values)


async def await_script(
    script: Script[T], execute: Callable[[str, Values], Awaitable[Rows]]
) -> T:
    """Run *script* as :func:`run_script` does, with statements that are awaited."""
    rows: Cell = None
    while True:
        try:
            text, values = script.send(rows)
        except StopIteration as done:
            result: T = done.value
            return result
        rows = await execute(text, values)


class PostgresDialect(_Dialect):
    """Statements for PostgreSQL, run by asyncpg: a list is an array for each column."""

    def __init__(self, *kinds: str, **names: str) -> None:
        super().__init__(
            "postgres", *kinds, changed="RETURNING true", **_LOCKS, **names
        )

    async def run(self, connection: Connection, script: Script[T]) -> T:
        """Run *script* in the open transaction of *connection*."""
        return await await_script(script, partial(self._execute, connection))

    async def _execute(
        self,
        connection: Connection,
        text: str,
        values: Values,
    ) -> Rows:
        if _parsed(text).only not in self._kinds:
            return ()
        found: Rows = await connection.fetch(*self.translated(text, values))
        return found

    def translated(self, text: str, values: Values) -> Values:
        """Return the statement, followed by its values."""
        statement = _parsed(text)
        given: list[Cell] = [text]
        firsts = [0]
        for number, value in enumerate(values, 1):
            firsts.append(len(given))
            if number not in statement.rows:
                given.append(value)
            elif value:
                given += map(list, zip(*value, strict=True))
            else:
                given += [[]] * statement.rows[number]
        if text not in self._known:
            words = (self._word(part, firsts[part.number]) for part in statement.parts)
            self._known[text] = _WORDS.sub(lambda _: next(words), text)
        given[0] = self._known[text]
        return given

    def _word(self, part: _Word, first: int) -> str:
        """Return what stands for *part*, whose value is the one with the number *first*, or begins there."""
        if part.word == "rows":
            arrays = ", ".join(
                f"${first + at}::{kind}[]" for at, (_, kind) in enumerate(part.columns)
            )
            return f"unnest({arrays}) AS given ({', '.join(name for name, _ in part.columns)})"
        if not part.number:
            return self._names[part.word]
        if not part.columns:
            return f"${first}"
        _, kind = part.columns[0]
        if part.word == "any":
            return f"= ANY (${first}::{kind}[])"
        return f"${first}::{kind}"


_NULL = nan  # stored as NULL. For a `None`, `sqlite3` would look for an adapter: 3,000 instructions each time


class SqliteDialect(_Dialect):
    """Statements for SQLite: a list is ``VALUES``, or marks in parentheses; names of *clocks*, the time."""

    def __init__(
        self, clocks: Mapping[str, Callable[[], float]] | None = None, **names: str
    ) -> None:
        super().__init__("sqlite", changed="", **dict.fromkeys(_LOCKS, ""), **names)
        self._clocks = clocks or {}

    def run(self, connection: sqlite3.Connection, script: Script[T]) -> T:
        """Run *script* in the open transaction of *connection*, on its thread."""
        return run_script(script, partial(self._execute, connection))

    def _execute(
        self,
        connection: sqlite3.Connection,
        text: str,
        values: Values,
    ) -> Rows:
        statement = _parsed(text)
        if statement.only not in self._kinds:
            return ()
        cursor = connection.execute(*self.translated(text, values))
        # A statement with RETURNING takes 13 to 15 instead of 9 to 10 µs.
        if statement.is_counted:
            return ((True,),) * cursor.rowcount
        return cursor.fetchall()

    def translated(self, text: str, values: Values) -> tuple[str, Values]:
        """Return the statement, and its values."""
        statement = _parsed(text)
        given: list[Cell] = []
        known: tuple[Any, ...] = (text,)  # Any: the text, and the sizes of its lists
        times: dict[str, float] = {}
        for part in statement.parts:
            word = part.word
            number = part.number
            if word in {"rows", "any"}:
                value = values[number - 1]
                size = _size(len(value))
                known += (size,)
                given += _cells(part, value, size)
            elif number:
                value = values[number - 1]
                given.append(_NULL if value is None else value)
            elif word in self._clocks:
                if word not in times:  # one time in the whole statement
                    times[word] = self._clocks[word]()
                given.append(times[word])
        if known not in self._known:
            sizes = iter(known[1:])
            words = (self._word(part, sizes) for part in statement.parts)
            self._known[known] = _WORDS.sub(lambda _: next(words), text)
        return self._known[known], given

    def _word(self, part: _Word, sizes: Iterator[int]) -> str:
        if part.word == "rows":
            rows = "), (".join([", ".join("?" * len(part.columns))] * next(sizes))
            named = ", ".join(
                f"column{at} AS {name}" for at, (name, _) in enumerate(part.columns, 1)
            )
            return f"(SELECT {named} FROM (VALUES ({rows})) LIMIT ?) AS given"
        if part.word == "any":
            return f"IN ({', '.join('?' * next(sizes))})"
        if part.number or part.word in self._clocks:
            return "?"
        return self._names[part.word]


def _cells(part: _Word, value: Any, size: int) -> list[Cell]:  # Any: rows, or cells
    """Return the cells of a list, filled up to *size* rows; after those of ``rows`` follows their number."""
    is_rows = part.word == "rows"
    cells = chain.from_iterable(value) if is_rows else value
    given: list[Cell] = [_NULL if cell is None else cell for cell in cells]
    given += repeat(_NULL, (size - len(value)) * len(part.columns))
    if is_rows:
        given.append(len(value))
    return given


def _size(rows: int) -> int:
    """Return to how many rows a list of *rows* is filled up."""
    if rows > MOST:
        raise ValueError(
            f"a list of {rows} rows for one statement. Divide it into lists of {MOST}."
        )
    return 1 << max(rows - 1, 0).bit_length()
