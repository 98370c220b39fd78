"""
Split the JSON of a list into its items; never into more of them than any page has.

An item takes some 60 bytes while it is split off and a model some hundreds, were it but two bytes long.
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
_LONG: Final = 2**19  # bytes of an answer that is looked at first: at worst, a shorter one takes 16 MB
_COMMAS: Final = 100_000  # that stand between items or in them: up to so many, a split takes 6 MB at most
Items: TypeAlias = Annotated[list[Raw], msgspec.Meta(max_length=MOST)]
_ITEMS = msgspec.json.Decoder(Items)


def split(array: Raw) -> list[Raw]:
    """
    Give the items of a JSON array.

    Raises:
        ValueError, RecursionError: It is none, or has too many.
    """
    if len(memoryview(array)) > _LONG and _may_be_many(content := bytes(array)):
        _readers()[0](content)
    return _ITEMS.decode(array)


def check(envelope: bytes) -> None:
    """
    Refuse an answer whose list has far too many items, before any is split off.

    Raises:
        ValueError, RecursionError: It has too many, or it is no envelope of a list.
    """
    if len(envelope) > _LONG and _may_be_many(envelope):
        _readers()[1](envelope)


def _may_be_many(content: bytes) -> bool:
    return content.count(b",") > _COMMAS


@cache
def _readers() -> tuple[Callable[[bytes], object], ...]:
    """Make what reads an array, or one in an envelope, into so many places, and stops where they end."""
    nothing: Any = Raw()
    fields = [(f"item_{number}", Raw, nothing) for number in range(MOST)]
    places = msgspec.defstruct("Places", fields, array_like=True, forbid_unknown_fields=True)
    envelope = msgspec.defstruct("Envelope", [("data", places)])
    return msgspec.json.Decoder(places).decode, msgspec.json.Decoder(envelope).decode
