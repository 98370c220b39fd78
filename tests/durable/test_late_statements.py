"""Statements whose connection was lost, and that the server begins or ends only afterwards: the next one sees them."""

from __future__ import annotations

import asyncio

import pytest

from tests.batch.conftest import client_of
from tests.support.database import connected
from tests.support.database_proxy import database_proxy
from tests.support.inside import store_beneath
from tests.support.waiting import cancel, until

pytestmark = pytest.mark.one_python

NOTE = "INSERT INTO {s}facts AS f (name, value) VALUES ('late', $1) ON CONFLICT (name) DO UPDATE SET value = $1"
# It gets a transaction number only after the second.
NOTE_SLOWLY = """
WITH slow AS MATERIALIZED (SELECT pg_sleep(1)) INSERT INTO {s}facts (name, value) SELECT 'late', 'seen' FROM slow
"""
FIND = "SELECT value FROM {s}facts WHERE name = 'late'"


@pytest.fixture
async def proxy():
    async with database_proxy() as running:
        yield running


@pytest.fixture
async def store(service, proxy, request):
    address = f"{proxy.address}&journal=l{abs(hash(request.node.nodeid))}&silence=600"
    async with client_of(service, journal=address) as client:
        await client.outcome_of("none")
        yield store_beneath(client)


@pytest.mark.parametrize("activities", ["on", "off"])
async def test_statement_that_had_just_begun(store, activities):
    async with connected() as admin:
        running = asyncio.create_task(_noting(store, NOTE_SLOWLY, activities))
        await until(
            lambda: admin.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
            )
        )
        await cancel(running)
        assert [tuple(row) for row in await store.rows(FIND)] == [("seen",)]


async def _noting(store, text, activities):
    """Run the statement *text*, in a session whose activities are told or not."""

    async def act(connection):
        await connection.execute(f"SET track_activities = {activities}")
        await connection.execute(text.format(s=f"{store.schema}."))

    await store.steadily(act)


async def test_statement_that_arrives_late(store, proxy):
    """Something between this process and the server has passed it on late."""
    await store.rows(NOTE, "before")  # so that the statement is prepared
    held = proxy._speaks  # reaches: what connections that are silent now wait for
    trips = proxy.trips
    proxy.silence()
    running = asyncio.create_task(store.rows(NOTE, "seen"))
    await asyncio.sleep(0.1)  # sleeps: it is on its way
    await cancel(running)
    proxy.speak()

    async def pass_on():
        await asyncio.sleep(0.4)  # sleeps: meanwhile the next statement comes
        held.set()

    passing = asyncio.create_task(pass_on())
    found = await store.rows(FIND)
    await passing
    assert [tuple(row) for row in found] == [("seen",)]
    assert proxy.trips > trips
