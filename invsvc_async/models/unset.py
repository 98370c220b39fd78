"""The value of what is left out: a client needs it before any model."""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["UNSET", "Unset"]


class Unset(Enum):
    """The type of ``UNSET``, the value of a field that is left out.  This differs from null."""

    UNSET = "UNSET"

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET
