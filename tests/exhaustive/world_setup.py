"""
Describe one small world to be walked whole, and a place in its walk.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import attrs

from invsvc_async import ApiKey, Client
from invsvc_async.client import options_of
from invsvc_async.reconcile.history import Bounds, Done, Event, History
from invsvc_async.reconcile.intent import Intent, Scope
from invsvc_async.settings import ReconcilePolicy, Timeouts
from invsvc_async.writes.line_names import line_of
from invsvc_async.writes.new_intent import request_of
from tests.exhaustive.answers import OK, Ending, Miss
from tests.exhaustive.models import Journey, Listing, Team
from tests.exhaustive.world import PART, SERVER, Model, Thing, World

NEVER = float("inf")
NOBODY = -1
START = 100.0  # when the first run begins
BEFORE = 0.0037  # when a thing was last changed before: not on a whole second, where times may be cut
# of a client that sends nothing
CORE = options_of(Client("http://127.0.0.1:1/v2", ApiKey("key-of-a-client"))).core
NARROW, WIDE = (-0.125, 0.125), (-3.0, 3.0)


@attrs.frozen
class Crash:
    """
    How a write whose run ended early is taken up: by which call, how much later, by whom, and with what kept.

    ``client``: the same one (the run was cancelled), another one (it was cancelled, and its intent handed on), or one
    of the next process (it was killed).  ``turn``: before the writes of the same line that wait, or after them.
    """

    mode: Literal["settle", "resume"] = "settle"
    delay: float = 0.5  # s from the kill
    journaled: bool = True
    gone: bool = True  # the sender is provably dead; else its request may still leave until its timeout
    # of the sends: with their ends, without, the first one alone (an older copy), or an intent from before
    kept: Literal["all", "start", "copy", "nothing"] = "all"
    client: Literal["same", "other", "next"] = "next"
    turn: Literal["first", "last"] = "first"

    def sign(self) -> tuple[int | float, ...]:
        """Return what distinguishes two of them, the same in every process."""
        who = ("same", "other", "next").index(self.client)
        return (
            self.delay,
            self.mode == "settle",
            self.journaled,
            self.gone,
            len(self.kept),
            who,
            self.turn == "last",
        )


@attrs.frozen(kw_only=True)
class SetUp:
    """One small world.  Budgets say how often something may happen in one history."""

    name: str
    model: Model
    thing: Thing
    first: tuple[Ending, ...]  # how the first attempt of a run may end
    again: tuple[Ending, ...] = (OK,)
    # the first attempt of a later run; None: as that of the first
    later: tuple[Ending, ...] | None = None
    # what the SDK knows of the clocks' difference, around the truth
    bounds: tuple[float, float] | None = NARROW
    baseline: bool = True  # the caller passed the thing as last known
    seen: float = 10.0  # s before the first run in which that was seen
    # what reads that lag may show, and until when it was so
    earlier: tuple[tuple[float, Thing], ...] = ()
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
    # The list may leave any webhook out, and shows that by its count, by its flag (has_more), or by both.
    crowd: Literal["both", "count", "flag"] | None = None
    reader: str | None = None  # the caller's own
    # s from a send that has no answer yet, at one of which a read may be made beside it
    beside: tuple[float, ...] = ()
    overslept: float = 0.0  # s that each wait takes longer than was asked for
    dawdle: float = 0.0  # s that may pass between a decision to send and the send
    runs: int = 1
    tolerant: bool = False  # of a second effect, so that its being told can be judged
    in_turn: bool = True  # creates of one URL run one at a time
    gap: bool = True  # the next one waits for more than the windows
    shared: bool = True  # the runs belong to one client and see each other's claims
    # s between the beginnings of runs that do not wait for each other
    apart: float = 0.0
    between: bool = False  # others act only between the end of one run and the first send of the next
    # s after the first run's end, a new process makes the others
    reopened: float | None = None
    # of the clocks' difference: other answers have told the new process
    aware: bool = False
    own_claims: bool = False  # a claim of one's own counts as another's (a mistake)
    late: float = 0.0  # s that a commit may land after the window
    lag: float = 0.0  # s that a read is behind
    # s that a read may be behind, but for one after the settle windows
    stale: float = 0.0
    # s that the machine sleeps during an attempt, its clock standing still
    nap: float = 0.0
    # s that the clock of a process is ahead of the clock of the one before
    jump: float = -512.0
    # s that the hosts which answer are ahead of the service's other clocks
    drift: float = 0.0
    # Nothing stands in the way, so no UNKNOWN; or in the way of those that are awaited.
    calm: bool | Literal["awaited"] = False
    first_bounds: tuple[float, float] | None = None  # of the first run alone
    passed: bool = False  # the caller passes the thing as it was at the beginning to the later runs too
    forgetful: bool = False  # the client has forgotten the ids that its answers gave
    closing: bool = False  # the client may be closed
    lenient: bool = False  # of commits after the window that no read has shown

    def intent(self, run: int) -> Intent:
        """Make the intent of *run*, before its first send; what the client knew is that of the first run."""
        model, known = self.model, self.first_bounds or self.bounds
        creates = isinstance(model, Listing)
        team = model.form(run).team if isinstance(model, Listing) else None
        return Intent(
            key=f"key-{run}", operation=model.operation_of(run), path=model.path, body=model.body_of(run),
            scope=Scope(base_url="https://host.example/v2", team=team), policy=self.policy, timeouts=self.timeouts,
            tag=model.form(run).tag if isinstance(model, Listing) else None, reader=self.reader,
            baseline=None if creates else self._baseline(),
            baseline_at=START + SERVER - self.seen if self.baseline and self.stamped else None,
            bounds=None if known is None else Bounds(low=SERVER + known[0], high=SERVER + known[1]),
        )  # fmt: skip

    def _baseline(self) -> Any:
        """Return what was known of the thing; ``None``: nothing."""
        if not self.baseline or self.reader is not None:
            return None
        if isinstance(self.model, Journey):
            return self.model.stored_state(self.thing)
        return self.model.show(self.thing)

    def root(self) -> Node:
        """Return the place where every history of this world begins."""
        world = World(
            self.thing,
            START - 10,
            acts=self.acting,
            past=self.earlier if self.stale else None,
        )
        runs: list[Run] = []
        for number in range(self.runs):
            intent = self.intent(number)
            line = line_of(CORE, request_of(intent), intent.tag) or f"key {intent.key}"
            before = [run.number for run in runs if run.line == line and self.in_turn]
            now = NEVER if before else START + number * self.apart
            client = 0 if self.shared else number
            after = before[-1] if before else NOBODY
            runs.append(
                Run(number, now, intent, (), line=line, after=after, client=client)
            )
        seen = repr(
            ([run.intent for run in runs], self.thing, self.stamped, self.drift)
        ).encode()
        sign = int.from_bytes(blake2b(seen, digest_size=7).digest(), "big")
        return Node(world, tuple(runs), self.fails, sign)


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
    partly: bool = False  # the last event is a good read, after the windows, of a state with a part of it
    shown: bool = False  # a read showed the state as wanted, or the service said so
    read_late: bool = False  # a good read was started after the windows
    told: bool = False  # the service itself said that it was done
    echo: bool = False  # a later send was answered with 404 or 409, and no good read has followed
    saw: Any = None  # what the fields that were sent held at its last good read after the windows
    left: Any = None  # the same, as the process before saw it
    spared: bool = False  # a kill right here was walked already
    steps: int = 0
    live: Done | None = None  # the verdict before it was settled once more
    done: Done | None = None
    line: str = ""
    client: int = 0
    after: int = NOBODY  # the run whose end it waits for
    taken: Crash | None = None  # how it is taken up, once that is over
    # as its client, or the journal, keeps what it has left open
    kept: Intent | None = None
    closes: float = -NEVER  # until when it keeps its line closed
    touched: int = 0  # how often others had changed the thing before the first send
    visible: bool = False  # the last good read showed its effect
    closed: bool = False  # the client was closed
    # from when on its sender was known to be dead, as the next process has it
    gone_since: float | None = None

    def local(self) -> float:
        """Return the time on this process's clock."""
        return self.now - self.shift


