"""The limit on nesting, at the limit and one level beyond it, wherever JSON comes in."""

from __future__ import annotations

import io
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from benchmarks import bodies
from invsvc_async import Intent, codec, events
from invsvc_async.api.json_values import to_wire
from invsvc_async.batch.file_check import Line, read_lines
from invsvc_async.codec import envelope
from invsvc_async.codec.envelope import Shape
from invsvc_async.codec.nesting import DEEPEST, NestingError, check_depth
from invsvc_async.errors import (
    InvalidRequestError,
    MalformedEventError,
    UnreadableResponseError,
)
from invsvc_async.models import Invoice, Journey
from invsvc_async.simulator.json_records import read_json
from tests.support.fuzzing import fuzzed, plain

if TYPE_CHECKING:
    from collections.abc import Callable

WHOLE = bodies.invoice(1)
KINDS = [
    pytest.param(b"[", b"]", id="arrays"),
    pytest.param(b'{"a":', b"}", id="objects"),
]


def read(shape: Shape, content: bytes) -> envelope.Envelope:
    return envelope.read_success(
        content, status=200, headers={}, shape=shape, operation="x"
    )


def read_page(cls: Any, content: bytes) -> object:
    return codec.many(cls, read(Shape.LIST, content))


def read_error(content: bytes) -> None:
    """Read an error, whose details are not shown if they are nested, but whose code is read."""
    said = envelope.read_error(content, status=422, headers={}, operation="x")
    if not said.own_envelope:
        raise UnreadableResponseError("unreadable")


def read_line(content: bytes) -> None:
    """Read a line of a batch."""
    (line,) = read_lines(io.BytesIO(content))
    if not isinstance(line, Line):
        raise InvalidRequestError(line.reason)


def page(**fields: object) -> bytes:
    """Make a page with an invoice that has all known fields, and a hole."""
    return (
        json.dumps({"success": True, "data": [WHOLE, {**WHOLE, **fields}]})
        .encode()
        .replace(b'"@"', b"%s")
    )


def intent(body: bytes) -> bytes:
    """Return the JSON of an intent with this body; an invalid field is no matter of depth."""
    return b'{"schema":1,"body":%s}' % body


# Where a text comes in: how it is read, the text with a hole, the levels around the hole, and the error.
ENTRIES: dict[str, tuple[Callable[[bytes], object], bytes, int, type[Exception]]] = {
    "plain": (envelope.loads, b"%s", 0, UnreadableResponseError),
    "standard": (partial(read, Shape.STANDARD), b'{"success":true,"data":%s}', 1, UnreadableResponseError),
    "open": (partial(read, Shape.OPEN), b'{"success":true,"more":%s}', 1, UnreadableResponseError),
    "bare": (partial(read, Shape.BARE), b'{"more":%s}', 1, UnreadableResponseError),
    "beside a list": (
        partial(read, Shape.LIST), b'{"success":true,"data":[],"more":%s}', 1, UnreadableResponseError,
    ),
    "message of a list": (
        partial(read, Shape.LIST), b'{"success":true,"data":[],"message":%s}', 1, UnreadableResponseError,
    ),
    "item": (partial(codec.decode, Invoice), b'{"metadata":{"a":%s}}', 2, UnreadableResponseError),
    "metadata in a page": (partial(read_page, Invoice), page(metadata={"a": "@"}), 4, UnreadableResponseError),
    "fraction in a page": (
        partial(read_page, Invoice), page(metadata={"a": 1.5, "b": "@"}), 4, UnreadableResponseError,
    ),
    "list in a page": (partial(read_page, Invoice), page(payments=["@"]), 4, UnreadableResponseError),
    "unknown field in a page": (partial(read_page, Invoice), page(new="@"), 3, UnreadableResponseError),
    "number in a page": (partial(read_page, Invoice), page(total="@"), 3, UnreadableResponseError),
    "absent fields in a page": (
        partial(read_page, Journey), b'{"success":true,"data":[{"id":"a"},{"config":{"a":%s}}]}', 4,
        UnreadableResponseError,
    ),
    "error": (
        read_error, b'{"success":false,"error":{"code":"c","message":"m","details":%s}}', 2,
        UnreadableResponseError,
    ),
    "delivery": (events.parse, b'{"event":"payment.created","data":{"a":%s}}', 2, MalformedEventError),
    "delivery in a wrapper": (
        events.parse, b'{"payload":{"event":"payment.created","data":{"a":%s}}}', 3, MalformedEventError,
    ),
    "model": (Invoice.from_json, b'{"metadata":{"a":%s}}', 2, InvalidRequestError),
    "line": (read_line, b'{"operation":"journeys.update","arguments":{"a":%s}}', 2, InvalidRequestError),
    "simulator": (read_json, b'{"a":%s}', 1, ValueError),
}  # fmt: skip


