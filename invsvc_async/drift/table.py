"""
The rows, and how they differ, in a temporary file of SQLite.

SQLite makes it readable by its owner only, and unlinks it at once, so a kill leaves nothing.
"""

from __future__ import annotations

import sqlite3
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import attrs

from invsvc_async.codec import envelope

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.models import Invoice, Webhook


class Kind(StrEnum):
    """The kinds of differences."""

    NOT_IN_ROWS = "not in rows"
    NOT_IN_SERVICE = "not in service"
    DIFFERENT = "different"
    DUPLICATE = "duplicate"
    NO_KEY = "no key"


class FieldDifference(NamedTuple):
    """A field that differs: *yours* is the row's value, *theirs* the service's; times in ISO 8601."""

    field: str
    yours: Wire
    theirs: Wire


@attrs.frozen(kw_only=True)
class Difference:
    """
    One thing that is not the same on both sides.

    ``key`` is the row's text, not trimmed, and ``line`` its line in a file or its number, from 1.  A key that
    several rows have is a difference of its own, with their lines in ``note``; their fields are not compared.
    ``item`` is the thing as the service shows it, to correct a row or make one; ``None`` if it shows none.
    """

    kind: Kind
    key: str | None
    line: int | None = None
    fields: tuple[FieldDifference, ...] = ()
    note: str = ""
    item: Invoice | Webhook | None = attrs.field(default=None, repr=False)


# `seen` is the last reading of the service that met the thing, and `shown` how many in a row showed the same
# kind of difference: after the first it is in doubt, after the second certain.
_TABLE = """
PRAGMA journal_mode = OFF;
CREATE TABLE things (
    key TEXT PRIMARY KEY COLLATE %s, id TEXT, line INTEGER, others TEXT DEFAULT '', cells BLOB,
    times INTEGER DEFAULT 0, inside INTEGER DEFAULT 1, created INTEGER, kind TEXT, fields BLOB,
    item TEXT, shown INTEGER DEFAULT 0, seen INTEGER DEFAULT 0
);
BEGIN;
"""
_ADD = """
INSERT INTO things (key, line, cells, inside, kind, shown, times) VALUES (?, ?, ?, ?, ?, ?, 1)
ON CONFLICT (key) DO UPDATE SET times = times + 1,
others = CASE WHEN times < 10 THEN others || ', ' || excluded.line ELSE others END
"""
_MEET = """
INSERT INTO things (key, created, kind, fields, item, seen, shown) VALUES (?, ?, ?, ?, ?, ?, 1)
ON CONFLICT (key) DO UPDATE SET
shown = CASE WHEN excluded.kind IS NULL THEN 0 WHEN excluded.kind = kind THEN shown + 1 ELSE 1 END,
kind = excluded.kind, created = excluded.created, fields = excluded.fields, item = excluded.item,
seen = excluded.seen, id = excluded.key WHERE seen < excluded.seen
"""
_MISS = f"""
UPDATE things SET kind = CASE WHEN times THEN '{Kind.NOT_IN_SERVICE}' END, fields = NULL, item = NULL,
shown = CASE WHEN times = 0 THEN 0 WHEN kind = '{Kind.NOT_IN_SERVICE}' THEN shown + 1 ELSE 1 END
WHERE seen < :reading AND inside AND key IS NOT NULL AND (shown = 1 OR :reading = 1)
"""
# A second is added on both sides, because the service may compare in seconds.
_SPAN = """
SELECT earliest, latest FROM (
    SELECT min(created) - 1000 AS earliest, max(created) + 1000 AS latest,
    count(*) FILTER (WHERE seen = 0 OR created IS NULL) AS others FROM things WHERE shown = 1
) WHERE others = 0
"""
_CERTAIN = """
SELECT kind, key, line, times, others, shown, fields, item FROM things
WHERE max(times, shown) > 1 ORDER BY line, created, key
"""


class Table:
    """Rows and items by key, which is the text of the row, if there is one; *ignore_case* is of ASCII."""

    def __init__(self, *, ignore_case: bool = False) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        collation = "NOCASE" if ignore_case else "BINARY"
        self._db.executescript(_TABLE % collation)

    def close(self) -> None:
        """Delete it."""
        self._db.close()

    def add(
        self,
        key: str | None,
        line: int,
        cells: dict[str, Wire],
        *,
        inside: bool,
    ) -> None:
        """Add a row; rows *inside* the window are expected in the service."""
        kind = None
        shown = 0
        if key is None:
            kind = Kind.NO_KEY
            shown = 2 * inside
        self._db.execute(_ADD, (key, line, envelope.dumps(cells), inside, kind, shown))

    def find(self, key: str) -> tuple[int, Wire, int]:
        """Return how many rows have the key, the fields of the first, and `shown`."""
        asked = "SELECT times, cells, shown FROM things WHERE key = ?"
        times, cells, shown = self._db.execute(asked, (key,)).fetchone() or (0, None, 0)
        return times, envelope.loads(cells or b"{}"), shown

    def meet(
        self,
        key: str,
        created: object,
        reading: int,
        kind: Kind | None,
        fields: Sequence[FieldDifference],
        item: str | None,
    ) -> None:
        """Note how *item*, as JSON, differs in this *reading*: not at all, without a *kind*."""
        if not isinstance(created, int) or abs(created) >= 2**63:
            created = None  # of a time that SQLite cannot store
        values = (key, created, kind, envelope.dumps(fields), item, reading)
        self._db.execute(_MEET, values)

    def end(
        self, reading: int, *, whole: bool
    ) -> tuple[list[str], tuple[int, int] | None]:
        """
        End a *reading*. Keys that a *whole* reading did not meet do not exist in the service.

        Return the ids in doubt, in the service's writing if it is known, and the time span (ms) in which they
        were created, if all are known.
        """
        if whole:
            self._db.execute(_MISS, {"reading": reading})
        in_doubt = self._db.execute(
            "SELECT ifnull(id, key) FROM things WHERE shown = 1"
        )
        ids = [name for (name,) in in_doubt]
        return ids, self._db.execute(_SPAN).fetchone()

    def differences(self, model: type[Invoice | Webhook]) -> Iterator[Difference]:
        """Yield what is certain, with items of the *model*."""
        for row in self._db.execute(_CERTAIN):
            kind, key, line, times, others, shown, fields, item = row
            if times > 1:
                more = ", …" if times > 10 else ""
                note = f"{times:,} rows: {line}{others}{more}"
                yield Difference(
                    kind=Kind.DUPLICATE,
                    key=key,
                    line=line,
                    note=note,
                )
            if shown > 1:
                parts = envelope.loads(fields or b"[]")
                thing = None
                if item is not None:
                    thing = model.from_json(item)
                yield Difference(
                    kind=Kind(kind),
                    key=key,
                    line=line,
                    fields=tuple(FieldDifference(*part) for part in parts),
                    note=_note_on(key),
                    item=thing,
                )


def _note_on(key: str | None) -> str:
    """Return what a reader may not see in a key; empty if there is nothing."""
    if key is None:
        return ""
    if key == key.strip(" ") and key.isprintable():
        return ""
    return f"its key has white space or hidden characters: {key!r}"
