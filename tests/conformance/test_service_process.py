"""The service in a process of its own tells what truly happened."""

import aiohttp
import pytest

from invsvc_async.conformance.service_process import Plan, embedded

pytestmark = pytest.mark.one_python

PLAN = Plan(
    seed=1, faults="none", teams=("team_x",), journeys=(("jrn_mine", "team_x"),)
)


async def update(service, name):
    headers = {
        "Authorization": f"Bearer {service.api_key}",
        "X-Write-Id": f"update-{name}",
    }
    async with aiohttp.ClientSession(headers=headers) as session:
        url = f"{service.base_url}/journeys/jrn_mine?team=team_x"
        async with session.put(url, json={"name": name}) as answer:
            return answer.status


async def test_tell_of_a_write(capfd):
    """The ledger and the states that come out are those of the writes that went in; nothing else is printed."""
    async with embedded(PLAN) as service:
        status = await update(service, "May")
        told = await service.tell()

    assert status == 200
    assert [(each.operation, each.team, each.applied) for each in told.ledger] == [
        ("journeys.update", "team_x", True)
    ]
    assert [each.sender for each in told.ledger] == ["update-May"]
    assert told.state["jrn_mine"]["name"] == "May"
    assert told.before["jrn_mine"]["name"] == "Dunning"
    assert told.reads == 0
    assert capfd.readouterr() == ("", "")


async def test_tell_with_an_effect_still_to_come():
    """What is told waits for effects that land later than their answers."""
    plan = Plan(
        seed=1,
        faults="rate=1,kinds=500,phases=late,late=0.3",
        journeys=PLAN.journeys,
        teams=PLAN.teams,
    )
    async with embedded(plan) as service:
        status = await update(service, "June")
        told = await service.tell()

    assert status == 500
    assert [each.applied for each in told.ledger] == [True]


async def test_service_whose_user_has_gone():
    """The process ends with the block, and leaves nothing behind."""
    async with embedded(PLAN) as service:
        url = service.base_url

    async with aiohttp.ClientSession() as session:
        try:
            await session.get(f"{url}/webhooks/health")
        except aiohttp.ClientConnectorError:
            return
    raise AssertionError("it still answers")


async def test_service_that_stores_in_its_own_way():
    """The plan says how the service stores, and the ledger what it stored; times are plain numbers."""
    plan = Plan(
        seed=1,
        faults="none",
        stores="words=trimmed",
        journeys=PLAN.journeys,
        teams=PLAN.teams,
    )
    async with embedded(plan) as service:
        await update(service, " June ")
        told = await service.tell()

    (entry,) = told.ledger
    assert (entry.stored, entry.fields) == ("other words", {"name": "June"})
    assert isinstance(entry.received_at, float)
    assert isinstance(entry.applied_at, float)
