"""What a person has found out about a write of an outbox: its verdict, which is given as each one is."""

from __future__ import annotations

import pytest

from invsvc_async import JournalError, Outbox, Verdict
from tests.outbox.conftest import enqueue, finished, update, verdict_of

pytestmark = pytest.mark.one_python

BY = {"because": "seen in the dashboard", "by": "ann"}


def mapping(client, key="k"):
    """Save a mapping, which no read of the specification shows."""
    return client.sheets.save_mapping({"a": key}).keyed(key)


async def given(outbox, many):
    """Return the next verdicts that nobody has acknowledged."""
    found, results = {}, outbox.results()
    async for result in results:
        found[result.key] = result
        if len(found) == many:
            break
    await results.aclose()
    return found


async def test_finding_is_the_verdict(service, client, place):
    """It is given, though the earlier one was acknowledged, and stays; what is applied is not sent again."""
    async with Outbox.open(place, client) as outbox:
        service.script("sheets.save_mapping", "apply, then reset", "apply, then reset")
        await finished(outbox, mapping(client), mapping(client, "other"))
        assert {each.verdict for each in (await given(outbox, 2)).values()} == {
            Verdict.UNKNOWN
        }
        resolved = await outbox.resolve("k", applied=True, **BY)
        assert (await outbox.wait("k", 1.0)).evidence == resolved.evidence
        told = await given(outbox, 1)
        assert await outbox.retry("k") == []
        assert await enqueue(outbox, mapping(client)) == ["k"]
        assert (await outbox.send(mapping(client))) is None
        with pytest.raises(
            JournalError, match="has the verdict applied, which is final"
        ):
            await outbox.resolve("k", applied=False, **BY)
    async with Outbox.open(place, client) as outbox:
        stored = await outbox.get("k")
    assert (told["k"].verdict, told["k"].basis) == (Verdict.APPLIED, "person")
    assert (stored.verdict, stored.evidence.person) == (
        Verdict.APPLIED,
        resolved.evidence.person,
    )
    assert stored.message == "ann found that it was applied: seen in the dashboard"
    assert service.arrivals("sheets.save_mapping") == 2


async def test_what_did_not_happen_is_sent_again(service, client, place):
    """It is, once somebody asks for that, and then once."""
    async with Outbox.open(place, client) as outbox:
        service.script("sheets.save_mapping", "reset")
        await finished(outbox, mapping(client))
        resolved = await outbox.resolve("k", applied=False, **BY)
        assert (await outbox.get("k")).evidence.person == resolved.evidence.person
        assert await outbox.retry("k") == ["k"]
        async with outbox.dispatching():
            outcome = await verdict_of(outbox, "k")
    assert (outcome.verdict, outcome.evidence.basis) == (Verdict.APPLIED, "answered")
    assert len(service.ledger.effects("sheets.save_mapping")) == 1


async def test_finding_that_is_refused(service, client, place):
    """A write that waits, one that is under way, and one that is not there."""
    async with Outbox.open(place, client) as outbox:
        await enqueue(outbox, update(client, service).keyed("waits"))
        with pytest.raises(JournalError, match=r"is not there|was never sent"):
            await outbox.resolve("waits", applied=True, **BY)
        with pytest.raises(JournalError, match="is not there"):
            await outbox.resolve("none", applied=True, **BY)
        service.script("sheets.save_mapping", "hang 60")
        async with outbox.dispatching(grace=0.0):
            await enqueue(outbox, mapping(client))
            await service.arrived("sheets.save_mapping", 1)
            with pytest.raises(JournalError, match="belongs to a living process"):
                await outbox.resolve("k", applied=True, **BY)
        assert (await verdict_of(outbox, "waits")).applied
        resolved = await outbox.resolve("k", applied=True, **BY)  # nobody has it now
        assert (await outbox.get("k")).evidence == resolved.evidence
    with pytest.raises(JournalError, match="is not open"):
        await outbox.resolve("k", applied=True, **BY)
