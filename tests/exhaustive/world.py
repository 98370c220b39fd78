"""
The service and everybody else, in virtual time.

Times are seconds of one true clock.  The service's clock shows them plus ``SERVER``.  What the SDK cannot see is left
open: a request in doubt lands at some moment between two observations, and every telling choice is a world of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

# START, and what is soon after it, is neither on a whole minute nor in the first one of a quarter of an hour.
SERVER = 1_700_000_077.0
EPSILON = 1e-6
PART = 2  # the id of an update's effect of which only a part was stored
OTHER = -1  # who did it, where it was not one of our runs

Thing = Any  # a tuple of numbers, its shape is the model's
Step = tuple[float, float]  # when the service's clock steps, and by how much
NO_STEP: Step = (float("inf"), 0.0)


class Pending(NamedTuple):
    """A request of ours that may still take effect, at a moment from *earliest* to *latest*."""

    run: int
    earliest: float
    latest: float


class World(NamedTuple):
    """One true state of affairs."""

    thing: Thing
    clock: float  # up to here it is decided what happened
    pending: tuple[Pending, ...] = ()
    effects: tuple[tuple[int, int], ...] = ()  # (run, id of the thing)
    acts: int = 0  # how often somebody else may still act
    touched: int = 0  # how often somebody else has changed what the writes are about
    # (until when it was so, the thing); None: not kept
    past: tuple[tuple[float, Thing], ...] | None = None

    def changed(self, thing: Thing, at: float, **others: Any) -> World:
        """Return the world after *thing* has become so at *at*."""
        past = self.past if self.past is None else (*self.past, (at, self.thing))
        return self._replace(thing=thing, past=past, **others)


class Model(Protocol):
    """What one write does to the thing it is about, what others do to it, and what a read shows of it."""

    operation: str
    path: dict[str, str]
    timed: bool  # whether the moment of a change can be seen later
    step: Step  # of the clock that dates changes and answers

    def operation_of(self, run: int) -> str:
        """Name the operation of *run*."""

    def body_of(self, run: int) -> Any:
        """Return the body of *run*."""

    def land(self, thing: Thing, at: float, run: int) -> list[tuple[Thing, int]]:
        """
        Apply the write, in each way in which the service may store it: the new thing and its id.

        Nothing where nothing is there to change.  The id ``PART`` stands for a write of which only a part is stored.
        """

    def act(self, act: str, thing: Thing, at: float) -> tuple[Thing, bool] | None:
        """Change the thing as somebody else; return it, and whether that touches what the write is about."""

    def show(self, thing: Thing) -> Any:
        """Return the wire form that a read shows, or ``None`` for a thing that is not there."""

    def answer(self, thing: Thing, number: int) -> Any:
        """Return the payload of the answer to the write that made or changed thing *number*."""

    def wanted(self, thing: Thing, run: int) -> bool:
        """Return whether *thing* is as the write would leave it."""


def evolve(
    world: World, until: float, model: Model, acts: tuple[str, ...]
) -> list[World]:
    """Return every way in which *world* may have gone on up to *until*."""
    ways: list[World] = []
    _evolve(world, until, model, acts, ways)
    return list(dict.fromkeys(ways)) if len(ways) > 1 else ways


def _evolve(
    world: World, until: float, model: Model, acts: tuple[str, ...], ways: list[World]
) -> None:
    ways.append(_quiet(world, until))
    for place, pending in enumerate(world.pending):
        rest = world.pending[:place] + world.pending[place + 1 :]
        for at in _moments(
            max(world.clock, pending.earliest), min(until, pending.latest), model
        ):
            for after in landed(world._replace(pending=rest), at, pending.run, model):
                _evolve(after, until, model, acts, ways)
    if world.acts:
        for at in _moments(world.clock, until, model):
            for act in acts:
                changed = model.act(act, world.thing, at)
                if changed is not None:
                    _evolve(_acted(world, at, *changed), until, model, acts, ways)


def _quiet(world: World, until: float) -> World:
    still = world.pending and tuple(
        one for one in world.pending if one.latest > until + EPSILON
    )
    return world._replace(clock=max(until, world.clock), pending=still)


def _acted(world: World, at: float, thing: Thing, touches: bool) -> World:
    return world.changed(
        thing, at, clock=at, acts=world.acts - 1, touched=world.touched + touches
    )


def _moments(low: float, high: float, model: Model) -> tuple[float, ...]:
    """Return the moments that matter from *low* to *high*: the ends, where the moment leaves a trace."""
    if low > high + EPSILON:
        return ()
    return (low, high) if model.timed and high > low + EPSILON else (high,)


def landed(world: World, at: float, run: int, model: Model) -> list[World]:
    """Apply the effect of the write of *run* at *at*; return each world that may follow, or none."""
    clock = max(at, world.clock)
    return [
        world.changed(thing, at, clock=clock, effects=(*world.effects, (run, number)))
        for thing, number in model.land(world.thing, at, run)
    ]


def stamp(at: float, jitter: float = 0.0) -> int:
    """Return the service's clock at *at*, in whole milliseconds."""
    return int((at + SERVER + jitter) * 1000)


def dated(at: float, step: Step) -> float:
    """Return the time that the service's clock shows at *at*, as a true time without the step would be."""
    return at + step[1] if at >= step[0] else at
