"""A service that stores a write in its own words, or in part, is no stranger: each way to do so, by the rules alone."""

from __future__ import annotations

import attrs
import pytest

from invsvc_async.api.operations import BY_NAME
from invsvc_async.reconcile.differences import differences, digest, told
from invsvc_async.reconcile.facts import Known
from invsvc_async.reconcile.history import Done, Resumed, Verdict
from invsvc_async.reconcile.kinds import kind_of_write
from invsvc_async.reconcile.stored_intent import stored
from tests.reconcile.test_decide import (
    AFTER,
    DRAFT,
    HOOK,
    LEFT_DRAFT,
    LEFT_UPDATE,
    UPDATE,
    journey,
    lost,
    next_of,
    read,
    stamp,
)


def graph(*names, at=1.234567, viewport=None, kind="email"):
    nodes = [
        {
            "id": name,
            "type": kind,
            "position": {"x": at, "y": at},
            "data": {"config": {"to": "all"}},
        }
        for name in names
    ]
    return {
        "nodes": nodes,
        "edges": [],
        **({} if viewport is None else {"viewport": viewport}),
    }


SENT_GRAPH = graph("a", "b")
JOURNEYS = {  # the field, what was sent, and what the service made of it
    "composed": ("name", "Cafe\u0301 y recordatorio", "Caf\u00e9 y recordatorio"),
    "decomposed": ("name", "Caf\u00e9 y recordatorio", "Cafe\u0301 y recordatorio"),
    "without accents": ("name", "Caf\u00e9 y recordatorio", "Cafe y recordatorio"),
    "escaped": ("name", "Tom & <Jerry>", "Tom &amp; &lt;Jerry&gt;"),
    "escaped twice": ("name", "Tom & Jerry", "Tom &amp;amp; Jerry"),
    "unescaped": ("name", "Tom &amp; Jerry", "Tom & Jerry"),
    "without emoji": ("name", "Reminder \U0001f600 of May", "Reminder  of May"),
    "emoji alone, left out": ("name", "\U0001f600\U0001f680", ""),
    "emoji as question marks": ("name", "\U0001f600 May", "? May"),
    "without tags": ("description", "<b>All</b> of <i>it</i>", "All of it"),
    "without tags, in many parts": ("description", "<p>one</p><p>two</p>" * 12, "one two " * 12),
    "without zero-width characters": ("name", "Remin\u200bder\u200d", "Reminder"),
    "trimmed": ("name", "  mine ", "mine"),
    "folded": ("name", "Mine Too", "mine too"),
    "cut": ("name", "mine, and much more", "mine, and"),
    "cut with an ellipsis": ("name", "mine, and much more", "mine, and…"),
    "with a prefix": ("name", "mine", "Copy of mine"),
    "full-width as ASCII": ("name", "\uff2d\uff29\uff2e\uff25", "MINE"),
    "in typographic quotes": ("name", 'the "big" one', "the \u201cbig\u201d one"),
    "empty, as a default": ("description", "", "No description"),
    "null, as a default": ("description", None, "No description"),
    "left out": ("description", "mine", None),
    "a default viewport": ("graph", SENT_GRAPH, graph("a", "b", viewport={"x": 0, "y": 0, "zoom": 1})),
    "nodes in another order": ("graph", SENT_GRAPH, graph("b", "a")),
    "rounded positions": ("graph", SENT_GRAPH, graph("a", "b", at=1.23)),
    "an alias of a node's type": ("graph", SENT_GRAPH, graph("a", "b", kind="mail")),
    "node ids folded": ("graph", graph("Node-A"), graph("node_a")),
    "a node more": ("graph", SENT_GRAPH, graph("start", "a", "b")),
    "no nodes": ("graph", SENT_GRAPH, graph()),
    "no graph": ("graph", SENT_GRAPH, None),
    "an alias of the trigger": ("triggerType", "invoice_overdue", "payment.late"),
    "replacesDefaults as null": ("replacesDefaults", True, None),
}  # fmt: skip
HOOKS = {
    "a masked token": (
        "url",
        "https://me.example/in?token=abcdef",
        "https://me.example/in?token=***",
    ),
    "a masked password": (
        "url",
        "https://me:secret@me.example/in",
        "https://me.example/in",
    ),
    "a masked host": ("url", "https://me.example/in", "https://***/in"),
    "a sorted query": (
        "url",
        "https://me.example/in?b=1&a=2",
        "https://me.example/in?a=2&b=1",
    ),
    "another scheme": ("url", "http://me.example/in", "https://me.example/in"),
    "another port": ("url", "https://me.example:8443/in", "https://me.example/in"),
    "a Unicode host": (
        "url",
        "https://stra\u00dfe.example/x",
        "https://xn--strae-oqa.example/y",
    ),
    "no URL": ("url", "https://me.example/in", "masked"),
    "some events": (
        "events",
        ["invoice.created", "payment.created"],
        ["payment.created"],
    ),
    "no events": ("events", ["payment.created"], []),
    "events in another spelling": ("events", ["payment.created"], ["PAYMENT_CREATED"]),
    "events as null": ("events", ["payment.created"], None),
    "a status in other words": ("status", "inactive", "disabled"),
    "a description that is escaped": ("description", "Tom & Jerry", "Tom &amp; Jerry"),
}
SHORT = {"description": "short text of before"}
SOON = stamp(5)


