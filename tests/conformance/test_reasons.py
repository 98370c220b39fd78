"""Each condition of a basis or a cause finds the reason that the ledger contradicts, and leaves the true one alone."""

from __future__ import annotations

from typing import get_args

import pytest

from invsvc_async.conformance.reasons import (
    BASES,
    CAUSES,
    OVERTAKEN,
    Happened,
    Told,
    UnknownReasonError,
    contradiction,
)
from invsvc_async.reconcile import decide
from invsvc_async.reconcile.history import Basis, Cause, Verdict
from invsvc_async.simulator import Entry

pytestmark = pytest.mark.one_python

NO, YES, MAYBE = Verdict.NOT_APPLIED, Verdict.APPLIED, Verdict.UNKNOWN
SUPERSEDED, REFUSED = Verdict.SUPERSEDED, Verdict.REFUSED


def sent(at=1.0, applied=None, answered=None, stored=None, target="wh_1"):
    return Entry(
        operation="webhooks.update", received_at=at, applied_at=applied, answered=answered, stored=stored,
        target=target,
    )  # fmt: skip


def told(verdict, basis=None, cause=None, **rest):
    return Told(verdict=verdict, basis=basis, cause=cause, at=20.0, **rest)


def happened(*sends, **rest):
    return Happened(sends=sends, since=0.0, **rest)


