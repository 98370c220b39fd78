"""Writes to one thing of which an earlier one waits for its reader in the input: they keep their order."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import Absent, Verdict
from invsvc_async.batch import Batch
from invsvc_async.batch.read_places import ReadPlaces
from invsvc_async.batch.run_input import RunInput
from invsvc_async.durable.entry import Entry, State
from tests.batch.conftest import client_of
from tests.batch.writing import SECRETS, all_of, creates, shelve

pytestmark = pytest.mark.one_python

BESIDE = 2  # creates of each team between two mappings: so few that the mappings' team gets its turn


async def absent(_client, _intent):
    """Find no mapping, as the reader of the first of them."""
    return Absent()


def mapping(client, number, reader=None):
    """Make a write to the one mapping of the client's team, whose value is *number*."""
    write = client.sheets.save_mapping({"a": str(number)}, reader=reader)
    return write.keyed(f"mapping-{number}")


def values_of(service):
    """Return what the mapping became, in the order of the effects."""
    effects = service.ledger.effects("sheets.save_mapping")
    return [each.body["fields"]["a"] for each in effects]


async def shelve_mappings(service, client, journal, teams):
    """
    Leave three mappings in *journal*, with creates of *teams* between them.

    The first one has a reader, and was sent; its answer was lost, and it had no effect.
    """
    views = [client, client.for_team(service.team)][:teams]
    writes = [mapping(client, 0, absent)]
    for number in (1, 2):
        for view in views:
            writes += creates(view, BESIDE, start=1000 * len(writes))
        writes.append(mapping(client, number))
    service.script("sheets.save_mapping", "hang")
    async with Batch.open(journal, client, concurrency=1, **SECRETS) as batch:
        await shelve(service, batch, writes, "sheets.save_mapping")
    assert service.arrivals("webhooks.create") == 0


@pytest.mark.parametrize("teams", [1, 2])
@pytest.mark.parametrize("held_back", [0, 1])
async def test_reader_that_comes_while_later_writes_are_held(
    service, client, journal, monkeypatch, teams, held_back
):
    """
    They do not pass the one that has its reader now, nor those that waited for it.

    The reader comes before or after the second mapping was *held_back*.
    """

    async def at_once(_self):
        await asyncio.sleep(0)

    # With two workers, chance would decide which one has the lane of the mappings.
    # reaches: the input is read as if other workers needed more of it
    monkeypatch.setattr(RunInput, "_until_wanted", at_once)
    await shelve_mappings(service, client, journal, teams)
    service.latency = 0.15  # longer than between two looks for teams
    async with client_of(service) as other:

        async def writes():
            at = 1 + held_back * teams * BESIDE
            await service.arrived("webhooks.create", at)
            yield mapping(other, 0, absent)

        async with Batch.open(journal, other, concurrency=1, **SECRETS) as batch:
            results = await all_of(batch, writes())
    verdicts = {each.key: each.verdict for each in results}
    assert {*verdicts.values()} == {Verdict.APPLIED}
    assert len(verdicts) == 3 + 2 * teams * BESIDE
    assert values_of(service) == ["0", "1", "2"]


def test_lane_that_is_released_and_acquired_while_it_is_read():
    """What was found in it counts as not read: it is dropped with the lane as it was before."""
    places = ReadPlaces()
    lanes = places.begin_fetch([1])
    places.forget(1)
    found = [
        Entry(key=str(at), place=at, lane=1, state=State.TO_DO, operation="")
        for at in (7, 8)
    ]
    places.end_fetch(lanes, found, each=2)
    assert places.begin_fetch([1]) == {1: 0}
