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
from invsvc_async.writes.noted import NOTED_NAMES, Noted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.durable.store.enqueued import Statement
    from invsvc_async.storage.dialect import Cell


# The default of the column ``version`` is the version of the table.  In a table that was upgraded, it stays
# that of the first version, because no statement can change the default of a column.
_VERSION: Final = 2
_FIRST_VERSION: Final = 1  # of 0.1.0, without the column ``more``
TABLES: Final = f"""
CREATE TABLE IF NOT EXISTS invsvc_outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, base_url TEXT NOT NULL, key TEXT NOT NULL, thing TEXT,
    digest TEXT NOT NULL, operation TEXT NOT NULL, number INTEGER NOT NULL, common TEXT NOT NULL,
    intent TEXT NOT NULL, moved INTEGER NOT NULL DEFAULT 0, version INTEGER NOT NULL DEFAULT {_VERSION},
    more TEXT, UNIQUE (base_url, key)
);
CREATE INDEX IF NOT EXISTS invsvc_outbox_new ON invsvc_outbox (base_url, seq) WHERE moved = 0;
CREATE TABLE IF NOT EXISTS invsvc_outbox_journal (base_url TEXT PRIMARY KEY, epoch TEXT NOT NULL);
"""
_INSERT_ROW: Final = """
INSERT INTO invsvc_outbox (base_url, common, number, key, thing, digest, operation, intent)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING RETURNING seq
"""
# The column ``more`` is only named if there is something in it: the table may be one of the first version.
# It has an object of JSON: of what is noted, the team and the time, that which is set.
_INSERT_ROW_WITH_MORE: Final = _INSERT_ROW.replace("intent)", "intent, more)").replace(
    "$8)", "$8, $9)"
)
_ADD_MORE: Final = "ALTER TABLE invsvc_outbox ADD COLUMN more TEXT"
_IS_SAME: Final = (
    "SELECT digest = $3 FROM invsvc_outbox WHERE base_url = $1 AND key = $2"
)
_HAS_OUTBOX: Final = "SELECT 1 FROM sqlite_master WHERE name = 'invsvc_outbox_journal'"
_HAS_MORE: Final = (
    "SELECT 1 FROM pragma_table_info('invsvc_outbox') WHERE name = 'more'"
)
_EPOCH: Final = "SELECT epoch FROM invsvc_outbox_journal WHERE base_url = $1"
_USE: Final = "INSERT OR REPLACE INTO invsvc_outbox_journal VALUES ($1, $2)"
# Rows, of the base URL $1 and a condition that follows: the text of the common part; the ``_FIELDS``; and
# ``more``.  What was moved has no texts any more: so its common part has no number, and its intent is NULL.
_ROWS: Final = """
SELECT common, seq, key, thing, digest, operation, CASE WHEN common <> '' THEN number END AS common,
    nullif(intent, '') AS intent, more FROM invsvc_outbox WHERE base_url = $1 AND
"""
_FIELDS: Final = ("seq", "key", "thing", "digest", "operation", "common", "intent")
_NOT_MOVED: Final = "moved = 0 ORDER BY seq LIMIT $2"
_COUNT_NOT_MOVED: Final = (
    "SELECT count(*) FROM invsvc_outbox WHERE base_url = $1 AND moved = 0"
)
_MORE_OF_NEW: Final = """
SELECT more FROM invsvc_outbox WHERE base_url = $1 AND moved = 0 AND more IS NOT NULL
"""
_MARK: Final = """
UPDATE invsvc_outbox SET moved = 1, common = '', intent = '', more = NULL WHERE seq {any 1 bigint}
"""
_DELETE_ROW: Final = "DELETE FROM invsvc_outbox WHERE base_url = $1 AND key = $2"
# The rows of entries that are deleted in the store, by key and digest: those that were moved, and new ones of
# the same write.  A new one of another write stays: the application may have enqueued it under the key if an
# earlier deletion was interrupted, after that of the row and before that of the entry.
_DELETE_OLD_ROWS: Final = """
DELETE FROM invsvc_outbox WHERE seq IN (
    SELECT o.seq FROM {rows 2 key:text digest:text} JOIN invsvc_outbox AS o ON o.key = given.key
    WHERE o.base_url = $1 AND (o.moved = 1 OR o.digest = given.digest)
)
"""


