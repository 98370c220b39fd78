"""
The HTTP application of the simulator: records each arrival, then executes it with the faults of its step.

The ledger names every fault.  A request that has arrived takes effect even if its client disconnects.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from invsvc_async.simulator import replies
from invsvc_async.simulator.auth import Caller, Credential
from invsvc_async.simulator.calls import Answer, Malformed, Refusal
from invsvc_async.simulator.exchange import Exchange
from invsvc_async.simulator.faults import Faults, Step, parse_for, parse_step
from invsvc_async.simulator.json_records import read_json
from invsvc_async.simulator.ledger import SENDER
from invsvc_async.simulator.routes import BY_OPERATION, TABLE, UNKNOWN, Route
from invsvc_async.simulator.state import Book, seeded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp import web

    from invsvc_async.simulator.auth import Keyring
    from invsvc_async.simulator.json_records import Json
    from invsvc_async.simulator.ledger import Entry, Ledger
    from invsvc_async.simulator.state import State

PASS = parse_step("pass")
IDLE_CLOSE_AFTER = 0.02  # seconds, by default
NOBODY = Caller(Credential("key", None, livemode=True, user=""), team="", livemode=True)


class Application:
    """Routes, scripts and the fault plan around the operations."""

    def __init__(self, state: State, keyring: Keyring, ledger: Ledger, *, faults: Faults, seed: int) -> None:
        self.faults = faults
        self.latency: float = 0.0
        self.places: asyncio.Semaphore | None = None
        self.on_effect: Callable[[str, Book, Answer], None] | None = None
        self._state, self._keyring, self._ledger = state, keyring, ledger
        self._chance = seeded(seed, "faults")
        self._scripts: dict[str, deque[Step]] = {}
        self._busy: set[web.RequestHandler] = set()
        self._pending: set[asyncio.Task[Any]] = set()  # Any: late effects and slow exchanges
        self._released = asyncio.Event()

    def mount(self, app: web.Application) -> None:
        """Add every route below ``/v2``, and a 404 in the service's envelope for everything else."""
        for route in TABLE:
            app.router.add_route(route.method, f"/v2{route.path}", partial(self._arrive, route))
        app.router.add_route("*", UNKNOWN.path, partial(self._arrive, UNKNOWN))

    def script(self, operation: str, *steps: str) -> None:
        """
        Set the steps of the next arrivals of *operation*, one each.

        Raises:
            ValueError: The operation or a step is unknown.

        """
        route = BY_OPERATION.get(operation)
        if route is None:
            raise ValueError(
                f"unknown operation {operation!r}; expected one of {', '.join(sorted(BY_OPERATION))}"
            )
        parsed = [parse_for(operation, words, write=route.write) for words in steps]
        self._scripts.setdefault(operation, deque()).extend(parsed)

    def scripted(self) -> dict[str, list[str]]:
        """Return the words of the steps that wait for their arrivals, by operation."""
        return {name: [step.words for step in steps] for name, steps in self._scripts.items() if steps}

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
            return replies.Broken(replies.close)  # the client disconnected within the body: not an arrival
        protocol = request.protocol
        self._busy.add(protocol)
        exchange = self._note(route, request, raw)
        try:
            response = await self._play(self._next_step(route), request, exchange)
        except BaseException:
            self._end(exchange.entry)
            raise
        finally:
            self._busy.discard(protocol)
        if isinstance(response, replies.Broken):
            response.on_end = partial(self._end, exchange.entry)
        else:
            self._end(exchange.entry)
        return response

    def _end(self, entry: Entry) -> None:
        entry.ended_at = self._ledger.steady()

    def _note(self, route: Route, request: web.Request, raw: bytes) -> Exchange:
        query = dict(request.query) if request.query_string else {}
        body = _parsed(raw) if route.write else None
        entry = self._ledger.arrive(
            route.operation,
            write=route.write,
            path_id=next(reversed(request.match_info.values()), None),
            query=query,
            body=raw.decode(errors="replace") if isinstance(body, Malformed) else body,
            sender=request.headers.get(SENDER),
        )
        caller = self._caller(route, request, query)
        if isinstance(caller, Caller) and caller is not NOBODY:
            entry.team, entry.livemode = caller.team, caller.livemode
        return Exchange(route, entry, caller, request.match_info, query, body)

    def _next_step(self, route: Route) -> Step:
        steps = self._scripts.get(route.operation)
        if steps:
            return steps.popleft()
        return self.faults.draw(self._chance, route.operation, write=route.write) or PASS

    def _caller(self, route: Route, request: web.Request, query: Mapping[str, str]) -> Caller | Refusal:
        if route.public:
            return NOBODY
        try:
            return self._keyring.caller(request.headers.get("Authorization"), query.get("team"))
        except Refusal as refused:
            return refused

    async def _play(self, step: Step, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        if step is not PASS:
            exchange.entry.fault = step.words
        if self.latency or step.wait:
            await self._work(step.wait)
        if step.effect == "late":
            self._apply_later(step.late, exchange)
        elif step.effect == "now":
            past = self._state.clock.steady() - (step.number or 0) if step.end == "stale" else None
            outcome = exchange.perform(self._state, past, self.on_effect)
            if step.truthful:
                return await self._tell(step, request, exchange.true_answer(step, outcome))
        if step.end == "hang":
            return replies.Broken(replies.hang(self._released, step.number))
        if step.end in replies.BROKEN:
            return replies.Broken(replies.BROKEN[step.end])
        return exchange.false_answer(step, self._state.clock)

    async def _tell(self, step: Step, request: web.Request, whole: web.Response) -> web.StreamResponse:
        if step.end == "drip":
            return await replies.drip(request, whole)
        if step.end == "slow" and step.number:
            await asyncio.sleep(step.number)
        elif step.end == "idle-close":
            pause = IDLE_CLOSE_AFTER if step.number is None else step.number
            asyncio.get_running_loop().call_later(pause, self._close_if_idle, request.protocol)
        return whole

    def _close_if_idle(self, protocol: web.RequestHandler) -> None:
        if protocol not in self._busy:
            protocol.force_close()

    async def _work(self, more: float) -> None:
        self._await_effect(asyncio.current_task())
        if self.places is None:
            await asyncio.sleep(self.latency + more)
        else:
            async with self.places:
                await asyncio.sleep(self.latency + more)

    def _apply_later(self, seconds: float, exchange: Exchange) -> None:
        async def land() -> None:
            await asyncio.sleep(seconds)
            exchange.perform(self._state, None, self.on_effect)
            exchange.entry.late = exchange.entry.applied

        exchange.entry.late = True
        self._await_effect(asyncio.create_task(land()))

    def _await_effect(self, task: asyncio.Task[Any] | None) -> None:
        if task is not None:
            self._pending.add(task)
            task.add_done_callback(self._pending.discard)


def _parsed(raw: bytes) -> Json | Malformed:
    try:
        return read_json(raw) if raw else None
    except ValueError as error:
        return Malformed(str(error))
