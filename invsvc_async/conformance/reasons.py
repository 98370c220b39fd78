"""
Whether the reason that was given for a verdict is true, by the service's ledger.

A verdict may be right for a wrong reason: a write that did not happen and is told as "overtaken by a newer
write", where there was none, is dropped for nothing.  Each basis and each cause has a condition here, which
needs the ledger alone.  All judges use these, in this package and in its tests.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final

import attrs

from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from invsvc_async.batch.result import Result
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.simulator import Entry

TICK: Final = 0.02  # s: tolerance, since some systems advance the monotonic clock in steps of 16 ms
AMBIGUOUS_FROM: Final = 500
TIMED_OUT: Final = 408
OVERTAKEN: Final = "a newer write of this program to the same resource was sent"
SOMEBODY: Final = "somebody else changed"
SEEN_BEFORE: Final = "since its state before this one was seen"
MAY_HAVE: Final = "may have changed it"  # whoever says so knows that nothing may have

if TYPE_CHECKING:
    Condition: TypeAlias = Callable[["Told", "Happened"], "str | None"]


class UnknownReasonError(ValueError):
    """A basis or a cause that has no condition yet."""


@attrs.frozen(kw_only=True)
class Told:
    """
    A verdict and the reason given for it; what is ``None`` was not told.

    ``at`` is when it was heard, and ``read_at`` when the read began on which it rests, in seconds of the
    ledger's clock.  ``status`` is that of the answer by which a write was refused, ``made`` the id of what a
    create made.  ``overtaken`` says so beside any cause; what was read from a store has no times.
    Then it may have been so at any time since it was ``asked`` for.
    """

    verdict: Verdict
    basis: str | None = None
    cause: str | None = None
    words: str = ""
    at: float = inf
    read_at: float | None = None
    status: int | None = None
    made: str | None = None
    duplicates: tuple[str, ...] | None = None
    overtaken: bool = False
    has_times: bool = True
    asked: float = inf

    @classmethod
    def of(
        cls,
        outcome: Outcome[Any],
        *,
        at: float = inf,
        ahead: float = 0.0,
    ) -> Told:  # Any: of any operation
        """Return what *outcome* tells; its times are *ahead* seconds ahead of the ledger's."""
        evidence = outcome.evidence
        is_create = outcome.started_as.operation.endswith(".create")
        duplicates = None
        if is_create and evidence.duplicates is not None:
            duplicates = tuple(map(_id_of, evidence.duplicates))
        read_at = evidence.read_at
        if read_at is not None:
            read_at -= ahead
        return cls(
            verdict=outcome.verdict,
            basis=evidence.basis,
            cause=evidence.cause,
            words=outcome.message,
            at=at,
            read_at=read_at,
            status=getattr(outcome.error, "status", None),
            made=_made(outcome.value),
            duplicates=duplicates,
            has_times=bool(outcome.history),
        )

    @classmethod
    def of_result(cls, result: Result, *, at: float = inf) -> Told:
        """Return what the *result* of a batch tells.  It has no times."""
        return cls(
            verdict=result.verdict,
            basis=result.basis or None,
            cause=result.cause,
            words=result.message,
            at=at,
            status=result.status,
            made=result.thing,
            duplicates=result.duplicates or None,
            overtaken=result.overtaken,
            has_times=False,
        )


def _made(value: Any) -> str | None:  # Any: wire data or a model
    """Return the id in the value of an outcome; ``None`` without one."""
    is_wire = isinstance(value, dict)
    known_as = value.get("id") if is_wire else getattr(value, "id", None)
    if isinstance(known_as, str):
        return known_as
    return None


def _id_of(thing: Any) -> str:  # Any: wire data or a model
    if isinstance(thing, dict):
        return str(thing["id"])
    return str(thing.id)


@attrs.frozen(kw_only=True)
class Happened:
    """
    The facts that the ledger shows about a write; times are in seconds of the ledger's clock.

    ``sends`` are its own requests; ``newer`` is when newer writes of the program to the same thing arrived,
    or may have; ``others`` is when somebody else changed the thing, also before the first send, and
    ``siblings`` when other writes of the program did, and ``since_seen`` when any other write did before the
    first send, and after the state that the program took for the one before it; ``states`` what the thing was
    since the first send, and ``wanted`` the fields that were sent.
    ``window`` is the shortest time after a lost answer in which an effect may still come.  A service that
    *echoes* answers with what was sent, so what is there may be in other words since an earlier write.
    """

    sends: Sequence[Entry] = ()
    newer: Sequence[float] = ()
    others: Sequence[float] = ()
    siblings: Sequence[float] = ()
    since_seen: Sequence[float] = ()
    states: Sequence[Mapping[str, Any] | None] = ()
    wanted: Mapping[str, Any] | None = None
    since: float = -inf
    window: float = 0.0
    echoes: bool = False

    def arrived(self, until: float) -> list[Entry]:
        """Return its requests that had arrived by *until*."""
        return [each for each in self.sends if each.received_at <= until + TICK]

    def effects(self, until: float) -> list[Entry]:
        """Return its requests that had their effect by *until*."""
        return [each for each in self.sends if _had_effect(each, until)]


