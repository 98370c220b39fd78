"""Checks of arguments against the table, and their wire form."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from invsvc_async import ApiKey, Client
from invsvc_async.api import operations
from invsvc_async.api.arguments import are_parameters, check
from invsvc_async.errors import InvalidRequestError
from invsvc_async.models import Journey, Webhook
from invsvc_async.models.common import UNSET
from invsvc_async.settings import ParameterNames

if TYPE_CHECKING:
    from invsvc_async.api.operations import Operation
    from invsvc_async.api.parameters import Checked

UUID4 = "0b9e6b0a-3f52-4d0e-9a6f-6f0d7b8f5a11"


def checked(
    operation: Operation, *, names: ParameterNames | None = None, **given: Any
) -> Checked:
    """Check *given*, with all other arguments left out."""
    extras = {
        name: given.pop(name)
        for name in ("extra_query", "extra_body", "team")
        if name in given
    }
    arguments = {parameter.name: UNSET for parameter in operation.parameters} | given
    return check(operation, arguments, names=names or ParameterNames(), **extras)


def problems(operation: Operation, **given: Any) -> tuple[str, ...]:
    """Return the problems of *given*."""
    with pytest.raises(InvalidRequestError) as caught:
        checked(operation, **given)
    assert caught.value.operation == operation.name
    return caught.value.problems


GRAPH = {
    "nodes": [
        {"id": "n1", "type": "start", "position": {"x": 0, "y": 1.5}, "data": {}}
    ],
    "edges": [{"id": "e1", "source": "n1", "target": "n1", "sourceHandle": None}],
    "viewport": None,
}


def broken_graph(path: str, value: object) -> dict[str, Any]:
    """Make a valid graph with *value* at *path*, or without that member."""
    graph: dict[str, Any] = {
        "nodes": [{**GRAPH["nodes"][0], "position": {"x": 0, "y": 1}, "data": {}}],
        "edges": [dict(GRAPH["edges"][0])],
        "viewport": {"x": 0, "y": 0, "zoom": 1},
    }
    *parents, last = path.split(".")
    spot: Any = graph
    for parent in parents:
        spot = spot[int(parent)] if parent.isdecimal() else spot[parent]
    if value is UNSET:
        del spot[last]
    else:
        spot[last] = value
    return graph


@pytest.mark.parametrize(
    ("operation", "given"),
    [
        (operations.USERS_GET, {"user_id": "usr_1"}),
        (operations.USERS_GET, {"user_id": "a b?c#d%é"}),
        (operations.WEBHOOKS_GET, {"webhook_id": "wh_1"}),
        (operations.PAYMENTS_LINK, {"link_id": "plink_" + "a" * 154}),
        (
            operations.PAYMENTS_REMINDER_OPERATION,
            {"payment_id": "p" * 160, "operation_id": UUID4},
        ),
        (operations.TEAMS_DBTABLE_TABLES, {"team_id": "t" * 128, "base_id": "app-_9"}),
        (operations.USERS_UPDATE_PREFERENCES, {"team_id": "t" * 256, "testmode": True}),
    ],
)
def test_id_that_fits_its_pattern(operation: Operation, given: dict[str, Any]) -> None:
    """An id becomes a segment of the path."""
    path = checked(operation, **given)["path"]

    assert set(path.values()) == {
        value for value in given.values() if isinstance(value, str)
    }


@pytest.mark.parametrize(
    ("operation", "given"),
    [
        (operations.USERS_GET, {"user_id": ""}),
        (operations.USERS_GET, {"user_id": "."}),
        (operations.USERS_GET, {"user_id": ".."}),
        (operations.USERS_GET, {"user_id": "a/b"}),
        (operations.USERS_GET, {"user_id": "a\r\nX: y"}),
        (operations.USERS_GET, {"user_id": "a\x85"}),
        (operations.USERS_GET, {"user_id": "\ud800"}),
        (operations.USERS_GET, {"user_id": "a" * 1025}),
        (operations.USERS_GET, {"user_id": 7}),
        (operations.USERS_GET, {"user_id": None}),
        (operations.WEBHOOKS_GET, {"webhook_id": "health"}),
        (operations.WEBHOOKS_GET, {"webhook_id": "wh_a/../b"}),
        (operations.WEBHOOKS_GET, {"webhook_id": "wh_1\n"}),
        (operations.WEBHOOKS_DELETE, {"webhook": Journey(id="wh_1")}),
        (operations.WEBHOOKS_DELETE, {"webhook": Webhook(url="https://x.example")}),
        (operations.PAYMENTS_LINK, {"link_id": "plink"}),
        (operations.PAYMENTS_LINK, {"link_id": "plink_" + "a" * 155}),
        (operations.PAYMENTS_LINK, {"link_id": "plink_é"}),
        (operations.TEAMS_DBTABLE_WEBHOOKS, {"team_id": "t" * 129}),
        (operations.USERS_UPDATE_PREFERENCES, {"team_id": "t" * 257, "testmode": True}),
        (
            operations.PAYMENTS_REMINDER_OPERATION,
            {"operation_id": UUID4.upper(), "payment_id": "p"},
        ),
        (
            operations.PAYMENTS_REMINDER_OPERATION,
            {"operation_id": UUID4.replace("-4", "-1"), "payment_id": "p"},
        ),
        (
            operations.PAYMENTS_REMINDER_OPERATION,
            {"payment_id": "p" * 161, "operation_id": UUID4},
        ),
    ],
)
def test_id_that_breaks_its_pattern(
    operation: Operation, given: dict[str, Any]
) -> None:
    """An invalid id, or one that could leave its segment, is a problem."""
    (problem,) = problems(operation, **given)

    assert problem.startswith(f"{next(iter(given))}: ")


@pytest.mark.parametrize("rest", ["a" * 1022, "a\x01b", "a\0b", "a\x9fb", "a\ud800b"])
def test_id_that_an_intent_cannot_have(rest: str) -> None:
    """It is refused before anything is stored: no process could read such an intent again."""
    [problem] = problems(
        operations.WEBHOOKS_UPDATE, webhook=f"wh_{rest}", description="x"
    )
    assert "is not a valid id (1 to 1024 characters" in problem


def test_object_in_place_of_its_id() -> None:
    """An object is accepted instead of its id."""
    assert checked(operations.WEBHOOKS_DELETE, webhook=Webhook(id="wh_7"))["path"] == {
        "id": "wh_7"
    }


def test_problems_are_named_all_at_once() -> None:
    """All invalid arguments are in one error, which is a ValueError and says that nothing was sent."""
    with pytest.raises(ValueError, match="Nothing was sent") as caught:
        checked(
            operations.WEBHOOKS_CREATE,
            url="x",
            events=["invoice.paid"],
            status="on",
            description=7,
        )

    assert [problem.split(":")[0] for problem in caught.value.problems] == [  # type: ignore[attr-defined]
        "url", "events", "description", "status",
    ]  # fmt: skip


def test_fields_left_out_and_null() -> None:
    """UNSET leaves a field out; null is sent if the specification allows it, and rejected otherwise."""
    body = checked(
        operations.JOURNEYS_UPDATE, journey="j", description=None, trigger_type=None
    )["body"]

    assert body == {"description": None, "triggerType": None}
    assert problems(operations.JOURNEYS_UPDATE, journey="j", name=None) == (
        "name: must not be null. Leave it out instead",
    )
    assert problems(operations.JOURNEYS_UPDATE, journey=None, name="x") == (
        "journey: must not be null",
    )
    assert problems(operations.WEBHOOKS_CREATE, url=None, events=None) == (
        "url: must not be null",
        "events: must not be null",
    )


def test_update_without_a_field() -> None:
    """It is refused, with the names of the fields: if its answer were lost, no read could show it."""
    (journey,) = problems(operations.JOURNEYS_UPDATE, journey="j")
    (webhook,) = problems(operations.WEBHOOKS_UPDATE, webhook="wh_1")

    assert "name, description, graph, trigger_type, replaces_defaults" in journey
    assert "url, events, description, status" in webhook


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"name": ""}, "name"),
        ({"name": "n" * 151}, "name"),
        ({"name": 5}, "name"),
        ({"description": "d" * 1001}, "description"),
        ({"description": "\ud83d"}, "description"),
        ({"replaces_defaults": 1}, "replaces_defaults"),
        ({"trigger_type": True}, "trigger_type"),
        ({"graph": []}, "graph"),
        ({"graph": {"nodes": []}}, "graph.edges"),
        ({"graph": object()}, "graph"),
    ],
)
def test_journey_field_beyond_its_bounds(given: dict[str, Any], name: str) -> None:
    """Lengths and types are those of the specification."""
    (problem,) = problems(operations.JOURNEYS_UPDATE, journey="j", **given)

    assert problem.startswith(f"{name}: ")


def test_journey_name_at_its_bounds() -> None:
    """1 and 150 characters, and 1000 of description, are accepted."""
    for name in ("n", "n" * 150):
        assert checked(operations.JOURNEYS_UPDATE, journey="j", name=name)["body"] == {
            "name": name
        }
    text = "d" * 1000
    assert checked(operations.JOURNEYS_UPDATE, journey="j", description=text)[
        "body"
    ] == {"description": text}


def test_graph_is_copied() -> None:
    """Changing the graph later does not change what is sent."""
    graph = broken_graph("viewport.zoom", Decimal("1.50"))
    body = checked(operations.JOURNEYS_UPDATE, journey="j", graph=graph)["body"]
    graph["nodes"].clear()

    assert body["graph"]["nodes"][0]["id"] == "n1"
    assert str(body["graph"]["viewport"]["zoom"]) == "1.50"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("extra", 1),
        ("nodes", UNSET),
        ("nodes", {}),
        ("nodes.0.extra", 1),
        ("nodes.0.id", ""),
        ("nodes.0.type", UNSET),
        ("nodes.0.position", UNSET),
        ("nodes.0.position.z", 1),
        ("nodes.0.position.x", "1"),
        ("nodes.0.position.x", True),
        ("nodes.0.position.x", object()),
        ("nodes.0.position", object()),
        ("nodes.0.position.y", UNSET),
        ("nodes.0.data", UNSET),
        ("nodes.0.data.other", 1),
        ("nodes.0.data.config", []),
        ("nodes.0.data.config", {"at": object()}),
        ("edges.0.source", ""),
        ("edges.0.target", UNSET),
        ("edges.0.sourceHandle", 1),
        ("edges.0.label", "x"),
        ("viewport.zoom", UNSET),
        ("viewport.zoom", float("nan")),
        ("viewport.pan", 1),
    ],
)
def test_graph_with_a_flaw(path: str, value: object) -> None:
    """Extra keys, missing keys, empty names and wrong types are rejected at each level, with their address."""
    (problem,) = problems(
        operations.JOURNEYS_UPDATE, journey="j", graph=broken_graph(path, value)
    )

    address = "graph." + path.replace(".0", "[0]")
    assert problem.startswith(address)


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (datetime(2026, 5, 1, 12, tzinfo=UTC), 1_777_636_800_000),
        (
            datetime(2026, 5, 1, 6, tzinfo=timezone(timedelta(hours=-6))),
            1_777_636_800_000,
        ),
        (datetime(2026, 5, 1, 12, 0, 0, 1999, tzinfo=UTC), 1_777_636_800_001),
        (date(2026, 5, 1), 1_777_593_600_000),
        (1_777_593_600_000, 1_777_593_600_000),
        (0, 0),
    ],
)
def test_time_as_ms(value: Any, ms: int) -> None:
    """Aware times, dates (midnight UTC) and ms are sent as whole ms."""
    assert checked(operations.INVOICES_EGRESS, created_after=value)["query"] == {
        "created_after": str(ms)
    }


@pytest.mark.parametrize(
    "value",
    [datetime(2026, 5, 1), "2026-05-01", 1.5, True, -1, None],  # noqa: DTZ001 - naive on purpose
)
def test_time_without_meaning(value: Any) -> None:
    """A naive datetime, text, a fraction, a boolean and a time before the epoch are rejected."""
    (problem,) = problems(operations.INVOICES_EGRESS, created_after=value)

    assert problem.startswith("created_after: ")


def test_range_turned_around() -> None:
    """An empty time range is a problem; a range of one instant is not."""
    late, early = date(2026, 5, 2), date(2026, 5, 1)

    assert problems(
        operations.INVOICES_EGRESS, created_after=late, created_before=early
    )
    assert checked(
        operations.INVOICES_EGRESS, created_after=early, created_before=early
    )


@pytest.mark.parametrize(
    "given",
    [
        {"limit": 0},
        {"limit": 101},
        {"limit": True},
        {"limit": "10"},
        {"limit": 10.0},
        {"limit": None},
        {"cursor": ""},
        {"cursor": None},
        {"order_by": "total"},
        {"order": "down"},
        {"status": "paid"},
        {"series": ""},
        {"folio": 1.0},
        {"folio": True},
        {"metadata": [("a", "b")]},
        {"metadata": {"": "b"}},
        {"metadata": {"a": None}},
        {"metadata": {"a": Decimal("NaN")}},
        {"page": 2},
        {"page": 0, "metadata": {"a": "b"}},
    ],
)
def test_filter_out_of_bounds(given: dict[str, Any]) -> None:
    """Page size, order, status and filters are checked; an empty or null filter would match everything."""
    (problem,) = problems(operations.INVOICES_EGRESS, **given)

    assert problem.split(":")[0].split(".")[0] in given


def test_filters_on_the_wire() -> None:
    """Filters are sent as text under their names, metadata under its prefix."""
    query = checked(
        operations.INVOICES_EGRESS,
        names=ParameterNames(client_id="customer", limit="per_page"),
        limit=100,
        client_id="cli_1",
        folio=17,
        status="cancelled",
        metadata={"order": "A-1", "n": 2, "vip": True},
        page=3,
    )["query"]

    assert query == {
        "per_page": "100",
        "customer": "cli_1",
        "folio": "17",
        "status": "cancelled",
        "metadata.order": "A-1",
        "metadata.n": "2",
        "metadata.vip": "true",
        "page": "3",
    }


def test_name_switched_off() -> None:
    """A filter whose assumed name is None is an error, instead of an unfiltered list."""
    (problem,) = problems(
        operations.INVOICES_EGRESS, names=ParameterNames(client_id=None), client_id="c"
    )

    assert problem == "client_id: is switched off: ParameterNames.client_id is None"


@pytest.mark.parametrize(
    "url",
    ["", "x", "//x.example", "mailto:me@x.example", "https://", "https:///p", "http://x.example:0",
     "http://x:99999", "http://a b", "http://x\n", 7, "https://[::1"],
)  # fmt: skip
def test_url_that_is_none(url: Any) -> None:
    """Only an absolute URL with a host is accepted."""
    assert problems(operations.WEBHOOKS_CREATE, url=url, events=["invoice.created"])


@pytest.mark.parametrize(
    "url", ["https://x.example", "http://127.0.0.1:8080/in?a=b", "https://[::1]/x"]
)
def test_url_as_it_is(url: str) -> None:
    """A URL is sent unchanged."""
    assert (
        checked(operations.WEBHOOKS_CREATE, url=url, events=["invoice.created"])[
            "body"
        ]["url"]
        == url
    )


@pytest.mark.no_secret_scan  # its wrappers would be taken for the caller
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"url": "ftp://x.example"}, "url: is neither http nor https"),
        ({"events": []}, "events: is empty"),
    ],
)
def test_what_is_surely_a_mistake(given: dict[str, Any], words: str) -> None:
    """What the specification allows is accepted, with a warning at the caller's line."""
    client = Client("http://127.0.0.1:1/v2", ApiKey("eyJ.a.b"))
    fields = {"url": "https://x.example", "events": ["invoice.created"], **given}

    with pytest.warns(UserWarning, match=words) as warned:
        write = client.webhooks.create(**fields)

    assert warned[0].filename == __file__
    assert {name: write.intent.body[name] for name in fields} == fields
    write.close()


