"""
List small worlds of two and three writes of one program, to one thing or to equal ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.settings import ReconcilePolicy
from tests.exhaustive import answers as a
from tests.exhaustive.models import (
    ELSE,
    NULL,
    OLD,
    TAGS,
    THIRD,
    WANTED,
    Form,
    Hook,
    Journey,
    Listing,
)
from tests.exhaustive.world_setup import BEFORE, NARROW, WIDE, Crash, SetUp

if TYPE_CHECKING:
    from collections.abc import Iterable

ENDS = (a.OK, a.RESET)
ENDS_OF_CHANGES = (*ENDS, a.MISSING)
AT_ONCE = (  # settled before the writes behind it begin, or while nothing can have followed
    Crash("settle", 0.5, journaled=False, gone=False, client="same"),
    Crash("settle", 0.5, journaled=False, gone=False, client="other"),
    Crash("settle", 15.25, journaled=False, gone=False, client="other"),
    Crash("settle", 0.5, client="next"),
)
LAST = (  # settled after them
    Crash("settle", 0.5, journaled=False, gone=False, client="same", turn="last"),
    Crash("settle", 0.5, journaled=False, gone=False, client="other", turn="last"),
    Crash("settle", 60.0, journaled=False, gone=False, client="other", turn="last"),
    Crash("settle", 0.5, client="next", turn="last"),
)
LEFT = (*AT_ONCE, *LAST)
RESUMED_AT_ONCE = (
    Crash("resume", 0.5, journaled=False, gone=False, client="same"),
    Crash("resume", 0.5, client="next"),
)
RESUMED_LAST = (
    Crash("resume", 0.5, journaled=False, gone=False, client="same", turn="last"),
    Crash("resume", 0.5, client="next", turn="last"),
)
ELSEWHERE = (
    Crash("resume", 60.0, journaled=False, gone=False, client="other", turn="last"),
)
LATER = tuple(crash for crash in LAST if crash.delay < 60.0)
MUCH_LATER = Crash("settle", 60.0, client="next")
AGAIN = (
    Crash(delay=0.5, journaled=False, gone=False, client="other"),
    Crash(delay=60.0, journaled=False, gone=False, client="other"),
)
ONCE = ReconcilePolicy(resend="never")

DRAFT = {"thing": (OLD, 0, BEFORE, 0), "first": ENDS, "runs": 2}
HOOK = {"thing": (OLD, 0, 0), "first": ENDS_OF_CHANGES, "runs": 2}
MAKES = {"thing": (), "first": ENDS, "runs": 2}
CHANGES: dict[str, dict[str, Any]] = {
    "journeys.update, then another": {"model": Journey(values=(WANTED, ELSE)), **DRAFT},
    "journeys.update, then back": {"model": Journey(values=(WANTED, OLD)), **DRAFT},
    "journeys.update, then the same": {
        "model": Journey(values=(WANTED, WANTED)),
        **DRAFT,
    },
    "webhooks.update, then another": {"model": Hook(values=(WANTED, THIRD)), **HOOK},
    "webhooks.update, then back": {"model": Hook(values=(WANTED, OLD)), **HOOK},
    "webhooks.update, then the same": {"model": Hook(values=(WANTED, WANTED)), **HOOK},
    "webhooks.update, then deleted": {"model": Hook(values=(WANTED, None)), **HOOK},
    "webhooks.delete, then updated": {"model": Hook(values=(None, WANTED)), **HOOK},
}
FORMS = {
    "equal": (Form(), Form()),
    "spelled": (
        Form(url="https://me.example/in", team="own"),
        Form(url="https://ME.example:443/%69n"),
    ),
    "a tag, the end of another": (Form(tag="order 17"), Form(tag="17")),
    "a tag, beginning with another": (Form(tag="17"), Form(tag="order 17")),
    "a text like a tag": (Form("mine 17"), Form(tag="17")),
    "a tag like a text": (Form(tag="17"), Form("mine 17")),
}
CREATES: dict[str, dict[str, Any]] = {
    f"webhooks.create, {name}": {"model": Listing(forms=forms), **MAKES}
    for name, forms in FORMS.items()
}
UNLIKE: dict[str, dict[str, Any]] = {
    "webhooks.create, told apart": {
        "model": Listing(forms=(Form("mine 0"), Form("mine 1"))),
        **MAKES,
    },
    "webhooks.create, marked apart": {
        "model": Listing(forms=(Form(tag="order 17"), Form(tag="order 18"))),
        **MAKES,
    },
    "webhooks.create, tagged apart": {
        "model": Listing(forms=(Form(tag=TAGS[0]), Form(tag=TAGS[1]))),
        **MAKES,
    },
}
SEQUENCES = {**CHANGES, **CREATES}
UNDATED: dict[str, dict[str, Any]] = {
    "journeys.update, then back, no time": {
        **DRAFT,
        "model": Journey(values=(WANTED, OLD), dated=False),
        "thing": (OLD, 0, NULL, 0),
    }
}
THREE: dict[str, dict[str, Any]] = {
    "journeys.update, three": {
        **DRAFT,
        "model": Journey(values=(WANTED, ELSE, OLD)),
        "runs": 3,
    },
    "webhooks.update, three": {
        **HOOK,
        "model": Hook(values=(WANTED, ELSE, OLD)),
        "runs": 3,
    },
    "webhooks.create, three": {
        **MAKES,
        "model": Listing(forms=(Form(), Form(), Form())),
        "runs": 3,
    },
}


def each(
    name: str, only: Iterable[str] = tuple(SEQUENCES), **facts: Any
) -> list[SetUp]:
    """Make the world *name* for every sequence, or for some."""
    every = {**SEQUENCES, **UNDATED, **UNLIKE, **THREE}
    return [
        SetUp(name=f"{sequence}: {name}", **{**every[sequence], **facts})
        for sequence in only
    ]


def _updates(*models: str) -> list[str]:
    return [name for name in CHANGES if name.startswith(models)]


def _alone() -> list[SetUp]:
    return [
        *each("in sequence", calm=True),
        *each("in sequence, stale", CHANGES, passed=True, calm=True),
        *each(
            "in sequence, with errors",
            CHANGES,
            first=(*ENDS_OF_CHANGES, a.ERROR),
            again=(a.OK, a.RESET),
        ),
        *each("in sequence, failing reads", misses=(a.UNREAD, a.DENIED), fails=1),
        *each("in sequence, clocks unknown", bounds=None),
        *each("in sequence, unstamped", bounds=None, stamped=False),
        *each(
            "in sequence, unstamped after",
            first_bounds=NARROW,
            bounds=None,
            stamped=False,
        ),
        *each("in sequence, wide", bounds=WIDE, stamped=False),
        *each("in sequence, wide before", first_bounds=WIDE, bounds=NARROW),
        *each("in sequence", THREE, calm=True),
        *each("in sequence, reads that lag", stale=1.5),
        *each("in sequence, reads that lag, clocks unknown", stale=1.5, bounds=None),
        *each("in sequence, reads that lag", ["webhooks.update, three"], stale=1.5),
        *each("in sequence, reads that lag by 5 s", (*CHANGES, *UNDATED), stale=LAG),
        *each(
            "in sequence, hung, looked at",
            first=(a.OK, a.HUNG),
            beside=(1.0,),
            again=(a.OK,),
        ),
        *each(
            "in sequence, reads that lag by 5 s, hung, looked at",
            (*CHANGES, *UNDATED),
            stale=LAG,
            first=(a.OK, a.HUNG),
            beside=(1.0, 5.5),
            again=(a.OK,),
        ),
    ]


def _left() -> list[SetUp]:
    return [
        *each("left", crashes=LAST, policy=ONCE, calm="awaited"),
        *each(
            "taken up at once", crashes=(*AT_ONCE, MUCH_LATER), policy=ONCE, calm=True
        ),
        *each(
            "left, then answered",
            CREATES,
            crashes=(LAST[0], RESUMED_LAST[0]),
            policy=ONCE,
            later=(a.OK,),
            calm=True,
        ),
        *each("left, wide", crashes=LEFT, policy=ONCE, bounds=WIDE, stamped=False),
        *each("left, wide before", crashes=LEFT, policy=ONCE, first_bounds=WIDE),
        *each("left, clocks unknown", crashes=LEFT, policy=ONCE, bounds=None),
        *each("left, passed", CHANGES, crashes=LEFT, policy=ONCE, passed=True),
        *each("left, reads that lag", crashes=LEFT, policy=ONCE, stale=1.5),
        *each("resumed", crashes=RESUMED_LAST, calm="awaited"),
        *each("resumed at once", crashes=RESUMED_AT_ONCE, calm=True),
        *each("resumed elsewhere", crashes=ELSEWHERE, calm="awaited"),
        *each("resumed elsewhere, once", CHANGES, crashes=ELSEWHERE, policy=ONCE),
        *each(
            "left", THREE, crashes=LATER, policy=ONCE, first=(a.RESET,), calm="awaited"
        ),
        *each("settled once more", CHANGES, afterwards=AGAIN),
        *each("settled once more", CREATES, afterwards=AGAIN, calm=True),
        *each(
            "left, refused reads",
            crashes=LATER,
            policy=ONCE,
            misses=(a.DENIED,),
            fails=1,
            first=(a.RESET,),
        ),
        *each(
            "late",
            CREATES,
            first=(a.RESET,),
            late=1.0,
            lenient=True,
            misses=(a.UNREAD,),
            fails=1,
        ),
        *each("forgetful", CREATES, forgetful=True, crashes=LEFT, policy=ONCE),
    ]


_ACTS = {
    "journeys.update": ("equal", "other", "revert", "side"),
    # what brings an earlier state back cannot be detected
    "webhooks.update": ("other", "delete"),
    "webhooks.create": ("near", "away", "edit"),
}


def _acting() -> list[SetUp]:
    setups: list[SetUp] = []
    for operation, acts in _ACTS.items():
        only = [name for name in SEQUENCES if name.startswith(operation)]
        facts: dict[str, Any] = {"acts": acts, "acting": 1}
        setups += each("beside another", only, **facts)
        setups += each(
            "beside another, left",
            only,
            **facts,
            crashes=LATER,
            policy=ONCE,
            first=(a.RESET,),
        )
        setups += each(
            "beside another, wide", only, **facts, bounds=WIDE, stamped=False
        )
    return setups


LAG = 4.9  # s: reads may lag by less than 5
UPDATES = (
    "webhooks.update, then another",
    "webhooks.update, then back",
    "webhooks.update, then deleted",
)
STEPPED = (
    "journeys.update, then another",
    "webhooks.update, then back",
    "webhooks.create, equal",
)
STEPS = (99.0, 100.25, 100.625, 117.5)


def _stepped() -> list[SetUp]:
    """Step the service's clock; by more than a little only where no other process settles."""
    setups: list[SetUp] = []
    elsewhere: dict[str, Any] = {
        "crashes": (*AT_ONCE[1:], LAST[2]),
        "policy": ONCE,
        "first": (a.RESET,),
    }
    for at in STEPS:
        for name in STEPPED:
            for by in (-60.0, -0.3, 60.0):
                setups += each(
                    f"stepped by {by:g} at {at:g}",
                    [name],
                    model=_stepping(name, at, by),
                )
            for by in (-0.3, 0.3):
                words = f"stepped by {by:g} at {at:g}, left"
                setups += each(
                    words, [name], model=_stepping(name, at, by), **elsewhere
                )
    return setups


