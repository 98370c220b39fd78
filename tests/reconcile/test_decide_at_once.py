"""The short cut agrees with ``decide``."""

from __future__ import annotations

import itertools

import attrs
import pytest

from invsvc_async.api.operations import TABLE, OperationKind
from invsvc_async.reconcile.attempts import answered_at_once, sent_at_once
from invsvc_async.reconcile.decide import decide
from invsvc_async.reconcile.facts import Known
from invsvc_async.reconcile.history import (
    Attempt,
    Bounds,
    Done,
    End,
    Reading,
    Send,
    Tick,
    Verdict,
)
from invsvc_async.reconcile.intent import NEVER_LISTED, Intent, Scope
from invsvc_async.reconcile.kinds import kind_of_write
from invsvc_async.settings import ReconcilePolicy, Timeouts

WRITES = [operation for operation in TABLE if operation.kind is OperationKind.WRITE]
BODY = {"url": "https://receiver.example/in", "events": ["invoice.created"]}


def intent_of(operation, **details):
    return Intent(
        key="k",
        operation=operation.name,
        body=BODY,
        scope=Scope(base_url="http://127.0.0.1/v2"),
        **details,
    )


@pytest.mark.parametrize("operation", WRITES, ids=lambda operation: operation.name)
@pytest.mark.parametrize(
    "baseline",
    [None, {"id": "x", "status": "draft"}, {"id": "x", "status": "published"}],
)
@pytest.mark.parametrize("bounds", [None, Bounds(low=1.0, high=1.5)])
@pytest.mark.parametrize(
    "policy", [ReconcilePolicy(), ReconcilePolicy(journey_reader=None)]
)
@pytest.mark.parametrize("timeouts", [Timeouts(), Timeouts(attempt=20.0, call=3.0)])
@pytest.mark.parametrize("forgotten_until", [None, 5, NEVER_LISTED])
def test_first_send_of_any_write(
    operation, baseline, bounds, policy, timeouts, forgotten_until
):
    """If the short cut returns a send, decide returns the same one."""
    said = sent_at_once(
        kind_of_write(operation),
        timeouts,
        has_baseline=baseline is not None,
        knows_clock=bounds is not None,
        never_listed=forgotten_until == NEVER_LISTED,
    )
    intent = intent_of(
        operation,
        baseline=baseline,
        bounds=bounds,
        policy=policy,
        timeouts=timeouts,
        forgotten_until=forgotten_until,
    )

    assert said is None or said == decide(Known(operation, intent, ()))


@pytest.mark.parametrize("operation", WRITES, ids=lambda operation: operation.name)
def test_first_send_with_all_that_is_needed(operation):
    """With a baseline and the service's clock known, the short cut returns a send."""
    first = sent_at_once(
        kind_of_write(operation),
        Timeouts(),
        has_baseline=True,
        knows_clock=True,
        never_listed=False,
    )
    assert first == Send(attempt_timeout=30.0)


ATTEMPT = Attempt(
    started=1.0,
    ended=2.0,
    end=End.ANSWERED,
    status=200,
    readable=True,
    own_envelope=True,
)
ATTEMPTS = [
    attrs.evolve(ATTEMPT, end=end, status=status, readable=readable, own_envelope=own)
    for end, status, readable, own in itertools.product(
        End,
        (None, 100, 200, 204, 302, 400, 404, 408, 409, 429, 500, 503),
        (True, False),
        (True, False),
    )
]
BEFORE = Reading(
    started=0.0, ended=0.5, status=200, own_envelope=True, seen={"id": "x"}
)


@pytest.mark.parametrize("operation", WRITES, ids=lambda operation: operation.name)
def test_answer_to_a_first_send(operation):
    """If the short cut returns a verdict, decide returns the same, for any attempt and history."""
    intent = intent_of(
        operation, baseline={"id": "x"}, bounds=Bounds(low=1.0, high=1.5)
    )
    for attempt in ATTEMPTS:
        for history in (
            (attempt,),
            (BEFORE, attempt),
            (attempt, attempt),
            (attempt, Tick(3.0)),
        ):
            said = answered_at_once(history)
            assert said is None or said == decide(Known(operation, intent, history)), (
                history
            )


def test_yes_to_a_first_send():
    """The short cut returns APPLIED."""
    said = answered_at_once((ATTEMPT,))
    assert isinstance(said, Done)
    assert said.verdict is Verdict.APPLIED


def test_no_short_cut():
    """The short cut leaves a reading to ``decide``, and an answer whose value belongs into the verdict."""
    with_value = attrs.evolve(ATTEMPT, value={"id": "x"})

    assert answered_at_once((BEFORE,)) is None
    assert answered_at_once((with_value,)) is None
