"""
Be each thing that a write is about, as a tuple of numbers and as wire data; never judge a verdict.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from invsvc_async.reconcile.evidence import Absent, Applied
from tests.exhaustive.world import OTHER, Thing, stamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.reconcile.evidence import Finding

OLD, WANTED, ELSE = 0, 1, 2  # what the field that is written holds
NULL = -1.0  # of a time

URL = "https://me.example/in"
EVENTS = ["invoice.created", "payment.created"]
TAGS = ("[iv-aaaaaaaaaaaaaaaa]", "[iv-bbbbbbbbbbbbbbbb]")


@attrs.frozen
class Journey:
    """A journey: (value, another field, time of the last change, gone).  ``dated``: whether changes are dated."""

    operation = "journeys.update"
    path: ClassVar[dict[str, str]] = {"id": "jrn_1"}
    body: Any = attrs.field(factory=lambda: {"name": "name 1"})
    dated: bool = True
    published: bool = False  # the read shows the published snapshot, which no update touches
    hidden: bool = False  # what was sent leaves no trace but the time of the change
    ours: float = 0.0  # s that the host which dates our change is ahead
    others: float = 0.0
    timed = True

    def land(self, thing: Thing, at: float, run: int) -> tuple[Thing, int] | None:
        """Write the wanted value."""
        return None if thing[3] else ((WANTED, thing[1], self._date(at + self.ours), 0), 1)

    def act(self, act: str, thing: Thing, at: float) -> tuple[Thing, bool] | None:
        """Write some value, touch another field, or delete."""
        value, side, _, gone = thing
        if gone:
            return None
        now = self._date(at + self.others)
        match act:
            case "equal" | "other" | "revert":
                return ({"equal": WANTED, "other": ELSE, "revert": OLD}[act], side, now, 0), True
            case "side":
                return (value, side + 1, now, 0), True
            case _:
                return (value, side, now, 1), True

    def _date(self, at: float) -> float:
        return at if self.dated else NULL

    def show(self, thing: Thing) -> Any:
        """Show the journey."""
        value, side, at, gone = (OLD, 0, thing[2], 0) if self.published else thing
        value = OLD if self.hidden else value
        return None if gone else _journey(value, side, at, "published" if self.published else "draft")

    def answer(self, thing: Thing, number: int) -> Any:
        """Answer with the journey."""
        return _journey(*thing[:3], "draft")

    def wanted(self, thing: Thing, run: int) -> bool:
        """Tell whether the value is there."""
        return thing[0] == WANTED and not thing[3]


@cache
def _journey(value: int, side: int, at: float, status: str) -> Any:
    return {
        "id": "jrn_1", "name": f"name {value}", "description": f"side {side}", "status": status, "version": 1,
        "created_at": stamp(0.0), "last_updated": None if at == NULL else stamp(at),
    }  # fmt: skip


@attrs.frozen
class Hook:
    """A webhook that is changed or removed: (value, another field, gone)."""

    operation: str = "webhooks.update"
    path: ClassVar[dict[str, str]] = {"id": "wh_1"}
    undone: bool = False  # whether others may bring the old value back, which nothing can detect
    timed = False

    @property
    def body(self) -> Any:
        """Give the request's body."""
        return None if self.operation == "webhooks.delete" else {"description": "text 1"}

    def land(self, thing: Thing, at: float, run: int) -> tuple[Thing, int] | None:
        """Write the wanted value, or remove it."""
        if thing[2]:
            return None
        return ((thing[0], thing[1], 1) if self.operation == "webhooks.delete" else (WANTED, thing[1], 0)), 1

    def act(self, act: str, thing: Thing, at: float) -> tuple[Thing, bool] | None:
        """Write some value, touch another field, or delete."""
        value, side, gone = thing
        if gone or (act == "revert" and not self.undone):
            return None
        match act:
            case "equal" | "other" | "revert":
                return ({"equal": WANTED, "other": ELSE, "revert": OLD}[act], side, 0), True
            case "side":
                return (value, side + 1, 0), False
            case _:
                return (value, side, 1), True

    def show(self, thing: Thing) -> Any:
        """Show the webhook."""
        return None if thing[2] else _changed(thing[0], thing[1])

    def answer(self, thing: Thing, number: int) -> Any:
        """Answer with the webhook; a delete has none."""
        return self.show(thing)

    def wanted(self, thing: Thing, run: int) -> bool:
        """Tell whether the value is there, or the webhook gone."""
        return bool(thing[2]) if self.operation == "webhooks.delete" else thing[0] == WANTED and not thing[2]


@cache
def _changed(value: int, side: int) -> Any:
    return {"id": "wh_1", "url": URL, "events": EVENTS, "status": "active" if side % 2 else "inactive",
            "description": f"text {value}", "owner": "usr_1", "created_at": stamp(-9000.0)}  # fmt: skip


