"""
The things that writes are about, as tuples of numbers and as wire data.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import attrs

from invsvc_async.reconcile.differences import LEFT_OUT, digest_of
from invsvc_async.reconcile.history import Absent, Applied
from tests.exhaustive.world import NO_STEP, OTHER, PART, Step, Thing, dated, stamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.reconcile.history import Finding

OLD, WANTED, ELSE, THIRD, KIN = 0, 1, 2, 3, 4  # what the field that is written holds
WORDED = 10  # for each time more than that: the same in one of the service's own words
# None shares much with another, but the last one with what is wanted.
TEXTS = ("alpha & co", "bravo & co", "quebec & co", "zulu & co", "bravo & company")
BOTH = (OLD, OLD)  # what two fields hold, of a write of both
THREE = (OLD, OLD, OLD)  # and three, of a write of all
# how the service shows times
Cut = Literal["", "to 0", "to seconds", "to the minute", "to the day"]
Way = Literal[
    "whole", "words", "cut", "masked", "first", "second", "first in words"
]  # how the service stores a write
Left = Literal["", "graph", "graph, with its digest"]
_WORDS: dict[Way, int] = {"words": 1, "cut": 2, "masked": 3}


def text_of(value: int) -> str:
    """Return the text that a field shows which holds *value*."""
    text = TEXTS[value % WORDED]
    forms = (
        text,
        f"{text.title().replace('&', '&amp;')}!",
        text[:5],
        f"{text[:4]}****{text[5:]}",
    )
    return forms[value // WORDED]


def stored(before: Any, value: int, way: Way) -> tuple[Any, int]:
    """Return what holds after *value* is written *way* over *before*, and the id of the effect."""
    worded = value + WORDED * _WORDS.get(way, 0)
    if not isinstance(before, tuple):
        return worded, 1
    match way:
        case "first":
            return (value, *before[1:]), PART
        case "second":
            return (before[0], value, *before[2:]), PART
        case "first in words":
            return (value + WORDED, *before[1:]), PART
        case "words" | "cut" | "masked":
            return (worded, *(value for _ in before[1:])), 1
        case _:
            return tuple(value for _ in before), 1


def echoed(held: Any) -> Any:
    """Return what was sent, of what one field holds, or all."""
    return (
        tuple(each % WORDED for each in held)
        if isinstance(held, tuple)
        else held % WORDED
    )


def holds(held: Any, value: int) -> bool:
    """Return whether what *held* in one field, or in all, is *value*."""
    return (
        all(each == value for each in held)
        if isinstance(held, tuple)
        else bool(held == value)
    )


def is_part_of(held: Any, value: int) -> bool:
    """Return whether some of several fields, and not all, hold *value*, or what shares much with it."""
    if not isinstance(held, tuple):
        return False
    return {each % WORDED in (value, KIN) for each in held} == {True, False}


def written(value: int, before: Any) -> Any:
    """Return what holds after somebody else wrote *value*; of several fields, to the first one."""
    return (value, *before[1:]) if isinstance(before, tuple) else value


NULL = -1.0  # of a time
REMOVED, PUBLISHED = 1, 2  # in what state a journey is; 0: a draft

URL = "https://me.example/in"
EVENTS = ["invoice.created", "payment.created"]
TAGS = ("[iv-aaaaaaaaaaaaaaaa]", "[iv-bbbbbbbbbbbbbbbb]")


@attrs.frozen
class Journey:
    """
    A journey: (value, another field, time of the last change, state).  ``dated``: whether changes are dated.

    The value is what one field holds that is written, or what several of them hold.  Of a journey that is published, reads
    show the snapshot, which no update touches, until somebody takes it back.
    """

    operation = "journeys.update"
    path: ClassVar[dict[str, str]] = {"id": "jrn_1"}
    body: Any = None  # where it is not the value
    both: bool = False  # two fields are written
    three: bool = False  # three fields are written
    # The second field is the graph.  What a store keeps of the state before has no graph, or only a digest of it.
    left_out: Left = ""
    dated: bool = True
    parts_dated: bool = True  # also a change of which only a part was stored
    # the read shows the published snapshot, which no update touches
    published: bool = False
    hidden: bool = False  # what was sent leaves no trace but the time of the change
    ours: float = 0.0  # s that the host which dates our change is ahead
    others: float = 0.0
    values: tuple[int, ...] = (WANTED,)  # what each run writes
    ways: tuple[Way, ...] = ("whole",)  # how the service stores it
    echoes: bool = False  # an answer shows what was sent, not what was stored
    cut: Cut = ""
    step: Step = NO_STEP
    timed = True

    def operation_of(self, run: int) -> str:
        """Name the operation of *run*."""
        return self.operation

    def value_of(self, run: int) -> int:
        """Return what *run* writes."""
        return self.values[run % len(self.values)]

    def body_of(self, run: int) -> Any:
        """Return the body of *run*."""
        if self.body is not None:
            return self.body
        value = self.value_of(run)
        text = text_of(value)
        if self.three:
            return {
                "name": text,
                "description": text,
                "replacesDefaults": _switch_of(value),
            }
        if self.left_out:
            return {"name": text, "graph": _graph_of(value)}
        return {"name": text, "description": text} if self.both else {"name": text}

    def land(self, thing: Thing, at: float, run: int) -> list[tuple[Thing, int]]:
        """Write the wanted value."""
        if thing[3] == REMOVED:
            return []
        lands = [stored(thing[0], self.value_of(run), way) for way in self.ways]
        now = self._date(at + self.ours)
        return [
            (
                (
                    value,
                    thing[1],
                    now if number != PART or self.parts_dated else thing[2],
                    thing[3],
                ),
                number,
            )
            for value, number in lands
        ]

    def act(self, act: str, thing: Thing, at: float) -> tuple[Thing, bool] | None:
        """Write some value, touch another field, or delete."""
        value, side, dated_at, state = thing
        if state == REMOVED or (act == "take back") is not (state == PUBLISHED):
            return None
        if act == "take back":
            return (value, side, dated_at, 0), False
        now = self._date(at + self.others)
        match act:
            case "equal" | "other" | "revert" | "kin":
                return (written(_WRITES[act], value), side, now, 0), True
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
        return (
            None
            if state
            else self._with_graph(
                _journey(
                    value, side, at, "published" if published else "draft", self.cut
                ),
                value,
            )
        )

    def answer(self, thing: Thing, number: int) -> Any:
        """Answer with the journey."""
        value = echoed(thing[0]) if self.echoes else thing[0]
        return self._with_graph(
            _journey(value, *thing[1:3], "draft", self.cut),
            value,
        )

    def _with_graph(self, shown: Any, value: Any) -> Any:
        if not self.left_out:
            return shown
        return {**shown, "graph": _graph_of(value[1])}

    def stored_state(self, thing: Thing) -> Any:
        """Return what a store keeps of the journey, of which the graph is too large."""
        shown = self.show(thing)
        if not self.left_out or shown is None:
            return shown
        state = {name: each for name, each in shown.items() if name != "graph"}
        if self.left_out == "graph":
            return state
        return {**state, LEFT_OUT: {"graph": digest_of(shown["graph"])}}

    def wanted(self, thing: Thing, run: int) -> bool:
        """Return whether the value is there."""
        return holds(thing[0], self.value_of(run)) and not thing[3]

    def is_part(self, thing: Thing, run: int) -> bool:
        """Return whether some of several fields, and not all, hold the value, in whatever words."""
        return is_part_of(thing[0], self.value_of(run))


_WRITES = {"equal": WANTED, "other": ELSE, "revert": OLD, "kin": KIN}


@cache
def _journey(value: Any, side: int, at: float, status: str, cut: Cut) -> Any:
    name, description, switch = (
        (*value, None)[:3] if isinstance(value, tuple) else (value, None, None)
    )
    shown = {} if switch is None else {"replacesDefaults": _switch_of(switch)}
    return {
        "id": "jrn_1", "name": text_of(name), "description": None if description is None else text_of(description),
        **shown, "triggerType": f"side {side}", "status": status, "version": 1,
        "created_at": stamp(0.0), "last_updated": None if at == NULL else _CUTS[cut](stamp(at)),
    }  # fmt: skip


def _graph_of(value: int) -> dict[str, Any]:
    """Return the graph that holds *value*."""
    return {"nodes": [{"id": TEXTS[value % WORDED], "data": {}}], "edges": []}


def _switch_of(value: int) -> bool:
    """Return the boolean that holds *value*: there are only two."""
    return value % WORDED == WANTED


@attrs.frozen
class Hook:
    """A webhook that is changed or removed: (value, another field, gone).  The value is of one field, or of several."""

    operation: str = "webhooks.update"
    path: ClassVar[dict[str, str]] = {"id": "wh_1"}
    # whether others may bring the old value back, which nothing can detect
    undone: bool = False
    # what each run writes; None: it removes the webhook
    values: tuple[int | None, ...] = (WANTED,)
    both: bool = False  # two fields are written
    three: bool = False  # three fields are written
    # the request has blanks and capitals, which the service trims and folds
    loud: bool = False
    ways: tuple[Way, ...] = ("whole",)  # how the service stores it
    echoes: bool = False  # an answer shows what was sent, not what was stored
    step: Step = NO_STEP
    timed = False

    def operation_of(self, run: int) -> str:
        """Name the operation of *run*."""
        if len(self.values) == 1:
            return self.operation
        return "webhooks.delete" if self.value_of(run) is None else "webhooks.update"

    def value_of(self, run: int) -> int | None:
        """Return what *run* writes; ``None``: it removes the webhook."""
        return (
            None
            if self.operation == "webhooks.delete"
            else self.values[run % len(self.values)]
        )

    def body_of(self, run: int) -> Any:
        """Return the body of *run*."""
        value = self.value_of(run)
        if value is None:
            return None
        text = f"  {text_of(value).upper()}" if self.loud else text_of(value)
        if not self.both and not self.three:
            return {"description": text}
        two = {"description": text, "url": _url_of(value)}
        return {**two, "events": _events_of(value)} if self.three else two

    def land(self, thing: Thing, at: float, run: int) -> list[tuple[Thing, int]]:
        """Write the wanted value, or remove it."""
        if thing[2]:
            return []
        value = self.value_of(run)
        if value is None:
            return [((thing[0], thing[1], 1), 1)]
        lands = [stored(thing[0], value, way) for way in self.ways]
        return [((held, thing[1], 0), number) for held, number in lands]

    def act(self, act: str, thing: Thing, at: float) -> tuple[Thing, bool] | None:
        """Write some value, touch another field, or delete."""
        value, side, gone = thing
        if gone or (act == "revert" and not self.undone):
            return None
        match act:
            case "equal" | "other" | "revert" | "kin":
                return (written(_WRITES[act], value), side, 0), True
            case "side":
                return (value, side + 1, 0), False
            case _:
                return (value, side, 1), True

    def show(self, thing: Thing) -> Any:
        """Show the webhook."""
        return None if thing[2] else _changed(thing[0], thing[1])

    def answer(self, thing: Thing, number: int) -> Any:
        """Answer with the webhook; a delete has none."""
        return self.show((echoed(thing[0]), *thing[1:]) if self.echoes else thing)

    def wanted(self, thing: Thing, run: int) -> bool:
        """Return whether the value is there, or the webhook gone."""
        value = self.value_of(run)
        return (
            bool(thing[2]) if value is None else holds(thing[0], value) and not thing[2]
        )

    def is_part(self, thing: Thing, run: int) -> bool:
        """Return whether some of several fields, and not all, hold the value, in whatever words."""
        value = self.value_of(run)
        return value is not None and is_part_of(thing[0], value)


@cache
def _changed(value: Any, side: int) -> Any:
    description, url, events = (
        (*value, None)[:3] if isinstance(value, tuple) else (value, None, None)
    )
    return {"id": "wh_1", "url": URL if url is None else _url_of(url),
            "events": EVENTS if events is None else _events_of(events),
            "status": "active" if side % 2 else "inactive",
            "description": text_of(description), "owner": "usr_1", "created_at": stamp(-9000.0)}  # fmt: skip


def _events_of(value: int) -> list[str]:
    """Return the events that hold *value*; none shares one with another."""
    return [f"{TEXTS[value % WORDED].split()[0]}.created"]


def _url_of(value: int) -> str:
    """Return the URL that holds *value*; in the service's own words, its token is masked."""
    masked = value >= WORDED
    return f"https://{TEXTS[value % WORDED].split()[0]}.example/in?token={'***' if masked else value}"


