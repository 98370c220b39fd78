"""
What is stored of the invoices of a list, in a temporary file of SQLite, so that memory is bounded.

SQLite makes it readable by its owner only, and unlinks it at once, so a kill leaves nothing.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, NamedTuple

import attrs

from invsvc_async.audit.duplicates import MOST_NAMED
from invsvc_async.codec import envelope

if TYPE_CHECKING:
    from collections.abc import Iterator

    from invsvc_async.audit.fingerprints import Fingerprint
    from invsvc_async.codec.exact_json import WireObject

_TABLE = """
PRAGMA journal_mode = OFF;
PRAGMA cache_size = -512;
CREATE TABLE invoices (
    uuid TEXT UNIQUE, created INTEGER, in_effect INTEGER, key BLOB, content BLOB, related BLOB, facts BLOB
);
BEGIN;
"""
# An invoice may be listed again, because others were made meanwhile: it replaces its first row.
_ADD = """
INSERT INTO invoices (uuid, created, in_effect, key, content, related, facts) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (uuid) DO UPDATE SET created = excluded.created, in_effect = excluded.in_effect,
key = excluded.key, content = excluded.content, related = excluded.related, facts = excluded.facts
"""
_INDEXES = (
    "CREATE INDEX IF NOT EXISTS by_key ON invoices (key, created) WHERE key IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS by_content ON invoices (content, created) WHERE content IS NOT NULL",
)
_EQUAL_KEYS = """
SELECT key, count(*), sum(in_effect), count(DISTINCT content)
FROM invoices WHERE key IS NOT NULL GROUP BY key HAVING count(*) > 1 ORDER BY min(created), key
"""
_OF_KEY = "SELECT facts FROM invoices WHERE key = ? ORDER BY created, uuid LIMIT ?"
_EQUAL_CONTENTS = """
SELECT content, created, in_effect, key, related, facts FROM invoices WHERE content IN (
    SELECT content FROM invoices WHERE content IS NOT NULL GROUP BY content HAVING count(*) > 1
) ORDER BY content, created, uuid
"""


class _Alike(NamedTuple):
    """A row of ``_EQUAL_CONTENTS``."""

    content: bytes
    created: int  # ms
    in_effect: int
    key: bytes | None
    related: bytes | None
    facts: bytes


@attrs.define(kw_only=True)
class InvoiceGroup:
    """
    Invoices that belong together.

    ``are_alike`` is false if their contents are known to differ, ``keyed`` how many have an idempotency key,
    and ``relate_to_one`` whether all relate to the same documents.
    """

    count: int = 0
    in_effect: int = 0
    are_alike: bool = True
    keyed: int = 0
    relate_to_one: bool = True
    facts: list[WireObject] = attrs.field(factory=list)


class FingerprintTable:
    """The fingerprints of the invoices of one list."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.executescript(_TABLE)

    def close(self) -> None:
        """Delete the table."""
        self._db.close()

    def add(self, fingerprint: Fingerprint) -> None:
        """Store the fingerprint of an invoice, in place of an earlier one."""
        self._db.execute(_ADD, fingerprint)

    def with_equal_keys(self) -> Iterator[InvoiceGroup]:
        """Yield the groups of invoices that have the same idempotency key, the oldest group first."""
        self._make_indexes()
        for key, count, in_effect, contents in self._db.execute(_EQUAL_KEYS):
            named = self._db.execute(_OF_KEY, (key, MOST_NAMED))
            yield InvoiceGroup(
                count=count,
                in_effect=in_effect,
                are_alike=contents <= 1,
                keyed=count,
                facts=[envelope.loads(facts) for (facts,) in named],
            )

    def alike(self, within: int) -> Iterator[InvoiceGroup]:
        """
        Yield the groups of invoices with equal contents, each at most *within* ms after the one before.

        A group in which all have the same idempotency key is left out: ``with_equal_keys`` has it.
        """
        self._make_indexes()
        chain: _Chain | None = None
        for row in self._db.execute(_EQUAL_CONTENTS):
            each = _Alike(*row)
            if chain is not None and chain.continues_with(each, within):
                chain.add(each)
                continue
            if chain is not None and chain.is_new:
                yield chain.group
            chain = _Chain(each)
        if chain is not None and chain.is_new:
            yield chain.group

    def _make_indexes(self) -> None:
        for statement in _INDEXES:
            self._db.execute(statement)


class _Chain:
    """Invoices with equal contents, in the order of their creation."""

    def __init__(self, first: _Alike) -> None:
        self._first = first
        self._last = first
        self._has_other_key = False
        self.group = InvoiceGroup()
        self.add(first)

    def continues_with(self, each: _Alike, within: int) -> bool:
        """Return whether *each* has the same content, and was created at most *within* ms after the last."""
        is_same = each.content == self._last.content
        return is_same and each.created - self._last.created <= within

    def add(self, each: _Alike) -> None:
        """Add the next invoice."""
        group = self.group
        group.count += 1
        group.in_effect += each.in_effect
        group.keyed += each.key is not None
        group.relate_to_one &= each.related == self._first.related
        self._has_other_key |= each.key is None or each.key != self._first.key
        self._last = each
        if len(group.facts) < MOST_NAMED:
            group.facts.append(envelope.loads(each.facts))

    @property
    def is_new(self) -> bool:
        """Whether these are several invoices, and not all of one idempotency key."""
        return self.group.count > 1 and self._has_other_key
