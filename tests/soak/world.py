"""
The world that a seed stands for: its faults, its rivals, and what the program does beside plain writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from invsvc_async.simulator import Faults, Stores
from invsvc_async.simulator.faults import Step, parse_step
from invsvc_async.simulator.own_words import WORDS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence


__all__ = ["WORLDS", "Weather", "World", "world_of"]

JOURNEYS = ("jrn_a", "jrn_b", "jrn_c")
HOOKS = ("wh_a", "wh_b", "wh_c")
HOSTS = ("one", "two", "three")
LETTER_BY_LETTER = Stores()


@attrs.frozen(kw_only=True)
class World:
    """One seed's settings; rates are parts of the writes or requests, times are s of the loop."""

    name: str
    writes_fail: float = 0.10
    reads_fail: float = 0.05
    cancelled: float = 0.03  # of the writes
    rival_every: float = 200.0  # s between acts of a rival, in the mean
    steps_every: float = 0.0  # s between steps of the service's clock; 0: none
    kills_every: float = 0.0  # s between kills; 0: none, and no journal
    attempt: float = 30.0  # s that an attempt is given
    at_once: int = 200
    beside: float = 0.0  # of the bare intents: resumed elsewhere while this program writes the same thing
    stores: Stores = LETTER_BY_LETTER
    # the values are such that a service may store them in other words
    awkward: bool = False
    calm: bool = True  # few writes are unknown
    lag: float = 0.0  # s that reads of one thing may be behind: with a late effect, less than a short window


WORLDS = (
    World(name="plain", cancelled=0.0),
    World(name="cancelled"),
    World(name="few at once", at_once=20, cancelled=0.05),
    World(name="short attempts", attempt=10.0),
    World(name="killed", kills_every=30.0, cancelled=0.02),
    World(name="crowd", at_once=400, cancelled=0.05),
    World(name="rivals", rival_every=40.0),
    World(name="stepping clock", steps_every=120.0, cancelled=0.02),
    World(name="beside", beside=0.5, cancelled=0.06),
    World(name="killed, short attempts", kills_every=20.0, attempt=10.0),
    World(name="reads that lag", cancelled=0.05, lag=0.19),
    World(name="awkward values", awkward=True),
    World(
        name="own words", awkward=True, calm=False, stores=Stores(words=WORDS, rate=0.5)
    ),
    World(
        name="one word",
        awkward=True,
        calm=False,
        stores=Stores(words=WORDS, rate=0.08),
        cancelled=0.05,
    ),
    World(
        name="own words, killed",
        awkward=True,
        calm=False,
        stores=Stores(words=WORDS),
        kills_every=30.0,
    ),
    World(
        name="masked",
        awkward=True,
        calm=False,
        stores=Stores(words=("masked",), echoes=True),
    ),
    World(name="in part", calm=False, stores=Stores(partly=0.2), rival_every=80.0),
    World(
        name="in part and own words",
        awkward=True,
        calm=False,
        stores=Stores(words=WORDS, rate=0.3, partly=0.1),
    ),
    World(
        name="lists in their own way",
        calm=False,
        stores=Stores(twice=0.3, hides_inactive=True),
    ),
    World(name="times cut", calm=False, stores=Stores(created_at="minute")),
    World(name="times at zero", calm=False, stores=Stores(created_at="zero")),
)


def world_of(seed: int) -> World:
    """Return the world of *seed*; as many seeds in a row as there are worlds go through all of them."""
    return WORLDS[seed % len(WORLDS)]


_BURST = 0.4  # how likely the next request of an operation fails after one that did
_SLOW = 0.02  # of the requests that do not fail: their answers come late
_LATEST = 14.0  # s after its arrival at which an effect lands: within the window, however the attempt ends
_LATEST_AFTER_500 = 1.8

Drawn = "Callable[[random.Random], str]"


def _phases(
    end: str, latest: float = _LATEST
) -> Sequence[Callable[[random.Random], str]]:
    """Return the same end without an effect, after it, and before it."""
    return (
        lambda _: end,
        lambda _: f"apply, then {end}",
        lambda chance: f"late {chance.random() ** 2 * latest + 0.001:.3f}, then {end}",
    )


_WRITE_ENDS: tuple[tuple[int, Sequence[Callable[[random.Random], str]]], ...] = (
    (3, _phases("500", _LATEST_AFTER_500)),
    (2, _phases("503")),
    (1, _phases("own 503")),
    (1, _phases("504")),
    (3, _phases("reset")),
    (2, _phases("close")),
    (1, _phases("truncate")),
    (1, _phases("garbage")),
    (1, _phases("half-head")),
    (1, _phases("hang")),
)
_READ_ENDS = (
    "500",
    "503",
    "reset",
    "close",
    "truncate",
    "garbage",
    "hang",
    "504",
    "html",
)


class Weather(Faults):
    """The faults of a world: each kind in its phases, and several in a row."""

    def __init__(self, world: World) -> None:
        super().__init__()
        set_ = object.__setattr__  # the plan is frozen
        set_(self, "world", world)
        set_(self, "bursts", set())
        set_(
            self,
            "ends",
            [phases for weight, phases in _WRITE_ENDS for _ in range(weight)],
        )

    def draw(
        self, chance: random.Random, operation: str, *, write: bool
    ) -> Step | None:
        """Decide what happens to one arrival."""
        rate = self.world.writes_fail if write else self.world.reads_fail
        first = rate * (1 - _BURST) / (1 - rate)
        if chance.random() >= (_BURST if operation in self.bursts else first):
            self.bursts.discard(operation)
            if self.world.lag and operation in ("journeys.get", "webhooks.get"):
                return parse_step(f"stale {chance.random() * self.world.lag:.3f}")
            if chance.random() < _SLOW:
                return parse_step(
                    f"slow {chance.random() ** 3 * (_LATEST if write else 4.0) + 0.01:.3f}"
                )
            return None
        self.bursts.add(operation)
        if write:
            return parse_step(chance.choice(chance.choice(self.ends))(chance))
        return parse_step(chance.choice(_READ_ENDS))
