"""Answers of random bytes: they are read, or raise our errors."""

from __future__ import annotations

import pickle
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from invsvc_async import FieldError, InvsvcError, UnreadableResponseError, codec, models
from invsvc_async.codec import envelope as wire, exact_json
from invsvc_async.codec.envelope import Shape
from invsvc_async.codec.fields import fields_of
from tests.codec.recorded import SAMPLES
from tests.support.fuzzing import fuzzed, spoilt

pytestmark = [pytest.mark.fuzz, pytest.mark.untraced]

STANDARD = {
    "success": True,
    "data": {"id": "a", "n": 1.5},
    "message": "m",
    "timestamp": 1_750_000_000_000,
}
LISTED = {
    **STANDARD,
    "data": [{"id": "a"}, {"id": "b"}],
    "next": "c",
    "has_more": True,
    "total_results": 2,
}
ERROR = {
    "success": False,
    "error": {"code": "validation_failed", "message": "no", "details": ["a: b"]},
    "timestamp": 1_750_000_000_000,
}
RAW_ERROR = {
    "message": "Invalid",
    "error": "token_expired",
    "error_description": "Invalid",
    "details": {"a": 1},
}
headers = st.dictionaries(
    st.sampled_from(["Retry-After", "Date", "X-Request-Id", "Content-Type"]),
    st.text(max_size=12)
    | st.sampled_from(["1e999", "-1", "9" * 400, "Wed, 21 Oct 2015 07:28:00 GMT"]),
)


@pytest.mark.parametrize("shape", list(Shape))
@fuzzed
@given(content=spoilt(STANDARD) | spoilt(LISTED), headers=headers)
def test_success_of_any_bytes(shape, content, headers):
    """An envelope is read, or raises UnreadableResponseError; so does each of its parts."""
    with suppress(InvsvcError):
        envelope = wire.read_success(
            content, status=200, headers=headers, shape=shape, operation="x"
        )
        repr(envelope)
        _ = envelope.timestamp
        with suppress(InvsvcError):
            _ = envelope.data
        with suppress(InvsvcError):
            _ = envelope.extra


@fuzzed
@given(
    content=spoilt(ERROR) | spoilt(RAW_ERROR),
    headers=headers,
    status=st.integers(300, 999),
)
def test_error_of_any_bytes(content, headers, status):
    """Any error body gives a ServiceError that can be printed and pickled."""
    error = wire.read_error(content, status=status, headers=headers, operation="x")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own

    assert (str(again), again.code, again.raw) == (str(error), error.code, error.raw)
    assert error.retry_after is None or error.retry_after >= 0
    assert error.__class__.__name__ in repr(error)


def test_name_beside_a_list_that_is_no_utf8():
    """It does not affect the list; only the member itself is unreadable."""
    content = b'{"success":true,"data":[{"id":"a"}],"\x80":1}'
    envelope = wire.read_success(
        content, status=200, headers={}, shape=Shape.LIST, operation="x"
    )

    assert envelope.data == [{"id": "a"}]
    with pytest.raises(UnreadableResponseError):
        _ = envelope.extra


@pytest.mark.parametrize("name", SAMPLES)
@fuzzed
@given(seen=st.data())
def test_model_of_any_bytes(name, seen):
    """A damaged resource becomes a model that is encoded as received, or is unreadable."""
    content = seen.draw(spoilt(wire.loads(SAMPLES[name].encode())))
    try:
        model = codec.decode(getattr(models, name), content)
    except UnreadableResponseError:
        return
    for field in fields_of(type(model)):
        with suppress(FieldError):
            getattr(model, field.name)
    assert repr(pickle.loads(pickle.dumps(model))) == repr(model)  # noqa: S301 - our own
    assert exact_json.salvage(
        exact_json.dumps(codec.unstructure(model))
    ) == exact_json.salvage(exact_json.without_halves(content))
