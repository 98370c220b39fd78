"""
List small worlds in which one thing that the rules rely on does not hold; never a world that keeps them all.
"""

from __future__ import annotations

from tests.exhaustive.answers import DENIED, ERROR, RESET
from tests.exhaustive.models import Hook, Journey, Listing
from tests.exhaustive.setup import Crash, SetUp
from tests.exhaustive.setups import AFTER, each

DOUBTS = (ERROR, RESET)
CREATE, TAGGED = ("webhooks.create",), ("webhooks.create, tagged",)
UPDATE, JOURNEY = ("webhooks.update",), ("journeys.update",)


def _removed() -> dict[str, list[SetUp]]:
    return {
        "a commit lands after the window": each("late", first=DOUBTS, late=20.0),
        "a commit shows in reads after the window": each("behind", first=DOUBTS, lag=20.0),
        "somebody deletes our new webhook": each("deleted", CREATE + TAGGED, first=DOUBTS, acts=("delete",), acting=1),
        "somebody changes the URL of an untagged one": each("moved", CREATE, first=DOUBTS, acts=("move",), acting=1),
        "somebody reverts a webhook's update": each(
            "reverted", UPDATE, model=Hook(undone=True), first=DOUBTS, acts=("revert",), acting=1
        ),
        "the machine sleeps for less than a read takes": each("asleep", CREATE, first=DOUBTS, nap=4.0, took=4.5),
        "another program makes the same at the same time": each(
            "equal", CREATE, first=DOUBTS, acts=("identical",), acting=1
        ),
        "another program makes the same before a late second send": each(
            "equal in between", CREATE, first=(RESET,), again=DOUBTS, acts=("later",), acting=1, crashes=(Crash("resume", 200.0),)
        ),
        "the service's clocks disagree": [
            *each("created too early", CREATE, model=Listing(ours=-5.0), first=DOUBTS),
            *each("created too late", CREATE, model=Listing(ours=60.0), first=DOUBTS),
            *each("updated too early", JOURNEY, model=Journey(others=-60.0), first=DOUBTS,acts=("other",),acting=1),
        ],
    }


REMOVED = _removed()

# What the client sees to around `decide`, each mistaken once.
SWITCHED = {
    "creates of one URL run at once": each("at once", CREATE, runs=2, in_turn=False, first=DOUBTS),
    "the next turn begins as the window ends": each(
        "no margin", CREATE, runs=2, margin=0.0, first=DOUBTS, misses=(DENIED,), fails=1
    ),
    "one's own claim counts as another's": each("own claim", CREATE, own_claims=True, first=DOUBTS, afterwards=AFTER),
}
