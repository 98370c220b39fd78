"""
The pure decision whether a delivery is admitted.

A forged event, an authentic one that cannot be parsed, and a well-formed one of an unknown type get three
different answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from invsvc_async._errors import EventError, MalformedEventError, SignatureMismatchError
from invsvc_async.events.event import Event, ResourceEvent
from invsvc_async.events.headers import kept
from invsvc_async.events.parse import parse, says_test
from invsvc_async.events.receiving.receipt import Receipt
from invsvc_async.events.verify import Key, SharedHeader, admit, prove

if TYPE_CHECKING:
    from invsvc_async.events.headers import Headers

__all__ = ["Admitted", "Trust", "Unreadable", "key_of"]


@attrs.frozen
class Admitted:
    """
    An event to be handled; one sent ``as a test`` only by the handler of tests.

    ``sent`` says whether the service sends it again if it is not acknowledged.
    """

    event: Event
    sent: Literal["once", "until acknowledged", "as a test"]


@attrs.frozen
class Unreadable:
    """An authentic body that is not an event."""

    error: MalformedEventError


@attrs.frozen
class Trust:
    """What authenticates events: the arguments of ``events.read``, checked."""

    keys: tuple[Key, ...]
    shared_headers: tuple[SharedHeader, ...]
    accept_unsigned: bool

    def judge(self, body: bytes, headers: Headers | None) -> Admitted | Unreadable | Receipt:
        """Classify a delivery; a ``Receipt`` refuses it."""
        unsigned, headers = self.accept_unsigned, kept(headers)
        try:
            proof = prove(body, headers, self.keys, self.shared_headers, accept_unsigned=unsigned)
        except SignatureMismatchError as error:
            return Receipt(401, "refused", error=error)
        try:
            event = parse(body, None if proof else headers)
        except MalformedEventError as error:
            return Unreadable(error) if proof else Receipt(400, "unreadable", error=error)
        try:
            admit(event, proof, self.keys, self.shared_headers, accept_unsigned=unsigned)
        except EventError as error:
            # Tests from the dashboard have no custom header; both body and headers must mark them.
            if not (event.body_says_test and says_test(headers)):
                return Receipt(401, "refused", event, error)
        if event.is_test:
            return Admitted(event, "as a test")
        again = isinstance(event, ResourceEvent) and proof != "signature"
        return Admitted(event, "until acknowledged" if again else "once")


def key_of(event: Event) -> str | None:
    """
    Return the key under which a store knows *event*.

    The three families have ids of their own: one in another family is another event.  Those of resource
    events are stored as they are, which older stores have.
    """
    key = event.dedupe_key
    if key is None:
        return None
    if isinstance(event, ResourceEvent):
        return f"resource:{key}" if ":" in key else key
    return f"{event.type.partition('.')[0]}:{key}"
