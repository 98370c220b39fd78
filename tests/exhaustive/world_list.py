"""
List the small worlds that are walked whole, and the larger ones that are walked for a time.
"""

from __future__ import annotations

import re
from typing import Any

import attrs

from invsvc_async.reconcile.history import CannotTell, Holds
from invsvc_async.settings import ReconcilePolicy
from tests.exhaustive import answers as a
from tests.exhaustive.models import (
    AWAY,
    BLURRED,
    ELSE,
    NEAR,
    NULL,
    OLD,
    PUBLISHED,
    SAME,
    TAGS,
    WANTED,
    Form,
    Hook,
    Journey,
    Listing,
    Put,
    Team,
    text_of,
)
from tests.exhaustive.own_words import OWN_WORDS
from tests.exhaustive.sequences import (
    ELSEWHERE,
    LAG,
    LEFT,
    ONCE,
    RESUMED_LAST,
    SIBLINGS,
)
from tests.exhaustive.world import OTHER
from tests.exhaustive.world_setup import BEFORE, START, WIDE, Crash, SetUp

UPDATE, DELETE = Hook(), Hook("webhooks.delete")
JOURNEY, CREATE, TAGGED, TEAM = (
    ("journeys.update",),
    ("webhooks.create",),
    ("webhooks.create, tagged",),
    ("teams.create",),
)
BASES: dict[str, dict[str, Any]] = {
    "journeys.update": {"model": Journey(), "thing": (OLD, 0, BEFORE, 0)},
    "webhooks.update": {"model": UPDATE, "thing": (OLD, 0, 0)},
    "webhooks.delete": {"model": DELETE, "thing": (OLD, 0, 0)},
    "webhooks.create": {"model": Listing(), "thing": ()},
    "webhooks.create, tagged": {"model": Listing(tagged=True), "thing": ()},
    "teams.create": {"model": Team(), "thing": (0,), "reader": "own"},
}
# those that need no reader of the user's
READ_BY_THE_SDK = tuple(name for name, base in BASES.items() if "reader" not in base)
ACTS = {
    "journeys.update": ("equal", "other", "revert", "side", "delete"),
    "webhooks.update": ("equal", "other", "side", "delete"),
    "webhooks.delete": ("side", "delete"),
    "webhooks.create": ("near", "away", "blurred", "edit", "later"),
    "webhooks.create, tagged": ("near", "identical", "blurred", "move", "edit"),
}
FEW = (a.OK, a.ERROR, a.RESET, a.HUNG)
DOUBTS = (a.ERROR, a.RESET)
REFUSING = (a.DENIED, a.EXPIRED)
CRASHES = (
    Crash("settle"),
    Crash("settle", 20.0),
    Crash("settle", 20.0, kept="start"),
    Crash("settle", 0.5, gone=False),
    Crash("settle", 60.0, journaled=False, gone=False),
    Crash("settle", 0.5, journaled=False, kept="nothing"),
    Crash("settle", 700.0),
    Crash("resume"),
    Crash("resume", 20.0, kept="start"),
    Crash("resume", 20.0, gone=False),
    Crash("resume", 0.5, kept="nothing"),
    Crash("resume", 20.0, journaled=False, gone=False, kept="nothing"),
)
AFTER = (
    Crash(delay=0.5, journaled=False, gone=False, client="same"),
    Crash(delay=30.0, journaled=False, gone=False, client="same"),
)


# reads show no earlier state, so that windows are the shortest
_CURRENT = ReconcilePolicy(reads_lag=0.0)


def each(name: str, only: tuple[str, ...] = tuple(BASES), **facts: Any) -> list[SetUp]:
    """Make the world *name* for every write, or for some."""
    return [
        SetUp(name=f"{write}: {name}", **{**BASES[write], **facts}) for write in only
    ]


