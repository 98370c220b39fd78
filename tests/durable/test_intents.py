"""The short form in which journals keep intents: nothing of one is lost."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from invsvc_async import Intent, JournalError
from invsvc_async.durable.intents import Commons, Packed, pack, unpack
from invsvc_async.reconcile.intent import Scope
from tests.support.fuzzing import FIELDS, plain

WRITES = {
    "operation": st.just("client.write"),
    "path": st.just({"method": "POST", "path": "/x"}),
    "body": plain,
    "has_body": st.booleans(),
}


@settings(max_examples=60, deadline=None)
@given(intents=st.lists(st.builds(Intent, **FIELDS, **WRITES), min_size=1, max_size=3))
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
    assert {*FIELDS, *WRITES} == {each.name for each in attrs.fields(Intent)}


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
