"""The judge counts what the ledger shows, whatever a client says."""

import itertools

import attrs
import pytest

from invsvc_async.conformance.judge import judge
from invsvc_async.conformance.reasons import Told
from invsvc_async.conformance.reports import (
    RequestedWrite,
    WriteReport,
    canonical,
    sender_of,
)
from invsvc_async.reconcile.history import Verdict
from invsvc_async.simulator import Entry

pytestmark = pytest.mark.one_python

NUMBERS = itertools.count(1)
JOURNEY, JUNE = {"name": "May"}, {"name": "June"}
HOOK = {"url": "http://a"}


def entry(
    operation="journeys.update", path_id="jrn_1", body=JOURNEY, *, at=1.0, applied=True, by="client",
    sender=None, target=None,
):  # fmt: skip
    return Entry(
        number=next(NUMBERS), operation=operation, path_id=path_id, body=body, team="team_1", sender=sender,
        received_at=at, applied_at=at if applied else None, by=by, target=target or path_id,
    )  # fmt: skip


def report(
    verdict, operation="journeys.update", path_id="jrn_1", body=JOURNEY, key="a", **rest
):
    asked = RequestedWrite(
        operation=operation, path_id=path_id, team="team_1", body=canonical(body)
    )
    return WriteReport(key=key, asked=asked, verdict=verdict, **rest)


def created(webhook, sender=None, at=1.0):
    return entry("webhooks.create", None, HOOK, target=webhook, sender=sender, at=at)


def create(verdict, key="a", **rest):
    return report(verdict, "webhooks.create", None, HOOK, key, **rest)


def whys(reports, ledger, before=None):
    """Judge, and return what is wrong with which write."""
    return {
        each.report.key: each.why for each in judge(reports, ledger, before or {}).wrong
    }


def test_write_that_happened_once():
    """One effect of one write that was called applied is as it should be."""
    judged = judge([report(Verdict.APPLIED)], [entry()], {})

    assert (
        judged.asked,
        judged.effects,
        judged.duplicates,
        judged.unasked,
        judged.sends,
    ) == (1, 1, 0, 0, 1)
    assert (judged.lost, judged.wrong, judged.verdicts) == (
        (),
        (),
        {Verdict.APPLIED: 1},
    )


def test_write_that_happened_thrice():
    """Every effect of a write after its first is a duplicate."""
    assert (
        judge([report(Verdict.APPLIED)], [entry(), entry(), entry()], {}).duplicates
        == 2
    )


def test_send_without_effect():
    """A request that arrived and did nothing is a send and no effect."""
    judged = judge([report(Verdict.APPLIED)], [entry(applied=False), entry()], {})

    assert (judged.sends, judged.effects, judged.duplicates) == (2, 1, 0)


def test_applied_that_never_happened():
    """A write called applied that had no effect on a thing that was otherwise is lost, and its verdict wrong."""
    judged = judge(
        [report(Verdict.APPLIED)], [entry(applied=False)], {"jrn_1": {"name": "June"}}
    )

    assert [each.key for each in judged.lost] == ["a"]
    assert "no effect of it" in judged.wrong[0].why


@pytest.mark.parametrize(
    ("operation", "path_id", "body", "before"),
    [
        (
            "journeys.update",
            "jrn_1",
            {"name": "May"},
            {"jrn_1": {"name": "May", "status": "draft"}},
        ),
        (
            "webhooks.update",
            "wh_1",
            {"description": ""},
            {"wh_1": {"url": "https://a.example/"}},
        ),
        (
            "webhooks.update",
            "wh_1",
            {"events": ["invoice.failed", "invoice.created"]},
            {"wh_1": {"events": ["invoice.created", "invoice.failed"]}},
        ),
        ("webhooks.delete", "wh_1", None, {"wh_2": {}}),
    ],
)
def test_applied_that_was_so_before(operation, path_id, body, before):
    """A thing that is as wanted makes applied right, even where this write did nothing to it."""
    told = report(Verdict.APPLIED, operation, path_id, body)

    assert judge([told], [], before).wrong == ()


