"""
Check several writes of one program against the invariants of siblings, each by its number.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from invsvc_async.reconcile.compare import url_key
from invsvc_async.reconcile.findings import is_unique
from invsvc_async.reconcile.history import Attempt, Reading, Verdict
from tests.exhaustive.broken import hold
from tests.exhaustive.client import OTHER_CLIENT
from tests.exhaustive.models import SAME, Listing
from tests.exhaustive.world import EPSILON

if TYPE_CHECKING:
    from tests.exhaustive.world_setup import Node, Run, SetUp

OWN, SOMEBODY, GUESSED, TURN, ORDER, AGREEING = 8, 9, 10, 11, 12, 13


def judge_turn(setup: SetUp, node: Node, run: Run) -> None:
    """Check a send that is about to begin against rules 11 and 12."""
    here = [
        each
        for each in node.runs
        if each.number != run.number and _may_be_mistaken(run, each)
    ]
    if setup.in_turn and run.client != OTHER_CLIENT:
        left = {
            each.number
            for each in here
            if each.client != OTHER_CLIENT or not each.resends
        }
        busy = any(
            one.run in left and one.latest > run.now + EPSILON
            for one in node.world.pending
        )
        hold(TURN, not busy, "sent while one like it may still land")
    if isinstance(setup.model, Listing):
        return
    newer = [
        each
        for each in here
        if each.number > run.number and each.done is not None and setup.shared
    ]
    done = any(
        each.done is not None and each.done.verdict is Verdict.APPLIED for each in newer
    )
    hold(ORDER, not done, "sent though a newer write of the same thing is done")


def judge_order(setup: SetUp, node: Node) -> None:
    """Compare the effects on one thing with the order of the writes."""
    by = [number for number, _ in node.world.effects]
    hold(
        ORDER,
        isinstance(setup.model, Listing) or not setup.shared or by == sorted(by),
        "effects are not in the order of the writes",
    )


def judge_absence(setup: SetUp, node: Node, run: Run) -> None:
    """Check an absence against the items that were set aside because of a guess."""
    last = run.history[-1]
    if (
        not isinstance(setup.model, Listing)
        or not isinstance(last, Reading)
        or not last.guessed
    ):
        return
    low = -float("inf") if setup.bounds is None else setup.bounds[0]
    low = max(low, -setup.took if setup.stamped else low) - setup.policy.clock_slack
    wanted = setup.model.body_of(run.number)
    assert run.first is not None
    before = [
        one
        for one, two in pairwise(run.history)
        if isinstance(one, Reading) and isinstance(two, Attempt)
    ]
    shown_before = {hook["id"] for reading in before for hook in reading.seen or ()} | {
        *run.intent.strangers
    }
    for shown, (number, look, created, _) in zip(
        setup.model.show(node.world.thing)[::-1], node.world.thing, strict=True
    ):
        name = setup.model.name_of(number)
        alike = look == SAME and url_key(shown["url"]) == url_key(wanted["url"])
        alike = alike and shown["description"] == wanted.get("description")
        known_before = name in shown_before or created < run.first + low + EPSILON
        hold(
            GUESSED,
            not (alike and name in last.guessed and not known_before),
            "an absence by a guess",
        )


def _may_be_mistaken(run: Run, other: Run) -> bool:
    """Return whether the effect of one can be mistaken for the other's."""
    one, two = run.intent, other.intent
    if one.operation != "webhooks.create":
        return True
    return (
        not is_unique(one.tag)
        and not is_unique(two.tag)
        and url_key(one.body["url"]) == url_key(two.body["url"])
    )
