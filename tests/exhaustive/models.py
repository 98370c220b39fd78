"""
The things that writes are about, as tuples of numbers and as wire data.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import attrs

from invsvc_async.reconcile.history import Absent, Applied
from tests.exhaustive.world import NO_STEP, OTHER, Step, Thing, dated, stamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.reconcile.history import Finding

OLD, WANTED, ELSE, THIRD = 0, 1, 2, 3  # what the field that is written holds
NULL = -1.0  # of a time
REMOVED, PUBLISHED = 1, 2  # in what state a journey is; 0: a draft

URL = "https://me.example/in"
EVENTS = ["invoice.created", "payment.created"]
TAGS = ("[iv-aaaaaaaaaaaaaaaa]", "[iv-bbbbbbbbbbbbbbbb]")


@attrs.frozen
class Journey:
    """
    A journey: (value, another field, time of the last change, state).  ``dated``: whether changes are dated.

    Of one that is published, reads show the snapshot, which no update touches, until somebody takes it back.
    """

    operation = "journeys.update"
    path: ClassVar[dict[str, str]] = {"id": "jrn_1"}
    body: Any = attrs.field(factory=lambda: {"name": "name 1"})
    dated: bool = True
    published: bool = False  # the read shows the published snapshot, which no update touches
    hidden: bool = False  # what was sent leaves no trace but the time of the change
    ours: float = 0.0  # s that the host which dates our change is ahead
    others: float = 0.0
    values: tuple[int, ...] = (WANTED,)  # what each run writes
    step: Step = NO_STEP
    timed = True

    def operation_of(self, run: int) -> str:
        """Name the operation of *run*."""
        return self.operation

    def body_of(self, run: int) -> Any:
        """Return the body of *run*."""
        return self.body if len(self.values) == 1 else {"name": f"name {self.values[run]}"}

    def land(self, thing: Thing, at: float, run: int) -> tuple[Thing, int] | None:
        """Write the wanted value."""
        value = self.values[run % len(self.values)]
        return None if thing[3] == REMOVED else ((value, thing[1], self._date(at + self.ours), thing[3]), 1)

    def act(self, act: str, thing: Thing, at: float) -> tuple[Thing, bool] | None:
        """Write some value, touch another field, or delete."""
        value, side, dated_at, state = thing
        if state == REMOVED or (act == "take back") is not (state == PUBLISHED):
            return None
        if act == "take back":
            return (value, side, dated_at, 0), False
        now = self._date(at + self.others)
        match act:
            case "equal" | "other" | "revert":
                return ({"equal": WANTED, "other": ELSE, "revert": OLD}[act], side, now, 0), True
            case "side":
                return (value, side + 1, now, 0), True
            case _:
                return (value, side, now, REMOVED), True

    def _date(self, at: float) -> float:
        return dated(at, self.step) if self.dated else NULL

    def show(self, thing: Thing) -> Any:
        """Show the journey."""
        published = self.published or thing[3] == PUBLISHED
        value, side, at, state = (OLD, 0, thing[2], 0) if published else thing
        value = OLD if self.hidden else value
        return None if state else _journey(value, side, at, "published" if published else "draft")

    def answer(self, thing: Thing, number: int) -> Any:
        """Answer with the journey."""
        return _journey(*thing[:3], "draft")

    def wanted(self, thing: Thing, run: int) -> bool:
        """Return whether the value is there."""
        return thing[0] == self.values[run % len(self.values)] and not thing[3]


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
    values: tuple[int | None, ...] = (WANTED,)  # what each run writes; None: it removes the webhook
    words: str = "text {}"  # how the request says it; the service trims it and folds its case
    step: Step = NO_STEP
    timed = False

    def operation_of(self, run: int) -> str:
        """Name the operation of *run*."""
        if len(self.values) == 1:
            return self.operation
        return "webhooks.delete" if self._value(run) is None else "webhooks.update"

    def _value(self, run: int) -> int | None:
        return None if self.operation == "webhooks.delete" else self.values[run % len(self.values)]

    def body_of(self, run: int) -> Any:
        """Return the body of *run*."""
        value = self._value(run)
        return None if value is None else {"description": self.words.format(value)}

    def land(self, thing: Thing, at: float, run: int) -> tuple[Thing, int] | None:
        """Write the wanted value, or remove it."""
        if thing[2]:
            return None
        value = self._value(run)
        return ((thing[0], thing[1], 1) if value is None else (value, thing[1], 0)), 1

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
        """Return whether the value is there, or the webhook gone."""
        value = self._value(run)
        return bool(thing[2]) if value is None else thing[0] == value and not thing[2]


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


class Form(NamedTuple):
    """How one run asks for its webhook."""

    description: str | None = "mine"
    tag: str | None = None
    url: str = URL
    team: str | None = None
    stored: str | None = None  # how the service stores the URL, if not as it was sent


@attrs.frozen
class Listing:
    """A team's webhooks: ((id, look, time of creation, who made it), …)."""

    operation = "webhooks.create"
    path: ClassVar[dict[str, str]] = {}
    tagged: bool = False
    marks: tuple[str, str] = TAGS
    apart: bool = False  # each run asks for a description of its own
    forms: tuple[Form, ...] = ()  # of each run, where they are not all alike
    borrowed: bool = False  # what others make bears the mark of the first run
    ours: float = 0.0  # s that the host which dates our creation is ahead
    others: float = 0.0
    step: Step = NO_STEP
    timed = True

    def operation_of(self, run: int) -> str:
        """Name the operation of *run*."""
        return self.operation

    def form(self, run: int) -> Form:
        """Return the form of the request of *run*."""
        if self.forms:
            return self.forms[run]
        text = f"mine {run}" if self.apart and not self.tagged else "mine"
        return Form(text, self.marks[run % 2] if self.tagged else None)

    def name_of(self, number: int) -> str:
        """Return the id of webhook *number*."""
        return f"wh_{number}"

    def body_of(self, run: int) -> Any:
        """Return the body of *run*, with its tag if it has one."""
        form = self.form(run)
        text = " ".join(part for part in (form.description, form.tag) if part)
        return {"url": form.url, "events": EVENTS, **({"description": text} if text else {})}

    def _list(self, hook: tuple[int, int, float, int]) -> Any:
        body = self.body_of(0 if hook[3] == OTHER else hook[3])
        theirs = "mine" if hook[3] == OTHER and not self.borrowed else body.get("description")
        stored = self.form(hook[3]).stored if hook[3] != OTHER else None
        return _listed(hook[0], hook[1], hook[2], theirs, stored or body["url"])

    def land(self, thing: Thing, at: float, run: int) -> tuple[Thing, int] | None:
        """Make one more webhook."""
        return (*thing, (len(thing), SAME, dated(at + self.ours, self.step), run)), len(thing)

    def act(self, act: str, thing: Thing, at: float) -> tuple[Thing, bool] | None:
        """Make one that looks the same, nearly so or not at all, or spoil the newest of ours."""
        looks = {"identical": SAME, "later": SAME, "near": NEAR, "away": AWAY, "blurred": BLURRED}
        if act == "later" and at < MUCH_LATER:
            return None
        if act in looks:
            return (
                *thing,
                (len(thing), looks[act], dated(at + self.others, self.step), OTHER),
            ), act != "away"
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
        """Return whether a webhook of *run* is there."""
        return any(hook[3] == run and hook[1] != GONE for hook in thing)


