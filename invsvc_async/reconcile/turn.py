"""
Other writes of this program to the same resource, seen from one write: before it, and after it.

A running write locks its resource until its settle windows are over: it has its *turn*. What a write that
another process has begun knows of the turn is in ``Resumed``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.reconcile.settle_windows import waited_from

if TYPE_CHECKING:
    from collections.abc import Iterator

    from invsvc_async.reconcile.facts import Known
    from invsvc_async.reconcile.history import Reading


def is_newest(known: Known, reading: Reading) -> bool:
    """
    Return whether no later write of this program can have changed the resource before *reading*.

    A running write locks its resource until its settle windows are over.  ``Resumed.newest`` states this
    for a resumed write.  Without that, it is certain only while its sender kept the lock.
    """
    if known.resumed is None:
        return True
    if known.resumed.newest is not None:
        return known.resumed.newest
    if reading.stamp is None:
        return False
    if not known.windows.carried:
        return False
    if any(sent.is_lost for sent in known.intent.sent):
        return False  # of a restored journal, which may lack later sends as well
    return _is_in_turn(known, reading.stamp / 1000)


def _is_in_turn(known: Known, at: float) -> bool:
    """
    Return whether the sender of the carried sends still had its turn at the server time *at* (s).

    That it has died meanwhile, and its next process has written to the thing, is not known here.  Where
    that process has the same journal, it keeps the turn of what was left open; without one, it is assumed
    not to write to the thing within the windows.  All that is by the policy of that sender.
    """
    policy = known.intent.policy
    slack = policy.clock_slack
    carried = known.windows.carried
    started = carried[0].earliest
    if started is not None and at + slack < started:
        return False  # the service's clock has stepped back
    closed = [
        send.ended_from + known.windows.window_of(send.kind, policy)
        for send in carried
        if send.ended_from is not None
    ]
    if len(closed) < len(carried):
        return False
    return at <= max(closed) + slack + policy.clock_band


def is_overtaken(known: Known) -> bool:
    """Return whether a later write of this program to the same resource was sent; never so for a create."""
    if known.resumed is None:
        return False
    if known.kind.creates:
        return False
    return known.resumed.newest is False


def free_at(known: Known) -> float:
    """
    Return the local time from which the next write to the same resource may be sent.

    From then on, this write can no longer take effect.  Even with the widest clock bounds, an effect of
    the next write has a later time than any of this one.  The time is::

        end of the last window + 2 * slack + uncertainty

    - The end is that for this process, or for a later one that knows less (``_ends_for_later_process``).
    - When the two writes are compared, each of them allows for one slack.
    - The uncertainty is that of the start of a send, for the process that knows it worst: the widest of the
      clock bounds, and at least the band in which two times count as one.
    """
    if not known.in_doubt:
        return float("-inf")
    uncertain = max([known.policy.clock_band, *_widths_of_bounds(known)])
    ends = [known.windows.over, *_ends_for_later_process(known)]
    return max(ends) + 2 * known.policy.clock_slack + uncertain


def _widths_of_bounds(known: Known) -> Iterator[float]:
    """Yield how wide the clock bounds are with which this write may be judged, in seconds."""
    intent = known.intent
    for bounds in (known.clock.bounds, intent.bounds):
        if bounds is not None:
            yield bounds.high - bounds.low
    for sent in intent.sent:
        if sent.latest is not None and sent.earliest is not None:
            yield sent.latest - sent.earliest


def _ends_for_later_process(known: Known) -> list[float]:
    """
    Return when each send is over for a later process, unaware that the sender has ended.

    That process assumes that an attempt without an end took its whole timeout, and until then attributes a
    new thing to a create.  Only creates attribute what is new; and only of a resumed write are there stored
    sends without an end: a run that was not resumed has seen the end of each of its attempts.
    """
    resumed = known.resumed
    if resumed is None:
        return []
    if not known.kind.creates:
        return []
    windows = known.windows
    since = waited_from(resumed) + windows.window_of("long")
    return [
        since + sent.attempt_timeout
        for sent in windows.stored_sends(resumed)
        if sent.end is None
    ]
