"""Which tools there are, and what they say of themselves."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator

from invsvc_async import ApiKey, Client, ConfigurationError, PersonToken
from invsvc_async.agents.tools import tools_for
from invsvc_async.api.operations import BY_NAME, OperationKind
from invsvc_async.settings import ParameterNames

pytestmark = pytest.mark.one_python

LISTED = [name for name in BY_NAME if not name.startswith("client.")]


def client_with(credential, **settings):
    return Client("https://host.example/v2", credential, **settings)


def test_each_operation_is_a_tool():
    """Together, an API key and a person's token are offered all operations that the specification names."""
    offered = {
        tool.operation.name
        for credential in (ApiKey("a"), PersonToken("a"))
        for tool in tools_for(client_with(credential)).values()
    }
    assert offered == set(LISTED)


def test_closed_operations_are_not_offered():
    """What the specification closes to a kind of credential is no tool for it."""
    names = tools_for(client_with(ApiKey("a")))
    assert "users_update_preferences" not in names
    assert "webhooks_create" in names


@pytest.mark.parametrize("credential", [ApiKey("a"), PersonToken("a")])
def test_schemas_are_sound(credential):
    """Each schema is one of JSON Schema, is closed, and requires the key of each write."""
    for tool in tools_for(client_with(credential), dry_run=True).values():
        Draft202012Validator.check_schema(tool.schema)
        assert tool.schema["additionalProperties"] is False
        takes_key = "key" in tool.schema.get("required", ())
        assert takes_key is (tool.operation.kind is OperationKind.WRITE)
        assert tool.name.replace("_", "").isalnum()
        assert len(tool.name) <= 64


def test_the_schema_says_what_the_table_says():
    """Choices, patterns and limits of the table are in the schema."""
    tools = tools_for(client_with(ApiKey("a")))
    update = tools["webhooks_update"].schema["properties"]
    assert update["webhook"]["pattern"] == r"^wh_[^/\s]+$"
    assert update["status"]["enum"] == ["active", "inactive"]
    assert "invoice.created" in update["events"]["items"]["enum"]
    journey = tools["journeys_update"].schema["properties"]
    assert (journey["name"]["minLength"], journey["name"]["maxLength"]) == (1, 150)
    assert journey["description"]["type"] == ["string", "null"]
    listed = tools["invoices_egress"].schema["properties"]
    assert (listed["limit"]["minimum"], listed["limit"]["maximum"]) == (1, 100)
    assert {"cursor", "page"}.isdisjoint(listed)


def test_names_that_are_switched_off():
    """A parameter whose assumed name the deployment lacks is not offered."""
    client = client_with(ApiKey("a"), names=ParameterNames(client_id=None))
    assert "client_id" not in tools_for(client)["invoices_egress"].takes


async def test_hints(agent):
    """Reads say that they only read; a delete says that it destroys; the texts are not those for programs."""
    tools = {tool.name: tool for tool in (await agent.list_tools()).tools}
    for name, tool in tools.items():
        row = next(
            row for row in BY_NAME.values() if row.name.replace(".", "_") == name
        )
        hints = tool.annotations
        assert hints.read_only_hint is (row.kind is OperationKind.READ), name
        assert bool(hints.destructive_hint) is (row.method == "DELETE"), name
        assert hints.idempotent_hint is True
        assert "``" not in tool.description
    assert "same key" in tools["webhooks_create"].description
    assert "same key" not in tools["webhooks_get"].description


@pytest.mark.parametrize(
    ("only", "names"),
    [
        (["webhooks.g*"], {"webhooks_get"}),
        (["users.get", "journeys.*"], {"users_get", "journeys_get", "journeys_update"}),
    ],
)
def test_only_some(only, names):
    """Patterns select operations by their names."""
    assert set(tools_for(client_with(ApiKey("a")), only=only)) == names


def test_read_only():
    """Without writes, no tool may change anything."""
    tools = tools_for(client_with(ApiKey("a")), read_only=True)
    assert {tool.operation.kind for tool in tools.values()} == {OperationKind.READ}


@pytest.mark.parametrize(
    ("offered", "words"),
    [
        ({"only": ["webhook.create"]}, "Did you mean webhooks.create"),
        ({"only": ["teams.create"], "read_only": True}, "no operation is left"),
        ({"only": ["users.update_preferences"]}, "no operation is left"),
    ],
)
def test_nothing_to_offer(offered, words):
    """A pattern without an operation is an error, and so is an empty list of tools."""
    with pytest.raises(ConfigurationError, match=words):
        tools_for(client_with(ApiKey("a")), **offered)
