"""
The receiver of deliveries in an application: it verifies, stores, acknowledges, and calls handlers.

A delivery is acknowledged once it cannot be lost any more, which may be before it is handled.  ``receive``
raises no exceptions, because the sender needs an answer.
"""

from __future__ import annotations

import asyncio
import logging
import random as randomness
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, Unpack, overload

from invsvc_async.concurrency.deadline import Deadline
from invsvc_async.errors import ConfigurationError, takes_secrets
from invsvc_async.events.event import Head, Headers, head_of
from invsvc_async.events.receiving.admission import (
    FULL,
    Arrival,
    Receipt,
    TrustSource,
)
from invsvc_async.events.receiving.body_room import BodyRoom, read_body
from invsvc_async.events.receiving.catching_up import (
    CatchUp,
    CatchUpSummary,
    wanted_of,
)
from invsvc_async.events.receiving.current import CurrentInvoices
from invsvc_async.events.receiving.handing_over import (
    HANDLER_NAME,
    HandOver,
    handing_over,
)
from invsvc_async.events.receiving.handler_calls import HandlerCalls
from invsvc_async.events.receiving.handlers import (
    EventHandler,
    EventPattern,
    FetchingHandler,
    HandlerOptions,
    Handlers,
    Handling,
    InboxPolicy,
    Middleware,
    check_async,
    check_options,
    check_valid,
)
from invsvc_async.events.receiving.health import health_of
from invsvc_async.events.receiving.judging import AnswerTimes, Judge
from invsvc_async.events.receiving.lifetime import Lifetime
from invsvc_async.events.receiving.processing import Processing
from invsvc_async.events.receiving.stats import (
    Health,
    Observer,
    ReceiverStats,
    Tally,
)
from invsvc_async.events.receiving.web import (
    AsgiApp,
    SyncReceiver,
    cut_off,
    length_in,
    refuse_by_head,
)
from invsvc_async.events.receiving.worker import InboxWorker, Inline
from invsvc_async.events.stores import Store, choose_store
from invsvc_async.models.common import UNSET, Unset

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
    from datetime import date, datetime
    from pathlib import Path

    from aiohttp import web

    from invsvc_async.api.event_types import EventName
    from invsvc_async.client import Client
    from invsvc_async.events.event import (
        AnyResource,
        CustomerEvent,
        InvoiceBatchCompleted,
        InvoiceEvent,
        OtherEvent,
        SatInvoiceSynced,
    )
    from invsvc_async.events.receiving.handlers import (
        OfBatches,
        OfCustomers,
        OfInvoices,
        OfOthers,
        OfResources,
        OfSyncs,
    )
    from invsvc_async.events.verify import SecretsSource, SharedHeadersSource

H = TypeVar("H", bound="EventHandler")
# The handlers of one kind of event.
OnSync = TypeVar("OnSync", bound="Callable[[SatInvoiceSynced], Awaitable[object]]")
OnBatch = TypeVar(
    "OnBatch", bound="Callable[[InvoiceBatchCompleted], Awaitable[object]]"
)
OnInvoice = TypeVar("OnInvoice", bound="Callable[[InvoiceEvent], Awaitable[object]]")
OnCustomer = TypeVar("OnCustomer", bound="Callable[[CustomerEvent], Awaitable[object]]")
OnOther = TypeVar("OnOther", bound="Callable[[OtherEvent], Awaitable[object]]")
OnResource = TypeVar("OnResource", bound="Callable[[AnyResource], Awaitable[object]]")
F = TypeVar("F", bound="FetchingHandler")
M = TypeVar("M", bound="Middleware")

_log: Final = logging.getLogger("invsvc_async.events")
_MAKING_SYNC: Final = threading.Lock()
_LIMIT: Final = 10.0  # s that the sender waits (spec: Delivery behavior)
# The share of the time for which keys are kept after which a signed event is refused as too old: its key may
# be forgotten soon.
_OF_KEEP: Final = 0.95