def _reads() -> list[SetUp]:
    often = (a.ERROR, a.GATEWAY_ERROR, a.RESET)
    passing: dict[str, Any] = {"misses": (a.UNREAD, a.BROKEN, a.FOREIGN), "fails": 2}
    return [
        *each(
            "failing reads",
            first=DOUBTS,
            again=(a.OK, a.RESET),
            misses=a.PASSING,
            fails=1,
            calm=True,
        ),
        *each(
            "reads that fail twice",
            first=often,
            again=(a.OK, a.RESET),
            **passing,
            calm=True,
        ),
        *each("refused reads", first=FEW, again=FEW, misses=REFUSING, fails=1),
        *each(
            "slow reads", first=FEW, took=4.0, fresh=True, calm=True, policy=_CURRENT
        ),
        *each(
            "clocks unknown",
            first=FEW,
            again=(a.OK, a.RESET),
            bounds=None,
            misses=(a.UNREAD, a.DENIED),
            fails=1,
        ),
        *each(
            "no times at all",
            first=FEW,
            again=(a.OK, a.RESET),
            bounds=None,
            stamped=False,
        ),
        *each("hosts that answer ahead", first=FEW, bounds=None, drift=0.25, calm=True),
        *(
            setup
            for write in BASES
            for setup in each(
                "stepped ahead, wide",
                (write,),
                model=attrs.evolve(BASES[write]["model"], step=(START + 0.375, 60.0)),
                first=DOUBTS,
                bounds=WIDE,
            )
        ),
        *each(
            "hosts that answer behind", first=FEW, bounds=None, drift=-0.25, calm=True
        ),
    ]


def _sends() -> list[SetUp]:
    twice = ReconcilePolicy(max_resends=2, deadline=200.0)
    return [
        *each("calm", first=a.ENDINGS, again=FEW, calm=True),
        *each(
            "again", first=(a.ERROR, a.BAD_GATEWAY, a.HUNG), again=a.ENDINGS, calm=True
        ),
        *each(
            "two more sends",
            first=(a.ERROR,),
            again=(*FEW, a.INVALID),
            policy=twice,
            calm=True,
        ),
        *each(
            "no second send",
            first=a.ENDINGS,
            policy=ReconcilePolicy(resend="never"),
            calm=True,
        ),
        *each(
            "late to send",
            first=(a.UNSENT, *DOUBTS),
            again=(a.UNSENT, a.OK),
            dawdle=6.0,
            calm=True,
        ),
        *each(
            "limited",
            first=(a.LIMITED, a.ERROR, a.CREDITS),
            again=(a.LIMITED, a.OK),
            policy=_WAITING,
        ),
        *each(
            "little time",
            first=a.ENDINGS,
            policy=ReconcilePolicy(deadline=10.0),
            misses=(a.UNREAD,),
            fails=1,
        ),
        *each(
            "slow to fail",
            first=(a.RESET, a.HUNG),
            again=(a.OK, a.HUNG),
            policy=_deadline(45.0),
            calm=True,
        ),
        *each(
            "too slow to fail",
            first=(a.RESET, a.HUNG),
            again=(a.OK, a.HUNG),
            policy=_deadline(42.0),
            calm=True,
        ),
        *each(
            "just enough time",
            first=(a.RESET, a.HUNG),
            policy=ReconcilePolicy(deadline=15.0, resend="never"),
            calm=True,
        ),
        *each(
            "just enough time, with clocks that tick late",
            first=(a.RESET, a.HUNG),
            policy=ReconcilePolicy(deadline=15.0, resend="never"),
            overslept=0.03125,
            calm=True,
        ),
        *each("closed", first=(*FEW, a.UNSENT), closing=True),
        *each("closed, killed", first=(a.OK, a.RESET), crashes=_BRIEFLY, closing=True),
        *each(
            "soon too old", first=DOUBTS, policy=ReconcilePolicy(absence_within=10.0)
        ),
        *each(
            "echoes",
            first=(a.ERROR,),
            again=(a.MISSING, a.CONFLICT, a.DISAPPEARED),
            misses=(*a.PASSING, *REFUSING),
            fails=1,
        ),
    ]


