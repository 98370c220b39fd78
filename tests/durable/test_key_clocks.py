"""Keyed writes of processes whose wall clocks are apart: what they note for each other says nothing by those clocks."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from invsvc_async import ReconcilePolicy, Verdict
from tests.batch.conftest import client_of
from tests.durable.queue_child import update
from tests.durable.test_queued_keys import thing_of, written

AHEAD = 11 * 60.0  # s
# The write is UNKNOWN as soon as its answer is lost, and takes effect after that.
HASTY = ReconcilePolicy(settle_after_error=5.0, settle_after_loss=5.0, deadline=0.05)


def another_day(monkeypatch, ahead):
    """Let the wall clock of this process be *ahead* by so many seconds."""
    day = SimpleNamespace(
        time=lambda: time.time() + ahead,
        time_ns=lambda: time.time_ns() + round(ahead * 1e9),
    )
    monkeypatch.setattr("invsvc_async.durable.done_at.time", day)


@pytest.mark.parametrize(
    ("kind", "ahead"),
    [("journeys", AHEAD), ("journeys", -AHEAD), ("webhooks", 100 * 86400.0)],
)
async def test_unknown_sibling_of_a_process_with_another_clock(
    service, address, monkeypatch, kind, ahead
):
    """The next write waits until that one can have no effect any more, whatever the time of day is here."""
    thing = thing_of(service, kind)
    service.script(f"{kind}.update", "late 4, then 500")
    async with client_of(service, journal=address, reconcile=HASTY) as client:
        older = await update(client, kind, thing, "k1").outcome()
        assert older.verdict is Verdict.UNKNOWN, older.explain()
    with monkeypatch.context() as patched:
        another_day(patched, ahead)
        async with client_of(service, journal=address) as client:
            assert (await update(client, kind, thing, "k2").outcome()).applied
    await service.settled()
    assert written(service, kind) == ["k1", "k2"]
