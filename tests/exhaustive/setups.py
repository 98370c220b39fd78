"""
List the small worlds that are walked whole, and the larger ones that are walked for a time.
"""

from __future__ import annotations

from typing import Any

import attrs

from invsvc_async.settings import ReconcilePolicy, Timeouts
from tests.exhaustive.answers import (
    BAD_GATEWAY, BARE, BROKEN, CONFLICT, CREDITS, DENIED, ENDINGS, ERROR, EXPIRED, GATEWAY_ERROR, HUNG, INVALID, LIMITED, MISSING, NO_READ,
    NOT_SHOWN, OK, PASSING, RESET, UNAUTHORIZED, UNREAD, UNSENT, FOREIGN,
)  # fmt: skip
from tests.exhaustive.models import BLURRED, NEAR, OLD, SAME, WANTED, Hook, Journey, Listing, Team
from tests.exhaustive.setup import START, WIDE, Crash, SetUp
from tests.exhaustive.world import OTHER

UPDATE, DELETE = Hook(), Hook("webhooks.delete")
BASES: dict[str, dict[str, Any]] = {
    "journeys.update": {"model": Journey(), "thing": (OLD, 0, 0.0, 0)},
    "webhooks.update": {"model": UPDATE, "thing": (OLD, 0, 0)},
    "webhooks.delete": {"model": DELETE, "thing": (OLD, 0, 0)},
    "webhooks.create": {"model": Listing(), "thing": ()},
    "webhooks.create, tagged": {"model": Listing(tagged=True), "thing": ()},
    "teams.create, with a reader": {"model": Team(), "thing": (0,), "reader": "own"},
}
ACTS = {
    "journeys.update": ("equal", "other", "revert", "side", "delete"),
    "webhooks.update": ("equal", "other", "side", "delete"),
    "webhooks.delete": ("side", "delete"),
    "webhooks.create": ("near", "away", "blurred", "edit", "later"),
    "webhooks.create, tagged": ("near", "identical", "blurred", "move", "edit"),
    "teams.create, with a reader": (),
}
FEW = (OK, ERROR, RESET, HUNG)
AGAIN = (OK, MISSING, CONFLICT, INVALID, UNSENT, ERROR, RESET, UNAUTHORIZED, LIMITED)
CRASHES = (
    Crash("settle"), Crash("settle", 20.0), Crash("settle", 20.0, kept="start"), Crash("settle", 0.5, gone=False),
    Crash("settle", 60.0, journaled=False, gone=False), Crash("settle", 0.5, journaled=False, kept="nothing"),
    Crash("settle", 700.0), Crash("resume"), Crash("resume", 20.0, kept="start"), Crash("resume", 20.0, gone=False),
    Crash("resume", 0.5, kept="nothing"), Crash("resume", 20.0, journaled=False, gone=False, kept="nothing"),
)  # fmt: skip
AFTER = (Crash("settle", 0.5, journaled=False, gone=False), Crash("settle", 30.0, journaled=False, gone=False))
REFUSING = (DENIED, EXPIRED)


def each(name: str, only: tuple[str, ...] = tuple(BASES), **facts: Any) -> list[SetUp]:
    return [SetUp(name=f"{write}: {name}", **{**BASES[write], **facts}) for write in only]


