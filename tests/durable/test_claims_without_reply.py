"""Claims of keys whose replies were lost, in PostgreSQL: nothing was sent, so nothing is in doubt."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import JournalError, Verdict
from tests.batch.conftest import client_of
from tests.durable.writing import rename
from tests.support.database import connected
from tests.support.database_proxy import database_proxy
from tests.support.inside import store_beneath
from tests.support.slow_commits import slow_commits
from tests.support.waiting import until

pytestmark = pytest.mark.one_python


def save(client, key):
    """Return a write without a read, which nothing could settle."""
    return client.sheets.save_mapping({"a": key}).keyed(key)


def at(proxy, request):
    """Return the address of a journal of the test's own, through *proxy*, in which nobody counts as dead."""
    return f"{proxy.address}&journal=w{abs(hash(request.node.nodeid))}&silence=600"


def saved(service):
    return [each.body["fields"]["a"] for each in service.ledger.effects()]


async def test_claim_whose_reply_was_lost(service, request):
    """The next try recognises what the first has inserted: it is sent once, and has its answer."""
    async with (
        database_proxy() as proxy,
        client_of(service, journal=at(proxy, request)) as client,
    ):
        await save(client, "k0")
        proxy.lose(" k1")
        outcome = await save(client, "k1").outcome()
    assert proxy.lost == 1
    assert (outcome.verdict, outcome.attempts) == (Verdict.APPLIED, 1)
    assert saved(service) == ["k0", "k1"]


@pytest.mark.parametrize("activities", ["on", "off"])
@pytest.mark.parametrize("runner", ["the same process", "another process"])
async def test_claim_that_is_committed_after_its_run(
    service, request, activities, runner
):
    """Whoever runs the key again sends it; also if the server does not tell what its sessions do."""
    async with connected() as admin:
        name = await admin.fetchval("SELECT current_database()")
        await admin.execute(
            f"ALTER DATABASE {name} SET track_activities = {activities}"
        )
        try:
            async with slow_commits() as proxy:
                await _committed_late(service, at(proxy, request), proxy, runner)
        finally:
            await admin.execute(f"ALTER DATABASE {name} RESET track_activities")
    assert saved(service) == ["k0", "k1"]


async def _committed_late(service, address, proxy, runner):
    async with (
        asyncio.timeout(300),
        client_of(service, journal=address) as one,
        client_of(service, journal=address) as other,
    ):
        await save(one, "k0")
        await other.outcome_of("k0")
        usual, store_beneath(one).patience = store_beneath(one).patience, 1.0
        proxy.hold(" k1", commit=" k1")
        with pytest.raises(JournalError, match="is away"):
            await save(one, "k1")
        await until(lambda: proxy.held)
        await asyncio.sleep(0.7)  # sleeps: the release is asked for at once
        await proxy.let_go()
        store_beneath(one).patience = usual
        runs_it = one if runner == "the same process" else other
        outcome = await save(runs_it, "k1").outcome()
    assert (outcome.verdict, outcome.attempts) == (Verdict.APPLIED, 1)


async def test_connection_of_an_act_that_was_refused(service, request):
    """It is not lost, so that no later statement waits for it."""
    async with (
        database_proxy() as proxy,
        client_of(service, journal=at(proxy, request)) as client,
    ):
        await rename(client, "x", "k")
        store = store_beneath(client)

        def refused():
            raise JournalError("it is of another one")
            yield

        with pytest.raises(JournalError, match="of another one"):
            await store.run(refused)
        assert not store._lost  # reaches: what later statements wait for
