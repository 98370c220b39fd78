"""
The events of a write, the findings of reads, and the decisions that follow.

All values are plain, so a history can be stored and replayed: wire data (dicts, lists, strings, exact
numbers), seconds of this machine's monotonic clock, and whole milliseconds of the service's clock.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeAlias, TypeVar

import attrs

from invsvc_async.codec.exact_json import Wire  # noqa: TC001 - cattrs resolves the annotations
from invsvc_async.reconcile.enums import End, Verdict
from invsvc_async.reconcile.safety import SafetySettings  # noqa: TC001 - the same

__all__ = [
    "FINDINGS",
    "Absent",
    "Applied",
    "Attempt",
    "Bounds",
    "CannotTell",
    "Cause",
    "Closed",
    "Decision",
]
__all__ += [
    "Done",
    "End",
    "ErrorFacts",
    "Event",
    "Evidence",
    "Finding",
    "History",
    "Holds",
    "Partly",
]
__all__ += [
    "PersonFinding",
    "Read",
    "Reading",
    "Resumed",
    "Secret",
    "Send",
    "Superseded",
    "Tick",
    "Verdict",
]
__all__ += ["Wait"]

T_co = TypeVar("T_co", covariant=True)


@attrs.frozen(kw_only=True)
class Bounds:
    """Bounds of the service's clock minus this machine's monotonic clock, in seconds."""

    low: float
    high: float


@attrs.frozen(kw_only=True)
class ErrorFacts:
    """The facts of an error answer or a failure, without the body."""

    kind: str  # the exception class's name
    message: str
    status: int | None = None
    code: str | None = None


@attrs.frozen(kw_only=True)
class Attempt:
    """One request of the write.  Times are of the local monotonic clock."""

    started: float
    ended: float
    end: End
    # also if only the head arrived, but then it is not evidence
    status: int | None = None
    # a 2xx with the content that the operation's answer must have
    readable: bool = False
    # the body was the service's own envelope (success or error)
    own_envelope: bool = False
    # it was the body of the service's authentication layer
    of_authentication: bool = False
    value: Wire = None  # the payload of a readable 2xx
    error: ErrorFacts | None = None
    stamp: int | None = None  # the envelope's timestamp, server ms
    retry_after: float | None = None
    # after a 401 of the authentication layer, a fresh token was obtained
    token_renewed: bool = False
    timeout: float = 30.0  # s


@attrs.frozen(kw_only=True)
class Reading:
    """One read of the service's state, or a failed one.  Times are of the local monotonic clock."""

    started: float
    ended: float
    status: int | None = None  # None: no complete answer
    own_envelope: bool = False
    seen: Wire = None  # the resource, or the list of resources, in wire form; None if there is none
    raw_count: int = 0  # items of a list, counted before conversion
    full: bool = False  # the list may be incomplete
    stamp: int | None = None
    # No answer to this client showed that the service's clock was set since the write began.
    steady: bool = True
    # ids in answers to other writes: certainly theirs
    claimed_by_others: frozenset[str] = frozenset()
    # ids that other writes matched, or of their URLs: perhaps theirs
    guessed: frozenset[str] = frozenset()
    # By field: the characters of the longest text that reads of this client showed in such things.
    longest_texts: dict[str, int] = attrs.field(factory=dict)
    finding: Finding | None = None  # of a user-supplied reader
    # Of the service's clock, as this client knows it after such a reader, which shows no stamp.
    bounds: Bounds | None = None
    error: ErrorFacts | None = None  # why it failed


@attrs.frozen
class Tick:
    """Time passed: it is now *at*."""

    at: float


@attrs.frozen(kw_only=True)
class Resumed:
    """
    The write was taken up from its intent, by ``settle``, ``resume``, ``recover``, a batch or an outbox.

    Of the run before, in this process or another, only the intent's ``sent`` (server times) carries over.

    ``journaled``: the intent is from a journal that stored every send, so without ``sent`` nothing was sent.
    ``sender_gone``: the sending process has provably ended, so no request of it can still be sent.
    ``since``: when that became known, if before *at*.
    ``newest``: whether it is the newest write of this program to its resource; ``None`` if not known.
    ``reads_only``: the write is only settled, and must not be sent.
    ``first_sent``: when this client itself began the first send of it, if it did.
    ``safety``: by what the write is judged once this run has sent it, if not as before.
    """

    at: float
    journaled: bool = False
    sender_gone: bool = False
    since: float | None = None
    newest: bool | None = None
    reads_only: bool = False
    first_sent: float | None = None
    safety: SafetySettings | None = None

    @property
    def is_place_known(self) -> bool:
        """Whether ``newest`` is false if a later write to its resource was sent."""
        return self.journaled or self.newest is not None


@attrs.frozen
class Closed:
    """The client was closed, so no request can follow."""

    at: float


