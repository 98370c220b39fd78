"""
List the small worlds that are walked whole, and the larger ones that are walked for a time.
"""

from __future__ import annotations

from typing import Any

import attrs

from invsvc_async.settings import ReconcilePolicy, Timeouts
from tests.exhaustive.answers import (
    BARE, BROKEN, CONFLICT, CREDITS, CUT, DENIED, ENDINGS, ERROR, EXPIRED, HUNG, INVALID, LIMITED, MISSING, NO_READ,
    NOT_SHOWN, OK, PASSING, RENEWED, RESET, UNAUTHORIZED, UNREAD, UNSENT, STALLED, FOREIGN, NONSENSE, BAD_GATEWAY,
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
    "webhooks.create": ("near", "away", "blurred"),
    "webhooks.create, tagged": ("near", "identical", "blurred"),
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


def _each(name: str, only: tuple[str, ...] = tuple(BASES), **facts: Any) -> list[SetUp]:
    return [SetUp(name=f"{write}: {name}", **{**BASES[write], **facts}) for write in only]


def _small() -> list[SetUp]:
    return [
        *_each("calm", first=ENDINGS, again=FEW, calm=True),
        *_each("bare answers", tuple(BASES)[1:3], first=(BARE, ERROR, RESET), again=(BARE, RESET), misses=(UNREAD, DENIED), fails=1),
        *_each("again", first=(ERROR, RESET), again=ENDINGS),
        *_each("failing reads", first=(ERROR, RESET), again=(OK, RESET), misses=PASSING, fails=1, calm=True),
        *_each("refused reads", first=FEW, again=FEW, misses=REFUSING, fails=1),
        *_each("slow reads", first=FEW, again=(OK,), took=4.0, fresh=True, calm=True),
        *_each("killed", first=(OK, ERROR, RESET, UNSENT), again=(OK,), crashes=CRASHES),
        *_each("settled once more", first=ENDINGS, again=(OK, INVALID), afterwards=AFTER),
        *_each("no second send", first=ENDINGS, policy=ReconcilePolicy(resend="never"), calm=True),
        *_each("little time", first=ENDINGS, policy=ReconcilePolicy(deadline=10.0), misses=(UNREAD,), fails=1),
        *_each("limited", first=(LIMITED, ERROR, CREDITS), again=(LIMITED, OK), policy=ReconcilePolicy(wait_when_limited=True)),
        *_each("late to send", first=(UNSENT, ERROR, RESET), again=(UNSENT, OK), dawdle=6.0, calm=True),
        *_each("clocks unknown", first=FEW, again=(OK, RESET), bounds=None, misses=(UNREAD, DENIED), fails=1),
        *_each("no times at all", first=FEW, again=(OK, RESET), bounds=None, stamped=False),
        *_acting(), *_changes(), *_creates(),
    ]  # fmt: skip


def _acting() -> list[SetUp]:
    return [
        setup
        for write, acts in ACTS.items()
        if acts
        for setup in (
            *_each("others act", (write,), first=FEW, again=(OK, MISSING), acts=acts, acting=1),
            *_each("others act, wide", (write,), first=(ERROR, RESET), bounds=WIDE, acts=acts, acting=1),
            *_each("others act, none", (write,), first=(ERROR, RESET), bounds=None, acts=acts, acting=1),
            *_each("others act twice", (write,), first=(ERROR,), acts=acts, acting=2),
            *_each("others act, killed", (write,), first=(RESET,), acts=acts, acting=1, crashes=CRASHES[:2]),
        )
    ]


def _changes() -> list[SetUp]:
    both = ("journeys.update", "webhooks.update")
    already: dict[str, Any] = {"first": FEW, "again": (OK,), "calm": True}
    return [
        SetUp(name="webhooks.update: already so", model=UPDATE, thing=(WANTED, 0, 0), **already),
        SetUp(name="journeys.update: already so", model=Journey(), thing=(WANTED, 0, 0.0, 0), **already),
        *_each("baseline read first", both, first=FEW, again=(OK, RESET), baseline=False, misses=(UNREAD, BROKEN), fails=1),
        *_each("baseline read first, others act", both, first=(ERROR, RESET), baseline=False, acts=ACTS["webhooks.update"], acting=1),
        *_each("no such read", both[:1], first=FEW, misses=(NO_READ, NOT_SHOWN), fails=1),
        *_each("not dated", both[:1], model=Journey(dated=False), thing=(OLD, 0, -1.0, 0), first=FEW,
               acts=ACTS["journeys.update"], acting=1),
        *_each("published", both[:1], model=Journey(published=True), first=FEW, acts=ACTS["journeys.update"], acting=1),
        *_each("hosts apart", both[:1], model=Journey(ours=-0.25, others=0.25), first=(ERROR, RESET),
               acts=ACTS["journeys.update"], acting=1),
        *_each("hosts apart the other way", both[:1], model=Journey(ours=0.25, others=-0.25), first=(ERROR, RESET),
               acts=ACTS["journeys.update"], acting=1),
    ]  # fmt: skip


def _creates() -> list[SetUp]:
    both = ("webhooks.create", "webhooks.create, tagged")
    before = {"long before": START - 60, "before, within the band": START - 12}
    return [
        *_each("an equal one long before", both, thing=((0, SAME, START - 60, OTHER),), first=FEW, calm=True),
        *_each("an equal one just before, wide", both, thing=((0, SAME, START - 2, OTHER),), first=FEW, bounds=WIDE),
        *_each("an equal one before, none", both, thing=((0, SAME, START - 60, OTHER),), first=FEW, bounds=None, stamped=False),
        *_each("a near one just before", both, thing=((0, NEAR, START - 0.125, OTHER),), first=FEW),
        *_each("one without a time", both, thing=((0, BLURRED, START - 60, OTHER),), first=FEW),
        *_each("a full list", both, crowd=True, first=FEW, again=(OK,)),
        *_each("hosts behind", both, model=Listing(ours=-0.25, others=0.25), first=FEW, calm=True),
        *_each("hosts ahead", both, model=Listing(ours=0.25, others=-0.25), first=FEW, calm=True),
        *_each("in turn", both[:1], runs=2, first=(OK, ERROR, RESET), misses=(UNREAD, DENIED), fails=1),
        *_each("in turn, apart", both[:1], model=Listing(apart=True), runs=2, first=(OK, ERROR, RESET)),
        *_each("at once", both[1:], runs=2, in_turn=False, first=(OK, ERROR), calm=True),
        *_each("claimed by oneself", both[:1], first=(OK, ERROR, RESET), afterwards=AFTER),
        *_each("blind", ("teams.create, with a reader",), reader=None, first=ENDINGS, afterwards=AFTER, crashes=CRASHES),
    ]  # fmt: skip


SETUPS = _small()
