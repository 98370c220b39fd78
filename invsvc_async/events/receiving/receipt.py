"""Hold the answer to one delivery; never decide it."""

from __future__ import annotations

import logging
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async._errors import EventError
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
    What to answer the sender, and why.

    ``status`` is the HTTP status; ``outcome`` one word for it, safe to send as the body; ``event`` what was
    read, where it could be; ``error`` why it was refused; ``headers`` go with the answer.

    ``handled`` and ``stored`` are safe now, ``duplicate`` was so before.  An ``ignored`` one has no handler,
    and an ``unknown`` one is not even in the specification.  A ``dead letter`` is authentic, could not be
    read, and was kept.  ``busy`` (429), ``failed`` (500) and ``unavailable`` (503) make the service send a
    resource event again.

    Spec: Events, Delivery behavior.
    """

    status: int
    outcome: Outcome
    event: Event | None = None
    error: EventError | None = None
    headers: Mapping[str, str] = _NO_HEADERS


def unavailable(failure: Exception, event: Event | None = None) -> Receipt:
    """Ask the sender to come back, for the store is down."""
    _log.error("The store of events fails: %s", type(failure).__name__, exc_info=failure)
    return Receipt(503, "unavailable", event, headers={"Retry-After": "5"})