Event: TypeAlias = Attempt | Reading | Tick | Resumed | Closed
History: TypeAlias = tuple[Event, ...]


@attrs.frozen
class Applied(Generic[T_co]):
    """The state shows the write.  ``duplicates`` are its further effects; ``None`` if not known."""

    value: T_co
    duplicates: tuple[Wire, ...] | None = ()


@attrs.frozen
class Holds(Generic[T_co]):
    """The state matches the write, but another write may have caused it."""

    value: T_co


@attrs.frozen
class Absent:
    """The state shows that the write has not happened."""


@attrs.frozen
class Superseded:
    """Somebody else has changed the resource since."""

    reason: str


@attrs.frozen
class Partly:
    """
    The state shows a part of an update; its other fields are as before.

    ``shown`` is a digest of what the fields that were sent show.  No user-supplied reader returns this.
    """

    reason: str
    shown: str


# Why a write is not applied, or not known to be, as a code: reports group by it, and choose their advice.
_NotSent: TypeAlias = Literal[
    "never left",
    "not sent again",
    "overtaken",
    "perhaps overtaken",
    "only read",
    "client closed",
]
_NoRead: TypeAlias = Literal[
    "no read", "read refused", "out of time", "list full", "reader"
]
_NoProof: TypeAlias = Literal[
    "may be published", "not visible", "no baseline", "candidates", "too long ago"
]
_Changed: TypeAlias = Literal["changed since", "gone", "perhaps undone"]
_Stored: TypeAlias = Literal["other words", "in part"]
Cause: TypeAlias = Literal[
    "absent", "person", _NotSent, _NoRead, _NoProof, _Changed, _Stored
]


@attrs.frozen
class CannotTell:
    """The read is not conclusive.  *candidates* may be effects of the write."""

    reason: str
    candidates: tuple[Wire, ...] = ()
    cause: Cause = "reader"


# Any: wire data
Finding: TypeAlias = Applied[Any] | Holds[Any] | Absent | Superseded | CannotTell
FINDINGS = (Applied, Holds, Absent, Superseded, CannotTell)

# who has a webhook's
Secret: TypeAlias = Literal["returned", "delivered", "not stored", "lost"]

_ByRead: TypeAlias = Literal[
    "tag", "match", "equal", "last_updated", "baseline", "absence", "gone", "reader"
]
Basis: TypeAlias = Literal["answered", "never sent", "none", "person", _ByRead]


@attrs.frozen(kw_only=True)
class PersonFinding:
    """
    What a person has found out about a write.

    - ``by``: who it was.
    - ``at``: when it was stored, in epoch ms, by the clock of the store.
    - ``because``: how that person knows.
    """

    by: str
    at: int
    because: str


@attrs.frozen(kw_only=True)
class Evidence:
    """
    The evidence for a verdict.

    ``basis`` is how it was found:

    - ``"answered"``: the service said so. ``"never sent"``: no request left.
    - ``"tag"``, ``"match"``: a listed thing has the tag of the create, or equals it.
    - ``"equal"``: the thing is as wanted. ``"absence"``: a read after the settle window does not show the
      write. ``"gone"``: the thing is not there any more.
    - ``"baseline"``: the thing shows neither the write nor its state before, which is known.
      ``"last_updated"``: the state before is not known, but the thing was changed after the send, as its time
      or two reads show.
    - ``"reader"``: a user-supplied reader. ``"person"``: somebody who has looked.
    - ``"none"``: it is not known.

    ``cause`` is a code for the reason why it is not APPLIED or REFUSED. ``person`` has who found it out, when
    and how, if the basis is ``"person"``.
    """

    basis: Basis
    read_at: float | None = None  # start of the read that showed it, local s
    # end of the settle window, local s; None: no window
    window_until: float | None = None
    candidates: tuple[Wire, ...] = ()
    duplicates: tuple[Wire, ...] | None = ()  # None: not known
    cause: Cause | None = None
    person: PersonFinding | None = None


@attrs.frozen(kw_only=True)
class Done:
    """The write is settled: *verdict*, because of *reason*."""

    verdict: Verdict
    reason: str
    value: Wire = None
    evidence: Evidence


@attrs.frozen(kw_only=True)
class Read:
    """Read the service's state, now."""

    reader: str
    why: str


@attrs.frozen
class Wait:
    """Wait for *seconds*, then decide again after a Tick."""

    seconds: float


@attrs.frozen(kw_only=True)
class Send:
    """
    Send the request, now.

    ``not_after`` (local s) is when the proof that allows a re-send expires: the transport does not send later
    (NOT_SENT).  It is ``None`` for a first send.
    """

    not_after: float | None = None
    attempt_timeout: float


Decision: TypeAlias = Done | Read | Wait | Send
