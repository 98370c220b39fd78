"""The short form in which journals keep intents."""

from __future__ import annotations

from invsvc_async import Intent
from invsvc_async.durable.intents import Commons, pack, unpack
from invsvc_async.reconcile.intent import Scope


def test_empty_baseline_is_not_none():
    """A baseline that is an empty object is kept as that: it tells that a state was read."""
    scope = Scope(base_url="https://a.example/v2")
    intent = Intent(
        key="a", operation="webhooks.delete", path={"id": "w"}, scope=scope, baseline={}
    )
    commons = Commons()
    assert unpack("a", pack(intent, commons), commons).baseline == {}
