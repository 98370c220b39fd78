"""
Turn the words of a command line into an operation's arguments, by the table; never check their values.

``name=value`` names an argument and ``name:=JSON`` gives it as JSON; other words fill the path in order.
"""

from __future__ import annotations

import inspect
import re
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from invsvc_async._errors import InvalidRequestError, UnreadableResponseError
from invsvc_async.api.operations import BY_NAME, Form, Kind, Operation
from invsvc_async.codec import envelope

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from invsvc_async.client import Client

__all__ = ["arguments_of", "called", "operation_of"]

_WORD = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)(?P<sign>:?=)(?P<value>.*)", re.DOTALL)
_FORMS = {"extra_body": Form.OBJECT, "extra_query": Form.OBJECT}  # of arguments that no row of the table has
_NOT_IN_WORDS = ("prefetch",)  # what a command gives by itself


def operation_of(name: str, kind: Kind, *, many: bool | None = None, short: str | None = None) -> Operation:
    """
    Find the operation called *name*; the name of a resource alone means its *short* method.

    Raises:
        InvalidRequestError: There is none of that kind; the message lists those that there are.

    """
    possible = {
        row.name: row
        for row in BY_NAME.values()
        if row.kind is kind and not row.name.startswith("client.") and many in (None, row.many)
    }
    found = possible.get(name) or possible.get(f"{name}.{short}")
    if found is None:
        raise InvalidRequestError(f"{name}: not one of {', '.join(possible)}")
    return found


def arguments_of(operation: Operation, words: Sequence[str]) -> dict[str, Any]:  # Any: as the form asks
    """
    Make the arguments that *words* give.

    Raises:
        InvalidRequestError: A word too many, or a value that is not of its argument's form.

    """
    rows = {row.name: row for row in operation.parameters}
    places = [row.name for row in operation.parameters if row.where == "path"]
    arguments: dict[str, Any] = {}
    for word in words:
        match = _WORD.fullmatch(word)
        if match is None:
            if not places:
                raise InvalidRequestError(f"{word!r}: write name=value", operation=operation.name)
            arguments[places.pop(0)] = word
        elif match["sign"] == ":=":
            arguments[match["name"]] = _json(match["name"], match["value"])
        elif match["name"].startswith("metadata.") and "metadata" in rows:
            arguments.setdefault("metadata", {})[match["name"].removeprefix("metadata.")] = match["value"]
        else:
            row = rows.get(match["name"])
            form = row.form if row else _unlisted_form(match["name"], match["value"])
            arguments[match["name"]] = _value(match["name"], match["value"], form)
    return arguments


def called(client: Client, operation: Operation, arguments: dict[str, Any]) -> Any:  # Any: a read, Pages, …
    """
    Call the method that *operation* names, with *arguments*.

    Raises:
        InvalidRequestError: An argument that it does not take, lacks, or takes otherwise.

    """
    room, _, name = operation.name.partition(".")
    method: Callable[..., Any] = getattr(getattr(client, room), name)
    signature = inspect.signature(method)
    if strange := [name for name in arguments if name not in signature.parameters]:
        taken = ", ".join(name for name in signature.parameters if name not in _NOT_IN_WORDS)
        raise InvalidRequestError(
            f"takes no {', '.join(strange)}; it takes {taken}", operation=operation.name
        )
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise InvalidRequestError(str(error), operation=operation.name) from error
    return method(**arguments)


def _unlisted_form(name: str, text: str) -> Form:
    """Tell the form of an argument that no row has; a tag is a flag, or a text of the caller's own."""
    if name == "tag" and text in ("true", "false"):
        return Form.FLAG
    return _FORMS.get(name, Form.TEXT)


def _value(name: str, text: str, form: Form) -> Any:
    match form:
        case Form.INTEGER | Form.NUMBER | Form.FLAG | Form.OBJECT | Form.GRAPH | Form.MEMBERS | Form.METADATA:
            return _json(name, text, form)
        case Form.EVENTS:
            return [each.strip() for each in text.split(",")]
        case Form.TIME:
            return _time(name, text)
        case _:
            return text


def _json(name: str, text: str, what: str = "JSON value") -> Any:
    try:
        return envelope.loads(text.encode())
    except UnreadableResponseError:
        raise InvalidRequestError(f"{name}: {text!r} is no {what}") from None


def _time(name: str, text: str) -> int | date | datetime:
    if text.isdecimal():
        return int(text)
    try:
        return date.fromisoformat(text) if len(text) <= len("2026-05-01") else datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequestError(f"{name}: {text!r} is no ISO 8601 date or time, nor epoch ms") from None
