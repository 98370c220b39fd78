"""Texts of the service in a form that a terminal shows and does not obey."""

from __future__ import annotations

import re
from typing import Final

# Control characters other than tab and line feed, those that change the direction of text, and surrogates.
HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    """Replace control characters and bidirectional controls by Python's escape sequences."""
    return HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