def _hanging() -> list[SetUp]:
    """List worlds in which a read is made while a request hangs."""
    hung: dict[str, Any] = {"first": (a.HUNG,), "beside": (1.0, 6.0)}
    return [
        *each("hung, looked at", again=(a.OK, a.HUNG), afterwards=AFTER, **hung),
        *each("hung, looked at, killed", crashes=CRASHES, **hung),
        *each("hung, looked at, wide", bounds=WIDE, **hung),
        *each("hung, looked at, none", bounds=None, stamped=False, **hung),
        *(
            setup
            for write, acts in ACTS.items()
            for setup in each(
                "hung, looked at, others act",
                (write,),
                again=(a.OK,),
                acts=acts,
                acting=1,
                **hung,
            )
        ),
        *each(
            "hung, looked at, already so", JOURNEY, thing=(WANTED, 0, BEFORE, 0), **hung
        ),
        *each(
            "hung, looked at, nothing known",
            JOURNEY,
            baseline=False,
            again=(a.OK, a.HUNG),
            afterwards=AFTER,
            crashes=CRASHES,
            **hung,
        ),
        *each(
            "hung, looked at, nothing known, others act",
            JOURNEY,
            baseline=False,
            again=(a.OK,),
            acts=ACTS["journeys.update"],
            acting=2,
            **hung,
        ),
        *each(
            "hung, looked at, already so",
            ("webhooks.update",),
            thing=(WANTED, 0, 0),
            **hung,
        ),
    ]


_BRIEFLY = (Crash("settle"), Crash("resume", 20.0))
_WAITING = ReconcilePolicy(wait_when_limited=True)


def _deadline(seconds: float) -> ReconcilePolicy:
    return ReconcilePolicy(deadline=seconds)


_AGAIN = (
    Crash("resume"),
    Crash("resume", 20.0, kept="start"),
    Crash("resume", 0.5, journaled=False, gone=False, kept="nothing"),
    Crash("settle", 20.0),
)


_NEARLY_TOO_OLD = (Crash("settle"), Crash("settle", 597.0), Crash("resume", 597.0))


def _kills() -> list[SetUp]:
    crashes: dict[str, Any] = {"crashes": CRASHES}
    missing = (a.UNREAD, a.FOREIGN, a.DENIED)
    return [
        *each(
            "killed",
            first=(a.OK, *DOUBTS, a.UNSENT),
            again=(a.OK, a.MISSING, a.RESET),
            **crashes,
        ),
        *each(
            "killed, failing reads", first=DOUBTS, misses=missing, fails=1, **crashes
        ),
        *each(
            "killed, clock ahead", first=DOUBTS, stamped=False, jump=512.0, **crashes
        ),
        *each("killed, no times", first=DOUBTS, bounds=None, stamped=False, **crashes),
        *each("killed, wide", first=DOUBTS, bounds=WIDE, **crashes),
        *each(
            "killed, slow reads",
            first=(a.RESET,),
            crashes=_NEARLY_TOO_OLD,
            took=4.0,
            fresh=True,
            policy=_CURRENT,
        ),
        *each(
            "killed, hosts that answer ahead",
            first=(a.RESET,),
            crashes=(Crash("settle"),),
            bounds=(-0.03125, 0.03125),
            took=0.0625,
            drift=0.25,
        ),
        *each("killed twice", first=(a.RESET,), crashes=_AGAIN, kills=2),
        *each(
            "settled once more",
            first=a.ENDINGS,
            again=(a.OK, a.INVALID),
            afterwards=AFTER,
        ),
    ]


def _acting() -> list[SetUp]:
    missing = (a.UNREAD, a.FOREIGN)
    return [
        setup
        for write, acts in ACTS.items()
        for setup in (
            *each(
                "others act",
                (write,),
                first=FEW,
                again=(a.OK, a.MISSING),
                acts=acts,
                acting=1,
            ),
            *each(
                "others act, wide",
                (write,),
                first=DOUBTS,
                bounds=WIDE,
                stamped=False,
                acts=acts,
                acting=1,
            ),
            *each(
                "others act, none",
                (write,),
                first=DOUBTS,
                bounds=None,
                acts=acts,
                acting=1,
            ),
            *each("others act twice", (write,), first=(a.ERROR,), acts=acts, acting=2),
            *each(
                "others act, failing reads",
                (write,),
                first=DOUBTS,
                acts=acts,
                acting=1,
                misses=missing,
                fails=1,
            ),
            *each(
                "others act, killed",
                (write,),
                first=(a.RESET,),
                acts=acts,
                acting=1,
                crashes=CRASHES[:2],
            ),
        )
    ]


