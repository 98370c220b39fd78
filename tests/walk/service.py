"""The service of a walk: it may store in its own words or in part, as the embedded service does."""

from __future__ import annotations

from contextvars import Context
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.reconcile.findings import TAG
from invsvc_async.simulator.stores import (
    Kept,
    Stores,
    kept_of_new,
    kept_of_update,
    listed_hooks,
    time_of,
)
from tests.interleavings.service import (
    EFFECT,
    FATES,
    LONG,
    SHORT,
    Effect,
    Fate,
    Service,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.walk.program import Edit

IN_PART = "500 in part"  # an update of several fields stores only some of them
LIMITED = "limited"  # with ``Retry-After``
RETRY_AFTER = 2  # s
MAPPING = "/sheets/mapping"  # one for each team
FATES.setdefault(LIMITED, Fate(LIMITED, 429, None))
FATES.setdefault(IN_PART, Fate(IN_PART, 500, EFFECT, window=SHORT))

JUST_BEFORE = 0.001  # s before the end of a window, some effects come


def fate_within(name: str, windows: float) -> str:
    """Return the fate *name* of a send whose process has windows that are so many times as long."""
    fate = FATES[name]
    if windows == 1.0 or not fate.window:
        return name
    scaled, effect = f"{name} x{windows:g}", fate.effect
    if effect is not None and effect > fate.lasts:
        effect = fate.lasts + (effect - fate.lasts + JUST_BEFORE) * windows
        effect -= JUST_BEFORE
    of_it = attrs.evolve(fate, effect=effect, window=fate.window * windows)
    FATES.setdefault(scaled, of_it)
    return scaled


@attrs.frozen
class Edited:
    """What somebody has done in the dashboard: when, and to which webhook."""

    at: float
    edit: Edit
    hook: str


@attrs.define
class WalkService(Service):
    """The service, which *stores* in its own way, as the seed says."""

    stores: Stores = attrs.field(kw_only=True)
    seed: int = attrs.field(kw_only=True)
    # the team's spreadsheet import, which shows by which writes its mapping was saved
    connection: dict[str, Any] = attrs.field(
        factory=lambda: {"spreadsheet_id": "s1", "enabled": False, "saved": []}
    )
    # what somebody does to the webhooks that creates make
    edits: tuple[Edit, ...] = attrs.field(kw_only=True, default=())
    edited: list[Edited] = attrs.field(factory=list)
    # by process: how many times as long its settle windows are as those of others
    windows: dict[str, float] = attrs.field(kw_only=True, factory=dict)
    # numbers of the sends that were stored in part
    in_part: set[int] = attrs.field(factory=set)

    def state(self, thing: str) -> Any:
        """Return a copy of the state of *thing* now."""
        if thing == MAPPING:
            return {**self.connection, "saved": [*self.connection["saved"]]}
        return super().state(thing)

    def _change(self, thing: str, changes: dict[str, Any] | None) -> None:
        if thing == MAPPING:
            assert changes is not None
            self.connection["fields"] = changes["fields"]
            self.connection["saved"].append(changes["fields"]["amount"])
            self._note(thing)
        else:
            super()._change(thing, changes)

    def _seeded(self, text: str) -> Random:
        return Random(f"{self.seed}/{text}")

    def kept(self, field: str, text: str) -> str:
        """Return the *text* of a field as it is stored."""
        return str(self.stores.in_own_words(field, text, self._seeded))

    def end(self, number: int) -> None:
        """Note the end of a send; if it was interrupted, its effect comes within the window of its process."""
        sent = self.sends[number]
        if sent.ended is not None:
            return
        sent.ended = self.loop.now
        latest = sent.ended + LONG * self.windows.get(sent.client, 1.0)
        if sent.effect_at is not None and sent.effect_at > latest:
            self.land_at(number, latest - JUST_BEFORE)

    def land(self, number: int) -> None:
        """Apply the effect of a send; only a part of it, if that is its fate."""
        sent, made = self.sends[number], None
        if sent.method == "POST":
            new = {"status": "active", "description": None, **sent.body}
            kept = kept_of_new(self.stores, new, self._seeded)
            made = self._create(kept.stored)
            self.hooks[made]["created_at"] = time_of(
                self.stores.created_at, self.stamp()
            )
        elif self.state(sent.thing) is None:
            return
        elif sent.method == "DELETE":
            kept = Kept(sent={})
            self._change(sent.thing, None)
        else:
            stores = replace(self.stores, partly=float(sent.fate.name == IN_PART))
            chance = self._seeded(f"{sent.writer}/{number}")
            before = self.state(sent.thing)
            kept = kept_of_update(stores, sent.body, before, self._seeded, chance)
            self._change(sent.thing, kept.stored)
            self._cut_time(sent.thing)
        if kept.in_part:
            self.in_part.add(number)
        effect = Effect(self.loop.now, sent.writer, sent.thing, number, made, kept.how)
        self.effects.append(effect)
        if made is not None:
            self._expect_edits(sent.writer)

    def _expect_edits(self, writer: str) -> None:
        made = self._made_by(writer)
        if len(made) > 1:
            return  # of the first one only
        for edit in self.edits:
            if edit.key == writer:
                act = partial(self._edit, edit, made[0])
                self.loop.call_later(edit.after, act, context=Context())

    def _made_by(self, writer: str) -> list[str]:
        """Return the ids of the webhooks that creates of *writer* have made."""
        return [
            each.made
            for each in self.effects
            if each.writer == writer and each.made is not None
        ]

    def _edit(self, edit: Edit, made: str) -> None:
        """Do what somebody does in the dashboard with the webhook *made*, or with another one beside it."""
        hook, changed = self.hooks[made], made
        match edit.how:
            case "untag":
                hook["description"] = TAG.sub("", str(hook["description"])).rstrip()
            case "reword":
                hook["description"] = "edited by hand"
            case "copy elsewhere" | "copy beside":
                changed = f"wh_{800 + len(self.edited):026d}"
                url = (
                    f"{hook['url']}/copy"
                    if edit.how == "copy elsewhere"
                    else hook["url"]
                )
                at = time_of(self.stores.created_at, self.stamp())
                self.hooks[changed] = {
                    **hook,
                    "id": changed,
                    "url": url,
                    "created_at": at,
                }
            case "copy onto":
                others = [
                    other
                    for each in self.effects
                    if each.made not in (None, made)
                    and (other := self.hooks[each.made])["url"] == hook["url"]
                ]
                if not others:
                    return
                changed = others[-1]["id"]
                others[-1]["description"] = hook["description"]
        self.edited.append(Edited(self.loop.now, edit, changed))

    def _cut_time(self, thing: str) -> None:
        kind, _, name = thing[1:].partition("/")
        if kind == "journeys":
            self.journeys[name]["last_updated"] = time_of(
                self.stores.last_updated, self.stamp()
            )

    def listed(self, hooks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return webhooks as a list shows them: in worlds with edits, the newest first."""
        shown = [*reversed(hooks)] if self.edits else [*hooks]
        return listed_hooks(self.stores, shown, self._seeded, status=None)
