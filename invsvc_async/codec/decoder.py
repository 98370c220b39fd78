"""
Decode the bytes of one item, or of many, into models; never lose an item to one of its fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec import Raw

from invsvc_async import _errors
from invsvc_async._errors import UnreadableResponseError
from invsvc_async.codec import decode_fast
from invsvc_async.codec.arrays import split
from invsvc_async.codec.exact_json import MEMBERS, UNREADABLE
from invsvc_async.models.common import Flaws, Meta, Model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.codec.envelope import Envelope

__all__ = ["decode", "decode_items", "many", "member", "meta_of", "one", "structure", "with_meta"]

T = TypeVar("T", bound=Model)


def decode(cls: type[T], raw: Raw | bytes, *, meta: Meta | None = None) -> T:
    """
    Make a model of *cls* from the JSON of one object; a field that breaks its type costs only itself.

    Raises:
        UnreadableResponseError: Not a JSON object.
    """
    try:
        model: T = decode_fast.sound(cls)(raw)
    except UNREADABLE as refusal:
        model = decode_fast.refused(cls, raw, refusal)
        if isinstance(model._rest, Flaws) and "" in model._rest.problems:  # noqa: SLF001
            raise _refused(cls, raw, model._rest.problems[""].why) from None  # noqa: SLF001
    return with_meta(model, meta)


def decode_items(cls: type[T], raws: Sequence[Raw | bytes] | Raw) -> tuple[T, ...]:
    """
    Make a model of each item; one that is no object becomes a model whose every field has that problem.

    *raws* is a list's items, or the JSON of an array.

    Raises:
        UnreadableResponseError: *raws* is no JSON array, or one of more than 10,000 items.
    """
    if not isinstance(raws, Raw):
        return decode_fast.decode_all(cls, raws)
    try:
        items = split(raws)
    except UNREADABLE as cause:
        raise _refused(cls, raws, cause) from cause
    return decode_fast.decode_all(cls, items)


def structure(cls: type[T], plain: object, *, meta: Meta | None = None) -> T:
    """Make a model of *cls* from plain wire data; what is no object becomes one whose every field says so."""
    from invsvc_async.codec.decode_lenient import structure_item

    return with_meta(structure_item(cls, plain), meta)


def member(raw: Raw | bytes, name: str) -> Raw:
    """
    Give the JSON of one member of an object.

    Raises:
        UnreadableResponseError: No JSON object, or none with that member.
    """
    try:
        return MEMBERS.decode(raw)[name]
    except (KeyError, *UNREADABLE) as cause:
        raise _errors.UnreadableResponseError(
            f"the answer has no {name!r} ({cause}). Look at .raw.", raw=bytes(raw)
        ) from cause


def with_meta(model: T, meta: Meta | None) -> T:
    """Let *model*, just made, carry what its answer said beside the payload."""
    if meta is not None:
        object.__setattr__(model, "meta", meta)
    return model


def _refused(cls: type[Model], raw: Raw | bytes, cause: object) -> _errors.UnreadableResponseError:
    return _errors.UnreadableResponseError(
        f"the answer holds no {cls.__name__} ({cause}). Look at .raw.", raw=bytes(raw)
    )


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
