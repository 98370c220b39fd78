"""
What was there before the first send of a write, as far as it is known.

Of an update or a delete that is the state of the thing (``StateBefore``).  Of a create it is the things that
could be mistaken for its effect, but were there before it (``StrangersBefore``).
"""

from __future__ import annotations

from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, TypeGuard

import attrs

from invsvc_async.reconcile.history import Attempt, Reading
from invsvc_async.reconcile.intent import NEVER_LISTED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.history import Event, History
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.kinds import WriteKind
    from invsvc_async.reconcile.write_clock import WriteClock


def readings_before_send(history: History) -> list[Reading]:
    """Return the readings before the first attempt of this process."""
    before = takewhile(lambda event: not isinstance(event, Attempt), history)
    return [event for event in before if isinstance(event, Reading)]


# --- of an update or a delete


@attrs.frozen
class StateBefore:
    """
    The last known state of the thing before the first send.

    ``state`` is in wire form, as an intent stores it: empty if the thing did not exist, ``None`` if nothing
    is known.  ``seen_at`` is the latest server time (s) at which it was so; ``None`` if that is not known.
    """

    state: Wire
    seen_at: float | None


def state_before(
    intent: Intent,
    kind: WriteKind,
    readings: Iterable[Reading],
    clock: WriteClock,
) -> StateBefore:
    """Return the state that *readings* have shown before the first send; else what *intent* has stored."""
    before: Wire = intent.baseline
    at = intent.baseline_at
    for reading in readings:
        state = _state_in(reading, kind)
        if state is not None:
            before = state
            _, at = clock.server_times(reading.ended)
    return StateBefore(before, at)


def _state_in(reading: Reading, kind: WriteKind) -> dict[str, Wire] | None:
    """Return the state of the thing in *reading*: empty if it is gone, ``None`` if that is not known."""
    if reading.status == 200 and isinstance(reading.seen, dict):
        seen = reading.seen.items()
        return {name: value for name, value in seen if name != "secret"}
    is_gone = reading.status == 404 and reading.own_envelope
    if is_gone and kind.needs_baseline:
        return {}
    return None


# --- of a create


@attrs.frozen
class StrangersBefore:
    """
    The strangers of a create: look-alikes that were known before a send, so none is its effect.

    They are those that its intent has stored (``Intent.strangers``), and those in lists just before a send.

    ``ids`` are theirs.  Things created up to the server time ``forgotten_until`` (ms) may be missing in them;
    ``None``: none is missing.
    """

    ids: frozenset[str]
    forgotten_until: int | None


def strangers_before(
    intent: Intent,
    kind: WriteKind,
    history: History,
    *,
    is_carried: bool,
) -> StrangersBefore:
    """Return what lists have shown just before a send.  *is_carried*: an earlier process has sent it."""
    shown = set(intent.strangers)
    for before, after in pairwise(history):
        if isinstance(after, Attempt):
            shown |= look_alikes_in(before, kind, intent.body)
    before_first = None if is_carried else _before_first_attempt(history)
    forgotten_until = forgotten_after(before_first, kind, intent.forgotten_until)
    return StrangersBefore(frozenset(shown), forgotten_until)


def forgotten_after(
    event: Event | None,
    kind: WriteKind,
    until: int | None,
) -> int | None:
    """
    Return ``forgotten_until``, which was *until*, after *event* just before the first send.

    A whole list lacks nothing.  One that is full may lack what was created before its answer.
    """
    if not shows_list(event, kind):
        return until
    if is_whole(event, kind):
        return None
    if until == NEVER_LISTED and event.stamp is not None:
        return event.stamp
    return until


def _before_first_attempt(history: History) -> Event | None:
    """Return the event just before the first attempt of this process, if there are both."""
    before = None
    for event in history:
        if isinstance(event, Attempt):
            return before
        before = event
    return None


def shows_list(event: Event | None, kind: WriteKind) -> TypeGuard[Reading]:
    """Return whether *event* is a reading that showed the list of what a create adds to."""
    if not kind.creates:
        return False
    if not isinstance(event, Reading):
        return False
    return isinstance(event.seen, list)


def is_whole(reading: Reading, kind: WriteKind) -> bool:
    """Return whether the list in *reading* surely lacks nothing: it is not full, nor says that it goes on."""
    return not reading.full and reading.raw_count < kind.most_listed


def look_alikes_in(
    event: Event | None,
    kind: WriteKind,
    body: Wire,
) -> set[str]:
    """Return the ids of what could be mistaken for the effect of a create, if *event* is a list."""
    if not shows_list(event, kind):
        return set()
    return kind.near(kind.ids_near(event.seen), body)