@pytest.mark.parametrize("verdict", [Verdict.NOT_APPLIED, Verdict.REFUSED])
def test_no_that_happened(verdict):
    """A write called not applied, or refused, that the ledger applied is wrong."""
    judged = judge([report(verdict)], [entry()], {})

    assert [each.report.verdict for each in judged.wrong] == [verdict]
    assert judged.lost == ()


@pytest.mark.parametrize(
    "verdict", [Verdict.NOT_APPLIED, Verdict.REFUSED, Verdict.UNKNOWN]
)
def test_no_that_did_not_happen(verdict):
    """A no, or a don't know, is right where nothing happened."""
    assert judge([report(verdict)], [entry(applied=False)], {}).wrong == ()


@pytest.mark.parametrize("arrived", [True, False])
def test_superseded_by_a_rival(arrived):
    """Superseded is right where somebody else changed that thing since the send."""
    sent = [entry()] if arrived else []

    assert (
        whys(
            [report(Verdict.SUPERSEDED, began=0.9)],
            [*sent, entry(body=JUNE, at=2.0, by="other")],
        )
        == {}
    )


@pytest.mark.parametrize(
    "other",
    [
        entry(body=JUNE, at=0.5, by="other"),
        entry(path_id="jrn_2", body=JUNE, at=2.0, by="other"),
        entry(body=JUNE, at=2.0, applied=False),
        entry(body=JUNE, at=2.0, sender="b"),
        entry(at=2.0),
    ],
    ids=["before", "another thing", "refused", "a sibling", "the same write"],
)
@pytest.mark.parametrize("began", [0.9, float("-inf")], ids=["timed", "untimed"])
def test_superseded_by_nobody(other, began):
    """Superseded is wrong where only earlier, failed, foreign or own changes are to be seen, siblings' among them."""
    told = [
        report(Verdict.SUPERSEDED, began=began),
        report(Verdict.APPLIED, body=JUNE, key="b"),
    ]

    assert "nobody else" in whys(told, [entry(), other], {"jrn_1": JUNE})["a"]


# --- writes of one program, each with its own effects


def test_effect_of_an_equal_write():
    """What an equal create made is not this one's effect: it is lost, though the state shows such a webhook."""
    told = [create(Verdict.APPLIED, "a"), create(Verdict.APPLIED, "b")]
    judged = judge(told, [created("wh_1", "a")], {"wh_1": HOOK})

    assert [each.key for each in judged.lost] == ["b"]
    assert (judged.effects, judged.duplicates, judged.unasked) == (1, 0, 0)


def test_webhook_of_an_equal_write():
    """A create that is called applied with the webhook of another one is wrong, and not lost."""
    told = [
        create(Verdict.APPLIED, "a", made="wh_1"),
        create(Verdict.APPLIED, "b", made="wh_1"),
    ]
    judged = judge(told, [created("wh_1", "a"), created("wh_2", "b")], {})

    assert [(each.report.key, each.why) for each in judged.wrong] == [
        ("b", "reported applied, but wh_1 is not what it created")
    ]


@pytest.mark.parametrize("verdict", [Verdict.NOT_APPLIED, Verdict.REFUSED])
def test_no_beside_an_equal_write(verdict):
    """A no is judged by the own effect, whatever an equal write did."""
    told = [create(Verdict.APPLIED, "a"), create(verdict, "b")]

    assert whys(told, [created("wh_1", "a")]) == {}
    assert whys(told, [created("wh_1", "a"), created("wh_2", "b")]) == {
        "b": f"reported {verdict}, but the ledger shows its effect"
    }


