"""Reading of answers as envelopes and errors."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings, strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from invsvc_async import errors
from invsvc_async.codec import envelope as wire
from invsvc_async.codec.envelope import Shape
from invsvc_async.errors import InvsvcError, UnreadableResponseError

NO_HEADERS: CIMultiDictProxy[str] = CIMultiDictProxy(CIMultiDict())


def success(
    content: bytes, shape: Shape = Shape.STANDARD, **headers: str
) -> wire.Envelope:
    """Read *content* as a 200 answer."""
    return wire.read_success(
        content,
        status=200,
        headers=CIMultiDictProxy(CIMultiDict(headers)),
        shape=shape,
        operation="webhooks.get",
    )


def error(content: bytes, status: int = 400, **headers: str) -> errors.ServiceError:
    """Read *content* as an error answer; ``_`` in a header's name means ``-``."""
    sent = CIMultiDict(
        {name.replace("_", "-"): value for name, value in headers.items()}
    )
    return wire.read_error(
        content, status=status, headers=CIMultiDictProxy(sent), operation="webhooks.get"
    )


def test_standard_envelope_gives_its_parts():
    """The envelope has payload, message and the service's time, with exact numbers."""
    found = success(
        b'{"success": true, "data": {"a": 1.10}, "message": "ok", "timestamp": 1746057600123, "new": 1.0}'
    )

    assert found.success
    assert str(found.data["a"]) == "1.10"
    assert (found.message, found.stamp) == ("ok", 1746057600123)
    assert found.timestamp == datetime(2025, 5, 1, 0, 0, 0, 123000, tzinfo=UTC)
    assert found.extra == {"new": Decimal("1.0")}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (b"", False),
        (b', "has_more": true', True),
        (b', "next": "c2"', True),
        (b', "total_results": 1', False),
        (b', "total_results": 2', True),
    ],
)
def test_list_that_is_cut(more, expected):
    """A list has more items than it shows if any member of its answer says so."""
    found = success(b'{"success": true, "data": [{}]' + more + b"}", Shape.LIST)

    assert wire.is_cut(found, 1) is expected


def test_list_envelope_gives_its_pagination():
    """Cursor and page numbers are attributes; each item keeps its own bytes."""
    found = success(
        b'{"success":true,"data":[{"a":1},2],"next":"c","has_more":true,"total_results":7,"page":2,"per_page":3}',
        Shape.LIST,
    )

    assert [bytes(raw) for raw in found.raw] == [b'{"a":1}', b"2"]
    assert found.data == [{"a": 1}, 2]
    assert (
        found.next,
        found.has_more,
        found.total_results,
        found.page,
        found.per_page,
    ) == (
        "c",
        True,
        7,
        2,
        3,
    )


@pytest.mark.parametrize(
    ("timestamp", "stamp"),
    [(b"1746057600123", 1746057600123), (b"1746057600123.0", 1746057600123), (b'"now"', None), (b"null", None),
     (b"1.5", None), (b"true", None), (b"1e300", None), (b"253402300799999", 253402300799999),
     (b"253402300800000", None), (b"-62135596800000", -62135596800000), (b"-62135596800001", None),
     (b"1" + b"0" * 308, None), (b"-1" + b"0" * 4000, None)],
    ids=lambda value: f"{value!r:.20}",
)  # fmt: skip
@pytest.mark.parametrize("shape", [Shape.STANDARD, Shape.OPEN, Shape.LIST])
def test_timestamp_that_is_no_time_is_none(timestamp, stamp, shape):
    """A time that is invalid or outside the calendar is ignored."""
    found = success(
        b'{"success": true, "data": [], "timestamp": %s}' % timestamp, shape
    )

    assert found.stamp == stamp
    assert (found.timestamp is None) == (stamp is None)


def test_missing_parts_are_none():
    """An envelope without time, message or pagination is accepted."""
    found = success(b'{"success": true, "data": []}', Shape.LIST)

    assert (
        found.stamp,
        found.timestamp,
        found.message,
        found.next,
        found.has_more,
    ) == (
        None,
        None,
        None,
        None,
        False,
    )


