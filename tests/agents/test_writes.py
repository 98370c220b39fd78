"""Writes of agents, whose verdicts are compared with the service's ledger."""

from __future__ import annotations

import asyncio
import re

import pytest

from invsvc_async import ApiKey, Client, ConfigurationError, ReconcilePolicy
from invsvc_async.agents.toolbox import Toolbox
from invsvc_async.testing import quick_client
from tests.agents.conftest import HOOK, agent_of, connected, facts

pytestmark = pytest.mark.every_python


def effects(service, operation="webhooks.create"):
    return len(service.ledger.effects(operation))


async def test_same_key_again(service, agent):
    """The second call is answered from the journal: one request, one effect."""
    first = facts(await agent.call_tool("webhooks_create", {**HOOK, "key": "order-1"}))
    again = facts(await agent.call_tool("webhooks_create", {**HOOK, "key": "order-1"}))
    assert (first["verdict"], first["applied"], first["replayed"]) == (
        "applied",
        True,
        False,
    )
    assert (again["verdict"], again["applied"], again["replayed"]) == (
        "applied",
        True,
        True,
    )
    assert (
        first["value"]["id"]
        == again["value"]["id"]
        == service.ledger.effects()[0].target
    )
    assert service.ledger.arrivals("webhooks.create") == 1
    assert "Do not call it again" in again["next"]


@pytest.mark.parametrize(
    ("step", "sent"),
    [("apply, then reset", 1), ("reset", 2), ("apply, then 500", 1), ("garbage", 2)],
)
async def test_lost_answer(service, agent, step, sent):
    """After a lost answer the state is read: one effect, whether or not the first request had it."""
    service.script("webhooks.create", step)
    said = facts(await agent.call_tool("webhooks_create", {**HOOK, "key": "order-1"}))
    assert said["verdict"] == "applied"
    assert effects(service) == 1
    assert service.ledger.arrivals("webhooks.create") == sent


async def test_other_arguments_under_a_key(service, agent):
    """An agent that changes its mind is told what differs, what became of the first, and what to do."""
    await agent.call_tool("webhooks_create", {**HOOK, "key": "order-1"})
    other = {**HOOK, "url": "https://me.example/other", "key": "order-1"}
    result = await agent.call_tool("webhooks_create", other)
    said = facts(result)
    assert result.is_error
    assert said["conflict"] is True
    assert "body.url" in said["message"]
    assert "applied: it happened" in said["message"]
    assert "key of its own" in said["next"]
    assert effects(service) == 1

    changed = facts(
        await agent.call_tool("webhooks_create", {**other, "key": "order-1b"})
    )
    assert changed["verdict"] == "applied"
    assert effects(service) == 2


@pytest.mark.parametrize("dry_run", [False, True])
async def test_key_of_another_team(service, tmp_path, secrets, dry_run):
    """In a namespace that has a name, an agent is not told of another team's write, and sends nothing."""
    journal = f"{tmp_path / 'calls.db'}?namespace=agents"
    settings = {"journal": journal, "on_secret": secrets.take}
    async with quick_client(service, **settings) as client:
        views = map(client.for_team, ("team_1", "team_2"))
        toolboxes = [
            Toolbox(view, dry_run=given)
            for view, given in zip(views, (False, dry_run), strict=True)
        ]
        asked = {**HOOK, "key": "order-1"}
        async with agent_of(toolboxes[0]) as first, agent_of(toolboxes[1]) as second:
            await first.call_tool("webhooks_create", asked)
            result = await second.call_tool("webhooks_create", asked)
    said = facts(result)
    assert result.is_error
    assert said["conflict"] is True
    assert "another team" in said["message"]
    assert "applied" not in said["message"]
    assert "begins with the team" in said["next"]
    assert [each.team for each in service.ledger.effects("webhooks.create")] == [
        "team_1"
    ]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (["400"], r"did not happen \(refused\)"),
        (["reset", "reset"], "cannot be told yet|did not happen"),
    ],
)
async def test_conflict_with_a_write_without_an_effect(service, agent, steps, words):
    """The agent is told truthfully what became of the first write, also where that is nothing."""
    service.script("webhooks.create", *steps)
    await agent.call_tool("webhooks_create", {**HOOK, "key": "order-1"})
    other = {**HOOK, "url": "https://me.example/other", "key": "order-1"}
    said = facts(await agent.call_tool("webhooks_create", other))
    assert re.search(words, said["message"]), said["message"]
    assert effects(service) == 0


@pytest.mark.parametrize(
    ("step", "following"),
    [
        ("400", "another key"),
        ("401 raw", "person you work for"),
        ("403", "person you work for"),
        ("429 after 1", "same key"),
        ("409", "same key"),
    ],
)
async def test_refused(service, agent, step, following):
    """A definite no is told with its reason; whether another key is needed depends on it."""
    service.script("webhooks.create", step)
    result = await agent.call_tool("webhooks_create", {**HOOK, "key": "order-1"})
    said = facts(result)
    assert result.is_error
    assert (said["verdict"], said["applied"]) == ("refused", False)
    assert said["error"]["status"] == int(step[:3])
    assert following in said["next"]
    assert effects(service) == 0
    if following == "same key":
        again = facts(
            await agent.call_tool("webhooks_create", {**HOOK, "key": "order-1"})
        )
        assert (again["verdict"], effects(service)) == ("applied", 1)


