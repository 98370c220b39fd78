"""
The sends of a write that may have had an effect, and until when each of them may still have one.

A *send* is an attempt that may have had an effect: those of this process (``attempts``), and those that the
intent brought along from others (``carried``). Its *window* is the time after its end in which the service
may still apply it, and depends on how it ended (``kind_of``).

What another process has sent is known by server times alone, because its local time means nothing here. Each
comparison allows for the clock bounds and for ``clock_slack``, and returns "not known" rather than a guess: a
service whose clock was set costs certainty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs
from propcache.api import cached_property

from invsvc_async.reconcile.attempts import AMBIGUOUS, WITHOUT_EFFECT, AttemptKind
from invsvc_async.reconcile.compare import is_time
from invsvc_async.reconcile.intent import Intent, Sent
from invsvc_async.reconcile.server_clock import WHOLE_MS, cut_by

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.history import Attempt, Reading, Resumed
    from invsvc_async.reconcile.write_clock import WriteClock
    from invsvc_async.settings import ReconcilePolicy

# Where a server time lies, seen from the start of the first send.
Placed: TypeAlias = Literal["before", "after", "band", "unsure"]

# A number below this part of the present time in ms is no such time: it is 0, say, or counts seconds.  As ms,
# this part is a date in 1970, which no service shows.
_OF_ANOTHER_SCALE = 0.01


def waited_from(resumed: Resumed) -> float:
    """
    Return the local time from which the windows of earlier sends are waited for.

    That is when this process took the write over, or since when it is known that their sender had ended.  It
    counts where no server time says when they were sent.
    """
    if resumed.since is None:
        return resumed.at
    return resumed.since


def _end_of(sent: Sent) -> tuple[float | None, float | None]:
    """Return the earliest and the latest server time (s) at which a stored send ended, as far as known."""
    if sent.end is not None and sent.end.latest is not None:
        return sent.end.earliest or sent.earliest, sent.end.latest
    if sent.latest is None:
        return sent.earliest, None
    return sent.earliest, sent.latest + sent.attempt_timeout


@attrs.frozen(kw_only=True)
class SendTimes:
    """One send that may have had an effect.  Server times are in s, or ``None`` without clock bounds."""

    kind: AttemptKind
    began: float  # latest local time of its start
    earliest: float | None  # server time of its start, at the earliest
    latest: float | None  # and at the latest
    ended_from: float | None  # server time of its end, at the earliest
    ended_by: float | None  # and at the latest
    window: float  # s after its end in which it may still take effect
    over: float  # local time at which the window is over


@attrs.define(slots=False, kw_only=True)
class SettleWindows:
    """
    The sends that may have had an effect, in time: by the local clock, and by that of the service.

    Each is computed at first use, and cached.  ``kinds`` are what each of ``attempts`` proves.  ``policy`` is
    that by which the sends are judged, and ``own_policy`` that of a run which goes on with the write.
    """

    intent: Intent
    policy: ReconcilePolicy
    own_policy: ReconcilePolicy
    method: str
    attempts: list[Attempt]
    kinds: list[AttemptKind]
    resumed: Resumed | None
    clock: WriteClock

    def window_of(
        self, kind: AttemptKind, policy: ReconcilePolicy | None = None
    ) -> float:
        """Return how long after such an end the write may still take effect (s): by *policy*, if given."""
        if kind not in AMBIGUOUS:
            return 0.0
        policy = policy or self.policy
        # Those of a POST, as of a create, are all long: lists lag, and if it is sent again too soon, both
        # effects stay.
        if kind == "short" and self.method != "POST":
            # It may be answered 500 after its effect, which a read that lags does not show yet.
            lag = min(policy.reads_lag, policy.settle_after_loss)
            return max(policy.settle_after_error, lag)
        return policy.settle_after_loss

    @cached_property
    def sends(self) -> list[SendTimes]:
        """All sends that may have had an effect, first to last."""
        own = [
            self._own(attempt, kind)
            for attempt, kind in zip(self.attempts, self.kinds, strict=True)
            if kind not in WITHOUT_EFFECT
        ]
        return [*self.carried, *own]

    @cached_property
    def carried(self) -> list[SendTimes]:
        """The sends of earlier processes that may have had an effect."""
        if self.resumed is None:
            return []
        return [
            self._carried(sent, self.resumed)
            for sent in self.stored_sends(self.resumed)
            if sent.may_have_effect
        ]

    def stored_sends(self, resumed: Resumed) -> tuple[Sent, ...]:
        """Return the stored sends.  If there are none and no journal, one at an unknown time is assumed."""
        if self.intent.sent or resumed.journaled:
            return self.intent.sent
        return (Sent(attempt_timeout=self.intent.timeouts.attempt),)

    def _carried(self, sent: Sent, resumed: Resumed) -> SendTimes:
        """
        Return a send of another process, of which only server times mean something here.

        Its window is over when it has been waited out here, or sooner by the service's clock.
        """
        kind: AttemptKind = sent.end.kind if sent.end else "long"
        # Any run may have made a send that an older copy of the intent lacks.
        window = self.window_of(kind, self.own_policy if sent.is_lost else None)
        since = waited_from(resumed)  # local time: it is waited for from here on
        has_ended = sent.end is not None or resumed.sender_gone
        running = 0.0 if has_ended else sent.attempt_timeout  # s after `since`, at most
        ended_here = since + running  # local time by which it has ended, at the latest
        over = ended_here + window  # local time at which its window is over
        ended_from, ended_by = _end_of(sent)
        bounds = self.clock.bounds
        if bounds is not None:
            if ended_by is None:
                ended_by = ended_here + bounds.high
            else:
                over = min(over, self.clock.local_time(ended_by + window, bounds))
        return SendTimes(
            kind=kind,
            began=self._began_by(sent, since),
            earliest=sent.earliest,
            latest=sent.latest,
            ended_from=ended_from,
            ended_by=ended_by,
            window=window,
            over=over,
        )

    def _began_by(self, sent: Sent, since: float) -> float:
        """Return the latest local time of the start of a send that is waited for from *since* on."""
        bounds = self.clock.bounds
        if bounds is None or sent.latest is None:
            return since
        return min(since, self.clock.local_time(sent.latest, bounds))

    def _own(self, attempt: Attempt, kind: AttemptKind) -> SendTimes:
        """Return a send of this process."""
        window = self.window_of(kind)
        earliest, latest = self.clock.server_times(attempt.started)
        ended_from, ended_by = self.clock.server_times(attempt.ended)
        return SendTimes(
            kind=kind,
            began=attempt.started,
            earliest=earliest,
            latest=latest,
            ended_from=ended_from,
            ended_by=ended_by,
            window=window,
            over=attempt.ended + window,
        )

    @cached_property
    def over(self) -> float:
        """The local time at which all settle windows are over."""
        return max((send.over for send in self.sends), default=float("-inf"))

    @property
    def first_sent(self) -> float | None:
        """The local time at which the first send began, if this client made that send."""
        if self.carried and self.resumed is not None:
            return self.resumed.first_sent
        if self.sends:
            return self.sends[0].began
        return None

    def when(self, milliseconds: Wire, reading: Reading) -> Placed:
        """
        Compare a server time (ms) that *reading* showed with the start of the first send.

        The clock bounds, and the slack on both sides, place that start between ``low`` and ``high``::

            ──── before ────┤ low ──── band, or unsure if it is wide ──── high ├──── after ────▶ now

        "band" is so near to it that the clocks do not show which was first, in a narrow band.  "unsure" is
        any other time that cannot be compared, such as 0, one in seconds, or one that may be cut to its
        minute.  A time that may be rounded, up by half at most, is "after" only if that half later as well.
        """
        first = self.sends[0]
        if not is_time(milliseconds) or first.earliest is None:
            return "unsure"
        at = float(milliseconds) / 1000
        if _is_of_another_scale(at, first.earliest):
            return "unsure"
        slack = self.policy.clock_slack
        low = first.earliest - slack
        now = self.clock.answered_by(reading)
        if now is None:
            return "unsure"
        # The service's clock has stepped back.
        if at > now + slack or now < low:
            return "unsure"
        if at + WHOLE_MS < low:
            may_be_cut = at + cut_by(milliseconds) >= low
            if may_be_cut:
                return "unsure"
            return "before"
        if first.latest is None:  # of a restored journal
            return "unsure"
        high = first.latest + slack
        if at - cut_by(milliseconds) / 2 > high:
            return "after"
        is_narrow = high - low <= self.policy.clock_band
        if is_narrow:
            return "band"
        return "unsure"

    def is_exact(self, milliseconds: Wire, reading: Reading) -> bool:
        """
        Return whether a server time (ms) that *reading* showed tells changes of two milliseconds apart.

        One that may be cut, or counts seconds, does not.
        """
        now = self.clock.answered_by(reading)
        if not is_time(milliseconds) or now is None:
            return False
        if _is_of_another_scale(float(milliseconds) / 1000, now):
            return False
        return cut_by(milliseconds) == 0


def _is_of_another_scale(at: float, now: float) -> bool:
    """Return whether the time *at* (s) is none of a service whose clock has shown *now* (s)."""
    return at < now * _OF_ANOTHER_SCALE