@pytest.mark.parametrize("data", [b"{}", b"[]", b"null", b"7"])
def test_payload_of_any_type_is_a_payload(data):
    """Any payload is accepted; the decoder checks whether it fits the operation."""
    assert success(b'{"success": true, "data": %s}' % data).data == wire.loads(data)


def test_open_answer_needs_no_payload():
    """Any object whose success is true is accepted, with or without a payload."""
    assert (
        success(b'{"success": true, "message": "Webhook deleted"}', Shape.OPEN).message
        == "Webhook deleted"
    )
    assert success(b'{"success": true}', Shape.OPEN).data is None
    assert success(
        b'{"success": true, "data": {"id": "a"}, "id": "b"}', Shape.OPEN
    ).data == {"id": "a"}
    assert success(b'{"success": true, "id": "b"}', Shape.OPEN).extra == {"id": "b"}


def test_bare_answer_is_the_payload():
    """Without an envelope, the whole object is the payload."""
    assert (
        success(b'{"status": "ok", "module": "webhooks"}', Shape.BARE).data["status"]
        == "ok"
    )


@pytest.mark.parametrize(
    "around", [(b"[", b"]"), (b'{"a":', b"}")], ids=["arrays", "objects"]
)
@pytest.mark.parametrize("depth", [30, 33, 150, 254])
@pytest.mark.parametrize(
    "body",
    [b'{"message":"m","details":%s}', b'{"success":false,"error":{"details":%s}}'],
)
def test_details_that_are_nested(body, depth, around):
    """Details are kept while they are shallow enough to show and pickle; otherwise the error says where they are."""
    details = around[0] * depth + b"1" + around[1] * depth
    found = error(body % details, 401)

    assert found.details == (
        wire.loads(details) if depth == 30 else "nested too deep: see .raw"
    )
    assert str(found) == str(pickle.loads(pickle.dumps(found)))  # noqa: S301 - our own


@pytest.mark.parametrize("shape", Shape)
@pytest.mark.parametrize(
    "content",
    [b"", b" ", b"<html>502</html>", b"[]", b"null", b'"x"', b"{", b'{"success": tru', b'\xef\xbb\xbf{"success": true}',
     b"[" * 100_000, b'{"success": true, "data": ' + b"[" * 100_000, b"NaN", b'{"a": NaN}', b'{"success": true, "data": {}} x'],
    ids=repr,
)  # fmt: skip
def test_answer_that_is_no_envelope_is_unreadable(content, shape):
    """Empty, HTML, truncated, another type, too deep: each raises the same error, with the body."""
    with pytest.raises(
        UnreadableResponseError, match=r"webhooks\.get: the answer \(HTTP 200\)"
    ) as caught:
        success(content, shape)

    assert caught.value.raw == content[:65536]
    assert (caught.value.status, caught.value.operation) == (200, "webhooks.get")


@pytest.mark.parametrize(
    ("content", "shape"),
    [
        (b'{"success": false, "data": {}}', Shape.STANDARD),
        (b'{"success": false}', Shape.OPEN),
        (b'{"success": false, "data": []}', Shape.LIST),
        (b'{"success": "true", "data": {}}', Shape.STANDARD),
        (b'{"success": 1, "data": {}}', Shape.STANDARD),
        (b'{"data": {}}', Shape.STANDARD),
        (b'{"message": "gone"}', Shape.OPEN),
        (b'{"success": true}', Shape.STANDARD),
        (b'{"success": true}', Shape.LIST),
        (b'{"success": true, "data": {}}', Shape.LIST),
        (b'{"success": true, "data": [], "next": 7}', Shape.LIST),
        (b'{"success": true, "data": [], "has_more": "yes"}', Shape.LIST),
        (b'{"success": true, "data": "\xff"}', Shape.STANDARD),
        (b'{"status": "\xff"}', Shape.BARE),
    ],
)
def test_envelope_that_is_not_of_the_shape_is_unreadable(content, shape):
    """No success, no required payload, a cursor that is not text, invalid UTF-8: unreadable."""
    with pytest.raises(UnreadableResponseError):
        success(content, shape)