def _journey(field, sent, shown, **others):
    before = journey(
        graph=graph("old"),
        triggerType="other",
        replacesDefaults=False,
        description="for May",
    )
    of = attrs.evolve(DRAFT, body={field: sent, **others}, baseline=before)
    return of, before, {**before, field: shown, "last_updated": SOON}


def _hook(field, sent, shown, **others):
    before = {**HOOK, "url": "https://before.example/", "events": ["invoice.canceled"]}
    of = attrs.evolve(UPDATE, body={field: sent, **others}, baseline=before)
    return of, before, {**before, field: shown}


@pytest.mark.parametrize(("field", "sent", "shown"), JOURNEYS.values(), ids=JOURNEYS)
def test_journey_in_the_service_s_own_words(field, sent, shown):
    """Nobody else is named, live and after a restart, and the verdict stays open."""
    of, _, seen = _journey(field, sent, shown)
    left = attrs.evolve(of, sent=LEFT_DRAFT.sent)
    for verdict in (
        next_of(of, lost(), read(AFTER, seen)),
        next_of(left, Resumed(at=1.0, newest=True), read(100.0, seen)),
    ):
        assert isinstance(verdict, Done)
        assert (verdict.verdict, verdict.evidence.cause) == (
            Verdict.UNKNOWN,
            "other words",
        )
        assert "somebody" not in verdict.reason
        assert field in verdict.reason


@pytest.mark.parametrize(("field", "sent", "shown"), HOOKS.values(), ids=HOOKS)
def test_webhook_in_the_service_s_own_words(field, sent, shown):
    """The read before showed it as before, which would be the proof of a stranger."""
    of, before, seen = _hook(field, sent, shown)
    left = attrs.evolve(of, sent=LEFT_UPDATE.sent)
    for verdict in (
        next_of(of, lost(), read(5.1, before), read(AFTER, seen)),
        next_of(
            left, Resumed(at=1.0, newest=True), read(8.0, before), read(100.0, seen)
        ),
    ):
        assert isinstance(verdict, Done)
        assert (verdict.verdict, verdict.evidence.cause) == (
            Verdict.UNKNOWN,
            "other words",
        )
        assert "somebody" not in verdict.reason
        assert field in verdict.reason


