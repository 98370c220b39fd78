"""
List small worlds in each of which one assumption of the rules does not hold.
"""

from __future__ import annotations

import attrs

from tests.exhaustive import answers as a
from tests.exhaustive.models import BOTH, Hook, Journey, Listing
from tests.exhaustive.sequences import each as each_sequence
from tests.exhaustive.world_list import (
    BASES,
    CREATE,
    DOUBTS,
    JOURNEY,
    READ_BY_THE_SDK,
    TAGGED,
    each,
)
from tests.exhaustive.world_setup import BEFORE, START, Crash, SetUp

# With a text of the caller's own, two writes may still bear the same end.
_ALIKE = ("webhooks.create, equal", "webhooks.create, a tag, beginning with another")


def _by(*acts: str) -> dict[str, object]:
    return {"acts": acts, "acting": 1}


def _removed() -> dict[str, list[SetUp]]:
    both, late = (*CREATE, *TAGGED), Crash("resume", 200.0)
    between = {"again": DOUBTS, "crashes": (late,)}
    return {
        "a commit lands after the window": each("late", first=DOUBTS, late=20.0),
        "a commit shows in reads after the window": each(
            "behind", first=DOUBTS, lag=20.0
        ),
        "a read lags behind a write of the process before": each_sequence(
            "reopened, reads that lag",
            ["webhooks.create, equal"],
            reopened=0.0625,
            stale=1.5,
        ),
        "somebody deletes our new webhook": each(
            "deleted", both, first=DOUBTS, **_by("delete")
        ),
        "somebody reverts a webhook's update": each(
            "reverted",
            ("webhooks.update",),
            model=Hook(undone=True),
            first=DOUBTS,
            **_by("revert"),
        ),
        "somebody brings back one of two fields": each(
            "in part, reverted",
            JOURNEY,
            model=Journey(both=True, ways=("whole",)),
            thing=(BOTH, 0, BEFORE, 0),
            first=(a.RESET,),
            again=(a.OK,),
            afterwards=(Crash("resume", 30.0),),
            **_by("revert"),
        ),
        "another program makes the same at the same time": [
            *each("equal", CREATE, first=DOUBTS, **_by("identical")),
            *each(
                "equal, before a late second send",
                CREATE,
                first=(a.RESET,),
                **between,
                **_by("later"),
            ),
            *each_sequence(
                "side by side", _ALIKE, in_turn=False, shared=False, apart=0.25
            ),
        ],
        "the service's clock steps before another process settles": [
            *_stepped("stepped ahead", READ_BY_THE_SDK, 60.0, Crash("resume")),
            *_stepped("stepped back", CREATE, -60.0, Crash("resume", 60.0)),
        ],
        "the service's clocks disagree": [
            *each("created too early", CREATE, model=Listing(ours=-5.0), first=DOUBTS),
            *each(
                "updated too early",
                JOURNEY,
                model=Journey(others=-60.0),
                first=DOUBTS,
                **_by("other"),
            ),
        ],
    }


def _stepped(name: str, only: tuple[str, ...], by: float, crash: Crash) -> list[SetUp]:
    """Step the clock while the first send of each write is in flight."""
    models = {
        write: attrs.evolve(BASES[write]["model"], step=(START + 0.25, by))
        for write in only
    }
    return [
        setup
        for write, model in models.items()
        for setup in each(
            name, (write,), model=model, first=(a.RESET,), crashes=(crash,)
        )
    ]


REMOVED = _removed()

# What the client sees to around `decide`, each mistaken once.
SWITCHED = {
    "creates of one URL run at once": each(
        "at once", CREATE, runs=2, in_turn=False, first=DOUBTS
    ),
    "the next turn begins as the window ends": each(
        "no margin",
        CREATE,
        runs=2,
        gap=False,
        first=DOUBTS,
        misses=(a.DENIED,),
        fails=1,
    ),
    "one's own claim counts as another's": each(
        "own claim",
        CREATE,
        own_claims=True,
        first=(a.OK,),
        afterwards=(Crash(delay=60.0, journaled=False, client="same", kept="start"),),
    ),
}

# Two effects, which only a commit after the window can bring about: they are told.
DOUBLED = each(
    "doubled",
    (*CREATE, *TAGGED),
    first=DOUBTS,
    again=(a.OK, *DOUBTS),
    late=20.0,
    tolerant=True,
)