def _changes() -> list[SetUp]:
    acts: dict[str, Any] = {"acts": ACTS["journeys.update"], "acting": 1}
    both = (*JOURNEY, "webhooks.update")
    unread: dict[str, Any] = {
        "baseline": False,
        "misses": (a.UNREAD, a.BROKEN),
        "fails": 1,
    }
    bare: dict[str, Any] = {"first": (a.BARE, *DOUBTS), "again": (a.BARE, a.RESET)}
    return [
        *each("already so", both[1:], thing=(WANTED, 0, 0), first=FEW, calm=True),
        *each(
            "already so", JOURNEY, thing=(WANTED, 0, BEFORE, 0), first=FEW, calm=True
        ),
        *(
            world
            for name, at in {
                "already so": 0.0,
                "already so since just now": START - 0.125,
            }.items()
            for world in each(
                f"{name}, not known",
                JOURNEY,
                thing=(WANTED, 0, at, 0),
                first=FEW,
                baseline=False,
            )
        ),
        *each(
            "already so, others act",
            JOURNEY,
            thing=(WANTED, 0, BEFORE, 0),
            first=FEW,
            crashes=CRASHES[:2],
            **acts,
        ),
        *each(
            "already so, others act",
            both[1:],
            thing=(WANTED, 0, 0),
            first=FEW,
            crashes=CRASHES[:2],
            acts=ACTS["webhooks.update"],
            acting=1,
        ),
        *each(
            "bare answers",
            ("webhooks.update", "webhooks.delete"),
            **bare,
            misses=(a.UNREAD, a.DENIED),
            fails=1,
        ),
        *each(
            "already gone",
            both[1:],
            thing=(OLD, 0, 1),
            first=(a.RESET, a.MISSING),
            again=(a.MISSING,),
            calm=True,
            policy=_CURRENT,
        ),
        *each(
            "already gone, read first",
            both[1:],
            thing=(OLD, 0, 1),
            first=(a.RESET, a.MISSING),
            baseline=False,
            calm=True,
            policy=_CURRENT,
        ),
        *each(
            "baseline read first, calm",
            both,
            first=DOUBTS,
            baseline=False,
            misses=(a.UNREAD, a.BROKEN),
            fails=2,
            calm=True,
        ),
        *each("baseline read first", both, first=FEW, again=(a.OK, a.RESET), **unread),
        *each(
            "baseline read first, others act",
            both[:1],
            first=DOUBTS,
            baseline=False,
            **acts,
        ),
        *each(
            "no such read", JOURNEY, first=FEW, misses=(a.NO_READ, a.NOT_SHOWN), fails=1
        ),
        *each(
            "only a null",
            JOURNEY,
            model=Journey(body={"graph": None}, hidden=True),
            first=FEW,
            again=FEW,
            **acts,
        ),
        *each(
            "a null beside",
            JOURNEY,
            model=Journey(body={"name": text_of(WANTED), "graph": None}),
            first=FEW,
            calm=True,
        ),
        *each(
            "no reader",
            JOURNEY,
            first=a.ENDINGS,
            policy=ReconcilePolicy(journey_reader=None),
        ),
        *each(
            "not dated",
            JOURNEY,
            model=Journey(dated=False),
            thing=(OLD, 0, NULL, 0),
            first=FEW,
            **acts,
        ),
        *each(
            "dated ahead",
            JOURNEY,
            thing=(ELSE, 0, START + 60.0, 0),
            first=FEW,
            baseline=False,
        ),
        *each("published", JOURNEY, model=Journey(published=True), first=FEW, **acts),
        *each(
            "published, then taken back",
            JOURNEY,
            thing=(WANTED, 0, 0.0, PUBLISHED),
            first=DOUBTS,
            **_TAKEN_BACK,
        ),
        *each(
            "already so since just now",
            JOURNEY,
            thing=(WANTED, 0, START - 0.125, 0),
            first=FEW,
            calm=True,
        ),
        *each(
            "hosts apart",
            JOURNEY,
            model=Journey(ours=-0.25, others=0.25),
            first=DOUBTS,
            **acts,
        ),
        *each(
            "hosts apart, reversed",
            JOURNEY,
            model=Journey(ours=0.25, others=-0.25),
            first=DOUBTS,
            **acts,
        ),
        *each(
            "a reader that sees the state",
            TEAM,
            model=Team(there=Holds),
            first=FEW,
            crashes=CRASHES,
        ),
        *each(
            "a reader that cannot tell",
            TEAM,
            model=Team(missing=CannotTell("?")),
            first=FEW,
            crashes=CRASHES,
        ),
        *each(
            "no reader",
            TEAM,
            reader=None,
            first=a.ENDINGS,
            afterwards=AFTER,
            crashes=CRASHES,
        ),
    ]