def _small() -> list[SetUp]:
    return [
        *each("calm", first=ENDINGS, again=FEW, calm=True),
        *each("bare answers", tuple(BASES)[1:3], first=(BARE, ERROR, RESET), again=(BARE, RESET), misses=(UNREAD, DENIED), fails=1),
        *each("again", first=(ERROR, BAD_GATEWAY, HUNG), again=ENDINGS),
        *each("failing reads", first=(ERROR, RESET), again=(OK, RESET), misses=PASSING, fails=1, calm=True),
        *each("reads that fail twice", first=(ERROR, GATEWAY_ERROR, RESET), again=(OK, RESET), misses=(UNREAD, BROKEN, FOREIGN), fails=2, calm=True),
        *each("refused reads", first=FEW, again=FEW, misses=REFUSING, fails=1),
        *each("slow reads", first=FEW, again=(OK,), took=4.0, fresh=True, calm=True),
        *each("killed", first=(OK, ERROR, RESET, UNSENT), again=(OK, MISSING, RESET), crashes=CRASHES),
        *each("killed, failing reads", first=(RESET,), crashes=CRASHES, misses=(UNREAD, FOREIGN, DENIED), fails=1),
        *each("settled once more", first=ENDINGS, again=(OK, INVALID), afterwards=AFTER),
        *each("no second send", first=ENDINGS, policy=ReconcilePolicy(resend="never"), calm=True),
        *each("little time", first=ENDINGS, policy=ReconcilePolicy(deadline=10.0), misses=(UNREAD,), fails=1),
        *each("two more sends", first=(ERROR,), again=(OK, ERROR, RESET, INVALID), policy=ReconcilePolicy(max_resends=2, deadline=200.0), calm=True),
        *each("slow to fail", first=(RESET, HUNG), again=(OK, HUNG), policy=ReconcilePolicy(deadline=45.0), calm=True),
        *each("too slow to fail", first=(RESET, HUNG), again=(OK, HUNG), policy=ReconcilePolicy(deadline=42.0), calm=True),
        *each("limited", first=(LIMITED, ERROR, CREDITS), again=(LIMITED, OK), policy=ReconcilePolicy(wait_when_limited=True)),
        *each("late to send", first=(UNSENT, ERROR, RESET), again=(UNSENT, OK), dawdle=6.0, calm=True),
        *each("clocks unknown", first=FEW, again=(OK, RESET), bounds=None, misses=(UNREAD, DENIED), fails=1),
        *each("no times at all", first=FEW, again=(OK, RESET), bounds=None, stamped=False),
        *each("killed, wide", first=(ERROR, RESET), again=(OK,), crashes=CRASHES, bounds=WIDE),
        *each("killed, clock ahead", first=(ERROR, RESET), again=(OK,), crashes=CRASHES, stamped=False, jump=512.0),
        *each("killed, no times", first=(ERROR, RESET), again=(OK,), crashes=CRASHES, bounds=None, stamped=False),
        *each("hosts that answer ahead", first=FEW, bounds=None, drift=0.25, calm=True),
        *each("hosts that answer behind", first=FEW, bounds=None, drift=-0.25, calm=True),
        *_acting(), *_changes(), *_creates(),
    ]  # fmt: skip


def _acting() -> list[SetUp]:
    return [
        setup
        for write, acts in ACTS.items()
        if acts
        for setup in (
            *each("others act", (write,), first=FEW, again=(OK, MISSING), acts=acts, acting=1),
            *each("others act, wide", (write,), first=(ERROR, RESET), bounds=WIDE, acts=acts, acting=1),
            *each("others act, none", (write,), first=(ERROR, RESET), bounds=None, acts=acts, acting=1),
            *each("others act twice", (write,), first=(ERROR,), acts=acts, acting=2),
            *each("others act, failing reads", (write,), first=(ERROR, RESET), acts=acts, acting=1, misses=(UNREAD, FOREIGN), fails=1),
            *each("others act, killed", (write,), first=(RESET,), acts=acts, acting=1, crashes=CRASHES[:2]),
        )
    ]