def test_second_effect_beside_an_equal_write():
    """Two effects of one of two equal writes are a duplicate, and the other write's verdict is judged alone."""
    told = [create(Verdict.APPLIED, "a"), create(Verdict.NOT_APPLIED, "b")]
    judged = judge(told, [created("wh_1", "a"), created("wh_2", "a")], {})

    assert (judged.duplicates, judged.wrong) == (1, ())
    assert [each.key for each in judged.repeated] == ["a"]


def test_update_that_an_equal_one_made_needless():
    """Applied is right without an effect while the thing is as wanted, and wrong once a sibling changed it back."""
    ledger = [entry(at=1.0, sender="a"), entry(body=JUNE, at=3.0, sender="b")]
    before = {"jrn_1": {"name": "April"}}

    def again(began, ended):
        told = report(Verdict.APPLIED, key="c", began=began, ended=ended)
        return whys(
            [
                report(Verdict.APPLIED),
                report(Verdict.APPLIED, body=JUNE, key="b"),
                told,
            ],
            ledger,
            before,
        )

    assert again(1.5, 2.0) == {}
    assert again(0.5, 2.0) == {}
    assert list(again(4.0, 5.0)) == ["c"]
    assert list(again(0.1, 0.5)) == ["c"]


def test_update_that_changes_nothing():
    """Applied is right without an effect if the thing stood so before."""
    told = [
        report(Verdict.APPLIED, body={"name": "Dunning"}),
        report(Verdict.APPLIED, key="b"),
    ]
    began = [
        attrs.evolve(told[0], began=0.1, ended=0.5),
        attrs.evolve(told[1], began=0.6, ended=1.5),
    ]
    ledger = [entry(at=1.0, sender="b")]

    assert whys(began, ledger, {"jrn_1": {"name": "Dunning"}}) == {}
    assert list(whys(began, ledger, {"jrn_1": {"name": "April"}})) == ["a"]
    assert whys(told[:1], [], {"jrn_1": {"name": "Dunning"}}) == {}


def test_status_of_a_new_webhook():
    """A new webhook is active though its body need not say so, so that to make it active may need no effect."""
    told = [
        create(Verdict.APPLIED, "a"),
        report(
            Verdict.NOT_APPLIED, "webhooks.update", "wh_1", {"status": "inactive"}, "b"
        ),
        report(Verdict.APPLIED, "webhooks.update", "wh_1", {"status": "active"}, "c"),
    ]

    assert whys(told, [created("wh_1")]) == {}


def test_state_that_came_later():
    """What a sibling changed afterwards does not show that the thing was so before."""
    told = [
        report(Verdict.APPLIED, began=0.1, ended=0.5),
        report(Verdict.APPLIED, key="b", began=2.0),
    ]

    assert list(whys(told, [entry(at=3.0, sender="b")], {"jrn_1": JUNE})) == ["a"]


def test_applied_before_its_effect():
    """Applied is wrong while the effect is still to come."""
    told = report(Verdict.APPLIED, began=0.0, ended=0.5)

    assert list(whys([told], [entry(at=1.0, sender="a")], {"jrn_1": JUNE})) == ["a"]


@pytest.mark.parametrize("verdict", [Verdict.APPLIED, Verdict.UNKNOWN])
def test_order_inverted(verdict):
    """An effect that came after that of a newer write to the same thing is wrong, whatever was said of it."""
    told = [report(verdict), report(Verdict.APPLIED, body=JUNE, key="b")]
    judged = judge(
        told, [entry(at=1.0, body=JUNE, sender="b"), entry(at=2.0, sender="a")], {}
    )

    assert [(each.report.key, each.why) for each in judged.wrong] == [
        ("a", "its effect came after that of the newer write b")
    ]
    assert (judged.inverted, judged.lost) == (1, ())


