"""
The input and output of operations.

An operation is a plain function of the state and a call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from invsvc_async.simulator.auth import Caller
    from invsvc_async.simulator.json_records import Json, Record
    from invsvc_async.simulator.state import Book, Clock, State


class Malformed:
    """The body of a request that is not JSON."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


@dataclass(slots=True)
class Call:
    """One request as an operation sees it: the caller, their book and the request's content."""

    caller: Caller
    book: Book
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Json | Malformed
    past: float | None = None  # a monotonic time: the operation shows the state as it was then


@dataclass(slots=True)
class Answer:
    """A 2xx: the body as JSON, or bytes without an envelope."""

    body: dict[str, Json] | bytes
    status: int = 200
    target: str | None = None  # the id of the resource that was created or changed


class Refusal(Exception):  # noqa: N818 - an answer of the service, not a failure of this program
    """A definite "no" of the service, with one of its two error bodies."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(status, body)
        self.status = status
        self.body = body


def success(clock: Clock, payload: Json, message: str | None = None) -> dict[str, Json]:
    """Wrap *payload* in the standard success envelope."""
    body: dict[str, Json] = {"success": True, "data": payload}
    if message is not None:
        body["message"] = message
    body["timestamp"] = clock.now_ms()
    return body


def error_body(
    clock: Clock, code: str, message: str, details: str | Sequence[str] | None = None
) -> dict[str, Json]:
    """Make the standard error envelope."""
    error: dict[str, Json] = {"code": code, "message": message}
    if details is not None:
        error["details"] = details if isinstance(details, str) else list(details)
    return {"success": False, "error": error, "timestamp": clock.now_ms()}


def refusal(
    state: State, status: int, code: str, message: str, details: str | Sequence[str] | None = None
) -> Refusal:
    """Make a refusal in the standard error envelope."""
    return Refusal(status, error_body(state.clock, code, message, details))


def not_found(state: State, what: str) -> Refusal:
    """Make the 404 for a resource that is not in the selected team and data mode."""
    return refusal(state, 404, "resource_not_found", f"{what} not found")


def invalid(state: State, problems: Sequence[str]) -> Refusal:
    """Make the 400 that names every invalid field as ``<field path>: <message>``."""
    return refusal(state, 400, "validation_failed", "Validation failed", problems)


def found(state: State, records: Mapping[str, Record], key: str, what: str) -> Record:
    """Return the record under *key*, or refuse with 404."""
    record = records.get(key)
    if record is None:
        raise not_found(state, what)
    return record


def path_id(state: State, call: Call, name: str, pattern: str) -> str:
    """Return an id from the path, or refuse with 400 if it does not match *pattern*."""
    value = call.path[name]
    if not re.fullmatch(pattern, value):
        raise invalid(state, [f"{name}: does not match ^{pattern}$"])
    return value