def _stepping(name: str, at: float, by: float) -> Any:  # Any: a model
    return attrs.evolve(SEQUENCES[name]["model"], step=(at, by))


def _between() -> list[SetUp]:
    """
    Insert an action of somebody else where nothing of ours is under way, so that what the client knows is out
    of date.
    """
    acts = {
        "journeys.update": ("equal", "other", "revert", "side"),
        "webhooks.update": ("equal", "other", "revert"),
    }
    setups: list[SetUp] = []
    for operation, names in acts.items():
        for sequence in (name for name in CHANGES if name.startswith(operation)):
            model = CHANGES[sequence]["model"]
            if isinstance(model, Hook):
                model = attrs.evolve(model, undone=True)
            facts: dict[str, Any] = {
                "model": model,
                "acts": names,
                "acting": 1,
                "between": True,
            }
            setups += each("changed in between", [sequence], **facts)
            setups += each(
                "changed in between, passed", [sequence], **facts, passed=True
            )
    lags = {
        "acts": ("equal", "other"),
        "acting": 1,
        "between": True,
        "stale": LAG,
        "policy": ONCE,
    }
    return [
        *setups,
        *each("changed in between, reads that lag", UPDATES, **lags, first=(a.RESET,)),
    ]


def _reopened() -> list[SetUp]:
    """Make the later writes in the next process, with a client that has seen nothing of the first one."""
    new: dict[str, Any] = {"reopened": 0.0625}
    return [
        *each("reopened", **new),
        *each("reopened, clocks unknown", **new, bounds=None),
        *each("reopened, clock known", **new, aware=True),
        *each(
            "reopened, lists refused",
            ["webhooks.create, equal"],
            **new,
            aware=True,
            bounds=(-0.25, 0.25),
            misses=(a.DENIED,),
            fails=1,
        ),
        *each(
            "reopened, reads that lag",
            (*UPDATES, *UNDATED),
            **new,
            aware=True,
            stale=LAG,
        ),
        *each("reopened, clock known, stale", CHANGES, **new, aware=True, passed=True),
        *each(
            "reopened, clock known, wide",
            CREATES,
            **new,
            aware=True,
            bounds=(-0.25, 0.25),
            stamped=False,
        ),
        *each(
            "reopened, clock known, settled once more",
            CREATES,
            **new,
            aware=True,
            afterwards=AGAIN,
        ),
    ]


