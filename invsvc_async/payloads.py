"""Make models of the payload of an opened answer; never read bytes that are no answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from invsvc_async import convert
from invsvc_async.errors import UnreadableResponseError
from invsvc_async.models.common import Meta, Model, Page

if TYPE_CHECKING:
    from invsvc_async.wire import Envelope

__all__ = ["many", "meta_of", "one", "page"]

T = TypeVar("T", bound=Model)


def one(model: type[T], envelope: Envelope) -> T:
    """
    Make the model that is the payload.

    Raises:
        UnreadableResponseError: The payload is no object.

    """
    if envelope.raw is None or isinstance(envelope.raw, list):
        raise UnreadableResponseError(
            f"the answer holds no {model.__name__}. Look at .raw.", raw=envelope.content
        )
    return convert.decode(model, envelope.raw, meta=meta_of(envelope))


def many(model: type[T], envelope: Envelope) -> tuple[T, ...]:
    """
    Make the models that the payload lists.

    Raises:
        UnreadableResponseError: The payload is no list.

    """
    if envelope.raw is None:
        raise UnreadableResponseError(
            f"the answer lists no {model.__name__}. Look at .raw.", raw=envelope.content
        )
    return convert.decode_items(model, envelope.raw)


def page(model: type[T], envelope: Envelope) -> Page[T]:
    """Make one page of a list, under either of its envelopes."""
    return Page(
        items=many(model, envelope),
        next=envelope.next,
        has_more=envelope.has_more,
        total_results=envelope.total_results,
        page=envelope.page,
        per_page=envelope.per_page,
        message=envelope.message,
        timestamp=envelope.timestamp,
    )


def meta_of(envelope: Envelope) -> Meta:
    """Keep what the answer said beside its payload."""
    return Meta(message=envelope.message, timestamp=envelope.timestamp)
