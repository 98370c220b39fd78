"""
The transport: sends each request at most once, over one pool of connections.

How requests are sent is chosen by ``connections``: through aiohttp's connections (``lean_sender``), or with
its session (``session_sender``). Only the gate shows whether bytes can have been sent: the class of an
exception proves nothing.
"""

from __future__ import annotations

import asyncio
import ssl as tls
import warnings
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Literal

import aiohttp
from aiohttp import hdrs

from invsvc_async.concurrency.clock import Clock, SystemClock
from invsvc_async.concurrency.deadline import Deadline, Deadlines
from invsvc_async.concurrency.limiter import Limiter
from invsvc_async.errors import ConfigurationError
from invsvc_async.reconcile.enums import End
from invsvc_async.settings import check_count
from invsvc_async.transport.connections import Connections
from invsvc_async.transport.exchange import Exchange
from invsvc_async.transport.response_body import (
    Download,
    ReadableResponse,
    body_at_hand,
    failure,
    plain_error,
    whole_body,
)
from invsvc_async.transport.send_gate import Gate, RefusedError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from invsvc_async.concurrency.adaptive_limit import AdaptiveLimit
    from invsvc_async.transport.lean_sender import LeanSender
    from invsvc_async.transport.proxy import Proxy
    from invsvc_async.transport.session_sender import SessionSender

__all__ = ["Download", "Exchange", "Transport"]

BUILT_ON = f"aiohttp/{aiohttp.__version__}"
CLOSED = "client: it is closed, so this was not sent. Make a new one."
OTHER_LOOP = "client: it belongs to the event loop that used it first. Make one client for each loop."
MAX_RESPONSE_BYTES = 64 * 2**20
_ANSWERED = End.ANSWERED  # on 3.11, access through the class takes as long as a call
# s between two checks of deadlines: how late one may be noticed
_SHORTEST_WATCH = 0.005
_LONG_ANSWER = 2**20  # bytes
_SESSION_ANSWERED = (
    "the session that was passed answered without a request, as one with a cache does, or its connection "
    "held a stale answer. Pass a session without a cache"
)


