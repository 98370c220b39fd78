"""
The tables of each version, by digests of their definitions.

If one of these tests fails, the tables have changed.  Stores that were made before do not have that change, so it needs
a migration (`durable/store/migrations.py`, `events/stores/statements.py`), which gives the tables a new version; add the digests
of that version here, and leave the others as they are.  Once a version is released, `tests/golden/make.py` makes its
golden stores.
"""

from __future__ import annotations

import re
from hashlib import blake2b

import pytest

from invsvc_async.durable.store import (
    schemas,
    sqlite as sqlite_store,
)
from invsvc_async.durable.store.migrations import schema_of
from invsvc_async.durable.store.statements import schema_sql
from invsvc_async.durable.store.tables import Opening, create
from invsvc_async.events.stores import (
    postgres as events_in_postgres,
    scripts as events,
    sqlite as events_in_sqlite,
)
from invsvc_async.storage.dialect import PostgresDialect, SqliteDialect

pytestmark = pytest.mark.one_python

HOW = {
    "batch": Opening("batch", 1, counted=True),
    "outbox": Opening("outbox", 1),
    "journal": Opening("journal"),
}
# What a new store has, by the version of its tables.
TABLES = {
    ("batch", "sqlite", 2): "bc40c11daef23dc7",
    ("batch", "postgres", 2): "7966ecd157b4deb8",
    ("outbox", "sqlite", 2): "5837eb71ceded689",
    ("outbox", "postgres", 2): "aa486fd75bab3abb",
    ("journal", "sqlite", 2): "d77b7ad7d9d78e98",
    ("journal", "postgres", 2): "aa486fd75bab3abb",
    ("batch", "sqlite", 3): "319a3b9ba328afdb",
    ("batch", "postgres", 3): "a2e87d08ef98ebba",
    ("outbox", "sqlite", 3): "215bdc14569c24d4",
    ("outbox", "postgres", 3): "65a7d0dcdd9867aa",
    ("journal", "sqlite", 3): "109c292156f875d2",
    ("journal", "postgres", 3): "65a7d0dcdd9867aa",
    ("of the application", "sqlite", 2): "ea75da071d96641e",
    ("batch", "sqlite", 4): "3c4368a8f9f8c5bf",
    ("batch", "postgres", 4): "14696ff80554ff3f",
    ("outbox", "sqlite", 4): "b71b1f089f868d47",
    ("outbox", "postgres", 4): "a6f610af52e44f81",
    ("journal", "sqlite", 4): "098a0342e9aad6a8",
    ("journal", "postgres", 4): "a6f610af52e44f81",
    ("events", "postgres", 2): "a5da702635db011a",
    ("events", "sqlite", 2): "d4bbb8498a09d40d",
    ("batch", "sqlite", 5): "4286522791b6c9f1",
    ("batch", "postgres", 5): "5bbbd8f685d8a939",
    ("outbox", "sqlite", 5): "751026f1efcc910c",
    ("outbox", "postgres", 5): "2d938ad5074d3103",
    ("journal", "sqlite", 5): "3f9e2825b421525b",
    ("journal", "postgres", 5): "2d938ad5074d3103",
    ("events", "postgres", 1): "2d01a704dbe25b0f",
    ("events", "sqlite", 1): "6715813ac7035ffc",
    ("of the application", "sqlite", 1): "8fdde28489215d4f",
}
# What leads from the version before to a version; of a store that counts its entries, and of another.
MIGRATIONS = {
    (2, False): "40f340cf43cd5087",
    (2, True): "8393562e5cb1a55f",
    (3, False): "aa2a261a004ce022",
    (3, True): "aa2a261a004ce022",
    (4, False): "9427b296dabf35a0",
    (4, True): "9427b296dabf35a0",
    (5, False): "06abbd39ee920656",
    (5, True): "06abbd39ee920656",
}
MIGRATIONS_OF_EVENTS = {2: "9899378395dfd437"}


def digest(texts):
    """Return a digest of statements that is the same however their lines are broken."""
    plain = [re.sub(r"\s+", " ", text).strip() for text in texts]
    return blake2b("\n".join(plain).encode(), digest_size=8).hexdigest()


def statements(script, dialect, other):
    """Return the statements that *script* runs in one database, without those that only insert."""
    texts = [text for text, _ in script if f"{{{other}}}" not in text]
    return [
        dialect.translated(text, ())[0]
        for text in texts
        if "INSERT INTO {s}" not in text
    ]


@pytest.mark.parametrize("kind", HOW)
@pytest.mark.parametrize("which", ["sqlite", "postgres"])
def test_tables_of_writes(kind, which):
    """A change of them has a new version."""
    how = HOW[kind]
    dialects = {
        "sqlite": (sqlite_store.DIALECT, "postgres"),
        "postgres": (schemas.dialect_in("s", how), "sqlite"),
    }
    found = digest(statements(create(how), *dialects[which]))
    version = schema_of(counted=how.counted).version
    assert TABLES.get((kind, which, version)) == found


@pytest.mark.parametrize("counted", [False, True])
def test_migrations(counted):
    """They are never changed."""
    found = {
        (each.version, counted): digest(each.statements)
        for each in schema_of(counted=counted).migrations
    }
    assert {key: MIGRATIONS.get(key) for key in found} == found
    assert [version for version, _ in found] == [*range(2, len(found) + 2)]


@pytest.mark.parametrize("which", ["sqlite", "postgres"])
def test_tables_of_events(which):
    """A change of them has a new version."""
    names = {"t": "t", "id": "id", "bytes": "bytes"}
    if which == "postgres":
        made = statements(events.create(), PostgresDialect(**names), "sqlite")
        made += [events_in_postgres._WORDS["id"], events_in_postgres._WORDS["bytes"]]
    else:
        made = statements(events.create(), SqliteDialect(**names), "postgres")
        made += events_in_sqlite._FACTS
    assert TABLES.get(("events", which, events.SCHEMA.version)) == digest(made)


def test_migrations_of_events():
    """They are never changed."""
    found = {each.version: digest(each.statements) for each in events.SCHEMA.migrations}
    assert {key: MIGRATIONS_OF_EVENTS.get(key) for key in found} == found
    assert [*found] == [*range(2, len(found) + 2)]


def test_table_in_the_file_of_an_application():
    """A change of it has a new version."""
    version = schema_sql.ROWS_VERSION
    found = digest([schema_sql.APPLICATION_TABLES])
    assert TABLES.get(("of the application", "sqlite", version)) == found