def _had_effect(entry: Entry, until: float) -> bool:
    return entry.applied_at is not None and entry.applied_at <= until + TICK


def contradiction(told: Told, happened: Happened) -> str | None:
    """
    Return why the ledger contradicts the reason that was told, or ``None``.

    Raises:
        UnknownReasonError: The basis or the cause has no condition.
    """
    if told.basis is not None and told.basis not in BASES:
        raise UnknownReasonError(
            f"basis: {told.basis!r} has no condition. Add it to BASES"
        )
    if told.cause is not None and told.cause not in CAUSES:
        raise UnknownReasonError(
            f"cause: {told.cause!r} has no condition. Add it to CAUSES"
        )
    checks: list[Condition] = [_words, _duplicates]
    if told.basis is not None:
        checks.append(BASES[told.basis])
    if told.cause is not None:
        checks.append(CAUSES[told.cause])
    for check in checks:
        why = check(told, happened)
        if why is not None:
            return why
    return None


def _words(told: Told, happened: Happened) -> str | None:
    """Check what the message says of others."""
    if told.overtaken or OVERTAKEN in told.words:
        return _overtaken(told, happened)
    if SOMEBODY in told.words and not _others_acted(told, happened):
        return "told that somebody else changed it, and nobody else did"
    return None


def _duplicates(told: Told, happened: Happened) -> str | None:
    """Check that duplicates are exactly the further effects."""
    if told.verdict is not Verdict.APPLIED:
        return None
    if told.duplicates is None or told.made is None:
        return None
    named = set(told.duplicates)
    if told.made in named:
        return f"told {told.made}, which is its own, as its duplicate"
    if len(named) < len(told.duplicates):
        return "named a duplicate twice"
    return _wrong_duplicates(told, named, happened)


def _wrong_duplicates(
    told: Told,
    named: set[str],
    happened: Happened,
) -> str | None:
    """Return how *named* differs from the further effects."""
    looked = told.at if told.read_at is None else told.read_at
    further = {each.target for each in happened.effects(looked)} - {told.made}
    missing = further - named
    if missing:
        return f"its duplicates lack {', '.join(sorted(map(str, missing)))}"
    strange = named - {each.target for each in happened.sends}
    if strange:
        return (
            f"its duplicates name {', '.join(sorted(strange))}, which it did not make"
        )
    return None


def _answered(told: Told, happened: Happened) -> str | None:
    arrived = happened.arrived(told.at)
    answers = [each.answered for each in arrived if each.answered is not None]
    if told.verdict is Verdict.APPLIED:
        if any(200 <= status < 300 for status in answers):
            return None
        return "told as answered with success, and no request of it was"
    refusals = [status for status in answers if 400 <= status < AMBIGUOUS_FROM]
    was_refused = bool(refusals) if told.status is None else told.status in refusals
    if was_refused:
        return None
    answer = told.status or "with a refusal"
    return f"told as answered {answer}, and no request of it was"


def _never_sent(told: Told, happened: Happened) -> str | None:
    arrived = len(happened.arrived(told.at))
    if not arrived:
        return None
    return f"told as never sent, and {arrived} requests of it had arrived"


def _absence(told: Told, happened: Happened) -> str | None:
    """Check that a read after all windows showed none."""
    if told.read_at is None:
        if told.has_times:
            return "told as absent, and no read is named"
        return _none_yet(told, happened)
    doubtful = [each for each in happened.arrived(told.at) if _is_doubtful(each)]
    # It ended for the client after it had arrived.
    over = max((each.received_at + happened.window for each in doubtful), default=-inf)
    if told.read_at < over - TICK:
        return f"told as absent by a read {over - told.read_at:.3f} s before the windows were over"
    effects = len(happened.effects(told.read_at))
    if not effects:
        return None
    return f"told as absent by a read, and {effects} effects of it had happened"


def _none_yet(told: Told, happened: Happened) -> str | None:
    """Check that nothing had happened when the verdict, which has no times, was asked for."""
    effects = happened.effects(told.at)
    before = sum(each.received_at < told.asked for each in effects)
    if not before:
        return None
    return f"told as absent, and {before} effects of it had happened"


