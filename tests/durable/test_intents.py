"""The short form in which journals keep intents."""

from __future__ import annotations

import attrs
import pytest

from invsvc_async import Intent
from invsvc_async.durable import left_keys
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


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        ({"nonce": "another"}, True),
        ({"operation": "webhooks.get"}, False),
        ({"path": {"id": "x"}}, False),
        ({"query": {"a": "b"}}, False),
        ({"has_body": False, "body": None}, False),
        ({"body": {"count": 2}}, False),
    ],
)
def test_what_makes_another_write(changes, is_same):
    """Under one key, two intents are of the same write if they ask for the same."""
    scope = Scope(base_url="https://a.example/v2")
    one = Intent(
        key="a",
        operation="webhooks.update",
        path={"id": "w"},
        scope=scope,
        has_body=True,
        body={"count": 1},
    )
    # reaches: all that may differ, of which a journal shows a part
    assert left_keys._asks_for_same(one, attrs.evolve(one, **changes)) is is_same
