"""Plans: what would be sent, and its digest, without which nothing is."""

from __future__ import annotations

import pytest

from tests.agents.conftest import HOOK, connected, facts

pytestmark = pytest.mark.one_python

CALL = {**HOOK, "key": "order-1"}


@pytest.fixture
async def planner(service, tmp_path, secrets):
    """Yield an agent whose writes are planned first."""
    journal = str(tmp_path / "plans.db")
    async with connected(service, journal, secrets, dry_run=True) as made:
        yield made


async def test_plan_and_confirm(service, planner):
    """The plan says what would be sent, and sends nothing; its digest sends exactly that, once."""
    planned = facts(await planner.call_tool("webhooks_create", CALL))
    plan = planned["plan"]
    assert (plan["method"], plan["path"], plan["arguments"]) == (
        "POST",
        "/webhooks",
        HOOK,
    )
    assert plan["base_url"] == service.base_url
    assert service.ledger.newest == 0

    for _ in range(2):
        call = {**CALL, "confirm": planned["digest"]}
        said = facts(await planner.call_tool("webhooks_create", call))
        assert said["verdict"] == "applied"
    assert len(service.ledger.effects("webhooks.create")) == 1

    again = facts(await planner.call_tool("webhooks_create", CALL))
    assert again["plan"]["already"] == "applied"
    assert again["digest"] == planned["digest"]


@pytest.mark.parametrize(
    "change",
    [{"url": "https://me.example/other"}, {"key": "order-2"}, {"status": "inactive"}],
)
async def test_digest_of_another_plan(service, planner, change):
    """A digest confirms its own plan only."""
    planned = facts(await planner.call_tool("webhooks_create", CALL))
    call = {**CALL, **change, "confirm": planned["digest"]}
    result = await planner.call_tool("webhooks_create", call)
    assert result.is_error
    assert "not the digest of this plan" in facts(result)["message"]
    assert service.ledger.newest == 0


async def test_path_of_a_plan(service, planner):
    """The plan names the thing."""
    hook = service.seed_webhook(url="https://me.example/in", events=["invoice.created"])
    call = {"webhook": hook.id, "key": "del"}
    plan = facts(await planner.call_tool("webhooks_delete", call))["plan"]
    assert (plan["method"], plan["path"]) == ("DELETE", f"/webhooks/{hook.id}")


async def test_reads_need_no_plan(planner):
    """Reads are done at once."""
    said = facts(await planner.call_tool("webhooks_list", {}))
    assert said["value"]["data"] == []
