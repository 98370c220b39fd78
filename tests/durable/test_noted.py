"""What users note with a key: each field has its places, and passes through those between them."""

from __future__ import annotations

import asyncio
import json
from inspect import signature
from itertools import product
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from invsvc_async import Batch, InvalidRequestError, Outbox
from invsvc_async.batch.reports.not_applied import failed_writes
from invsvc_async.batch.sending import content_of, new_entry
from invsvc_async.cli.app import run
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
from tests.batch.conftest import client_of, credential_in_environment  # noqa: F401 - pytest finds the second by name
from tests.outbox.conftest import enqueue, outbox_at, verdicts_of
from tests.support.database import database

pytestmark = pytest.mark.one_python


class Example(NamedTuple):
    """
    What may be noted under a name, and how lists find it.

    - ``given``, ``other``: arguments of ``keyed``; ``refused``: one that it refuses.
    - ``found``, ``not_found``: the options of ``list`` that find the first, and nothing.
    - ``shown``: the first, as lists show it for JSON; ``words``: for people.
    """

    given: object
    other: object
    refused: object
    found: tuple[str, ...]
    not_found: tuple[str, ...]
    shown: object
    words: str


EXAMPLES = {
    "labels": Example(
        given={"customer": "c-1"},
        other={"customer": "c-2"},
        refused={"": "x"},
        found=("--label", "customer=c-1"),
        not_found=("--label", "customer=c-3"),
        shown={"customer": "c-1"},
        words="customer=c-1",
    ),
}


def example_of(name):
    """Return the example of what is noted under *name*, which each field of ``Noted`` needs."""
    if name not in EXAMPLES:
        pytest.fail(
            f"{name}: tests/durable/test_noted.py has no example of it. Add one to EXAMPLES."
        )
    return EXAMPLES[name]


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


# --- from the argument of ``keyed`` to the list


KINDS = ("journal", "batch", "outbox")
FORMS = ("file", "database")
SAMPLED = {("journal", "database"), ("batch", "file"), ("outbox", "file")}


@pytest.fixture(
    params=[
        pytest.param(each, id="-".join(each), marks=() if each in SAMPLED else pytest.mark.slow)
        for each in product(KINDS, FORMS)
    ]
)  # fmt: skip
def place(request, tmp_path):
    """Return a kind of store, and the place of a new one in a file or a database."""
    kind, form = request.param
    if form == "file":
        return kind, tmp_path / "store.db"
    name = f"t{abs(hash(request.node.nodeid))}"
    if kind == "outbox":
        return kind, outbox_at(name, silence=60)
    return kind, database().at(silence=60, **{kind: name})


@pytest.fixture
def listed(place, capsys, credential_in_environment):  # noqa: F811 - a fixture
    """Return what calls ``list`` with options; that returns the writes by their keys, and the words for people."""
    kind, where = place

    async def found(*options):
        command = [kind, "list", str(where), *options]
        assert await asyncio.to_thread(run, [*command, "--json"]) == 0
        writes = json.loads(capsys.readouterr().out)["writes"]
        assert await asyncio.to_thread(run, command) == 0
        return {each["key"]: each for each in writes}, capsys.readouterr().out

    return found


def updates(client, service):
    """Return writes of which all is noted, other values of all, and nothing."""
    notes = {
        "given": {name: example_of(name).given for name in NOTED_NAMES},
        "other": {name: example_of(name).other for name in NOTED_NAMES},
        "nothing": {},
    }
    return [
        client.webhooks.update(service.seed_webhook().id, description=key).keyed(
            key, **each
        )
        for key, each in notes.items()
    ]


async def check_lists(listed):
    """Check that each note is shown, and that a list by it has the one write that has it."""
    everything, _ = await listed()
    assert {*everything} == {"given", "other", "nothing"}
    for name in NOTED_NAMES:
        example = example_of(name)
        having = {key for key, row in everything.items() if row.get(name) is not None}
        assert having == {"given", "other"}
        found, words = await listed(*example.found)
        assert {*found} == {"given"}
        assert found["given"][name] == example.shown
        assert example.words in words
        found, _ = await listed(*example.not_found)
        assert found == {}


async def test_found_by_lists(service, place, listed):
    """Each is noted by ``keyed``, stored, shown, and found by its value and no other, in each kind of store."""
    kind, where = place
    async with client_of(
        service, **({"journal": where} if kind == "journal" else {})
    ) as client:
        writes = updates(client, service)
        if kind == "journal":
            for write in writes:
                await write
        elif kind == "batch":
            async with Batch.open(where, client) as batch:
                assert len([each async for each in batch.run(writes)]) == len(writes)
        else:
            async with Outbox.open(where, client) as outbox:
                keys = await enqueue(outbox, *writes)
                await check_lists(listed)  # of rows in the file of the application
                async with outbox.dispatching():
                    await verdicts_of(outbox, keys)
        await check_lists(listed)


@pytest.mark.parametrize("name", NOTED_NAMES)
def test_checked_before_it_is_stored(client, name):
    """What cannot be stored is refused by name."""
    refused = example_of(name).refused
    with pytest.raises(InvalidRequestError, match=f"{name}: "):
        client.webhooks.delete("wh_1").keyed("k", **{name: refused})


async def test_named_where_a_line_of_input_lacks_it(client, tmp_path):
    """A line has nothing that is noted, and what writes out lines says so of each."""
    notes = {name: example_of(name).given for name in NOTED_NAMES}
    write = client.webhooks.update("wh_missing", description="x").keyed("k", **notes)
    async with Batch.open(tmp_path / "run.db", client) as batch:
        assert len([each async for each in batch.run([write])]) == 1
        [(_, line, lacks)] = [each async for each in failed_writes(batch.entries)]
    assert {*line} == {"operation", "arguments", "key"}
    assert all(f"its {name}" in lacks for name in NOTED_NAMES)
