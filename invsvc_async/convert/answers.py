"""
Make models of what an answer's envelope holds, with what the answer said beside its payload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec import Raw

from invsvc_async.convert.items import decode, decode_items
from invsvc_async.errors import UnreadableResponseError
from invsvc_async.models.common import Meta, Model

if TYPE_CHECKING:
    from invsvc_async.wire import Envelope

__all__ = ["many", "meta_of", "one"]

T = TypeVar("T", bound=Model)


def meta_of(envelope: Envelope) -> Meta:
    """Tell what the answer said beside its payload."""
    return Meta(message=envelope.message, timestamp=envelope.timestamp, request_id=envelope.request_id)


def one(cls: type[T], envelope: Envelope) -> T:
    """
    Make a model of the payload, with its ``meta``.

    Raises:
        UnreadableResponseError: The payload is no object.
    """
    raw = envelope.raw
    if not isinstance(raw, Raw):
        raise UnreadableResponseError(
            f"the answer holds no {cls.__name__}. Look at .raw, and check the base URL.", raw=envelope.content
        )
    return decode(cls, raw, meta=meta_of(envelope))


def many(cls: type[T], envelope: Envelope) -> tuple[T, ...]:
    """
    Make a model of each item of the payload; one that is no object becomes a model that says so.

    Raises:
        UnreadableResponseError: The payload is no array.
    """
    if envelope.raw is None:
        raise UnreadableResponseError(
            f"the answer holds no list of {cls.__name__}. Look at .raw, and check the base URL.",
            raw=envelope.content,
        )
    return decode_items(cls, envelope.raw)