@pytest.mark.parametrize(
    "events", ["invoice.created", ["invoice.paid"], [7], {"invoice.created": 1}, None]
)
def test_events_that_are_none(events: Any) -> None:
    """Events are a list of names of the specification."""
    assert problems(operations.WEBHOOKS_CREATE, url="https://x.example", events=events)


def test_events_of_every_name() -> None:
    """All 21 names are accepted, in the given order; a set is sorted."""
    assert len(operations.EVENT_TYPES) == 21
    url = "https://x.example"
    body = checked(
        operations.WEBHOOKS_CREATE, url=url, events=operations.EVENT_TYPES[::-1]
    )["body"]
    assert body["events"] == list(operations.EVENT_TYPES[::-1])
    body = checked(
        operations.WEBHOOKS_CREATE,
        url=url,
        events={"invoice.failed", "invoice.created"},
    )["body"]
    assert body["events"] == ["invoice.created", "invoice.failed"]


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({"metadata": {"a": {"b": [1, {2}]}}}, "metadata.a.b[1]"),
        ({"metadata": {1: 2}}, "metadata"),
        ({"metadata": {"a": float("inf")}}, "metadata.a"),
        ({"metadata": {"a": Decimal("NaN")}}, "metadata.a"),
        ({"metadata": {"a": datetime(2026, 1, 1, tzinfo=UTC)}}, "metadata.a"),
        ({"metadata": {"a": 1 << 9000}}, "metadata.a"),
        ({"metadata": {"a": b"x"}}, "metadata.a"),
        ({"metadata": {"\udc00": 1}}, "metadata"),
        ({"address": "street"}, "address"),
        ({"add_members": [{"id": "u"}]}, "add_members[0].role"),
        ({"credit_limit": "5"}, "credit_limit"),
        ({"credit_limit": object()}, "credit_limit"),
        ({"credit_limit": float("nan")}, "credit_limit"),
        ({"generate_onboarding_url": "yes"}, "generate_onboarding_url"),
        ({"extra_body": {"livemode": True}}, "extra_body.livemode"),
        ({"extra_body": {"tax_id": "X"}}, "extra_body.tax_id"),
        ({"extra_body": [1]}, "extra_body"),
        ({"team": "a/b"}, "team"),
        ({"team": 7}, "team"),
    ],
)
def test_body_that_is_no_json(given: dict[str, Any], address: str) -> None:
    """Values that JSON cannot represent, and reserved keys, are reported with their address."""
    (problem,) = problems(operations.TEAMS_CREATE, **given)

    assert problem.startswith(f"{address}: ")


