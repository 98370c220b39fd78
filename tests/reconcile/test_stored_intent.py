"""The intent of a write as it is stored at each moment."""

from __future__ import annotations

import attrs
import pytest

from invsvc_async.api.operations import BY_NAME
from invsvc_async.durable.intents import Commons, pack, unpack
from invsvc_async.reconcile.facts import Known
from invsvc_async.reconcile.history import (
    Attempt,
    Bounds,
    End,
    ErrorFacts,
    Reading,
    Resumed,
    Send,
)
from invsvc_async.reconcile.intent import Intent, Scope, Sent, SentEnd
from invsvc_async.reconcile.safety import safety_of
from invsvc_async.reconcile.stored_intent import stored
from invsvc_async.settings import ReconcilePolicy

UPDATE = BY_NAME["webhooks.update"]
HOOK = {"id": "wh_1", "description": "before"}
INTENT = Intent(
    key="k",
    operation="webhooks.update",
    path={"id": "wh_1"},
    body={"description": "mine"},
    scope=Scope(base_url="b"),
)
READ = Reading(
    started=0.0, ended=0.5, status=200, own_envelope=True, seen=HOOK, stamp=1_000_000
)
LOST = Attempt(started=1.0, ended=2.0, end=End.LOST, timeout=7.0)


def test_before_the_first_send():
    """The read before the send gives baseline and bounds; the send itself is included, without an end."""
    known = stored(
        Known(UPDATE, INTENT, (READ,)), send=Send(attempt_timeout=9.0), at=0.75
    )
    assert known.baseline == HOOK
    assert known.bounds == Bounds(low=999.5, high=pytest.approx(1000.001))
    assert known.sent == (
        Sent(earliest=1000.25, latest=pytest.approx(1000.751), attempt_timeout=9.0),
    )


@pytest.mark.parametrize("bounds", [None, Bounds(low=1000.0, high=1000.5)])
@pytest.mark.parametrize("strangers", [(), ("wh_2", "wh_3")])
def test_first_send_of_what_has_no_baseline(bounds, strangers):
    """The quick path, without looking at the history, gives the same as the full one."""
    intent = attrs.evolve(
        INTENT, bounds=bounds, strangers=strangers, sent=(Sent(attempt_timeout=1.0),)
    )
    shown = attrs.evolve(intent, baseline=HOOK)
    told, general = (
        stored(
            Known(UPDATE, each, ()),
            livemode=True,
            send=Send(attempt_timeout=9.0),
            at=0.75,
        )
        for each in (intent, shown)
    )
    assert told == attrs.evolve(general, baseline=None)
    assert (len(told.sent), told.scope.livemode) == (2, True)


NEVER_LEFT = attrs.evolve(LOST, end=End.NOT_SENT)


@pytest.mark.parametrize(
    ("events", "send", "are_of_this_run"),
    [
        ([], None, False),
        ([READ], None, False),
        ([READ], Send(attempt_timeout=9.0), True),
        ([READ, NEVER_LEFT], None, False),
        ([READ, LOST], None, True),
    ],
)
def test_settings_by_which_the_next_run_judges(events, send, are_of_this_run):
    """They are those of this run once it has sent the write, and of the runs before until then."""
    intent = attrs.evolve(INTENT, sent=(Sent(attempt_timeout=1.0),))
    own = ReconcilePolicy(settle_after_loss=60.0)
    history = (Resumed(at=0.0, safety=safety_of(own)), *events)
    left = stored(Known(UPDATE, intent, history), send=send, at=2.0)
    assert left.policy == (own if are_of_this_run else intent.policy)


def test_intent_that_is_revised_leaves_the_one_before():
    """The earlier intent is unchanged, and shares its parts with the new one."""
    before = attrs.asdict(INTENT)
    revised = stored(
        Known(UPDATE, INTENT, (READ,)), send=Send(attempt_timeout=9.0), at=0.75
    )
    assert attrs.asdict(INTENT) == before
    assert (revised.body, revised.policy, revised.key) == (
        INTENT.body,
        INTENT.policy,
        INTENT.key,
    )
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        revised.key = "other"


def test_without_bounds_no_time_is_claimed():
    """If the service's clock is not known, neither is the time of the send."""
    known = stored(Known(UPDATE, INTENT, ()), send=Send(attempt_timeout=9.0), at=0.75)
    assert known.sent == (Sent(attempt_timeout=9.0),)
    assert stored(Known(UPDATE, INTENT, (LOST,))).sent == (
        Sent(attempt_timeout=7.0, end=SentEnd(kind="long")),
    )


def attempt(**changes):
    return attrs.evolve(LOST, **changes)


