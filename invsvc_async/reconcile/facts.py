"""
The facts that an intent and its history establish: sends, settle windows, clock bounds, baseline.

They are ``Known``, which ``decide`` calls *known*. What a single attempt proves is in ``attempts``.

Three clocks meet here. *Local time* (of this process, in seconds) orders the events of the history.
*Server time* is in the answers, in whole milliseconds or seconds; the difference is known only between
two bounds, which each answer narrows (``Bounds``). What another process has sent is known by server times
alone, because its local time means nothing here. Each comparison allows for the bounds and for
``clock_slack``, and returns "not known" rather than a guess: a service whose clock was set costs
certainty.

A *send* is an attempt that may have had an effect (``sends``): those of this process (``attempts``), and
those that the intent brought along from others (``carried``). Its *window* is the time after its end in
which the service may still apply it, and depends on how it ended (``kind_of``).

The *baseline* is the state before the first send. A state counts as current only from ``current_from``
on, because reads may lag behind writes.
"""

from __future__ import annotations

from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeGuard

import attrs
from propcache.api import cached_property

from invsvc_async.codec.fields import maker_of
from invsvc_async.reconcile.attempts import AMBIGUOUS, AttemptKind, kind_of, refusal_of
from invsvc_async.reconcile.compare import is_time
from invsvc_async.reconcile.differences import differences, digest, is_part
from invsvc_async.reconcile.history import (
    Attempt,
    Bounds,
    Closed,
    End,
    Reading,
    Resumed,
    Tick,
)
from invsvc_async.reconcile.intent import Intent, Scope, Sent, SentEnd, revised
from invsvc_async.reconcile.kinds import WriteKind, kind_of_write
from invsvc_async.reconcile.server_clock import WHOLE_MS, agree, bounds_of, cut_by

if TYPE_CHECKING:
    from collections.abc import Iterator

    from invsvc_async.api.operations import Operation
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.history import (
        ErrorFacts,
        Event,
        Finding,
        History,
        Partly,
        Send,
    )
    from invsvc_async.settings import ReconcilePolicy

# Where a server time lies, seen from the start of the first send.
Placed: TypeAlias = Literal["before", "after", "band", "unsure"]

_make_sent = maker_of(Sent)
# A number below this part of the present time in ms is no such time: it is 0, say, or counts seconds.  What
# has this part of it is some months after 1970.
_OF_ANOTHER_SCALE = 0.01


def start_of(event: Event) -> float:
    """Return when *event* began, in local seconds."""
    return event.at if isinstance(event, (Tick, Resumed, Closed)) else event.started


def time_of(event: Event) -> float:
    """Return when *event* ended, in local seconds."""
    return event.at if isinstance(event, (Tick, Resumed, Closed)) else event.ended


def _server_time(at: float, bounds: Bounds | None) -> tuple[float | None, float | None]:
    """Return the earliest and the latest server time (s) of the local time *at*, if there are bounds."""
    if bounds is None:
        return None, None
    return at + bounds.low, at + bounds.high


def _end_of(sent: Sent) -> tuple[float | None, float | None]:
    """Return the earliest and the latest server time (s) at which a stored send ended, as far as known."""
    if sent.end is not None and sent.end.latest is not None:
        return sent.end.earliest or sent.earliest, sent.end.latest
    if sent.latest is None:
        return sent.earliest, None
    return sent.earliest, sent.latest + sent.attempt_timeout


