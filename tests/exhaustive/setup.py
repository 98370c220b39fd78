"""
Describe one small world to be walked whole, and where a walk stands in it; never move it on.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import attrs

from invsvc_async.reconcile.evidence import Bounds, Done, History, Resumed
from invsvc_async.reconcile.intent import Intent, Scope
from invsvc_async.settings import ReconcilePolicy, Timeouts
from tests.exhaustive.answers import OK, Ending, Miss
from tests.exhaustive.models import Listing
from tests.exhaustive.world import SERVER, Model, Thing, World

NEVER = float("inf")
START = 100.0  # when the first run begins
NARROW, WIDE = (-0.125, 0.125), (-3.0, 3.0)


@attrs.frozen
class Crash:
    """How a killed process's write is taken up: by which call, how much later, and with what kept."""

    mode: Literal["settle", "resume"] = "settle"
    delay: float = 0.5  # s from the kill
    journaled: bool = True
    gone: bool = True  # the sender is provably dead; else its request may still leave until its timeout
    kept: Literal["all", "start", "nothing"] = (
        "all"  # of the sends: with their ends, without, or an intent from before
    )


@attrs.frozen(kw_only=True)
class SetUp:
    """One small world.  Budgets say how often something may happen in one history."""

    name: str
    model: Model
    thing: Thing
    first: tuple[Ending, ...]  # how the first attempt of a run may end
    again: tuple[Ending, ...] = (OK,)
    bounds: tuple[float, float] | None = (
        NARROW  # what the SDK knows of the clocks' difference, around the truth
    )
    baseline: bool = True  # the caller passed the thing as last known
    stamped: bool = True  # answers carry a time
    misses: tuple[Miss, ...] = ()
    fails: int = 0
    acts: tuple[str, ...] = ()
    acting: int = 0
    crashes: tuple[Crash, ...] = ()
    kills: int = 1  # how often, where there are crashes
    afterwards: tuple[Crash, ...] = ()  # settled once more after the verdict
    policy: ReconcilePolicy = attrs.field(factory=ReconcilePolicy)
    timeouts: Timeouts = attrs.field(factory=Timeouts)
    took: float = 0.25  # s that a read takes
    fresh: bool = False  # a read may also show the state at its end
    crowd: bool = False  # the team has 100 webhooks: the list may leave any out
    reader: str | None = None  # the caller's own
    dawdle: float = 0.0  # s that may pass between a decision to send and the send
    runs: int = 1
    tolerant: bool = False  # of a second effect, so that its being told can be judged
    in_turn: bool = True  # creates of one URL run one at a time
    margin: float = (
        1.5  # s after the windows until the next one's turn: two slacks, and a band that is just narrow
    )
    shared: bool = True  # the runs belong to one client and see each other's claims
    own_claims: bool = False  # a claim of one's own counts as another's (a mistake)
    late: float = 0.0  # s that a commit may land after the window
    lag: float = 0.0  # s that a read is behind
    nap: float = 0.0  # s that the machine sleeps during an attempt, its clock standing still
    jump: float = -512.0  # s that the clock of a process is ahead of the clock of the one before
    drift: float = 0.0  # s that the hosts which answer are ahead of the service's other clocks
    calm: bool = False  # nothing stands in the way: no UNKNOWN

    def intent(self, run: int) -> Intent:
        """Make the intent of *run*, before its first send."""
        model, known = self.model, self.bounds
        creates = isinstance(model, Listing)
        return Intent(
            key=f"key-{run}", operation=model.operation, path=model.path,
            body=model.body_of(run) if isinstance(model, Listing) else model.body,
            scope=Scope(base_url="https://host.example/v2"), policy=self.policy, timeouts=self.timeouts,
            tag=model.marks[run] if isinstance(model, Listing) and model.tagged else None, reader=self.reader,
            baseline=model.show(self.thing) if self.baseline and not creates and self.reader is None else None,
            bounds=None if known is None else Bounds(low=SERVER + known[0], high=SERVER + known[1]),
        )  # fmt: skip

    def root(self) -> Node:
        """Give the place where every history of this world begins."""
        world = World(self.thing, START - 10, acts=self.acting)
        runs = tuple(
            Run(
                number,
                START if number == 0 or not self.in_turn else NEVER,
                self.intent(number),
                (),
            )
            for number in range(self.runs)
        )
        seen = repr(([run.intent for run in runs], self.thing, self.stamped, self.drift)).encode()
        return Node(world, runs, self.fails, int.from_bytes(blake2b(seen, digest_size=7).digest(), "big"))


class Run(NamedTuple):
    """One write on its way.  Local time is the true time less ``shift``."""

    number: int
    now: float
    intent: Intent  # as this process took it up
    history: History
    shift: float = 0.0
    mode: Literal["live", "settle", "resume"] = "live"
    sends: int = 0
    resends: int = 0
    doubt: bool = False  # a send of it had no trustworthy answer
    over: float = 0.0  # when the windows of those are over
    first: float | None = None  # when the first send began
    since: float | None = None  # from when its deadline counts
    absent: bool = False  # the last event is a good read, after the windows, of a state without our effect
    shown: bool = False  # a read showed the state as wanted, or the service said so
    read_late: bool = False  # a good read was started after the windows
    told: bool = False  # the service itself said that it was done
    echo: bool = False  # a later send was answered with 404 or 409, and no good read has followed
    spared: bool = False  # a kill right here was walked already
    steps: int = 0
    live: Done | None = None  # the verdict before it was settled once more
    done: Done | None = None

    def local(self) -> float:
        """Give the time on this process's clock."""
        return self.now - self.shift


class Node(NamedTuple):
    """A place in the walk: the world, the runs in it, and what may still go wrong."""

    world: World
    runs: tuple[Run, ...]
    fails: int
    sign: int  # stands for the whole history so far
    kills: int = 0  # how often a process was killed
    claims: tuple[tuple[str, int], ...] = ()  # (id of a webhook, its run)

    def with_run(self, run: Run, **changes: Any) -> Node:
        """Put *run* in its place."""
        runs = (*self.runs[: run.number], run, *self.runs[run.number + 1 :])
        return self._replace(runs=runs, **changes)

    def effects(self, run: int) -> list[int]:
        """List what *run* has made or changed."""
        return [number for by, number in self.world.effects if by == run]

    def pending(self, run: int) -> bool:
        """Tell whether a request of *run* may still land."""
        return any(one.run == run for one in self.world.pending)


def resumed(crash: Crash, at: float) -> Resumed:
    """Begin the history of a process that takes a write up."""
    return Resumed(at=at, journaled=crash.journaled, sender_gone=crash.gone)