_TAKEN_BACK: dict[str, Any] = {"acts": ("take back",), "acting": 1}


def _of_others() -> list[SetUp]:
    """List worlds with answers of something between, and services that store what is sent in other words."""
    foreign: dict[str, Any] = {
        "first": (a.OK, *a.FOREIGN_REFUSALS),
        "again": (a.OK, a.FORBIDDEN),
    }
    elsewhere = Form(stored="https://stored.example/else")
    stored = Listing(forms=(elsewhere,))
    apart = Listing(forms=(Form(), Form(url="https://me.example/other")))
    worded = Journey(body={"name": f"  {text_of(WANTED).upper()}"})
    puts: dict[str, Any] = {"thing": (OLD,), "reader": "own"}
    both = {
        "model": Put(values=(WANTED, ELSE)),
        "runs": 2,
        "first": (a.OK, a.RESET),
        **puts,
    }
    return [
        *each("refused by a gateway", **foreign, calm=True),
        *each("refused by a gateway, failing reads", **foreign, misses=a.PASSING[:2], fails=1),
        *each("refused by a gateway, killed", first=(a.FORBIDDEN,), crashes=CRASHES),
        *each("refused by a gateway, again", first=(a.ERROR,), again=a.FOREIGN_REFUSALS, calm=True),
        *each("refused by a gateway, settled once more", **foreign, afterwards=AFTER),
        *each("refused by a gateway, no reader", TEAM, **{**foreign, "reader": None}),
        *each("accepted", first=(a.ACCEPTED,), again=(a.OK, a.ACCEPTED), calm=True),
        *each("accepted, killed", first=(a.ACCEPTED,), crashes=CRASHES),
        *each("stored in other words", CREATE, model=stored, first=FEW),
        *each(
            "stored in other words",
            TAGGED,
            model=Listing(forms=(elsewhere._replace(tag=TAGS[0]),)),
            first=FEW,
            calm=True,
        ),
        *each("stored in other words, killed", CREATE, model=stored, first=(a.RESET,), crashes=CRASHES),
        *each("stored in other words, none", CREATE, model=stored, first=DOUBTS, bounds=None, stamped=False),
        *each("stored in other words, others act", CREATE, model=stored, first=DOUBTS, acts=("near", "away"), acting=1),
        *each("two of two URLs", CREATE, model=apart, runs=2, first=(a.OK, *DOUBTS), calm=True),
        *each("two of two URLs, one stored in other words", CREATE, model=attrs.evolve(apart, forms=(elsewhere, apart.forms[1])), runs=2, first=(a.OK, *DOUBTS)),
        *each("in other words", JOURNEY, model=worded, first=FEW, acts=("side",), acting=1),
        *each("in other words", ("webhooks.update",), model=Hook(loud=True), first=FEW, acts=("side",), acting=1),
        SetUp(name="sheets.save_mapping: killed", model=Put(), first=FEW, crashes=CRASHES, **puts),
        SetUp(name="sheets.save_mapping, then another: left", **both, crashes=LEFT, policy=ONCE),
        SetUp(name="sheets.save_mapping, then another: resumed", **both, crashes=(*RESUMED_LAST, *ELSEWHERE)),
    ]  # fmt: skip


