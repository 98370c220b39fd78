"""The judge counts what the ledger shows, whatever a client says."""

from __future__ import annotations

import itertools

import pytest

from invsvc_async.cli.judge import Asked, Report, canonical, judge
from invsvc_async.reconcile.evidence import Verdict
from invsvc_async.simulator import Entry

NUMBERS = itertools.count(1)
JOURNEY = {"name": "May"}


def entry(operation="journeys.update", path_id="jrn_1", body=JOURNEY, *, at=1.0, applied=True, by="client"):
    return Entry(
        number=next(NUMBERS), operation=operation, path_id=path_id, body=body, team="team_1",
        received_at=at, applied_at=at if applied else None, by=by, target=path_id,
    )  # fmt: skip


def report(verdict, operation="journeys.update", path_id="jrn_1", body=JOURNEY, key="a", reason=""):
    asked = Asked(operation=operation, path_id=path_id, team="team_1", body=canonical(body))
    return Report(key=key, asked=asked, verdict=verdict, reason=reason)


def test_write_that_happened_once():
    """One effect of one write that was called applied is as it should be."""
    judged = judge([report(Verdict.APPLIED)], [entry()], {})

    assert (judged.asked, judged.effects, judged.duplicates, judged.unasked, judged.sends) == (1, 1, 0, 0, 1)
    assert (judged.lost, judged.wrong, judged.verdicts) == ((), (), {Verdict.APPLIED: 1})


def test_write_that_happened_thrice():
    """Every effect of a write after its first is a duplicate."""
    assert judge([report(Verdict.APPLIED)], [entry(), entry(), entry()], {}).duplicates == 2


def test_send_without_effect():
    """A request that arrived and did nothing is a send and no effect."""
    judged = judge([report(Verdict.APPLIED)], [entry(applied=False), entry()], {})

    assert (judged.sends, judged.effects, judged.duplicates) == (2, 1, 0)


def test_applied_that_never_happened():
    """A write called applied that neither ledger nor state shows is lost, and its verdict wrong."""
    judged = judge([report(Verdict.APPLIED)], [entry(applied=False)], {"jrn_1": {"name": "June"}})

    assert [each.key for each in judged.lost] == ["a"]
    assert "neither ledger nor state" in judged.wrong[0].why


@pytest.mark.parametrize(
    ("operation", "path_id", "body", "state"),
    [
        ("journeys.update", "jrn_1", {"name": "May"}, {"jrn_1": {"name": "May", "status": "draft"}}),
        ("webhooks.delete", "wh_1", None, {"wh_2": {}}),
        ("webhooks.create", None, {"url": "http://a"}, {"wh_9": {"url": "http://a", "status": "active"}}),
    ],
)
def test_applied_that_the_state_shows(operation, path_id, body, state):
    """A thing that is as wanted makes applied right, even where this write did nothing to it."""
    told = report(Verdict.APPLIED, operation, path_id, body)

    assert judge([told], [], state).wrong == ()


@pytest.mark.parametrize("verdict", [Verdict.NOT_APPLIED, Verdict.REFUSED])
def test_no_that_happened(verdict):
    """A write called not applied, or refused, that the ledger applied is wrong."""
    judged = judge([report(verdict)], [entry()], {})

    assert [each.report.verdict for each in judged.wrong] == [verdict]
    assert judged.lost == ()


@pytest.mark.parametrize("verdict", [Verdict.NOT_APPLIED, Verdict.REFUSED, Verdict.UNKNOWN])
def test_no_that_did_not_happen(verdict):
    """A no, or a don't know, is right where nothing happened."""
    assert judge([report(verdict)], [entry(applied=False)], {}).wrong == ()


@pytest.mark.parametrize(
    "other",
    [entry(body={"name": "June"}, at=2.0), entry(body={"name": "June"}, at=2.0, by="other")],
)
def test_superseded_by_another_write(other):
    """Superseded is right where somebody else, or another write, changed that thing since the send."""
    assert judge([report(Verdict.SUPERSEDED)], [entry(), other], {}).wrong == ()


@pytest.mark.parametrize(
    "other",
    [
        entry(body={"name": "June"}, at=0.5),
        entry(body={"name": "June"}, at=2.0, applied=False),
        entry(path_id="jrn_2", body={"name": "June"}, at=2.0),
        entry(at=2.0),
    ],
    ids=["before", "refused", "another thing", "the same write"],
)
def test_superseded_by_nobody(other):
    """Superseded is wrong where only earlier, failed, foreign or own changes are to be seen."""
    assert "nobody else" in judge([report(Verdict.SUPERSEDED)], [entry(), other], {}).wrong[0].why


def test_effect_that_nobody_asked_for():
    """An effect of the client's that belongs to no write is counted apart."""
    judged = judge([report(Verdict.APPLIED)], [entry(), entry(path_id="jrn_2")], {})

    assert (judged.unasked, judged.duplicates) == (1, 0)


def test_effect_of_somebody_else():
    """What others did is neither an effect nor a send of this client."""
    judged = judge([report(Verdict.APPLIED)], [entry(), entry(by="other")], {})

    assert (judged.effects, judged.sends, judged.unasked, judged.duplicates) == (1, 1, 0, 0)


def test_two_writes_alike():
    """Writes that the ledger cannot tell apart are not judged."""
    with pytest.raises(ValueError, match="b and a are the same write"):
        judge([report(Verdict.APPLIED), report(Verdict.APPLIED, key="b")], [entry()], {})


def test_unknown_reasons():
    """Unknown verdicts are counted by their reasons."""
    told = [report(Verdict.UNKNOWN, path_id=f"jrn_{n}", key=str(n), reason="no read") for n in range(3)]

    assert judge(told, [], {}).unknown_reasons == {"no read": 3}


def test_bodies_spelt_otherwise():
    """Order of keys, and 1 or 1.0, make no other write."""
    assert canonical({"a": 1, "b": [True, {"x": 1.0}]}) == canonical({"b": [True, {"x": 1}], "a": 1.0})
    assert canonical({"a": True}) != canonical({"a": 1})