def _is_doubtful(entry: Entry) -> bool:
    status = entry.answered
    return status is None or status >= AMBIGUOUS_FROM or status == TIMED_OUT


def _overtaken(told: Told, happened: Happened) -> str | None:
    if _is_any_by(told.at, happened.newer):
        return None
    return "told as overtaken by a newer write that was sent, and none had arrived"


def _is_any_by(until: float, moments: Sequence[float]) -> bool:
    """Return whether something happened by *until*, given its *moments*."""
    return any(at <= until + TICK for at in moments)


def _changed(told: Told, happened: Happened) -> str | None:
    """Check that somebody else acted; for what is unknown, another write of the program will do."""
    if _others_acted(told, happened):
        return None
    if told.verdict is Verdict.SUPERSEDED:
        return "told as changed by somebody else, and nobody else changed it"
    if MAY_HAVE in told.words or _is_any_by(told.at, happened.newer):
        return None
    if _acted(happened.siblings, told, happened):
        return None
    if SEEN_BEFORE in told.words and happened.since_seen:
        return None
    return "told as changed by another write, and there was none"


def _gone(told: Told, happened: Happened) -> str | None:
    if told.verdict is Verdict.APPLIED:
        return None
    if not happened.states or None in happened.states:
        return None
    return "told as gone, and it was there all the time"


def _others_acted(told: Told, happened: Happened) -> bool:
    """
    Return whether somebody else changed the thing when it is told that somebody did.

    An unknown write is told that the thing was changed since its state before the write was seen, which may
    be long before the send.
    """
    if told.verdict is Verdict.UNKNOWN:
        return _is_any_by(told.at, happened.others)
    return _acted(happened.others, told, happened)


def _acted(
    moments: Sequence[float],
    told: Told,
    happened: Happened,
) -> bool:
    return any(happened.since - TICK <= at <= told.at + TICK for at in moments)


def _in_part(told: Told, happened: Happened) -> str | None:
    if happened.echoes or _is_any_stored(("in part",), told, happened):
        return None
    if _is_mixed(happened) or happened.since_seen:
        return None
    return "told as stored in part, and it never was"


def _is_any_stored(
    how: tuple[str, ...],
    told: Told,
    happened: Happened,
) -> bool:
    """Return whether the service has stored an effect of the write in one of these ways."""
    return any(each.stored in how for each in happened.effects(told.at))


def _is_mixed(happened: Happened) -> bool:
    """Return whether a state had some fields as wanted and some not, by whatever writes."""
    wanted = happened.wanted or {}
    for state in happened.states:
        if state is None:
            continue
        equal = [state.get(name) == value for name, value in wanted.items()]
        if any(equal) and not all(equal):
            return True
    return False


def _other_words(told: Told, happened: Happened) -> str | None:
    if happened.echoes or MAY_HAVE in told.words:
        return None
    if _is_any_stored(("other words", "in part"), told, happened):
        return None
    others = [*happened.others, *happened.siblings]
    if happened.since_seen or _acted(others, told, happened):
        return None
    return "told as stored in other words, and it never was"


def _no_condition(_told: Told, _happened: Happened) -> str | None:
    return None


def _by_change(told: Told, happened: Happened) -> str | None:
    if told.verdict is Verdict.SUPERSEDED:
        return _changed(told, happened)
    return None


BASES: Final[Mapping[str, Condition]] = {
    "answered": _answered,
    "never sent": _never_sent,
    "absence": _absence,
    "baseline": _by_change,
    "gone": _gone,
    "none": _no_condition,  # an unknown write, whose cause says why
    "person": _no_condition,  # what somebody saw is not in a ledger
    "reader": _no_condition,  # the caller's own
    # How a write that is told as applied was recognised: whether it happened is for the judge of verdicts.
    "tag": _no_condition,
    "match": _no_condition,
    "equal": _no_condition,
    "last_updated": _by_change,
}
CAUSES: Final[Mapping[str, Condition]] = {
    "absent": _absence,
    "never left": _never_sent,
    "overtaken": _overtaken,
    "changed since": _changed,
    "gone": _gone,
    "in part": _in_part,
    "other words": _other_words,
    # About the client, its reads or its settings, which the ledger does not show.
    "not sent again": _no_condition,
    "perhaps overtaken": _no_condition,
    "only read": _no_condition,
    "client closed": _no_condition,
    "no read": _no_condition,
    "read refused": _no_condition,
    "out of time": _no_condition,
    "list full": _no_condition,
    "person": _no_condition,  # what somebody saw is not in a ledger
    "reader": _no_condition,
    "may be published": _no_condition,
    "not visible": _no_condition,
    "no baseline": _no_condition,
    "candidates": _no_condition,
    "too long ago": _no_condition,
    "perhaps undone": _no_condition,
}