def _creates() -> list[SetUp]:
    both = (*CREATE, *TAGGED)
    untimed: dict[str, Any] = {"bounds": None, "stamped": False}
    own_marks = Listing(tagged=True, marks=("order 17", "order 18"))
    marks_of_others = attrs.evolve(own_marks, borrowed=True)
    one_mark = Listing(tagged=True, marks=("campaign", "campaign"))
    later: dict[str, Any] = {
        "acts": ("later",),
        "acting": 1,
        "crashes": (Crash("settle", 200.0),),
    }
    return [
        *each(
            "an equal one long before",
            both,
            thing=_before(SAME, 60.0),
            first=FEW,
            calm=True,
        ),
        *each(
            "an equal one just before, wide",
            both,
            thing=_before(SAME, 2.0),
            first=FEW,
            bounds=WIDE,
            stamped=False,
        ),
        *each(
            "an equal one before, none",
            both,
            thing=_before(SAME, 60.0),
            first=FEW,
            **untimed,
        ),
        *each("a near one just before", both, thing=_before(NEAR, 0.125), first=FEW),
        *each("one without a time", both, thing=_before(BLURRED, 60.0), first=FEW),
        *each("an equal one later", CREATE, first=(a.RESET, a.HUNG), **later),
        *each("a full list", both, crowd="both", first=FEW),
        *each("a full list, by its count", both, crowd="count", first=FEW),
        *each("a short list that goes on", both, crowd="flag", first=FEW),
        *each(
            "hosts behind",
            both,
            model=Listing(ours=-0.25, others=0.25),
            first=FEW,
            calm=True,
        ),
        *each(
            "hosts ahead",
            both,
            model=Listing(ours=0.25, others=-0.25),
            first=FEW,
            calm=True,
        ),
        *each(
            "in turn",
            CREATE,
            runs=2,
            first=(a.OK, *DOUBTS),
            misses=(a.UNREAD, a.DENIED),
            fails=1,
        ),
        *each(
            "in turn, apart",
            CREATE,
            model=Listing(apart=True),
            runs=2,
            first=(a.OK, *DOUBTS),
        ),
        *each(
            "at once", TAGGED, runs=2, in_turn=False, first=(a.OK, a.ERROR), calm=True
        ),
        *each(
            "at once elsewhere",
            TAGGED,
            runs=2,
            in_turn=False,
            shared=False,
            first=(a.OK, a.ERROR),
            calm=True,
        ),
        *each(
            "marks of one's own",
            TAGGED,
            model=own_marks,
            runs=2,
            in_turn=False,
            first=(a.OK, a.ERROR),
        ),
        *each(
            "marks of one's own, others act",
            TAGGED,
            model=own_marks,
            first=FEW,
            again=(a.OK, a.MISSING),
            acts=ACTS[TAGGED[0]],
            acting=1,
        ),
        *each(
            "marks of others",
            TAGGED,
            model=marks_of_others,
            first=FEW,
            acts=("away", "later"),
            acting=1,
        ),
        *each(
            "marks of others, killed",
            TAGGED,
            model=marks_of_others,
            first=(a.RESET, a.HUNG),
            **later,
        ),
        *each(
            "marks of others long before",
            TAGGED,
            model=marks_of_others,
            thing=_before(AWAY, 60.0),
            first=FEW,
        ),
        *each(
            "an equal mark long before",
            TAGGED,
            model=marks_of_others,
            thing=_before(SAME, 60.0),
            first=FEW,
        ),
        *each(
            "an equal mark before, none",
            TAGGED,
            model=marks_of_others,
            thing=_before(SAME, 60.0),
            first=FEW,
            **untimed,
        ),
        *each(
            "one mark, in turn", TAGGED, model=one_mark, runs=2, first=(a.OK, *DOUBTS)
        ),
        *each(
            "an equal one just before, read first, killed",
            CREATE,
            thing=_before(SAME, 0.125),
            first=(a.RESET,),
            bounds=None,
            crashes=(CRASHES[0], CRASHES[4]),
        ),
        *each("claimed by oneself", CREATE, first=(a.OK, *DOUBTS), afterwards=AFTER),
    ]


def _before(look: int, seconds: float) -> tuple[tuple[int, int, float, int], ...]:
    """Return a list of one webhook that somebody else made before the first send."""
    return ((0, look, START - seconds, OTHER),)