def test_second_effect_after_a_newer_write():
    """A second effect that undoes a newer write counts as both: a duplicate, and out of order."""
    told = [report(Verdict.APPLIED), report(Verdict.APPLIED, body=JUNE, key="b")]
    ledger = [
        entry(at=1.0, sender="a"),
        entry(at=2.0, body=JUNE, sender="b"),
        entry(at=3.0, sender="a"),
    ]
    judged = judge(told, ledger, {})

    assert (judged.duplicates, judged.inverted) == (1, 1)


@pytest.mark.parametrize("place", ["in order", "another thing"])
def test_order_kept(place):
    """Effects in the order of their writes, or of two things, are as they should be."""
    ats, other = ((1.0, 2.0), "jrn_1") if place == "in order" else ((2.0, 1.0), "jrn_2")
    told = [
        report(Verdict.APPLIED),
        report(Verdict.APPLIED, path_id=other, body=JUNE, key="b"),
    ]
    ledger = [
        entry(at=ats[0], sender="a"),
        entry(path_id=other, at=ats[1], body=JUNE, sender="b"),
    ]

    assert judge(told, ledger, {}).inverted == 0


def test_values_that_undo_each_other():
    """The same value before and after another one is two writes, each with its effect, if the sender is known."""
    told = [
        report(Verdict.APPLIED),
        report(Verdict.APPLIED, body=JUNE, key="b"),
        report(Verdict.APPLIED, key="c"),
    ]
    ledger = [
        entry(at=1.0, sender="a"),
        entry(at=2.0, body=JUNE, sender="b"),
        entry(at=3.0, sender="c"),
    ]
    judged = judge(told, ledger, {"jrn_1": JOURNEY})

    assert (judged.duplicates, judged.inverted, judged.wrong) == (0, 0, ())
    # untimed: it once was as "c" wanted
    assert list(whys(told, ledger[:2], {"jrn_1": JUNE})) == []
    timed = [*told[:2], attrs.evolve(told[2], began=2.5, ended=4.0)]
    assert list(whys(timed, ledger[:2], {"jrn_1": JUNE})) == ["c"]


@pytest.mark.parametrize(
    ("first", "second", "effects", "wrong", "duplicates"),
    [
        (Verdict.APPLIED, Verdict.APPLIED, 2, [], 0),
        (Verdict.APPLIED, Verdict.APPLIED, 1, ["b"], 0),
        (Verdict.APPLIED, Verdict.APPLIED, 3, [], 1),
        (Verdict.NOT_APPLIED, Verdict.APPLIED, 1, [], 0),
        (Verdict.NOT_APPLIED, Verdict.APPLIED, 2, ["a"], 0),
        (Verdict.UNKNOWN, Verdict.APPLIED, 1, [], 0),
        (Verdict.UNKNOWN, Verdict.UNKNOWN, 0, [], 0),
        (Verdict.REFUSED, Verdict.UNKNOWN, 1, [], 0),
    ],
)
def test_equal_writes_without_a_sender(first, second, effects, wrong, duplicates):
    """Where nothing tells equal writes apart, as few as possible are wrong."""
    told = [create(first, "a"), create(second, "b")]
    judged = judge(told, [created(f"wh_{n}", at=float(n)) for n in range(effects)], {})

    assert ([each.report.key for each in judged.wrong], judged.duplicates) == (
        wrong,
        duplicates,
    )


def test_effect_in_the_name_of_another_write():
    """An effect that bears the key of a write that asked for something else belongs to no write."""
    judged = judge([report(Verdict.UNKNOWN)], [entry(body=JUNE, sender="a")], {})

    assert (judged.unasked, judged.duplicates) == (1, 0)


def test_sender_that_is_unknown():
    """A header that the client has set for reasons of its own leaves the effect to what was asked for."""
    judged = judge([report(Verdict.APPLIED)], [entry(sender="request-17")], {})

    assert (judged.unasked, judged.wrong) == (0, ())


def test_keys_as_header():
    """Every key makes a value that a header can have, and no two the same."""
    assert sender_of("Mai 1/ä") == "Mai%201%2F%C3%A4"
    assert sender_of("a/b") != sender_of("a%2Fb")


