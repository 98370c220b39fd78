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
=============================  =====================================================================

In SQLite, a list becomes ``VALUES`` with a mark for each value: of the ways tried, that takes the least time
(2.8 µs a row of 8 columns; ``json_each`` 6.5), and it accepts each text and blob.  Lists are filled up with
NULL to sizes that double, so that few statements are prepared, and have at most ``MOST`` rows.  Marks are not
numbered: Python 3.12.0 to 3.12.3 warn of that.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import accumulate, chain, repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable, Iterator

__all__ = ["MOST", "PostgresDialect", "Script", "SqliteDialect", "await_script", "run_script", "slices"]

T = TypeVar("T")

Values: TypeAlias = Sequence[Any]  # Any: as the columns
Rows: TypeAlias = Sequence[Any]  # Any: tuples, or records of asyncpg
Script: TypeAlias = Generator[tuple[str, Values], Rows, T]

MOST: Final = 256  # rows of a list
_WORDS: Final = re.compile(r"\{(?P<word>\w+)(?: (?P<number>\d+) (?P<types>[^}]+))?\}|\$(?P<plain>\d+)")
_LOCKS: Final = {"share": "FOR SHARE", "update": "FOR UPDATE", "skip": "FOR UPDATE SKIP LOCKED"}
_ONLY: Final = {"postgres", "sqlite"}


class _Part(NamedTuple):
    """A word of a statement; ``number`` is that of the value that it stands for, from 1, or 0."""

    word: str
    number: int = 0
    columns: tuple[tuple[str, str], ...] = ()  # names and types


class _Statement(NamedTuple):
    """A statement: texts and words in turn, and which of its values are rows of so many columns, or lists."""

    texts: tuple[str, ...]
    parts: tuple[_Part, ...]
    rows: dict[int, int]
    lists: frozenset[int]
    names: frozenset[str]  # the words that stand for no value
    only: str | None  # the one database that it is for


@cache
def _parsed(text: str) -> _Statement:
    texts: list[str] = []
    parts: list[_Part] = []
    end = 0
    for found in _WORDS.finditer(text):
        word, number, types, plain = found.group("word", "number", "types", "plain")
        parts.append(_Part("arg" if plain else word, int(plain or number or 0), _columns(types or "")))
        texts.append(text[end : found.start()])
        end = found.end()
    rows = {part.number: len(part.columns) for part in parts if part.word == "rows"}
    lists = frozenset(part.number for part in parts if part.word == "any")
    names = frozenset(part.word for part in parts if not part.number)
    only = next(iter(names & _ONLY), None)
    return _Statement((*texts, text[end:]), (*parts,), rows, lists, names, only)


def _columns(types: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, kind) for name, _, kind in (each.rpartition(":") for each in types.split()))


class _Dialect:
    """Statements for the database *only*; *names* stand for themselves in braces, and are our own text."""

    only: str

    def __init__(self, **names: str) -> None:
        self._names = {**dict.fromkeys(_ONLY, ""), **names}
        self._known: dict[object, str] = {}

    def _put_together(self, statement: _Statement, widths: Iterable[int], **names: str) -> str:
        """Return the text of *statement*, whose values have so many marks each; *names* are more of them."""
        firsts, names = [1, *accumulate(widths, initial=1)], {**self._names, **names}
        words = (
            self._word(part, firsts[part.number], firsts[part.number + 1] - firsts[part.number])
            if part.number else names[part.word]
            for part in statement.parts
        )  # fmt: skip
        return "".join(chain.from_iterable(zip(statement.texts, (*words, ""), strict=True)))

    def _word(self, part: _Part, first: int, width: int) -> str:
        """Return what stands for *part*, whose value has *width* marks from *first*."""
        raise NotImplementedError


