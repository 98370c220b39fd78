"""Random reads while a write is settled, and random stories that are replayed."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from invsvc_async import Intent, InvsvcError
from invsvc_async.api.operations import BY_NAME
from invsvc_async.reconcile import explain
from invsvc_async.reconcile.decide import decide
from invsvc_async.reconcile.facts import Known
from invsvc_async.reconcile.history import Attempt, Done, End, Read, Reading, Send, Wait
from invsvc_async.reconcile.intent import Scope
from tests.support.fuzzing import WRITES, changed, fuzzed, intents, plain, spoilt
from tests.support.stories import story_of

pytestmark = [pytest.mark.fuzz, pytest.mark.untraced]

SCOPE = Scope(base_url="https://host.example/v2")
HOOK = {
    "id": "wh_1", "url": "https://me.example/in", "events": ["invoice.created"], "status": "active",
    "description": "d", "owner": "usr_1", "created_at": 1_000,
}  # fmt: skip
JOURNEY = {
    "id": "jrn_1",
    "name": "n",
    "status": "draft",
    "last_updated": 1_000,
    "graph": {"nodes": [], "edges": []},
}
SHOWN = {"webhooks.create": [HOOK, HOOK], "journeys.update": JOURNEY}


@fuzzed
@given(seen=st.data())
def test_decision_on_anything_that_is_read(seen):
    """A state that violates the specification does not raise, and does not cause a send."""
    intent = seen.draw(intents())
    shown = SHOWN.get(intent.operation, HOOK)
    state = seen.draw(changed(shown) | plain)
    lost = Attempt(
        started=1.0,
        ended=1.1,
        end=End.LOST,
        timeout=30.0,
        stamp=seen.draw(st.none() | st.integers()),
    )
    read = Reading(
        started=500.0,
        ended=500.1,
        status=200,
        own_envelope=True,
        seen=state,
        raw_count=len(state) if isinstance(state, list) else 0,
        stamp=seen.draw(st.none() | st.integers()),
    )
    intent = attrs.evolve(intent, sent=())
    decision = decide(Known(BY_NAME[intent.operation], intent, (lost, read)))

    assert isinstance(decision, Done | Read | Wait | Send)
    if isinstance(decision, Send):
        assert _shows_absence(intent, state)


def _shows_absence(intent: Intent, state: Any) -> bool:
    """Return whether *state* can mean that the write did not happen."""
    if intent.operation == "webhooks.create":
        return isinstance(state, list) and all(isinstance(each, dict) for each in state)
    return isinstance(state, dict)


@fuzzed
@given(seen=st.data())
def test_story_of_any_bytes(seen):
    """A damaged story raises InvalidRequestError, or is replayed."""
    intent = attrs.evolve(seen.draw(intents()), reader=None)
    lost = Attempt(started=1.0, ended=1.1, end=End.LOST, timeout=30.0)
    text = story_of(intent, (lost,))
    with suppress(InvsvcError):
        found, history, said = explain.from_json(seen.draw(spoilt(json.loads(text))))
        assert explain.tell(found, history, said, "a reason")
        for _, decision in explain.replay(found, history):
            assert isinstance(decision, Done | Read | Wait | Send)


@pytest.mark.parametrize("name", [[], {}, 1, None], ids=repr)
def test_list_of_webhooks_whose_id_is_no_text(name):
    """Such a webhook may be anybody's: with another match, two effects cannot be distinguished from one."""
    seen = [{**HOOK, "id": name}, {**HOOK, "id": name}]
    intent = Intent(
        key="k", operation="webhooks.create", **WRITES["webhooks.create"], scope=SCOPE
    )
    lost = Attempt(started=1.0, ended=1.1, end=End.LOST, timeout=30.0)
    read = Reading(
        started=500.0,
        ended=500.1,
        status=200,
        own_envelope=True,
        seen=seen,
        raw_count=2,
    )

    decision = decide(Known(BY_NAME[intent.operation], intent, (lost, read)))

    assert not isinstance(decision, Send)
