"""
What 0.1.0 called otherwise than later versions: the things of the credential's own team, if a write names it.

That version did not read the team of a token. So a client that does not, either, makes here what it left.
"""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from invsvc_async import Outbox, Verdict
from invsvc_async.batch import Batch
from tests.batch.conftest import client_of
from tests.batch.writing import all_of
from tests.durable.test_key_teams import older as older_version
from tests.outbox.conftest import ended, enqueue, outbox_at, verdict_of
from tests.support.database import database
from tests.support.inside import outbox_entries, store_beneath

pytestmark = pytest.mark.one_python

EARLIER = "/sheets/mapping team_1"
TODAY = "/sheets/mapping None"


@pytest.fixture(params=["SQLite", "PostgreSQL"])
async def place(request, tmp_path):
    """Yield the place of a batch."""
    if request.param == "SQLite":
        yield tmp_path / "store.db"
        return
    async with database().fresh("earlier_names") as address:
        yield f"{address}&batch=b&silence=1"


@asynccontextmanager
async def earlier(service, **settings):
    """Make a client that uses the names of 0.1.0."""
    with older_version():
        async with client_of(service, **settings) as client:
            yield client


async def forget(store):
    """Let *store* be one that does not say which names it has."""
    assert await store.rows("DELETE FROM {s}facts WHERE name = 'names' RETURNING 1")


async def things_in(store):
    """Return the things of the entries in *store*, and those of which it has states."""
    entries = await store.rows("SELECT thing FROM {s}entries ORDER BY seq")
    states = await store.rows("SELECT thing, place, state FROM {s}states")
    return [thing for (thing,) in entries], [tuple(each) for each in states]


def saving(client, key, team=None):
    return client.sheets.save_mapping({"a": key}, team=team).keyed(key)


def sent(service):
    """Return what took effect, in its order."""
    effects = service.ledger.effects("sheets.save_mapping")
    return [each.body["fields"]["a"] for each in effects]


@pytest.mark.parametrize("named", ["older", "newer"])
async def test_older_write_of_a_batch_that_is_retried(service, place, named):
    """It is not sent over the newer one, whichever of both has named the team."""
    teams = {named: service.team}
    async with earlier(service) as client, Batch.open(place, client) as batch:
        service.script("sheets.save_mapping", "422")
        older = saving(client, "older", teams.get("older"))
        [refused] = await all_of(batch, [older])
        assert refused.verdict is Verdict.REFUSED
        if named == "newer":
            await all_of(batch, [saving(client, "newer", service.team)])
        await forget(batch.entries.store)
    async with client_of(service) as client, Batch.open(place, client) as batch:
        if named == "older":
            await all_of(batch, [saving(client, "newer")])
        assert await batch.retry(keys=["older"]) == 1
        [retried] = await all_of(batch)
        assert await things_in(batch.entries.store) == (
            [TODAY] * 2 if named == "older" else [TODAY, EARLIER],
            [(TODAY, 2, None)],
        )
    assert (retried.verdict, retried.overtaken) == (Verdict.NOT_APPLIED, True)
    assert sent(service) == ["newer"]


async def test_lane_of_a_write_that_waits(service, place):
    """It is that of its name of today, so that one process sends both writes of a thing."""
    async with earlier(service) as client, Batch.open(place, client) as batch:
        service.script("sheets.save_mapping", "422")
        await all_of(batch, [saving(client, "older", service.team)])
        assert await batch.retry(keys=["older"]) == 1
        await forget(batch.entries.store)
    async with client_of(service) as client, Batch.open(place, client) as batch:
        await all_of(batch, [saving(client, "newer")])
        lanes = await batch.entries.store.rows("SELECT DISTINCT lane FROM {s}entries")
    assert len(lanes) == 1
    assert sent(service) == ["older", "newer"]


@pytest.mark.parametrize("which", ["SQLite", "PostgreSQL"])
async def test_write_of_an_outbox_that_is_retried(service, tmp_path, which):
    """It is not sent over a newer one; also if it was a row of the application until today."""
    place = (
        tmp_path / "app.db" if which == "SQLite" else outbox_at("earlier", silence=1)
    )
    async with earlier(service) as client, Outbox.open(place, client) as outbox:
        await enqueue(outbox, saving(client, "older", service.team))
        await forget(outbox_entries(outbox).store)
    async with (
        client_of(service) as client,
        Outbox.open(place, client) as outbox,
        outbox.dispatching(),
    ):
        service.script("sheets.save_mapping", "422")
        assert (await verdict_of(outbox, "older")).verdict is Verdict.REFUSED
        await ended(outbox, saving(client, "newer"))
        assert await outbox.retry("older")
        retried = await verdict_of(outbox, "older")
    assert retried.verdict is Verdict.NOT_APPLIED
    assert sent(service) == ["newer"]


async def test_keys(service, address):
    """A new key waits for an earlier one in doubt, and an applied one is found."""
    async with earlier(service, journal=address) as client:
        assert (await saving(client, "done", service.team).outcome()).applied
        service.script("sheets.save_mapping", "apply, then reset")
        lost = await saving(client, "lost", service.team).outcome()
        assert lost.verdict is Verdict.UNKNOWN
        await forget(store_beneath(client))
    async with client_of(service, journal=address) as client:
        assert (await saving(client, "done", service.team).outcome()).replayed
        assert (await saving(client, "new").outcome()).applied
        things, states = await things_in(store_beneath(client))
    assert things == [EARLIER, TODAY, TODAY]
    assert [thing for thing, *_ in states] == [TODAY]
    assert sent(service) == ["done", "lost", "new"]


async def test_only_once(service, place):
    """What is called otherwise later is of somebody else, and stays."""
    async with client_of(service) as client, Batch.open(place, client) as batch:
        await all_of(batch)
    async with earlier(service) as client, Batch.open(place, client) as batch:
        service.script("sheets.save_mapping", "422")
        await all_of(batch, [saving(client, "other", service.team)])
    async with client_of(service) as client, Batch.open(place, client) as batch:
        await all_of(batch)
        things, _ = await things_in(batch.entries.store)
    assert things == [EARLIER]
