"""What a service may have made of what it was sent, and what it cannot have made."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import attrs
import pytest

from invsvc_async.reconcile import made_of
from invsvc_async.reconcile.history import Resumed, Verdict
from invsvc_async.simulator.own_words import WAYS
from tests.reconcile.test_decide import (
    AFTER,
    DRAFT,
    HOOK,
    LEFT_UPDATE,
    UPDATE,
    journey,
    lost,
    next_of,
    read,
)
from tests.support import awkward

if TYPE_CHECKING:
    from invsvc_async.reconcile.intent import Intent

LONG = "Orders of the shop in Puebla, to the queue abcd1234efgh5678 of accounting"
MADE = {
    "as sent": ("text", "mine", "mine"),
    "trimmed": ("text", "  mine ", "mine"),
    "folded": ("text", "Mine", "mine"),
    "escaped": ("text", "Tom & Jerry", "Tom &amp; Jerry"),
    "escaped and cut": ("text", "Tom <b>& Jerry</b>", "Tom &lt;b&gt;&am"),
    "cut": ("text", LONG, "Orders of the shop"),
    "cut, and short": ("text", "mine", "mi"),
    "masked": ("text", LONG, LONG.replace("1234efgh5678", "****")),
    "masked by letters": ("text", LONG, LONG.replace("abcd1234efgh5678", "xxxxxxxxxxxxxxxx")),
    "masked by a word": ("text", LONG, LONG.replace("abcd1234efgh5678", "[hidden]")),
    "masked as a whole": ("text", "s3cret0000", "****"),
    "emoji alone, left out": ("text", "\U0001f600", ""),
    "a default for what is empty": ("text", "", "No description"),
    "a default for null": ("text", None, "No description"),
    "other letters left out": ("text", "Заказы orders", "orders"),
    "too long to be compared": ("text", "a" * 30_000, "b"),
    "a masked value in a query": ("url", "https://me.example/in?token=abcdef", "https://me.example/in?token=***"),
    "a sorted query": ("url", "https://me.example/in?b=1&a=2", "https://me.example/in?a=2&b=1"),
    "a masked part of a path": ("url", "https://me.example/h/abcd1234efgh", "https://me.example/h/abcd****"),
    "a part of a path hidden": ("url", "https://me.example/h/abcd1234efgh", "https://me.example/h/[hidden]"),
    "without its query": ("url", "https://me.example/in?a=2", "https://me.example/in"),
    "events in another order": ("names", ["a.created", "b.created"], ["b.created", "a.created"]),
    "events in another spelling": ("names", ["payment.created"], ["PAYMENT_CREATED"]),
    "a graph in another order": ("graph", awkward.graph(1), {**awkward.graph(1), "nodes": awkward.graph(1)["nodes"][::-1]}),
    "a rounded number": ("value", 1.25, 1),
    "a text, of whatever field": ("value", " Mine ", "mine"),
    "an object": ("value", {"a": 1}, {"b": 1}),
    "a boolean left out": ("switch", True, None),
}  # fmt: skip
NOT_MADE = {
    "another number": ("text", "hook v2", "hook v1"),
    "another number of two digits": ("text", "build 12", "build 21"),
    "another text": ("text", "Orders, production", "Orders, staging"),
    "a longer text": ("text", "Orders", "Orders of the shop"),
    "letters that are in the text by chance": ("text", LONG, "oooo"),
    "a short text": ("text", LONG, "ab"),
    "none": ("text", "mine", None),
    "empty": ("text", "mine", ""),
    "a tag of a write": ("text", "of order 4", "[iv-2btpjdahbnrw24oh]"),
    "another text before a tag": ("text", "mine", "theirs [iv-2btpjdahbnrw24oh]"),
    "another host": ("url", "https://me.example/in", "https://you.example/in"),
    "another path": ("url", "https://me.example/v2/hook", "https://me.example/v1/hook"),
    "another value in the query": ("url", "https://me.example/in?token=2", "https://me.example/in?token=1"),
    "no URL": ("url", "https://me.example/in", None),
    "fewer events": ("names", ["a.created", "b.created"], ["a.created"]),
    "events as null": ("names", ["a.created"], None),
    "another graph": ("graph", awkward.graph(1), awkward.graph(2)),
    "a node with other data": (
        "graph",
        awkward.graph(1),
        {**awkward.graph(1), "nodes": [{**node, "data": {"to": "all"}} for node in awkward.graph(1)["nodes"]]},
    ),
    "a node that was moved": (
        "graph",
        awkward.graph(1),
        {**awkward.graph(1), "nodes": [{**node, "position": {"x": 9, "y": 9}} for node in awkward.graph(1)["nodes"]]},
    ),
    "no edges": ("graph", awkward.graph(1), {**awkward.graph(1), "edges": []}),
    "no graph": ("graph", awkward.graph(1), None),
    "another number of any field": ("value", 10, 12),
    "another boolean of any field": ("value", True, False),
    "another text of any field": ("value", "red", "blue"),
    "no object": ("value", {"a": 1}, None),
    "the other of two": ("switch", True, False),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "sent", "shown"), MADE.values(), ids=MADE)
def test_made(kind, sent, shown):
    """The service may have made this of what it was sent."""
    assert getattr(made_of, kind)(sent, shown)


@pytest.mark.parametrize(("kind", "sent", "shown"), NOT_MADE.values(), ids=NOT_MADE)
def test_not_made(kind, sent, shown):
    """No service can have made this of what it was sent."""
    assert not getattr(made_of, kind)(sent, shown)


@pytest.mark.parametrize("seed", range(200))
def test_each_way_of_the_embedded_service(seed):
    """Whatever ways the embedded service takes, alone or one after the other, the value is made of the one sent."""
    chance = random.Random(seed)
    number = chance.randrange(10_000)
    values = {
        "text": awkward.text(number),
        "url": awkward.url(number),
        "graph": awkward.graph(number),
        "events": ["b.b", "a.a"],
    }
    ways = chance.sample(list(WAYS), chance.randrange(1, len(WAYS)))
    for kind, sent in values.items():
        shown = sent
        for word, by_kind in WAYS.items():
            if word in ways and kind in by_kind:
                shown = by_kind[kind](shown, chance.randrange(12, 80))
        is_made_of = {
            "text": made_of.text,
            "url": made_of.url,
            "graph": made_of.graph,
            "events": made_of.names,
        }[kind]
        assert is_made_of(sent, shown), (ways, sent, shown)


SHOWS = {  # what is sent, what is shown, how many characters are kept: whether the rest would show
    "words": ("Spring sale", "Spring", 8, True),
    "the first letter is cut off": ("Spring sale", "Spring", 7, False),
    "letters": ("hook10", "hook1", 6, True),
    "signs alone": ("Spring -", "Spring", 20, False),
    "letters of two bytes": ("Spring s\u00f1", "Spring", 20, False),
    "an emoji": ("Spring \U0001f600", "Spring", 20, False),
    "markup": ("Spring <b>", "Spring", 20, False),
    "after letters of two bytes": ("Ma\u00f1ana s", "Ma\u00f1ana", 8, False),
    "after letters of two bytes, in a longer text": (
        "Ma\u00f1ana s",
        "Ma\u00f1ana",
        9,
        True,
    ),
    "another text": ("Spring sale", "Autumn", 20, False),
    "a shorter text": ("Spring", "Spring sale", 20, False),
    "nothing before": ("Spring", "", 20, False),
    "no text": (None, "Spring", 20, False),
}
KEPT = {  # what a read shows, and how many characters are certainly kept
    "words": ("Spring sale", 11),
    "signs at the end": ("Spring -- ", 6),
    "escapes": ("Tom &amp; Jerry", 0),
    "a mask": ("Spring [hidden]", 0),
    "a mask of letters": ("Spring xxxx", 0),
    "letters of two bytes": ("Ma\u00f1ana", 0),
    "no text": (None, 0),
}


@pytest.mark.parametrize(
    ("sent", "shown", "kept", "expected"), SHOWS.values(), ids=SHOWS
)
def test_text_that_only_grows(sent, shown, kept, expected):
    """Words at the end are left out by a cut alone, and not in a shorter text than one that is kept whole."""
    assert made_of.would_show(sent, shown, kept) is expected


@pytest.mark.parametrize(("shown", "expected"), KEPT.values(), ids=KEPT)
def test_characters_that_are_kept(shown, expected):
    """Only plain texts tell: an escape or a mask may be longer than what it stands for."""
    assert made_of.kept_of(shown) == expected


def _update(
    sent: dict[str, object], before: dict[str, object]
) -> tuple[Intent, dict[str, object]]:
    state = {**HOOK, **before}
    return attrs.evolve(UPDATE, body=sent, baseline=state), state


@pytest.mark.parametrize("before", ["mine", "mi", "MINE&amp;"])
def test_lost_update_of_what_is_so_already_in_other_words(before):
    """A read that shows the state before is no proof of absence, live and after a restart."""
    of, state = _update({"description": "  Mine& "}, {"description": before})
    left = attrs.evolve(of, sent=LEFT_UPDATE.sent)
    for verdict in (
        next_of(of, lost(), read(AFTER, state)),
        next_of(left, Resumed(at=1.0, newest=True), read(100.0, state)),
    ):
        assert (verdict.verdict, verdict.evidence.cause) == (
            Verdict.UNKNOWN,
            "not visible",
        )
        assert "leaves no trace" in verdict.reason
        assert "description" in verdict.reason


def test_lost_update_of_which_one_field_would_show():
    """One field that the write would have changed for certain is the proof for all."""
    of, state = _update(
        {"description": "  Mine ", "status": "inactive"},
        {"description": "mine", "status": "active"},
    )
    decision = next_of(
        attrs.evolve(of, policy=attrs.evolve(of.policy, resend="never")),
        lost(),
        read(AFTER, state),
    )
    assert decision.verdict is Verdict.NOT_APPLIED


def test_field_that_may_be_either_is_no_part():
    """A field that was so before, in the service's words for what is sent, is not told as left out."""
    before = journey(name="Dunning, May", description="mine")
    of = attrs.evolve(
        DRAFT, body={"name": "Reminder", "description": " Mine "}, baseline=before
    )
    seen = {
        **before,
        "name": "reminder",
        "last_updated": before["last_updated"] + 10_000_000,
    }
    verdict = next_of(of, lost(), read(AFTER, seen))
    assert (verdict.verdict, verdict.evidence.cause) == (Verdict.UNKNOWN, "other words")