def _lagging() -> list[SetUp]:
    """Let reads lag behind what somebody else did just before: a change from what is wanted, or a creation."""
    just_now = START - 0.25
    lags: dict[str, Any] = {
        "first": (a.OK, *DOUBTS),
        "stale": LAG,
        "seen": 0.125,
        "crashes": CRASHES[:4],
    }
    unseen = {**lags, "baseline": False}
    undated = {"model": Journey(dated=False), "thing": (OLD, 0, NULL, 0)}
    setups: list[SetUp] = []
    for name, facts in {"": lags, ", read first": unseen}.items():
        for write, state in {"update": (WANTED, 0, 0), "delete": (OLD, 0, 1)}.items():
            changed = {**facts, "earlier": ((just_now, state),)}
            setups += each(f"reads that lag{name}", (f"webhooks.{write}",), **changed)
        new = {**facts, "earlier": ((just_now, (OLD, 0, 1)),)}
        setups += each(
            f"reads that lag behind its creation{name}", ("webhooks.update",), **new
        )
        deleted = {**new, "crashes": CRASHES[:2], "acts": ("delete",), "acting": 1}
        setups += each(
            f"reads that lag behind its creation{name}, deleted",
            ("webhooks.update",),
            **deleted,
        )
        third = {**facts, "earlier": ((just_now, (ELSE, 0, 0)),)}
        setups += each(
            f"reads that show a third state{name}", ("webhooks.update",), **third
        )
        dated = {
            **facts,
            "thing": (OLD, 0, just_now, 0),
            "earlier": ((just_now, (WANTED, 0, START - 1.0, 0)),),
        }
        setups += each(f"reads that lag{name}", JOURNEY, **dated)
        null = {**facts, **undated, "earlier": ((just_now, (WANTED, 0, NULL, 0)),)}
        setups += each(f"reads that lag, not dated{name}", JOURNEY, **null)
    late: dict[str, Any] = {
        "first": (a.ERROR,),
        "again": (a.OK, a.ERROR),
        "late": 1.0,
        "policy": _CURRENT,
    }
    hung = [
        attrs.evolve(
            setup,
            name=f"{setup.name}, hung, looked at",
            first=(a.HUNG,),
            beside=(1.0, 3.0, 5.5),
            crashes=(),
        )
        for setup in setups
    ]
    return [
        *setups,
        *hung,
        *each("500s that commit 3 s later", (*CREATE, *TAGGED, *TEAM), **late),
    ]


def _large() -> list[SetUp]:
    whole: dict[str, Any] = {
        "first": a.ENDINGS,
        "again": a.ENDINGS,
        "misses": (*a.PASSING, *REFUSING),
        "fails": 2,
    }
    killed: dict[str, Any] = {**whole, "crashes": CRASHES}
    return [
        *each("reads that fail three times", **{**whole, "fails": 3}),
        *each("all, killed twice", **killed, kills=2),
        *each("all, killed", **killed, afterwards=AFTER),
        *(
            setup
            for write, acts in ACTS.items()
            for setup in (
                *each(
                    "all, others act",
                    (write,),
                    **killed,
                    acts=acts,
                    acting=2,
                    afterwards=AFTER,
                ),
                *each(
                    "all, others act, unknown",
                    (write,),
                    **killed,
                    acts=acts,
                    acting=1,
                    bounds=None,
                ),
                *each(
                    "all, others act, wide",
                    (write,),
                    **whole,
                    acts=acts,
                    acting=2,
                    bounds=WIDE,
                    stamped=False,
                ),
                *each(
                    "all, others act, late",
                    (write,),
                    **whole,
                    acts=acts,
                    acting=1,
                    dawdle=6.0,
                ),
                *each(
                    "all, others act, slow",
                    (write,),
                    **killed,
                    acts=acts,
                    acting=1,
                    took=4.0,
                    fresh=True,
                ),
            )
        ),
        *each("all, in turn", CREATE, runs=2, **whole),
    ]


# Of the worlds below, those that take minutes to be walked whole: a write in part, and a kill anywhere.
_TOO_LARGE = re.compile("(journeys|webhooks).update: in part, killed").fullmatch
_ALL = [
    *_reads(), *_sends(), *_hanging(), *_kills(), *_acting(), *_changes(), *_of_others(), *_creates(), *_lagging(), *OWN_WORDS, *SIBLINGS,
]  # fmt: skip
SMALL = [setup for setup in _ALL if not _TOO_LARGE(setup.name)]
LARGE = [*_large(), *(setup for setup in _ALL if _TOO_LARGE(setup.name))]
