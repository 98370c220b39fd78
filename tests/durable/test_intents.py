"""The short form in which journals keep intents: nothing of one is lost."""

from __future__ import annotations

from decimal import Decimal

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from invsvc_async import Intent, JournalError, ReconcilePolicy, Timeouts
from invsvc_async.durable.intents import Commons, Packed, pack, unpack
from invsvc_async.reconcile.history import Bounds
from invsvc_async.reconcile.intent import Scope, Sent, SentEnd

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
numbers = st.integers() | st.decimals(allow_nan=False, allow_infinity=False).filter(
    lambda value: value != value.to_integral_value()
)
plain = st.recursive(
    st.none() | st.booleans() | texts | numbers | st.just(10**400) | st.just(Decimal("0.10")),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
objects = st.dictionaries(texts, plain, max_size=2)
seconds = st.floats(0, 1e6, allow_nan=False)
sends = st.builds(
    Sent,
    earliest=st.none() | seconds,
    latest=st.none() | seconds,
    attempt_timeout=seconds,
    end=st.none()
    | st.builds(
        SentEnd,
        kind=st.sampled_from(["applied", "not applied", "short", "long"]),
        latest=st.none() | seconds,
        earliest=st.none() | seconds,
    ),
)
FIELDS = {
    "key": texts.filter(bool),
    "operation": st.just("client.write"),
    "path": st.just({"method": "POST", "path": "/x"}),
    "query": st.dictionaries(texts, texts, max_size=2),
    "body": plain,
    "has_body": st.booleans(),
    "scope": st.builds(
        Scope,
        base_url=st.just("https://a.example/v2"),
        team=st.none() | texts,
        livemode=st.none() | st.booleans(),
        credential=st.none() | texts,
    ),
    "tag": st.none() | texts,
    "baseline": st.none() | objects,
    "bounds": st.none() | st.builds(Bounds, low=seconds, high=seconds),
    "sent": st.lists(sends, max_size=2).map(tuple),
    "strangers": st.lists(texts, max_size=2).map(tuple),
    "forgotten_until": st.none() | st.integers(0, 10**13),
    "newest": st.none() | st.booleans(),
    "baseline_at": st.none() | seconds,
    "nonce": st.none() | texts,
    "policy": st.builds(
        ReconcilePolicy, settle_after_loss=seconds, resend=st.sampled_from(["proven", "never"])
    ),
    "timeouts": st.builds(Timeouts, attempt=st.floats(0.1, 100)),
    "reader": st.none() | texts,
    "headers": st.dictionaries(st.just("X-Trace"), st.sampled_from(["", "a", "é"])),
    "trace": st.none() | texts,
}


@settings(max_examples=60, deadline=None)
@given(intents=st.lists(st.builds(Intent, **FIELDS), min_size=1, max_size=3))
def test_any_intent_there_and_back(intents):
    """Of any intent every field comes back as it was, though several share their common parts."""
    commons = Commons()
    stored = [(each.key, pack(each, commons)) for each in intents]
    reopened = Commons()
    for number, text in commons.texts.items():
        reopened.texts[number] = text
    assert [unpack(key, packed, reopened) for key, packed in stored] == intents


def test_every_field_is_tried():
    """A field that is added to intents has its values here too."""
    assert set(FIELDS) == {each.name for each in attrs.fields(Intent)}


def test_empty_baseline_is_not_none():
    """A baseline that is an empty object is kept as that: it tells that a state was read."""
    scope = Scope(base_url="https://a.example/v2")
    intent = Intent(key="a", operation="webhooks.delete", path={"id": "w"}, scope=scope, baseline={})
    commons = Commons()
    assert unpack("a", pack(intent, commons), commons).baseline == {}


@pytest.mark.parametrize(
    "text", ["", "[]", '{"operation": 1}', '{"operation": "webhooks.list"}', '{"more": 1}']
)
def test_what_is_no_intent(text):
    """A stored text that is no intent is a JournalError that names its key."""
    commons = Commons()
    commons.texts[1] = (
        '{"schema": 1, "scope": {"base_url": "https://a.example"}, "policy": {}, "timeouts": {}}'
    )
    with pytest.raises(JournalError, match="entry 'a' of the journal: it cannot be read"):
        unpack("a", Packed(common=1, text=text), commons)
