"""
The service in memory: journeys, webhooks, and a ledger of who changed what and when.

It does not know what the client thinks.
"""

from __future__ import annotations

import html
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.reconcile.compare import url_key

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from invsvc_async.simulator.stores import How
    from tests.interleavings.loop import ScriptedLoop

SERVER = 1_700_000_000.0  # s: the service's clock minus ours
CONNECT = 0.01  # s until the first byte leaves
EFFECT = 0.05  # s after that
ANSWER = 0.1
READ = 0.02
AGE = 61_237  # ms: how old things are at the start: no time of whole minutes, which may be one that was cut
ATTEMPT = 6.0  # s: the longest that a request takes

# which write a request belongs to, whoever sends it
WRITER: ContextVar[str] = ContextVar("writer")


@attrs.frozen
class Fate:
    """What becomes of a request that writes; times in s after its first byte."""

    name: str
    status: int | None = None  # of the answer; ``None``: it is lost
    effect: float | None = None
    lasts: float = ANSWER
    window: float = 0.0  # how long after its end it may still have an effect, as the client must assume
    leaves: bool = True
    stored: How = "as sent"


LONG, SHORT = 3.0, 1.0  # settle windows of the clients here, s
FATES = {
    fate.name: fate
    for fate in (
        Fate("ok", 200, EFFECT),
        Fate("lost", None, None, window=LONG),
        Fate("landed", None, EFFECT, window=LONG),
        Fate("soon", None, ANSWER + 0.7, window=LONG),
        Fate("late", None, ANSWER + LONG - 0.001, window=LONG),
        Fate("slow", None, ATTEMPT - 0.5, ATTEMPT - CONNECT - 0.01, window=LONG),
        Fate("500", 500, None, window=SHORT),
        Fate("500 late", 500, ANSWER + SHORT - 0.001, window=SHORT),
        Fate("refused", 403, None),
        Fate("unsent", leaves=False),
        Fate("in words", None, EFFECT, window=LONG, stored="other words"),
        Fate(
            "late in words",
            None,
            ANSWER + LONG - 0.001,
            window=LONG,
            stored="other words",
        ),
        Fate("500 in words", 500, EFFECT, window=SHORT, stored="other words"),
        Fate("in part", 500, EFFECT, window=SHORT, stored="in part"),
        Fate("lost in part", None, EFFECT, window=LONG, stored="in part"),
    )
}
READS = {"ok": READ, "slow": 1.3, "failed": READ, "denied": READ}
REFUSED_READS = {"failed": 503, "denied": 403}  # the status


@attrs.define
class Sent:
    """One request that writes, as it was."""

    writer: str
    client: str
    thing: str
    method: str
    body: Any
    started: float
    fate: Fate
    ended: float | None = None
    answered: bool = False  # with a 200
    status: int | None = None  # of the answer, if there was one
    # when it takes effect, unless that is impossible then
    effect_at: float | None = None
    landing: asyncio.TimerHandle | None = None


@attrs.frozen
class Effect:
    """A change of the service's state."""

    at: float
    writer: str | None  # ``None``: a stranger
    thing: str
    number: int  # of the send
    made: str | None = None  # id of a new webhook
    stored: How = "as sent"


