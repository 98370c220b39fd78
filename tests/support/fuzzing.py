"""
Damage valid JSON and bytes in small ways, and make intents at any stage.

``FUZZ_EXAMPLES`` sets how many examples each test tries.
"""

from __future__ import annotations

import copy
import json
import os
from typing import Any

from hypothesis import HealthCheck, settings, strategies as st

from invsvc_async import ApiKey, Client, Intent
from invsvc_async.codec import envelope
from invsvc_async.reconcile.history import Bounds
from invsvc_async.reconcile.intent import Scope, Sent, SentEnd
from invsvc_async.settings import ReconcilePolicy, Timeouts

fuzzed = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "25")),
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,  # capsys is emptied by each example
    ],
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
seconds = st.floats(0, 1e6, allow_nan=False).map(lambda number: round(number, 3))
numbers = (
    st.integers()
    | st.integers(-2, 2)
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.just(10**400)
)
plain = st.recursive(
    st.none() | st.booleans() | texts | numbers,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4)
    ),
    max_leaves=8,
)
OFFLINE = Client("http://127.0.0.1:1/v2", ApiKey("never-sent"))


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """Change one place of a JSON value: another value there, none, or one more."""
    value = copy.deepcopy(value)
    place = value
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return draw(plain)
        key = draw(st.sampled_from(keys))
        inner = place[key]
        if isinstance(inner, (dict, list)) and inner and draw(st.booleans()):
            place = inner
            continue
        match draw(st.sampled_from(("other", "other", "gone", "more"))):
            case "gone":
                del place[key]
            case "more" if isinstance(place, dict):
                place[draw(texts)] = draw(plain)
            case _:
                place[key] = draw(plain)
        return value


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Damage a few bytes: others, none, or more of them; or cut the end off."""
    spoilt = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(spoilt)))
        spoilt[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return (
        bytes(spoilt[: draw(st.integers(0, len(spoilt)))])
        if draw(st.integers(0, 9)) == 0
        else bytes(spoilt)
    )


def spoilt(value: Any) -> st.SearchStrategy[bytes]:
    """Yield bytes that are nearly *value* in JSON, and some that are entirely different."""
    text = envelope.dumps(value)
    return (
        changed(value).map(envelope.dumps)
        | damaged(text)
        | st.binary(max_size=200)
        | plain.map(envelope.dumps)
    )


WRITES = {
    "webhooks.create": {
        "path": {},
        "body": {"url": "https://me.example/in", "events": ["invoice.created"]},
    },
    "webhooks.update": {
        "path": {"id": "wh_1"},
        "body": {"description": "d", "status": "active"},
    },
    "webhooks.delete": {"path": {"id": "wh_1"}, "body": None, "has_body": False},
    "journeys.update": {
        "path": {"id": "jrn_1"},
        "body": {"name": "n", "graph": {"nodes": [], "edges": []}},
    },
    "sheets.save_mapping": {"path": {}, "body": {"fields": {"a": 1}}},
}


sends = st.builds(
    Sent,
    earliest=st.none() | seconds,
    latest=st.none() | seconds,
    attempt_timeout=st.floats(0.1, 100),
    end=st.none()
    | st.builds(
        SentEnd,
        kind=st.sampled_from(["applied", "not applied", "short", "long"]),
        latest=st.none() | seconds,
        earliest=st.none() | seconds,
    ),
)
objects = st.dictionaries(texts, plain, max_size=2)
FIELDS = {  # of an intent, beside those that depend on its operation
    "key": texts.filter(lambda text: text.isprintable() and text),
    "query": st.dictionaries(texts, texts, max_size=2),
    "scope": st.builds(
        Scope,
        base_url=st.just("https://host.example/v2"),
        team=st.none() | texts,
        livemode=st.none() | st.booleans(),
        credential=st.none() | texts,
    ),
    "tag": st.none() | texts,
    "baseline": st.none() | objects,
    "bounds": st.none()
    | st.builds(lambda low, width: Bounds(low=low, high=low + width), seconds, seconds),
    "sent": st.lists(sends, max_size=2).map(tuple),
    "strangers": st.lists(texts, max_size=2).map(tuple),
    "forgotten_until": st.none() | st.integers(0, 10**13),
    "newest": st.none() | st.booleans(),
    "baseline_at": st.none() | seconds,
    "nonce": st.none() | texts,
    "mixture": st.none() | texts,
    "policy": st.builds(
        ReconcilePolicy,
        settle_after_loss=seconds,
        max_resends=st.integers(0, 3),
        resend=st.sampled_from(["proven", "never"]),
    ),
    "timeouts": st.builds(Timeouts, attempt=st.floats(0.1, 100)),
    "reader": st.none() | texts,
    "headers": st.dictionaries(st.just("X-Trace"), st.sampled_from(["", "a", "é"])),
    "trace": st.none() | texts,
}


@st.composite
def intents(draw: st.DrawFn) -> Intent:
    """Make an intent of any write, as far as it may have got."""
    operation = draw(st.sampled_from(sorted(WRITES)))
    body = WRITES[operation]["body"]
    more = draw(objects) if body is not None else {}
    fields = draw(st.fixed_dictionaries(FIELDS))
    return Intent(
        **fields,
        operation=operation,
        **{**WRITES[operation], "body": None if body is None else {**more, **body}},
    )


def as_wire(intent: Intent) -> Any:
    """Return an intent without the difference of 1 and 1.0."""
    return json.loads(intent.to_json(), parse_int=float)
