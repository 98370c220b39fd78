"""Intents and stories as JSON: they survive unchanged, and damage is reported."""

from __future__ import annotations

import json
import pickle

import attrs
import pytest

from invsvc_async import Intent, InvalidRequestError
from invsvc_async.api.operations import BY_NAME
from invsvc_async.reconcile import explain, json_form
from invsvc_async.reconcile.decide import decide
from invsvc_async.reconcile.facts import Known
from invsvc_async.reconcile.history import (  # fmt: skip
    Absent,
    Applied,
    Attempt,
    Bounds,
    CannotTell,
    Closed,
    Done,
    End,
    ErrorFacts,
    Reading,
    Resumed,
    Tick,
)
from invsvc_async.reconcile.intent import Scope, Sent, SentEnd
from invsvc_async.reconcile.safety import safety_of
from invsvc_async.settings import ReconcilePolicy, Timeouts
from tests.support.stories import story_of

INTENT = Intent(
    key="row-17",
    operation="webhooks.create",
    body={
        "url": "https://me.example/in",
        "events": ["invoice.created"],
        "description": "mine [iv-aaaaaaaaaaaaaaaa]",
    },
    scope=Scope(
        base_url="https://host.example/v2",
        team="team_1",
        livemode=True,
        credential="00ff",
    ),
    tag="[iv-aaaaaaaaaaaaaaaa]",
    baseline={"id": "wh_1"},
    bounds=Bounds(low=1.25, high=1.5),
    sent=(
        Sent(
            earliest=1.0,
            latest=2.0,
            attempt_timeout=30.0,
            end=SentEnd(kind="short", latest=3.5, earliest=3.25),
        ),
        Sent(attempt_timeout=5.0),
    ),
    strangers=("wh_7", "wh_8"),
    forgotten_until=1_700,
    newest=False,
    baseline_at=1001.5,
    nonce="0a1b",
    policy=ReconcilePolicy(settle_after_loss=3.0, journey_reader=None),
    timeouts=Timeouts(attempt=4.0),
    reader="mine",
)
HISTORY = (
    Reading(started=0.0, ended=0.1, status=200, own_envelope=True, seen=[{"id": "wh_0"}], raw_count=1, stamp=1_000),
    Attempt(started=0.2, ended=0.3, end=End.ANSWERED, status=500, own_envelope=True, stamp=1_100,
            error=ErrorFacts(kind="ServerError", message="no", status=500, code="internal_server_error")),
    Tick(0.5),
    Reading(started=2.5, ended=2.6, claimed_by_others=frozenset({"wh_7", "wh_8"}), guessed=frozenset({"wh_9"}), error=ErrorFacts(kind="x", message="y")),
    Reading(started=2.7, ended=2.8, finding=CannotTell("why", candidates=({"id": "wh_1"},))),
    Reading(started=2.7, ended=2.8, finding=Applied({"id": "wh_1"}, duplicates=None)),
    Reading(started=2.7, ended=2.8, finding=Absent()),
    Resumed(at=9.0, journaled=True, sender_gone=True, since=8.5, newest=False, reads_only=True),
    Resumed(at=9.0, safety=safety_of(ReconcilePolicy(settle_after_loss=3.0))),
    Closed(9.5),
)  # fmt: skip


def test_intent_survives_json():
    """All parts of an intent are equal after a round trip."""
    assert Intent.from_json(INTENT.to_json()) == INTENT


def test_intent_with_floats_in_its_body_survives_json():
    """It is equal to the one that is read back, whose numbers are decimals; another number is not."""
    body = {**INTENT.body, "x": 1.1, "list": [0.1, 1e22, {"y": 5e-324}], "whole": 10.0}
    intent = attrs.evolve(INTENT, body=body)

    assert Intent.from_json(intent.to_json()) == intent
    assert attrs.evolve(intent, body={**body, "x": 1.2}) != intent


def test_event_without_settings_of_its_run_is_as_earlier_versions_read_it():
    """They know no settings there, and refuse a name that they do not know."""
    assert "safety" not in json_form.event_to_wire(Resumed(at=9.0))


def test_own_journey_reader_survives_by_name():
    """A callable becomes the name under which a client finds its own."""
    own = attrs.evolve(
        INTENT, policy=ReconcilePolicy(journey_reader=lambda _client, _intent: None)
    )
    assert Intent.from_json(own.to_json()).policy.journey_reader == "journey_reader"


def test_story_survives_json_and_replays():
    """A story's events keep their types, so that replaying gives the same decisions."""
    history = HISTORY[:3]
    text = story_of(INTENT, history)
    intent, back, verdict = explain.from_json(text)
    assert (intent, back, verdict) == (INTENT, history, "unknown")
    operation = BY_NAME["webhooks.create"]
    assert [decision for _, decision in explain.replay(intent, back)] == [
        decide(Known(operation, INTENT, history[:n])) for n in range(4)
    ]


def test_every_event_survives_json():
    """Failed reads, claims, findings of user-supplied readers and restarts are included."""
    _, back, _ = explain.from_json(story_of(INTENT, HISTORY))
    assert back == HISTORY
    assert [type(event) for event in back] == [type(event) for event in HISTORY]