def test_trimmed_update_of_what_is_so_already():
    """What shows is what was there, and what the service makes of the write: nothing was undone."""
    before = journey(name="X")
    of = attrs.evolve(DRAFT, body={"name": "  X "}, baseline=before)
    seen = {**before, "last_updated": before["last_updated"] + 10_000_000}
    verdict = next_of(of, lost(), read(AFTER, seen))
    assert (verdict.verdict, verdict.evidence.cause) == (Verdict.UNKNOWN, "other words")


@pytest.mark.parametrize("before", [None, ""])
def test_stranger_s_text_where_there_was_none(before):
    """Nothing is made of an empty text of before: a foreign one is somebody else's."""
    of, state = _update({"description": "mine"}, {"description": before})
    seen = {**state, "description": "theirs"}
    verdict = next_of(of, lost(), read(5.1, state), read(AFTER, seen))
    assert (verdict.verdict, verdict.evidence.cause) == (
        Verdict.SUPERSEDED,
        "changed since",
    )


@pytest.mark.parametrize(
    "shown", ["Reminder", "reminder", "Dunning", "Copy of Reminder"]
)
def test_part_that_is_not_dated(shown):
    """A journey that differs from its state before, with the time of that, is not as if nothing was written."""
    before = journey(name="Dunning, May", description="mine")
    of = attrs.evolve(
        DRAFT, body={"name": "Reminder", "description": "other"}, baseline=before
    )
    verdict = next_of(of, lost(), read(AFTER, {**before, "name": shown}))
    assert verdict.verdict is Verdict.UNKNOWN
