"""Texts that a service truncated within an emoji: an escaped half of a surrogate pair."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, strategies as st

from invsvc_async import UnreadableResponseError
from invsvc_async.codec import envelope as wire
from invsvc_async.codec.envelope import Shape
from invsvc_async.codec.exact_json import without_halves

pytestmark = pytest.mark.untraced

HALVES = {
    "high": (rb'"\ud83d"', rb'"\ufffd"'),
    "low": (rb'"\uDE00"', rb'"\ufffd"'),
    "high before a pair": (rb'"\ud83d\ud83d\ude00"', rb'"\ufffd\ud83d\ude00"'),
    "behind a backslash": (rb'"\\\ud83d"', rb'"\\\ufffd"'),
    "a pair": (rb'"\ud83d\ude00"', rb'"\ud83d\ude00"'),
    "a backslash and letters": (rb'"\\ud83d"', rb'"\\ud83d"'),
    "cut off": (rb'"\ud83', rb'"\ud83'),
    "none": (rb'"\u0041\ue000\n"', rb'"\u0041\ue000\n"'),
}


@pytest.mark.parametrize("text", HALVES)
def test_halves_that_are_replaced(text):
    """Half of a pair becomes U+FFFD; the rest is unchanged."""
    content, whole = HALVES[text]

    assert without_halves(content) == whole


@given(
    st.text(
        st.characters(categories=["Cs"]) | st.sampled_from('\\u"d8\U0001f600'),
        max_size=20,
    )
)
def test_halves_within_any_text(text):
    """Each half becomes U+FFFD, whatever surrounds it."""
    wanted = "".join(
        "\ufffd" if 0xD800 <= ord(each) < 0xE000 else each
        for each in json.loads(json.dumps(text))
    )

    assert wire.loads(without_halves(json.dumps(text).encode())) == wanted


def test_list_with_a_text_that_was_cut():
    """A truncated text makes neither its item nor its page unreadable."""
    content = rb'{"success":true,"data":[{"uuid":"A","series":"\ud83d"},{"uuid":"B"}]}'
    envelope = wire.read_success(
        content, status=200, headers={}, shape=Shape.LIST, operation="x"
    )

    assert envelope.data == [{"uuid": "A", "series": "\ufffd"}, {"uuid": "B"}]


def test_error_with_a_text_that_was_cut():
    """An error envelope with a truncated message is still the service's own."""
    content = rb'{"success":false,"error":{"code":"conflict","message":"no \ud83d"},"timestamp":1}'
    error = wire.read_error(content, status=409, headers={}, operation="x")

    assert (error.own_envelope, error.code, error.message, error.raw) == (
        True,
        "conflict",
        "no \ufffd",
        content,
    )


def test_answer_that_is_cut_besides():
    """An answer that is unreadable even without the halves keeps its original bytes."""
    content = rb'{"success":true,"data":{"id":"\ud83d"'
    with pytest.raises(UnreadableResponseError) as raised:
        wire.read_success(
            content, status=200, headers={}, shape=Shape.STANDARD, operation="x"
        )

    assert raised.value.raw == content


@pytest.mark.parametrize(
    "escape",
    [rb"\\\\", rb"\ud83d", rb"\ud83d\ude00"],
    ids=["backslash", "half", "pair"],
)
@pytest.mark.parametrize("size", [4_000_000, 60_000_000])
def test_halves_of_a_hostile_body(escape, size):
    """The search is fast even for a body of escapes; longer bodies are returned unchanged."""
    content = b'"' + escape * (size // len(escape)) + rb"\ud83d"
    began = time.thread_time()
    whole = without_halves(content)

    assert time.thread_time() - began < 5
    assert whole is content if size > 4_000_000 else whole.endswith(rb"\ufffd")
