"""
Conversion of a caller's values to JSON values, with the address of each value that cannot be converted.

The result is a copy: changing the original values later does not change what is sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from invsvc_async import codec
from invsvc_async.codec.nesting import DEEPEST
from invsvc_async.models.common import Model

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import Wire


Problems: TypeAlias = list[str]
Given: TypeAlias = Any  # what a caller gave

# levels: leaves room for what is written around an argument in intents and reports
_DEEPEST = DEEPEST - 56
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
    for kind, name in _KINDS:
        if isinstance(value, kind):
            return name
    return f"a {type(value).__name__}"


def to_wire(
    value: Given,
    address: str,
    problems: Problems,
    depth: int = 0,
) -> Wire:
    """Copy *value* as dicts, lists, strings, exact numbers, booleans and null."""
    if isinstance(value, Model):
        value = codec.unstructure(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text(value, address, problems)
    if isinstance(value, (int, float, Decimal)):
        return _number(value, address, problems)
    if depth >= _DEEPEST:
        problems.append(f"{address}: is nested deeper than {_DEEPEST} levels")
        return None
    if is_object(value):
        return _object_to_wire(value, address, problems, depth + 1)
    if is_list(value):
        return [
            to_wire(item, f"{address}[{at}]", problems, depth + 1)
            for at, item in enumerate(value)
        ]
    problems.append(f"{address}: is {kind_of(value)}, which JSON cannot represent")
    return None


def _object_to_wire(
    members: Mapping[Given, Given],
    address: str,
    problems: Problems,
    depth: int,
) -> dict[str, Wire]:
    """Copy *members*, which are *depth* levels deep. A key that is not text is a problem, and left out."""
    copied: dict[str, Wire] = {}
    for key, member in members.items():
        if isinstance(key, str):
            name = text(key, address, problems)
            copied[name] = to_wire(member, f"{address}.{key}", problems, depth)
        else:
            problems.append(f"{address}: has a key that is {kind_of(key)}, not text")
    return copied


def is_object(value: object) -> TypeGuard[Mapping[Given, Given]]:
    """Return whether *value* can be a JSON object."""
    return isinstance(value, Mapping)


def is_list(value: object) -> TypeGuard[list[Given] | tuple[Given, ...]]:
    """Return whether *value* can be a JSON array."""
    return isinstance(value, (list, tuple))


def text(value: str, address: str, problems: Problems) -> str:
    """Return *value* as a plain string, which UTF-8 must be able to encode."""
    if _SURROGATE.search(value):
        problems.append(
            f"{ascii(address)[1:-1]}: contains half of a surrogate pair, which UTF-8 cannot encode"
        )
    return str(value)


def _number(
    value: float | Decimal,
    address: str,
    problems: Problems,
) -> int | float | Decimal:
    if isinstance(value, int):
        if value.bit_length() > _WIDEST:
            problems.append(f"{address}: has too many digits")
        return int(value)
    if not isfinite(value):
        problems.append(f"{address}: is {value}, which JSON cannot represent")
    return value


# --- objects in which the specification allows no other keys

# By name, what each member is; one whose name ends in "?" may be null or absent.  A list has one item's form.
Form: TypeAlias = "Mapping[str, Form] | list[Form] | str"

_PLACE = {"x": "a number", "y": "a number"}
_NODE: Form = {
    "id": "text",
    "type": "text",
    "position": _PLACE,
    "data": {"config?": "an object"},
}
_EDGE: Form = {
    "id": "text",
    "source": "text",
    "target": "text",
    "sourceHandle?": "text",
}
GRAPH: Form = {
    "nodes": [_NODE],
    "edges": [_EDGE],
    "viewport?": {**_PLACE, "zoom": "a number"},
}
MEMBERS: Form = [{"id": "text", "role": "text"}]


def check_form(
    form: Form,
    value: Given,
    address: str,
    problems: Problems,
) -> None:
    """Add a problem for each member that *form* does not allow in *value*, or that *value* lacks."""
    if value is None and _has_problem(problems, address):
        return  # it is in place of what could not be converted
    if is_object(form) and is_object(value):
        _check_members(form, value, address, problems)
    elif isinstance(form, list) and is_list(value):
        for at, item in enumerate(value):
            check_form(form[0], item, f"{address}[{at}]", problems)
    else:
        found = kind_of(value)
        wanted = form if isinstance(form, str) else kind_of(form)
        if found != wanted:
            problems.append(f"{address}: is {found}, not {wanted}")


def _has_problem(problems: Problems, address: str) -> bool:
    return any(each.startswith(f"{address}: ") for each in problems)


def _check_members(
    form: Mapping[str, Form],
    value: Mapping[Given, Given],
    address: str,
    problems: Problems,
) -> None:
    known = {name.removesuffix("?"): name for name in form}
    for key in form:
        if not _may_lack(key, value):
            problems.append(f"{address}.{key}: is required")
    for key in value:
        if key not in known:
            problems.append(f"{address}.{key}: is not allowed here")
    for key, name in known.items():
        if key in value:
            _check_member(form, name, value[key], f"{address}.{key}", problems)


def _may_lack(name: str, value: Mapping[Given, Given]) -> bool:
    return name.endswith("?") or name in value


def _check_member(
    form: Mapping[str, Form],
    name: str,
    member: Given,
    address: str,
    problems: Problems,
) -> None:
    is_required = not name.endswith("?")
    if is_required and member == "":
        problems.append(f"{address}: must not be empty")
    elif is_required or member is not None:
        check_form(form[name], member, address, problems)
