"""
The HTTP application of the simulator: records each arrival, then executes it with the faults of its step.

The ledger names every fault.  A request that has arrived takes effect even if its client disconnects, and a
write gets a 2xx only after its whole effect.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from invsvc_async.simulator import replies
from invsvc_async.simulator.auth import Caller, IssuedToken, Keyring, Refusal
from invsvc_async.simulator.calls import Answer, Call, error_body
from invsvc_async.simulator.faults import TRUTHFUL, Plan, Step, parse_step
from invsvc_async.simulator.json_records import read_json
from invsvc_async.simulator.ledger import SENDER, Entry, Ledger
from invsvc_async.simulator.operations import BY_OPERATION, UNKNOWN, Route
from invsvc_async.simulator.plan_checks import check_seconds, digits
from invsvc_async.simulator.state import Book, ServiceClock, seeded

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from aiohttp import web


PASS = parse_step("pass")
IDLE_CLOSE_AFTER = 0.02  # seconds, by default
NOBODY = Caller(
    IssuedToken("key", None, livemode=True, user=""), team="", livemode=True
)
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
class ReceivedRequest:
    """A request that has arrived completely, with its entry, and the reason if the caller was refused."""

    route: Route
    call: Call
    entry: Entry
    refused: Refusal | None


def _check_at_once(at_once: object) -> None:
    """Raise ValueError if *at_once* is neither ``None`` nor a number of requests."""
    if at_once is None:
        return
    if not isinstance(at_once, int) or at_once < 1:
        raise ValueError(f"at_once must be 1 or more, or None, not {at_once!r}")


class Application:
    """Routes, scripts and the fault plan around the operations."""

    def __init__(
        self,
        keyring: Keyring,
        ledger: Ledger,
        plan: Plan,
        *,
        seed: int,
        latency: float,
        at_once: int | None,
    ) -> None:
        check_seconds("latency", latency)
        _check_at_once(at_once)
        self.latency = latency
        self._places = nullcontext() if at_once is None else asyncio.Semaphore(at_once)
        self.on_effect: Callable[[str, Book, Answer], None] | None = None
        self.scripts: dict[str, deque[Step]] = {}
        self._state = keyring.state
        self._keyring = keyring
        self._ledger = ledger
        self._plan = plan
        self._chance = seeded(seed, "faults")
        self._busy: set[web.RequestHandler] = set()
        # Any: late effects and slow exchanges
        self._pending: set[asyncio.Task[Any]] = set()
        self._released = asyncio.Event()

    def mount(self, app: web.Application) -> None:
        """Add every route below ``/v2``, and a 404 in the service's envelope for everything else."""
        for route in BY_OPERATION.values():
            app.router.add_route(
                route.method, f"/v2{route.path}", partial(self._arrive, route)
            )
        app.router.add_route("*", UNKNOWN.path, partial(self._arrive, UNKNOWN))

    async def settled(self) -> None:
        """Wait until no effect is pending, neither a late one nor that of a slow exchange."""
        while self._pending:
            await asyncio.wait(self._pending)

    async def stop(self) -> None:
        """End hanging exchanges, and drop pending late effects."""
        self._released.set()
        pending = list(self._pending)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    async def _arrive(self, route: Route, request: web.Request) -> web.StreamResponse:
        try:
            raw = await request.read()
        except ConnectionError:
            # the client disconnected within the body: not an arrival
            return replies.Broken()
        protocol = request.protocol
        self._busy.add(protocol)
        exchange = self._note(route, request, raw)
        try:
            steps = self.scripts.get(route.operation)
            step: Step | None
            if steps:
                step = steps.popleft()
            else:
                step = self._plan().draw(
                    self._chance, route.operation, write=route.write
                )
            return await self._play(step or PASS, request, exchange)
        finally:
            exchange.entry.ended_at = self._ledger.steady()
            self._busy.discard(protocol)

    def _note(
        self,
        route: Route,
        request: web.Request,
        raw: bytes,
    ) -> ReceivedRequest:
        """Record the arrival, and find out who sent it."""
        body = None
        noted = None
        if route.write and raw:
            try:
                body = noted = read_json(raw)
            except ValueError as error:
                body = error
                noted = raw.decode(errors="replace")
        query = dict(request.query) if request.query_string else {}
        entry = Entry(
            operation=route.operation,
            path_id=next(reversed(request.match_info.values()), None),
            query=query,
            body=noted,
            sender=request.headers.get(SENDER),
        )
        self._ledger.add(entry, write=route.write)
        caller = NOBODY
        refused = None
        if not route.public:
            try:
                caller = self._keyring.caller(
                    request.headers.get("Authorization"), query.get("team")
                )
                entry.team = caller.team
                entry.livemode = caller.livemode
            except Refusal as error:
                refused = error
        return ReceivedRequest(
            route,
            Call(self._state, caller, request.match_info, query, body),
            entry,
            refused,
        )

    async def _play(
        self,
        step: Step,
        request: web.Request,
        exchange: ReceivedRequest,
    ) -> web.StreamResponse:
        if step is not PASS:
            exchange.entry.fault = step.words
        if self.latency or step.wait:
            self._await_effect(asyncio.current_task())
            async with self._places:
                await asyncio.sleep(self.latency + step.wait)
        if step.effect == "late":

            async def perform_later() -> None:
                await asyncio.sleep(step.late)
                self._perform(exchange)
                exchange.entry.late = exchange.entry.applied

            exchange.entry.late = True
            self._await_effect(asyncio.create_task(perform_later()))
        elif step.effect == "now":
            if step.end == "stale":
                exchange.call.past = self._state.clock.steady() - (step.number or 0)
            outcome = self._perform(exchange)
            if step.end in TRUTHFUL:
                return await self._tell(step, request, exchange.entry, outcome)
        if step.end == "hang":
            return await replies.hang(request, self._released, step.number)
        if step.end in replies.CUT_OFF:
            return replies.cut_off(request, step.end)
        return _false_answer(step, exchange.entry, self._state.clock)

    def _perform(self, exchange: ReceivedRequest) -> Answer | Refusal:
        """Run the operation, once.  On return, a write's effect is in the state and in the entry."""
        route = exchange.route
        entry = exchange.entry
        if exchange.refused is not None:
            return exchange.refused
        try:
            answer = route.run(exchange.call)
        except Refusal as refused:
            return refused
        if route.write:
            entry.applied_at = self._state.clock.steady()
            entry.target = answer.target
            if answer.kept is not None:
                entry.stored = answer.kept.how
                entry.fields = answer.kept.stored
            if self.on_effect is not None:
                self.on_effect(route.operation, exchange.call.book, answer)
        return answer

    async def _tell(
        self,
        step: Step,
        request: web.Request,
        entry: Entry,
        outcome: Answer | Refusal,
    ) -> web.StreamResponse:
        """Send the answer of the operation."""
        entry.answered = outcome.status
        entry.refused = isinstance(outcome, Refusal)
        whole = replies.answer(outcome.status, _body(step, outcome))
        if step.end == "drip":
            return await replies.drip(request, whole)
        if step.end == "slow" and step.number:
            await asyncio.sleep(step.number)
        elif step.end == "idle-close":
            seconds = step.number
            if seconds is None:
                seconds = IDLE_CLOSE_AFTER
            self._close_later(request, seconds)
        return whole

    def _close_later(self, request: web.Request, seconds: float) -> None:
        """Close the connection of *request* in so many *seconds*, if it is idle then."""
        protocol = request.protocol

        def close_if_idle() -> None:
            if protocol not in self._busy:
                protocol.force_close()

        asyncio.get_running_loop().call_later(seconds, close_if_idle)

    def _await_effect(self, task: asyncio.Task[Any] | None) -> None:
        if task is not None:
            self._pending.add(task)
            task.add_done_callback(self._pending.discard)


