"""What a journal keeps of an outcome: little of a plain one, the story of any other."""

from __future__ import annotations

import attrs
import pytest

from invsvc_async import JournalError, Outcome, Verdict
from invsvc_async.batch.result import Result, outcome_in
from invsvc_async.durable.entry import Entry, State
from invsvc_async.durable.intents import Commons
from invsvc_async.durable.records import VerdictRecord, _decode, encoded, record_of
from invsvc_async.models import Webhook
from invsvc_async.reconcile.history import Attempt, End, Evidence, Reading
from invsvc_async.reconcile.intent import Intent, Scope

INTENT = Intent(
    key="k", operation="webhooks.delete", path={"id": "wh_1"}, scope=Scope(base_url="b")
)
ANSWERED = Attempt(
    started=1.0,
    ended=1.5,
    end=End.ANSWERED,
    status=200,
    readable=True,
    own_envelope=True,
)
LOST = Attempt(started=0.0, ended=0.5, end=End.LOST)
READ = Reading(
    started=0.6, ended=0.7, status=200, own_envelope=True, seen={"id": "wh_1"}
)


def outcome(history, basis="answered", **facts):
    return Outcome(
        **{
            "verdict": Verdict.APPLIED,
            "message": "m",
            "value": Webhook(id="wh_1"),
            "attempts": 1,
            **facts,
        },
        evidence=Evidence(basis=basis),
        history=history,
        started_as=INTENT,
    )


@pytest.mark.parametrize(
    ("found", "record"),
    [
        (outcome((ANSWERED,)), VerdictRecord(basis="answered", thing="wh_1", took=0.5)),
        (
            outcome((LOST, READ, ANSWERED), attempts=2, resends=1),
            VerdictRecord(
                basis="answered", thing="wh_1", took=1.5, tries=2, again=1, reads=1
            ),
        ),
        (
            outcome((LOST, READ), basis="state", secret="lost"),
            VerdictRecord(
                why="m", basis="state", thing="wh_1", took=0.7, reads=1, had="lost"
            ),
        ),
    ],
    ids=["plain", "sent again", "found"],
)
def test_record_there_and_back(found, record):
    """Its numbers are those of the history, and it comes back from its text as it was."""
    made = record_of(found)

    assert made == record
    assert _decode(encoded(made)) == record


def test_record_of_a_refusal():
    """It keeps the story."""
    made = record_of(outcome((ANSWERED,), verdict=Verdict.REFUSED, value=None))

    assert (made.why, made.thing, made.tries) == ("m", None, 1)
    assert made.story is not None
    assert "webhooks.delete" in made.story


def done(text):
    return Entry(
        key="k",
        state=State.DONE,
        operation="webhooks.create",
        verdict="applied",
        outcome=text,
    )


def test_result_whose_duplicates_are_not_known():
    """It names none."""
    assert Result.of(done('{"duplicates":null}')).duplicates == ()


@pytest.mark.parametrize("duplicates", [(), ({"id": "wh_2"},), None])
def test_outcome_of_a_batch_names_what_else_was_made(duplicates):
    """An applied write has no intent any more, and still its candidates and duplicates, or that none is known."""
    evidence = Evidence(
        basis="tag", candidates=({"id": "wh_3"},), duplicates=duplicates
    )
    made = attrs.evolve(outcome((LOST, READ)), evidence=evidence)

    stored = done(encoded(record_of(made)))

    assert outcome_in(stored, Commons()).evidence == evidence
    assert Result.of(stored).duplicates == tuple(
        each["id"] for each in duplicates or ()
    )


@pytest.mark.parametrize(
    "text", ["{", '{"tries":"many"}', '{"value":1e99999999999999999999}']
)
def test_damaged_record(text):
    """It is an error of the journal, for batches and for outboxes."""
    for read in (Result.of, lambda entry: outcome_in(entry, Commons())):
        with pytest.raises(JournalError, match="cannot be read"):
            read(done(text))
