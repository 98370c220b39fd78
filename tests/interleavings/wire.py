"""
The transport of one client: each request goes to the service in memory, and ends as the schedule says.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import attrs
from multidict import CIMultiDict, CIMultiDictProxy

from invsvc_async.errors import ConfigurationError
from invsvc_async.reconcile.enums import End
from tests.interleavings.loop import RUN, START
from tests.interleavings.service import (
    CONNECT,
    FATES,
    READS,
    REFUSED_READS,
    WRITER,
    Sent,
    Service,
    thing_of,
)

if TYPE_CHECKING:
    from invsvc_async.transport.exchange import Exchange

_JSON = CIMultiDictProxy(CIMultiDict({"Content-Type": "application/json"}))


@attrs.define(eq=False)
class Wire:
    """The transport of one client."""

    service: Service
    client: str
    closed: bool = False
    _in_flight: set[asyncio.Future[None]] = attrs.field(factory=set)

    def check_loop(self, *, closing: bool = False) -> None:
        """Accept it: there is only one event loop."""

    async def send(self, exchange: Exchange) -> Exchange:
        """Do what ``Transport.send`` does, with what the schedule says."""
        if self.closed:
            raise ConfigurationError(
                "client: it is closed, so this was not sent. Make a new one."
            )
        exchange.started = self.service.loop.now
        opened = False
        try:
            if not await self._pause(CONNECT) or self._is_late(exchange):
                return exchange
            exchange.started, opened = self.service.loop.now, True
            await (self._write(exchange) if exchange.write else self._read(exchange))
        finally:
            exchange.ended = self.service.loop.now
            if exchange.end is None:
                exchange.end = End.LOST if opened else End.NOT_SENT
                exchange.error = ConnectionError("as the schedule has it")
        return exchange

    def _is_late(self, exchange: Exchange) -> bool:
        return (
            exchange.not_after is not None
            and self.service.loop.now > exchange.not_after
        )

    async def _pause(self, seconds: float) -> bool:
        """Advance the time by *seconds*; return ``False`` if the client is closed meanwhile."""
        loop = self.service.loop
        over = loop.create_future()
        timer = loop.call_later(seconds, _wake, over)
        self._in_flight.add(over)
        try:
            await over
        finally:
            timer.cancel()
            self._in_flight.discard(over)
        return not self.closed

    async def _write(self, exchange: Exchange) -> None:
        service, loop = self.service, self.service.loop
        writer = WRITER.get()
        ways = service.fates.get(writer, ("ok",))
        before = sum(sent.writer == writer for sent in service.sends)
        if before:  # what is sent again
            ways = tuple(dict.fromkeys(("ok", *ways)))
        costs = [0 if not before or way == "ok" else 1 for way in ways]
        chosen = service.loop.schedule.choose(
            f"fate of {writer}", ways, at=loop.now - START, costs=costs
        )
        fate = FATES[ways[chosen]]
        if not fate.leaves:
            exchange.end = End.NOT_SENT
            exchange.error = ConnectionError("refused")
            return
        body = json.loads(exchange.content) if exchange.content else None
        path = exchange.url.path.removeprefix("/v2")
        sent = Sent(writer, self.client, thing_of(exchange.method, path, body), exchange.method, body,
                    loop.now, fate)  # fmt: skip
        number = len(service.sends)
        service.sends.append(sent)
        refused = exchange.method != "POST" and service.state(path) is None
        if fate.effect is not None and not refused:
            service.land_at(number, loop.now + fate.effect)
        try:
            alive = await self._pause(fate.lasts)
        finally:
            service.end(number)
        if not alive or fate.status is None:
            return
        sent.answered = fate.status == 200
        sent.status = fate.status
        if fate.status == 200 and not any(
            effect.number == number for effect in service.effects
        ):
            sent.status = 404
            self._answer(exchange, 404, None)
        else:
            self._answer(
                exchange,
                fate.status,
                self._value(number) if fate.status == 200 else None,
            )

    def _value(self, number: int) -> Any:
        service = self.service
        sent = service.sends[number]
        if sent.method == "POST":
            made = next(
                effect.made for effect in service.effects if effect.number == number
            )
            return (
                {**service.hooks[made], "secret": "s"}
                if made in service.hooks
                else {"id": made}
            )
        if sent.method == "DELETE":
            return {"id": sent.thing.rpartition("/")[2], "message": "gone"}
        return service.state(sent.thing)

    async def _read(self, exchange: Exchange) -> None:
        service, loop = self.service, self.service.loop
        chosen = loop.schedule.choose("read", service.reads, at=loop.now - START)
        way = service.reads[chosen]
        begun = loop.now
        path = exchange.url.path.removeprefix("/v2")
        seen: Any = (
            [dict(hook) for hook in service.hooks.values()]
            if path == "/webhooks"
            else service.state(path)
        )
        found = 404 if seen is None else 200
        status = REFUSED_READS.get(way, found)
        stamp = service.stamp()
        if not await self._pause(READS[way]):
            return
        service.looks.append((begun, loop.now, RUN.get(), f"{path} {status}"))
        self._answer(exchange, status, seen if status == 200 else None, stamp)

    def _answer(
        self, exchange: Exchange, status: int, data: Any, stamp: int | None = None
    ) -> None:
        stamp = self.service.stamp() if stamp is None else stamp
        body: dict[str, Any] = {"success": status == 200, "timestamp": stamp}
        if status == 200:
            body |= {"data": data, "message": "ok"}
        else:
            body["error"] = {"code": "internal_server_error" if status >= 500 else "resource_not_found",
                             "message": str(status)}  # fmt: skip
        exchange.status, exchange.answer_headers = status, _JSON
        exchange.answer = json.dumps(body).encode()
        exchange.end = End.ANSWERED

    async def aclose(self) -> None:
        """End what is in flight."""
        self.closed = True
        for over in tuple(self._in_flight):
            _wake(over)
        while self._in_flight:  # noqa: ASYNC110 - it is left within one turn of the loop
            await asyncio.sleep(0)


def _wake(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)
