"""
The table of an outbox in the application's own SQLite file, into which its transactions insert.

Most functions build a statement with its values; ``outbox/sqlite.py`` runs it on a connection to that file.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from invsvc_async.durable.entry import Entry, State
from invsvc_async.durable.store.conditions import ONLY_LANE
from invsvc_async.durable.store.enqueued import later_columns_of
from invsvc_async.durable.store.statements import entry_sql, schema_sql
from invsvc_async.writes.noted import NOTED_NAMES, Noted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.durable.store.enqueued import Statement
    from invsvc_async.storage.dialect import Cell


_FIRST_VERSION: Final = 1  # of 0.1.0, without the column ``more``
FIELDS: Final = ("seq", "key", "thing", "digest", "operation", "common", "intent")


def is_known(connection: sqlite3.Connection) -> bool:
    """Return whether the table is of a version that this package knows."""
    defaults = _defaults_in(connection)
    known = {str(_FIRST_VERSION), str(schema_sql.ROWS_VERSION)}
    return "digest" in defaults and defaults.get("version") in known


def has_more(connection: sqlite3.Connection) -> bool:
    """Return whether the table has what the second version added."""
    return "more" in _defaults_in(connection)


def create(connection: sqlite3.Connection) -> None:
    """Create the table of rows, and the table that names the store which moves them, unless they exist."""
    connection.executescript(schema_sql.APPLICATION_TABLES)


def upgrade(connection: sqlite3.Connection) -> None:
    """Bring a table of the first version up to date, which takes no time; 0.1.0 can still use the table."""
    if not has_more(connection):
        # Another process may do it at the same moment.
        with suppress(sqlite3.OperationalError):
            connection.execute(schema_sql.ADD_MORE)


def _defaults_in(connection: sqlite3.Connection) -> dict[str, str | None]:
    """Return the default of each column of the table, by name."""
    columns = connection.execute("PRAGMA table_info(invsvc_outbox)").fetchall()
    return {column: default for _, column, _, _, default, _ in columns}


# --- for the application's transactions


def is_there() -> Statement:
    """Build the statement that selects a row if the file has an outbox."""
    return entry_sql.HAS_OUTBOX, ()


def can_have_more() -> Statement:
    """Build the statement that selects a row if the table can have what the second version added."""
    return entry_sql.HAS_MORE, ()


def insert(base_url: str, new: Entry, common: str) -> Statement:
    """Build the statement that inserts *new*, with the text *common*; no row if the key is not new."""
    values = (
        base_url,
        common,
        new.common,
        new.key,
        new.thing,
        new.digest,
        new.operation,
        new.intent,
    )
    more = later_columns_of(new)
    if not more:
        return entry_sql.INSERT_ROW, values
    return entry_sql.INSERT_ROW_WITH_MORE, (
        *values,
        json.dumps(more, ensure_ascii=False),
    )


def compared(base_url: str, new: Entry) -> Statement:
    """Build the statement that selects whether the row of the key of *new* has the same write."""
    return entry_sql.COMPARE_ROW, (base_url, new.key, new.digest)


# --- which store has moved rows


def epoch_of(base_url: str) -> Statement:
    """Build the statement that selects the epoch of the store which has moved rows of the file."""
    return entry_sql.GET_EPOCH_OF_MOVER, (base_url,)


def use_epoch(base_url: str, epoch: str | None) -> Statement:
    """Build the statement that notes the epoch of the store which moves rows from now on."""
    return entry_sql.SET_EPOCH_OF_MOVER, (base_url, epoch)


# --- rows, to be read by ``entry_of_row``


def new_rows(base_url: str, after: int, most: int) -> Statement:
    """Build the statement that selects the next rows which were not moved, *after* a number."""
    return entry_sql.NEW_ROWS, (base_url, after, most)


def moved_rows(base_url: str, after: int, most: int) -> Statement:
    """Build the statement that selects the next rows which were moved, *after* a number."""
    return entry_sql.MOVED_ROWS, (base_url, after, most)


def new_row(base_url: str, key: str) -> Statement:
    """Build the statement that selects the row of *key*, if it was not moved."""
    return entry_sql.NEW_ROW, (base_url, key)


def entry_of_row(row: Sequence[Cell]) -> tuple[Entry, str]:
    """
    Return the entry in *row*, and the text of its common part.

    ``seq`` of the entry is the number of the row: the store gives it another one when the row is moved.
    """
    common, *fields, more = row
    named = dict(zip(FIELDS, fields, strict=True))
    others = json.loads(more or "{}")
    noted = _taken_out_of(others)
    entry = Entry(
        state=State.TO_DO,
        lane=ONLY_LANE,
        noted=noted,
        **named,
        **others,
    )
    return entry, common


def _taken_out_of(more: dict[str, Any]) -> Noted:  # Any: of each member its own
    """Remove what is noted from the members of *more*, and return it."""
    return Noted(**{name: more.pop(name, None) for name in NOTED_NAMES})


def of_first(statement: Statement) -> Statement:
    """Return *statement*, which selects rows, for a table of the first version."""
    text, values = statement
    return text.replace(", more FROM", ", NULL FROM"), values


def more_of_new(base_url: str) -> Statement:
    """Build the statement that selects ``more`` of rows that were not moved, for ``noted_in_more``."""
    return entry_sql.MORE_OF_NEW_ROWS, (base_url,)


def noted_in_more(more: str) -> Noted:
    """Return what is noted in the column *more*."""
    return _taken_out_of(json.loads(more))


def count_new(base_url: str) -> Statement:
    """Build the statement that counts the rows which were not moved."""
    return entry_sql.COUNT_NEW_ROWS, (base_url,)


# --- rows that were moved, or are not wanted


def mark_moved(seqs: Sequence[int]) -> Statement:
    """Build the statement that marks the rows *seqs* as moved, and deletes their intents."""
    return entry_sql.MARK_ROWS_MOVED, (seqs,)


def mark_rows_of(base_url: str, digests: Sequence[tuple[str, str]]) -> Statement:
    """Build the statement that marks rows as moved by the keys and *digests* of entries that are there."""
    return entry_sql.MARK_ROWS_OF_ENTRIES, (base_url, digests)


def delete_new(base_url: str, key: str) -> Statement:
    """Build the statement that deletes the row of *key* if it was not moved, and then selects a row."""
    return entry_sql.DELETE_NEW_ROW, (base_url, key)


def delete_moved(base_url: str, keys: Sequence[str]) -> Statement:
    """Build the statement that deletes the rows of *keys* that were moved."""
    return entry_sql.DELETE_MOVED_ROWS, (base_url, keys)


def moved_of(base_url: str, keys: Sequence[str]) -> Statement:
    """Build the statement that selects the keys among *keys* with moved rows."""
    return entry_sql.MOVED_OF_KEYS, (base_url, keys)
