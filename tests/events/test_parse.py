"""What bodies become: every type and version, and every way in which a body can be wrong."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from invsvc_async import events
from invsvc_async.api.operations import EVENT_TYPES
from invsvc_async.errors import FieldError, MalformedEventError
from invsvc_async.models import Customer, Invoice
from tests.events.bodies import (
    RESOURCE_TYPES,
    SIGNED_TYPES,
    VERSIONS,
    encoded,
    headers_of,
    signed_body,
    v1,
    v2,
    v11,
)

pytestmark = pytest.mark.one_python


def test_event_types_of_the_tests() -> None:
    """These tests know the 21 types that the package knows."""
    assert sorted(RESOURCE_TYPES + SIGNED_TYPES) == sorted(EVENT_TYPES)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", RESOURCE_TYPES)
def test_resource_body_of_every_type_and_version(name: str, version: str) -> None:
    """Every resource type is read in every payload version, and is de-duplicated in v2 alone."""
    body = encoded(VERSIONS[version](name))

    event = events.parse(body)

    assert isinstance(event, events.ResourceEvent)
    assert (event.type, event.version, event.is_test, event.is_known) == (
        name,
        version,
        False,
        True,
    )
    assert event.dedupe_key == ("dlv_1" if version == "v2" else None)
    assert event.livemode is False
    assert event.raw == body
    assert event.extra == {}


def test_v1_body() -> None:
    """A v1 body gives team, webhook and the internal form with exact numbers."""
    event = events.parse(
        b'{"event":"payment.created","team":"t","webhook":"wh_1","livemode":true,"data":{"a":1.10}}'
    )

    assert isinstance(event, events.ResourceEvent)
    assert (event.team, event.webhook, event.livemode, event.id, event.created) == (
        "t",
        "wh_1",
        True,
        None,
        None,
    )
    assert event.data == {"a": Decimal("1.10")}
    assert str(event.data["a"]) == "1.10"


def test_v1_body_of_a_connected_team() -> None:
    """The Connect fields are there where the body has them."""
    body = v1(
        "receipt.created",
        connectedTeam="team_2",
        connectedTeamMetadata={"branch": "north"},
    )

    event = events.parse(encoded(body))

    assert isinstance(event, events.ResourceEvent)
    assert event.connected_team == "team_2"
    assert event.connected_team_metadata == {"branch": "north"}


def test_v11_body_with_a_shifted_date() -> None:
    """The wrapper comes off, and the shifted date is handed over as it is."""
    details = {"date": 1_779_978_400_000, "customer": {"address": {"zip": "64000"}}}

    event = events.parse(encoded(v11("invoice.created", data=details)))

    assert isinstance(event, events.ResourceEvent)
    assert event.data == details
    assert (event.team, event.webhook) == ("team_1", "wh_1")


@pytest.mark.parametrize(
    "details",
    [
        {"payload": {"id": "x_1", "total": 1.5}},
        {"payload": {"id": "x_1", "total": 0}, "customer": {"id": "c"}, "date": 5},
    ],
)
def test_v11_body_whose_wrapper_is_round_the_resource(
    details: dict[str, object],
) -> None:
    """The wrapper comes off there too, and what the specification has beside it is of the resource."""
    event = events.parse(encoded(v1("invoice.created", data=details, novel=1)))

    assert isinstance(event, events.ResourceEvent)
    assert (event.version, event.dedupe_key, event.team, event.extra) == (
        "v1.1",
        None,
        "team_1",
        {"novel": 1},
    )
    wrapped = details["payload"]
    assert isinstance(wrapped, dict)
    assert event.data == wrapped | {
        name: each for name, each in details.items() if name != "payload"
    }


@pytest.mark.parametrize(
    "details", [{"payload": "text"}, {"payload": {}, "id": "s_1"}, {"payload": None}]
)
def test_v1_resource_with_a_payload_of_its_own(details: dict[str, object]) -> None:
    """A resource that merely has such a field is no wrapper."""
    event = events.parse(encoded(v1("service.created", data=details)))

    assert isinstance(event, events.ResourceEvent)
    assert (event.version, event.data) == ("v1", details)


def test_v11_body_wrapped_at_both_places() -> None:
    """Only the outer wrapper is one."""
    event = events.parse(encoded(v11("payment.created", data={"payload": {"id": "x"}})))

    assert isinstance(event, events.ResourceEvent)
    assert (event.version, event.data) == ("v1.1", {"payload": {"id": "x"}})


def test_v11_body_with_a_field_beside_the_wrapper() -> None:
    """Fields beside the wrapper are kept, and do not replace those inside it."""
    event = events.parse(
        encoded(
            {**v11("payment.created", novel=1), "beside": True, "data": {"other": 1}}
        )
    )

    assert event.extra == {"novel": 1, "beside": True}
    assert event.data == {"id": "x_1", "totalAmount": 1.5}


@pytest.mark.parametrize(
    ("name", "cls"), [("invoice.canceled", Invoice), ("customer.deleted", Customer)]
)
def test_v2_object_of_a_known_shape(name: str, cls: type[object]) -> None:
    """An invoice or a customer of v2 is the model of the API."""
    assert isinstance(events.parse(encoded(v2(name))).data, cls)


def test_v2_object_of_an_invoice() -> None:
    """Amounts are exact, a broken field costs itself alone, and the model is made once."""
    resource = b'{"uuid":"A","total":1234567890.1234567890,"subtotal":"abc"}'
    body = (
        b'{"id":"d","type":"invoice.created","created":1780000000123,"data":{"object":%s}}'
        % resource
    )

    event = events.parse(body)

    assert isinstance(event, events.ResourceEvent)
    assert event.created == datetime(2026, 5, 28, 20, 26, 40, 123000, tzinfo=UTC)
    assert str(event.data.total) == "1234567890.1234567890"
    with pytest.raises(FieldError):
        _ = event.data.subtotal
    assert event.data is event.data


@pytest.mark.parametrize(
    "name", ["payment.updated", "service.created", "receipt.deleted"]
)
def test_v2_object_that_the_specification_does_not_show(name: str) -> None:
    """Where the specification shows no fields, the object is plain."""
    assert events.parse(
        encoded(v2(name, data={"object": {"id": "p_1"}, "more": 1}))
    ).data == {"id": "p_1"}


def test_sat_body() -> None:
    """A sync body has its time in seconds, a naive local date of issue and exact amounts."""
    event = events.parse(encoded(signed_body("sat.invoice.synced")))

    assert isinstance(event, events.SatInvoiceSynced)
    assert (event.id, event.dedupe_key) == ("evt_0000000000000001",) * 2
    assert event.created_at == datetime(2096, 10, 2, 7, 6, 40, tzinfo=UTC)
    assert event.data.issue_date == datetime(2026, 5, 1, 12, 33, 12)  # noqa: DTZ001 - naive is the point
    assert event.data.total == Decimal("11600.57")
    assert event.data.issuer.rfc == "AAA010101AAA"
    assert event.data.retried is None
    assert event.data.problems == ()


@pytest.mark.parametrize("text", ["yesterday", "2026-05-01T12:00:00Z", "", 5, None])
def test_sat_body_with_another_date_of_issue(text: str) -> None:
    """A date of issue that is no local date-time costs itself alone."""
    body = signed_body("sat.invoice.synced", data={"uuid": "A", "issue_date": text})

    event = events.parse(encoded(body))

    assert isinstance(event, events.SatInvoiceSynced)
    assert event.data.uuid == "A"
    with pytest.raises(MalformedEventError, match="issue_date_sent"):
        _ = event.data.issue_date


def test_batch_body() -> None:
    """A batch body gives its counts and its result."""
    event = events.parse(encoded(signed_body("invoice_batch.completed")))

    assert isinstance(event, events.InvoiceBatchCompleted)
    assert event.data.counts.duplicate == 1
    assert event.data.result is events.BatchResult.PARTIALLY_COMPLETED
    assert event.data.livemode is True
    assert event.data.problems == ()


@pytest.mark.parametrize(
    "body", [v1("robot.painted"), v11("robot.painted"), v2("robot.painted")]
)
def test_unknown_type(body: dict[str, object]) -> None:
    """A type that the specification lacks is kept as a resource event."""
    event = events.parse(encoded(body))

    assert isinstance(event, events.ResourceEvent)
    assert (event.type, event.is_known) == ("robot.painted", False)


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("sat.invoice.lost", events.SatInvoiceSynced),
        ("invoice_batch.begun", events.InvoiceBatchCompleted),
    ],
)
def test_unknown_type_of_a_signed_family(name: str, cls: type[object]) -> None:
    """A new type of a signed family belongs to it, so that it must be signed too."""
    event = events.parse(encoded(signed_body(name)))

    assert isinstance(event, cls)
    assert (event.type, event.is_known) == (name, False)


def test_unknown_fields() -> None:
    """Unknown fields are kept with exact numbers, at the top and in the data."""
    event = events.parse(
        b'{"event":"sat.invoice.synced","id":"evt_1","data":{"uuid":"A","n":1.50},"new":2.50}'
    )

    assert isinstance(event, events.SatInvoiceSynced)
    assert str(event.extra["new"]) == "2.50"
    assert str(event.data.extra["n"]) == "1.50"


def test_duplicate_keys() -> None:
    """Of a key that comes twice the last one counts, everywhere alike."""
    event = events.parse(
        b'{"event":"payment.created","event":"payment.deleted","data":{"a":1},"data":{"a":2}}'
    )

    assert (event.type, event.data) == ("payment.deleted", {"a": 2})


@pytest.mark.parametrize("in_body", [True, False, None])
@pytest.mark.parametrize("in_headers", [True, False])
@pytest.mark.parametrize(
    ("make", "name"),
    [
        *((make, "invoice.created") for make in (v1, v11, v2)),
        *((signed_body, name) for name in SIGNED_TYPES),
    ],
)
def test_test_marks(make, name: str, in_body: bool | None, in_headers: bool) -> None:
    """Either mark of the dashboard makes an event a test."""
    body = encoded(make(name, test=... if in_body is None else in_body))

    event = events.parse(body, headers_of(body, test=in_headers))

    assert event.is_test is (in_body is True or in_headers)
    assert event.body_says_test is (in_body is True)


def test_test_mark_beside_a_wrapper() -> None:
    """The mark counts within the wrapper and beside it."""
    assert events.parse(encoded({**v11("invoice.created"), "test": True})).is_test
    assert events.parse(encoded(v11("invoice.created", test=True))).is_test


@pytest.mark.parametrize("make", [v1, v11])
def test_id_that_the_specification_does_not_give(make) -> None:
    """An id in a v1 body is an unknown field, and is not used to de-duplicate."""
    event = events.parse(
        encoded(make("invoice.created", id="dlv_1", created=5, created_at="2026"))
    )

    assert (event.id, event.dedupe_key, event.created) == (None, None, None)
    assert event.extra == {"id": "dlv_1", "created": 5, "created_at": "2026"}


def test_sample_of_the_dashboard() -> None:
    """A v1 sample leaves out team, webhook and livemode."""
    event = events.parse(
        encoded(v1("invoice.created", team=..., webhook=..., livemode=..., test=True))
    )

    assert isinstance(event, events.ResourceEvent)
    assert (event.team, event.webhook, event.livemode, event.is_test) == (
        None,
        None,
        None,
        True,
    )


@pytest.mark.parametrize(
    "body",
    [
        v2("invoice.created", id=..., test=True),
        signed_body("sat.invoice.synced", id=..., test=True),
    ],
)
def test_sample_without_an_id(body: dict[str, object]) -> None:
    """A sample needs no id."""
    assert events.parse(encoded(body)).dedupe_key is None


DEEP = (
    b'{"event":"payment.created","data":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"{",
        b'{"event":"payment.created","data":{}',
        b"<html></html>",
        b"event=payment.created",
        '{"event":"payment.created","data":{}}'.encode("utf-16"),
        b'{"event":"payment.created","data":{"a":"\xff"}}',
        b'{"event":"payment.created","data":{"a":"\xed\xa0\x80"}}',
        b'{"event":"payment.created","data":{"a":"\\ud800"}}',
        b'{"event":"payment.created","data":{"a":NaN}}',
        b'{"event":"payment.created","data":{}} {}',
        DEEP,
        encoded({}),
        encoded(v1("payment.created", event=5)),
        encoded(v1("")),
        encoded(v1("x" * 256)),
        encoded(v1("pay\x00ment")),
        encoded(v1("payment.created", data=...)),
        encoded(v1("payment.created", data=None)),
        encoded(v1("payment.created", data=[])),
        encoded(v1("payment.created", livemode="yes")),
        encoded(v1("payment.created", team=5)),
        encoded(v1("payment.created", webhook=[])),
        encoded(v1("payment.created", connectedTeamMetadata="x")),
        encoded(v1("payment.created", test="true")),
        encoded({"payload": []}),
        encoded({"payload": {}}),
        encoded({"payload": v2("payment.created")}),
        encoded({"payload": v11("payment.created")}),
        encoded(v2("payment.created", type=5)),
        encoded(v2("payment.created", data={})),
        encoded(v2("payment.created", data={"object": None})),
        encoded(v2("payment.created", data={"object": "x"})),
        encoded(v2("payment.created", id=...)),
        encoded(v2("payment.created", id="")),
        encoded(v2("payment.created", id=5)),
        encoded(v2("payment.created", id="a\x00b")),
        encoded(v2("payment.created", id="x" * 256)),
        encoded(v2("payment.created", created="now")),
        encoded(v2("payment.created", created=1.5)),
        encoded(v2("payment.created", created=True)),
        encoded(v2("payment.created", created=-1)),
        encoded(v2("payment.created", created=10**18)),
        encoded(signed_body("sat.invoice.synced", id=...)),
        encoded(signed_body("sat.invoice.synced", id=7)),
        encoded(signed_body("sat.invoice.synced", created_at=10**12)),
        encoded(signed_body("sat.invoice.synced", data="x")),
        encoded(v2("sat.invoice.synced")),
        encoded({"payload": signed_body("sat.invoice.synced")}),
    ],
)
def test_body_that_is_no_event(body: bytes) -> None:
    """Each is refused as malformed, with the bytes at hand and none of them in the text."""
    with pytest.raises(MalformedEventError) as caught:
        events.parse(body)

    assert caught.value.raw == body[:65536]
    assert str(caught.value).startswith("The body is not an event: ")
    assert pickle.loads(pickle.dumps(caught.value)).raw == body[:65536]  # noqa: S301 - our own bytes


@pytest.mark.parametrize("body", ["{}", None, 5, {"event": "payment.created"}])
def test_body_that_is_not_bytes(body: object) -> None:
    """A body that was already decoded is refused with an error that says so."""
    with pytest.raises(MalformedEventError, match="raw bytes"):
        events.parse(body)  # type: ignore[arg-type]


@pytest.mark.parametrize("cls", [bytearray, memoryview])
def test_body_in_another_buffer(cls) -> None:
    """Any buffer of bytes will do."""
    body = encoded(v2("payment.created"))

    assert events.parse(cls(body)) == events.parse(body)


@pytest.mark.parametrize("number", ["1e99999999999999999999", "1" + "0" * 5000])
@pytest.mark.parametrize(
    "body",
    [
        '{"event":"payment.created","data":{"a":%s}}',
        '{"type":"payment.created","id":"dlv_1","data":{"object":{"a":%s}}}',
    ],
    ids=["v1", "v2"],
)
def test_number_beyond_all_bounds(number: str, body: str) -> None:
    """A number that nothing can hold refuses the data, when that is read; the error has the whole body."""
    event = events.parse((body % number).encode())

    with pytest.raises(MalformedEventError) as caught:
        _ = event.data
    assert caught.value.raw == event.raw


def test_event_is_a_value() -> None:
    """An event is equal by what came, pickles, copies, and shows neither body nor data."""
    body = encoded(v2("invoice.created", number=77))
    event = events.parse(body, {"x-service-test": "true"})

    again = pickle.loads(pickle.dumps(event))  # noqa: S301 - our own bytes

    assert again == event == copy.copy(event)
    assert again.is_test
    assert again.data == event.data
    assert repr(event) == "<ResourceEvent invoice.created dlv_77, a test>"
    with pytest.raises(AttributeError):
        event.raw = b""  # type: ignore[misc]
