"""What explains an outcome, if the write itself does not: the outage beside it, or nothing."""

from __future__ import annotations

import attrs
import pytest

from invsvc_async import Intent, InvsvcError, ReconcilePolicy, Verdict
from invsvc_async.batch.circuit_breaker import Cause, cause_of
from invsvc_async.reconcile.history import Attempt, End, Evidence, Reading, Resumed
from invsvc_async.reconcile.intent import Scope
from invsvc_async.reconcile.outcome import Outcome

POLICY = ReconcilePolicy()
OUTAGE = Cause("away")
LOST = Attempt(started=0.0, ended=1.0, end=End.LOST)
READ = Reading(started=2.0, ended=2.1, status=503)


def outcome(
    verdict,
    *history,
    operation="webhooks.delete",
    basis="none",
    policy=POLICY,
    **facts,
):
    return Outcome(
        verdict=verdict,
        message="m",
        evidence=Evidence(basis=basis),
        history=history,
        started_as=Intent(
            key="k", operation=operation, scope=Scope(base_url="b"), policy=policy
        ),
        **facts,
    )


@pytest.mark.parametrize(
    ("history", "cause"),
    [
        ([LOST], None),
        ([LOST, READ], OUTAGE),
        ([LOST, attrs.evolve(READ, status=None)], OUTAGE),
        ([LOST, attrs.evolve(READ, status=404)], None),
        ([LOST, attrs.evolve(READ, finding="matches")], None),
        # of before the send
        ([attrs.evolve(READ, started=-1.0), LOST], None),
        ([READ], OUTAGE),
    ],
)
def test_doubt(history, cause):
    """Only a read after the last send, which failed or was not answered, is because of the outage."""
    assert cause_of(outcome(Verdict.UNKNOWN, *history), OUTAGE) is cause


def test_refusal_without_an_answer():
    """The plan explains a refused team only if the service says so."""
    error = InvsvcError("it was refused")
    refused = outcome(Verdict.REFUSED, operation="teams.create", error=error)
    assert cause_of(refused, OUTAGE) is None


@pytest.mark.parametrize(
    ("resumed", "cause"),
    [
        (Resumed(at=0.0, journaled=True, newest=True), OUTAGE),
        # the last one of a restored journal
        (Resumed(at=0.0, journaled=True), OUTAGE),
        (Resumed(at=0.0, journaled=True, newest=False), None),
        (Resumed(at=0.0), None),
    ],
    ids=["newest", "last", "overtaken", "perhaps overtaken"],
)
def test_absent_write_after_an_outage(resumed, cause):
    """It is put back, to be sent again, only if no newer write to the thing may have been sent."""
    read = attrs.evolve(READ, status=200)
    absent = outcome(Verdict.NOT_APPLIED, resumed, read, basis="absence")
    assert cause_of(absent, OUTAGE) is cause


@pytest.mark.parametrize(
    ("policy", "resends", "cause"),
    [
        (POLICY, 0, OUTAGE),
        (POLICY, 1, OUTAGE),
        (ReconcilePolicy(max_resends=0), 0, None),
        (ReconcilePolicy(resend="never"), 0, None),
    ],
)
def test_absent_write_that_must_not_be_sent_again(policy, resends, cause):
    """It is not put back. What was sent during an outage does not count, but a policy of no re-sends does."""
    newest = Resumed(at=0.0, journaled=True, newest=True)
    read = attrs.evolve(READ, status=200)
    absent = outcome(
        Verdict.NOT_APPLIED,
        newest,
        read,
        basis="absence",
        policy=policy,
        resends=resends,
    )
    assert cause_of(absent, OUTAGE) is cause