class Transport:
    """
    Sends requests, each at most once. A transport belongs to the event loop that uses it first.

    ``max_concurrency`` limits the requests in flight; ``"adaptive"`` finds the limit by watching the service.
    ``max_response_bytes`` limits a body, both as received and decompressed. A user-supplied *session* is
    not closed. Its middlewares do not run, and redirects are not followed, because both can send twice.

    Raises:
        ConfigurationError: A number is not a whole number, or too small; or *session* or ``ssl`` is of
            another type. Or ``ssl``, ``trust_env`` or ``proxy`` is given with a session, which has its own.
    """

    def __init__(
        self,
        name: str = "client",
        max_concurrency: int | Literal["adaptive"] = 100,
        session: aiohttp.ClientSession | None = None,
        proxy: str | None = None,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        clock: Clock | None = None,
        *,
        ssl: tls.SSLContext | aiohttp.Fingerprint | bool | None = None,
        trust_env: bool = False,
    ) -> None:
        self._closed = False
        self._name = name
        check_count("max_response_bytes", max_response_bytes, least=1)
        _check_session(session, ssl, proxy, trust_env=trust_env)
        # Follows the capacity of the service, and sets the size of the limiter; None: the size is fixed. The
        # calls in flight are noted in it as well, because those that hang do not count against its size.
        self._adaptive_limit: AdaptiveLimit | None = None
        if max_concurrency != "adaptive":
            check_count("max_concurrency", max_concurrency, least=1)
            self._limiter = Limiter(max_concurrency)
        else:
            self._limiter = Limiter(1)  # of any size: it is resized below
            from invsvc_async.concurrency.adaptive_limit import LEAST, AdaptiveLimit

            self._adaptive_limit = AdaptiveLimit(least=LEAST)
            self._limiter.resize_calls(self._adaptive_limit.size)
        through: Proxy | None = None
        if proxy is not None:
            from invsvc_async.transport.proxy import proxy_from

            through = proxy_from(proxy)
        if ssl is None:
            ssl = True
        self.connections: Connections = Connections(
            name,
            session,
            most=partial(_most_connections, self._limiter, self._adaptive_limit),
            ssl=ssl,
            proxy=through,
            trust_env=trust_env,
        )
        self._cap = max_response_bytes
        self._clock = clock or SystemClock()
        self._loop: asyncio.AbstractEventLoop | None = None
        # Of its loop: a timer for each call costs as much as the gate.
        self._deadlines: Deadlines | None = None
        self._in_flight: set[Gate] = set()
        self._emptied = asyncio.Event()
        # While calls wait for a place: when the next call in flight begins to hang, and gives up its place.
        self._hang_timer: asyncio.TimerHandle | None = None

    def __del__(self) -> None:
        # Not session.closed: a connector that is collected with this may have closed itself just before.
        # There are none if an argument was refused.
        connections: Connections | None = getattr(self, "connections", None)
        if connections is None or self._closed:
            return
        if connections.is_left_open:
            words = f"unclosed {self._name}. Use it with `async with`, or await its aclose()."
            warnings.warn(words, ResourceWarning, source=self, stacklevel=2)

    async def send(self, exchange: Exchange) -> Exchange:
        """
        Send *exchange* once, record how it ended, and return it. Raises no network errors.

        Raises:
            ConfigurationError: The transport is closed or belongs to another event loop, or the user-supplied
                session is unsuitable.
            asyncio.CancelledError: The caller was cancelled.
        """
        loop, sender = self._bind()
        limiter = self._limiter
        lane = exchange.lane
        exchange.started = self._clock.now()
        gate = Gate(exchange, self._clock, loop)
        self._in_flight.add(gate)
        try:
            with Deadline(loop, exchange.deadline, self._deadlines) as gate.wait_limit:
                if not limiter.enter(lane, gate):  # no place is free
                    if self._adaptive_limit is not None:
                        self._resize_limiter(
                            self._adaptive_limit, is_about_to_wait=True
                        )
                    await limiter.wait(lane, gate)
                # Reads that settle writes have places of their own: only calls count, and hang.
                if self._adaptive_limit is not None and lane == "call":
                    self._adaptive_limit.in_flight.begin(gate, loop.time())
                    if limiter.has_waiting:
                        self._resize_limiter(self._adaptive_limit)
                response = await sender.request(gate)
                try:
                    _accept_head(gate, response, is_of_user=self.connections.is_of_user)
                    answer = body_at_hand(response, cap=self._cap)
                    if answer is None:
                        answer = await whole_body(response, cap=self._cap)
                    exchange.answer = answer
                    exchange.end = _ANSWERED
                finally:
                    if not response.closed:
                        response.close()
        except Exception as error:  # noqa: BLE001 - the gate shows how it ended, not the exception
            self._explain(gate, error)
        finally:
            try:
                self._conclude(gate)
            # A signal handler raised in it. Each of its steps may be done twice, but none may be left out: a
            # request that is not concluded would keep its place for ever.
            except BaseException:
                self._conclude(gate)
                raise
            if self._adaptive_limit is not None:
                exchange.note_load(self._adaptive_limit, limiter.calls)
                self._resize_limiter(self._adaptive_limit)
        return exchange

    def give_up(self, exchange: Exchange) -> None:
        """End *exchange*, if it is under way, as lost: a read has shown its effect."""
        for gate in self._in_flight:
            if gate.exchange is exchange:
                exchange.given_up = True
                gate.interrupt()
                return

    @asynccontextmanager
    async def stream(self, exchange: Exchange) -> AsyncGenerator[Download]:
        """
        Send *exchange* once, and yield the answer while it arrives. Answers may have any length.

        The time left until the deadline limits the wait for the head, and then each wait for more bytes. The
        answer is asked for without compression. An adaptive limit does not learn from streams.

        Raises:
            NotSentError: No byte of the request was sent.
            ResponseLostError: No answer arrived, or (while it is read) not all of it.
            ConfigurationError: As for :meth:`send`.
        """
        loop, sender = self._bind()
        limiter = self._limiter
        lane = exchange.lane
        exchange.started = self._clock.now()
        gate = Gate(exchange, self._clock, loop)
        self._in_flight.add(gate)
        longest_wait = exchange.deadline - loop.time()
        exchange.headers = {**exchange.headers, hdrs.ACCEPT_ENCODING: "identity"}
        async with AsyncExitStack() as undo:
            undo.callback(self._conclude, gate)
            try:
                with Deadline(
                    loop, exchange.deadline, self._deadlines
                ) as gate.wait_limit:
                    if not limiter.enter(lane, gate):
                        await limiter.wait(lane, gate)
                    response = await sender.request(gate)
                    _accept_head(gate, response, is_of_user=self.connections.is_of_user)
            except Exception as error:  # noqa: BLE001 - as in send
                self._explain(gate, error)
                raise failure(gate) from None
            finally:
                gate.wait_limit = None
            undo.callback(response.close)
            yield Download(
                response,
                gate,
                longest_wait=longest_wait,
                cap=self._cap,
            )

    async def aclose(self) -> None:
        """
        End all requests in flight at once, as not sent or lost, and close the connections.

        A user-supplied session stays open.

        Raises:
            ConfigurationError: It belongs to another event loop.
        """
        self.check_loop(closing=True)
        self._closed = True
        try:
            if self._loop is not None and not self._loop.is_closed():
                await self._end_requests()
        finally:  # also if it is cancelled
            if self._deadlines is not None:
                self._deadlines.set_timer(inf)
            if self._hang_timer is not None:
                self._hang_timer.cancel()
            await self.connections.close()

    async def _end_requests(self) -> None:
        """Interrupt all requests in flight, and wait until they have ended."""
        for gate in tuple(self._in_flight):
            gate.interrupt()
            # A stream between two reads: its connection was dropped just now, and its reader will notice at
            # the next read. The close does not wait for that, because a reader may never read on.
            if gate.wait_limit is None:
                self._in_flight.discard(gate)
        if self._in_flight:
            await self._emptied.wait()

    def _bind(self) -> tuple[asyncio.AbstractEventLoop, SessionSender | LeanSender]:
        """Bind the transport to the running loop; return the loop, and the sender of requests."""
        loop = asyncio.get_running_loop()
        if self._closed:
            raise ConfigurationError(CLOSED)
        if self._loop is None:
            self.connections.check_fit(loop)
            # Made and freed at once, for its effect on glibc's malloc, which keeps freed blocks of this size
            # from then on. Otherwise the memory of each long answer goes back to the system, and the next
            # long answer requests it again, page by page.
            bytes(_LONG_ANSWER)
            self._loop = loop
            self._deadlines = Deadlines(loop, every=_SHORTEST_WATCH)
        elif loop is not self._loop:
            raise ConfigurationError(OTHER_LOOP)
        return loop, self.connections.sender(loop)

    def check_loop(self, *, closing: bool = False) -> None:
        """
        Check that the transport is used in one event loop only.

        *closing*: once the transport's own loop is closed, any other loop may close the transport.

        Raises:
            ConfigurationError: The running loop is another one.
        """
        if self._loop is None:
            return
        if closing and self._loop.is_closed():
            return
        if asyncio.get_running_loop() is not self._loop:
            raise ConfigurationError(OTHER_LOOP)

    def _explain(self, gate: Gate, error: Exception) -> None:
        """Record in the exchange of *gate* why it has no answer."""
        exchange = gate.exchange
        if self._closed:
            exchange.error = ConnectionAbortedError("the client was closed")
        elif exchange.given_up:
            exchange.error = ConnectionAbortedError(
                "a read had shown it, so the answer was not waited for any longer"
            )
        elif gate.refusal and not gate.opened:  # aiohttp's own error says less
            exchange.error = ConnectionError(gate.refusal)
        else:
            exchange.timed_out = isinstance(error, TimeoutError)
            exchange.error = plain_error(error)

    def _resize_limiter(
        self, limit: AdaptiveLimit, *, is_about_to_wait: bool = False
    ) -> None:
        """
        Resize the limiter to *limit*, with a place more for each call that hangs; start waiting calls.

        While calls wait, this is done again when the next call begins to hang. The caller *is_about_to_wait*
        if it will wait, but is not among the limiter's waiting calls yet. This may be called at any time: all
        is computed anew.
        """
        assert self._loop is not None
        limiter = self._limiter
        now = self._loop.time()
        limiter.resize_calls(limit.size + limit.in_flight.hanging(now))
        if self._hang_timer is not None:
            self._hang_timer.cancel()
            self._hang_timer = None
        if not is_about_to_wait and not limiter.has_waiting:
            return
        hangs_at = limit.in_flight.next_hangs_at()
        if hangs_at < inf:
            # By then the caller that was about to wait is among the waiting calls, or has started.
            self._hang_timer = self._loop.call_at(hangs_at, self._resize_limiter, limit)

    def _conclude(self, gate: Gate) -> None:
        """
        Record how a request ended, and release its place.

        A second call does what is left, if a signal handler raised in the first one.
        """
        gate.sealed = True
        exchange = gate.exchange
        exchange.ended = self._clock.now()
        is_lost = exchange.end is not _ANSWERED
        if is_lost:
            exchange.end = End.LOST if gate.opened else End.NOT_SENT
        if self._adaptive_limit is not None:
            self._adaptive_limit.in_flight.end(gate)
        self._limiter.leave(exchange.lane, gate)
        if gate.wait_limit is not None:
            gate.wait_limit.end()
        self._in_flight.discard(gate)
        if self._closed and not self._in_flight:
            self._emptied.set()
        if is_lost:
            gate.drop()  # last: it calls what is not ours


