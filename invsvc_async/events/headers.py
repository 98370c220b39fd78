"""
Find a header among those of a delivery, however the framework holds them; never interpret a value.

Which of two signatures counts is a question that a forger would like to answer: of a header that came twice,
neither value is given out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

__all__ = ["SIGNATURE", "TEST", "Headers", "kept", "value_of"]

SIGNATURE: Final = "x-service-signature"
TEST: Final = "x-service-test"

Text: TypeAlias = str | bytes
Headers: TypeAlias = Mapping[str, str] | Iterable[tuple[Text, Text]]
"""A mapping with names of any case, or pairs as ASGI gives them."""


def kept(headers: Headers | None) -> Headers | None:
    """Keep headers that can be walked only once, for they are looked at several times."""
    return list(cast("Iterable[tuple[Text, Text]]", headers)) if hasattr(headers, "__next__") else headers


def value_of(headers: Headers | None, name: str) -> str | None:
    """Look up *name*, given in lower case; ``""``, which nothing accepts, if it is there but not one text."""
    if headers is None:
        return None
    if not isinstance(headers, dict):
        # items() and not the keys: those of a multidict leave out that one came twice
        items: Any = getattr(headers, "items", None)  # Any: of a mapping of whatever kind
        pairs: Any = headers if items is None else items()
        return _among_pairs(pairs, name)
    if TYPE_CHECKING:  # a call would cost
        headers = cast("dict[str, str]", headers)
    found: str | None = None
    length = len(name)  # measured: cheaper than lower() on every key
    for key in headers:
        if len(key) == length and key.lower() == name:
            if found is not None:
                return ""
            found = headers[key]
    return found if found is None or isinstance(found, str) else ""


def _among_pairs(pairs: Iterable[tuple[Text, Text]], name: str) -> str | None:
    found = [_text(value) for key, value in pairs if _text(key).lower() == name]
    return None if not found else found[0] if len(found) == 1 else ""


def _text(value: Text) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
