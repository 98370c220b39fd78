"""Whatever bytes and headers arrive, nothing but an EventError comes out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from invsvc_async import events
from invsvc_async.errors import EventError, FieldError
from tests.events.bodies import (
    HEADER,
    RESOURCE_TYPES,
    SECRET,
    SHARED,
    SIGNED_TYPES,
    headers_of,
    signature,
)
from tests.support.fuzzing import fuzzed

pytestmark = [pytest.mark.fuzz, pytest.mark.one_python]


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.just("\ud800")
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
names = st.sampled_from(
    [*RESOURCE_TYPES, *SIGNED_TYPES, "robot.painted", "sat.", ""]
) | st.text(max_size=10)
fields = st.fixed_dictionaries(
    {},
    optional={
        "type": names | values,
        "event": names | values,
        "id": st.text(max_size=10) | values,
        "created": st.integers(0, 10**13) | values,
        "created_at": st.integers(0, 10**10) | values,
        "livemode": st.booleans() | values,
        "team": values,
        "webhook": values,
        "test": st.booleans() | values,
        "connectedTeam": values,
        "connectedTeamMetadata": values,
        "data": st.fixed_dictionaries(
            {},
            optional={
                "object": values,
                "payload": values | st.fixed_dictionaries({}, optional={"id": values}),
                "customer": values,
                "uuid": values,
                "total": values,
                "issue_date": values,
                "counts": values,
            },
        )
        | values,
        "payload": values,
    },
)
bodies = fields | st.fixed_dictionaries({"payload": fields})


@st.composite
def raw_bodies(draw: Any) -> bytes:
    """Draw bytes: of nonsense, or of almost an event, perhaps cut or with one byte changed."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    raw = bytearray(
        json.dumps(draw(bodies), allow_nan=True).encode("utf-8", "surrogatepass")
    )
    how = draw(st.sampled_from(["whole", "whole", "whole", "cut", "changed"]))
    place = draw(st.integers(0, max(len(raw) - 1, 0)))
    if how == "cut":
        del raw[place:]
    elif how == "changed" and raw:
        raw[place] = draw(st.integers(0, 255))
    return bytes(raw)


texts = st.text(max_size=20) | st.just("\ud800")
headers = st.dictionaries(
    st.sampled_from(
        [
            "X-Service-Signature",
            "x-service-signature",
            "X-Service-Test",
            SHARED[0],
            "Content-Type",
        ]
    )
    | texts,
    st.sampled_from(["true", SHARED[1], "sha256=" + "0" * 64]) | texts,
    max_size=4,
)
pairs = st.lists(
    st.tuples(texts | st.binary(max_size=20), texts | st.binary(max_size=20)),
    max_size=4,
)


def look_at(event: events.Event) -> None:
    """Read all of an event."""
    assert isinstance(event.type, str)
    _ = (
        event.dedupe_key,
        event.is_test,
        event.is_known,
        event.extra,
        repr(event),
        event.raw,
    )
    for name in (
        "created",
        "created_at",
        "livemode",
        "team",
        "webhook",
        "connected_team",
        "connected_team_metadata",
    ):
        getattr(event, name, None)
    found = event.data
    _ = getattr(found, "problems", None)
    for name in ("uuid", "total", "issue_date", "counts", "extra"):
        try:
            getattr(found, name, None)
        except FieldError:
            continue


@fuzzed
@given(raw_bodies(), headers | pairs | st.none())
def test_parse_of_anything(body: bytes, given_headers: Any) -> None:
    """Parsing any bytes gives an event that can be read, or an EventError."""
    try:
        look_at(events.parse(body, given_headers))
    except EventError as error:
        assert str(error)  # noqa: PT017 - either end is fine, and no other


@fuzzed
@given(raw_bodies(), headers | pairs, st.booleans(), st.booleans(), st.booleans())
def test_read_of_anything(
    body: bytes, given_headers: Any, has_secret: bool, has_shared: bool, accept: bool
) -> None:
    """Reading returns an event or raises EventError, and returns no event that nothing authenticates."""
    try:
        event = events.read(
            body,
            given_headers,
            secrets=[SECRET] if has_secret else [],
            shared_header=HEADER if has_shared else None,
            accept_unsigned=accept,
        )
    except EventError:
        return
    assert accept or (has_shared and HEADER.matches(given_headers))
    look_at(event)


@fuzzed
@given(raw_bodies(), headers | pairs, st.booleans())
async def test_receive_of_anything(
    body: bytes, given_headers: Any, signed: bool
) -> None:
    """A receiver answers whatever arrives, and the answer is no 5xx, unless a body was lost on the way."""
    receiver = events.Receiver(
        secrets=SECRET, shared_header=HEADER, store=events.MemoryStore()
    )

    @receiver.on("*")
    async def handle(event: events.Event) -> None:
        assert event.type

    receipt = await receiver.receive(
        body, headers_of(body) | signature(body) if signed else given_headers
    )

    assert receipt.status in (200, 202, 400, 401) or (
        receipt.status == 503 and not body
    )
    assert receipt.status != 401 or not signed


@pytest.mark.parametrize("nesting", [b"[", b'{"a":'])
@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_body_that_is_nested_deep(nesting: bytes, depth: int) -> None:
    """Nesting of any depth ends in an event or an EventError, at once."""
    body = b'{"event":"payment.created","data":{"a":' + nesting * depth
    try:
        look_at(events.parse(body))
    except EventError as error:
        assert len(error.raw) <= 65536  # type: ignore[attr-defined] # noqa: PT017 - either end is fine
