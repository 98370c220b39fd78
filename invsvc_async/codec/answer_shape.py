"""The shapes of the body of a successful answer."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Shape"]


class Shape(StrEnum):
    """How a successful answer is wrapped."""

    STANDARD = "standard"  # {success, data, message?, timestamp}
    LIST = "list"  # data, next and has_more side by side
    OPEN = "open"  # the specification leaves it open: any JSON object whose success is true
    BARE = "bare"  # no envelope
