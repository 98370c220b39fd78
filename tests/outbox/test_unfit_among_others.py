"""Writes that no longer fit, read together with writes that do."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from invsvc_async import Outbox, Verdict
from invsvc_async.batch.lane_reader import LaneReader
from invsvc_async.batch.read_places import ReadPlaces
from tests.outbox.conftest import (
    enqueue,
    entries_of,
    spoil,
    update,
    verdicts_of,
    written,
)

pytestmark = pytest.mark.one_python


@pytest.mark.parametrize("unfit", [0, 1, 2])
async def test_writes_beside_one_that_no_longer_fits(service, client, place, unfit):
    """Those before and after it are sent, each once, though all were enqueued before anything dispatched."""
    async with Outbox.open(place, client) as outbox:
        gone = client.journeys.update(service.seed_journey().id, name="gone")
        writes = [update(client, service, f"number {number}") for number in range(2)]
        keys = await enqueue(outbox, *writes[:unfit], gone, *writes[unfit:])
        key = keys.pop(unfit)
        await spoil(outbox, "journeys.update", "journeys.gone")
        async with outbox.dispatching():
            assert await verdicts_of(outbox, keys) == [Verdict.APPLIED] * 2
            assert await verdicts_of(outbox, [key]) == [Verdict.NOT_APPLIED]
        assert await entries_of(outbox, "open") == []
    assert written(service.ledger.entries) == ["number 0", "number 1"]


@pytest.mark.parametrize("unfit", [0, 1, 2])
async def test_items_of_entries_one_of_which_no_longer_fits(unfit):
    """The items of all others are made at once, and not only when the lane is read again."""
    entries = [SimpleNamespace(key=number, lane=1, thing=None) for number in range(3)]

    class Maker:
        async def item_of(self, entry, lane, _asked):
            return None if entry.key == unfit else SimpleNamespace(entry=entry)

    reader = LaneReader(None, {}, ReadPlaces(), {}, Maker(), None)
    items = await reader.items_of(entries, {1: None})
    assert [item.entry.key for item in items] == [
        number for number in range(3) if number != unfit
    ]
