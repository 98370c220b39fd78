"""Keyed writes to a thing of which the journal has more UNKNOWN writes than one statement may list."""

from __future__ import annotations

import pytest

from invsvc_async import Verdict
from invsvc_async.storage.dialect import MOST
from tests.batch.conftest import client_of
from tests.support.inside import store_beneath

pytestmark = pytest.mark.one_python

COPIED = """
    place, lane, thing, digest, operation, state, common, intent, verdict, outcome, done_at
"""
COPY = f"""
INSERT INTO {{s}}entries (key, {COPIED}) SELECT key || {{arg 1 text}}, {COPIED} FROM {{s}}entries
    WHERE verdict = 'unknown' AND seq = (SELECT min(seq) FROM {{s}}entries)
"""


def opened(service, address):
    return client_of(service, journal=address)


async def unknown(client, service, thing, key):
    service.script("journeys.update", "apply, then reset")
    service.script("journeys.get", *["503"] * 6)
    write = client.journeys.update(thing, name=key).keyed(key)
    outcome = await write.with_policy(deadline=0.3).outcome()
    assert outcome.verdict is Verdict.UNKNOWN, outcome.explain()


async def test_next_write_after_many_that_are_unknown(service, address):
    """It waits for their windows, and is sent."""
    thing = service.seed_journey(name="old").id
    async with opened(service, address) as client:
        await unknown(client, service, thing, "k")
        store = store_beneath(client)
        for number in range(MOST + 4):  # as many runs would have left them
            await store.rows(COPY, f"-{number}")
    async with opened(service, address) as client:
        write = client.journeys.update(thing, name="next").keyed("next")
        outcome = await write.outcome()
    assert outcome.applied, outcome.explain()
    assert [each.body["name"] for each in service.ledger.effects()] == ["k", "next"]
