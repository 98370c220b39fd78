"""
What a soak knows of each of its writes: what it wants, its runs, its requests, and the verdicts heard of it.

The requests carry the write's key in a header, so that the ledger attributes every effect to one of them.
"""

from __future__ import annotations

from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async import Verdict
from invsvc_async.simulator.ledger import SENDER
from invsvc_async.transport.client_core import ClientOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from invsvc_async import Client, Outcome
    from invsvc_async.simulator import Entry
    from invsvc_async.transport.client_core import Request
    from invsvc_async.transport.exchange import Exchange
    from tests.support.virtual_time import JumpingLoop

__all__ = ["CURRENT", "Flights", "Heard", "Run", "Sent", "Sibling", "attributed"]

# The write that the calling task drives, and which run of it that is.
CURRENT: ContextVar[tuple[Sibling, Run] | None] = ContextVar("CURRENT", default=None)


@attrs.define(eq=False)
class Run:
    """One time that a write was driven: its first one, or one that took it up; times are the loop's, s."""

    kind: str  # "live", "settle", "resume" or "recover"
    client: str
    began: float
    ended: float | None = None
    # by another client, while this program went on writing the same thing
    beside: bool = False


@attrs.define(eq=False)
class Sent:
    """One request of a write."""

    run: Run
    began: float
    opened: float | None = None  # when its first byte may have left
    name: str = ""  # its header's value


@attrs.frozen(eq=False)
class Heard:
    """A verdict that the application has heard, and when; *outcome* is kept where anything was in doubt."""

    verdict: Verdict
    at: float
    run: Run
    value_id: str | None = None
    outcome: Outcome[Any] | None = None  # Any: of any operation
    ahead: float = 0.0  # s by which the times of *outcome* are ahead of the loop's


@attrs.define(eq=False)
class Sibling:
    """One write; *wanted* are the fields by which the state shows it, ``None`` where it is to be gone."""

    key: str
    operation: str
    thing: str
    wanted: dict[str, Any] | None  # Any: JSON
    chain: tuple[int, int] = (0, 0)  # its sequence, and its place there
    runs: list[Run] = attrs.field(factory=list)
    sent: list[Sent] = attrs.field(factory=list)
    heard: list[Heard] = attrs.field(factory=list)
    # errors that no verdict is to raise, with their tracebacks
    raised: list[str] = attrs.field(factory=list)
    on_send: Callable[[], None] | None = None
    holder: str = ""  # the process that has its intent, once it was cancelled
    over: bool = False  # nobody takes it up any more

    def begin(self, kind: str, client: str, at: float, *, beside: bool = False) -> Run:
        """Note a run, which is that of the calling task from now on."""
        run = Run(kind, client, at, beside=beside)
        self.runs.append(run)
        CURRENT.set((self, run))
        return run

    def hear(self, outcome: Outcome[Any], run: Run, at: float, ahead: float) -> None:
        """Note a verdict at the moment at which the application has it."""
        run.ended = at
        value = outcome.value
        known_as = (
            value.get("id") if isinstance(value, dict) else getattr(value, "id", None)
        )
        plain = outcome.verdict is Verdict.APPLIED and len(outcome.history) == 1
        kept = None if plain else outcome
        self.heard.append(Heard(outcome.verdict, at, run, known_as, kept, ahead))

    @property
    def first_opened(self) -> float | None:
        """When its first byte may have left, loop s."""
        return min(
            (each.opened for each in self.sent if each.opened is not None), default=None
        )


@attrs.define(eq=False)
class Flights:
    """The requests to write that have left and have not arrived yet, by the value of their header."""

    entries: Sequence[Entry]
    _seen: int = 0
    _pending: dict[str, Sent] = attrs.field(factory=dict)
    _numbers: count[int] = attrs.field(factory=count)

    def depart(self, key: str, sent: Sent) -> str:
        """Return the header's value for *sent*, of the write *key*."""
        name = sent.name = f"{key}@{sent.run.client}#{next(self._numbers)}"
        self._pending[name] = sent
        return name

    def stay(self, name: str) -> None:
        """Note that the request never left."""
        self._pending.pop(name, None)

    def any(self) -> bool:
        """Return whether a request may still be on its way."""
        entries = self.entries
        while self._seen < len(entries):
            sender = entries[self._seen].sender
            self._seen += 1
            if sender is not None:
                self._pending.pop(sender, None)
        return bool(self._pending)

    def give_up(self) -> None:
        """Count none of them as on its way any more."""
        self._pending.clear()


class AttributedView(ClientOptions, kw_only=True, eq=False):
    """A view that puts the key of the calling task's write on each request to write."""

    flights: Flights
    loop: JumpingLoop
    ahead: float

    async def _attributed(self, request: Request, exchange: Exchange) -> Exchange:
        current = CURRENT.get()
        if current is None:
            raise RuntimeError(
                f"{request.operation.name}: it belongs to no write of the soak"
            )
        sibling, run = current
        sent = Sent(run, self.loop.time())
        sibling.sent.append(sent)
        name = self.flights.depart(sibling.key, sent)
        exchange.headers = {**exchange.headers, SENDER: name}
        if sibling.on_send is not None:
            sibling.on_send()
        try:
            return await super().send(request, exchange)
        finally:
            end = exchange.end
            if end is not None and end.name == "NOT_SENT":
                self.flights.stay(name)
            else:
                sent.opened = exchange.started - self.ahead

    # Any: an awaitable of the exchange
    def send(self, request: Request, exchange: Exchange) -> Any:
        """Send *exchange*, with the key of its write if it writes."""
        return (
            self._attributed(request, exchange)
            if exchange.write
            else super().send(request, exchange)
        )


def attributed(
    client: Client, flights: Flights, loop: JumpingLoop, *, ahead: float = 0.0
) -> Client:
    """Return *client* with attributed requests; its clock is *ahead* of the loop's by some seconds."""
    plain = client._view
    client._view = AttributedView(
        core=plain.core,
        timeouts=plain.timeouts,
        reads=plain.reads,
        reconcile=plain.reconcile,
        names=plain.names,
        team=plain.team,
        journal=plain.journal,
        flights=flights,
        loop=loop,
        ahead=ahead,
    )
    return client
