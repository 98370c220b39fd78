"""The answer to one delivery."""

from __future__ import annotations

import logging
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async.errors import EventError
    from invsvc_async.events.event import Event

__all__ = ["Outcome", "Receipt", "unavailable"]

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