def test_bad_byte_in_one_item_of_a_list_is_left_to_that_item():
    """Invalid UTF-8 in one item does not affect the others."""
    assert (
        len(success(b'{"success": true, "data": [{"a": "\xff"}, {}]}', Shape.LIST).raw)
        == 2
    )


def test_equal_names_give_the_last():
    """Of members with equal names the last counts."""
    assert (
        success(b'{"success": false, "success": true, "data": 1, "data": 2}').data == 2
    )


def test_unreadable_answer_names_its_content_type():
    """The message describes what was received."""
    with pytest.raises(UnreadableResponseError, match="6 bytes, text/html"):
        wire.read_success(
            b"<html>",
            status=200,
            headers={"Content-Type": "text/html"},
            shape=Shape.LIST,
            operation="x",
        )


def test_standard_error_envelope_is_the_services_own():
    """Code, message, details and time are read; the status determines the class."""
    found = error(
        b'{"success": false, "error": {"code": "validation_failed", "message": "m", "details": ["a: b", "c: d"]},'
        b' "timestamp": 1746057600123}'
    )

    assert type(found) is errors.ValidationFailedError
    assert (found.code, found.message, found.details) == (
        "validation_failed",
        "m",
        ("a: b", "c: d"),
    )
    assert found.timestamp == datetime(2025, 5, 1, 0, 0, 0, 123000, tzinfo=UTC)
    assert found.own_envelope
    assert found.operation == "webhooks.get"


def test_refusal_that_is_no_matter_of_tokens():
    """A 401 in the standard envelope is not a reason to refresh the token."""
    envelope = {
        "success": False,
        "error": {"code": "unauthorized", "message": "m"},
        "timestamp": 1,
    }

    assert "the team's plan has the feature" in str(
        error(json.dumps(envelope).encode(), 401)
    )
    assert "credential is valid" in str(error(b'{"message": "m"}', 401))


def test_authentication_layers_body_gives_the_same_class():
    """Its error is the code, its details are text or an object; it is not the service's own envelope."""
    found = error(
        b'{"message": "Access token has expired.", "error": "token_expired", "details": {"a": 1}}',
        401,
    )

    assert type(found) is errors.AuthenticationError
    assert (found.code, found.message, found.details) == (
        "token_expired",
        "Access token has expired.",
        {"a": 1},
    )
    assert not found.own_envelope
    assert (
        error(b'{"message": "Forbidden", "details": "Invalid API Key"}', 403).details
        == "Invalid API Key"
    )