def _side_by_side() -> list[SetUp]:
    """Run two clients that do not know of each other, on one thing or with webhooks of one URL."""
    two: dict[str, Any] = {"in_turn": False, "shared": False, "again": (a.OK, a.RESET)}
    elsewhere = Crash("settle", 0.5, journaled=False, gone=False, client="other")
    # one would undo the other's
    changes = [name for name in CHANGES if name != "webhooks.update, then back"]
    setups: list[SetUp] = []
    for apart in (0.0, 0.25, 3.0):
        setups += each(
            f"side by side, {apart:g} s apart", (*changes, *UNLIKE), **two, apart=apart
        )
    setups += each(
        "side by side, left",
        (*changes, *UNLIKE),
        **two,
        apart=0.25,
        crashes=(elsewhere,),
        policy=ONCE,
    )
    lags: dict[str, Any] = {
        "apart": 3.0,
        "stale": LAG,
        "baseline": False,
        "policy": ONCE,
    }
    setups += each("side by side, reads that lag", UPDATES[2:], **two, **lags)
    setups += each(
        "side by side, wide",
        (*changes, *UNLIKE),
        **two,
        apart=0.25,
        bounds=WIDE,
        stamped=False,
    )
    return setups


SIBLINGS = [
    *_alone(),
    *_left(),
    *_acting(),
    *_stepped(),
    *_between(),
    *_reopened(),
    *_side_by_side(),
]
