"""
Conversion of a caller's values to JSON values, with the address of each value that cannot be converted.

The result is a copy: changing the original values later does not change what is sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from invsvc_async import codec
from invsvc_async.codec.nesting import DEEPEST
from invsvc_async.models.common import Model

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import Wire

__all__ = ["Problems", "check_graph", "check_members", "is_list", "is_object", "kind_of", "to_wire"]

Problems: TypeAlias = list[str]
Given: TypeAlias = Any  # what a caller gave
Check: TypeAlias = "Callable[[Given, str, Problems], None]"

_DEEPEST = DEEPEST - 56  # levels: leaves room for what is written around an argument in intents and reports
_WIDEST = 8192  # bits of an integer: Python formats up to about 14,000
_SURROGATE = re.compile(r"[\ud800-\udfff]")


_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (type(None), "null"),
    (bool, "a boolean"),
    (str, "text"),
    ((int, float, Decimal), "a number"),
    (Mapping, "an object"),
    ((list, tuple), "a list"),
)


def kind_of(value: object) -> str:
    """Return the JSON name of the type of *value*, for a message."""
    return next((name for kind, name in _KINDS if isinstance(value, kind)), f"a {type(value).__name__}")


def to_wire(value: Given, address: str, problems: Problems, depth: int = 0) -> Wire:
    """Copy *value* as dicts, lists, strings, exact numbers, booleans and null."""
    if isinstance(value, Model):
        value = codec.unstructure(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, address, problems)
    if isinstance(value, (int, float, Decimal)):
        return _number(value, address, problems)
    if depth >= _DEEPEST:
        problems.append(f"{address}: is nested deeper than {_DEEPEST} levels")
    elif is_object(value):
        return _members_of(value, address, problems, depth)
    elif is_list(value):
        return [to_wire(item, f"{address}[{at}]", problems, depth + 1) for at, item in enumerate(value)]
    else:
        problems.append(f"{address}: is {kind_of(value)}, which JSON cannot represent")
    return None


def is_object(value: object) -> TypeGuard[Mapping[Given, Given]]:
    """Return whether *value* can be a JSON object."""
    return isinstance(value, Mapping)


def is_list(value: object) -> TypeGuard[list[Given] | tuple[Given, ...]]:
    """Return whether *value* can be a JSON array."""
    return isinstance(value, (list, tuple))


def _members_of(value: Mapping[Any, Any], address: str, problems: Problems, depth: int) -> dict[str, Wire]:
    copied: dict[str, Wire] = {}
    for key, member in value.items():
        if isinstance(key, str):
            name = _text(key, address, problems)
            copied[name] = to_wire(member, f"{address}.{key}", problems, depth + 1)
        else:
            problems.append(f"{address}: has a key that is {kind_of(key)}, not text")
    return copied


def _text(value: str, address: str, problems: Problems) -> str:
    if _SURROGATE.search(value):
        problems.append(
            f"{ascii(address)[1:-1]}: contains half of a surrogate pair, which UTF-8 cannot encode"
        )
    return str(value)


def _number(value: float | Decimal, address: str, problems: Problems) -> int | float | Decimal:
    if isinstance(value, int):
        if value.bit_length() > _WIDEST:
            problems.append(f"{address}: has too many digits")
        return int(value)
    if not isfinite(value):
        problems.append(f"{address}: is {value}, which JSON cannot represent")
    return value


# --- objects in which the specification allows no other keys


def _named(value: Any, address: str, problems: Problems) -> None:
    if not isinstance(value, str):
        problems.append(f"{address}: is {kind_of(value)}, not text")
    elif not value:
        problems.append(f"{address}: must not be empty")


def _text_or_null(value: Any, address: str, problems: Problems) -> None:
    if value is not None and not isinstance(value, str):
        problems.append(f"{address}: is {kind_of(value)}, neither text nor null")


def _coordinate(value: Any, address: str, problems: Problems) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        problems.append(f"{address}: is {kind_of(value)}, not a number")


def _free_or_null(value: Any, address: str, problems: Problems) -> None:
    if value is not None and not is_object(value):
        problems.append(f"{address}: is {kind_of(value)}, neither an object nor null")


def _closed(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    known = {**required, **(optional or {})}

    def check(value: Any, address: str, problems: Problems) -> None:
        if not is_object(value):
            problems.append(f"{address}: is {kind_of(value)}, not an object")
            return
        problems.extend(f"{address}.{key}: is required" for key in required if key not in value)
        problems.extend(f"{address}.{key}: is not allowed here" for key in value if key not in known)
        for key, check_member in known.items():
            if key in value:
                check_member(value[key], f"{address}.{key}", problems)

    return check


def _list_of(check_item: Check) -> Check:
    def check(value: Any, address: str, problems: Problems) -> None:
        if not is_list(value):
            problems.append(f"{address}: is {kind_of(value)}, not a list")
            return
        for at, item in enumerate(value):
            check_item(item, f"{address}[{at}]", problems)

    return check


def _nullable(check: Check) -> Check:
    return lambda value, address, problems: None if value is None else check(value, address, problems)


_NODE = _closed(
    {
        "id": _named,
        "type": _named,
        "position": _closed({"x": _coordinate, "y": _coordinate}),
        "data": _closed({}, {"config": _free_or_null}),
    }
)
_EDGE = _closed({"id": _named, "source": _named, "target": _named}, {"sourceHandle": _text_or_null})
_VIEWPORT = _closed({"x": _coordinate, "y": _coordinate, "zoom": _coordinate})

check_graph: Check = _closed(
    {"nodes": _list_of(_NODE), "edges": _list_of(_EDGE)}, {"viewport": _nullable(_VIEWPORT)}
)
check_members: Check = _list_of(_closed({"id": _named, "role": _named}))
