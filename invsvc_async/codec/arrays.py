"""
Splitting of a JSON array into its items, with a limit on their number.

Even an item of two bytes takes about 60 bytes of memory when it is split off, and its model several hundred.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Raw

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Items", "check", "split"]

MOST: Final = 10_000  # the specification's largest page has 100
_LONG: Final = 2**19  # bytes: longer answers are checked first; a shorter one takes at most 16 MB
_COMMAS: Final = 100_000  # commas between or within items: with fewer, a split takes at most 6 MB
Items: TypeAlias = Annotated[list[Raw], msgspec.Meta(max_length=MOST)]
_ITEMS = msgspec.json.Decoder(Items)


def split(array: Raw) -> list[Raw]:
    """
    Return the items of a JSON array.

    Raises:
        ValueError, RecursionError: It is not an array, or has too many items.
    """
    if len(memoryview(array)) > _LONG and _may_be_many(content := bytes(array)):
        _readers()[0](content)
    return _ITEMS.decode(array)


def check(envelope: bytes) -> None:
    """
    Reject an answer whose list has far too many items, before any is split off.

    Raises:
        ValueError, RecursionError: It has too many items, or is not the envelope of a list.
    """
    if len(envelope) > _LONG and _may_be_many(envelope):
        _readers()[1](envelope)


def _may_be_many(content: bytes) -> bool:
    return content.count(b",") > _COMMAS


@cache
def _readers() -> tuple[Callable[[bytes], object], ...]:
    """
    Return decoders of an array, and of an array in an envelope, that stop after ``MOST`` items.

    msgspec checks ``max_length`` only when it has read the whole array, but rejects a surplus field at once.
    """
    nothing: Any = Raw()
    fields = [(f"item_{number}", Raw, nothing) for number in range(MOST)]
    array = msgspec.defstruct("Array", fields, array_like=True, forbid_unknown_fields=True)
    envelope = msgspec.defstruct("Envelope", [("data", array)])
    return msgspec.json.Decoder(array).decode, msgspec.json.Decoder(envelope).decode
