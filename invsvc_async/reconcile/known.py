"""
Gather what an intent and its history establish: sends, windows, clock bounds, baseline; pure, never a
verdict.
"""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import attrs
from propcache.api import cached_property

from invsvc_async.reconcile.clock import agree, bounds_of
from invsvc_async.reconcile.evidence import Attempt, Bounds, End, Reading, Resumed, Tick, Wire
from invsvc_async.reconcile.same import normal_url

if TYPE_CHECKING:
    from invsvc_async.operations import Operation
    from invsvc_async.reconcile.evidence import Event, History
    from invsvc_async.reconcile.intent import Intent, Sent
    from invsvc_async.settings import ReconcilePolicy

_NO_TIME = 10**15  # ms: 30,000 years
AttemptKind = Literal["applied", "not applied", "echo", "short", "long"]


def kind_of(attempt: Attempt) -> AttemptKind:
    """
    Sort one attempt: a definite yes or no, or ambiguous with a short or a long settle window.

    An "echo" is a 404 or 409: a definite no, but on a re-send perhaps the answer to our own first send.
    """
    status = attempt.status
    if attempt.end is End.NOT_SENT:
        return "not applied"
    if attempt.end is End.ANSWERED and status is not None:
        if 200 <= status < 300:
            return "applied" if attempt.readable else "long"
        if status in (404, 409):
            return "echo"
        if 400 <= status < 500 and status != 408:
            return "not applied"
        if status == 500 and attempt.own_envelope:
            return "short"
    return "long"


def time_of(event: Event) -> float:
    """Tell when *event* was over, in local seconds."""
    return event.at if isinstance(event, (Tick, Resumed)) else event.ended


@attrs.frozen(kw_only=True)
class Sending:
    """One send that may have had an effect.  Server times in s; ``None`` where no bounds are known."""

    kind: AttemptKind
    earliest: float | None  # start
    latest: float | None
    ended_by: float | None
    window: float  # s after its end in which it may still land
    over: float  # local time from which on a read that starts is after the window