async def test_unknown_is_told_as_unknown(service, agent):
    """A write without a read, whose answer was lost, is unknown; no new key is advised, and calling again sends nothing."""
    service.script("teams.create", "apply, then reset")
    call = {"legal_name": "Aceros", "key": "team-1"}
    said = facts(await agent.call_tool("teams_create", call))
    assert (said["verdict"], said["applied"]) == ("unknown", None)
    assert "no read that shows it" in said["next"]
    assert "Never use another key" in said["next"]
    again = facts(await agent.call_tool("teams_create", call))
    assert again["verdict"] == "unknown"
    assert service.ledger.arrivals("teams.create") == 1


async def test_unknown_that_a_read_can_tell_later(service, tmp_path, secrets):
    """While no read can tell, it is unknown; the same key again finds it, and one effect remains."""
    policy = ReconcilePolicy(
        settle_after_error=0.1, settle_after_loss=0.1, deadline=0.5, resend="never"
    )
    journal = str(tmp_path / "calls.db")
    async with connected(service, journal, secrets, reconcile=policy) as agent:
        service.script("webhooks.create", "apply, then reset")
        service.script("webhooks.list", *["500"] * 4)
        call = {**HOOK, "key": "order-1"}
        said = facts(await agent.call_tool("webhooks_create", call))
        assert said["verdict"] == "unknown"
        assert "same key" in said["next"]
        while said["verdict"] == "unknown":
            said = facts(await agent.call_tool("webhooks_create", call))
    assert said["verdict"] == "applied"
    assert effects(service) == 1


async def test_update_and_delete(service, agent):
    """Updates and deletes take ids, and have one effect under faults too."""
    made = facts(await agent.call_tool("webhooks_create", {**HOOK, "key": "a"}))
    hook = made["value"]["id"]
    service.script("webhooks.update", "apply, then reset")
    service.script("webhooks.delete", "apply, then 500")
    call = {"webhook": hook, "status": "inactive", "key": "pause"}
    updated = facts(await agent.call_tool("webhooks_update", call))
    assert (updated["verdict"], updated["value"]["status"]) == ("applied", "inactive")
    deleted = facts(
        await agent.call_tool("webhooks_delete", {"webhook": hook, "key": "del"})
    )
    assert deleted["verdict"] == "applied"
    assert [effects(service, f"webhooks.{name}") for name in ("update", "delete")] == [
        1,
        1,
    ]


async def test_lost_update_of_a_tagged_webhook(service, agent):
    """The description of a webhook that an agent made is its tag: an update of it that was lost is sent again."""
    made = facts(await agent.call_tool("webhooks_create", {**HOOK, "key": "a"}))
    service.script("webhooks.update", "reset")
    call = {"webhook": made["value"]["id"], "description": "of order 4", "key": "b"}
    said = facts(await agent.call_tool("webhooks_update", call))
    assert (said["verdict"], effects(service, "webhooks.update")) == ("applied", 1)
    assert service.ledger.arrivals("webhooks.update") == 2


async def test_superseded(service, tmp_path, secrets):
    """What somebody else has deleted since is not written again, and the agent is told to ask."""
    policy = ReconcilePolicy(
        settle_after_error=0.2, settle_after_loss=0.2, deadline=60.0, reads_lag=0.0
    )
    journal = str(tmp_path / "calls.db")
    hook = service.seed_webhook().id
    service.script("webhooks.update", "reset")
    service.script("webhooks.get", "pass", "pass", *["gone 404"] * 50)
    async with connected(service, journal, secrets, reconcile=policy) as agent:
        call = {"webhook": hook, "description": "mine", "key": "rename"}
        said = facts(await agent.call_tool("webhooks_update", call))
    assert (said["verdict"], said["applied"]) == ("superseded", None)
    assert "undo what somebody else did" in said["next"]
    assert service.ledger.arrivals("webhooks.update") == 1


async def test_secrets_go_to_the_operator(service, agent, secrets):
    """The secret of a new webhook is stored, and in no answer."""
    result = await agent.call_tool("webhooks_create", {**HOOK, "key": "order-1"})
    said = facts(result)
    secret = secrets.of["order-1"]
    assert secret
    assert secret not in str(result)
    assert "secret" not in said["value"]
    assert "the operator has it" in said["message"]


async def test_secrets_that_are_thrown_away(service, tmp_path, secrets):
    """An operator who wants no secrets is not said to have one."""
    journal = str(tmp_path / "calls.db")
    async with connected(service, journal, secrets, keeps_secrets=False) as agent:
        said = facts(
            await agent.call_tool("webhooks_create", {**HOOK, "key": "order-1"})
        )
    assert "thrown away" in said["message"]


async def test_lost_secret(service, agent, secrets):
    """A webhook whose answer was lost exists; its secret is told as lost, and no second one is advised."""
    service.script("webhooks.create", "apply, then reset")
    said = facts(await agent.call_tool("webhooks_create", {**HOOK, "key": "order-1"}))
    assert said["verdict"] == "applied"
    assert "was lost" in said["message"]
    assert "do not make another one" in said["message"]
    assert secrets.of == {}


async def test_at_once(service, agent):
    """Calls of one key at the same time have one effect, and the same answer."""
    calls = [
        agent.call_tool("webhooks_create", {**HOOK, "key": "order-1"}) for _ in range(5)
    ]
    said = [facts(each) for each in await asyncio.gather(*calls)]
    assert {each["verdict"] for each in said} == {"applied"}
    assert len({each["value"]["id"] for each in said}) == 1
    assert service.ledger.arrivals("webhooks.create") == 1


def test_writes_need_a_journal():
    """Without a journal, writes are not offered: nothing would know of an earlier call."""
    client = Client("https://host.example/v2", ApiKey("a"))
    with pytest.raises(ConfigurationError, match="journal: is not set"):
        Toolbox(client)
    assert Toolbox(client, read_only=True).tools