def _waited_from(resumed: Resumed) -> float:
    """
    Return the local time from which the windows of earlier sends are waited for.

    That is when this process took the write over, or since when it is known that their sender had ended.  It
    counts where no server time says when they were sent.
    """
    return resumed.at if resumed.since is None else resumed.since


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
        """The policy of this write."""
        return self.intent.policy

    @cached_property
    def method(self) -> str:
        """The HTTP method of the write.  Only a write with POST does not replace what another write wrote."""
        return self.intent.path.get("method", self.operation.method)

    @cached_property
    def now(self) -> float:
        """The time of the last event, local s."""
        return time_of(self.history[-1])

    @property
    def last(self) -> Event | None:
        """The last event; ``None`` before the first one."""
        return self.history[-1] if self.history else None

    @property
    def last_reading(self) -> Reading | None:
        """The last event, if it is a reading."""
        return self.last if isinstance(self.last, Reading) else None

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
    def bounds(self) -> Bounds | None:
        """
        Clock bounds from all answers of this process, those before the first send included.

        ``None`` if there are none, or if the service's clock was set meanwhile.
        """
        readings = [event for event in self.history if isinstance(event, Reading)]
        if not all(reading.steady for reading in readings):
            return None
        all_bounds = [
            bounds_of(event.stamp, event.started, event.ended)
            for event in self.history
            if isinstance(event, (Attempt, Reading)) and event.stamp is not None
        ]
        shown = [each.bounds for each in readings if each.bounds is not None]
        all_bounds += [(each.low, each.high) for each in shown]
        # Those of the intent are by the local clock of the process that sent, which may be another one.
        at_first = self.intent.bounds
        if at_first is not None and self.resumed is None:
            all_bounds.append((at_first.low, at_first.high))
        return agree(all_bounds, self.policy.clock_slack)

    def window_of(self, kind: AttemptKind) -> float:
        """Return how long after such an end the write may still take effect, in seconds."""
        if kind not in AMBIGUOUS:
            return 0.0
        # Those of a create are all long: lists lag, and if it is sent again too soon, both effects stay.
        if kind == "short" and self.method != "POST":
            # It may be answered 500 after its effect, which a read that lags does not show yet.
            lag = min(self.policy.reads_lag, self.policy.settle_after_loss)
            return max(self.policy.settle_after_error, lag)
        return self.policy.settle_after_loss

    @cached_property
    def carried(self) -> list[SendTimes]:
        """The sends of earlier processes that may have had an effect."""
        if self.resumed is None:
            return []
        return [
            self._carried(sent, self.resumed)
            for sent in self._stored_sends()
            if sent.end is None or sent.end.kind != "not applied"
        ]

    def _stored_sends(self) -> tuple[Sent, ...]:
        """Return the stored sends.  If there are none and no journal, one at an unknown time is assumed."""
        assert self.resumed is not None
        if self.intent.sent or self.resumed.journaled:
            return self.intent.sent
        return (Sent(attempt_timeout=self.intent.timeouts.attempt),)

    def _carried(self, sent: Sent, resumed: Resumed) -> SendTimes:
        """
        Return a send of another process, of which only server times mean something here.

        Its window is over when it has been waited out here, or sooner by the service's clock.
        """
        kind: AttemptKind = sent.end.kind if sent.end else "long"
        window = self.window_of(kind)
        waited_from = _waited_from(resumed)
        has_ended = sent.end is not None or resumed.sender_gone
        running = 0.0 if has_ended else sent.attempt_timeout
        ended_here = waited_from + running
        over = ended_here + window
        ended_from, ended_by = _end_of(sent)
        if self.bounds is not None:
            if ended_by is None:
                ended_by = ended_here + self.bounds.high
            else:
                over = min(over, self._local_time(ended_by + window, self.bounds))
        return SendTimes(
            kind=kind,
            began=self._began_by(sent, waited_from),
            earliest=sent.earliest,
            latest=sent.latest,
            ended_from=ended_from,
            ended_by=ended_by,
            window=window,
            over=over,
        )

    def _began_by(self, sent: Sent, waited_from: float) -> float:
        """Return the latest local time of the start of a send that is *waited_from* then at the latest."""
        if self.bounds is None or sent.latest is None:
            return waited_from
        return min(waited_from, self._local_time(sent.latest, self.bounds))

    def _local_time(self, at: float, bounds: Bounds) -> float:
        """Return the latest local time of the server time *at* (s)."""
        return at + self.policy.clock_slack - bounds.low

    @cached_property
    def sends(self) -> list[SendTimes]:
        """All sends that may have had an effect, first to last."""
        own = [
            self._own(attempt, kind)
            for attempt, kind in zip(self.attempts, self.kinds, strict=True)
            if kind not in ("not applied", "echo")
        ]
        return [*self.carried, *own]

    def _own(self, attempt: Attempt, kind: AttemptKind) -> SendTimes:
        """Return a send of this process."""
        window = self.window_of(kind)
        earliest, latest = _server_time(attempt.started, self.bounds)
        ended_from, ended_by = _server_time(attempt.ended, self.bounds)
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
    def strangers(self) -> frozenset[str]:
        """Ids of look-alikes that were known before a send, so none is the effect of this create."""
        shown = set(self.intent.strangers)
        for before, after in pairwise(self.history):
            if isinstance(after, Attempt):
                shown |= self.shown_by(before)
        return frozenset(shown)

    @cached_property
    def forgotten_until(self) -> int | None:
        """Things created up to this server time (ms) may be missing in ``strangers``."""
        if not self.carried and self.shows_list(self._before_first_attempt):
            return None
        return self.intent.forgotten_until

    @property
    def _before_first_attempt(self) -> Event | None:
        """The event just before the first attempt of this process, if there are both."""
        before = None
        for event in self.history:
            if isinstance(event, Attempt):
                return before
            before = event
        return None

    def shows_list(self, event: Event | None) -> TypeGuard[Reading]:
        """Return whether *event* is a reading that showed the list of what a create adds to."""
        if not self.kind.creates or not isinstance(event, Reading):
            return False
        return isinstance(event.seen, list)

    def shown_by(self, event: Event | None) -> set[str]:
        """Return the ids of what could be mistaken for the effect of this create, if *event* is a list."""
        if not self.shows_list(event):
            return set()
        return self.kind.near(self.kind.ids_near(event.seen), self.intent.body)

    @cached_property
    def in_doubt(self) -> bool:
        """Whether any send was ambiguous."""
        return bool(self.carried) or any(kind in AMBIGUOUS for kind in self.kinds)

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
        in_doubt = bool(self.carried)
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
        last = self.intent.sent[-1].end if self.intent.sent else None
        return None if last is None else last.refusal

    @cached_property
    def over(self) -> float:
        """The local time at which all settle windows are over."""
        return max((send.over for send in self.sends), default=float("-inf"))

    @cached_property
    def deadline(self) -> float:
        """The local time by which a verdict is due.  It exists only in doubt."""
        if self.resumed is not None:
            return self.resumed.at + self.policy.deadline
        judged = zip(self.attempts, self.kinds, strict=True)
        first = next(attempt for attempt, kind in judged if kind in AMBIGUOUS)
        return first.ended + self.policy.deadline

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

    @property
    def before(self) -> Wire:
        """
        The last known state before the first send, in wire form, as an intent stores it.

        Empty if the resource did not exist; ``None`` if nothing is known.
        """
        return self._before[0]

    @property
    def before_at(self) -> float | None:
        """The latest server time (s) at which ``before`` was so; ``None`` if not known."""
        return self._before[1]

    @cached_property
    def _before(self) -> tuple[Wire, float | None]:
        before: Wire = self.intent.baseline
        at = self.intent.baseline_at
        if self.carried:
            return before, at
        for reading in self.first_readings:
            state = self._state_in(reading)
            if state is not None:
                before = state
                _, at = _server_time(reading.ended, self.bounds)
        return before, at

    @property
    def first_readings(self) -> list[Reading]:
        """The readings before the first attempt of this process."""
        before = takewhile(lambda event: not isinstance(event, Attempt), self.history)
        return [event for event in before if isinstance(event, Reading)]

    def _state_in(self, reading: Reading) -> dict[str, Wire] | None:
        """Return the state of the thing in *reading*: empty if it is gone, ``None`` if that is not known."""
        if reading.status == 200 and isinstance(reading.seen, dict):
            seen = reading.seen.items()
            return {name: value for name, value in seen if name != "secret"}
        is_gone = reading.status == 404 and reading.own_envelope
        return {} if is_gone and self.kind.needs_baseline else None

    @cached_property
    def current_from(self) -> float:
        """
        The local time from which a read that starts shows no state older than the baseline.

        Without a baseline, or if it is not known when it was seen: no state older than the first send, of
        which there is one.  After the settle windows every read counts, also where the policy lets reads lag
        for longer.
        """
        seen = self.sends[0].began
        at = self.before_at
        if self.baseline is not None and at is not None and self.bounds is not None:
            seen = min(seen, self._local_time(at, self.bounds))
        return min(seen + self.policy.reads_lag, self.over)

    @cached_property
    def baseline(self) -> Wire:
        """The state before the first send, in wire form, if it can be compared; else ``None``."""
        before = self.before or None
        hides = self.kind.hides
        if before is None or hides is None:
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
        is_absent = isinstance(self.before, dict) and not self.before
        return is_absent and self.policy.reads_lag == 0

    def when(self, milliseconds: Wire, reading: Reading) -> Placed:
        """
        Compare a server time (ms) that *reading* showed with the start of the first send.

        The clock bounds, and the slack on both sides, place that start between ``low`` and ``high``::

            ──── before ────┤ low ──── band, or unsure if it is wide ──── high ├──── after ────▶ now

        "band" is so near to it that the clocks do not show which was first, in a narrow band.  "unsure" is
        any other time that cannot be compared, such as 0, one in seconds, or one that may be cut to its
        minute.
        """
        first = self.sends[0]
        if not is_time(milliseconds) or first.earliest is None:
            return "unsure"
        at = float(milliseconds) / 1000
        if at < first.earliest * _OF_ANOTHER_SCALE:
            return "unsure"
        slack = self.policy.clock_slack
        low = first.earliest - slack
        now = self.server_time_of(reading)
        if now is None:
            return "unsure"
        # The service's clock has stepped back.
        if at > now + slack or now < low:
            return "unsure"
        if at + WHOLE_MS < low:
            may_be_cut = at + cut_by(milliseconds) >= low
            return "unsure" if may_be_cut else "before"
        if first.latest is None:  # of a restored journal
            return "unsure"
        high = first.latest + slack
        if at > high:
            return "after"
        is_narrow = high - low <= self.policy.clock_band
        return "band" if is_narrow else "unsure"

    def server_time_of(self, reading: Reading) -> float | None:
        """Return the latest server time (s) of the answer; ``None`` if it is not known."""
        if reading.stamp is not None:
            return reading.stamp / 1000
        _, latest = _server_time(reading.ended, self.bounds)
        return latest

    # --- other writes of this program

    def is_newest(self, reading: Reading) -> bool:
        """
        Return whether no later write of this program can have changed the resource before *reading*.

        A running write locks its resource until its settle windows are over.  ``Resumed.newest`` states this
        for a resumed write.  Without that, it is certain only while its sender kept the lock.
        """
        if self.resumed is None:
            return True
        if self.resumed.newest is not None:
            return self.resumed.newest
        if reading.stamp is None or not self.carried:
            return False
        if any(sent.latest is None and sent.end is None for sent in self.intent.sent):
            return False  # of a restored journal, which may lack later sends as well
        return self._is_in_turn(reading.stamp / 1000)

    def _is_in_turn(self, at: float) -> bool:
        """
        Return whether the sender of the carried sends still had its turn at the server time *at* (s).

        That it has died meanwhile, and its next process has written to the thing, is not known here.  Where
        that process has the same journal, it keeps the turn of what was left open; without one, it is assumed
        not to write to the thing within the windows.
        """
        slack = self.policy.clock_slack
        started = self.carried[0].earliest
        if started is not None and at + slack < started:
            return False  # the service's clock has stepped back
        closed = [
            send.ended_from + send.window
            for send in self.carried
            if send.ended_from is not None
        ]
        if len(closed) < len(self.carried):
            return False
        return at <= max(closed) + slack + self.policy.clock_band

    @property
    def mixture(self) -> str | None:
        """A digest of the state in the last event, if that is a read of an update that is stored in part."""
        body = self.intent.body
        last = self.last_reading
        if last is None or not isinstance(body, dict):
            return None
        if not self.in_doubt or last.started < self.over:
            return None
        if not last.own_envelope or not isinstance(last.seen, dict):
            return None
        wanted = self.kind.visible(body)
        if not is_part(differences(self.kind, wanted, self.baseline, last.seen)):
            return None
        return digest(wanted, last.seen)

    @property
    def is_overtaken(self) -> bool:
        """Whether a later write of this program to the same resource was sent; always false for a create."""
        if self.resumed is None or self.kind.creates:
            return False
        return self.resumed.newest is False

    @cached_property
    def free_at(self) -> float:
        """
        The local time from which the next write to the same resource may be sent.

        From then on, this write can no longer take effect.  Even with the widest clock bounds, an effect of
        the next write has a later time than any of this one.

        Until then, a later process may attribute a new thing to this create.  That process may not know
        that the sender had ended.  It then assumes that an attempt without an end took its whole timeout.

        So to the end of the windows is added what a comparison of the two writes may be wrong by: the slack
        that either of them allows for, and the uncertainty of a start, as the process that knows it worst has
        it, or the band in which two times count as one.
        """
        if not self.in_doubt:
            return float("-inf")
        uncertain = max([self.policy.clock_band, *self._widths_of_bounds()])
        ends = [self.over, *self._ends_for_later_process()]
        return max(ends) + 2 * self.policy.clock_slack + uncertain

    def _widths_of_bounds(self) -> list[float]:
        """Return how wide the clock bounds are with which this write may be judged, in seconds."""
        bounds = [
            each for each in (self.bounds, self.intent.bounds) if each is not None
        ]
        starts = [
            sent.latest - sent.earliest
            for sent in self.intent.sent
            if sent.latest is not None and sent.earliest is not None
        ]
        return [*(each.high - each.low for each in bounds), *starts]

    def _ends_for_later_process(self) -> list[float]:
        """Return when each send is over for a later process, unaware that the sender has ended."""
        if self.resumed is None or not self.kind.creates:
            return []
        since = _waited_from(self.resumed) + self.window_of("long")
        return [
            since + sent.attempt_timeout
            for sent in self._stored_sends()
            if sent.end is None
        ]

    def readings_before(self, reading: Reading) -> Iterator[Reading]:
        """Yield the readings before *reading* that show no state older than the first send."""
        since = self.sends[0].began + self.policy.reads_lag
        for event in self.history:
            if event is reading:
                return
            if isinstance(event, Reading) and event.started >= since:
                yield event

    @property
    def first_sent(self) -> float | None:
        """The local time at which the first send began, if this client made that send."""
        if self.carried and self.resumed is not None:
            return self.resumed.first_sent
        return self.sends[0].began if self.sends else None

    def decayed(self, reading: Reading) -> bool:
        """Return whether the first send is so long ago, or its time unknown, that absence proves nothing."""
        within = self.policy.absence_within
        if self.first_sent is not None:
            return reading.ended - self.first_sent > within
        first = self.carried[0].earliest
        if first is None or self.bounds is None:
            return True
        return reading.ended + self.bounds.high - first > within


