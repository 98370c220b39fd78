"""Writes as plain JSON values, from which ``Client.write_from`` makes the same write in another process."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from invsvc_async.api.operations import BY_NAME
from invsvc_async.errors import InvalidRequestError
from invsvc_async.reconcile.findings import is_unique
from invsvc_async.writes.noted import NOTED_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from invsvc_async.api.operations import Operation
    from invsvc_async.codec.exact_json import Wire, WireObject
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.writes.spec import WriteSpec


def line_of_write(spec: WriteSpec, intent: Intent) -> WireObject:
    """
    Return *spec*, whose intent is *intent*, as a line.

    Raises:
        InvalidRequestError: It has what a line cannot have.
    """
    problems = [*_problems_of(spec)]
    if spec.resumes is not None:
        problems = [
            "it resumes an intent; hand over its intent.to_json(), and call client.resume there"
        ]
    arguments: dict[str, Any] = _plain(arguments_of(intent), "arguments", problems)
    if is_unique(spec.tag):
        arguments["tag"] = True  # each write of the line gets a tag of its own
    if not spec.may_tag:
        arguments["tag"] = False
    if problems:
        raise InvalidRequestError(problems, operation=spec.operation.name)
    line = {"operation": spec.operation.name, "arguments": arguments}
    if spec.key is None:
        return line
    return {**line, "key": spec.key}


def _problems_of(spec: WriteSpec) -> Iterator[str]:
    """Yield what *spec* has and a line cannot have."""
    here = "make this write where it is to be sent"
    if spec.policy != spec.options.reconcile:
        yield "policy: a line has none; give it to the client that reads the line"
    if spec.tag is not None and not is_unique(spec.tag):
        yield "tag: a line has no text for it, which would be that of each write made of it; use tag=True"
    if spec.reader is not None:
        yield f"reader: a line has no functions; {here}"
    if spec.options.headers:
        yield f"options: a line has no headers; {here}"
    if spec.match != "all":
        yield f"match: a line has none; {here}"
    for name in NOTED_NAMES:
        if getattr(spec.noted, name) is not None:
            yield f"{name}: a line has none; {here}"


def arguments_of(intent: Intent) -> WireObject:
    """Return the arguments of the method call that made *intent*, without a reader and a generated tag."""
    operation = BY_NAME[intent.operation]
    arguments: dict[str, Any] = {}
    if intent.scope.team is not None:
        arguments["team"] = intent.scope.team
    if operation.listed:
        return arguments | _listed_arguments(operation, intent)
    arguments |= intent.path
    if intent.query:
        arguments["params"] = intent.query
    if intent.has_body:
        arguments["json"] = intent.body
    return arguments


def _listed_arguments(operation: Operation, intent: Intent) -> WireObject:
    """Return the arguments of the method of *operation*, each under its name."""
    arguments: dict[str, Any] = {}
    body = intent.body
    left = dict(body) if isinstance(body, dict) else {}
    if intent.tag is not None:
        _take_tag_out(intent.tag, left, arguments)
    for parameter in operation.parameters:
        wire = parameter.wire or parameter.name
        if parameter.where == "path":
            arguments[parameter.name] = intent.path[wire]
        elif wire in left:
            arguments[parameter.name] = left.pop(wire)
    if left:
        arguments["extra_body"] = left
    return arguments


def _take_tag_out(
    tag: str,
    body: WireObject,
    arguments: WireObject,
) -> None:
    """Move *tag* from the end of the description to the argument; a generated tag is left out."""
    text = str(body.pop("description", ""))
    rest = text.removesuffix(tag).removesuffix(" ")
    if rest:
        body["description"] = rest
    if not is_unique(tag):
        arguments["tag"] = tag


def _plain(value: Wire, address: str, problems: list[str]) -> Wire:
    """Return *value* with numbers for ``json``. A number that ``json`` would round is a problem."""
    match value:
        case dict():
            return {
                name: _plain(each, f"{address}.{name}", problems)
                for name, each in value.items()
            }
        case list():
            return [
                _plain(each, f"{address}[{at}]", problems)
                for at, each in enumerate(value)
            ]
        case Decimal() if value.as_tuple().exponent == 0:
            return int(value)
        case Decimal():
            number = float(value)
            if Decimal(repr(number)) != value:
                problems.append(
                    f"{address}: has more digits than plain JSON keeps; round it, or pass a text"
                )
            return number
        case _:
            return value
