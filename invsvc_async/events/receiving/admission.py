"""
The pure decision whether a delivery is admitted, and the answer to it.

A forged event, an authentic one that cannot be parsed, and a well-formed one of an unknown type get three
different answers.
"""

from __future__ import annotations

import logging
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import attrs
import msgspec

from invsvc_async.errors import EventError, MalformedEventError, SignatureMismatchError, without_frames
from invsvc_async.events.event import SIGNATURE, Event, ResourceEvent, parse, says_test
from invsvc_async.events.verify import Secret, Trust, is_retired, unauthenticated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async.events.event import ByName, Event
    from invsvc_async.events.verify import Credential

__all__ = [
    "Admitted", "Outcome", "Receipt", "Unreadable", "judge", "refusal", "retired_match", "unavailable",
]  # fmt: skip

Outcome: TypeAlias = Literal[
    "handled", "stored", "duplicate", "ignored", "unknown", "test", "dead letter",
    "refused", "unreadable", "busy", "failed", "unavailable",
]  # fmt: skip

_log: Final = logging.getLogger("invsvc_async.events")
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


@attrs.frozen
class Receipt:
    """
    The answer to the sender, and the reason.

    ``status`` is the HTTP status; ``outcome`` is one word for it, safe to send as the body; ``event`` is the
    event, if it could be read; ``error`` is why it was refused; ``headers`` are those of the answer.

    An event that is ``handled`` or ``stored`` cannot be lost any more; a ``duplicate`` was one of these
    before.  An ``ignored`` event has no handler, and the type of an ``unknown`` one is not in the
    specification.  A ``dead letter`` is authentic but could not be read, and was stored.  ``busy`` (429),
    ``failed`` (500) and ``unavailable`` (503) make the service send a resource event again.

    Spec: Events, Delivery behavior.
    """

    status: int
    outcome: Outcome
    event: Event | None = None
    error: EventError | None = None
    headers: Mapping[str, str] = _NO_HEADERS


def unavailable(failure: Exception, event: Event | None = None) -> Receipt:
    """Return the answer that makes the sender come back, because the store is down."""
    _log.error("The event store failed: %s", type(failure).__name__, exc_info=failure)
    return Receipt(503, "unavailable", event, headers={"Retry-After": "5"})


class Admitted(msgspec.Struct, frozen=True, eq=False, gc=False):  # nothing refers back to it
    """
    An event to be handled; one sent ``as a test`` only by the handler of tests.

    ``sent`` says whether the service sends it again if it is not acknowledged; ``by`` is what authenticates
    it.
    """

    event: Event
    sent: Literal["once", "until acknowledged", "as a test"]
    by: Credential | None


class Unreadable(msgspec.Struct, frozen=True, eq=False):
    """An authentic body that is not an event."""

    error: MalformedEventError
    by: Credential


def judge(trust: Trust, body: bytes, headers: ByName, now: float) -> Admitted | Unreadable | Receipt:
    """Classify a delivery at *now*, in seconds since the epoch; a ``Receipt`` refuses it."""
    try:
        proof = trust.prove(body, headers, now)
    except SignatureMismatchError as error:
        return Receipt(401, "refused", error=without_frames(error))
    try:
        event = parse(body, None if proof else headers)
    except MalformedEventError as error:
        return (
            Unreadable(without_frames(error), proof)
            if proof
            else Receipt(400, "unreadable", error=without_frames(error))
        )
    is_signed, is_resource = isinstance(proof, Secret), isinstance(event, ResourceEvent)
    try:
        if proof is None or not (is_signed or is_resource):
            trust.admit(event, proof)
    except EventError as error:
        # Tests from the dashboard have no custom header; both body and headers must mark them.
        if not (event.body_says_test and says_test(headers)):
            return Receipt(401, "refused", event, without_frames(error))
    if event.is_test:
        return Admitted(event, "as a test", proof)
    again = is_resource and not is_signed
    return Admitted(event, "until acknowledged" if again else "once", proof)


def refusal(trust: Trust, headers: ByName, now: float) -> Receipt | None:
    """Return the refusal of what no body can authenticate, or ``None`` if the body has to be read."""
    if trust.keys and SIGNATURE in headers:
        return None
    try:
        proof = trust.prove(b"", headers, now)  # by a shared header: there is no signature, or no secret
    except SignatureMismatchError as error:
        return Receipt(401, "refused", error=error)
    is_open = trust.accept_unsigned and not (trust.keys and trust.shared_headers)
    if proof is not None or is_open or says_test(headers):
        return None
    return Receipt(401, "refused", error=unauthenticated(trust.shared_headers))


def retired_match(trust: Trust, body: bytes, headers: ByName, now: float) -> Credential | None:
    """Return what would have authenticated a refused delivery, if it were not retired."""
    keys = tuple(key for key in trust.keys if is_retired(key, now))
    shared = tuple(header for header in trust.shared_headers if is_retired(header, now))
    try:
        return Trust(keys, shared, accept_unsigned=False).prove(body, headers, 0.0)
    except SignatureMismatchError:
        return None
