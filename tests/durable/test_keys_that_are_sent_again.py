"""Keys that are sent again while a newer write, which has waited for their first sends, is about to be sent."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial

import pytest

from invsvc_async import ApiKey, ReconcilePolicy, Timeouts, Verdict
from invsvc_async.durable.store.conditions import FREED
from tests.batch.conftest import client_of
from tests.durable.test_keys_of_slow_processes import written
from tests.durable.writing import cut_off, held_at_begin
from tests.support.database import database
from tests.support.inside import store_beneath
from tests.support.waiting import until

pytestmark = [pytest.mark.one_python, pytest.mark.slow]

# The service applies what is late within the windows, after the deadline of a run that gives up.
WINDOW, LATE, GIVES_UP = 4.0, 3.5, 1.5  # s
POLICY = ReconcilePolicy(
    settle_after_error=0.2,
    settle_after_loss=WINDOW,
    reads_lag=0.0,
    clock_slack=0.0,
    clock_band=0.0,
)


@pytest.fixture
def held(monkeypatch):
    """Hold the run of the key "later" as it is about to begin; return when it is there, and what lets it go on."""
    return held_at_begin(monkeypatch, "later")


@asynccontextmanager
async def two_clients(service, request, *, may_read):
    """
    Yield what renames a journey, by two clients of one journal, and its store.

    *may_read* is whether the second one may settle what the first has written.
    """
    name = f"a{abs(hash(request.node.nodeid))}"
    settings = {"timeout": Timeouts(attempt=1.0), "reconcile": POLICY}
    first = {"journal": database().at(journal=name, namespace="crm"), **settings}
    second = dict(first)
    if not may_read:
        second["journal"] = database().at(journal=name, namespace="billing")
        second["credential"] = ApiKey(service.issue_key())
    async with (
        asyncio.timeout(300),
        client_of(service, **first) as one,
        client_of(service, **second) as other,
    ):
        journey = service.seed_journey(name="old").id
        for client in (one, other):
            await client.journeys.get(journey)

        def rename(client, name):
            return client.journeys.update(journey, name=name).keyed(name)

        yield partial(rename, one), partial(rename, other), store_beneath(one)


async def test_write_that_was_passed_over_and_is_sent_again(service, request, held):
    """The newer one, whose client may not read it, waits for the second send, too."""
    is_about_to, may_go = held
    async with two_clients(service, request, may_read=False) as (one, other, store):
        service.script("journeys.update", "hang")
        await cut_off(service, one("earlier"))
        later = asyncio.create_task(other("later").outcome())
        await is_about_to.wait()
        service.script("journeys.update", f"late {LATE}, then hang")
        await cut_off(service, one("earlier"))
        await until(lambda: store.entries(f"e.lane = {FREED}"))
        may_go.set()
        assert (await later).verdict is Verdict.APPLIED
        await until(lambda: len(written(service)) == 2)
    assert written(service) == ["earlier", "later"]


async def test_unknown_write_that_is_sent_again(service, request, held):
    """The newer one waits for the second send, too."""
    is_about_to, may_go = held
    async with two_clients(service, request, may_read=True) as (one, other, _):
        service.script("journeys.update", "reset")
        earlier = one("earlier").with_policy(deadline=0.05)
        assert (await earlier.outcome()).verdict is Verdict.UNKNOWN
        later = asyncio.create_task(other("later").outcome())
        await is_about_to.wait()
        service.script("journeys.update", f"late {LATE}, then reset")
        for verdict in (Verdict.NOT_APPLIED, Verdict.UNKNOWN):
            again = one("earlier").with_policy(deadline=GIVES_UP)
            assert (await again.outcome()).verdict is verdict
        assert service.arrivals("journeys.update") == 2
        may_go.set()
        assert (await later).verdict is Verdict.APPLIED
        await until(lambda: len(written(service)) == 2)
    assert written(service) == ["earlier", "later"]
