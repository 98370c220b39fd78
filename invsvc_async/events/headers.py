"""
Lookup of a delivery's headers, in the form of any framework.

A header that came twice has no usable value: a forger must not decide which of two signatures counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

__all__ = ["SIGNATURE", "TEST", "ByName", "Headers", "by_name", "by_name_of_text", "kept", "value_of"]

SIGNATURE: Final = "x-service-signature"
TEST: Final = "x-service-test"

Text: TypeAlias = str | bytes
Headers: TypeAlias = Mapping[str, str] | Iterable[tuple[Text, Text]]
"""A mapping with names in any case, or pairs as in ASGI."""


class ByName(dict[str, str]):
    """Headers by their names in lower case; one that came twice, or is not text, is ``""``."""


def by_name(headers: Headers | None) -> ByName:
    """Return headers in a form in which ``value_of`` finds each at once, for several lookups."""
    found = ByName()
    items: Any = getattr(headers, "items", None)  # Any: of any kind of mapping
    pairs: Any = (headers or ()) if items is None else items()
    for key, value in pairs:
        name = (key if isinstance(key, str) else _text(key)).lower()
        if name in found:
            found[name] = ""
        else:
            found[name] = value if isinstance(value, str) else _text(value)
    return found


def by_name_of_text(headers: Mapping[str, str]) -> ByName:
    """Return the same for a multidict of text, whose ``len`` counts repeated names, in less time."""
    found = ByName({key.lower(): value for key, value in headers.items()})
    return found if len(found) == len(headers) else by_name(headers)


def kept(headers: Headers | None) -> Headers | None:
    """Return headers that can be iterated over several times."""
    return list(cast("Iterable[tuple[Text, Text]]", headers)) if hasattr(headers, "__next__") else headers


def value_of(headers: Headers | None, name: str) -> str | None:
    """
    Return the value of the header *name* (in lower case), or None.

    A header that came twice, or is not text, is ``""``, which nothing accepts.
    """
    if headers is None:
        return None
    if isinstance(headers, ByName):
        return headers.get(name)
    if not isinstance(headers, dict):
        # items(), because the keys of a multidict may not show that a header came twice
        items: Any = getattr(headers, "items", None)  # Any: of any kind of mapping
        pairs: Any = headers if items is None else items()
        return _among_pairs(pairs, name)
    if TYPE_CHECKING:  # a call of cast takes time
        headers = cast("dict[str, str]", headers)
    found: str | None = None
    length = len(name)  # comparing lengths first is faster than lower() on every key (measured)
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
