"""Bodies that the service refuses: 400 in the standard envelope, all invalid fields named, nothing changed."""

import pytest

from .conftest import HOOK

pytestmark = pytest.mark.one_python

NODE = {"id": "a", "type": "t", "position": {"x": 1, "y": 2.5}, "data": {}}
EDGE = {"id": "e", "source": "a", "target": "a"}


def graph(node=None, edge=None, **more):
    """Make a valid graph, then break it."""
    return {
        "graph": {
            "nodes": [{**NODE, **(node or {})}],
            "edges": [{**EDGE, **(edge or {})}],
            **more,
        }
    }


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"name": ""}, ["name"]),
        ({"name": "x" * 151, "description": "y" * 1001}, ["name", "description"]),
        ({"name": None}, ["name"]),
        ({"colour": "red", "replacesDefaults": 1}, ["colour", "replacesDefaults"]),
        ({"triggerType": 4}, ["triggerType"]),
        ({"graph": []}, ["graph"]),
        ({"graph": {}}, ["graph.nodes", "graph.edges"]),
        ({"graph": {"nodes": {}, "edges": []}}, ["graph.nodes"]),
        (graph(node={"id": ""}), ["graph.nodes.0.id"]),
        (graph(node={"label": "x"}), ["graph.nodes.0.label"]),
        (
            graph(node={"position": {"x": True, "z": 1}}),
            [
                "graph.nodes.0.position.y",
                "graph.nodes.0.position.x",
                "graph.nodes.0.position.z",
            ],
        ),
        (graph(node={"data": {"config": 3}}), ["graph.nodes.0.data.config"]),
        (graph(node={"data": {"more": 3}}), ["graph.nodes.0.data.more"]),
        (graph(edge={"sourceHandle": 1}), ["graph.edges.0.sourceHandle"]),
        (
            graph(edge={"source": "", "w": 1}),
            ["graph.edges.0.source", "graph.edges.0.w"],
        ),
        (graph(viewport={"x": 0, "y": 0}), ["graph.viewport.zoom"]),
        (graph(extra=1), ["graph.extra"]),
    ],
)
async def test_journey_body(service, call, body, fields):
    """Each violation of the journey's rules, at any level of the graph, is named by its path."""
    answered = await call("PUT", "/journeys/jrn_1", json=body)
    assert (answered.status, answered.body["error"]["code"]) == (
        400,
        "validation_failed",
    )
    assert sorted(
        line.partition(": ")[0] for line in answered.body["error"]["details"]
    ) == sorted(fields)
    (entry,) = service.ledger.entries
    assert (entry.applied, entry.refused, entry.answered) == (False, True, 400)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {
            "description": None,
            "graph": None,
            "triggerType": None,
            "replacesDefaults": None,
        },
        graph(),
        {"name": "x" * 150},
    ],
)
async def test_journey_body_that_is_allowed(call, body):
    """Every property is optional, and nullable where the specification allows null."""
    assert (await call("PUT", "/journeys/jrn_1", json=body)).status == 200


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["url", "events"]),
        ({**HOOK, "url": "nowhere"}, ["url"]),
        ({**HOOK, "url": "http://[::1"}, ["url"]),
        ({**HOOK, "events": ["invoice.exploded", "invoice.created"]}, ["events.0"]),
        ({**HOOK, "events": "invoice.created"}, ["events"]),
        ({**HOOK, "status": "paused", "description": 5}, ["status", "description"]),
    ],
)
async def test_webhook_body(call, body, fields):
    """A malformed URL, an unknown event, a missing field and an unknown status are named."""
    answered = await call("POST", "/webhooks", json=body)
    assert (answered.status, answered.body["error"]["code"]) == (
        400,
        "validation_failed",
    )
    assert [
        line.partition(": ")[0] for line in answered.body["error"]["details"]
    ] == fields


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"nickname": "x"}, "nickname: unexpected_key"),
        ({"credit_limit": "5"}, "credit_limit: must be a number"),
        ({"add_members": [{"id": "u"}]}, "add_members.0.role: is required"),
        ({"address": "here"}, "address: must be an object"),
        (
            {"generate_onboarding_url": "yes"},
            "generate_onboarding_url: must be a boolean",
        ),
        ({"brand": {"logo": "ours.png"}}, "brand.logo: must be a valid URL"),
    ],
)
async def test_team_body(call, body, field):
    """A team's unknown keys are rejected, and its fields have their types."""
    answered = await call("POST", "/teams", json=body)
    assert (answered.status, answered.body["error"]["details"]) == (400, [field])


async def test_mapping_and_preferences_bodies(service, call):
    """A mapping needs its fields; `testmode` is a boolean."""
    assert (await call("PUT", "/sheets/mapping", json={})).status == 400
    path = "/users/me/preferences/team_1"
    for body in (
        {"testmode": "on"},
        {"search_collection": 5},
        {"invoices_order_by": None},
    ):
        assert (
            await call("PATCH", path, json=body, token=service.person_token)
        ).status == 400


@pytest.mark.parametrize(
    "body", [{"invoices": [{"metadata": 5}]}, {"idempotency_key": 5}]
)
async def test_income_batch_body(service, call, body):
    """An invoice that lists could not show is refused, and none is issued."""
    assert (await call("POST", "/invoices/income/batch", json=body)).status == 400
    assert service.ledger.effects() == []


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"\xff\xfe",
        b'{"name": NaN}',
        b"[" * 100_000,
        b'{"name": ' + b"1" * 5000 + b"}",
        b"[]",
        b'"x"',
        b"",
    ],
)
async def test_body_that_is_no_json_object(service, call, body):
    """Anything but a JSON object is refused as `invalid_request_body`."""
    answered = await call("PUT", "/journeys/jrn_1", body=body)
    assert (answered.status, answered.body["error"]["code"]) == (
        400,
        "invalid_request_body",
    )
    assert service.ledger.effects() == []


async def test_body_that_is_not_json_in_words(service, call):
    """The refusal says where the text stops being JSON, and the ledger has the text."""
    answered = await call("PUT", "/journeys/jrn_1", body=b'{"name": oops')
    assert answered.body["error"]["message"] == "The body is not valid JSON"
    assert "char 9" in answered.body["error"]["details"]
    assert service.ledger.entries[0].body == '{"name": oops'
