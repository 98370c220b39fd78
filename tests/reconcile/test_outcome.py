"""The text that explains an outcome ends with why the write was not sent again, and what to do."""

from __future__ import annotations

import pytest

import invsvc_async
from invsvc_async import errors
from invsvc_async.errors import WriteError
from invsvc_async.reconcile.history import Closed, Resumed, Verdict
from invsvc_async.reconcile.outcome import Outcome
from tests.reconcile.test_decide import (
    ABANDONED,
    ABSENT,
    CREATE,
    DATED,
    LEFT_DATED,
    NEVER,
    TEAM,
    answered,
    attempt,
    lost,
    next_of,
    not_sent,
    ok,
    read,
)

ENDS = {
    "absent": (NEVER, ABSENT, "It is safe to write again"),
    "never left": (CREATE, [*map(not_sent, (1, 2, 3, 4))], "Check the address and the network"),
    "only read": (ABANDONED, [Resumed(at=100.0, reads_only=True), read(100.1, [])], "client.resume(intent)"),
    "perhaps overtaken": (LEFT_DATED, [Resumed(at=50.0), read(60.0, DATED)], "Read the current state"),
    "overtaken": (LEFT_DATED, [Resumed(at=1.0, newest=False), read(100.0, DATED)], "only to replace the newer"),
    "unknown": (CREATE, [lost(), Closed(1.0)], "client.settle(intent) later"),
    "unknown, and no read": (TEAM, [lost()], "the specification has no read for it"),
}  # fmt: skip


def outcome_of(of, history):
    done = next_of(of, *history)
    return Outcome(
        verdict=done.verdict,
        message=done.reason,
        evidence=done.evidence,
        history=tuple(history),
        started_as=of,
    )


@pytest.mark.parametrize("name", ENDS)
def test_end_of_explanation(name):
    """It is the advice that the error gives, too."""
    of, history, advice = ENDS[name]
    outcome = outcome_of(of, history)
    last = outcome.explain().splitlines()[-1]

    assert last.startswith("  next: ")
    assert advice in last
    with pytest.raises(WriteError, match=r"(?i)not .*again|nothing was") as raised:
        outcome.unwrap()
    assert str(raised.value).endswith(last.removeprefix("  next: "))
    unknown = "not sent again, because it may have been applied" in outcome.explain()
    assert unknown == (outcome.verdict is Verdict.UNKNOWN)


@pytest.mark.parametrize(
    "event",
    [ok(), answered(400), attempt(status=401, of_authentication=True)],
    ids=["applied", "refused", "refused by the authentication"],
)
def test_explanation_of_a_definite_answer(event):
    """It ends with the verdict.  What the service answered in its own form is not told as another's."""
    lines = outcome_of(CREATE, [event]).explain().splitlines()

    assert lines[-1].startswith("  verdict: ")
    assert "not the service's envelope" not in lines[-2]


def test_explanation_of_an_answer_of_something_else():
    """It says so."""
    story = outcome_of(CREATE, [attempt(status=502), Closed(1.0)]).explain()

    assert "HTTP 502 after 0.010 s, not the service's envelope" in story


@pytest.mark.parametrize(
    "name", ["AmbiguousWriteError", "SecretLostError", "WriteNotAppliedError"]
)
def test_errors_about_writes_are_among_the_errors(name):
    """They have their place there, in a traceback, too; other names are refused."""
    error = getattr(errors, name)

    assert error is getattr(invsvc_async, name)
    assert (error.__module__, name in errors.__all__) == ("invsvc_async.errors", True)
    with pytest.raises(AttributeError, match="no attribute 'AmbiguousWrite'"):
        _ = errors.AmbiguousWrite