def test_effect_that_nobody_asked_for():
    """An effect of the client's that belongs to no write is counted apart."""
    judged = judge([report(Verdict.APPLIED)], [entry(), entry(path_id="jrn_2")], {})

    assert (judged.unasked, judged.duplicates) == (1, 0)


def test_effect_of_somebody_else():
    """What others did is neither an effect nor a send of this client."""
    judged = judge([report(Verdict.APPLIED)], [entry(), entry(by="other")], {})

    assert (judged.effects, judged.sends, judged.unasked, judged.duplicates) == (
        1,
        1,
        0,
        0,
    )


def test_unknown_reasons():
    """Unknown verdicts are counted by their reasons."""
    told = [
        report(Verdict.UNKNOWN, path_id=f"jrn_{n}", key=str(n), reason="no read")
        for n in range(3)
    ]

    assert judge(told, [], {}).unknown_reasons == {"no read": 3}


def test_bodies_spelt_otherwise():
    """Order of keys, and 1 or 1.0, make no other write."""
    assert canonical({"a": 1, "b": [True, {"x": 1.0}]}) == canonical(
        {"b": [True, {"x": 1}], "a": 1.0}
    )
    assert canonical({"a": True}) != canonical({"a": 1})


def test_true_verdict_for_a_false_reason():
    """A write that did not happen, told as overtaken, is wrong if no newer one had arrived."""
    told = Told(verdict=Verdict.NOT_APPLIED, basis="never sent", cause="overtaken")
    first = report(Verdict.NOT_APPLIED, told=told)
    newer = report(Verdict.APPLIED, body=JUNE, key="b")

    judged = judge([first, newer], [entry(body=JUNE)], {})
    assert (judged.wrong, judged.false_reasons) == ((), 0)

    judged = judge([newer, first], [entry(body=JUNE)], {})
    assert [each.report.key for each in judged.wrong] == ["a"]
    assert judged.false_reasons == 1


def test_false_verdict_and_false_reason():
    """A verdict that is false counts as that alone."""
    told = Told(verdict=Verdict.NOT_APPLIED, basis="never sent", cause="never left")
    judged = judge([report(Verdict.NOT_APPLIED, told=told)], [entry()], {})
    assert (len(judged.wrong), judged.false_reasons) == (1, 0)


def test_reason_that_is_not_known():
    """A client of anybody may give any reason; one that nobody can check is wrong."""
    told = Told(verdict=Verdict.UNKNOWN, cause="bad luck")
    (why,) = whys([report(Verdict.UNKNOWN, told=told)], []).values()
    assert "'bad luck' has no condition" in why


def test_reasons_of_equal_writes():
    """Of equal writes whose requests name no sender, nobody knows which arrived."""
    told = Told(verdict=Verdict.NOT_APPLIED, basis="never sent", cause="never left")
    reports = [report(Verdict.APPLIED), report(Verdict.NOT_APPLIED, key="b", told=told)]
    assert judge(reports, [entry()], {}).wrong == ()


def test_applied_in_part():
    """A write of which a part was stored is not applied, and may be repeated."""
    body = {"name": "May", "description": "new"}
    part, whole = entry(body=body), entry(body=body, at=2.0)
    part.stored, part.fields = "in part", {"name": "May"}
    before = {"jrn_1": {"name": "April", "description": "old"}}

    judged = judge([report(Verdict.APPLIED, body=body)], [part], before)
    assert [each.why for each in judged.wrong] == [
        "reported applied, but the ledger shows only a part of it"
    ]

    judged = judge([report(Verdict.APPLIED, body=body)], [part, whole], before)
    assert (judged.wrong, judged.duplicates) == ((), 0)
    assert judge([report(Verdict.UNKNOWN, body=body)], [part], before).wrong == ()
