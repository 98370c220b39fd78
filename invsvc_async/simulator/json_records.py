"""
Records and their JSON, with exact numbers.

Decimals are not converted to floats, so amounts keep all digits.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from itertools import accumulate
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# what JSON can hold; a recursive alias would have to be narrowed at every key
Json = Any


class Record(dict[str, Json]):
    """One JSON object of the service.  ``record.url`` reads ``record["url"]``.  Do not change it in place."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Json:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def with_changes(self, changes: Mapping[str, Json]) -> Record:
        """Return a copy with *changes*.  Stored records must not change: past states share them."""
        return Record({**self, **changes})


def is_object(value: Json) -> TypeGuard[dict[str, Json]]:
    """Return whether *value* is a JSON object."""
    return isinstance(value, dict)


def is_array(value: Json) -> TypeGuard[Sequence[Json]]:
    """Return whether *value* is a JSON array."""
    return isinstance(value, list | tuple)


_MARK = f"number {token_hex(8)} "  # before the digits of a Decimal; no text from outside begins with it
_MARKED = re.compile(f'"{_MARK}([^"]*)"')


def _digits(value: object) -> str:
    if isinstance(value, Decimal):
        return f"{_MARK}{value}"
    raise TypeError(f"not JSON: {value!r}")


_encode = json.JSONEncoder(
    separators=(",", ":"),
    default=_digits,
    allow_nan=False,
).encode


def json_text(value: Json) -> str:
    """Encode *value* as compact JSON in ASCII.  A Decimal becomes a number with the same digits."""
    # the standard encoder cannot write a Decimal as a number
    return _MARKED.sub(r"\1", _encode(value))


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DEEPEST = 256  # levels of a body; the specification names no limit
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)
_decode = json.JSONDecoder(parse_float=Decimal, parse_constant=_no_constant).decode


def read_json(text: bytes) -> Json:
    """
    Decode JSON with exact decimals.

    Raises:
        ValueError: It is not JSON in UTF-8, or is nested too deeply.
    """
    decoded = text.decode()
    if decoded.count("[") + decoded.count("{") > _DEEPEST:
        steps = (
            {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
            for token in _TOKEN.finditer(decoded)
        )
        if max(accumulate(steps)) > _DEEPEST:
            raise ValueError("nested too deeply")
    return _decode(decoded)