def is_known(connection: sqlite3.Connection) -> bool:
    """Return whether the table is of a version that this package knows."""
    defaults = _defaults_in(connection)
    known = {str(_FIRST_VERSION), str(_VERSION)}
    return "digest" in defaults and defaults.get("version") in known


def has_more(connection: sqlite3.Connection) -> bool:
    """Return whether the table has what the second version added."""
    return "more" in _defaults_in(connection)


def upgrade(connection: sqlite3.Connection) -> None:
    """Bring a table of the first version up to date, which takes no time; 0.1.0 can still use the table."""
    if not has_more(connection):
        # Another process may do it at the same moment.
        with suppress(sqlite3.OperationalError):
            connection.execute(_ADD_MORE)


def _defaults_in(connection: sqlite3.Connection) -> dict[str, str | None]:
    """Return the default of each column of the table, by name."""
    columns = connection.execute("PRAGMA table_info(invsvc_outbox)").fetchall()
    return {column: default for _, column, _, _, default, _ in columns}


# --- for the application's transactions


def is_there() -> Statement:
    """Build the statement that selects a row if the file has an outbox."""
    return _HAS_OUTBOX, ()


def can_have_more() -> Statement:
    """Build the statement that selects a row if the table can have what the second version added."""
    return _HAS_MORE, ()


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
        return _INSERT_ROW, values
    return _INSERT_ROW_WITH_MORE, (*values, json.dumps(more, ensure_ascii=False))


def compared(base_url: str, new: Entry) -> Statement:
    """Build the statement that selects whether the row of the key of *new* has the same write."""
    return _IS_SAME, (base_url, new.key, new.digest)


# --- which journal has moved rows


def epoch_of(base_url: str) -> Statement:
    """Build the statement that selects the epoch of the journal which has moved rows of the file."""
    return _EPOCH, (base_url,)


def use_epoch(base_url: str, epoch: str | None) -> Statement:
    """Build the statement that notes the epoch of the journal which moves rows from now on."""
    return _USE, (base_url, epoch)


# --- rows, to be read by ``entry_of_row``


def new_rows(base_url: str, most: int) -> Statement:
    """Build the statement that selects the first rows which were not moved."""
    return _ROWS + _NOT_MOVED, (base_url, most)


def moved_rows(base_url: str, after: int, most: int) -> Statement:
    """Build the statement that selects the next rows which were moved, *after* a number."""
    return f"{_ROWS} moved = 1 AND seq > $2 ORDER BY seq LIMIT $3", (
        base_url,
        after,
        most,
    )


def new_row(base_url: str, key: str) -> Statement:
    """Build the statement that selects the row of *key*, if it was not moved."""
    return f"{_ROWS} moved = 0 AND key = $2", (base_url, key)


def entry_of_row(row: Sequence[Cell]) -> tuple[Entry, str]:
    """Return the entry in *row*, and the text of its common part."""
    common, *fields, more = row
    named = dict(zip(_FIELDS, fields, strict=True))
    others = json.loads(more or "{}")
    noted = _taken_out_of(others)
    entry = Entry(state=State.TO_DO, lane=ONLY_LANE, noted=noted, **named, **others)
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
    return _MORE_OF_NEW, (base_url,)


def noted_in_more(more: str) -> Noted:
    """Return what is noted in the column *more*."""
    return _taken_out_of(json.loads(more))


def count_new(base_url: str) -> Statement:
    """Build the statement that counts the rows which were not moved."""
    return _COUNT_NOT_MOVED, (base_url,)


# --- rows that were moved, or are not wanted


def mark_moved(seqs: Sequence[int]) -> Statement:
    """Build the statement that marks the rows *seqs* as moved, and deletes their intents."""
    return _MARK, (seqs,)


def delete(base_url: str, key: str) -> Statement:
    """Build the statement that deletes the row of *key*."""
    return _DELETE_ROW, (base_url, key)


def delete_new(base_url: str, key: str) -> Statement:
    """Build the statement that deletes the row of *key* if it was not moved, and then selects a row."""
    return f"{_DELETE_ROW} AND moved = 0 RETURNING seq", (base_url, key)


def delete_old(base_url: str, digests: Sequence[tuple[str, str]]) -> Statement:
    """Build the statement that deletes rows by keys and *digests*, but not new writes under old keys."""
    return _DELETE_OLD_ROWS, (base_url, digests)
