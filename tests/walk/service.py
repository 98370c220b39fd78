"""The service of a walk: it may store in its own words or in part, as the embedded service does."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.simulator.stores import (
    Kept,
    Stores,
    kept_of_new,
    kept_of_update,
    listed_hooks,
    time_of,
)
from tests.interleavings.service import EFFECT, FATES, SHORT, Effect, Fate, Service

if TYPE_CHECKING:
    from collections.abc import Sequence

IN_PART = "500 in part"  # an update of several fields stores only some of them
LIMITED = "limited"  # with ``Retry-After``
RETRY_AFTER = 2  # s
FATES.setdefault(LIMITED, Fate(LIMITED, 429, None))
FATES.setdefault(IN_PART, Fate(IN_PART, 500, EFFECT, window=SHORT))


@attrs.define
class WalkService(Service):
    """The service, which *stores* in its own way, as the seed says."""

    stores: Stores = attrs.field(kw_only=True)
    seed: int = attrs.field(kw_only=True)
    # numbers of the sends that were stored in part
    in_part: set[int] = attrs.field(factory=set)

    def _seeded(self, text: str) -> Random:
        return Random(f"{self.seed}/{text}")

    def kept(self, field: str, text: str) -> str:
        """Return the *text* of a field as it is stored."""
        return str(self.stores.in_own_words(field, text, self._seeded))

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

    def _cut_time(self, thing: str) -> None:
        kind, _, name = thing[1:].partition("/")
        if kind == "journeys":
            self.journeys[name]["last_updated"] = time_of(
                self.stores.last_updated, self.stamp()
            )

    def listed(self, hooks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return webhooks as a list shows them."""
        return listed_hooks(self.stores, [*hooks], self._seeded, status=None)
