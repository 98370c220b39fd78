"""The service of a walk: it may store in its own words or in part, as the embedded service does."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.simulator.stores import Stores, kept_of_new, kept_of_update, listed_hooks, time_of
from tests.interleavings.service import EFFECT, FATES, SHORT, Effect, Fate, Service

if TYPE_CHECKING:
    from collections.abc import Sequence

IN_PART = "500 in part"  # an update of several fields stores only some of them
FATES.setdefault(IN_PART, Fate(IN_PART, 500, EFFECT, window=SHORT))
RICH = (
    " A\u0308rger &amp; <b>co</b> \U0001f600 x\u200by abcd1234efgh5678 "  # what services store in other words
)


@attrs.define
class WalkService(Service):
    """The service, which *stores* in its own way, as the seed says."""

    stores: Stores = attrs.field(kw_only=True)
    seed: int = attrs.field(kw_only=True)
    in_part: set[int] = attrs.field(factory=set)  # numbers of the sends that were stored in part

    def _seeded(self, text: str) -> Random:
        return Random(f"{self.seed}/{text}")

    def land(self, number: int) -> None:
        """Apply the effect of a send; only a part of it, if that is its fate."""
        sent = self.sends[number]
        if sent.fate.name != IN_PART or sent.method != "PUT" or self.state(sent.thing) is None:
            super().land(number)
            return
        chance = self._seeded(f"{sent.writer}/{number}")
        kept = kept_of_update(replace(self.stores, partly=1.0), sent.body, self._seeded, chance)
        self._store(sent.thing, kept.stored)
        if kept.in_part:
            self.in_part.add(number)
        self.effects.append(Effect(self.loop.now, sent.writer, sent.thing, number))

    def _create(self, body: dict[str, Any]) -> str:
        kept = kept_of_new(self.stores, {"status": "active", "description": None, **body}, self._seeded)
        made = super()._create(kept.stored)
        self.hooks[made]["created_at"] = time_of(self.stores.created_at, self.stamp())
        return made

    def _change(self, thing: str, changes: dict[str, Any] | None) -> None:
        if changes is None:
            super()._change(thing, None)
            return
        whole = replace(self.stores, partly=0.0)
        self._store(thing, kept_of_update(whole, changes, self._seeded, Random(0)).stored)

    def _store(self, thing: str, stored: dict[str, Any]) -> None:
        super()._change(thing, stored)
        kind, _, name = thing[1:].partition("/")
        if kind == "journeys":
            self.journeys[name]["last_updated"] = time_of(self.stores.last_updated, self.stamp())

    def listed(self, hooks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return webhooks as a list shows them."""
        return listed_hooks(self.stores, [*hooks], self._seeded, status=None)