class Receiver:
    """
    Answer deliveries, and call the handler of each event's type.

    ``mode="inline"`` calls the handler before it answers, within *deadline* seconds after the headers
    arrived.  If the handler fails, the answer is 500, so that the service sends a resource event again.
    Events that are sent only once are stored first, and a worker retries them.  ``mode="inbox"`` stores every
    event, answers 200, and the worker handles it.  The worker runs inside ``async with receiver:``.

    *store* (or *dedupe*, which means the same) is a ``Store``, ``"postgresql://…"`` or the path of a SQLite
    file.  The inbox needs one; inline mode uses memory by default.  Events are de-duplicated by their
    ``dedupe_key``; those without one (v1, v1.1) are handled each time they come.

    *secrets*, *shared_header* and *accept_unsigned* are those of ``events.read``; several secrets or headers
    allow rotation.  Either may also be a function without arguments, async or not, that returns them, from a
    vault for example.  What it returned is used for *refresh_after* seconds and then fetched anew in the
    background.  If a delivery fits nothing, the function is called once more, at most once a second.  If it
    fails, what it returned before stays valid.

    A signed event that was made more than *max_age* seconds ago is refused, because the store forgets its key
    in time, and a captured body would then be handled again.  By default, that is a little less than the time
    for which keys are kept (``InboxPolicy(keep=…)``); ``None`` accepts any age.

    *client* reads what handlers with ``fetch=True`` get: a ``Client`` of the events' team and data mode,
    which is used and never closed, or a function that makes one (``Client.from_env``), which is opened and
    closed with the receiver.

    *hand_over* gives events to a queue of your own, such as Celery's: a function of the event, async or not
    (then it is called in a thread), which needs ``mode="inbox"``. The worker calls it with each stored event,
    instead of handlers. Once it returns, the event is handled; if it raises, it is called again, as a handler
    is. It may be called twice with one event, so give the queue ``event.dedupe_key``, and ``event.raw`` for
    ``events.parse``.

    Raises:
        ConfigurationError: Nothing authenticates events and *accept_unsigned* is false, or the arguments
            contradict each other.

    Spec: Events.
    """

    @takes_secrets
    def __init__(  # noqa: PLR0913 - each is a setting of its own
        self,
        *,
        secrets: SecretsSource,
        shared_header: SharedHeadersSource = None,
        dedupe: Store | str | Path | None = None,
        accept_unsigned: bool = False,
        mode: Literal["inline", "inbox"] = "inline",
        store: Store | str | Path | None = None,
        inbox: InboxPolicy | None = None,
        deadline: float = 8.0,
        max_body_bytes: int = 1 << 20,
        max_age: float | None | Unset = UNSET,
        refresh_after: float = 300.0,
        client: Client | Callable[[], Client] | None = None,
        hand_over: HandOver | None = None,
        random: Callable[[], float] = randomness.random,
        clock: Callable[[], float] = time.time,
    ) -> None:
        _check_settings(mode, deadline, max_body_bytes, inbox, refresh_after)
        policy = inbox or InboxPolicy()
        if isinstance(max_age, Unset):
            max_age = policy.keep * _OF_KEEP
        max_age = _checked_age(max_age)
        self._source = TrustSource(
            secrets,
            shared_header,
            accept_unsigned=accept_unsigned,
            refresh_after=refresh_after,
        )
        self._tally = Tally(clock)
        self.deadline: Final = deadline
        self.max_body_bytes: Final = max_body_bytes
        self.room: Final = BodyRoom(max_body_bytes)
        self.store: Final = choose_store(dedupe, store, mode)
        """The store of events, which also contains the dead letters."""
        self._current = CurrentInvoices(client)
        stores_first = mode == "inbox"
        self._handlers = Handlers(policy, self.store, stored_first=stores_first)
        self._hands_over = hand_over is not None
        if hand_over is not None:
            giving = handing_over(hand_over, stores_first=stores_first)
            self._handlers.add(giving, ("*",), {"name": HANDLER_NAME}, fetch=False)
        # Tracing sets ``on_handling`` later.
        self._calls = HandlerCalls(self._current, self._tally, lambda: self.on_handling)
        self._worker = InboxWorker(
            self.store,
            self._handlers,
            self._calls.call,
            random=random,
            tally=self._tally,
        )
        inline = Inline(self._worker, deadline=deadline)
        times = AnswerTimes()
        self._judge = Judge(self._source, self._tally, times)
        self._processing = Processing(
            judge=self._judge,
            handlers=self._handlers,
            worker=self._worker,
            inline=inline,
            tally=self._tally,
            times=times,
            stores_first=stores_first,
            max_body_bytes=max_body_bytes,
            max_age=max_age,
        )
        self.on_delivery: (
            Callable[[Arrival, Awaitable[Receipt]], Awaitable[Receipt]] | None
        ) = None
        """Called around each delivery; for tracing."""
        self.on_handling: (
            Callable[[Handling, Awaitable[None]], Awaitable[None]] | None
        ) = None
        """Called around each call of a handler; for tracing."""
        self._sync: SyncReceiver | None = None
        self._lifetime = Lifetime(
            source=self._source,
            current=self._current,
            store=self.store,
            worker=self._worker,
            inline=inline,
            grace=deadline,
        )

    # There is one for each kind of event, so that type checkers compare it with that of the handler.
    @overload
    def on(
        self,
        *types: OfSyncs,
        fetch: Literal[False] = False,
        **options: Unpack[HandlerOptions],
    ) -> Callable[[OnSync], OnSync]: ...

    @overload
    def on(
        self,
        *types: OfBatches,
        fetch: Literal[False] = False,
        **options: Unpack[HandlerOptions],
    ) -> Callable[[OnBatch], OnBatch]: ...

    @overload
    def on(
        self,
        *types: OfInvoices,
        fetch: Literal[False] = False,
        **options: Unpack[HandlerOptions],
    ) -> Callable[[OnInvoice], OnInvoice]: ...

    @overload
    def on(
        self,
        *types: OfCustomers,
        fetch: Literal[False] = False,
        **options: Unpack[HandlerOptions],
    ) -> Callable[[OnCustomer], OnCustomer]: ...

    @overload
    def on(
        self,
        *types: OfOthers,
        fetch: Literal[False] = False,
        **options: Unpack[HandlerOptions],
    ) -> Callable[[OnOther], OnOther]: ...

    @overload
    def on(
        self,
        *types: OfResources,
        fetch: Literal[False] = False,
        **options: Unpack[HandlerOptions],
    ) -> Callable[[OnResource], OnResource]: ...

    @overload
    def on(
        self,
        *types: EventName | EventPattern,
        fetch: Literal[False] = False,
        **options: Unpack[HandlerOptions],
    ) -> Callable[[H], H]: ...

    @overload
    def on(
        self,
        *types: EventName | EventPattern,
        fetch: Literal[True],
        **options: Unpack[HandlerOptions],
    ) -> Callable[[F], F]: ...

    def on(
        self,
        *types: EventName | EventPattern,
        fetch: bool = False,
        **options: Unpack[HandlerOptions],
    ) -> Callable[[Any], Any]:
        """
        Register a handler of event types; ``"invoice.*"`` stands for all types of that family.

        The handler is an async function of the event.  Several may be registered for one type: each gets the
        event, has attempts of its own, and does not run again because another one failed.  ``"*"`` stands for
        all events that no other handler gets.

        With *fetch*, it is a function of the event and of the invoice that it names: as the service shows it
        now, or ``Gone``.  Reading it is a part of the attempt.  Events of one invoice share reads.

        *where* and *key* are functions of the event that are not async, quick, and always return the same for
        the same event.  The handler gets only events for which *where* returns true.  Events for which *key*
        returns the same text or number are handled one after the other, in the order of their arrival; those
        with ``None`` in any order.  While one waits for its next attempt, later ones wait too; once it is a
        dead letter, they go on.

        *name* is how the store, dead letters and ``invsvc events`` call the handler; the function's name by
        default.  *timeout*, *attempts*, *initial* and *maximum* replace those of the ``InboxPolicy``; in
        inline mode, a *timeout* shorter than the deadline counts too.  *rate* limits calls per second, in
        each process.  *key* and *rate* need ``mode="inbox"``.

        Raises:
            ConfigurationError: A type is not in the specification, an argument is not valid, another handler
                has this name, this one is not async, or the store does not know handlers; for *fetch*, no
                read is specified for a type, or the receiver has no client, or it hands its events over.
        """
        check_options(types, options, fetch=fetch)
        if self._hands_over:
            raise ConfigurationError(
                "on: this receiver hands its events over to your queue. Call the function where they are "
                "taken from it, or leave hand_over out."
            )
        if fetch and not self._current.can_read:
            raise ConfigurationError(
                "on: fetch=True needs a client. Use Receiver(client=…)."
            )

        def register(handler: Any) -> Any:
            self._handlers.add(handler, types, options, fetch=fetch)
            return handler

        return register

    def middleware(self, function: M) -> M:
        """
        Register a function around each call of a handler: ``async def function(handling, proceed)``.

        ``handling`` has the event, the name of the handler and the attempt.  ``await proceed()`` calls the
        handler, or the middleware registered next, and raises what it raises.  If the function does not call
        it, the handler does not run, and the event counts as handled.  Handlers of test events have none.

        Raises:
            ConfigurationError: The function is not async.
        """
        check_async(function)
        self._calls.middleware.append(function)
        return function

    def on_test(self, handler: H) -> H:
        """
        Register the handler of test events from the dashboard, for which no other handler is called.

        Nothing authenticates them: anyone can send one.

        Raises:
            ConfigurationError: The handler is not async, or there is one already.
        """
        check_async(handler)
        if self._processing.test_handler is not None:
            raise ConfigurationError(
                "on_test: there is a handler of test events already. Call both in one."
            )
        self._processing.test_handler = handler
        self._judge.takes_tests = True
        return handler

    async def receive(
        self,
        body: bytes,
        headers: Headers | Head,
        *,
        until: float | None = None,
    ) -> Receipt:
        """
        Process one delivery and return the answer.  Raises nothing but ``CancelledError``.

        *until* is the time of the event loop by which to answer: the body may have taken some of the
        deadline.  The method, the content type and coding, and the time that the body took are not checked;
        :meth:`answer` does so.

        Spec: Events, Delivery behavior.
        """
        if until is None:
            until = asyncio.get_running_loop().time() + self.deadline
        arrival = Arrival(body, head_of(headers))
        del body, headers
        return await self._answered(arrival, until)

    async def _answered(self, arrival: Arrival, until: float) -> Receipt:
        """Process a delivery, within ``on_delivery`` if that is set; count and return the answer."""
        receiving = self._processing.receive(until, arrival)
        if self.on_delivery is None:
            receipt = await receiving
        else:
            receipt = await self.on_delivery(arrival, receiving)
        return self.counted(until, receipt)

    def doubts(self, head: Head) -> bool:
        """Return whether these headers decide the answer, by the secrets that are known now."""
        return self._judge.doubts(head)

    async def refusal(self, until: float | None, head: Head) -> Receipt | None:
        """
        Count and return the answer if the headers decide it, or return ``None``: the body has to be read.

        Newer secrets are waited for until the loop time *until*, by default within the deadline.
        """
        if not self.doubts(head):
            return None
        until = (
            asyncio.get_running_loop().time() + self.deadline
            if until is None
            else until
        )
        empty = Arrival(b"", head)
        receipt = await self._judge.answer_by_head(until, empty)
        if receipt is None:
            return None
        if self.on_delivery is not None:
            receipt = await self.on_delivery(empty, _awaited(receipt))
        return self.counted(until, receipt)

    def counted(
        self,
        until: float,
        receipt: Receipt,
        now: float | None = None,
    ) -> Receipt:
        """
        Count and log the answer to a delivery that was to be answered until *until*; return the answer.

        *until* is a time of the event loop, or of another clock, whose time is then *now*.
        """
        began = until - self.deadline
        seconds = (now or asyncio.get_running_loop().time()) - began
        self._tally.answered(receipt, seconds)
        level = logging.DEBUG if receipt.status < 300 else logging.WARNING
        if _log.isEnabledFor(level):
            kind = receipt.event.type if receipt.event else "a delivery"
            _log.log(
                level,
                "Answered %s with %s: %s",
                kind,
                receipt.status,
                receipt.error or receipt.outcome,
            )
        return receipt

    async def answer(
        self,
        method: str,
        headers: Headers | Head,
        body: AsyncIterable[bytes] | bytes,
    ) -> Receipt:
        """
        Process one request in an endpoint of your own, as the ready-made applications do.

        What its method, type, coding or length rules out is refused without reading *body*, the chunks of
        its body, or the whole, if it is there already.  Raises nothing but ``CancelledError``.

        Spec: Events, Delivery behavior.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self.deadline
        head = head_of(headers)
        del headers
        refusal = refuse_by_head(method, head, self.max_body_bytes)
        if refusal is not None:
            return self.counted(until, refusal)
        refusal = await self.refusal(until, head)
        if refusal is not None:
            return refusal  # ``refusal`` has counted it.
        if isinstance(body, bytes):
            arrival = Arrival(body, head)
            del body
            return await self._answered(arrival, until)
        with self.room.body(length_in(head)) as arriving:
            try:
                with Deadline(loop, until):
                    has_room = await read_body(body, arriving, self.max_body_bytes)
            except TimeoutError:
                return self.counted(until, Receipt(408, "refused"))
            except Exception as error:  # noqa: BLE001 - each framework has its own errors for a broken body
                return self.counted(until, cut_off(error))
            whole = arriving.whole() if has_room else None
            if whole is None:
                return self.counted(until, FULL)
            arrival = Arrival(whole, head)
            del whole
            return await self._answered(arrival, until)

    async def aiohttp_handler(self, request: web.Request) -> web.Response:
        """
        Answer a request in aiohttp: ``app.router.add_post("/events", receiver.aiohttp_handler)``.

        Spec: Events, Delivery behavior.
        """
        from aiohttp import web

        content = request.content
        # A delivery mostly comes in one piece with its headers.  Waiting for it, with a timeout, then costs
        # more than checking its signature.
        is_whole = content.is_eof() and content.exception() is None
        receipt = await self.answer(
            request.method,
            request.headers,
            content.read_nowait() if is_whole else content.iter_any(),
        )
        return web.Response(
            status=receipt.status,
            text=receipt.outcome,
            headers=receipt.headers or None,
        )

    @property
    def asgi_app(self) -> AsgiApp:
        """
        Return an ASGI application for one path: ``app.add_route("/events", receiver.asgi_app, ["POST"])``.

        Use a route, not a mount: Starlette redirects a mount's path without a slash, and the service does not
        follow redirects.  If it is run on its own, it starts and stops the receiver with the server.
        """
        return AsgiApp(self)

    @property
    def sync(self) -> SyncReceiver:
        """Return the form of this receiver for applications without async, in a thread of its own."""
        if self._current.is_ready_made:
            raise ConfigurationError(
                "client: this receiver runs in a thread with an event loop of its own. Pass a function that "
                "makes the client, such as Client.from_env."
            )
        with _MAKING_SYNC:  # the first deliveries may come in several threads
            if self._sync is None:
                self._sync = SyncReceiver(self)
            return self._sync

    @property
    def wsgi_app(
        self,
    ) -> Callable[[dict[str, Any], Callable[..., object]], Iterable[bytes]]:
        """
        Return a WSGI application for one path; the receiver starts in a thread with the first delivery.

        Spec: Events, Delivery behavior.
        """
        return self.sync.wsgi_app

    @property
    def django_view(self) -> Callable[[Any], Any]:
        """
        Return a view of Django: ``path("events", receiver.django_view)``; the receiver starts as in WSGI.

        Spec: Events, Delivery behavior.
        """
        return self.sync.django_view

    async def catch_up(
        self,
        since: datetime | date | int,
        *,
        client: Client,
        until: datetime | date | int | None = None,
    ) -> CatchUpSummary:
        """
        Make up for lost deliveries: hand over an event for each invoice of which the store has seen none.

        The lists of *client* are read for invoices that were created from *since* until *until* (an aware
        ``datetime``, a ``date`` or epoch ms; by default until five minutes ago, since newer deliveries are
        still under way). Each gives an ``invoice.created``, and an ``invoice.canceled`` if it is canceled, of
        version v2, with its current state; ``event.is_catch_up`` is true. They are stored and handled as
        delivered events are. Only types that a handler gets are made; the result names those that no list
        can stand for. Invoices of other types than E and P are in no list, and a cancellation is found at
        invoices that were created in that time.

        The store decides what was seen, so this may fail, be cancelled, or run in several processes, and be
        called again. A v2 event that was queued before the list was read is a duplicate when it still
        comes; one of v1 has no id, and is handled. What the store has forgotten may be handled twice: see
        ``CatchUpSummary.knows_from``.

        Raises:
            ConfigurationError: The receiver is not in ``mode="inbox"``, or its store is no ``CatchUpStore``.
            InvalidRequestError: *since* or *until* is not valid.
            JournalError: The store cannot be used.
            PagingError, ServiceError, TransportError, DeadlineExceededError: As of the lists.

        Spec: Endpoints, Invoices; Events.
        """
        if not self._processing.stores_first:
            raise ConfigurationError(
                "catch_up: in mode='inline', events without an id are not stored, so nothing tells which "
                "were seen. Use Receiver(mode='inbox') and a store."
            )
        catching = CatchUp(
            self.store,
            client,
            self._handlers.deliveries,
            wanted=wanted_of(self._handlers.has_for),
            since=since,
            until=until,
            now=self._tally.clock(),
            advance=self._worker.wake,
        )
        return await catching.run()

    def stats(self) -> ReceiverStats:
        """Return the counts of this receiver, and the secrets and headers that authenticated deliveries."""
        return self._tally.stats(self._source.known, running=self._worker.running)

    def observe(self, observer: Observer) -> None:
        """Report each answer and call of a handler to *observer*; ``tracing.instrument_receiver`` uses it."""
        self._tally.observers.append(observer)

    async def health(self, *, behind: float = 60.0) -> Health:
        """
        Return whether the receiver keeps up, for a health check.

        It falls behind if an event could have been handled for more than *behind* seconds.  A worker that
        does not run here, a handler that did not end when it was cancelled, a store that does not answer
        within the deadline, a store (or a source of secrets) that failed for the last deliveries, and a dead
        letter that is authentic but could not be read, until it is revived or dropped, are problems too.
        """
        return await health_of(
            self.store, self._worker, self._tally, within=self.deadline, behind=behind
        )

    async def __aenter__(self) -> Self:
        """
        Open the store and start the worker.

        If the database of the store cannot be reached now, the receiver starts without it: it answers 503 and
        is not healthy until the database is back.

        Raises:
            JournalError: The store cannot be used, and will not be by waiting.
            ConfigurationError: The receiver is already running, or its secrets cannot be fetched.
        """
        await self._lifetime.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """
        Wait up to the deadline for running handlers, release what is not handled, close the store.

        If it is cancelled, handlers are cancelled at once.  What takes longer then ends in the background.
        """
        await self._lifetime.end()


def _check_settings(
    mode: object,
    deadline: object,
    max_body_bytes: object,
    inbox: object,
    refresh_after: object,
) -> None:
    """Raise ``ConfigurationError`` if one of these arguments of ``Receiver`` is not valid."""
    check_valid("mode", mode, "'inline' or 'inbox'", fits=mode in {"inline", "inbox"})
    fits = isinstance(deadline, (int, float)) and 0 < deadline < _LIMIT
    check_valid(
        "deadline",
        deadline,
        f"more than 0 and less than {_LIMIT:.0f} seconds",
        fits=fits,
    )
    fits = isinstance(max_body_bytes, int) and max_body_bytes >= 1
    check_valid("max_body_bytes", max_body_bytes, "a whole number", fits=fits)
    check_valid(
        "inbox",
        inbox,
        "an InboxPolicy",
        fits=inbox is None or isinstance(inbox, InboxPolicy),
    )
    fits = isinstance(refresh_after, (int, float)) and refresh_after > 0
    check_valid(
        "refresh_after", refresh_after, "a positive number of seconds", fits=fits
    )


def _checked_age(max_age: object) -> float | None:
    """Return *max_age* if it is valid; raise ``ConfigurationError`` if not."""
    if isinstance(max_age, (int, float)) and max_age > 0:
        return max_age
    fits = max_age is None
    check_valid("max_age", max_age, "a positive number of seconds, or None", fits=fits)
    return None


async def _awaited(receipt: Receipt) -> Receipt:
    """Return *receipt*, as the coroutine that functions around a delivery await."""
    return receipt