# --- what another process needs to settle the write


def stored(
    known: Known,
    *,
    livemode: bool | None = None,
    send: Send | None = None,
    at: float = 0.0,
) -> Intent:
    """
    Return the intent with the sends, the baseline and the clock bounds that are known by now.

    *livemode* is the data mode that answers have shown.  *send*, about to begin at *at* (local s), is
    included, because it is stored before its first byte.
    """
    intent = known.intent
    scope = _scope_with(intent.scope, livemode=livemode)
    # A running write is the newest to its resource, because it has its turn.
    newest = True if known.resumed is None else known.resumed.newest
    if send is not None and not known.history and intent.baseline is None:
        # Nothing is known yet but what the intent has: the facts below would say the same.
        sent_first = _about_to(send, at, intent.bounds)
        return revised(
            intent, scope=scope, sent=(*intent.sent, sent_first), newest=newest
        )
    bounds = known.bounds
    sent = [_sent(attempt, bounds) for attempt in known.attempts]
    strangers = known.strangers
    forgotten_until = known.forgotten_until
    if send is not None:
        sent.append(_about_to(send, at, bounds))
        strangers |= known.shown_by(known.last)
        forgotten_until = _forgotten_until(known)
    has_begun = bool(known.history) or send is not None
    return revised(
        intent,
        scope=scope,
        baseline=known.before,
        baseline_at=known.before_at,
        bounds=bounds,
        sent=(*intent.sent, *sent),
        strangers=tuple(sorted(strangers)),
        forgotten_until=forgotten_until,
        newest=newest if has_begun else intent.newest,
        mixture=known.mixture or intent.mixture,
    )


