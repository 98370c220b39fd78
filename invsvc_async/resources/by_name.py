"""
Calls by name: operations with plain data as arguments, from command lines, files and other processes.

A write is ``{"operation": "webhooks.create", "arguments": {…}, "key": "row-17"}``. The arguments are those of
the method of that name. Its signature and its checks are the only list of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from invsvc_async.api.operations import BY_NAME, OperationKind
from invsvc_async.codec.exact_json import loads_text
from invsvc_async.errors import InvalidRequestError, UnreadableResponseError

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import Wire, WireObject
    from invsvc_async.writes.write import Write


_MEMBERS = ("operation", "arguments", "key")
_NOT_DATA = ("options", "prefetch", "reader")  # objects of Python, or set by a command
_WRITES = tuple(
    name for name, row in BY_NAME.items() if row.kind is OperationKind.WRITE
)


class WriteByName(NamedTuple):
    """One write as data. Its arguments are not checked yet."""

    operation: str
    arguments: WireObject
    key: str | None = None


def write_from(client: object, line: Mapping[str, Any] | str | bytes) -> Write[Any]:
    """Make the write that *line* describes, as ``Client.write_from``."""
    operation, arguments, key = parsed(line)
    return as_write(client, operation, arguments, key=key)


def parsed(line: Mapping[str, Any] | str | bytes) -> WriteByName:
    """
    Return the members of *line*, which is JSON text or its values.

    Raises:
        InvalidRequestError: It is not such an object.
    """
    plain: object = line
    if isinstance(line, (str, bytes)):
        try:
            plain = loads_text(line)
        except (UnreadableResponseError, UnicodeEncodeError) as error:
            reason = f"is not JSON in UTF-8 ({error.__cause__ or error})"
            raise InvalidRequestError(reason, operation="line") from error
    reason = 'is not an object: write {"operation": …, "arguments": {…}, "key": …}'
    if isinstance(plain, Mapping):
        if (found := _problem(plain)) is None:
            return WriteByName(
                plain["operation"], dict(plain.get("arguments", {})), plain.get("key")
            )
        reason = found
    raise InvalidRequestError(reason, operation="line")


def as_write(
    client: object,
    operation: str,
    arguments: Mapping[str, Any],
    *,
    key: str | None = None,
) -> Write[Any]:  # Any: the operation says what the value is
    """
    Call the method *operation* of *client* with *arguments*, and return the write. Nothing is sent.

    Raises:
        InvalidRequestError: There is no such write, an argument is unknown or missing, or a value breaks the
            specification.
        ConfigurationError: The operation does not accept the client's kind of credential.
    """
    if operation not in _WRITES:
        if operation in BY_NAME:
            wrong = f"operation: {operation!r} is a read"
            hint = None
        else:
            wrong = f"operation: {operation!r} is unknown"
            hint = did_you_mean(operation, _WRITES) or None
        raise InvalidRequestError(
            f"{wrong}; it must be one of {', '.join(_WRITES)}", hint=hint
        )
    write: Write[Any] = called(client, operation, arguments)
    if key is None:
        return write
    return write.keyed(key)


def called(
    client: object,
    operation: str,
    arguments: Mapping[str, Any],
    **settings: object,
) -> Any:  # Any: a write, a read or a list
    """
    Call the method *operation* with *arguments*, which are data, and *settings*, which are not.

    Raises:
        InvalidRequestError: An argument is unknown, missing or not valid.
    """
    method = method_of(client, operation)
    takes = _data_of(method)
    unknown = [name for name in arguments if name not in takes]
    problems = [
        f"{name}: not an argument; {operation} takes {', '.join(takes)}"
        for name in unknown
    ]
    problems += [
        f"{name}: missing"
        for name, each in takes.items()
        if each.default is inspect.Parameter.empty and name not in arguments
    ]
    if problems:
        hints = filter(None, (did_you_mean(str(name), takes) for name in unknown))
        raise InvalidRequestError(problems, operation=operation, hint=next(hints, None))
    return method(**arguments, **settings)


def names_of(client: object, operation: str) -> list[str]:
    """Return the names of the arguments of *operation* that are data."""
    return [*_data_of(method_of(client, operation))]


def did_you_mean(name: str, possible: Iterable[str]) -> str:
    """Return a question with the possible names that are most like *name*; it is empty if none is."""
    from difflib import get_close_matches

    close = get_close_matches(name, [*possible], n=2)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return ""


def method_of(client: object, operation: str) -> Callable[..., Any]:
    """Return the method of *client* that the name of an operation stands for."""
    resource, _, name = operation.partition(".")
    owner = client if resource == "client" else getattr(client, resource)
    found: Callable[..., Any] = getattr(owner, name)
    return found


def _data_of(method: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(method).parameters
    return {name: each for name, each in parameters.items() if name not in _NOT_DATA}


def _problem(line: Mapping[Wire, Wire]) -> str | None:
    unknown = [str(name) for name in line if name not in _MEMBERS]
    if unknown == ["check"]:  # as `batch report --failed` writes it
        return "has check: find out what it says, then delete the member to send the write, or the line"
    if unknown:
        return f"has {', '.join(unknown)}; only {', '.join(_MEMBERS)} are allowed"
    if not isinstance(line.get("operation"), str):
        return f"has no operation; it must be one of {', '.join(_WRITES)}"
    if not isinstance(line.get("arguments", {}), Mapping):
        return "has arguments that are not an object"
    if not isinstance(line.get("key"), str | None):
        return "has a key that is not a string"
    return None