# from here on an equal webhook of somebody else is not "at the same time"
MUCH_LATER = 200.0
# s: after the windows of a send and a re-send, and less than a minute after the end of the first
SOON_AFTER = 50.0
# how a webhook looks, beside the one that was asked for
SAME, NEAR, AWAY, GONE, BLURRED, HOST, REWORKED, COPY = range(8)
_CUTS: dict[Cut, Callable[[int], int]] = {
    "": lambda at: at,
    "to 0": lambda _at: 0,
    "to seconds": lambda at: at // 1000,
    "to the minute": lambda at: at // 60_000 * 60_000,
    "to the day": lambda at: at // 86_400_000 * 86_400_000,
}


class Form(NamedTuple):
    """How one run asks for its webhook."""

    description: str | None = "mine"
    tag: str | None = None
    url: str = URL
    team: str | None = None
    status: str | None = None
    stored: str | None = None  # how the service stores the URL, if not as it was sent
    # how it stores the description, with the tag, if not as it was sent
    worded: str | None = None
    forced: str | None = None  # the status that it stores, if not the one sent


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
    twice: bool = False  # the list shows each id twice
    hides: bool = False  # the list leaves out what is inactive
    cut: Cut = ""
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
        body = {
            "url": form.url,
            "events": EVENTS,
            **({"description": text} if text else {}),
        }
        return body if form.status is None else {**body, "status": form.status}

    def _list(self, hook: tuple[int, int, float, int]) -> Any:
        number, look, created, by = hook
        body = self.body_of(0 if by == OTHER else by)
        if by == OTHER:
            is_copy = self.borrowed or look == COPY
            text = body.get("description") if is_copy else "mine"
            return _listed(number, look, created, text, body["url"], "active", self.cut)
        form = self.form(by)
        text = body.get("description") if form.worded is None else form.worded
        url = form.stored or body["url"]
        return _listed(
            number,
            look,
            created,
            text,
            url,
            form.forced or form.status or "active",
            self.cut,
        )

    def land(self, thing: Thing, at: float, run: int) -> list[tuple[Thing, int]]:
        """Make one more webhook."""
        return [
            (
                (*thing, (len(thing), SAME, dated(at + self.ours, self.step), run)),
                len(thing),
            )
        ]

    def act(self, act: str, thing: Thing, at: float) -> tuple[Thing, bool] | None:
        """Make one that looks the same, nearly so or not at all, or spoil the newest of ours."""
        looks = {
            "identical": SAME,
            "later": SAME,
            "soon after": SAME,
            "near": NEAR,
            "away": AWAY,
            "blurred": BLURRED,
            "host": HOST,
        }
        if act == "copy":
            return self._copied(thing, at)
        earliest = {"later": MUCH_LATER, "soon after": SOON_AFTER}
        if at < earliest.get(act, 0.0):
            return None
        if act in looks:
            return (
                *thing,
                (len(thing), looks[act], dated(at + self.others, self.step), OTHER),
            ), act not in ("away", "host")
        ours = [
            place
            for place, hook in enumerate(thing)
            if hook[3] != OTHER and hook[1] == SAME
        ]
        if not ours:
            return None
        number, _, created, run = thing[ours[-1]]
        spoilt = (
            number,
            {"delete": GONE, "move": AWAY, "edit": NEAR, "edit all": REWORKED}[act],
            created,
            run,
        )
        return (*thing[: ours[-1]], spoilt, *thing[ours[-1] + 1 :]), True

    def _copied(self, thing: Thing, at: float) -> tuple[Thing, bool] | None:
        """Make a webhook of another URL with the description of the first run's, once that is there."""
        if not any(hook[3] == 0 and hook[1] == SAME for hook in thing):
            return None
        copy = (len(thing), COPY, dated(at + self.others, self.step), OTHER)
        return (*thing, copy), False

    def show(self, thing: Thing) -> Any:
        """Show the list, newest first."""
        shown = [self._list(hook) for hook in reversed(thing) if hook[1] != GONE]
        if self.hides:
            shown = [hook for hook in shown if hook["status"] == "active"]
        return [hook for hook in shown for _ in range(1 + self.twice)]

    def answer(self, thing: Thing, number: int) -> Any:
        """Answer with the new webhook."""
        return {**self._list(thing[number]), "secret": "s"}

    def wanted(self, thing: Thing, run: int) -> bool:
        """Return whether a webhook of *run* is there."""
        return any(hook[3] == run and hook[1] != GONE for hook in thing)


@cache
def _listed(
    number: int,
    look: int,
    created: float,
    text: str | None,
    url: str,
    status: str,
    cut: Cut,
) -> Any:
    url = {
        AWAY: "https://else.example/in",
        HOST: "https://me.example/theirs",
        COPY: "https://me.example/copy",
    }.get(look, url)
    if look == REWORKED:
        status = "inactive" if status == "active" else "active"
    events = [EVENTS[0]] if look == REWORKED else EVENTS[::-1]
    text = {NEAR: "near", HOST: "theirs", REWORKED: "reworked"}.get(look, text)
    return {"id": f"wh_{number}", "url": url, "events": events, "status": status,
            "description": text, "owner": "usr_1",
            "created_at": "soon" if look == BLURRED else _CUTS[cut](stamp(created))}  # fmt: skip


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

    def land(self, thing: Thing, at: float, run: int) -> list[tuple[Thing, int]]:
        """Make one more."""
        return [((thing[0] + 1,), thing[0])]

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

    def land(self, thing: Thing, at: float, run: int) -> list[tuple[Thing, int]]:
        """Write the wanted value."""
        return [((self.values[run],), 1)]

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