@attrs.define(slots=False)
class Known:
    """What is established at the end of *history*; every part is worked out once, on first use."""

    operation: Operation
    intent: Intent
    history: History

    @property
    def policy(self) -> ReconcilePolicy:
        """The rules of this write."""
        return self.intent.policy

    @property
    def now(self) -> float:
        """The time of the last event, local s."""
        return time_of(self.history[-1])

    @cached_property
    def resumed(self) -> Resumed | None:
        """Whether another process had this write before."""
        return next((event for event in self.history if isinstance(event, Resumed)), None)

    @cached_property
    def attempts(self) -> list[Attempt]:
        """The attempts of this process."""
        return [event for event in self.history if isinstance(event, Attempt)]

    @cached_property
    def bounds(self) -> Bounds | None:
        """Clock bounds from all answers of this process, those before the first send included."""
        known = [
            bounds_of(event.stamp, event.started, event.ended)
            for event in self.history
            if isinstance(event, (Attempt, Reading)) and event.stamp is not None
        ]
        if self.intent.bounds is not None and self.resumed is None:
            known.append(self.intent.bounds)
        return agree(known, self.policy.clock_slack)

    def window_of(self, kind: AttemptKind) -> float:
        """Tell how long after such an end the write may still land, s."""
        if kind == "short":
            return self.policy.settle_after_error
        return self.policy.settle_after_loss if kind == "long" else 0.0

    @cached_property
    def carried(self) -> list[Sending]:
        """The sends of earlier processes that may have had an effect."""
        if self.resumed is None:
            return []
        return [self._carried(sent, self.resumed) for sent in self._stored_sends() if not _no_effect(sent)]

    def _stored_sends(self) -> tuple[Sent, ...]:
        """Count an intent that proves nothing as sent once, at a time unknown."""
        assert self.resumed is not None
        if self.intent.sent or self.resumed.journaled:
            return self.intent.sent
        from invsvc_async.reconcile.intent import Sent

        return (Sent(attempt_timeout=self.intent.timeouts.attempt),)

    def _carried(self, sent: Sent, resumed: Resumed) -> Sending:
        kind: AttemptKind = sent.end.kind if sent.end else "long"
        window = self.window_of(kind)
        running = 0.0 if sent.end or resumed.sender_gone else sent.attempt_timeout
        over_by_wait = resumed.at + running + window
        ended_by = sent.latest + sent.attempt_timeout if sent.latest is not None else None
        if sent.end and sent.end.latest is not None:
            ended_by = sent.end.latest
        over = over_by_wait
        if self.bounds is not None and ended_by is not None:  # or by the service's clock, if that is sooner
            over = min(over, ended_by + window + self.policy.clock_slack - self.bounds.low)
        if ended_by is None and self.bounds is not None:
            ended_by = resumed.at + running + self.bounds.high
        return Sending(
            kind=kind, earliest=sent.earliest, latest=sent.latest, ended_by=ended_by, window=window, over=over
        )

    @cached_property
    def sends(self) -> list[Sending]:
        """Every send that may have had an effect, first to last."""
        found = list(self.carried)
        for attempt in self.attempts:
            kind = kind_of(attempt)
            if kind not in ("not applied", "echo"):
                found.append(self._sending(attempt, kind))
        return found

    def _sending(self, attempt: Attempt, kind: AttemptKind) -> Sending:
        low, high = (self.bounds.low, self.bounds.high) if self.bounds else (None, None)
        window = self.window_of(kind)
        return Sending(
            kind=kind,
            earliest=None if low is None else attempt.started + low,
            latest=None if high is None else attempt.started + high,
            ended_by=None if high is None else attempt.ended + high,
            window=window,
            over=attempt.ended + window,
        )

    @cached_property
    def strangers(self) -> frozenset[str]:
        """Webhooks of our URL that a list showed right before a send: what it was sent on says not ours."""
        shown = set(self.intent.strangers)
        for before, after in pairwise(self.history):
            if isinstance(before, Reading) and isinstance(after, Attempt):
                shown |= self.shown_by(before)
        return frozenset(shown)

    def shown_by(self, reading: Reading) -> set[str]:
        """Tell the ids of the webhooks of our URL in a list."""
        if self.operation.finder != "created_webhook" or not isinstance(reading.seen, list):
            return set()
        url = normal_url(self.intent.body["url"])
        hooks = (item for item in reading.seen if isinstance(item, dict) and isinstance(item.get("id"), str))
        return {hook["id"] for hook in hooks if normal_url(str(hook.get("url"))) == url}

    @cached_property
    def in_doubt(self) -> bool:
        """Whether any send had no trustworthy answer."""
        return bool(self.carried) or any(kind_of(attempt) in ("short", "long") for attempt in self.attempts)

    @cached_property
    def resends(self) -> int:
        """How many requests were sent again after one in doubt: a definite no before it is no doubt."""
        resends, in_doubt = 0, bool(self.carried)
        for attempt in self.attempts:
            resends += in_doubt and attempt.end is not End.NOT_SENT
            in_doubt = in_doubt or kind_of(attempt) in ("short", "long")
        return resends

    @cached_property
    def over(self) -> float:
        """The local time from which on a read that starts is after all windows."""
        return max((send.over for send in self.sends), default=float("-inf"))

    @cached_property
    def deadline(self) -> float:
        """The local time by which a verdict is due."""
        if self.resumed is not None:
            return self.resumed.at + self.policy.deadline
        first = next(each for each in self.attempts if kind_of(each) in ("short", "long"))
        return first.ended + self.policy.deadline

    @cached_property
    def readings(self) -> list[Reading]:
        """The looks at the state since the last attempt, or since the write was taken up."""
        since: list[Reading] = []
        for event in reversed(self.history):
            if isinstance(event, (Attempt, Resumed)):
                break
            if isinstance(event, Reading):
                since.append(event)
        return since[::-1]

    @cached_property
    def baseline(self) -> Wire:
        """The last state known from before the first send, wire form; ``None`` where there is none."""
        before: Wire = self.intent.baseline
        if self.carried:
            return self._usable(before)
        for event in self.history:
            if isinstance(event, Attempt):
                break
            if isinstance(event, Reading) and event.status == 200 and isinstance(event.seen, dict):
                before = event.seen
        return self._usable(before)

    def _usable(self, state: Wire) -> Wire:
        """Take no journey for a baseline that may be a published snapshot."""
        published = (
            self.operation.finder == "journey"
            and isinstance(state, dict)
            and state.get("status") != "draft"
            and not self.policy.journey_reads_show_drafts
        )
        return None if published else state

    def when(self, milliseconds: Wire) -> Literal["before", "after", "band", "unsure"]:
        """Place a server time (ms) against the start of the first send, as surely as the clocks allow."""
        first = self.sends[0]
        if not is_time(milliseconds) or first.earliest is None or first.latest is None:
            return "unsure"
        slack = self.policy.clock_slack
        low, high = first.earliest - slack, first.latest + slack
        at = float(milliseconds) / 1000
        if at < low:
            return "before"
        if at > high:
            return "after"
        return "band" if high - low <= self.policy.clock_band else "unsure"

    def decayed(self, reading: Reading) -> bool:
        """
        Tell whether the first send is too long ago (or its time unknown) for an absence to prove anything.
        """
        if not self.carried:
            return reading.ended - self.attempts[0].started > self.policy.absence_within
        first = self.carried[0].earliest
        if first is None or self.bounds is None:
            return True
        return reading.ended + self.bounds.high - first > self.policy.absence_within


def _no_effect(sent: Sent) -> bool:
    return sent.end is not None and sent.end.kind == "not applied"


def is_time(value: Wire) -> bool:
    """Tell whether *value* can be a time in ms; one of hundreds of digits, which no float holds, is none."""
    return (
        isinstance(value, (int, float, Decimal))
        and not isinstance(value, bool)
        and -_NO_TIME < value < _NO_TIME
    )
