"""
The facts that an intent and its history establish: what was sent, what was read, and what was there before.

They are ``Known``, which ``decide`` calls *known*.  What a single attempt proves is in ``attempts``.  Some of
its parts have a state of their own:

- ``clock``: the difference of the two clocks (``write_clock``);
- ``windows``: the sends that may have had an effect, and until when (``settle_windows``);
- ``state_before`` and ``strangers``: what was there before the first send (``before_send``).

What follows for other writes of this program is in ``turn``, what an intent stores of the facts in
``stored_intent``.

The *baseline* is the state before the first send. A state counts as current only from ``current_from``
on, because reads may lag behind writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from propcache.api import cached_property

from invsvc_async.reconcile.attempts import (
    AMBIGUOUS,
    WITHOUT_EFFECT,
    AttemptKind,
    kind_of,
    refusal_of,
)
from invsvc_async.reconcile.before_send import (
    StateBefore,
    StrangersBefore,
    readings_before_send,
    state_before,
    strangers_before,
)
from invsvc_async.reconcile.history import (
    Attempt,
    Closed,
    End,
    Reading,
    Resumed,
    Tick,
)
from invsvc_async.reconcile.kinds import WriteKind, kind_of_write
from invsvc_async.reconcile.safety import with_safety
from invsvc_async.reconcile.settle_windows import SettleWindows
from invsvc_async.reconcile.write_clock import WriteClock

if TYPE_CHECKING:
    from invsvc_async.api.operations import Operation
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.history import (
        ErrorFacts,
        Event,
        Finding,
        History,
        Partly,
    )
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.settings import ReconcilePolicy


def start_of(event: Event) -> float:
    """Return when *event* began, in local seconds."""
    if isinstance(event, (Tick, Resumed, Closed)):
        return event.at
    return event.started


def time_of(event: Event) -> float:
    """Return when *event* ended, in local seconds."""
    if isinstance(event, (Tick, Resumed, Closed)):
        return event.at
    return event.ended


@attrs.define(slots=False)
class Known:
    """The facts at the end of *history*.  Each is computed at first use, and cached."""

    operation: Operation
    intent: Intent
    history: History

    @cached_property
    def found(self) -> dict[int, Finding | Partly]:
        """What readings have shown, by their ``id``: ``findings.find`` compares a large state once."""
        return {}

    @cached_property
    def kind(self) -> WriteKind:
        """The kind of this write."""
        return kind_of_write(self.operation)

    @cached_property
    def policy(self) -> ReconcilePolicy:
        """The policy of verdicts: until this run has sent the write, the one of the runs before."""
        if self.has_own_sends:
            return self.own_policy
        return self.intent.policy

    @cached_property
    def own_policy(self) -> ReconcilePolicy:
        """The policy of verdicts once this run has sent the write."""
        if self.resumed is None or self.resumed.safety is None:
            return self.intent.policy
        return with_safety(self.intent.policy, self.resumed.safety)

    @property
    def has_own_sends(self) -> bool:
        """Whether this run has sent the write, perhaps with an effect."""
        return any(kind not in WITHOUT_EFFECT for kind in self.kinds)

    @cached_property
    def method(self) -> str:
        """The HTTP method of the write.  Only a write with POST does not replace what another write wrote."""
        return self.intent.path.get("method", self.operation.method)

    # --- the events

    @cached_property
    def now(self) -> float:
        """The time of the last event, local s."""
        return time_of(self.history[-1])

    @property
    def last(self) -> Event | None:
        """The last event; ``None`` before the first one."""
        if self.history:
            return self.history[-1]
        return None

    @property
    def last_reading(self) -> Reading | None:
        """The last event, if it is a reading."""
        if isinstance(self.last, Reading):
            return self.last
        return None

    @cached_property
    def resumed(self) -> Resumed | None:
        """The event with which another process took over this write, if any process did."""
        return next(
            (event for event in self.history if isinstance(event, Resumed)), None
        )

    @cached_property
    def attempts(self) -> list[Attempt]:
        """The attempts of this process."""
        return [event for event in self.history if isinstance(event, Attempt)]

    @cached_property
    def kinds(self) -> list[AttemptKind]:
        """What each of ``attempts`` proves."""
        return [kind_of(attempt) for attempt in self.attempts]

    @cached_property
    def readings(self) -> list[Reading]:
        """The readings since the last attempt, or since the write was resumed."""
        since: list[Reading] = []
        for event in reversed(self.history):
            if isinstance(event, (Attempt, Resumed)):
                break
            if isinstance(event, Reading):
                since.append(event)
        return since[::-1]

    # --- what was sent

    @cached_property
    def clock(self) -> WriteClock:
        """The service's clock, as far as the answers show it."""
        return WriteClock(
            self.intent,
            self.history,
            self.resumed is not None,
            self.policy.clock_slack,
        )

    @cached_property
    def windows(self) -> SettleWindows:
        """The sends that may have had an effect, and until when they may still have one."""
        return SettleWindows(
            intent=self.intent,
            policy=self.policy,
            own_policy=self.own_policy,
            method=self.method,
            attempts=self.attempts,
            kinds=self.kinds,
            resumed=self.resumed,
            clock=self.clock,
        )

    @cached_property
    def in_doubt(self) -> bool:
        """Whether any send was ambiguous."""
        if self._has_carried:
            return True
        return any(kind in AMBIGUOUS for kind in self.kinds)

    @property
    def _has_carried(self) -> bool:
        """Whether earlier processes have sent the write, perhaps with an effect."""
        # Only a resumed write has any.  That is asked first, because the windows cost more, and most writes
        # never need them.
        return self.resumed is not None and bool(self.windows.carried)

    @property
    def never_left(self) -> bool:
        """Whether no byte of an attempt of this process has left."""
        return all(attempt.end is End.NOT_SENT for attempt in self.attempts)

    @cached_property
    def unsent(self) -> int:
        """The number of attempts of this process of which no byte has left."""
        return sum(attempt.end is End.NOT_SENT for attempt in self.attempts)

    @cached_property
    def resends(self) -> int:
        """The number of re-sends after an ambiguous send.  Retries after a definite "no" do not count."""
        resends = 0
        in_doubt = self._has_carried
        for attempt, kind in zip(self.attempts, self.kinds, strict=True):
            if in_doubt and attempt.end is not End.NOT_SENT:
                resends += 1
            in_doubt = in_doubt or kind in AMBIGUOUS
        return resends

    @property
    def refusal(self) -> Attempt | ErrorFacts | None:
        """The refusal of the last send, if a send may have taken effect before it."""
        if self.attempts:
            return refusal_of(self.attempts[-1])
        if not self.intent.sent:
            return None
        last = self.intent.sent[-1].end
        return None if last is None else last.refusal

    @cached_property
    def deadline(self) -> float:
        """The local time by which a verdict is due.  It exists only in doubt."""
        if self.resumed is not None:
            return self.resumed.at + self.policy.deadline
        judged = zip(self.attempts, self.kinds, strict=True)
        first = next(attempt for attempt, kind in judged if kind in AMBIGUOUS)
        return first.ended + self.policy.deadline

    # --- what was there before

    @cached_property
    def strangers(self) -> StrangersBefore:
        """Of a create: the look-alikes that were there before it."""
        return strangers_before(
            self.intent, self.kind, self.history, is_carried=self._has_carried
        )

    @cached_property
    def state_before(self) -> StateBefore:
        """The last known state of the thing before the first send."""
        readings = [] if self._has_carried else readings_before_send(self.history)
        return state_before(self.intent, self.kind, readings, self.clock)

    @cached_property
    def baseline(self) -> Wire:
        """The state before the first send, in wire form, if it can be compared; else ``None``."""
        before = self.state_before.state or None
        hides = self.kind.thing.hides
        if before is None:
            return None
        if hides is None:
            return before
        # Such a state hides what is written, as a published journey hides its draft.
        return None if hides(self.policy, before) else before

    @property
    def was_gone(self) -> bool:
        """
        Whether the resource is known to have been absent before the first send.

        A read that may lag does not show it: the resource may have been made a moment before, and others may
        have seen it already.
        """
        before = self.state_before.state
        is_absent = isinstance(before, dict) and not before
        if not is_absent:
            return False
        return self.policy.reads_lag == 0

    @cached_property
    def current_from(self) -> float:
        """
        The local time from which a read that starts shows no state older than the baseline.

        Without a baseline, or if it is not known when it was seen: no state older than the first send.  The
        history must have a send.  After the settle windows every read counts, also where the policy lets
        reads lag for longer.
        """
        seen = self.windows.sends[0].began
        at = self.state_before.seen_at
        bounds = self.clock.bounds
        if self.baseline is not None and at is not None and bounds is not None:
            seen = min(seen, self.clock.local_time(at, bounds))
        return min(seen + self.policy.reads_lag, self.windows.over)
