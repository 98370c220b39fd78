"""The short form in which journals keep intents."""

from __future__ import annotations

import pytest

from invsvc_async import Intent, JournalError
from invsvc_async.durable.intents import Commons, Packed, pack, unpack
from invsvc_async.reconcile.intent import Scope


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
