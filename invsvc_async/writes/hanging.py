"""
Sends that hang: what a read beside them shows before their answer comes, or instead of it.

A service may apply a write and never answer. Without a read beside it, the write would wait for the whole
timeout of its attempt. So a send that has been under way for longer than nearly all answers of this client,
and for at least ``LEAST`` seconds, is looked at, once, with the reserve of connections for settling. If the
read shows the write, with the proof that APPLIED needs while a settle window is open, the request is given
up: it counts as lost, and the read follows it in the history. Else it goes on, and the read is forgotten: it
says nothing about what is absent, and allows no send.

A create whose answer has a secret is given up later, because a slow answer would bring the secret.

One timer looks for all sends of a client: most are answered before it does. It is not cancelled then, because
the next write would need another; it ends when it finds none under way.
"""

from __future__ import annotations

import asyncio
from math import ceil, log
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from invsvc_async.reconcile.history import End

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

    from msgspec import Raw

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.concurrency.clock import Clock
    from invsvc_async.reconcile.history import Reading
    from invsvc_async.transport.transport import Exchange


LEAST = 1.0  # s under way, before a send is looked at
_ONE_IN = 20  # "nearly all" are all but one answer in 20
_EVERY = 0.25  # s between two looks for sends that hang
_STEP = 1.25  # by which the times of two groups of answers differ
_ANSWERED = End.ANSWERED  # on 3.11, access through the class takes as long as a call
_KEPT = 1_000  # answers, before earlier ones count half


class AnswerDelays:
    """How long nearly all answers take. Those of late count most."""

    def __init__(self) -> None:
        self._answers = 0.0
        self._slow: dict[int, float] = {}  # by group: how many took at least LEAST

    def note(self, seconds: float) -> None:
        """Note an answer that took *seconds*, or a request that was given up after them."""
        self._answers += 1
        if seconds >= LEAST:
            group = ceil(log(seconds / LEAST, _STEP))
            self._slow[group] = self._slow.get(group, 0.0) + 1
        if self._answers >= _KEPT:
            self._answers /= 2
            self._slow = {group: many / 2 for group, many in self._slow.items()}

    @property
    def nearly_all(self) -> float:
        """The seconds within which nearly all answers came; at least ``LEAST``."""
        slower = 0.0
        for group in sorted(self._slow, reverse=True):
            slower += self._slow[group]
            if slower * _ONE_IN > self._answers:
                return float(LEAST * _STEP**group)
        return LEAST


class SendUnderWay(Struct, eq=False):
    """
    A send that may hang, whose times are those of *clock*.

    ``look`` reads beside it, in the ``context`` of its run, and is given the seconds for which it has hung.
    ``found`` is a reading that shows the write, and its JSON.
    """

    exchange: Exchange
    clock: Clock
    look: Callable[[SendUnderWay, float], Coroutine[Any, Any, None]]
    context: Context
    task: asyncio.Task[None] | None = None  # of the look
    found: tuple[Reading, Wire | Raw] | None = None


class HangingSends:
    """The sends of a client that are under way, and the timer that looks for those that hang."""

    def __init__(self) -> None:
        self.times: AnswerDelays = AnswerDelays()
        self._open: dict[Exchange, SendUnderWay] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, sending: SendUnderWay) -> None:
        """Watch *sending*, until :meth:`end`."""
        self._open[sending.exchange] = sending
        if self._timer is None:
            self._look_in(LEAST)

    def end(self, sending: SendUnderWay) -> None:
        """Watch *sending* no longer, because it has ended."""
        exchange = sending.exchange
        self._open.pop(exchange, None)
        if sending.task is not None:
            sending.task.cancel()
        is_answered = exchange.end is _ANSWERED and (exchange.status or 0) < 500
        if is_answered or exchange.given_up:
            self.times.note(exchange.ended - exchange.started)

    def _look_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        """Begin a read beside each send that hangs."""
        self._timer = None
        after = self.times.nearly_all
        for exchange, sending in list(self._open.items()):
            if exchange.end is not None:  # a signal handler raised before `end`
                del self._open[exchange]
            elif sending.task is None and _hangs(sending, after):
                sending.task = asyncio.get_running_loop().create_task(
                    sending.look(sending, after), context=sending.context
                )
        if self._open:
            self._look_in(_EVERY)


def _hangs(sending: SendUnderWay, after: float) -> bool:
    """Return whether *sending* left so many seconds ago, and waits for an answer."""
    exchange = sending.exchange
    return exchange.may_have_left and sending.clock.now() - exchange.started >= after