def slices(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Divide *items*, for statements and transactions of bounded size."""
    for start in range(0, len(items), most):
        yield items[start : start + most]


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


async def await_script(script: Script[T], execute: Callable[[str, Values], Awaitable[Rows]]) -> T:
    """Run *script* as :func:`run_script` does, with statements that are awaited."""
    rows: Any = None  # Any: as above
    while True:
        try:
            text, values = script.send(rows)
        except StopIteration as done:
            result: T = done.value
            return result
        rows = await execute(text, values)


class PostgresDialect(_Dialect):
    """Statements for PostgreSQL, run by asyncpg: a list is an array for each column."""

    only = "postgres"

    def __init__(self, **names: str) -> None:
        super().__init__(changed="RETURNING true", **_LOCKS, **names)

    async def run(self, connection: Any, script: Script[T]) -> T:  # Any: asyncpg has no types
        """Run *script* in the open transaction of *connection*."""
        return await await_script(script, partial(self._execute, connection))

    async def _execute(self, connection: Any, text: str, values: Values) -> Rows:  # Any: the same
        if _parsed(text).only not in {None, self.only}:
            return ()
        found: Rows = await connection.fetch(*self.translated(text, values))
        return found

    def translated(self, text: str, values: Values) -> Values:
        """Return the statement, followed by its values."""
        statement = _parsed(text)
        if text not in self._known:
            widths = [statement.rows.get(number, 1) for number in range(1, len(values) + 1)]
            self._known[text] = self._put_together(statement, widths)
        given: list[Any] = [self._known[text]]  # Any: as the columns
        for number, value in enumerate(values, 1):
            columns = statement.rows.get(number)
            if columns is None:
                given.append(value)
            else:
                given += map(list, zip(*value, strict=True)) if value else [[]] * columns
        return given

    def _word(self, part: _Part, first: int, width: int) -> str:
        del width
        if part.word == "rows":
            arrays = ", ".join(f"${first + at}::{kind}[]" for at, (_, kind) in enumerate(part.columns))
            return f"unnest({arrays}) AS given ({', '.join(name for name, _ in part.columns)})"
        if part.word == "any":
            return f"= ANY (${first}::{part.columns[0][1]}[])"
        return f"${first}::{part.columns[0][1]}" if part.columns else f"${first}"


class SqliteDialect(_Dialect):
    """Statements for SQLite: a list is ``VALUES``, or marks in parentheses; names of *clocks*, the time."""

    only = "sqlite"

    def __init__(self, clocks: Mapping[str, Callable[[], float]] | None = None, **names: str) -> None:
        super().__init__(changed="", **dict.fromkeys(_LOCKS, ""), **names)
        self._clocks = clocks or {}
        self._orders: dict[object, list[int] | None] = {}  # of the marks, where it is not that of the values

    def run(self, connection: sqlite3.Connection, script: Script[T]) -> T:
        """Run *script* in the open transaction of *connection*, on its thread."""
        return run_script(script, partial(self._execute, connection))

    def _execute(self, connection: sqlite3.Connection, text: str, values: Values) -> Rows:
        statement = _parsed(text)
        if statement.only not in {None, self.only}:
            return ()
        cursor = connection.execute(*self.translated(text, values))
        # A statement with RETURNING takes 13 to 15 instead of 9 to 10 µs.
        is_counted = "changed" in statement.names
        return ((True,),) * cursor.rowcount if is_counted else cursor.fetchall()

    def translated(self, text: str, values: Values) -> tuple[str, Values]:
        """Return the statement, and its values."""
        statement = _parsed(text)
        widths: list[int] = []
        given: list[Any] = []  # Any: as the columns
        if statement.rows or statement.lists:
            for number, value in enumerate(values, 1):
                before = len(given)
                columns = statement.rows.get(number)
                if columns is not None:
                    given += chain.from_iterable(value)
                    given += repeat(None, (_size(len(value)) - len(value)) * columns)
                    given.append(len(value))
                elif number in statement.lists:
                    given += value
                    given += repeat(None, _size(len(value)) - len(value))
                else:
                    given.append(value)
                widths.append(len(given) - before)
        else:
            given += values
        known = (text, *widths)
        if self._clocks:
            given += [clock() for name, clock in self._clocks.items() if name in statement.names]
        if known not in self._known:
            self._note(known, statement, widths or [1] * len(values))
        order = self._orders[known]
        return self._known[known], given if order is None else [given[at] for at in order]

    def _note(self, known: object, statement: _Statement, widths: list[int]) -> None:
        """Build the text of *statement*, and store in which order its marks stand for the values."""
        times = [name for name in self._clocks if name in statement.names]
        self._known[known] = self._put_together(statement, widths, **dict.fromkeys(times, "?"))
        firsts = [0, *accumulate(widths, initial=0)]
        order: list[int] = []
        for part in statement.parts:
            if part.number:
                order += range(firsts[part.number], firsts[part.number + 1])
            elif part.word in times:
                order.append(firsts[-1] + times.index(part.word))
        self._orders[known] = order if order != [*range(firsts[-1] + len(times))] else None

    def _word(self, part: _Part, first: int, width: int) -> str:
        del first
        if part.word == "rows":
            columns = len(part.columns)
            row = ", ".join("?" * columns)
            rows = "), (".join([row] * ((width - 1) // columns))
            named = ", ".join(f"column{at} AS {name}" for at, (name, _) in enumerate(part.columns, 1))
            return f"(SELECT {named} FROM (VALUES ({rows})) LIMIT ?) AS given"  # noqa: S608 - our own text
        return f"IN ({', '.join('?' * width)})" if part.word == "any" else "?"


def _size(rows: int) -> int:
    """Return to how many rows a list of *rows* is filled up."""
    if rows > MOST:
        raise ValueError(f"a list of {rows} rows for one statement. Divide it into lists of {MOST}.")
    return 1 << max(rows - 1, 0).bit_length()