TRUE = {
    "never left": (told(NO, "never sent", "never left"), happened()),
    "sent only later": (told(NO, "never sent", "never left"), happened(sent(25.0))),
    "overtaken by one that arrived": (told(NO, "never sent", "overtaken"), happened(newer=[5.0])),
    "absence": (told(NO, "absence", "absent", read_at=16.0), happened(sent(1.0), window=15.0)),
    "absence after a refusal": (told(NO, "absence", read_at=1.5), happened(sent(1.0, answered=404), window=15.0)),
    "answered with success": (told(YES, "answered"), happened(sent(applied=1.0, answered=201))),
    "answered with a refusal": (told(REFUSED, "answered", status=409), happened(sent(answered=409))),
    "superseded": (told(SUPERSEDED, "baseline", "changed since"), happened(sent(), others=[5.0])),
    "unknown, as a sibling changed it": (told(MAYBE, "none", "changed since"), happened(sent(), siblings=[5.0])),
    "unknown, as a newer write may have changed it": (
        told(MAYBE, "none", "changed since"),
        happened(sent(), newer=[5.0]),
    ),
    "gone": (told(MAYBE, "none", "gone"), happened(sent(), states=[{"a": 1}, None])),
    "deleted": (told(YES, "gone"), happened(sent(applied=1.0), states=[{"a": 1}])),
    "in part": (told(MAYBE, "none", "in part"), happened(sent(applied=1.0, stored="in part"))),
    "in part, by others": (
        told(MAYBE, "none", "in part"),
        happened(sent(), wanted={"a": 1, "b": 1}, states=[{"a": 1, "b": 2}]),
    ),
    "in part, as an earlier write left it": (
        told(MAYBE, "none", "in part"),
        happened(sent(), since_seen=[-5.0]),
    ),
    "other words": (told(MAYBE, "none", "other words"), happened(sent(applied=1.0, stored="other words"))),
    "other words, as an earlier write left them": (
        told(MAYBE, "none", "other words"),
        happened(sent(), since_seen=[-5.0]),
    ),
    "other words, by others": (told(MAYBE, "none", "other words"), happened(sent(), others=[2.0])),
    "other words, where answers echo": (told(MAYBE, "none", "other words"), happened(sent(), echoes=True)),
    "further effects": (
        told(YES, "match", made="wh_1", duplicates=("wh_2",)),
        happened(sent(applied=1.0), sent(applied=2.0, target="wh_2")),
    ),
    "no further effects": (told(YES, "match", made="wh_1", duplicates=()), happened(sent(applied=1.0))),
    "duplicates not known": (
        told(YES, "match", made="wh_1"),
        happened(sent(applied=1.0), sent(applied=2.0, target="wh_2")),
    ),
    "absence, from a store": (told(NO, "absence", "absent", has_times=False), happened(sent())),
    "overtaken, as a flag": (told(NO, overtaken=True), happened(newer=[5.0])),
    "a person has looked": (told(YES, "person"), happened()),
    "nothing is told": (told(NO), happened(sent())),
    "words about somebody else": (
        told(MAYBE, words="somebody else changed the journey"),
        happened(sent(), others=[2.0]),
    ),
    "words about a newer write": (told(NO, words=f"not sent again, because {OVERTAKEN}"), happened(newer=[2.0])),
}  # fmt: skip
FALSE = {
    "never left, and it arrived": (told(NO, "never sent", "never left"), happened(sent())),
    "never sent, and it arrived": (told(NO, "never sent", "client closed"), happened(sent(answered=429))),
    "overtaken by none": (told(NO, "never sent", "overtaken"), happened()),
    "overtaken by one that came later": (told(NO, "never sent", "overtaken"), happened(newer=[21.0])),
    "absence without a read": (told(NO, "absence", "absent"), happened(sent())),
    "absence, from a store, and it is there": (
        told(NO, "absence", has_times=False),
        happened(sent(applied=1.0)),
    ),
    "overtaken, as a flag, by none": (told(NO, overtaken=True), happened(sent())),
    "absence within the window": (told(NO, "absence", read_at=15.0), happened(sent(1.0), window=15.0)),
    "absence within the window of a 500": (
        told(NO, None, "absent", read_at=2.0),
        happened(sent(1.0, answered=500), window=2.0),
    ),
    "absence that showed it": (told(NO, "absence", read_at=16.0), happened(sent(1.0, applied=1.0))),
    "answered with success, and was not": (told(YES, "answered"), happened(sent(applied=1.0, answered=500))),
    "answered with success later": (told(YES, "answered"), happened(sent(25.0, applied=25.0, answered=200))),
    "answered with another refusal": (told(REFUSED, "answered", status=409), happened(sent(answered=404))),
    "refused, and nothing was answered": (told(REFUSED, "answered"), happened(sent())),
    "superseded by a sibling": (told(SUPERSEDED, "baseline"), happened(sent(), siblings=[5.0])),
    "superseded before it began": (told(SUPERSEDED, None, "changed since"), happened(sent(), others=[-5.0])),
    "superseded later": (told(SUPERSEDED, None, "changed since"), happened(sent(), others=[25.0])),
    "unknown, and nobody changed it": (told(MAYBE, "none", "changed since"), happened(sent(applied=1.0))),
    "gone, and it is there": (told(MAYBE, "none", "gone"), happened(sent(), states=[{"a": 1}])),
    "in part, and it was whole": (
        told(MAYBE, "none", "in part"),
        happened(sent(applied=1.0, stored="as sent"), wanted={"a": 1, "b": 1}, states=[{"a": 1, "b": 1}]),
    ),
    "in part, and it was not there": (
        told(MAYBE, "none", "in part"),
        happened(sent(), wanted={"a": 1, "b": 1}, states=[{"a": 2, "b": 2}, None]),
    ),
    "other words, and it was as sent": (
        told(MAYBE, "none", "other words"),
        happened(sent(applied=1.0, stored="as sent")),
    ),
    "a duplicate that is missing": (
        told(YES, "match", made="wh_1", duplicates=()),
        happened(sent(applied=1.0), sent(applied=2.0, target="wh_2")),
    ),
    "its own as its duplicate": (
        told(YES, "match", made="wh_1", duplicates=("wh_1",)),
        happened(sent(applied=1.0)),
    ),
    "another's as its duplicate": (
        told(YES, "match", made="wh_1", duplicates=("wh_3",)),
        happened(sent(applied=1.0)),
    ),
    "a duplicate twice": (
        told(YES, "match", made="wh_1", duplicates=("wh_2", "wh_2")),
        happened(sent(applied=1.0), sent(applied=2.0, target="wh_2")),
    ),
    "words about somebody else, and there is none": (
        told(MAYBE, words="somebody else changed the journey"),
        happened(sent(), siblings=[2.0]),
    ),
    "words about a newer write, and there is none": (told(NO, words=f"not sent, because {OVERTAKEN}"), happened()),
}  # fmt: skip


@pytest.mark.parametrize("case", TRUE.values(), ids=TRUE)
def test_true_reason(case):
    """The ledger bears it out."""
    assert contradiction(*case) is None


@pytest.mark.parametrize("case", FALSE.values(), ids=FALSE)
def test_false_reason(case):
    """The ledger contradicts it, in words."""
    assert contradiction(*case)


@pytest.mark.parametrize("of", [{"basis": "hearsay"}, {"cause": "bad luck"}])
def test_reason_without_a_condition(of):
    """A basis or cause that nobody has thought of is refused."""
    with pytest.raises(UnknownReasonError, match="has no condition"):
        contradiction(Told(verdict=NO, **of), Happened())


def codes(alias):
    """Return the texts of a Literal of Literals."""
    return {
        code
        for each in get_args(alias)
        for code in (codes(each) if get_args(each) else {each})
    }


def test_every_reason_of_the_client_has_a_condition():
    """A new basis or cause needs its condition."""
    assert codes(Basis) <= set(BASES)
    assert codes(Cause) <= set(CAUSES)


def test_words_that_are_judged_are_those_of_the_client():
    """The message of a write that was overtaken has the words for which the judge looks."""
    assert decide._HELD_BACK["overtaken"] == OVERTAKEN
