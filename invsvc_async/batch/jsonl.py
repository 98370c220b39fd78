"""
Writes as data: files with one JSON object per line.

A line is ``{"operation": "webhooks.create", "arguments": {…}, "key": "row-17"}``.  The arguments are those of
the method of that name. Its signature and its checks are the only list of them.
"""

from __future__ import annotations

import inspect
from codecs import BOM_UTF8
from typing import TYPE_CHECKING, Any, TypeGuard

import attrs

from invsvc_async.api.operations import BY_NAME, Kind
from invsvc_async.codec import envelope
from invsvc_async.errors import ConfigurationError, InvalidRequestError, UnreadableResponseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import BinaryIO

    from invsvc_async.batch.file_reader import Reader
    from invsvc_async.client import Client
    from invsvc_async.writes.write import Write

__all__ = ["MAX_LINE", "BadLine", "Line", "as_write", "check_line", "read_lines"]

MAX_LINE = 2**20  # bytes
_MEMBERS = ("operation", "arguments", "key")
_CODE = ("reader", "options")  # arguments that are objects of Python, which JSON cannot contain
_OPERATIONS = tuple(name for name, row in BY_NAME.items() if row.kind is Kind.WRITE)


@attrs.frozen
class Line:
    """One write as data. Its arguments are not checked yet. ``number`` counts lines from 1."""

    number: int
    operation: str
    arguments: dict[str, Any]  # Any: JSON as Python values
    key: str | None = None


@attrs.frozen
class BadLine:
    """A line that is not a write, and why. Number 0 is the whole file."""

    number: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.number}: {self.reason}" if self.number else self.reason


def read_lines(
    file: BinaryIO | Reader, *, max_bytes: int = MAX_LINE, number: int = 0
) -> Iterator[Line | BadLine]:
    """
    Read *file* line by line, and yield each one that is not empty. *number* lines were read before.

    A line of more than *max_bytes* is bad, and is skipped without loading it. A byte order mark of UTF-8 is
    skipped.
    """
    while text := file.readline(max_bytes + 1):
        number += 1
        if len(text) > max_bytes and not text.endswith(b"\n"):
            length = len(text) + _skip_rest(file, max_bytes)
            yield BadLine(number, f"is {length:,} bytes long; the limit is {max_bytes:,}")
        elif plain := (text.removeprefix(BOM_UTF8) if number == 1 else text).strip():
            yield _parsed(plain, number)


def as_write(
    client: Client, operation: str, arguments: Mapping[str, Any], *, key: str | None = None
) -> Write[Any]:  # Any: the operation says what the value is
    """
    Call the method *operation* of *client* with *arguments*, and return the write. Nothing is sent.

    Raises:
        InvalidRequestError: There is no such write, an argument is unknown or missing, or a value breaks the
            specification.
        ConfigurationError: The operation does not accept the client's kind of credential.

    """
    method = _method(client, operation)
    _check_names(operation, inspect.signature(method).parameters, arguments)
    write: Write[Any] = method(**arguments)
    return write if key is None else write.keyed(key)


def check_line(client: Client, line: Line) -> BadLine | None:
    """Return what is wrong with *line* as a write of *client*, or ``None``."""
    try:
        as_write(client, line.operation, line.arguments, key=line.key).close()
    except InvalidRequestError as error:
        return BadLine(line.number, f"{line.operation}: {'; '.join(error.problems)}")
    except ConfigurationError as error:
        return BadLine(line.number, str(error))
    return None


def _skip_rest(file: BinaryIO | Reader, chunk: int) -> int:
    skipped = 0
    while text := file.readline(chunk):
        skipped += len(text)
        if text.endswith(b"\n"):
            break
    return skipped


def _parsed(text: bytes, number: int) -> Line | BadLine:
    try:
        plain = envelope.loads(text)
    except UnreadableResponseError as error:
        return BadLine(number, f"is not JSON in UTF-8 ({error.__cause__})")
    reason = _shape_problem(plain)
    if reason is not None:
        return BadLine(number, reason)
    return Line(number, plain["operation"], plain.get("arguments", {}), plain.get("key"))


def _shape_problem(plain: object) -> str | None:
    if not _is_object(plain):
        return 'is not an object: write {"operation": …, "arguments": {…}, "key": …}'
    unknown = [name for name in plain if name not in _MEMBERS]
    if unknown == ["check"]:  # as `batch report --failed` writes it
        return "has check: find out what it says, then delete the member to send the write, or the line"
    if unknown:
        return f"has {', '.join(unknown)}; only {', '.join(_MEMBERS)} are allowed"
    if not isinstance(plain.get("operation"), str):
        return f"has no operation; it must be one of {', '.join(_OPERATIONS)}"
    if not _is_object(plain.get("arguments", {})):
        return "has arguments that are not an object"
    if not isinstance(plain.get("key"), str | None):
        return "has a key that is not a string"
    return None


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _method(client: Client, operation: str) -> Callable[..., Any]:
    row = BY_NAME.get(operation)
    if row is None or row.kind is not Kind.WRITE:
        wrong = "is a read" if row else "is unknown"
        raise InvalidRequestError(
            f"operation: {operation!r} {wrong}; it must be one of {', '.join(_OPERATIONS)}"
        )
    resource, _, name = operation.partition(".")
    owner = client if resource == "client" else getattr(client, resource)
    found: Callable[..., Any] = getattr(owner, name)
    return found


def _check_names(operation: str, takes: Mapping[str, inspect.Parameter], given: Mapping[str, Any]) -> None:
    possible = [name for name in takes if name not in _CODE]
    problems = [
        f"{name}: not an argument; {operation} takes {', '.join(possible)}"
        for name in given
        if name not in possible
    ]
    problems += [
        f"{name}: missing"
        for name in possible
        if takes[name].default is inspect.Parameter.empty and name not in given
    ]
    if problems:
        raise InvalidRequestError(problems, operation=operation)