@pytest.mark.parametrize(
    "content",
    [b"", b"<html>bad gateway</html>", b"[]", b"null", b"{", b"\xff", b"[" * 100_000, b"9" * 1_000_000, b'{"error": 7}',
     b'{"success": false, "error": "text"}', b'{"success": false, "error": {"code": 7, "message": "m"}}',
     b'{"success": false, "error": {"message": "m"}}', b'{"success": true, "error": {"code": "c", "message": "m"}}',
     b'{"error": {"code": "c", "message": "m"}}', b'{"success": false}'],
    ids=lambda content: repr(content[:50]),
)  # fmt: skip
def test_error_body_that_is_not_the_services_own_is_told_apart(content):
    """A proxy's page still raises the error of the status, but is not evidence of the service."""
    found = error(content, 502)

    assert type(found) is errors.ServerError
    assert not found.own_envelope
    assert found.raw == content[:65536]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry_After": "3"}, 3.0),
        ({"retry_after": " 0 "}, 0.0),
        (
            {
                "Retry_After": "Thu, 01 May 2025 00:00:30 GMT",
                "Date": "Thu, 01 May 2025 00:00:10 GMT",
            },
            20.0,
        ),
        (
            {
                "Retry_After": "Thu, 01 May 2025 00:00:00 GMT",
                "Date": "Thu, 01 May 2025 00:00:10 GMT",
            },
            0.0,
        ),
        ({"Retry_After": "Thu, 01 May 2025 00:00:30 GMT"}, None),
        (
            {
                "Retry_After": "Thu, 01 May 2025 00:00:30 -0000",
                "Date": "Thu, 01 May 2025 00:00:10 GMT",
            },
            20.0,
        ),
        ({"Retry_After": "-3"}, None),
        ({"Retry_After": "1.5"}, 1.5),
        ({"Retry_After": "soon"}, None),
        ({"Retry_After": "9" * 400}, None),
        ({}, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(headers, seconds):
    """A date is compared with the answer's own Date, not a local clock; invalid values are ignored."""
    assert error(b"{}", 429, **headers).retry_after == seconds


def test_request_id_is_carried():
    """The request id of a header is in the envelope."""
    assert wire.read_success(
        b'{"success": true, "data": 1}', status=200, headers=CIMultiDict({"x-request-id": "r"}), shape=Shape.STANDARD,
        operation="x",
    ).request_id == "r"  # fmt: skip
    assert success(b'{"success": true, "data": 1}').request_id is None


@settings(max_examples=300, deadline=None)
@given(
    content=st.binary(max_size=80)
    | st.sampled_from(
        [b'{"success":true,"data":', b'{"success":false,"error":{"code":"']
    ).flatmap(lambda start: st.binary(max_size=20).map(lambda rest: start + rest)),
    shape=st.sampled_from(list(Shape)),
)
def test_any_bytes_end_in_an_envelope_or_an_error_of_ours(content, shape):
    """Any bytes raise nothing but InvsvcError, and reading an error raises nothing."""
    assert isinstance(error(content, 500), errors.ServerError)
    try:
        found = success(content, shape)
        _ = found.data, found.extra, found.timestamp
    except InvsvcError:
        pass


def test_dumps_writes_numbers_with_their_digits():
    """A decimal is encoded as a number with the same digits; text is UTF-8."""
    plain = {
        "a": Decimal("1.10"),
        "b": [1, True, None, "é", 2.5],
        "c": Decimal("1E+999999999"),
    }

    assert (
        wire.dumps(plain)
        == '{"a":1.10,"b":[1,true,null,"é",2.5],"c":1E+999999999}'.encode()
    )


DEEP: list[object] = []
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (datetime(2025, 5, 1, tzinfo=UTC), r"\$\.a\[0\]"),
        (float("nan"), r"\$\.a\[0\]"),
        (Decimal("Infinity"), r"\$\.a\[0\]"),
        (b"bytes", r"\$\.a\[0\]"),
        ({1: 2}, "the key 1"),
        ({"a"}, "set"),
        ("\ud800", "surrogates"),
        (DEEP, "nested deeper than 256 levels"),
    ],
    ids=["time", "nan", "infinity", "bytes", "key", "set", "surrogate", "deep"],
)
def test_dumps_refuses_what_json_has_no_form_for(value, where):
    """The error names the address of a value that JSON cannot represent."""
    with pytest.raises(errors.InvalidRequestError, match=where):
        wire.dumps({"a": [value]})


@pytest.mark.parametrize(
    "body",
    [
        b'{"success":true,"data":{"secret":"whsec_\\"hush"',
        b'{"secret" : "whsec_hush", "a": 1}<html>',
        b'"secret":"whsec_',
    ],
)
def test_secret_in_an_answer_that_cannot_be_read_is_not_kept(body):
    """The raw body of an error shows everything except a webhook's secret."""
    with pytest.raises(UnreadableResponseError) as caught:
        wire.read_success(
            body,
            status=201,
            headers={},
            shape=Shape.STANDARD,
            operation="webhooks.create",
        )
    assert b"whsec_" not in caught.value.raw
    assert b"***" in caught.value.raw
    assert b"hush" not in pickle.dumps(caught.value)


def test_words_of_the_service_in_an_error():
    """The text of an error is one line of limited length without control characters; its attributes are complete."""
    message = "no\n\x1b[2Jsecond line " + "x" * 5000
    body = json.dumps(
        {"success": False, "error": {"code": "bad", "message": message}}
    ).encode()
    error = wire.read_error(body, status=400, headers={}, operation="webhooks.create")

    assert error.message == message
    assert str(error).isprintable()
    assert str(error).startswith(
        "webhooks.create: HTTP 400 bad (no \ufffd[2Jsecond line xx"
    )
    assert len(str(error)) < 500
