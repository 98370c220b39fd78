"""The input and output of operations: an operation is a plain function of a call."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from invsvc_async.simulator.auth import RANK, Caller, Refusal, Role
from invsvc_async.simulator.json_records import Json, Record, is_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from invsvc_async.simulator.state import Book, ServiceClock, ServiceState, Shelf
    from invsvc_async.simulator.stores import Kept
    from invsvc_async.simulator.validate import Check, Query

    Details = str | Sequence[str] | None

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class Answer:
    """
    The answer of an operation that was not refused: the body as JSON, or bytes without an envelope.

    It is a 2xx, except for a write that the service stored only in part.
    """

    body: dict[str, Json] | bytes
    status: int = 200
    target: str | None = None  # the id of the resource that was created or changed
    kept: Kept | None = None  # what became of the fields of a write


@dataclass(slots=True)
class Call:
    """One request as an operation sees it: the caller and the request's content."""

    state: ServiceState
    caller: Caller
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Json | ValueError  # an error if it is not JSON
    # a monotonic time: the operation shows the state as it was then
    past: float | None = None

    @property
    def book(self) -> Book:
        """The records of the caller's team and data mode."""
        return self.state.book(self.caller.team, livemode=self.caller.livemode)

    def rows(self, shelf: Shelf) -> dict[str, Record]:
        """Return the records that the operation shows."""
        return shelf.as_of(self.past)

    def success(
        self,
        payload: Json,
        message: str | None = None,
        *,
        status: int = 200,
        target: str | None = None,
    ) -> Answer:
        """Answer with *payload* in the standard success envelope."""
        body: dict[str, Json] = {"success": True, "data": payload}
        if message is not None:
            body["message"] = message
        return Answer({**body, "timestamp": self.state.clock.now_ms()}, status, target)

    def kept(
        self,
        record: Record,
        kept: Kept,
        message: str | None = None,
        *,
        status: int = 200,
        **more: Json,
    ) -> Answer:
        """Answer a write with its *record* and *more*, or with a 500 if only a part of it was stored."""
        target = str(record["id"])
        if kept.in_part:
            body = error_body(
                self.state.clock,
                "internal_server_error",
                "The operation failed halfway",
            )
            return Answer(body, 500, target, kept)
        echo = kept.sent if self.state.stores.echoes else {}
        answer = self.success(
            record | echo | more, message, status=status, target=target
        )
        answer.kept = kept
        return answer

    def refusal(
        self,
        status: int,
        code: str,
        message: str,
        details: Details = None,
    ) -> Refusal:
        """Make a refusal in the standard error envelope."""
        return Refusal(status, error_body(self.state.clock, code, message, details))

    def not_found(self, what: str) -> Refusal:
        """Make the 404 for a resource that is not in the selected team and data mode."""
        return self.refusal(404, "resource_not_found", f"{what} not found")

    def invalid(self, problems: Iterable[str]) -> Refusal:
        """Make the 400 that names every invalid field as ``<field path>: <message>``."""
        return self.refusal(400, "validation_failed", "Validation failed", [*problems])

    def found(self, rows: Mapping[K, V], key: K, what: str) -> V:
        """Return what is under *key*, or refuse with 404."""
        if key not in rows:
            raise self.not_found(what)
        return rows[key]

    def path_id(self, name: str, pattern: str) -> str:
        """Return an id from the path, or refuse with 400 if it does not match *pattern*."""
        value = self.path[name]
        if not re.fullmatch(pattern, value):
            raise self.invalid([f"{name}: does not match ^{pattern}$"])
        return value

    def checked(self, check: Check) -> dict[str, Json]:
        """
        Return the body if *check* finds no problem.

        Raises:
            Refusal: 400, ``invalid_request_body`` or ``validation_failed`` with every problem.
        """
        if isinstance(self.body, ValueError):
            raise self.refusal(
                400,
                "invalid_request_body",
                "The body is not valid JSON",
                str(self.body),
            )
        if not is_object(self.body):
            raise self.refusal(
                400, "invalid_request_body", "The body must be a JSON object"
            )
        if problems := [*check(self.body, "")]:
            raise self.invalid(problems)
        return self.body

    def check_query(self, query: Query) -> None:
        """Refuse with 400 if a parameter of *query* was invalid."""
        if query.problems:
            raise self.invalid(query.problems)

    def require_role(self, role: Role, module: str | None = None) -> None:
        """Refuse with 403 ``insufficient_permissions`` a caller below *role* or outside *module*."""
        credential = self.caller.credential
        is_below = RANK[credential.role] < RANK[role]
        is_outside = module is not None and module not in credential.modules
        if is_below or is_outside:
            asked = role if module is None else f"{role} of {module}"
            raise self.refusal(
                403, "insufficient_permissions", f"This needs the authority of {asked}"
            )

    def require_person(self, team: str) -> None:
        """Refuse with 403 all callers except persons who are members of *team*."""
        credential = self.caller.credential
        if credential.kind != "person":
            raise self.refusal(
                403, "insufficient_permissions", "This needs a person's token"
            )
        if team not in self.state.users.items[credential.user]["teams"]:
            raise self.refusal(
                403, "insufficient_permissions", "No active membership in this team"
            )


def error_body(
    clock: ServiceClock,
    code: str,
    message: str,
    details: Details = None,
) -> dict[str, Json]:
    """Make the standard error envelope."""
    error: dict[str, Json] = {"code": code, "message": message}
    if details is not None:
        error["details"] = details
    return {"success": False, "error": error, "timestamp": clock.now_ms()}
