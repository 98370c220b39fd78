"""Labels of keyed writes: stored once, by who claims the key, and found again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from invsvc_async import Batch, InvalidRequestError, KeyConflictError, Outbox
from invsvc_async.client import options_of
from invsvc_async.durable.entries import JournalEntries
from invsvc_async.durable.store.noted import Chosen
from invsvc_async.writes.labels import labels_in, pair, text_of
from tests.batch.conftest import client_of
from tests.golden.loading import DATABASES, golden
from tests.outbox.conftest import enqueue, outbox_at, verdicts_of
from tests.support.database import connected
from tests.support.inside import outbox_entries

pytestmark = pytest.mark.one_python

CUSTOMER = {"customer": "c-1"}
OF_CUSTOMER = Chosen(labels=CUSTOMER)


@pytest.fixture(params=["PostgreSQL", "SQLite"])
def place(request, tmp_path):
    """Return the place of an outbox in each database."""
    if request.param == "SQLite":
        return tmp_path / "app.db"
    return outbox_at(f"t{abs(hash(request.node.nodeid))}", silence=60)


def renames(client, service, key, labels):
    """Rename a new journey under *key*."""
    journey = service.seed_journey().id
    return client.journeys.update(journey, name="mine").keyed(key, labels=labels)


async def listed(address, client, labels, state=None):
    """Return the keys and labels of the first writes with *labels*, and how many there are."""
    entries = JournalEntries(str(address), options_of(client).core, reading=True)
    await entries.open()
    try:
        chosen = Chosen(state=state, labels=labels)
        found = await entries.first(10, chosen)
        many, _ = await entries.count(100, chosen)
    finally:
        await entries.aclose()
    return {entries.key_of(each): labels_in(each.noted.labels) for each in found}, many


async def test_labels_in_a_journal(service, address):
    """They are shown with the write, which is found by some or all of them, and by nothing else."""
    both = {"month": "2026-05", **CUSTOMER}
    given = {
        "a": both,
        "b": CUSTOMER,
        "c": {"customer": "c-11"},
        "d": {"xcustomer": "c-1"},
        "e": {"note": '"customer":"c-1"'},
        "f": None,
    }
    async with client_of(service, journal=address) as client:
        for key, labels in given.items():
            await renames(client, service, key, labels)
        assert await listed(address, client, CUSTOMER) == (
            {"a": both, "b": CUSTOMER},
            2,
        )
        assert await listed(address, client, both, "applied") == ({"a": both}, 1)
        assert await listed(address, client, CUSTOMER, "open") == ({}, 0)
        assert await listed(address, client, {"note": '"customer":"c-1"'}) == (
            {"e": given["e"]},
            1,
        )
        found, many = await listed(address, client, {})

    assert (many, found["f"]) == (6, {})


async def test_labels_of_a_later_run(service, address):
    """They change nothing: the write is the same, and has the labels of the run that claimed the key."""
    journey = service.seed_journey().id
    async with client_of(service, journal=address) as client:
        for labels in (CUSTOMER, {"customer": "c-2"}, None):
            write = client.journeys.update(journey, name="mine")
            await write.keyed("k", labels=labels)
        with pytest.raises(KeyConflictError):
            await client.journeys.update(journey, name="other").keyed("k")
        found, _ = await listed(address, client, {})

    assert found == {"k": CUSTOMER}
    assert service.arrivals("journeys.update") == 1


@pytest.mark.parametrize("which", DATABASES)
async def test_labels_in_a_journal_of_before(service, which, tmp_path):
    """One that an earlier version made has none; it is looked at as it is, and takes labels once it is opened."""
    async with golden(service, "v0_1_0", "journal", which, tmp_path) as place:
        async with client_of(service) as client:
            assert await listed(place, client, CUSTOMER) == ({}, 0)
            before, many = await listed(place, client, {})
            assert many
            assert not any(before.values())
        async with client_of(service, journal=place) as client:
            await renames(client, service, "new", CUSTOMER)
            assert await listed(place, client, CUSTOMER) == ({"new": CUSTOMER}, 1)


async def test_labels_in_a_batch(service, client, tmp_path):
    """They are stored until the entry is emptied; a line of a file has none."""
    async with Batch.open(tmp_path / "run.db", client) as batch:
        write = renames(client, service, "k", CUSTOMER)
        assert [each.key async for each in batch.run([write])] == ["k"]
        [entry] = await batch.entries.first(10, OF_CUSTOMER)
        assert labels_in(entry.noted.labels) == CUSTOMER
        await batch.prune(done_before=datetime.now(UTC) + timedelta(hours=1))
        assert await batch.entries.first(10, OF_CUSTOMER) == []
    with pytest.raises(InvalidRequestError, match="labels: a line has none"):
        renames(client, service, "k", CUSTOMER).to_line()


async def test_labels_in_an_outbox(service, client, place):
    """They are found from the commit on, and after the verdict, acknowledged or not."""
    async with Outbox.open(place, client) as outbox:
        other = {"customer": "c-2"}
        await enqueue(
            outbox,
            renames(client, service, "a", CUSTOMER),
            renames(client, service, "b", other),
            renames(client, service, "c", None),
        )
        entries = outbox_entries(outbox)
        for dispatches in (False, True):
            if dispatches:
                async with outbox.dispatching():
                    await verdicts_of(outbox, ["a", "b", "c"])
            for state in (None, "untold" if dispatches else "open"):
                chosen = Chosen(state=state, labels=other)
                [found] = await entries.first(1, chosen)
                assert (found.key, labels_in(found.noted.labels)) == ("b", other)
                assert (await entries.count(100, chosen))[0] == 1
        [shown] = [each for each in await entries.first(10) if each.key == "a"]
        assert labels_in(shown.noted.labels) == CUSTOMER


@pytest.mark.parametrize("which", DATABASES)
async def test_labels_in_an_outbox_of_before(service, client, which, tmp_path):
    """One that an earlier version made can be looked at as it is, takes writes as before, and then labels."""
    async with (
        golden(service, "v0_1_0", "outbox", which, tmp_path) as place,
        client_of(service) as own,
    ):
        async with Outbox.open(place, own, reading=True) as outbox:
            assert await outbox_entries(outbox).first(10, OF_CUSTOMER) == []
            assert await outbox_entries(outbox).first(10)
        async with Outbox.open(place, own) as outbox:
            written = renames(own, service, "new", CUSTOMER)
            if which == "sqlite":
                await enqueue(outbox, written)
            else:
                address, _, _ = place.partition("&outbox=")
                async with connected(address) as theirs, theirs.transaction():
                    await outbox.enqueue(theirs, written)
            [found] = await outbox_entries(outbox).first(10, OF_CUSTOMER)
            assert found.key == "new"


@pytest.mark.parametrize(
    ("labels", "wrong"),
    [
        ("customer=c-1", "must be an object"),
        ({"": "x"}, "'' is not a name"),
        ({'a"b': "x"}, "is not a name"),
        ({"a=b": "x"}, "is not a name"),
        ({7: "x"}, "7 is not a name"),
        ({"a": 7}, "a must have 0 to 100"),
        ({"a": "x" * 101}, "a must have 0 to 100"),
        ({"a": "\0"}, "a must have 0 to 100"),
        ({"a": "\ud800"}, "a must have 0 to 100"),
        ({f"n{at}": "" for at in range(11)}, "11 are too many"),
    ],
)
def test_labels_that_cannot_be_stored(client, labels, wrong):
    """Each is named before anything is sent."""
    with pytest.raises(InvalidRequestError, match=wrong):
        client.webhooks.delete("wh_1").keyed("k", labels=labels)


def test_stored_form():
    """It has each pair as it is looked for, and what was given comes back."""
    labels = {"b": 'a "b" \\', "a": "ñ"}

    assert labels_in(text_of(labels)) == labels
    assert all(pair(*label) in text_of(labels) for label in labels.items())
    assert text_of({}) is None
    assert labels_in("damaged") == {}
