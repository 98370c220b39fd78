"""
Receive deliveries in an application: verify, keep, acknowledge, hand to handlers; never send one.

A delivery is acknowledged once it is safe, which need not be when the work is done.  Nothing leaves
``receive`` as an exception, for the sender would then learn nothing that it can act on.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random as randomness
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias, TypeVar

from invsvc_async._errors import ConfigurationError, MalformedEventError
from invsvc_async.api.operations import EVENT_TYPES
from invsvc_async.events.receiving.admission import Admitted, Trust, Unreadable
from invsvc_async.events.receiving.inline import Inline
from invsvc_async.events.receiving.receipt import Receipt, unavailable
from invsvc_async.events.receiving.worker import InboxPolicy, Worker, called, reason_of
from invsvc_async.events.stores import Delivery, Store, open_store
from invsvc_async.events.verify import Secrets, SharedHeader, keys_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from aiohttp import web

    from invsvc_async.events.event import Event
    from invsvc_async.events.headers import Headers
    from invsvc_async.events.receiving.web import AsgiApp

__all__ = ["Receiver"]

# Any: a handler may name the family it expects
EventHandler: TypeAlias = "Callable[[Any], Awaitable[object]]"
H = TypeVar("H", bound=EventHandler)

_log: Final = logging.getLogger("invsvc_async.events")
_LIMIT: Final = 10.0  # seconds that the sender waits (spec: Delivery behavior)
_MARGIN: Final = 5.0  # seconds by which a lease outlasts the deadline


class Receiver:
    """
    Answer deliveries and hand each event to the one handler of its type.

    ``mode="inline"`` runs the handler before it answers, within *deadline* seconds from the head's arrival; a
    failure answers 500, so that the service sends a resource event again.  Events that are sent once only are
    stored first, and tried again from the store by a worker.  ``mode="inbox"`` stores every event, answers
    200, and has it handled by the worker.  The worker runs within ``async with receiver:``.

    *store* (*dedupe* is the same by another name) is a ``Store``, ``"postgresql://…"`` or the path of an
    SQLite file; the inbox needs one, inline falls back on memory.  Events are de-duplicated by their
    ``dedupe_key``; those without one (v1, v1.1) are handled as often as they come.  *secrets*,
    *shared_header* and *accept_unsigned* are those of ``events.read``.

    Raises:
        ConfigurationError: Nothing authenticates events and *accept_unsigned* was not said, or the settings
            contradict each other.

    Spec: Events.
    """

    def __init__(
        self,
        *,
        secrets: Secrets,
        shared_header: SharedHeader | None = None,
        dedupe: Store | str | None = None,
        accept_unsigned: bool = False,
        mode: Literal["inline", "inbox"] = "inline",
        store: Store | str | None = None,
        inbox: InboxPolicy | None = None,
        deadline: float = 8.0,
        max_body_bytes: int = 1 << 20,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        self._trust = Trust(keys_of(secrets), shared_header, accept_unsigned)
        if not self._trust.keys and shared_header is None and not accept_unsigned:
            raise ConfigurationError("Nothing authenticates events. Give secrets or a SharedHeader.")
        if mode not in {"inline", "inbox"}:
            raise ConfigurationError(f"mode={mode!r} is neither 'inline' nor 'inbox'.")
        if not 0 < deadline < _LIMIT:
            raise ConfigurationError(f"deadline={deadline} is not between 0 and the sender's {_LIMIT:.0f} s.")
        self.deadline: Final = deadline
        self.max_body_bytes: Final = max_body_bytes
        self._mode = mode
        self._store = _choose_store(dedupe, store, mode)
        self._worker = Worker(self._store, self._handle, inbox or InboxPolicy(), random=random)
        self._inline = Inline(self._store, self._worker, self._handle, lease=deadline + _MARGIN)
        self._handlers: dict[str, EventHandler] = {}
        self._test_handler: EventHandler | None = None

    @property
    def store(self) -> Store:
        """Where events are kept, and where to look for dead letters."""
        return self._store

    def on(self, *types: str) -> Callable[[H], H]:
        """
        Register the one handler of some event types; ``"*"`` takes every event that has none of its own.

        It is an ``async def`` of the event.  It may be called again for an event that it did not finish.

        Raises:
            ConfigurationError: The specification lacks the type, it has a handler, or this one is not async.
        """
        for name in types:
            if name != "*" and name not in EVENT_TYPES:
                raise ConfigurationError(
                    f"{name!r} is no event of the specification. Take others by on('*')."
                )
            if name in self._handlers:
                raise ConfigurationError(f"{name!r} has a handler. Call both functions from one.")

        def register(handler: H) -> H:
            _check_async(handler)
            self._handlers.update(dict.fromkeys(types, handler))
            return handler

        return register

    def on_test(self, handler: H) -> H:
        """
        Register the handler of the dashboard's test events, which no other handler sees.

        Nothing authenticates them: anybody can send one.

        Raises:
            ConfigurationError: The handler is not async.
        """
        _check_async(handler)
        self._test_handler = handler
        return handler

    async def receive(self, body: bytes, headers: Headers) -> Receipt:
        """
        Judge one delivery, keep or handle it, and say what to answer; raises nothing but cancellation.

        Spec: Events, Delivery behavior.
        """
        return await self.receive_until(asyncio.get_running_loop().time() + self.deadline, body, headers)

    async def receive_until(self, until: float, body: bytes, headers: Headers) -> Receipt:
        """Do as ``receive`` does, until a time of the running loop, for a body that took time to arrive."""
        receipt = await self._receive(until, body, headers)
        level = logging.DEBUG if receipt.status < 300 else logging.WARNING
        kind = receipt.event.type if receipt.event else "a delivery"
        _log.log(level, "Answered %s with %s: %s", kind, receipt.status, receipt.error or receipt.outcome)
        return receipt

    async def aiohttp_handler(self, request: web.Request) -> web.Response:
        """
        Answer a request of aiohttp: ``app.router.add_post("/events", receiver.aiohttp_handler)``.

        Spec: Events, Delivery behavior.
        """
        from invsvc_async.events.receiving.web import answer_aiohttp

        return await answer_aiohttp(self, request)

    @property
    def asgi_app(self) -> AsgiApp:
        """
        Give an ASGI application for one path: ``app.add_route("/events", receiver.asgi_app, ["POST"])``.

        A route is better than a mount: Starlette answers a mount's bare path with a redirect, which the
        service does not follow.  Run by itself, it starts and stops the receiver with the server.
        """
        from invsvc_async.events.receiving.web import AsgiApp

        return AsgiApp(self)

    async def __aenter__(self) -> Self:
        """
        Open the store and start to handle what is in it.

        Raises:
            JournalError: The store cannot be used.
            ConfigurationError: It runs already.
        """
        if self._worker.is_running:
            raise ConfigurationError(
                "This receiver runs already. Enter it once, where the application starts."
            )
        await self._store.open()
        self._worker.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let running handlers end within the deadline, give back what is not handled, close the store."""
        await self._worker.stop(grace=self.deadline)
        await self._inline.stop(grace=self.deadline)
        await self._store.close()

    async def _receive(self, until: float, body: bytes, headers: Headers) -> Receipt:
        if len(body) > self.max_body_bytes:
            return Receipt(413, "refused")
        match self._trust.judge(body, headers):
            case Receipt() as refusal:
                return refusal
            case Unreadable(error):
                return await self._bury(until, body, error)
            case Admitted(event, "as a test"):
                return await self._test(until, event)
            case Admitted(event) if self._mode == "inbox":
                return await self._keep(until, event)
            case Admitted(event, sent):
                return await self._handle_now(until, event, once=sent == "once")

    async def _handle_now(self, until: float, event: Event, *, once: bool) -> Receipt:
        if self._handler_of(event) is None:
            return Receipt(200, "ignored" if event.is_known else "unknown", event)
        return await self._inline.answer(until, event, once=once)

    async def _bury(self, until: float, body: bytes, error: MalformedEventError) -> Receipt:
        delivery = Delivery(key=None, type="", body=body)
        try:
            async with asyncio.timeout_at(until):
                await self._store.bury(delivery, reason=reason_of(error))
        except Exception as failure:  # noqa: BLE001 - a store of one's own may raise anything
            return unavailable(failure)
        return Receipt(202, "dead letter", error=error)

    async def _keep(self, until: float, event: Event) -> Receipt:
        delivery = Delivery(key=event.dedupe_key, type=event.type, body=event.raw)
        try:
            async with asyncio.timeout_at(until):
                new = await self._store.put(delivery)
        except Exception as failure:  # noqa: BLE001 - a store of one's own may raise anything
            return unavailable(failure, event)
        self._worker.wake()
        return Receipt(200, "stored" if new else "duplicate", event)

    async def _test(self, until: float, event: Event) -> Receipt:
        if self._test_handler is not None:
            try:
                async with asyncio.timeout_at(until):
                    await called(self._test_handler, event)
            except Exception as error:  # noqa: BLE001 - a handler may raise anything, and a test is not sent again
                _log.warning("The handler of test events failed on %s", event.type, exc_info=error)
        return Receipt(200, "test", event)

    async def _handle(self, event: Event) -> None:
        handler = self._handler_of(event)
        if handler is None:
            _log.info("No handler for %s: done with it", event.type)
        else:
            await called(handler, event)

    def _handler_of(self, event: Event) -> EventHandler | None:
        return self._handlers.get(event.type) or self._handlers.get("*")


def _choose_store(dedupe: Store | str | None, store: Store | str | None, mode: str) -> Store:
    if dedupe is not None and store is not None:
        raise ConfigurationError("dedupe and store are the same thing. Give one of them.")
    chosen = store if store is not None else dedupe
    if isinstance(chosen, str):
        return open_store(chosen)
    if chosen is not None:
        return chosen
    if mode == "inbox":
        raise ConfigurationError("The inbox needs a store that outlives the process: store='events.db'.")
    from invsvc_async.events.stores.memory import MemoryStore

    return MemoryStore()


def _check_async(handler: object) -> None:
    called = getattr(handler, "__call__", None)  # noqa: B004 - of an object that is called like a function
    if not inspect.iscoroutinefunction(handler) and not inspect.iscoroutinefunction(called):
        raise ConfigurationError(f"{handler!r} is not async. Define it by 'async def'.")
