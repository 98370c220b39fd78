"""Whatever bytes come in: nothing but our own errors comes out, and what went in whole comes out whole."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
from contextlib import suppress
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from invsvc_async import (
    ApiKey,
    Client,
    Intent,
    InvalidRequestError,
    InvsvcError,
    JournalError,
    UnreadableResponseError,
    wire,
)
from invsvc_async.batch.lines import BadLine, Line, check_line, read_lines
from invsvc_async.batch.pack import Commons, Packed, pack, unpack
from invsvc_async.operations import BY_NAME, Shape
from invsvc_async.reconcile import story
from invsvc_async.reconcile.decide import decide
from invsvc_async.reconcile.evidence import Attempt, Bounds, Done, End, Read, Reading, Send, Wait
from invsvc_async.reconcile.intent import Scope, Sent, SentEnd
from invsvc_async.settings import ReconcilePolicy, Timeouts

fuzzed = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "25")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
seconds = st.floats(0, 1e6, allow_nan=False).map(lambda number: round(number, 3))
numbers = (
    st.integers() | st.integers(-2, 2) | st.decimals(allow_nan=False, allow_infinity=False) | st.just(10**400)
)
plain = st.recursive(
    st.none() | st.booleans() | texts | numbers,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
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
        bytes(spoilt[: draw(st.integers(0, len(spoilt)))]) if draw(st.integers(0, 9)) == 0 else bytes(spoilt)
    )


def spoilt(value: Any) -> st.SearchStrategy[bytes]:
    """Give bytes that are nearly *value* in JSON, and some that are nothing of the kind."""
    text = wire.dumps(value)
    return changed(value).map(wire.dumps) | damaged(text) | st.binary(max_size=200) | plain.map(wire.dumps)


# --- answers

STANDARD = {"success": True, "data": {"id": "a", "n": 1.5}, "message": "m", "timestamp": 1_750_000_000_000}
LISTED = {**STANDARD, "data": [{"id": "a"}, {"id": "b"}], "next": "c", "has_more": True, "total_results": 2}
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
    st.text(max_size=12) | st.sampled_from(["1e999", "-1", "9" * 400, "Wed, 21 Oct 2015 07:28:00 GMT"]),
)


@pytest.mark.parametrize("shape", list(Shape))
@fuzzed
@given(content=spoilt(STANDARD) | spoilt(LISTED), headers=headers)
def test_success_of_any_bytes(shape, content, headers):
    """An envelope is read, or it is an UnreadableResponseError; so is each of its parts."""
    with suppress(InvsvcError):
        envelope = wire.read_success(content, status=200, headers=headers, shape=shape, operation="x")
        repr(envelope)
        _ = envelope.timestamp
        with suppress(InvsvcError):
            _ = envelope.data
        with suppress(InvsvcError):
            _ = envelope.extra


@fuzzed
@given(content=spoilt(ERROR) | spoilt(RAW_ERROR), headers=headers, status=st.integers(300, 999))
def test_error_of_any_bytes(content, headers, status):
    """An error body of any kind gives a ServiceError that prints and pickles, and nothing is raised."""
    error = wire.read_error(content, status=status, headers=headers, operation="x")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own

    assert (str(again), again.code, again.raw) == (str(error), error.code, error.raw)
    assert error.retry_after is None or error.retry_after >= 0
    assert error.__class__.__name__ in repr(error)


# --- intents

bounds = st.builds(lambda low, width: Bounds(low=low, high=low + width), seconds, seconds)
sends = st.builds(
    lambda earliest, more, timeout, end: Sent(
        earliest=earliest, latest=earliest + more, attempt_timeout=timeout, end=end
    ),
    seconds,
    seconds,
    st.floats(0.1, 100),
    st.none() | st.builds(SentEnd, kind=st.sampled_from(["short", "long"]), latest=seconds),
)
scopes = st.builds(
    Scope,
    base_url=st.just("https://host.example/v2"),
    team=st.none() | st.just("team_1"),
    livemode=st.none() | st.booleans(),
    credential=st.none() | st.just("00ff"),
)
WRITES = {
    "webhooks.create": {"path": {}, "body": {"url": "https://me.example/in", "events": ["invoice.created"]}},
    "webhooks.update": {"path": {"id": "wh_1"}, "body": {"description": "d", "status": "active"}},
    "webhooks.delete": {"path": {"id": "wh_1"}, "body": None, "has_body": False},
    "journeys.update": {"path": {"id": "jrn_1"}, "body": {"name": "n", "graph": {"nodes": [], "edges": []}}},
    "sheets.save_mapping": {"path": {}, "body": {"fields": {"a": 1}}},
}


@st.composite
def intents(draw: st.DrawFn) -> Intent:
    """Make an intent of any write, as far as it may have got."""
    operation = draw(st.sampled_from(sorted(WRITES)))
    body = WRITES[operation]["body"]
    more = draw(st.dictionaries(texts, plain, max_size=2)) if body is not None else {}
    return Intent(
        key=draw(texts.filter(lambda text: text.isprintable() and text)),
        operation=operation,
        **{**WRITES[operation], "body": None if body is None else {**more, **body}},
        scope=draw(scopes),
        baseline=draw(st.none() | st.dictionaries(texts, plain, min_size=1, max_size=3)),
        bounds=draw(st.none() | bounds),
        sent=tuple(draw(st.lists(sends, max_size=2))),
        policy=draw(st.builds(ReconcilePolicy, settle_after_loss=seconds, max_resends=st.integers(0, 3))),
        timeouts=draw(st.builds(Timeouts, attempt=st.floats(0.1, 100))),
        reader=draw(st.none() | st.just("mine")),
    )


def as_wire(intent: Intent) -> Any:
    """Give an intent without the difference of 1 and 1.0."""
    return json.loads(intent.to_json(), parse_int=float)


@fuzzed
@given(intent=intents())
def test_intent_there_and_back(intent):
    """No field of an intent is lost in its JSON, nor in the short form of journals."""
    again = Intent.from_json(intent.to_json())
    commons = Commons()
    unpacked = unpack(intent.key, pack(intent, commons), commons)

    assert as_wire(again) == as_wire(unpacked) == as_wire(intent)


@fuzzed
@given(seen=st.data())
def test_intent_of_any_bytes(seen):
    """A damaged or foreign intent is an InvalidRequestError, or an intent that can be kept again."""
    content = seen.draw(spoilt(json.loads(seen.draw(intents()).to_json())))
    with suppress(InvalidRequestError):
        intent = Intent.from_json(content)
        as_wire(Intent.from_json(intent.to_json()))


@fuzzed
@given(seen=st.data())
def test_row_of_a_journal_of_any_bytes(seen):
    """A damaged row is a JournalError, or an intent."""
    commons = Commons()
    packed = pack(seen.draw(intents()), commons)
    whose = seen.draw(st.sampled_from(["row", "common"]))
    if whose == "row":
        text = seen.draw(spoilt(json.loads(packed.text))).decode(errors="replace")
        packed = Packed(common=seen.draw(st.sampled_from([packed.common, 99])), text=text)
    else:
        commons.texts[packed.common] = seen.draw(spoilt(json.loads(commons.texts[packed.common]))).decode(
            errors="replace"
        )
    with suppress(JournalError):
        as_wire(unpack("row-1", packed, commons))


# --- what is read back while a write is settled

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
    """A state that is not what the specification says never raises, and never makes a write be sent."""
    intent = seen.draw(intents())
    shown = SHOWN.get(intent.operation, HOOK)
    state = seen.draw(changed(shown) | plain)
    lost = Attempt(
        started=1.0, ended=1.1, end=End.LOST, timeout=30.0, stamp=seen.draw(st.none() | st.integers())
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
    decision = decide(BY_NAME[intent.operation], intent, (lost, read))

    assert isinstance(decision, Done | Read | Wait | Send)
    if isinstance(decision, Send):
        assert _shows_absence(intent, state)


def _shows_absence(intent: Intent, state: Any) -> bool:
    """Tell whether *state* can mean that the write did not happen."""
    if intent.operation == "webhooks.create":
        return isinstance(state, list) and all(isinstance(each, dict) for each in state)
    return isinstance(state, dict)


@fuzzed
@given(seen=st.data())
def test_story_of_any_bytes(seen):
    """A damaged story is an InvalidRequestError, or it is replayed."""
    intent = attrs.evolve(seen.draw(intents()), reader=None)
    lost = Attempt(started=1.0, ended=1.1, end=End.LOST, timeout=30.0)
    text = story.to_json(intent, (lost,), "unknown", "a reason")
    with suppress(InvsvcError):
        story.from_json(seen.draw(spoilt(json.loads(text))))


# --- what people hand in

LINE = {
    "operation": "webhooks.create",
    "arguments": {"url": "https://me.example/in", "events": ["invoice.created"], "description": "d"},
    "key": "row-17",
}


@fuzzed
@given(lines=st.lists(spoilt(LINE), max_size=4))
def test_lines_of_any_bytes(lines):
    """Each line of an input is a write, or it is named with what is wrong; nothing is raised."""
    for line in read_lines(io.BytesIO(b"\n".join(lines))):
        if isinstance(line, Line):
            found = check_line(OFFLINE, line)
            assert found is None or str(found).startswith(f"line {line.number}: ")
        else:
            assert isinstance(line, BadLine)


@pytest.mark.parametrize("key", ["", "a\nb", "k" * 201], ids=["empty", "of two lines", "long"])
def test_line_of_a_bad_key(key):
    """Its line is named, and no write is left behind that nobody awaits."""
    found = check_line(OFFLINE, Line(3, LINE["operation"], LINE["arguments"], key))

    assert str(found) == "line 3: webhooks.create: key: 1 to 200 printable characters"


def test_name_beside_a_list_that_is_no_utf8():
    """It does not keep the list from being read; only what stands beside it cannot be."""
    content = b'{"success":true,"data":[{"id":"a"}],"\x80":1}'
    envelope = wire.read_success(content, status=200, headers={}, shape=Shape.LIST, operation="x")

    assert envelope.data == [{"id": "a"}]
    with pytest.raises(UnreadableResponseError):
        _ = envelope.extra


@fuzzed
@given(token=texts | st.binary(max_size=60).map(lambda raw: raw.decode("latin-1")))
def test_resume_token_of_any_text(token):
    """A damaged token of a list is an InvalidRequestError."""
    with suppress(InvalidRequestError):
        OFFLINE.invoices.egress().resume(token)


@fuzzed
@given(arguments=st.dictionaries(st.sampled_from(["url", "events", "description", "status", "tag"]), plain))
def test_arguments_of_any_kind(arguments):
    """Arguments of any kind make a write, or they are refused together; the write's intent can be kept."""
    arguments = {"url": "https://me.example/in", "events": ["invoice.created"], **arguments}
    with suppress(InvalidRequestError):
        write = OFFLINE.webhooks.create(**arguments)
        try:
            as_wire(Intent.from_json(write.intent.to_json()))
        finally:
            write.close()