def _most_connections(limiter: Limiter, limit: AdaptiveLimit | None) -> int:
    """Return how many connections a session of the transport's own may have."""
    if limit is None:
        return limiter.total
    # Calls that hang keep their connections, and others are sent beside them.
    return 2 * limit.most


def _accept_head(
    gate: Gate,
    response: ReadableResponse,
    *,
    is_of_user: bool,
) -> None:
    """
    Record the head of an answer in the exchange of *gate*.

    Raises:
        RefusedError: The answer came without the request: from the cache of a session that *is_of_user*, or,
            on Python 3.11, it was on the connection before. The gate is sealed, so the request stays unsent.
    """
    if not gate.opened:
        gate.sealed = True
        response.close()
        raise RefusedError(
            _SESSION_ANSWERED if is_of_user else "the connection held a stale answer"
        )
    gate.exchange.status = response.status
    gate.exchange.answer_headers = response.headers


def _check_session(
    session: object,
    ssl: object,
    proxy: object,
    *,
    trust_env: bool,
) -> None:
    """Raise ``ConfigurationError`` if one of these arguments is of a wrong type, or excludes another one."""
    if session is not None and not isinstance(session, aiohttp.ClientSession):
        raise ConfigurationError(
            f"session: must be an aiohttp.ClientSession, not a {type(session).__name__}. Pass it without a "
            "wrapper, because one that retries could send a write twice."
        )
    _check_ssl(ssl)
    has_own_options = ssl is not None or trust_env or proxy is not None
    if session is not None and has_own_options:
        raise ConfigurationError(
            "ssl, trust_env and proxy: cannot be combined with session. Configure the session instead."
        )
    if proxy is not None and trust_env:
        raise ConfigurationError(
            "proxy: cannot be combined with trust_env. Choose one."
        )


def _check_ssl(ssl: object) -> None:
    """Raise ``ConfigurationError`` if *ssl* is of a wrong type."""
    if ssl is not None and not isinstance(
        ssl, (tls.SSLContext, aiohttp.Fingerprint, bool)
    ):
        raise ConfigurationError(
            f"ssl: must be an SSLContext, an aiohttp.Fingerprint or a boolean, not a {type(ssl).__name__}."
        )
