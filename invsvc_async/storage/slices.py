"""Divide a list for statements and transactions of bounded size."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["slices"]

T = TypeVar("T")


def slices(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Divide *items* into parts of at most so many, in their order."""
    for start in range(0, len(items), most):
        yield items[start : start + most]
