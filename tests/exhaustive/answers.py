"""
List how an attempt can end and how a read can fail. What they prove is decided elsewhere.
"""

from __future__ import annotations

from typing import Any, Literal

import attrs

from invsvc_async.reconcile.history import Attempt, End, ErrorFacts, Reading

Window = Literal["short", "long"]


@attrs.frozen(kw_only=True)
class Ending:
    """One way for an attempt to end, and what it says about the effect."""

    code: int  # stands for it in a history's signature
    name: str
    end: End = End.ANSWERED
    status: int | None = None
    own: bool = True
    of_authentication: bool = False
    readable: bool = False
    bare: bool = False  # a success that shows no thing
    effect: Literal["yes", "no", "maybe"] = "no"
    window: Window | None = None  # in which it may still land
    took: float | None = 0.5  # s; None: the whole attempt timeout
    renewed: bool = False
    retry_after: float | None = None
    error: str | None = None

    def lasts(self, timeout: float) -> float:
        """Return the seconds that it takes."""
        return timeout if self.took is None else self.took

    def attempt(
        self, started: float, timeout: float, value: Any, stamp: int | None
    ) -> Attempt:
        """Make the attempt as the SDK sees it, *value* being the payload of a success."""
        facts = None
        if self.effect != "yes":
            facts = ErrorFacts(
                kind="ServiceError",
                message=self.name,
                status=self.status,
                code=self.error,
            )
        return Attempt(
            started=started, ended=started + self.lasts(timeout), end=self.end,
            status=self.status, readable=self.readable, own_envelope=self.own, error=facts,
            of_authentication=self.of_authentication,
            value=value if self.readable and not self.bare else None, stamp=stamp if self.own else None,
            retry_after=self.retry_after, token_renewed=self.renewed, timeout=timeout,
        )  # fmt: skip


def _doubt(code: int, name: str, window: Window = "long", **facts: Any) -> Ending:
    return Ending(code=code, name=name, effect="maybe", window=window, **facts)


OK = Ending(code=1, name="200", status=200, readable=True, effect="yes")
BARE = Ending(
    code=2,
    name="200 without the thing",
    status=200,
    readable=True,
    bare=True,
    effect="yes",
)
INVALID = Ending(code=3, name="400", status=400, error="validation_failed")
MISSING = Ending(code=4, name="404", status=404, error="resource_not_found")
CONFLICT = Ending(code=5, name="409", status=409, error="resource_conflict")
UNSENT = Ending(code=6, name="not sent", end=End.NOT_SENT, own=False, took=0.125)
LATE = Ending(code=30, name="the proof is old", end=End.NOT_SENT, own=False, took=0.0)
RENEWED = Ending(
    code=7,
    name="401, token renewed",
    status=401,
    own=False,
    of_authentication=True,
    renewed=True,
)
UNAUTHORIZED = Ending(code=8, name="401", status=401)
LIMITED = Ending(
    code=9,
    name="429, retry after",
    status=429,
    retry_after=1.0,
    error="rate_limit_exceeded",
)
CREDITS = Ending(
    code=10, name="429, credits", status=429, error="business_rule_violation"
)
ERROR = _doubt(11, "500", "short", status=500, error="internal_server_error")
GATEWAY_ERROR = _doubt(12, "500 of a gateway", status=500, own=False)
BAD_GATEWAY = _doubt(13, "502", status=502, own=False)
OWN_UNAVAILABLE = _doubt(14, "503", status=503, error="service_unavailable")
TIMEOUT = _doubt(15, "408", status=408)
GARBLED = _doubt(16, "200 unreadable", status=200, own=False)
REDIRECT = _doubt(17, "302", status=302, own=False)
RESET = _doubt(18, "reset", end=End.LOST, own=False)
HUNG = _doubt(19, "no answer", end=End.LOST, own=False, took=None)
GIVEN_UP = _doubt(27, "given up, because a read shows it", end=End.LOST, own=False)
CUT = _doubt(20, "cut after the head", end=End.LOST, status=200, own=False)
FORBIDDEN = _doubt(21, "403 of a gateway", status=403, own=False)
NOWHERE = _doubt(22, "404 of a gateway", status=404, own=False)
STALE = _doubt(23, "401 of a gateway", status=401, own=False)
THROTTLED = _doubt(24, "429 of a gateway", status=429, own=False, retry_after=1.0)
ACCEPTED = _doubt(25, "202", status=202, readable=True)
DISAPPEARED = Ending(code=26, name="410", status=410, error="resource_not_found")

FOREIGN_REFUSALS = (FORBIDDEN, NOWHERE, STALE, THROTTLED)
DOUBTS = (
    ERROR,
    GATEWAY_ERROR,
    BAD_GATEWAY,
    OWN_UNAVAILABLE,
    TIMEOUT,
    GARBLED,
    REDIRECT,
    RESET,
    HUNG,
    CUT,
    ACCEPTED,
)
REFUSALS = (INVALID, CONFLICT, UNAUTHORIZED, CREDITS)
ENDINGS = (OK, *REFUSALS, UNSENT, RENEWED, LIMITED, *DOUBTS)


@attrs.frozen(kw_only=True)
class Miss:
    """One way for a read to show nothing."""

    code: int
    name: str
    status: int | None = None
    own: bool = False
    took: float = 0.25

    def reading(self, started: float) -> Reading:
        """Make the reading as the SDK sees it."""
        return Reading(
            started=started, ended=started + self.took, status=self.status, own_envelope=self.own,
            error=ErrorFacts(kind="ServiceError", message=self.name, status=self.status),
        )  # fmt: skip


UNREAD = Miss(code=31, name="reset")
STALLED = Miss(code=32, name="no answer", took=5.0)
BROKEN = Miss(code=33, name="500", status=500, own=True)
FOREIGN = Miss(code=34, name="404 of a gateway", status=404)
NONSENSE = Miss(code=35, name="200 unreadable", status=200)
DENIED = Miss(code=36, name="403", status=403, own=True)
EXPIRED = Miss(code=37, name="401", status=401)
NO_READ = Miss(code=38, name="405", status=405, own=True)
NOT_SHOWN = Miss(code=39, name="404", status=404, own=True)

PASSING = (UNREAD, STALLED, BROKEN, FOREIGN, NONSENSE)  # a later read may succeed