FOREIGN_IN_JOURNEYS = {
    "another name": ("name", "Dunning, May", "Newsletter"),
    "another short name": ("name", "v2", "v3"),
    "another name of the same length": ("name", "abcdef", "uvwxyz"),
    "another long text": ("description", "The first reminder, three days after the invoice is due.", "Ask the team in Puebla who owns this flow before any edit, please!"),
    "another graph": ("graph", SENT_GRAPH, graph("x", "y")),
    "the other of two": ("replacesDefaults", False, True),
}  # fmt: skip
FOREIGN_IN_HOOKS = {
    "another host": ("url", "https://me.example/in", "https://you.example/in"),
    "other events": ("events", ["payment.created"], ["receipt.created"]),
    "another status": ("status", "active", "inactive"),
    "another description": ("description", "mine", "other"),
}


@pytest.mark.parametrize(
    ("field", "sent", "shown"), FOREIGN_IN_JOURNEYS.values(), ids=FOREIGN_IN_JOURNEYS
)
def test_journey_with_a_foreign_value(field, sent, shown):
    """What the service cannot have made of the write is somebody else's."""
    of, _, seen = _journey(field, sent, shown)
    verdict = next_of(of, lost(), read(AFTER, seen))
    assert (verdict.verdict, verdict.evidence.cause) == (
        Verdict.SUPERSEDED,
        "changed since",
    )


@pytest.mark.parametrize(
    ("field", "sent", "shown"), FOREIGN_IN_HOOKS.values(), ids=FOREIGN_IN_HOOKS
)
def test_webhook_with_a_foreign_value(field, sent, shown):
    """What the service cannot have made of the write is somebody else's."""
    of, before, seen = _hook(field, sent, shown)
    verdict = next_of(of, lost(), read(5.1, before), read(AFTER, seen))
    assert (verdict.verdict, verdict.evidence.cause) == (
        Verdict.SUPERSEDED,
        "changed since",
    )


@pytest.mark.parametrize("of_stranger", ["mine, by Ann", "reminder of Ann, 5 days"])
def test_part_beside_what_another_write_may_have_left(of_stranger):
    """An update of which a part shows is not completed over a field that shows neither it nor what was before."""
    before = {**HOOK, "description": "reminder of 5 days"}
    body = {
        "description": "mine",
        "url": "https://me.example/x",
        "events": ["payment.created"],
    }
    of = attrs.evolve(UPDATE, baseline=before, body=body)
    seen = {**before, "description": of_stranger, "url": "https://me.example/x"}

    live = next_of(of, lost(), read(AFTER, seen))
    known = Known(BY_NAME[of.operation], of, (lost(), read(AFTER, seen)))
    mixture = stored(known).mixture
    left = attrs.evolve(of, sent=LEFT_UPDATE.sent, mixture=digest(body, seen))
    resumed = next_of(left, Resumed(at=1.0, newest=True), read(100.0, seen))

    assert mixture is None
    for verdict in (live, resumed):
        assert isinstance(verdict, Done)
        assert (verdict.verdict, verdict.evidence.cause) == (
            Verdict.UNKNOWN,
            "other words",
        )


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "https://hooks.slack.com/services/T01AB2CD3/B04EF5GH6/aBcDeFgHiJkLmNoPqRsTuVwX",
            "https://hooks.slack.com/services/…/…/…",
        ),
        (
            "https://discord.com/api/webhooks/123456789012345678/aB-c_d",
            "https://discord.com/api/webhooks/…/…",
        ),
        (
            "https://me2.example:8443/in/v2/invoices",
            "https://me2.example:8443/in/v2/invoices",
        ),
        (
            "https://me:pass@me.example/in?token=x1#s3cret-part",
            "https://***@me.example/in?token=…#…",
        ),
        ("https://me.example/abcdefghijklmnopqrstuvwxyz/", "https://me.example/…/"),
    ],
)
def test_url_that_is_told_has_no_tokens(url, shown):
    """Some services let in whoever knows the path of a URL: its segments are told only if they are words."""
    fields = differences(
        kind_of_write(BY_NAME["webhooks.update"]), {"url": url}, None, {"url": "masked"}
    )
    assert f'sent "{shown}"' in told(iter(fields))
