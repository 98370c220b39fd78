"""
Hold what was seen of a write, and what it shows; never decide, read a clock or touch the network.

Every value here is plain: wire data (dicts, lists, texts, exact numbers), seconds of this machine's
steady clock, whole milliseconds of the service's clock.  So a history can be stored and replayed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

import attrs

from invsvc_async.reconcile.enums import Bounds, End, Verdict
from invsvc_async.settings import unpickles_older

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import Wire

__all__ = [
    "Absent",
    "Applied",
    "Attempt",
    "Bounds",
    "CannotTell",
    "Closed",
    "Decision",
    "Done",
    "End",
    "ErrorFacts",
    "Event",
    "Evidence",
    "Finding",
    "History",
    "Holds",
    "Read",
    "Reading",
    "Resumed",
    "Send",
    "Superseded",
    "Tick",
    "Verdict",
    "Wait",
]

T_co = TypeVar("T_co", covariant=True)


@attrs.frozen(kw_only=True)
class ErrorFacts:
    """What an error answer, or a failure, said, without its body."""

    kind: str  # the exception class's name
    message: str
    status: int | None = None
    code: str | None = None
    details: Wire = None


@attrs.frozen(kw_only=True, slots=False)  # with slots, a frozen class takes three times as long to fill
class Attempt:
    """One request of the write on the wire.  Times are of the local steady clock."""

    started: float
    ended: float
    end: End
    status: int | None = None  # also where only the head arrived: a hint, never evidence
    readable: bool = False  # a 2xx that says what the operation's answer must say
    own_envelope: bool = False  # the body was the service's own envelope (success or error)
    value: Wire = None  # the payload of a readable 2xx
    error: ErrorFacts | None = None
    stamp: int | None = None  # the envelope's timestamp, server ms
    retry_after: float | None = None
    token_renewed: bool = False  # after a 401 of the authentication layer, a fresh token was obtained
    timeout: float = 30.0  # what the attempt was given, s


@unpickles_older
@attrs.frozen(kw_only=True)
class Reading:
    """One look at the service's state, or a failed one.  Times are of the local steady clock."""

    started: float
    ended: float
    status: int | None = None  # None: no whole answer
    own_envelope: bool = False
    seen: Wire = None  # a thing, or a list of things, as on the wire; None where there is none
    raw_count: int = 0  # items of a list as counted before conversion
    full: bool = False  # the list may be cut off
    stamp: int | None = None
    claimed_by_others: frozenset[str] = frozenset()  # ids that answers gave to other writes: certainly theirs
    guessed: frozenset[str] = frozenset()  # ids that other writes took by a match: perhaps theirs
    finding: Finding | None = None  # of a reader of the caller's own
    error: ErrorFacts | None = None  # why it failed


@attrs.frozen
class Tick:
    """Time passed: it is now *at*."""

    at: float


@unpickles_older
@attrs.frozen(kw_only=True)
class Resumed:
    """
    A process took the write up again: only the intent's ``sent`` (server times) carries over.

    ``journaled``: the intent comes from a journal that stored every send, so an empty ``sent`` proves that
    nothing left. ``sender_gone``: whoever sent it is provably dead, so no request of it can still leave.
    ``since``: when that was known, if before *at*.
    ``newest``: whether it is the newest write of this program to its thing; ``None`` if that is not known.
    ``reads_only``: the write is settled, and must not be sent.
    """

    at: float
    journaled: bool = False
    sender_gone: bool = False
    since: float | None = None
    newest: bool | None = None
    reads_only: bool = False


@attrs.frozen
class Closed:
    """The client was closed: no request can follow."""

    at: float


Event: TypeAlias = Attempt | Reading | Tick | Resumed | Closed
History: TypeAlias = tuple[Event, ...]


@attrs.frozen
class Applied(Generic[T_co]):
    """The state shows the write.  ``duplicates``: further effects of it; ``None`` where that is not known."""

    value: T_co
    duplicates: tuple[Wire, ...] | None = ()


@attrs.frozen
class Holds(Generic[T_co]):
    """The state is as wanted, but not provably by us."""

    value: T_co


@attrs.frozen
class Absent:
    """The state shows that the write has not happened."""


@attrs.frozen
class Superseded:
    """Somebody else has changed the thing since."""

    reason: str


@attrs.frozen
class CannotTell:
    """The read cannot tell; *candidates* could be ours."""

    reason: str
    candidates: tuple[Wire, ...] = ()


Finding: TypeAlias = Applied[Any] | Holds[Any] | Absent | Superseded | CannotTell  # Any: wire data

Basis: TypeAlias = Literal[
    "answered", "tag", "match", "equal", "last_updated", "baseline", "absence", "gone", "reader",
    "never sent", "none",
]  # fmt: skip


@attrs.frozen(kw_only=True)
class Evidence:
    """On which basis a verdict stands."""

    basis: Basis
    read_at: float | None = None  # start of the read that showed it, local s
    window_until: float | None = None  # when the write could land at the latest, local s; None: no window
    candidates: tuple[Wire, ...] = ()
    duplicates: tuple[Wire, ...] | None = ()  # None: not known


@attrs.frozen(kw_only=True)
class Done:
    """Settled: *verdict*, because of *reason*."""

    verdict: Verdict
    reason: str
    value: Wire = None
    evidence: Evidence


@attrs.frozen(kw_only=True)
class Read:
    """Look at the service's state, now."""

    reader: str
    why: str


@attrs.frozen
class Wait:
    """Let *seconds* pass, then ask again with a Tick."""

    seconds: float


@attrs.frozen(kw_only=True)
class Send:
    """
    Send the request, now.

    ``not_after`` (local s) is the end of the proof that allows a re-send (``None`` for a first one): the
    transport refuses a later send as NOT_SENT.
    """

    not_after: float | None = None
    attempt_timeout: float


Decision: TypeAlias = Done | Read | Wait | Send