def test_replay_stops_at_the_verdict():
    """Events after a verdict are not replayed."""
    answered = (
        Attempt(
            started=0.0,
            ended=0.1,
            end=End.ANSWERED,
            status=200,
            readable=True,
            own_envelope=True,
        ),
    )
    steps = explain.replay(INTENT, (*answered, Tick(9.0)))
    assert isinstance(steps[-1][1], Done)
    assert len(steps) == 2


def test_secret_in_a_reading_is_left_out_of_the_story():
    """If the service shows a secret again, it is not stored."""
    seen = [{"id": "wh_1", "secret": "whsec_hush"}]
    history = (
        Reading(
            started=0.0,
            ended=0.1,
            status=200,
            own_envelope=True,
            seen=seen,
            raw_count=1,
        ),
    )
    assert "whsec_hush" not in story_of(INTENT, history)


def change(**changes):
    plain = json.loads(INTENT.to_json())
    plain.update(changes)
    return json.dumps(plain)


DAMAGED = {
    "empty": ("", "damaged or truncated"),
    "cut off": (INTENT.to_json()[:-20], "damaged or truncated"),
    "not text in UTF-8": (b"\xff\xfe", "damaged or truncated"),
    "lone surrogate": ('{"schema": 1, "key": "\ud800"}', "damaged or truncated"),
    "a list": ("[]", "no schema version"),
    "foreign": ('{"id": 1}', "no schema version"),
    "newer": (change(schema=2), "schema version 2"),
    "true as a version": (change(schema=True), "schema version"),
    "unknown field": (change(colour="red"), "colour"),
    "missing field": (json.dumps({k: v for k, v in json.loads(INTENT.to_json()).items() if k != "scope"}), "scope"),
    "wrong type": (change(key=5), "key"),
    "unknown operation": (change(operation="webhooks.explode"), "no write called"),
    "a read": (change(operation="webhooks.get"), "no write called"),
    "path of another operation": (change(path={"id": "wh_1"}), "its path has"),
    "body that is no object": (change(body=[1]), "body is not an object"),
    "create without url": (change(body={"events": []}), "no url"),
    "baseline that is no object": (change(baseline="x"), "baseline"),
    "end of no kind": (change(sent=[{"earliest": None, "latest": None, "attempt_timeout": 1, "end": {"kind": "maybe", "latest": None}}]), "kind"),
    "time that is text": (change(sent=[{"earliest": "1", "latest": None, "attempt_timeout": 1, "end": None}]), "earliest"),
    "impossible policy": (change(policy={"deadline": -1}), "policy"),
    "time beyond all numbers": (change(sent=[{"earliest": None, "latest": None, "attempt_timeout": 1, "end": None}]).replace('1, "end', '1e999, "end'), "attempt_timeout"),
    "send of less than no time": (change(sent=[{"earliest": None, "latest": None, "attempt_timeout": -1e6, "end": None}]), "less than no time"),
    "query that names a team": (change(query={"team": "team_2"}), "path or query"),
    **{f"id {each!a}": (change(operation="webhooks.delete", path={"id": each}), "path or query") for each in ("", "..", "a/b", "a\n")},
    **{f"path {each!a}": (change(operation="client.write", path={"method": "POST", "path": each}), "path or query") for each in ("x", "//x", "/../x", "/%2e%2e/x", "/a%5Cb", "/x?a=b", "/x y", "/x\r\nX: y", "@a.example/")},
    "method that reads": (change(operation="client.write", path={"method": "GET", "path": "/x"}), "path or query"),
    "no text": (None, "must be text or bytes, not NoneType"),
    "an object": ({"key": "row-17"}, "must be text or bytes, not dict"),
    "foreign reader": (change(policy={"journey_reader": "os.system"}), "reader"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "words"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_intent_is_refused_in_words(text, words):
    """Damaged, truncated, foreign and future texts raise InvalidRequestError with the reason."""
    with pytest.raises(InvalidRequestError, match=words):
        Intent.from_json(text)


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"history": [], "intent": {}, "verdict": 1},
        {"history": [{"event": "boom"}], "verdict": "unknown"},
        {"history": [{"event": []}], "verdict": "unknown"},
    ],
)
def test_damaged_story_is_refused_in_words(plain):
    """A text that is not a story raises InvalidRequestError."""
    with pytest.raises(InvalidRequestError, match="not a story"):
        explain.from_json(
            json.dumps({"schema": 1, "intent": json.loads(INTENT.to_json()), **plain})
        )


def test_intent_that_is_pickled_with_a_reader_of_ones_own():
    """A closure cannot be pickled, so its name is, as in JSON."""

    async def reader(_client, _intent):
        return Absent()

    intent = attrs.evolve(INTENT, policy=ReconcilePolicy(journey_reader=reader))
    back = pickle.loads(pickle.dumps(intent))  # noqa: S301 - our own

    assert back == Intent.from_json(intent.to_json())
    assert back.policy.journey_reader == "journey_reader"
    assert intent.policy.journey_reader is reader
