"""What users note with a key: each field has its places, and passes through those between them."""

from __future__ import annotations

from inspect import signature

import pytest
from msgspec.structs import replace

from invsvc_async.batch.sending import content_of, new_entry
from invsvc_async.client import options_of
from invsvc_async.durable.entries import JournalEntries
from invsvc_async.durable.entry import WRITTEN_NAMES, written_of
from invsvc_async.durable.intents import Commons
from invsvc_async.durable.store import application_table
from invsvc_async.durable.store.enqueued import insert_into
from invsvc_async.durable.store.migrations import schema_of
from invsvc_async.durable.store.noted import NOTED
from invsvc_async.durable.store.tables import Opening, create
from invsvc_async.writes.new_intent import intent_of
from invsvc_async.writes.noted import NOTED_NAMES, Noted
from invsvc_async.writes.write import Write, take_over
from tests.batch.conftest import client_of

pytestmark = pytest.mark.one_python

GIVEN = Noted(**{name: f"of {name}" for name in NOTED_NAMES})


def write_of(client, service):
    """Return a keyed write of which everything is noted, changed once more after that."""
    write = client.webhooks.delete(service.seed_webhook().id).keyed("k")
    spec = replace(take_over(write), noted=GIVEN)
    return Write(spec).with_policy(deadline=90.0)


@pytest.fixture
def entry(client, service):
    """Return the entry of a batch or an outbox for such a write."""
    spec = take_over(write_of(client, service))
    return new_entry(spec, intent_of(spec), Commons(), content_of(spec))


def test_each_field_has_its_places():
    """It is an argument, a column in new tables and in those of its version, and in the table of what is shown."""
    arguments = [*signature(Write.keyed).parameters]
    assert arguments == ["self", "key", "match", *NOTED_NAMES]
    assert [column.name for column in NOTED] == [*NOTED_NAMES]
    texts = [text for text, _ in create(Opening("journal"))]
    [new] = [text for text in texts if "CREATE TABLE {s}entries" in text]
    migrations = schema_of(counted=False).migrations
    added = {each.version: " ".join(each.statements) for each in migrations}
    for column in NOTED:
        assert f" {column.name} text" in new
        assert f"ADD COLUMN {column.name} text" in added[column.since]
        assert f"e.{column.name}" in column.condition


async def test_stored_by_the_run_of_a_key(service, address):
    """The entry of the key has all that is noted."""
    async with client_of(service, journal=address) as client:
        await write_of(client, service)
        entries = JournalEntries(str(address), options_of(client).core, reading=True)
        await entries.open()
        try:
            [found] = await entries.first(10)
        finally:
            await entries.aclose()

    assert found.noted == GIVEN


def test_stored_with_a_new_entry(entry):
    """Whoever inserts an entry inserts all that is noted."""
    texts = {f"of {name}" for name in NOTED_NAMES}
    stored = dict(zip(WRITTEN_NAMES, written_of(entry), strict=True))
    _, values = insert_into("s", entry, 1)
    assert {stored[name] for name in NOTED_NAMES} == texts
    assert texts <= {*values}


def test_in_the_file_of_an_application(entry):
    """It comes back from its row with the team and the time; what this version does not know is not lost in silence."""
    entry.team = "team_1"
    entry.not_before = 7
    _, values = application_table.insert("https://s.example", entry, "{}")
    *_, more = values
    bare = ("{}", 1, "k", None, "d", entry.operation, 1, entry.intent)
    found, _ = application_table.entry_of_row((*bare, more))
    assert (found.noted, found.team, found.not_before) == (GIVEN, "team_1", 7)
    assert application_table.noted_in_more(more) == GIVEN
    with pytest.raises(TypeError, match="colour"):
        application_table.entry_of_row((*bare, '{"colour": "red"}'))