def _body(step: Step, outcome: Answer | Refusal) -> Any:  # Any: JSON, or bytes
    """Return the body of the answer of an operation: of a success without its payload, or with a bad item."""
    body = outcome.body
    if not isinstance(outcome, Answer) or not isinstance(body, dict):
        return body
    if step.end == "bare":
        return {name: value for name, value in body.items() if name != "data"}
    if step.end == "bad item" and body["data"]:
        first, *rest = body["data"]
        return {**body, "data": [{**first, "total": "abc"}, *rest]}
    return body


def _false_answer(
    step: Step,
    entry: Entry,
    clock: ServiceClock,
) -> web.Response:
    """Return the answer of the step, whether or not the effect happened."""
    status = entry.answered = step.status or 200
    if step.end == "success false":
        return replies.answer(
            200, error_body(clock, "internal_server_error", "The operation failed")
        )
    if step.end != "status":
        return replies.answer(200, *replies.UNREADABLE[step.end])
    if not step.own:
        return replies.gateway_page(status)
    entry.refused = status < 500 and step.effect == "none"
    return _own_error(step, status, clock)


def _own_error(
    step: Step,
    status: int,
    clock: ServiceClock,
) -> web.Response:
    """Return the error with this *status* as the service itself answers it."""
    if step.variant == "raw":
        return replies.answer(status, {"message": "Unauthorized"})
    if step.variant == "credits":
        code = "document_credits_exhausted"
        message = "No document credits are left"
        return replies.answer(status, error_body(clock, code, message))
    other = "operation_not_allowed" if status < 500 else "internal_server_error"
    code = CODES.get(status, other)
    message = f"Answered {status} as it was told to"
    headers = dict[str, str]()
    if status == 429:
        seconds = step.number
        if seconds is None:
            seconds = 1
        headers["Retry-After"] = digits(seconds)
    return replies.answer(status, error_body(clock, code, message), headers)
