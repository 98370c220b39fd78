"""The pages of an event store: its events, and what a person may change of them."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from invsvc_async.cli.console.confirmations import (
    CHANGED,
    LIMITS,
    NOT_OFFERED,
    Change,
    limit_in,
    names_in,
    with_left,
)
from invsvc_async.cli.console.page_texts import plain_facts, plain_table, visible_texts
from invsvc_async.cli.event_views import (
    backlog_in_words,
    body_in_words,
    counts_table,
    events_table,
    facts_in_words,
)
from invsvc_async.cli.output import counted
from invsvc_async.errors import InvsvcError
from invsvc_async.events.stores import STATES
from invsvc_async.simulator.loopback_acts import ActRefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from invsvc_async.codec.exact_json import WireObject
    from invsvc_async.events import HandlerStore, StoredEvent
    from invsvc_async.events.stores import State

    Act = Callable[[StoredEvent], Awaitable[bool]]

_BODY: Final = 20_000  # characters of a body that are shown
BUTTONS: Final = {"revive": "Handle again", "drop": "Drop"}


@attrs.frozen(kw_only=True)
class EventAct:
    """What a button does to events: the method of the store, and the words for people."""

    run: Act
    question: str  # about {events}
    will: Sequence[str]
    done: str


class EventConsole:
    """The views and changes of *store*, which people call *name*."""

    def __init__(self, store: HandlerStore, name: str) -> None:
        self._store = store
        self._name = name

    # --- views

    async def data(self, query: Mapping[str, str]) -> WireObject:
        """Return what the view that *query* names shows."""
        match query.get("view", "list"):
            case "about":
                return self._about()
            case "list":
                return await self._list(query)
            case "show":
                return await self._show(_number_in(query["name"].strip('"')))
            case "counts":
                return await self._counts()
            case other:
                raise ValueError(f"view: there is no {other!r}")

    def _about(self) -> WireObject:
        return {
            "kind": "events",
            "name": visible_texts([self._name])[0],
            "states": ["dead", "open", "handled", ""],
            "limits": [*LIMITS],
            "views": ["list", "counts"],
            "changes": BUTTONS,
        }

    async def _list(self, query: Mapping[str, str]) -> WireObject:
        wanted: State | None = None
        for state in STATES:
            if state == query.get("state"):
                wanted = state
        limit = limit_in(query)
        if query.get("state") and wanted is None:
            raise ValueError(NOT_OFFERED)
        found = [*await self._store.events(state=wanted, limit=limit + 1)]
        words = f"{len(found):,} in all"
        if len(found) > limit:
            words = f"more than the first {limit:,} are not shown"
        return {
            "table": plain_table(events_table(found[:limit])),
            "names": [str(event.id) for event in found[:limit]],
            "states": [event.state for event in found[:limit]],
            "words": words,
        }

    async def _show(self, number: int) -> WireObject:
        event = await self._event(number)
        if event is None:
            return {"gone": "There is no such event any more."}
        body = body_in_words(event)
        shown = body if len(body) <= _BODY else f"{body[:_BODY]}…"
        return {
            "title": f"event {event.id}",
            "facts": plain_facts(facts_in_words(event)),
            "state": event.state,
            "body": visible_texts([shown])[0],
            "changes": _changes_of(event),
        }

    async def _counts(self) -> WireObject:
        return {
            "table": plain_table(counts_table(await self._store.stats())),
            "words": backlog_in_words(await self._store.backlog()),
        }

    # --- changes

    async def change(self, asked: Mapping[str, object]) -> Change:
        """Return the change that is asked for, of the events as they are now."""
        seen = [await self._seen(_number_in(name)) for name in names_in(asked)]
        change = str(asked.get("change"))
        if change not in BUTTONS:
            raise ValueError(f"change: there is no {change!r}")
        for event in seen:
            if change not in _changes_of(event):
                raise ActRefusedError(
                    f"event {event.id}: “{BUTTONS[change]}” is not for an event that is {event.state}, as "
                    "this one is. Nothing was done."
                )
        act = self._revival() if change == "revive" else self._deletion()
        return Change(
            title=act.question.format(events=_called(seen)),
            will=act.will,
            button=BUTTONS[change],
            now={f"event {event.id}": facts_in_words(event) for event in seen},
            do=partial(self._do, act, seen),
        )

    def _revival(self) -> EventAct:
        will = (
            "The receiver gets it again, with new attempts. Mend the cause before.",
            "A receiver that runs handles it at once. This page handles nothing.",
        )
        return EventAct(
            run=self._store.revive,
            question="Handle {events} again?",
            will=will,
            done="revived",
        )

    def _deletion(self) -> EventAct:
        will = (
            "Its body is deleted, and nobody handles it any more.",
            "Its key stays, so that a late duplicate is not handled either.",
        )
        return EventAct(
            run=self._store.drop,
            question="Delete {events}?",
            will=will,
            done="dropped",
        )

    async def _do(self, act: EventAct, seen: Sequence[StoredEvent]) -> str:
        """Change the events, each if it is still as it was *seen*; return what was done."""
        many = 0
        try:
            for event in seen:
                is_same = await self._event(event.id) == event
                if is_same and await act.run(event):
                    many += 1
        except InvsvcError as error:
            raise ActRefusedError(str(error)) from error
        if not many:
            raise ActRefusedError(f"{CHANGED}.")
        return with_left(f"{counted(many, 'event')} {act.done}.", len(seen) - many)

    async def _seen(self, number: int) -> StoredEvent:
        event = await self._event(number)
        if event is None:
            raise ActRefusedError("There is no such event any more. Nothing was done.")
        return event

    async def _event(self, number: int) -> StoredEvent | None:
        page = await self._store.events(after=number - 1, limit=1)
        if not page or page[0].id != number:
            return None
        return page[0]


def _called(events: Sequence[StoredEvent]) -> str:
    """Return what people call the event, or how many there are."""
    if len(events) > 1:
        return counted(len(events), "event")
    return f"event {events[0].id}"


def _number_in(name: str) -> int:
    """Return the id in *name*; raise ValueError if there is none."""
    with suppress(ValueError):
        if 0 < int(name) < 2**63:
            return int(name)
    raise ValueError("name: must be the id of an event")


def _changes_of(event: StoredEvent) -> list[str]:
    """Return what a person may do with *event*; the store itself refuses what must not be."""
    if event.state == "dead":
        return ["revive", "drop"]
    if event.body is not None:
        return ["drop"]
    return []