def test_body_without_end() -> None:
    """A body that contains itself is rejected."""
    endless: dict[str, Any] = {}
    endless["again"] = endless

    (problem,) = problems(operations.TEAMS_CREATE, metadata=endless)

    assert problem.endswith("is nested deeper than 200 levels")


def test_numbers_stay_exact() -> None:
    """Numbers are sent with their own digits."""
    body = checked(
        operations.TEAMS_CREATE,
        credit_limit=Decimal("1234567890.123456789"),
        metadata={"n": 10**30},
    )["body"]

    assert str(body["credit_limit"]) == "1234567890.123456789"
    assert body["metadata"]["n"] == 10**30


def test_extra_body_beside_arguments() -> None:
    """Body keys that the specification does not list are sent unchanged."""
    body = checked(
        operations.SHEETS_SAVE_MAPPING,
        fields={"a": "B"},
        extra_body={"target": "payment"},
    )["body"]

    assert body == {"fields": {"a": "B"}, "target": "payment"}


@pytest.mark.parametrize(
    "extra", [{"team": "t"}, {"limit": 5}, {"scope": "mode"}, {"a": [1]}, {"": "x"}]
)
def test_extra_query_that_collides(extra: dict[str, Any]) -> None:
    """A parameter that is an argument, and a value that is not text, are rejected."""
    assert problems(operations.TEAMS_DBTABLE_WEBHOOKS, team_id="t", extra_query=extra)


def test_extra_query_as_given() -> None:
    """Query parameters that the specification does not list are sent as text."""
    query = checked(
        operations.TEAMS_DBTABLE_WEBHOOKS,
        team_id="t",
        extra_query={"offset": 3, "q": "é"},
    )["query"]

    assert query == {"offset": "3", "q": "é"}


def test_parameters_of_a_list() -> None:
    """Only names that a list accepts are its parameters."""
    names = ParameterNames()

    assert are_parameters(
        {"status": "valid", "metadata.a": "b"}, operations.INVOICES_EGRESS, names
    )
    assert not are_parameters({"team": "t"}, operations.INVOICES_EGRESS, names)
    assert not are_parameters(
        {"metadata.a": "b"}, operations.INVOICES_PAYMENT_COMPLEMENTS, names
    )


def test_parameters_that_are_no_object_are_named():
    """Anything but a mapping of parameters is rejected, like every invalid argument."""
    client = Client("https://host.example/v2", ApiKey("k"))
    with pytest.raises(InvalidRequestError, match="params: is a number, not an object"):
        client.write("POST", "/payments", params=5)
