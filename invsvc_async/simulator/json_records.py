"""
Records and their JSON, with exact numbers.

Decimals are not converted to floats, so amounts keep all digits.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from json.encoder import encode_basestring_ascii as quoted
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Json = Any  # what JSON can hold; a recursive alias would have to be narrowed at every key


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


class _HoldsDecimal(Exception):  # noqa: N818 - a signal between two functions, never an error
    pass


def _refuse(value: object) -> NoReturn:
    if isinstance(value, Decimal):
        raise _HoldsDecimal
    raise TypeError(f"not JSON: {value!r}")


# The standard encoder is fast, but cannot write a Decimal as a number.  Values with one take the slow path.
_encode = json.JSONEncoder(separators=(",", ":"), default=_refuse, allow_nan=False).encode


def json_text(value: Json) -> str:
    """Encode *value* as compact JSON in ASCII.  A Decimal becomes a number with the same digits."""
    try:
        return _encode(value)
    except _HoldsDecimal:
        return "".join(_pieces(value))


def _pieces(value: Json) -> Iterator[str]:
    if isinstance(value, Decimal):
        yield str(value)
    elif is_object(value):
        before = "{"
        for key, item in value.items():
            yield f"{before}{quoted(key)}:"
            yield from _pieces(item)
            before = ","
        yield "}" if value else "{}"
    elif is_array(value):
        before = "["
        for item in value:
            yield before
            yield from _pieces(item)
            before = ","
        yield "]" if value else "[]"
    else:
        yield _encode(value)


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
        _check_depth(decoded)
    return _decode(decoded)


def _check_depth(text: str) -> None:
    level = 0
    for token in _TOKEN.finditer(text):
        level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        if level > _DEEPEST:
            raise ValueError("nested too deeply")
