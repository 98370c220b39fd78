"""What agents send by mistake: nothing of it reaches the service, and each answer says what to do."""

from __future__ import annotations

import pytest
from mcp import MCPError

from tests.agents.conftest import HOOK, facts

pytestmark = pytest.mark.one_python

DEEP = "x"
for _ in range(100):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("webhooks_creat", "Did you mean webhooks_create"),
        ("webhooks.create", "Did you mean webhooks_create"),
        ("x" * 1_000_000, "no such tool"),
        ("client_write", "no such tool"),
        ("__class__", "no such tool"),
    ],
)
async def test_unknown_tool(service, agent, name, words):
    """The error of the protocol says so, in a bounded text, and names the likely one."""
    with pytest.raises(MCPError) as caught:
        await agent.call_tool(name, {})
    assert words in str(caught.value)
    assert len(str(caught.value)) < 300
    assert service.ledger.newest == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "url: is missing"),
        ({**HOOK}, "key: is missing"),
        ({**HOOK, "key": 7}, "key: is a number, not text"),
        ({**HOOK, "key": ""}, "1 to 200 printable"),
        ({**HOOK, "key": "k" * 201}, "1 to 200 printable"),
        ({**HOOK, "key": "a\nb"}, "1 to 200 printable"),
        ({**HOOK, "key": "k", "url": 7}, "url: "),
        ({**HOOK, "key": "k", "url": "no url"}, "url: "),
        ({**HOOK, "key": "k", "events": "invoice.created"}, "events: "),
        ({**HOOK, "key": "k", "events": [1]}, "events"),
        ({**HOOK, "key": "k", "events": ["no.such"]}, "events"),
        ({**HOOK, "key": "k", "status": True}, "status: "),
        ({**HOOK, "key": "k", "team": "team_2"}, "'team': is no argument"),
        ({**HOOK, "key": "k", "extra_body": {"a": 1}}, "'extra_body': is no argument"),
        ({**HOOK, "key": "k", "tag": False}, "'tag': is no argument"),
        ({**HOOK, "key": "k", "options": {}}, "'options': is no argument"),
        ({**HOOK, "key": "k", "description": DEEP}, "nested deeper"),
        ({**HOOK, "key": "k", "description": "x" * 1_000_000}, "characters, more than"),
        ({**HOOK, "key": "k", "n" * 1_000: 1}, "is no argument"),
        ({**HOOK, "key": "k", "description": "\ud800"}, "surrogate"),
    ],
)
async def test_bad_arguments(service, agent, given, words):
    """Nothing is sent, the words are bounded, and they name what is wrong."""
    result = await agent.call_tool("webhooks_create", given)
    said = facts(result)
    assert result.is_error
    assert words in said["message"]
    assert "nothing was sent" in said["message"]
    assert len(str(result)) < 10_000
    assert service.ledger.newest == 0


@pytest.mark.parametrize("given", [None, {}])
async def test_no_arguments(service, agent, given):
    """A tool without arguments may be called without any."""
    assert (
        facts(await agent.call_tool("webhooks_health", given))["value"]["status"]
        == "ok"
    )


async def test_bad_token_of_a_page(service, agent):
    """A token of a page that is none, or of another list, is refused."""
    said = facts(await agent.call_tool("invoices_egress", {"continue_with": "xx"}))
    assert "token" in said["message"]
    first = facts(await agent.call_tool("invoices_egress", {"limit": 2}))
    call = {"limit": 2, "continue_with": first["continue_with"]}
    other = facts(await agent.call_tool("invoices_payment_complements", call))
    assert "belongs to invoices.egress" in other["message"]


async def test_bad_time(agent):
    """A text that is no time is named, and so is a time without an offset."""
    said = facts(
        await agent.call_tool("invoices_egress", {"created_after": "yesterday"})
    )
    assert "created_after: 'yesterday' is no time" in said["message"]
    call = {"created_after": "2026-05-01T10:00:00"}
    said = facts(await agent.call_tool("invoices_egress", call))
    assert "time zone" in said["message"]


async def test_fault_of_the_server(service, agent, monkeypatch, caplog):
    """An error that nobody foresaw is told by its class alone: its text may hold anything."""
    from invsvc_async.agents import toolbox

    def fail(*_args, **_options):
        raise RuntimeError("eyJ-a-token")

    # reaches: nothing else fails so, as far as is known
    monkeypatch.setattr(toolbox, "called", fail)
    result = await agent.call_tool("users_get", {"user_id": "usr_1"})
    said = facts(result)
    assert result.is_error
    assert "RuntimeError" in said["message"]
    assert "eyJ" not in str(result) + caplog.text
