"""
Conversion of command-line words to an operation's arguments.

``name=value`` sets an argument, and ``name:=JSON`` sets it to a JSON value.  Other words fill the path
parameters in order.  Values are checked later, by the operation.
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
_FORMS = {"extra_body": Form.OBJECT, "extra_query": Form.OBJECT}  # arguments outside the table of operations
_INTERNAL = ("prefetch",)  # set by a command, not by the user


def operation_of(name: str, kind: Kind, *, many: bool | None = None, short: str | None = None) -> Operation:
    """
    Return the operation called *name*; a resource name alone selects its method *short*.

    Raises:
        InvalidRequestError: No such operation of that kind; the message lists the known ones.

    """
    possible = {
        row.name: row
        for row in BY_NAME.values()
        if row.kind is kind and not row.name.startswith("client.") and many in (None, row.many)
    }
    found = possible.get(name) or possible.get(f"{name}.{short}")
    if found is None:
        raise InvalidRequestError(f"{name}: unknown. Use one of {', '.join(possible)}")
    return found


def arguments_of(operation: Operation, words: Sequence[str]) -> dict[str, Any]:  # Any: depends on the form
    """
    Return the arguments that *words* give.

    Raises:
        InvalidRequestError: Too many words, or a value that does not fit its argument.

    """
    rows = {row.name: row for row in operation.parameters}
    path_names = [row.name for row in operation.parameters if row.where == "path"]
    arguments: dict[str, Any] = {}
    for word in words:
        match = _WORD.fullmatch(word)
        if match is None:
            if not path_names:
                raise InvalidRequestError(f"{word!r}: unexpected. Write name=value", operation=operation.name)
            arguments[path_names.pop(0)] = word
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
    Call the method of *operation* with *arguments*.

    Raises:
        InvalidRequestError: An argument is unknown, missing or of the wrong type.

    """
    resource, _, name = operation.name.partition(".")
    method: Callable[..., Any] = getattr(getattr(client, resource), name)
    signature = inspect.signature(method)
    if unknown := [name for name in arguments if name not in signature.parameters]:
        known = ", ".join(name for name in signature.parameters if name not in _INTERNAL)
        raise InvalidRequestError(
            f"unknown argument {', '.join(unknown)}. Use {known}", operation=operation.name
        )
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise InvalidRequestError(str(error), operation=operation.name) from error
    return method(**arguments)


def _unlisted_form(name: str, text: str) -> Form:
    """Return the form of an argument that has no row; a tag is a boolean or user-supplied text."""
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
        raise InvalidRequestError(f"{name}: {text!r} is not a valid {what}") from None


def _time(name: str, text: str) -> int | date | datetime:
    if text.isdecimal():
        return int(text)
    try:
        return date.fromisoformat(text) if len(text) <= len("2026-05-01") else datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequestError(f"{name}: {text!r} is not an ISO 8601 date or time, nor epoch ms") from None