@cache
def _listed(number: int, look: int, created: float, text: str | None, url: str) -> Any:
    return {"id": f"wh_{number}", "url": "https://else.example/in" if look == AWAY else url, "events": EVENTS[::-1],
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
    step: Step = NO_STEP
    timed = False

    def operation_of(self, run: int) -> str:
        """Name the operation of *run*."""
        return self.operation

    def body_of(self, run: int) -> Any:
        """Return the body of *run*."""
        return self.body

    def name_of(self, number: int) -> str:
        """Return the id of team *number*."""
        return f"team_{number}"

    def land(self, thing: Thing, at: float, run: int) -> tuple[Thing, int] | None:
        """Make one more."""
        return (thing[0] + 1,), thing[0]

    def act(self, act: str, thing: Thing, at: float) -> tuple[Thing, bool] | None:
        """Nobody else makes this team."""
        return None

    def show(self, thing: Thing) -> Any:
        """Return what the user-supplied reader finds."""
        return self.there(self.answer(thing, 0)) if thing[0] else self.missing

    def answer(self, thing: Thing, number: int) -> Any:
        """Answer with the team."""
        return {"id": self.name_of(number), "legal_name": "One"}

    def wanted(self, thing: Thing, run: int) -> bool:
        """Return whether it is there."""
        return bool(thing[0])


@attrs.frozen
class Put:
    """What a PUT replaces, for which the specification has no read: (value,).  What the caller's own reader finds is told."""

    operation = "sheets.save_mapping"
    path: ClassVar[dict[str, str]] = {}
    values: tuple[int, ...] = (WANTED,)  # what each run writes
    step: Step = NO_STEP
    timed = False

    def operation_of(self, run: int) -> str:
        """Name the operation of *run*."""
        return self.operation

    def body_of(self, run: int) -> Any:
        """Return the body of *run*."""
        return {"fields": {"value": self.values[run]}}

    def land(self, thing: Thing, at: float, run: int) -> tuple[Thing, int] | None:
        """Write the wanted value."""
        return (self.values[run],), 1

    def act(self, act: str, thing: Thing, at: float) -> tuple[Thing, bool] | None:
        """Nobody else changes it."""
        return None

    def show(self, thing: Thing) -> Any:
        """Return what the user-supplied reader sees."""
        return thing

    def finding(self, thing: Thing, run: int) -> Finding:
        """Return what the user-supplied reader finds for *run*."""
        return Applied(self.answer(thing, 1)) if self.wanted(thing, run) else Absent()

    def answer(self, thing: Thing, number: int) -> Any:
        """Answer with the value."""
        return {"value": thing[0]}

    def wanted(self, thing: Thing, run: int) -> bool:
        """Return whether the value is there."""
        return bool(thing[0] == self.values[run])