def _changes() -> list[SetUp]:
    both = ("journeys.update", "webhooks.update")
    already: dict[str, Any] = {"first": FEW, "again": (OK,), "calm": True}
    return [
        SetUp(name="webhooks.update: already so", model=UPDATE, thing=(WANTED, 0, 0), **already),
        SetUp(name="journeys.update: already so", model=Journey(), thing=(WANTED, 0, 0.0, 0), **already),
        *each("baseline read first", both, first=FEW, again=(OK, RESET), baseline=False, misses=(UNREAD, BROKEN), fails=1),
        *each("baseline read first, others act", both, first=(ERROR, RESET), baseline=False, acts=ACTS["webhooks.update"], acting=1),
        *each("no such read", both[:1], first=FEW, misses=(NO_READ, NOT_SHOWN), fails=1),
        *each("not dated", both[:1], model=Journey(dated=False), thing=(OLD, 0, -1.0, 0), first=FEW,
               acts=ACTS["journeys.update"], acting=1),
        *each("published", both[:1], model=Journey(published=True), first=FEW, acts=ACTS["journeys.update"], acting=1),
        *each("hosts apart", both[:1], model=Journey(ours=-0.25, others=0.25), first=(ERROR, RESET),
               acts=ACTS["journeys.update"], acting=1),
        *each("hosts apart the other way", both[:1], model=Journey(ours=0.25, others=-0.25), first=(ERROR, RESET),
               acts=ACTS["journeys.update"], acting=1),
    ]  # fmt: skip


def _creates() -> list[SetUp]:
    both = ("webhooks.create", "webhooks.create, tagged")
    return [
        *each("an equal one long before", both, thing=((0, SAME, START - 60, OTHER),), first=FEW, calm=True),
        *each("an equal one just before, wide", both, thing=((0, SAME, START - 2, OTHER),), first=FEW, bounds=WIDE, stamped=False),
        *each("an equal one before, none", both, thing=((0, SAME, START - 60, OTHER),), first=FEW, bounds=None, stamped=False),
        *each("a near one just before", both, thing=((0, NEAR, START - 0.125, OTHER),), first=FEW),
        *each("one without a time", both, thing=((0, BLURRED, START - 60, OTHER),), first=FEW),
        *each("a full list", both, crowd=True, first=FEW, again=(OK,)),
        *each("hosts behind", both, model=Listing(ours=-0.25, others=0.25), first=FEW, calm=True),
        *each("hosts ahead", both, model=Listing(ours=0.25, others=-0.25), first=FEW, calm=True),
        *each("in turn", both[:1], runs=2, first=(OK, ERROR, RESET), misses=(UNREAD, DENIED), fails=1),
        *each("in turn, apart", both[:1], model=Listing(apart=True), runs=2, first=(OK, ERROR, RESET)),
        *each("at once", both[1:], runs=2, in_turn=False, first=(OK, ERROR), calm=True),
        *each("at once elsewhere", both[1:], runs=2, in_turn=False, shared=False, first=(OK, ERROR), calm=True),
        *each("an equal one later", both[:1], first=(RESET, HUNG), acts=("later",), acting=1,
              crashes=(Crash("settle", 200.0),), calm=True),
        *each("claimed by oneself", both[:1], first=(OK, ERROR, RESET), afterwards=AFTER),
        SetUp(name="teams.create: blind", model=Team(), thing=(0,), first=ENDINGS, afterwards=AFTER, crashes=CRASHES),
    ]  # fmt: skip


def _large() -> list[SetUp]:
    everything: dict[str, Any] = {"first": ENDINGS, "again": ENDINGS, "misses": (*PASSING, *REFUSING)}
    return [
        setup
        for write, acts in ACTS.items()
        for setup in (
            *each("failing reads, all", (write,), **everything, fails=3),
            *each("all at once", (write,), **everything, fails=2, acts=acts, acting=2, crashes=CRASHES, afterwards=AFTER),
            *each("all at once, clocks unknown", (write,), **everything, fails=2, acts=acts, acting=1, crashes=CRASHES, bounds=None),
            *each("all at once, wide", (write,), **everything, fails=2, acts=acts, acting=2, bounds=WIDE, dawdle=6.0),
            *each("all at once, slow", (write,), **everything, fails=1, acts=acts, acting=1, took=4.0, fresh=True, crashes=CRASHES),
        )
    ] + each("in turn, all", ("webhooks.create",), runs=2, **everything, fails=3)


SMALL, LARGE = _small(), _large()