class Node(NamedTuple):
    """A place in the walk: the world, the runs in it, and what may still go wrong."""

    world: World
    runs: tuple[Run, ...]
    fails: int
    sign: int  # stands for the whole history so far
    kills: int = 0  # how often a process was killed
    # (id of a webhook, its run, by an answer, client)
    claims: tuple[tuple[str, int, bool, int], ...] = ()
    client: int = 0  # the one that goes on
    shift: float = 0.0  # of its clock
    # when it was, where a process before it had made writes
    opened: float | None = None
    # what its runs heard; None: the run was left open
    heard: tuple[tuple[int, Event | None], ...] = ()

    def hearing(
        self, run: Run, event: Event | None
    ) -> tuple[tuple[int, Event | None], ...]:
        """Return what the client has seen, with *event* of *run*."""
        if len(self.runs) == 1 or run.client != self.client:
            return self.heard
        return (*self.heard, (run.number, event))

    def with_run(self, run: Run, **changes: Any) -> Node:
        """Store *run* in its place."""
        runs = (*self.runs[: run.number], run, *self.runs[run.number + 1 :])
        return self._replace(runs=runs, **changes)

    def effects(self, run: int) -> list[int]:
        """List what *run* has made or changed, by ids; of an update, an id says whether it was stored whole."""
        return [number for by, number in self.world.effects if by == run]

    def whole_effects(self, setup: SetUp, run: int) -> list[int]:
        """List what *run* has made or changed, without those effects of which only a part was stored."""
        makes = isinstance(setup.model, Listing | Team)
        return [number for number in self.effects(run) if makes or number != PART]

    def touched(self, setup: SetUp, run: int) -> int:
        """Return how often anybody but the client of *run* has changed what the writes are about."""
        if setup.shared:
            return self.world.touched
        return self.world.touched + sum(by != run for by, _ in self.world.effects)

    def pending(self, run: int) -> bool:
        """Return whether a request of *run* may still take effect."""
        return any(one.run == run for one in self.world.pending)
