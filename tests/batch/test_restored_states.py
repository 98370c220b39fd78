"""What a restored journal makes of one read: whether a thing is as an earlier write of the journal left it."""

from __future__ import annotations

import attrs
import pytest

from invsvc_async import Verdict
from invsvc_async.batch.restored import Restored
from invsvc_async.durable.intents import in_doubt
from invsvc_async.durable.store.states import Left
from invsvc_async.reconcile.history import Attempt, End, Evidence, Reading, Tick
from invsvc_async.reconcile.intent import Sent, SentEnd
from invsvc_async.reconcile.outcome import Outcome
from tests.batch.conftest import client_of

pytestmark = pytest.mark.one_python

THING = "journey jrn_1"
STATE = {"name": "A", "status": "draft"}
SEEN = {"id": "jrn_1", "created_at": 1, **STATE}
OVER = 5.0  # s of the client's clock: when the window of the lost send is over


@pytest.fixture
def intent(service):
    """Return the intent of a write whose journal may lack a send of it."""
    write = client_of(service).journeys.update("jrn_1", name="B")
    write.close()
    return in_doubt(write.intent)


def restored_with(state):
    """Return the doubts of a journal, one of whose writes left *state*, as JSON, of the thing."""
    restored = Restored(through=1, is_open=True)
    restored.learn(Left(THING, state=state))
    return restored


def reading(**changes):
    return Reading(
        **{
            "started": OVER,
            "ended": OVER + 1.0,
            "seen": SEEN,
            "stamp": 1_000,
            **changes,
        }
    )


def unknown(intent, *history, window_until=OVER, **changes):
    """Return the outcome of a write that no read could tell."""
    evidence = Evidence(basis="none", cause="changed since", window_until=window_until)
    return Outcome(
        **{
            "verdict": Verdict.UNKNOWN,
            "message": "",
            "evidence": evidence,
            "history": history,
        }
        | {"started_as": intent, **changes}
    )


LEFT = Left(THING, None, '{"name": "C", "status": "draft"}', 1_000)
AS_LEFT = '{"name": "A", "status": "draft"}'


@pytest.mark.parametrize("started", [OVER, OVER + 1.0])
def test_thing_that_is_as_an_earlier_write_left_it(intent, started):
    """The write may be sent by a retry, what is known of the thing stays, and nothing is left of this write."""
    restored = restored_with(AS_LEFT)
    for _ in range(2):  # the second write to the thing is judged by the same state
        outcome, left = restored.judged(unknown(intent, reading(started=started)), LEFT)
        assert (outcome.verdict, outcome.evidence.cause, left) == (
            Verdict.UNKNOWN, "perhaps undone", None,
        )  # fmt: skip
        assert outcome.started_as.sent[-1].end.kind == "long"


@pytest.mark.parametrize(
    ("state", "history", "changes"),
    [
        (AS_LEFT, [reading(seen={**SEEN, "name": "X"})], {}),
        (AS_LEFT, [reading(seen={**SEEN, "status": "active"})], {}),
        (AS_LEFT, [reading(seen={"id": "jrn_1", "name": "A"})], {}),
        (AS_LEFT, [reading(seen=None)], {}),
        (AS_LEFT, [reading(seen=[SEEN])], {}),
        (None, [reading()], {}),
        ("{}", [reading()], {}),  # the earlier write deleted it, so what is there now is not what that left
        ('["name"]', [reading()], {}),
        (AS_LEFT, [reading(started=OVER - 0.1)], {}),
        (AS_LEFT, [reading(stamp=None)], {}),
        (AS_LEFT, [reading()], {"window_until": None}),
        (AS_LEFT, [reading(), Tick(9.0)], {}),
    ],
    ids=[
        "another name", "another status", "a part", "nothing", "a list", "no state", "gone", "no object",
        "too early", "no clock", "no window", "no read at the end",
    ],
)  # fmt: skip
def test_thing_that_is_not_as_an_earlier_write_left_it(intent, state, history, changes):
    """Nothing more is known of the write, and from then on nothing is known of the thing, here or in the journal."""
    restored = restored_with(state)
    given = unknown(intent, *history, **changes)
    outcome, left = restored.judged(given, LEFT)
    assert outcome is given
    assert left == Left(THING)
    again, _ = restored.judged(unknown(intent, reading()), LEFT)
    assert again.evidence.cause == "changed since"


def test_thing_of_whose_write_the_journal_lacks_no_send(intent):
    """The read is no news: each send of the write has an end, or a time."""
    ended = Sent(attempt_timeout=1.0, end=SentEnd(kind="not applied"))
    timed = Sent(attempt_timeout=1.0, earliest=1.0, latest=2.0)
    outcome, left = restored_with(AS_LEFT).judged(
        unknown(attrs.evolve(intent, sent=(ended, timed)), reading()), LEFT
    )
    assert outcome.evidence.cause == "changed since"
    assert left == Left(THING)


def test_writes_that_were_sent_or_have_a_verdict(intent):
    """What an APPLIED write left is what later ones are judged by; after one that was sent in vain, nothing is."""
    restored = restored_with(AS_LEFT)
    attempt = Attempt(started=1.0, ended=2.0, end=End.LOST)
    sent = unknown(intent, attempt, reading(), attempts=1)
    assert restored.judged(sent, LEFT) == (sent, LEFT)
    assert (
        restored.judged(unknown(intent, reading()), LEFT)[0].evidence.cause
        == "changed since"
    )
    done = unknown(intent, verdict=Verdict.APPLIED)
    assert restored.judged(done, LEFT) == (done, LEFT)
    as_c = {**SEEN, "name": "C"}
    assert (
        restored.judged(unknown(intent, reading(seen=as_c)), LEFT)[0].evidence.cause
        == "perhaps undone"
    )


def test_write_that_left_nothing(intent):
    """A write without a thing, or without an effect, is as it is."""
    restored, given = restored_with(AS_LEFT), unknown(intent, reading())
    assert restored.judged(given, None) == (given, None)
    assert restored.judged(given, LEFT)[0].evidence.cause == "perhaps undone"


def test_state_that_this_run_knows_better(intent):
    """What a journal stores of a thing replaces nothing that this run has found out."""
    restored = restored_with('{"name": "X"}')
    restored.learn(Left(THING, state=AS_LEFT))
    assert (
        restored.judged(unknown(intent, reading()), LEFT)[0].evidence.cause
        == "changed since"
    )
