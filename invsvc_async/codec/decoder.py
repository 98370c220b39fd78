"""Decoding of items into models.  An invalid field does not make its item unreadable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Raw

from invsvc_async.codec.decode_fast import decode, decode_all, decode_one
from invsvc_async.codec.envelope import Envelope, EnvelopeMembers, split
from invsvc_async.codec.exact_json import UNREADABLE, time_of
from invsvc_async.codec.fields import blank_of, is_model
from invsvc_async.errors import InvalidRequestError, UnreadableResponseError
from invsvc_async.models.common import Meta, Model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from invsvc_async.models.page import Page

__all__ = [
    "decode",
    "decode_items",
    "many",
    "meta_of",
    "one",
    "page_from",
    "structure",
    "with_meta",
]

_BLANK_META: Any = blank_of(Meta)  # Any: its attributes can be assigned

_set_meta = Model.__dict__["meta"].__set__  # models are frozen

T = TypeVar("T", bound=Model)
P = TypeVar("P", bound="Page[Any]")


def decode_items(cls: type[T], raws: Sequence[Raw | bytes] | Raw) -> tuple[T, ...]:
    """
    Decode each item to a model.  If an item is not an object, every field of its model has that problem.

    *raws* is a list of items, or the JSON of an array.

    Raises:
        UnreadableResponseError: *raws* is not a JSON array, or has more than 10,000 items, or an item is
            nested too deeply.
    """
    if not isinstance(raws, Raw):
        return decode_all(cls, raws)
    try:
        items = split(raws)
    except UNREADABLE as cause:
        raise UnreadableResponseError(
            f"the answer is not a list of {cls.__name__} ({cause}). Look at .raw.",
            raw=bytes(raws),
        ) from cause
    return decode_all(cls, items)


def structure(cls: type[T], plain: object, *, meta: Meta | None = None) -> T:
    """Convert plain wire data to a model; if it is not an object, every field has that problem."""
    from invsvc_async.codec.decode_lenient import structure_item

    return with_meta(structure_item(cls, plain), meta)


class _PlainPage(EnvelopeMembers, kw_only=True):
    success: bool = True
    data: list[Any]


def page_from(cls: type[P], plain: Mapping[str, Any], model: type[Model] | None) -> P:
    """
    Convert the plain form of a page of *model*.  Without a model, its items stay plain data.

    Raises:
        InvalidRequestError: A member is missing or has the wrong type.
    """
    try:
        found = msgspec.convert(plain, _PlainPage)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"{cls.__name__}: {error}") from None
    given = msgspec.structs.asdict(found)
    items = given.pop("data")
    stamp = given.pop("timestamp")
    del given["success"]
    if is_model(model):  # not an alias or a type variable
        items = [structure(model, item) for item in items]
    return cls(items=tuple(items), timestamp=time_of(stamp), **given)


def with_meta(model: T, meta: Meta | None) -> T:
    """Set the ``meta`` of a *model* that was just created."""
    if meta is not None:
        object.__setattr__(model, "meta", meta)
    return model


def meta_of(envelope: Envelope) -> Meta:
    """Return the parts of the answer beside its payload."""
    blank = _BLANK_META()
    stamp = envelope.stamp
    blank.message = envelope.message
    blank.timestamp = time_of(stamp)
    blank.request_id = envelope.request_id
    blank.status = envelope.status
    blank.headers = envelope.headers
    blank.__class__ = Meta
    meta: Meta = blank
    return meta


def one(cls: type[T], envelope: Envelope) -> T:
    """
    Decode the payload to a model, with its ``meta``.

    Raises:
        UnreadableResponseError: The payload is not an object.
    """
    raw = envelope.raw
    if not isinstance(raw, Raw):
        raise UnreadableResponseError(
            f"the answer has no {cls.__name__}. Look at .raw, which shows who answered.",
            raw=envelope.content,
        )
    meta = meta_of(envelope)
    found = decode_one(cls, raw)  # checked as a part of the envelope
    _set_meta(found, meta)
    return found


def many(cls: type[T], envelope: Envelope) -> tuple[T, ...]:
    """
    Decode each item of the payload.  If an item is not an object, every field of its model has that problem.

    Raises:
        UnreadableResponseError: The payload is not an array.
    """
    if envelope.raw is None:
        raise UnreadableResponseError(
            f"the answer has no list of {cls.__name__}. Look at .raw, which shows who answered.",
            raw=envelope.content,
        )
    return decode_items(cls, envelope.raw)