@attrs.define
class Service:
    """What is stored at the service, and the ledger."""

    loop: ScriptedLoop
    fates: dict[str, tuple[str, ...]]  # by writer: what may become of its sends
    reads: tuple[str, ...]
    journeys: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    hooks: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    sends: list[Sent] = attrs.field(factory=list)
    effects: list[Effect] = attrs.field(factory=list)
    # started, ended, run, status
    looks: list[tuple[float, float, str, str]] = attrs.field(factory=list)
    states: dict[str, list[tuple[float, Any]]] = attrs.field(factory=dict)

    def stamp(self) -> int:
        """Return the service's time in whole ms."""
        return int((self.loop.now + SERVER) * 1000)

    def seed_journey(self, name: str) -> None:
        """Store the journey of these walks."""
        self.journeys["j1"] = {
            "id": "j1", "name": name, "status": "draft", "version": 1, "livemode": False,
            "last_updated": self.stamp() - AGE, "description": "",
        }  # fmt: skip
        self._note("/journeys/j1")

    def seed_hook(self, description: str) -> None:
        """Store the webhook of these walks."""
        self.hooks[_id(0)] = {
            "id": _id(0), "url": "https://a.example/in", "events": ["invoice.created"], "status": "active",
            "description": description, "owner": "team", "created_at": self.stamp() - AGE,
        }  # fmt: skip
        self._note(f"/webhooks/{_id(0)}")

    def _note(self, thing: str) -> None:
        self.states.setdefault(thing, []).append((self.loop.now, self.state(thing)))

    def state(self, thing: str) -> Any:
        """Return a copy of the state of *thing* now."""
        kind, _, name = thing[1:].partition("/")
        found = (self.journeys if kind == "journeys" else self.hooks).get(name)
        return None if found is None else dict(found)

    def act(self, thing: str, changes: dict[str, Any] | None) -> None:
        """Change *thing* as a stranger (``None``: delete it)."""
        self.effects.append(Effect(self.loop.now, None, thing, -1))
        self._change(thing, changes)

    def land_at(self, number: int, at: float) -> None:
        """Schedule the effect of a send at *at*."""
        sent = self.sends[number]
        if sent.landing is not None:
            sent.landing.cancel()
        sent.effect_at, sent.landing = (
            at,
            self.loop.call_at(at, self.land, number, context=Context()),
        )

    def end(self, number: int) -> None:
        """Note the end of a send; if it was interrupted, its effect comes within the window all the same."""
        sent = self.sends[number]
        if sent.ended is not None:
            return
        sent.ended = self.loop.now
        if sent.effect_at is not None and sent.effect_at > sent.ended + LONG:
            self.land_at(number, sent.ended + LONG - 0.001)

    def land(self, number: int) -> None:
        """Apply the effect of a send, if it is still possible."""
        sent = self.sends[number]
        body, stored = as_stored(sent.body, sent.fate.stored)
        if sent.method == "POST":
            made: str | None = self._create(body)
        else:
            if self.state(sent.thing) is None:
                return
            made = None
            self._change(sent.thing, body if sent.method == "PUT" else None)
        self.effects.append(
            Effect(self.loop.now, sent.writer, sent.thing, number, made, stored)
        )

    def _create(self, body: dict[str, Any]) -> str:
        made = _id(len(self.effects) + 1)
        self.hooks[made] = {
            "status": "active", "description": None, **body, "id": made, "owner": "team",
            "created_at": self.stamp(),
        }  # fmt: skip
        return made

    def _change(self, thing: str, changes: dict[str, Any] | None) -> None:
        kind, _, name = thing[1:].partition("/")
        if changes is None:
            self.hooks.pop(name, None)
        elif kind == "journeys":
            self.journeys[name] = {
                **self.journeys[name],
                **changes,
                "last_updated": self.stamp(),
            }
        else:
            self.hooks[name] = {**self.hooks[name], **changes}
        self._note(thing)


def as_stored(body: Any, how: How) -> tuple[Any, How]:  # Any: JSON
    """Return *body* as it is stored if that is *how*, and how that is: a body of one field has no parts."""
    if not body or how == "as sent":
        return body, "as sent"
    if how == "in part":
        first, *rest = body
        return ({first: body[first]}, how) if rest else (body, "as sent")
    return {name: WORDS.get(name, _same)(value) for name, value in body.items()}, how


def _same(value: Any) -> Any:  # Any: JSON
    return value


# The service's own words, by field: entities, and another order of a query.
WORDS: dict[str, Callable[[str], str]] = {
    "name": html.escape,
    "description": html.escape,
    "url": lambda url: url.replace("&", "&amp;"),
}


def _id(number: int) -> str:
    return f"wh_{number:026d}"


def thing_of(method: str, path: str, body: Any) -> str:
    """Return what a request is about: for a create, its URL."""
    return f"url {url_key(body['url'])}" if method == "POST" else path