MUCH_LATER = 200.0  # from here on an equal webhook of somebody else is not "at the same time"
SAME, NEAR, AWAY, GONE, BLURRED = (
    0,
    1,
    2,
    3,
    4,
)  # how a webhook of a list looks, beside the one that was asked for


@attrs.frozen
class Listing:
    """A team's webhooks: ((id, look, time of creation, who made it), …)."""

    operation = "webhooks.create"
    path: ClassVar[dict[str, str]] = {}
    tagged: bool = False
    marks: tuple[str, str] = TAGS
    apart: bool = False  # each run asks for a description of its own
    borrowed: bool = False  # what others make bears the mark of the first run
    ours: float = 0.0  # s that the host which dates our creation is ahead
    others: float = 0.0
    timed = True

    @property
    def body(self) -> Any:
        """Give the request's body, without a tag."""
        return {"url": URL, "events": EVENTS, "description": "mine"}

    def name_of(self, number: int) -> str:
        """Give the id of webhook *number*."""
        return f"wh_{number}"

    def body_of(self, run: int) -> Any:
        """Give the body of *run*, with its tag where there is one."""
        return {**self.body, "description": self._text(run)}

    def _text(self, run: int) -> str:
        return f"mine {self.marks[run]}" if self.tagged else f"mine {run}" if self.apart else "mine"

    def _list(self, hook: tuple[int, int, float, int]) -> Any:
        theirs = self._text(0) if self.borrowed else "mine"
        return _listed(hook[0], hook[1], hook[2], theirs if hook[3] == OTHER else self._text(hook[3]))

    def land(self, thing: Thing, at: float, run: int) -> tuple[Thing, int] | None:
        """Make one more webhook."""
        return (*thing, (len(thing), SAME, at + self.ours, run)), len(thing)

    def act(self, act: str, thing: Thing, at: float) -> tuple[Thing, bool] | None:
        """Make one that looks the same, nearly so or not at all, or spoil the newest of ours."""
        looks = {"identical": SAME, "later": SAME, "near": NEAR, "away": AWAY, "blurred": BLURRED}
        if act == "later" and at < MUCH_LATER:
            return None
        if act in looks:
            return (*thing, (len(thing), looks[act], at + self.others, OTHER)), act != "away"
        ours = [place for place, hook in enumerate(thing) if hook[3] != OTHER and hook[1] == SAME]
        if not ours:
            return None
        number, _, created, run = thing[ours[-1]]
        spoilt = (number, {"delete": GONE, "move": AWAY, "edit": NEAR}[act], created, run)
        return (*thing[: ours[-1]], spoilt, *thing[ours[-1] + 1 :]), True

    def show(self, thing: Thing) -> Any:
        """Show the list, newest first."""
        return [self._list(hook) for hook in reversed(thing) if hook[1] != GONE]

    def answer(self, thing: Thing, number: int) -> Any:
        """Answer with the new webhook."""
        return {**self._list(thing[number]), "secret": "s"}

    def wanted(self, thing: Thing, run: int) -> bool:
        """Tell whether a webhook of *run* is there."""
        return any(hook[3] == run and hook[1] != GONE for hook in thing)


@cache
def _listed(number: int, look: int, created: float, text: str) -> Any:
    return {"id": f"wh_{number}", "url": "https://else.example/in" if look == AWAY else URL, "events": EVENTS[::-1],
            "status": "active", "description": "near" if look == NEAR else text, "owner": "usr_1",
            "created_at": "soon" if look == BLURRED else stamp(created)}  # fmt: skip


@attrs.frozen
class Team:
    """A team to be made, for which the specification has no read: (how many,).  What the caller's own reader finds is told."""

    operation = "teams.create"
    path: ClassVar[dict[str, str]] = {}
    body: Any = attrs.field(factory=lambda: {"legal_name": "One"})
    there: Callable[[Any], Finding] = Applied
    missing: Finding = attrs.field(factory=Absent)
    timed = False

    def name_of(self, number: int) -> str:
        """Give the id of team *number*."""
        return f"team_{number}"

    def land(self, thing: Thing, at: float, run: int) -> tuple[Thing, int] | None:
        """Make one more."""
        return (thing[0] + 1,), thing[0]

    def act(self, act: str, thing: Thing, at: float) -> tuple[Thing, bool] | None:
        """Nobody else makes this team."""
        return None

    def show(self, thing: Thing) -> Any:
        """Give what the caller's own reader finds."""
        return self.there(self.answer(thing, 0)) if thing[0] else self.missing

    def answer(self, thing: Thing, number: int) -> Any:
        """Answer with the team."""
        return {"id": self.name_of(number), "legal_name": "One"}

    def wanted(self, thing: Thing, run: int) -> bool:
        """Tell whether it is there."""
        return bool(thing[0])
