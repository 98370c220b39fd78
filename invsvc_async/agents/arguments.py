"""
Checks of what an agent gave: the form of a call, the key of a write, and times.

The values themselves are checked by the method of the operation, whose errors name every bad one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

import attrs

from invsvc_async.agents.data import LEFT_OUT, place_of_member
from invsvc_async.agents.tools import CONFIRM, CONTINUE, KEY
from invsvc_async.api.json_values import kind_of
from invsvc_async.api.operations import Form
from invsvc_async.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from invsvc_async.agents.tools import Tool
    from invsvc_async.codec.exact_json import WireObject

MOST: Final = 1_000_000  # characters of all arguments as JSON
_LONGEST_NAME: Final = 100  # characters
_DATE: Final = len("2026-05-01")
_DEEPEST: Final = 60  # levels of objects and lists

_NO_KEY = (
    "key: is missing. Give the business action, such as the number of an order or a ticket; in a retry, the "
    "same one"
)

_MARKED = (
    "holds what an answer of this server left out. Writing it would destroy what is there; leave the field "
    "out, or give its whole value"
)


@attrs.frozen(kw_only=True)
class Given:
    """The arguments of one call: those of the operation, and those of the tool beside them."""

    arguments: WireObject
    key: str | None = None
    confirm: str | None = None
    continue_with: str | None = None


def given_for(tool: Tool, plain: object) -> Given:
    """
    Check what came for *tool*, and return its parts.

    Raises:
        InvalidRequestError: It is no object, is too large or too deep, has an argument that the tool does not
            take, or lacks the key of a write.
    """
    if plain is None:
        plain = {}
    members = _members(tool, plain)
    beside = _texts_beside(tool, members)
    problems = [*_problems(tool, members, has_key=KEY in beside)]
    arguments: WireObject = {}
    for name, value in members.items():
        row = tool.takes.get(name)
        if row is None:
            continue
        arguments[name] = value
        if row.form is Form.TIME:
            arguments[name] = _time(name, value, problems)
    if problems:
        raise InvalidRequestError(problems, operation=tool.operation.name)
    return Given(
        arguments=arguments,
        key=beside.get(KEY),
        confirm=beside.get(CONFIRM),
        continue_with=beside.get(CONTINUE),
    )


def _problems(
    tool: Tool,
    members: WireObject,
    *,
    has_key: bool,
) -> Iterator[str]:
    """Yield what is wrong with the arguments as a whole: unknown, missing, or not to be written."""
    yield from _unknown(tool, members)
    if tool.writes and not has_key:
        yield _NO_KEY
    for name, row in tool.takes.items():
        if row.required and name not in members:
            yield f"{name}: is missing"
    for place in _left_out(members, ""):
        yield f"{place}: {_MARKED}"


def _members(tool: Tool, plain: object) -> WireObject:
    """Return the members of *plain*, which must be an object of bounded size and depth."""
    name = tool.operation.name
    if not isinstance(plain, Mapping):
        raise InvalidRequestError(
            f"arguments: must be an object, not {kind_of(plain)}", operation=name
        )
    members = {str(each): value for each, value in plain.items()}
    if _is_deeper(members, _DEEPEST):
        raise InvalidRequestError(
            f"arguments: are nested deeper than {_DEEPEST} levels", operation=name
        )
    size = len(json.dumps(members, default=str))
    if size > MOST:
        raise InvalidRequestError(
            f"arguments: have {size:,} characters, more than {MOST:,}", operation=name
        )
    return members


def _is_deeper(value: object, levels: int) -> bool:
    """Return whether *value* has objects or lists in more than so many *levels*."""
    if not isinstance(value, (dict, list)):
        return False
    if levels == 0:
        return True
    inner = value.values() if isinstance(value, dict) else value
    return any(_is_deeper(each, levels - 1) for each in inner)


def _texts_beside(tool: Tool, members: WireObject) -> dict[str, str]:
    """Return the texts that the tool takes beside the arguments of its operation."""
    found: dict[str, str] = {}
    for name in (KEY, CONFIRM, CONTINUE):
        value = members.get(name)
        if name not in tool.schema["properties"] or value is None:
            continue
        if not isinstance(value, str):
            raise InvalidRequestError(
                f"{name}: is {kind_of(value)}, not text", operation=tool.operation.name
            )
        found[name] = value
    return found


def _unknown(tool: Tool, members: WireObject) -> Iterator[str]:
    """Yield a problem for each argument that the tool does not take."""
    takes = list(tool.schema["properties"])
    for name in members:
        if name in takes:
            continue
        shown = name
        if len(name) > _LONGEST_NAME:
            shown = f"{name[:40]}…"
        yield f"{shown!a}: is no argument; {tool.name} takes {', '.join(takes)}"


def _left_out(value: object, place: str) -> Iterator[str]:
    """Yield the places at which *value* has the mark of something that was left out."""
    if isinstance(value, dict):
        if LEFT_OUT in value:
            yield place
        for name, inner in value.items():
            yield from _left_out(inner, place_of_member(place, name))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _left_out(inner, f"{place}[{at}]")


# Any: what the method takes, or what came
def _time(name: str, value: object, problems: list[str]) -> Any:
    """Return the time in a text. Values of other types are returned unchanged."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    try:
        if text.isdecimal():
            return int(text)
        if len(text) <= _DATE:
            return date.fromisoformat(text)
        return datetime.fromisoformat(text)
    except ValueError:
        problems.append(
            f"{name}: {text[:40]!a} is no time. Use 2026-05-01T00:00:00Z, 2026-05-01 or epoch ms"
        )
        return value
