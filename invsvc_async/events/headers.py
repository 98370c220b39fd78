"""
Lookup of a delivery's headers, in the form of any framework.

A header that came twice has no usable value: a forger must not decide which of two signatures counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

__all__ = ["SIGNATURE", "TEST", "ByName", "Headers", "by_name"]

SIGNATURE: Final = "x-service-signature"
TEST: Final = "x-service-test"

Text: TypeAlias = str | bytes
Headers: TypeAlias = Mapping[str, str] | Iterable[tuple[Text, Text]]
"""A mapping with names in any case, or pairs as in ASGI."""


class ByName(dict[str, str]):
    """Headers by their names in lower case; one that came twice, or is not text, is ``""``."""


def by_name(headers: Headers | None) -> ByName:
    """Return headers in a form in which each is found at once."""
    if isinstance(headers, ByName):
        return headers
    # items(), because the keys of a multidict may not show that a header came twice
    pairs: Any = headers.items() if isinstance(headers, Mapping) else headers or ()
    found = ByName()
    for key, value in pairs:
        name = (key if isinstance(key, str) else _text(key)).lower()
        if name in found:
            found[name] = ""
        else:
            found[name] = value if isinstance(value, str) else _text(value)
    return found


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else ""