def _scope_with(scope: Scope, *, livemode: bool | None) -> Scope:
    """Return *scope* with the data mode of the answers, unless the scope has one."""
    if livemode is None or scope.livemode is not None:
        return scope
    return attrs.evolve(scope, livemode=livemode)


def _forgotten_until(known: Known) -> int | None:
    """Return ``forgotten_until`` for a send that is about to begin: before the first, a list shows all."""
    is_first = not known.carried and not known.attempts
    if is_first and known.shows_list(known.last):
        return None
    return known.forgotten_until


def _about_to(send: Send, at: float, bounds: Bounds | None) -> Sent:
    earliest, latest = _server_time(at, bounds)
    return _make_sent(
        earliest=earliest, latest=latest, attempt_timeout=send.attempt_timeout
    )


def _sent(attempt: Attempt, bounds: Bounds | None) -> Sent:
    kind = kind_of(attempt)
    refusal = refusal_of(attempt)
    ended_from, ended_by = _server_time(attempt.ended, bounds)
    end = SentEnd(
        kind="not applied" if kind == "echo" else kind,
        latest=ended_by,
        earliest=ended_from,
        refusal=None if refusal is None else refusal.error,
    )
    earliest, latest = _server_time(attempt.started, bounds)
    return Sent(
        earliest=earliest, latest=latest, attempt_timeout=attempt.timeout, end=end
    )