@pytest.mark.parametrize(
    ("ended", "kind"),
    [
        (LOST, "long"),
        (attempt(end=End.NOT_SENT), "not applied"),
        (attempt(end=End.ANSWERED, status=500, own_envelope=True), "short"),
        (attempt(end=End.ANSWERED, status=500), "long"),
        (attempt(end=End.ANSWERED, status=501, own_envelope=True), "long"),
        (attempt(end=End.ANSWERED, status=408, own_envelope=True), "long"),
        (attempt(end=End.ANSWERED, status=399), "long"),
        (attempt(end=End.ANSWERED, status=100), "long"),
        (attempt(end=End.ANSWERED, status=400, own_envelope=True), "not applied"),
        (attempt(end=End.ANSWERED, status=429, own_envelope=True), "not applied"),
        (attempt(end=End.ANSWERED, status=499, own_envelope=True), "not applied"),
        (attempt(end=End.ANSWERED, status=404, own_envelope=True), "not applied"),
        (attempt(end=End.ANSWERED, status=409, own_envelope=True), "not applied"),
        (attempt(end=End.ANSWERED, status=410, own_envelope=True), "not applied"),
        (attempt(end=End.ANSWERED, status=401, of_authentication=True), "not applied"),
        (attempt(end=End.ANSWERED, status=403), "long"),
        (attempt(end=End.ANSWERED, status=404), "long"),
        (attempt(end=End.ANSWERED, status=202, readable=True), "long"),
        (attempt(end=End.ANSWERED, status=200, readable=True), "applied"),
        (attempt(end=End.ANSWERED, status=299, readable=True), "applied"),
        (attempt(end=End.ANSWERED, status=300, readable=True), "long"),
        (attempt(end=End.ANSWERED, status=200), "long"),
        (attempt(end=End.ANSWERED, status=None), "long"),
        (attempt(end=End.LOST, status=200, readable=True), "long"),
    ],
)
def test_end_of_a_send(ended, kind):
    """An end is stored as its consequence, with bounds of its server time."""
    (sent,) = stored(Known(UPDATE, INTENT, (READ, ended))).sent
    assert sent.end == SentEnd(
        kind=kind, latest=pytest.approx(1002.001), earliest=pytest.approx(1001.5)
    )
    assert sent.attempt_timeout == 7.0
    assert sent.earliest == pytest.approx(1000.5)
    assert sent.latest == pytest.approx(1001.001)


@pytest.mark.parametrize("status", [403, 404, 409])
def test_refusal_that_a_read_must_confirm(status):
    """Its error is stored with the send, as another process needs it."""
    error = ErrorFacts(kind="PermissionDeniedError", message="no", status=status)
    foreign = attempt(end=End.ANSWERED, status=status, error=error)
    intent = stored(Known(UPDATE, INTENT, (READ, foreign)))

    assert intent.sent[-1].end.refusal == error
    assert Intent.from_json(intent.to_json()) == intent
    assert (
        unpack("key", pack(intent, commons := Commons()), commons).sent == intent.sent
    )


def test_taken_up_again():
    """Earlier sends are unchanged; bounds of the earlier process do not count, nor does a later read as baseline."""
    before = Sent(earliest=5.0, latest=6.0, attempt_timeout=3.0)
    intent = attrs.evolve(
        INTENT,
        baseline={"id": "wh_1", "description": "older"},
        bounds=Bounds(low=0, high=1),
        sent=(before,),
    )
    known = stored(Known(UPDATE, intent, (Resumed(at=0.0), READ, LOST)))
    assert known.sent[0] == before
    assert len(known.sent) == 2
    assert known.bounds == Bounds(low=999.5, high=pytest.approx(1000.001))
    assert known.baseline == {"id": "wh_1", "description": "older"}


def test_webhooks_that_the_proof_showed_are_stored():
    """A webhook of our URL that was listed before a send is never attributed to it, by any process."""
    creates = BY_NAME["webhooks.create"]
    body = {"url": "https://me.example", "events": []}
    intent = attrs.evolve(
        INTENT, operation="webhooks.create", body=body, strangers=("wh_0",)
    )
    shown = [
        {"id": "wh_2", "url": "https://me.example/"},
        {"id": "wh_3", "url": "https://other.example"},
        {"id": 4, "url": body["url"]},
        "?",
    ]
    listing = attrs.evolve(READ, seen=shown)
    assert stored(
        Known(creates, intent, (listing,)), send=Send(attempt_timeout=9.0), at=0.75
    ).strangers == (
        "wh_0",
        "wh_2",
    )
    assert stored(Known(creates, intent, (listing, LOST))).strangers == ("wh_0", "wh_2")
    assert stored(Known(creates, intent, (listing,))).strangers == ("wh_0",)


@pytest.mark.parametrize("baseline", [{"status": "published"}, {"status": "draft"}])
def test_state_of_a_journey_is_stored_as_it_was_known(baseline):
    """A published journey is stored too; the process that settles decides whether it can be compared."""
    journeys = BY_NAME["journeys.update"]
    intent = attrs.evolve(
        INTENT, operation="journeys.update", body={"name": "x"}, baseline=baseline
    )
    known = Known(journeys, intent, ())
    assert stored(known).baseline == baseline
    assert known.baseline == (baseline if baseline["status"] == "draft" else None)


def test_webhook_that_was_gone_is_stored_as_gone():
    """An empty state differs from none."""
    gone = attrs.evolve(READ, status=404, seen=None)
    assert (
        stored(
            Known(UPDATE, INTENT, (gone,)), send=Send(attempt_timeout=9.0), at=0.75
        ).baseline
        == {}
    )
    of_a_gateway = attrs.evolve(gone, own_envelope=False)
    assert (
        stored(
            Known(UPDATE, INTENT, (of_a_gateway,)),
            send=Send(attempt_timeout=9.0),
            at=0.75,
        ).baseline
        is None
    )


@pytest.mark.parametrize(
    ("history", "newest"),
    [
        ((READ,), True),
        ((LOST,), True),
        ((Resumed(at=0.0),), None),
        ((Resumed(at=0.0, newest=True), LOST), True),
        ((Resumed(at=0.0, newest=False), READ), False),
    ],
)
def test_whether_it_is_the_newest_is_stored(history, newest):
    """A running write has the lock; for a resumed one, it is as the resuming process knew."""
    for send in (None, Send(attempt_timeout=9.0)):
        assert (
            stored(Known(UPDATE, INTENT, history), send=send, at=0.75).newest is newest
        )


@pytest.mark.parametrize("before", [None, True, False])
def test_newest_of_what_has_not_begun(before):
    """Before any event the intent is unchanged; a first send makes it the newest."""
    known = Known(UPDATE, attrs.evolve(INTENT, newest=before), ())
    assert stored(known).newest is before
    assert stored(known, send=Send(attempt_timeout=9.0), at=0.75).newest is True