@pytest.mark.parametrize(("opens", "closes"), KINDS)
@pytest.mark.parametrize("entry", ENTRIES)
def test_text_at_the_limit_and_beyond(entry, opens, closes):
    """All levels count, those of the envelope too; far beyond is refused like one level beyond."""
    entered, text, around, error = ENTRIES[entry]
    nested = {
        levels: text % (opens * levels + b"1" + closes * levels)
        for levels in (DEEPEST - around, DEEPEST - around + 1, 100_000)
    }
    at, *beyond = nested.values()

    entered(at)
    for each in beyond:
        with pytest.raises(error):
            entered(each)


@pytest.mark.parametrize(("opens", "closes"), KINDS)
def test_intent_beyond_the_limit(opens, closes):
    """Its text is called damaged; at the limit, only its fields are judged."""
    for levels, words in (
        (DEEPEST - 1, "field"),
        (DEEPEST, "damaged"),
        (100_000, "damaged"),
    ):
        with pytest.raises(InvalidRequestError, match=words):
            Intent.from_json(intent(opens * levels + b"1" + closes * levels))


def test_words_of_the_refusal():
    """The error says what the limit is."""
    deep = b"[" * 300 + b"]" * 300

    with pytest.raises(UnreadableResponseError, match="nested deeper than 256 levels"):
        envelope.loads(deep)
    with pytest.raises(
        UnreadableResponseError, match="nested deeper than 256 levels"
    ) as caught:
        read_page(Invoice, b'{"success":true,"data":[{"payments":%s}]}' % deep)
    assert caught.value.raw == b'{"payments":%s}' % deep
    with pytest.raises(MalformedEventError, match="nested deeper than 256 levels"):
        events.parse(b'{"event":"payment.created","data":{"a":%s}}' % deep)


def test_values_that_are_written():
    """What can be read can be written, and an argument can be read in what is written around it."""
    deep: Any = []
    for _ in range(DEEPEST - 1):
        deep = [deep]
    assert envelope.loads(envelope.dumps(deep)) == deep
    with pytest.raises(InvalidRequestError, match="nested deeper than 256 levels"):
        envelope.dumps({"a": deep})
    problems: list[str] = []
    to_wire(deep, "a", problems)
    assert problems == [f"a{'[0]' * 200}: is nested deeper than 200 levels"]


def test_what_is_kept_of_a_page_with_nested_metadata():
    """Such invoices are decoded fast too: nothing of their wire form is kept."""
    made = read_page(Invoice, page(metadata={"a": {"b": [1.5]}}))

    assert [each._rest for each in made] == [None, None]  # type: ignore[attr-defined]


def levels_of(value: object) -> int:
    """Return the depth of a decoded value."""
    if not isinstance(value, (dict, list)):
        return 0
    return 1 + max(
        map(levels_of, value.values() if isinstance(value, dict) else value), default=0
    )


@fuzzed
@given(
    st.lists(
        plain | st.sampled_from(['"', "\\", '\\"', "[" * 9, '"]}', "[\\"]), max_size=6
    ),
    st.integers(0, 9),
)
def test_depth_of_any_text(values, more):
    """Brackets in texts do not count, whatever escapes are beside them."""
    value: Any = values
    for _ in range(DEEPEST - levels_of(values) - 4 + more):
        value = {"\\]": value, '"}': "]" * 300}
    text = json.dumps(value, default=str).encode()

    if levels_of(value) <= DEEPEST:
        check_depth(text)
    else:
        with pytest.raises(NestingError):
            check_depth(text)


def test_text_that_is_no_json():
    """Texts and escapes without an end are searched in linear time."""
    for broken in (
        b'"\\' * 2_000_000,
        b'"["' * 2_000_000,
        b"\\" * 4_000_000,
        b"]" * 4_000_000,
    ):
        check_depth(b"[]" * 300 + broken[:2_000_000])
