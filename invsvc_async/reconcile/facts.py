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

from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import attrs
from propcache.api import cached_property

from invsvc_async.codec.fields import maker_of
from invsvc_async.reconcile.attempts import AttemptKind, kind_of, refusal_of
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
from invsvc_async.reconcile.intent import Intent, Sent, SentEnd, revised
from invsvc_async.reconcile.kinds import Kind, kind_of_write
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

_make_sent = maker_of(Sent)
# A time below this part of the present one, some months after 1970, is none, or one in seconds.
_OF_ANOTHER_SCALE = 0.01


def start_of(event: Event) -> float:
    """Return when *event* began, in local seconds."""
    return event.at if isinstance(event, (Tick, Resumed, Closed)) else event.started


def time_of(event: Event) -> float:
    """Return when *event* ended, in local seconds."""
    return event.at if isinstance(event, (Tick, Resumed, Closed)) else event.ended


def _server_time(at: float, bounds: Bounds | None) -> tuple[float | None, float | None]:
    """Return the earliest and the latest server time (s) of the local time *at*, if there are bounds."""
    return (None, None) if bounds is None else (at + bounds.low, at + bounds.high)


@attrs.frozen
class Sending:
    """One send that may have had an effect.  Server times are in s, or ``None`` without clock bounds."""

    kind: AttemptKind
    began: float  # latest local time of its start
    earliest: float | None  # start
    latest: float | None
    ended_from: float | None  # end
    ended_by: float | None
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
        """What readings have shown, by their ``id``: a large state is compared once."""
        return {}

    @cached_property
    def kind(self) -> Kind:
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
        if not all(
            event.steady for event in self.history if isinstance(event, Reading)
        ):
            return None
        known = [
            bounds_of(event.stamp, event.started, event.ended)
            for event in self.history
            if isinstance(event, (Attempt, Reading)) and event.stamp is not None
        ]
        if self.intent.bounds is not None and self.resumed is None:
            known.append((self.intent.bounds.low, self.intent.bounds.high))
        return agree(known, self.policy.clock_slack)

    def window_of(self, kind: AttemptKind) -> float:
        """Return how long after such an end the write may still take effect, in seconds."""
        # lists lag, and a second effect of a create stays
        if kind == "short" and self.method != "POST":
            # A read that lags may show no effect of a write that was answered 500 after it.
            lag = min(self.policy.reads_lag, self.policy.settle_after_loss)
            return max(self.policy.settle_after_error, lag)
        return self.policy.settle_after_loss if kind in ("short", "long") else 0.0

    @cached_property
    def carried(self) -> list[Sending]:
        """The sends of earlier processes that may have had an effect."""
        if self.resumed is None:
            return []
        sends = [
            sent
            for sent in self._stored_sends()
            if sent.end is None or sent.end.kind != "not applied"
        ]
        return [self._carried(sent, self.resumed) for sent in sends]

    def _stored_sends(self) -> tuple[Sent, ...]:
        """Return the stored sends.  If there are none and no journal, one at an unknown time is assumed."""
        assert self.resumed is not None
        if self.intent.sent or self.resumed.journaled:
            return self.intent.sent
        return (Sent(attempt_timeout=self.intent.timeouts.attempt),)

    def _carried(self, sent: Sent, resumed: Resumed) -> Sending:
        kind: AttemptKind = sent.end.kind if sent.end else "long"
        window = self.window_of(kind)
        running = 0.0 if sent.end or resumed.sender_gone else sent.attempt_timeout
        since = resumed.at if resumed.since is None else resumed.since
        over_by_wait = since + running + window
        ended_by = (
            sent.latest + sent.attempt_timeout if sent.latest is not None else None
        )
        ended_from = sent.earliest
        began = since
        if sent.end and sent.end.latest is not None:
            ended_by = sent.end.latest
            ended_from = sent.end.earliest or sent.earliest
        over = over_by_wait
        # by the service's clock, if that is sooner
        if self.bounds is not None and ended_by is not None:
            over = min(
                over, ended_by + window + self.policy.clock_slack - self.bounds.low
            )
        if ended_by is None and self.bounds is not None:
            ended_by = since + running + self.bounds.high
        if self.bounds is not None and sent.latest is not None:
            began = min(began, sent.latest + self.policy.clock_slack - self.bounds.low)
        return Sending(
            kind, began, sent.earliest, sent.latest, ended_from, ended_by, window, over
        )

    @cached_property
    def sends(self) -> list[Sending]:
        """All sends that may have had an effect, first to last."""
        found = list(self.carried)
        for attempt, kind in zip(self.attempts, self.kinds, strict=True):
            if kind not in ("not applied", "echo"):
                window = self.window_of(kind)
                began = attempt.started
                start = _server_time(began, self.bounds)
                end = _server_time(attempt.ended, self.bounds)
                found.append(
                    Sending(kind, began, *start, *end, window, attempt.ended + window)
                )
        return found

    @cached_property
    def strangers(self) -> frozenset[str]:
        """Ids of look-alikes that were known before a send, so none is the effect of this create."""
        shown = set(self.intent.strangers)
        for before, after in pairwise(self.history):
            if isinstance(before, Reading) and isinstance(after, Attempt):
                shown |= self.shown_by(before)
        return frozenset(shown)

    @cached_property
    def forgotten_until(self) -> int | None:
        """Webhooks created up to this server time (ms) may be missing in ``strangers``."""
        first = next(
            (at for at, event in enumerate(self.history) if isinstance(event, Attempt)),
            None,
        )
        listed = first and not self.carried and self.shows_list(self.history[first - 1])
        return None if listed else self.intent.forgotten_until

    def shows_list(self, event: Event) -> bool:
        """Return whether *event* is a reading that showed the list of what a create adds to."""
        return (
            self.kind.creates
            and isinstance(event, Reading)
            and isinstance(event.seen, list)
        )

    def shown_by(self, reading: Reading) -> set[str]:
        """Return the ids of what could be mistaken for the effect of this create, in a list."""
        if not self.shows_list(reading):
            return set()
        return self.kind.near(self.kind.ids_near(reading.seen), self.intent.body)

    @cached_property
    def in_doubt(self) -> bool:
        """Whether any send was ambiguous."""
        return bool(self.carried) or any(
            kind in ("short", "long") for kind in self.kinds
        )

    @property
    def never_left(self) -> bool:
        """Whether no byte of an attempt of this process has left."""
        return all(attempt.end is End.NOT_SENT for attempt in self.attempts)

    @cached_property
    def resends(self) -> int:
        """The number of re-sends after an ambiguous send.  Retries after a definite "no" do not count."""
        resends = 0
        in_doubt = bool(self.carried)
        for attempt, kind in zip(self.attempts, self.kinds, strict=True):
            resends += in_doubt and attempt.end is not End.NOT_SENT
            in_doubt = in_doubt or kind in ("short", "long")
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
        """The local time by which a verdict is due."""
        if self.resumed is not None:
            return self.resumed.at + self.policy.deadline
        judged = zip(self.attempts, self.kinds, strict=True)
        first = next(attempt for attempt, kind in judged if kind in ("short", "long"))
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
        before: tuple[Wire, float | None] = (
            self.intent.baseline,
            self.intent.baseline_at,
        )
        if self.carried:
            return before
        for event in self.history:
            if isinstance(event, Attempt):
                break
            if not isinstance(event, Reading):
                continue
            at = None if self.bounds is None else event.ended + self.bounds.high
            if event.status == 200 and isinstance(event.seen, dict):
                before = (
                    {
                        name: value
                        for name, value in event.seen.items()
                        if name != "secret"
                    },
                    at,
                )
            elif (
                event.status == 404 and event.own_envelope and self.kind.needs_baseline
            ):
                before = {}, at
        return before

    @cached_property
    def current_from(self) -> float:
        """
        The local time from which a started read shows no state older than the baseline.

        If it is not known when the baseline was seen, or there is none: no state older than the first send.
        """
        seen = self.sends[0].began
        at = self.before_at
        if self.baseline is not None and at is not None and self.bounds is not None:
            seen = min(seen, at + self.policy.clock_slack - self.bounds.low)
        return min(seen + self.policy.reads_lag, self.over)

    @cached_property
    def baseline(self) -> Wire:
        """The state before the first send, in wire form, if it can be compared; else ``None``."""
        hides = self.kind.hides
        before = self.before
        if (
            hides is not None
            and isinstance(before, dict)
            and hides(self.policy, before)
        ):
            return None  # it may not be the one that is written
        return before or None

    @property
    def was_gone(self) -> bool:
        """Whether the resource is known to have been absent before the first send."""
        return isinstance(self.before, dict) and not self.before

    def when(
        self, milliseconds: Wire, reading: Reading
    ) -> Literal["before", "after", "band", "unsure"]:
        """
        Compare a server time (ms) that *reading* showed with the start of the first send.

        "band" is so near to it that the clocks do not show which was first, in a narrow band; "unsure" is any
        other time that cannot be compared, such as 0, one in seconds, or one that may be cut to its minute.
        """
        first = self.sends[0]
        if not is_time(milliseconds) or first.earliest is None:
            return "unsure"
        if float(milliseconds) / 1000 < first.earliest * _OF_ANOTHER_SCALE:
            return "unsure"
        slack = self.policy.clock_slack
        low = first.earliest - slack
        at = float(milliseconds) / 1000
        now = None  # the latest server time of the answer, s
        if reading.stamp is not None:
            now = reading.stamp / 1000
        elif self.bounds is not None:
            now = reading.ended + self.bounds.high
        # the service's clock has stepped back
        if now is None or at > now + slack or now < low:
            return "unsure"
        if at + WHOLE_MS < low:
            return "unsure" if at + cut_by(milliseconds) >= low else "before"
        if first.latest is None:  # of a restored journal
            return "unsure"
        high = first.latest + slack
        if at > high:
            return "after"
        return "band" if high - low <= self.policy.clock_band else "unsure"

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
        started = self.carried[0].earliest
        at = reading.stamp / 1000
        slack = self.policy.clock_slack
        if started is not None and at + slack < started:
            return False  # the service's clock has stepped back
        closed = [
            send.ended_from + send.window
            for send in self.carried
            if send.ended_from is not None
        ]
        return (
            len(closed) == len(self.carried)
            and at <= max(closed) + slack + self.policy.clock_band
        )

    @property
    def mixture(self) -> str | None:
        """A digest of the state in the last event, if that is a read of an update that is stored in part."""
        last = self.history[-1] if self.history else None
        if (
            not isinstance(last, Reading)
            or not self.in_doubt
            or last.started < self.over
        ):
            return None
        is_state = last.own_envelope and isinstance(last.seen, dict)
        wanted = (
            self.kind.visible(self.intent.body)
            if is_state and isinstance(self.intent.body, dict)
            else {}
        )
        if not is_part(differences(self.kind, wanted, self.baseline, last.seen)):
            return None
        return digest(wanted, last.seen)

    @property
    def is_overtaken(self) -> bool:
        """Whether a later write of this program to the same resource was sent; always false for a create."""
        return (
            self.resumed is not None
            and not self.kind.creates
            and self.resumed.newest is False
        )

    @cached_property
    def free_at(self) -> float:
        """
        The local time from which the next write to the same resource may be sent.

        From then on, this write can no longer take effect.  Even with the widest clock bounds, an effect of
        the next write has a later time than any of this one.

        Until then, a later process may attribute a new webhook to this create.  That process may not know
        that the sender had ended.  It then assumes that an attempt without an end took its whole timeout.
        """
        if not self.in_doubt:
            return float("-inf")
        widths = [
            each.high - each.low
            for each in (self.bounds, self.intent.bounds)
            if each is not None
        ]
        widths += [
            sent.latest - sent.earliest
            for sent in self.intent.sent
            if sent.latest is not None and sent.earliest is not None
        ]
        ends = [self.over]
        if self.resumed is not None and self.kind.creates:
            since = (
                self.resumed.at if self.resumed.since is None else self.resumed.since
            )
            since += self.window_of("long")
            ends += [
                since + sent.attempt_timeout
                for sent in self._stored_sends()
                if sent.end is None
            ]
        return (
            max(ends)
            + 2 * self.policy.clock_slack
            + max([self.policy.clock_band, *widths])
        )

    def earlier(self, reading: Reading) -> Iterator[Reading]:
        """Yield the readings before *reading* that show no state older than the first send."""
        since = self.sends[0].began + self.policy.reads_lag
        for event in self.history:
            if event is reading:
                return
            if isinstance(event, Reading) and event.started >= since:
                yield event

    def decayed(self, reading: Reading) -> bool:
        """Return whether the first send is so long ago, or its time unknown, that absence proves nothing."""
        if not self.carried:
            return reading.ended - self.attempts[0].started > self.policy.absence_within
        first = self.carried[0].earliest
        if first is None or self.bounds is None:
            return True
        return reading.ended + self.bounds.high - first > self.policy.absence_within


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
    scope = known.intent.scope
    # A running write is the newest to its resource, because it has its turn.
    newest = True if known.resumed is None else known.resumed.newest
    if livemode is not None and scope.livemode is None:
        scope = attrs.evolve(scope, livemode=livemode)
    # nothing is known yet
    if send is not None and not known.history and intent.baseline is None:
        about_to = _about_to(send, at, intent.bounds)
        return revised(
            intent, scope=scope, sent=(*intent.sent, about_to), newest=newest
        )
    bounds = known.bounds
    strangers = known.strangers
    forgotten_until = known.forgotten_until
    mixture = known.mixture or intent.mixture
    sent = [_sent(attempt, bounds) for attempt in known.attempts]
    if send is not None:
        sent.append(_about_to(send, at, bounds))
        last = known.history[-1] if known.history else None
        if isinstance(last, Reading):
            strangers |= known.shown_by(last)
            if known.shows_list(last) and not (known.carried or known.attempts):
                forgotten_until = None
    return revised(
        intent,
        scope=scope,
        baseline=known.before,
        baseline_at=known.before_at,
        bounds=bounds,
        sent=(*intent.sent, *sent),
        strangers=tuple(sorted(strangers)),
        forgotten_until=forgotten_until,
        newest=newest if known.history or send is not None else intent.newest,
        mixture=mixture,
    )


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
