"""The search for damage in SQLite files of journals, in a time that grows with their rows alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from invsvc_async.storage.sqlite_errors import check, damaged

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

__all__ = ["check_file"]

_LARGE: Final = 64 << 20  # bytes: up to here PRAGMA integrity_check takes about a second
# Rows in one statement. It gives one text to Python, which hashes the parts: a function that SQLite calls for
# each row would wait for a busy event loop each time.
_AT_ONCE: Final = 1000
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%WITHOUT ROWID%'"
_INDEXES = """
SELECT list.name, list."unique", made.sql FROM pragma_index_list(?) AS list
LEFT JOIN sqlite_master AS made ON made.type = 'index' AND made.name = list.name
"""
_COLUMNS = """
SELECT made.name, found.type = 'INTEGER' AND found.pk = 0 FROM pragma_index_xinfo(?) AS made
LEFT JOIN pragma_table_info(?) AS found ON found.name = made.name WHERE made.key ORDER BY made.seqno
"""
_TEXTS = """
SELECT sum(typeof({column}) = 'text'), sum(rowid % 1000003), max({order}), group_concat({column}, ' ') FROM (
    SELECT rowid, {column} FROM {table} {source} WHERE {order} > ? ORDER BY {order} LIMIT ?
)
"""
_SUMS = """
SELECT count(*), sum(typeof({column}) = 'integer'), sum((1 + rowid % 8191) * ({column} % 65521))
FROM {table} {source} WHERE {where}
"""
_ENTRIES = "SELECT count(*), count(*) FROM {table} INDEXED BY {index} WHERE {where}"
_ROWS = """
SELECT count(*), count(*) FILTER (WHERE EXISTS (
    SELECT 1 FROM {table} AS b INDEXED BY {index} WHERE {where} AND {same} AND b.rowid = a.rowid
)) FROM {table} AS a NOT INDEXED WHERE {where}
"""
_SMALLEST = -(2**63)


class _Index(NamedTuple):
    name: str
    columns: tuple[str, ...]
    where: str
    is_unique: bool
    is_number: bool  # one column of integers, other than the row's number


def check_file(connection: sqlite3.Connection, name: str) -> None:
    """
    Compare the tables of the file *name* with their indexes.

    ``PRAGMA integrity_check`` looks up each row in each index, which takes a minute and more for ten million
    keys in no order. In a large file the keys are compared by sums of their hashes instead, and numbers by
    sums of their products with the row's number: table and index are each read in their own order. The rows
    of other indexes, which are few, are looked up.

    Raises:
        JournalError: They differ: the file is damaged.

    """
    sizes = [connection.execute(f"PRAGMA {each}").fetchone()[0] for each in ("page_count", "page_size")]
    if sizes[0] * sizes[1] <= _LARGE:
        check(connection, name)
        return
    connection.execute("BEGIN")  # one state of the file, because its owner may write to it
    try:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise damaged(name, found)
        for index in _differing(connection):
            raise damaged(name, f"the index {index} differs from its table")
    finally:
        if connection.in_transaction:  # some errors end it
            connection.execute("ROLLBACK")


def _differing(connection: sqlite3.Connection) -> Iterator[str]:
    for (table,) in connection.execute(_TABLES).fetchall():
        for index in _indexes(connection, table):
            if index.is_unique and len(index.columns) == 1:
                found = {_texts(connection, table, index, by_index=each) for each in (True, False)}
            elif index.is_number:
                names = {"table": table, "column": index.columns[0], "where": index.where}
                found = {
                    connection.execute(_SUMS.format(source=source, **names)).fetchone()
                    for source in (f"INDEXED BY {index.name}", "NOT INDEXED")
                }
            else:
                same = " AND ".join(f"b.{column} IS a.{column}" for column in index.columns)
                names = {"table": table, "index": index.name, "where": index.where, "same": same}
                found = {connection.execute(each.format(**names)).fetchone() for each in (_ENTRIES, _ROWS)}
            if len(found) > 1:
                yield index.name


def _indexes(connection: sqlite3.Connection, table: str) -> Iterator[_Index]:
    for name, is_unique, sql in connection.execute(_INDEXES, (table,)).fetchall():
        columns, are_numbers = zip(*connection.execute(_COLUMNS, (name, table)), strict=True)
        where = (sql or "").partition(" WHERE ")[2] or "true"
        yield _Index(name, columns, where, bool(is_unique), is_number=are_numbers == (1,))


def _texts(
    connection: sqlite3.Connection, table: str, index: _Index, *, by_index: bool
) -> tuple[int, int, int]:
    """Return the number of texts, and sums of the rows' numbers and of the hashes of all values."""
    (column,) = index.columns
    order, source = (column, f"INDEXED BY {index.name}") if by_index else ("rowid", "NOT INDEXED")
    text = _TEXTS.format(table=table, column=column, order=order, source=source)
    last: str | int = "" if by_index else _SMALLEST
    rows = numbers = hashes = 0
    while True:
        count, number, last, joined = connection.execute(text, (last, _AT_ONCE)).fetchone()
        if joined is None:
            return rows, numbers, hashes
        rows, numbers = rows + count, numbers + number
        hashes += sum(map(hash, joined.split(" ")))
