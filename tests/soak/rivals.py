"""
What goes on around the writes of a soak: rivals, steps of the service's clock, and room in the list of webhooks.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs

from tests.soak.world import HOOKS, JOURNEYS

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from invsvc_async.simulator import Simulator
    from tests.soak.records import Sibling
    from tests.support.virtual_time import JumpingLoop

__all__ = ["Surroundings"]

MOST_HOOKS = 45  # webhooks from which on those of writes that are over are removed: a full list tells nothing
KEPT_HOOKS = 25
# s after its last run: the absence of a webhook proves nothing any more
FORGOTTEN = 900.0
STEPS = (0.3, 1.0, 4.0, 3600.0)  # s


@attrs.define(eq=False)
class Surroundings:
    """The service, and who else acts on it; *by_key* are the writes of the soak."""

    service: Simulator
    loop: JumpingLoop
    chance: random.Random
    by_key: Mapping[str, Sibling]
    # ids of webhooks that the program has created, and heard of
    made: list[str] = attrs.field(factory=list)
    in_use: Counter[str] = attrs.field(factory=Counter)
    most_hooks: int = 0
    # keys, by the id of the webhook
    _creators: dict[str, str] = attrs.field(factory=dict)
    _seen: int = 0

    def rival(self) -> None:
        """Change something as another program would, to what none of this one's writes wants."""
        text = f"rival {self.chance.randrange(10**9)}"
        if self.chance.random() < 0.6:
            self.service.change_journey(self.chance.choice(JOURNEYS), name=text)
        else:
            self.service.change_webhook(self.chance.choice(HOOKS), description=text)

    def step(self) -> None:
        self.service.clock.offset += self.chance.choice((-1, 1)) * self.chance.choice(
            STEPS
        )

    def take(self, known_as: str) -> None:
        """Keep a webhook that is about to be deleted from other sequences."""
        with suppress(ValueError):
            self.made.remove(known_as)

    def tidy(self) -> None:
        """Remove webhooks of writes that are over, and forget the reads of the ledger."""
        self.service.ledger.reads.clear()
        hooks = self.service.book().webhooks.items
        self.most_hooks = max(self.most_hooks, len(hooks))
        if len(hooks) <= MOST_HOOKS:
            return
        self._learn_creators()
        for known_as in list(hooks)[:-KEPT_HOOKS]:
            if self._is_idle(known_as):
                self.service.remove_webhook(known_as)
        self.made[:] = [each for each in self.made if each in hooks]

    def _learn_creators(self) -> None:
        entries = self.service.ledger.entries
        for entry in entries[self._seen :]:
            if entry.operation == "webhooks.create" and entry.applied:
                assert entry.target is not None
                self._creators[entry.target] = (entry.sender or "").partition("@")[0]
        # a late effect sets its target when it lands
        self._seen = max(0, len(entries) - 1000)

    def _is_idle(self, known_as: str) -> bool:
        creator = self.by_key.get(self._creators.get(known_as, ""))
        if creator is None or known_as in HOOKS or self.in_use[known_as]:
            return False
        return creator.over or self.loop.time() - creator.runs[-1].began > FORGOTTEN
