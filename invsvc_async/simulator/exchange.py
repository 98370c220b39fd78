"""
One request on its way through the service: the operation, and the answer that its step requires.

A write gets a 2xx only after its effect.  The ledger entry records everything that happens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from invsvc_async.simulator import replies
from invsvc_async.simulator.calls import Answer, Call, Malformed, Refusal, error_body
from invsvc_async.simulator.faults import digits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp import web

    from invsvc_async.simulator.auth import Caller
    from invsvc_async.simulator.faults import Step
    from invsvc_async.simulator.json_records import Json
    from invsvc_async.simulator.ledger import Entry
    from invsvc_async.simulator.routes import Route
    from invsvc_async.simulator.state import Book, Clock, State

CODES = {
    400: "validation_failed",
    401: "unauthorized",
    403: "forbidden",
    404: "resource_not_found",
    409: "resource_conflict",
    429: "rate_limit_exceeded",
    500: "internal_server_error",
    503: "service_unavailable",
}


@dataclass(slots=True)
class Exchange:
    """A request that has arrived completely, with its caller or the reason for a refusal."""

    route: Route
    entry: Entry
    caller: Caller | Refusal
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Json | Malformed

    def perform(
        self, state: State, past: float | None = None,
        on_effect: Callable[[str, Book, Answer], None] | None = None,
    ) -> Answer | Refusal:  # fmt: skip
        """Run the operation, once.  On return, a write's effect is in the state and in the entry."""
        if isinstance(self.caller, Refusal):
            return self.caller
        book = state.book(self.caller.team, livemode=self.caller.livemode)
        try:
            answer = self.route.run(state, Call(self.caller, book, self.path, self.query, self.body, past))
        except Refusal as refused:
            return refused
        if self.route.write:
            self.entry.applied_at, self.entry.target = state.clock.steady(), answer.target
            if on_effect is not None:
                on_effect(self.route.operation, book, answer)
        return answer

    def true_answer(self, step: Step, outcome: Answer | Refusal) -> web.Response:
        """Return the answer of the operation."""
        self.entry.answered = outcome.status
        self.entry.refused = isinstance(outcome, Refusal)
        body = outcome.body
        if isinstance(outcome, Answer) and isinstance(body, dict):
            if step.end == "bare":
                body = {name: value for name, value in body.items() if name != "data"}
            elif step.end == "bad item" and body["data"]:
                first, *rest = body["data"]
                body = {**body, "data": [{**first, "total": "abc"}, *rest]}
        return replies.answer(outcome.status, body)

    def false_answer(self, step: Step, clock: Clock) -> web.Response:
        """Return the answer of the step, whether or not the effect happened."""
        self.entry.answered = step.status or 200
        if step.end == "status":
            self.entry.refused = 400 <= step.status < 500 and step.own and step.effect == "none"
            return _with_status(step, clock)
        if step.end == "success false":
            return replies.answer(200, error_body(clock, "internal_server_error", "The operation failed"))
        body, headers = replies.UNREADABLE[step.end]
        return replies.answer(200, body, headers)


def _with_status(step: Step, clock: Clock) -> web.Response:
    status = step.status
    if not step.own:
        return replies.gateway_page(status)
    if step.variant == "raw":
        return replies.answer(status, {"message": "Unauthorized"})
    if step.variant == "credits":
        return replies.answer(
            status, error_body(clock, "document_credits_exhausted", "No document credits are left")
        )
    code = CODES.get(status, "operation_not_allowed" if status < 500 else "internal_server_error")
    headers = {"Retry-After": digits(1 if step.number is None else step.number)} if status == 429 else None
    return replies.answer(status, error_body(clock, code, f"Answered {status} as it was told to"), headers)
