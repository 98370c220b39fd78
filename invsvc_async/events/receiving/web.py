"""
The receiver in ASGI, WSGI and Django, and what it refuses by the head of a request.

Some requests are answered by their headers alone: another method (405), another content type (415), too many
bytes (413), nothing that can authenticate an event (401).  A body that does not arrive by the receiver's
deadline is answered 408, and one that does not fit into memory beside others 503.

Where the application is not async, one thread owns an event loop, in which the receiver runs; requests wait
for its answers.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from invsvc_async.errors import ConfigurationError
from invsvc_async.events.event import Head, Headers, head_of
from invsvc_async.events.receiving.admission import FULL, Receipt, unavailable
from invsvc_async.events.receiving.handler_calls import without_exit

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Coroutine,
        Iterable,
        MutableMapping,
    )

    from invsvc_async.events.receiving.body_room import Body
    from invsvc_async.events.receiving.receiver import Receiver

T = TypeVar("T")
_Message: TypeAlias = "MutableMapping[str, Any]"  # Any: as in ASGI
_Receive: TypeAlias = "Callable[[], Awaitable[_Message]]"
_Send: TypeAlias = "Callable[[_Message], Awaitable[None]]"

# Of a thread that runs a receiver: its loop, and the event that stops it, once the receiver has started.
_Started: TypeAlias = concurrent.futures.Future[
    tuple[asyncio.AbstractEventLoop, asyncio.Event]
]

_log: Final = logging.getLogger("invsvc_async.events")
_DIGITS: Final = 18  # of a length, at most: longer ones are too large in any case
# bytes of a body that are read at once where the application is not async
_PIECE: Final = 16_384
_RECEIVER: Final = "The receiver"
# s beyond the receiver's deadline until a request is answered without it
_PATIENCE: Final = 1.0


def cut_off(error: Exception) -> Receipt:
    """Return the answer to a delivery whose body did not come to its end."""
    _log.info("A delivery was cut off: %s", type(error).__name__)
    return Receipt(400, "unreadable")


def refuse_by_head(
    method: str,
    head: Head,
    limit: int,
) -> Receipt | None:
    """Return the answer to a request that its method, type, coding or length rules out."""
    if method != "POST":
        return Receipt(405, "refused", headers={"Allow": "POST"})
    kind = (head.get("content-type") or "").partition(";")[0].strip().lower()
    # A coded body is refused even if the server has decoded it: a signature is of the bytes that were sent.
    # The coding is "" if its header came twice.
    coding = head.get("content-encoding")
    is_coded = coding is not None and coding.lower() != "identity"
    if is_coded or kind != "application/json":
        return Receipt(415, "refused", headers={"Accept": "application/json"})
    length = length_in(head)
    if length is not None and length > limit:
        return Receipt(413, "refused")
    return None


def length_in(head: Head) -> int | None:
    """Return how many bytes the body has, if the head says so."""
    length = head.get("content-length") or ""
    if not length.isdecimal():
        return None
    if len(length) <= _DIGITS:
        return int(length)
    return 10**_DIGITS


def _body_and_headers(receipt: Receipt) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of an answer."""
    body = receipt.outcome.encode()
    basic = {
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Length": str(len(body)),
    }
    return body, {**basic, **receipt.headers}


class AsgiApp:
    """
    An ASGI application for one path, to be routed to, mounted or run on its own.

    It is an object because Starlette calls a function with a ``Request``.
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    async def __call__(
        self,
        scope: _Message,
        receive: _Receive,
        send: _Send,
    ) -> None:
        """Serve one connection."""
        match scope["type"]:
            case "http":
                method = scope["method"]
                head = head_of(scope["headers"])
                del scope  # which holds the headers as they came
                receipt = await self._receiver.answer(method, head, _chunks(receive))
                body, headers = _body_and_headers(receipt)
                pairs = [
                    (name.lower().encode(), value.encode())
                    for name, value in headers.items()
                ]
                try:
                    await send(
                        {
                            "type": "http.response.start",
                            "status": receipt.status,
                            "headers": pairs,
                        }
                    )
                    await send({"type": "http.response.body", "body": body})
                except Exception as error:  # noqa: BLE001 - each server has its own for a sender that is gone
                    _log.info("An answer could not be sent: %s", type(error).__name__)
            case "lifespan":
                await self._live(receive, send)
            case _:
                await send({"type": "websocket.close", "code": 1003})

    async def _live(self, receive: _Receive, send: _Send) -> None:
        """Start the receiver, and stop it with the server, by the lifespan protocol."""
        await receive()
        phase = "startup"
        try:
            async with self._receiver:
                await send({"type": "lifespan.startup.complete"})
                phase = "shutdown"
                await receive()
        except Exception as error:  # noqa: BLE001 - reported through the protocol
            await send({"type": f"lifespan.{phase}.failed", "message": str(error)})
        else:
            await send({"type": "lifespan.shutdown.complete"})


async def _chunks(receive: _Receive) -> AsyncIterator[bytes]:
    """Yield the body of a request in pieces, as they come."""
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise ConnectionResetError  # the sender disconnected before its body was complete
        more = message.get("more_body", False)
        yield message.pop("body", b"")


class _Start:
    """The start of a thread: its outcome, and whether nobody waits for the thread any more."""

    def __init__(self) -> None:
        self.outcome = _Started()
        self.is_given_up = False


class SyncReceiver:
    """
    Run *receiver* in a thread of its own, for applications that are not async.

    The thread starts with the first delivery, or with ``start``: in each process of a server that forks.  It
    opens the store and runs the worker; handlers are async functions as always, and run in that thread.
    ``with`` and ``stop`` end it, and so does the end of the process, unless that is killed: what was not
    handled is handled after the next start.

    Spec: Events, Delivery behavior.
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._lock = threading.Lock()
        # By their ids: the process in which the receiver runs, and the one that calls ``stop`` as it ends.
        self._running_process: int | None = None
        self._exiting_process: int | None = None
        self._thread: threading.Thread | None = None
        self._start = _Start()  # of that thread
        if sys.platform != "win32":
            os.register_at_fork(after_in_child=self._forget)

    def start(self) -> None:
        """
        Open the store and start the worker, unless they run in this process.

        Raises:
            JournalError: The store cannot be used.
            ConfigurationError: The receiver runs elsewhere, or its secrets cannot be fetched.
        """
        self._starting().result()

    def _starting(self) -> _Started:
        """Return the start that is under way, or has succeeded; or begin one."""
        with self._lock:
            # After a fork, the thread and the connections stay behind.
            if self._running_process not in {None, os.getpid()}:
                raise ConfigurationError(
                    "receiver: it was started before the process forked. Start it in each process, or let "
                    "the first delivery start it."
                )
            if self._thread is None or not self._thread.is_alive():
                self._begin()
            # To be waited for without the lock: all that wait for one start share its result.
            return self._start.outcome

    def _begin(self) -> None:
        """Start a thread that runs the receiver; ``_start`` is of that thread from now on."""
        self._start = _Start()
        live = partial(self._live, self._start)
        self._stop_at_exit()
        # The thread is stored before its start, for ``stop``: a signal may cut this off.
        self._thread = threading.Thread(target=live, name="invsvc events", daemon=True)
        self._thread.start()

    def _stop_at_exit(self) -> None:
        """Register ``stop`` for the end of the process: a server that recycles processes does not call it."""
        if self._exiting_process != os.getpid():
            self._exiting_process = os.getpid()
            atexit.register(self.stop)

    def stop(self) -> None:
        """
        Wait up to the deadline for running handlers, release what is not handled, close the store.

        A process that ends of itself, such as a worker that its server recycles, does so as it ends.

        A thread that does not respond for longer than the deadline is given up, for example if a handler
        blocks it, or if its store hangs as it is opened.  It then ends once it can, or with the process.
        """
        with self._lock:
            thread = self._thread
            # A thread that could not start gives no outcome.
            if thread is None or not thread.is_alive():
                return
            # This waits for the end of the start, with the lock: no delivery begins another meanwhile.
            try:
                failure = self._start.outcome.exception(self._longest_wait)
            except TimeoutError:
                self._give_up("its store is not open yet")
                return
            has_started = failure is None
            self._thread = None
            if has_started and thread.is_alive():
                loop, stopping = self._start.outcome.result()
                loop.call_soon_threadsafe(stopping.set)
                if not self._has_joined(thread, loop):
                    self._give_up("a handler blocks it")
                    return
                self._running_process = None

    @property
    def _longest_wait(self) -> float:
        """How long a thread may not respond, in seconds."""
        return self._receiver.deadline + _PATIENCE

    def _has_joined(
        self,
        thread: threading.Thread,
        loop: asyncio.AbstractEventLoop,
    ) -> bool:
        """Wait until *thread* has ended; return False if its *loop* does not respond."""
        while thread.is_alive():
            has_responded = threading.Event()
            # The loop may be closed: the thread is then about to end.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(has_responded.set)
            thread.join(self._longest_wait)
            if thread.is_alive() and not has_responded.is_set():
                return False
        return True

    def _give_up(self, why: str) -> None:
        """Leave the thread alone, which does not end, and log *why*."""
        self._start.is_given_up = True
        self._thread = None
        _log.error("The receiver does not end: %s. Its thread is given up.", why)

    def __enter__(self) -> Self:
        """Start as ``start`` does."""
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        """Stop as ``stop`` does."""
        self.stop()

    def receive(self, body: bytes, headers: Headers | Head) -> Receipt:
        """
        Process one delivery and return the answer.  Raises no exceptions, because the sender needs an answer.

        The application has to check method, type and coding itself; ``answer`` does so.

        Spec: Events, Delivery behavior.
        """
        return self._run_in_thread(
            self._receiver.receive(body, headers), time.monotonic()
        )

    def answer(
        self,
        method: str,
        headers: Headers | Head,
        read: Callable[[int], bytes],
    ) -> Receipt:
        """
        Process one request: judge the head, then read the body in pieces, and process the delivery.

        *read* returns the next bytes of the body, as many as it is asked for; fewer are the last ones.

        Spec: Events, Delivery behavior.
        """
        begun = time.monotonic()
        head = head_of(headers)
        del headers
        refusal = refuse_by_head(method, head, self._receiver.max_body_bytes)
        if refusal is not None:
            return self._counted(begun, refusal)
        if self._receiver.doubts(head):
            refusal = self._run_in_thread(self._receiver.refusal(None, head), begun)
            if refusal is not None:
                return refusal
        with self._receiver.room.body(length_in(head)) as arriving:
            try:
                receipt = self._read(read, arriving, length_in(head), begun)
            except Exception as error:  # noqa: BLE001 - each server has its own errors for a broken body
                receipt = cut_off(error)
            if receipt is not None:
                return self._counted(begun, receipt)
            whole = arriving.whole()
            if whole is None:
                return self._counted(begun, FULL)
            return self._run_in_thread(self._receiver.receive(whole, head), begun)

    def _read(
        self,
        read: Callable[[int], bytes],
        arriving: Body,
        length: int | None,
        begun: float,
    ) -> Receipt | None:
        """
        Read a body in pieces, each into room of its own; return the answer if it cannot be read whole.

        A thread that waits for a piece cannot be woken: the deadline is looked at between pieces.
        """
        # A byte more than is allowed shows that the body is too large: ``Processing.receive`` answers 413.
        most = self._receiver.max_body_bytes + 1
        expected = most if length is None else min(length, most)
        while arriving.held < expected:
            asked = min(_PIECE, expected - arriving.held)
            piece = read(asked)
            if piece and not arriving.add(piece):
                return FULL
            is_last = len(piece) != asked
            del piece  # what waits for the next one holds none
            if is_last:
                break
            if time.monotonic() > begun + self._receiver.deadline:
                return Receipt(408, "refused")
        # Servers and Django do not tell that a body has ended early. A body without a single byte is
        # judged all the same: something may have read it before the receiver.
        if length is not None and 0 < arriving.held < expected:
            raise EOFError
        return None

    def wsgi_app(
        self, environ: dict[str, Any], start_response: Callable[..., object]
    ) -> Iterable[bytes]:  # Any: as in WSGI
        """Answer one request as a WSGI application for one path."""
        method = environ["REQUEST_METHOD"]
        head = _head_in(environ)
        read = _WsgiInput(environ)
        del environ
        receipt = self.answer(method, head, read)
        body, answer = _body_and_headers(receipt)
        start_response(
            f"{receipt.status} {HTTPStatus(receipt.status).phrase}",
            list(answer.items()),
        )
        return [body]

    def django_view(self, request: Any) -> Any:  # Any: Django has no types
        """Answer one request as a view of Django, without a CSRF token."""
        from django.http import HttpResponse  # pyright: ignore[reportMissingTypeStubs]

        has_length = bool(request.META.get("CONTENT_LENGTH"))
        is_wsgi = hasattr(request, "environ")
        # Under WSGI, Django reads no body that comes in chunks.
        is_chunked = is_wsgi and not has_length
        read = _WsgiInput(request.environ) if is_chunked else request.read
        receipt = self.answer(
            request.method, head_of(list(request.headers.items())), read
        )
        body, headers = _body_and_headers(receipt)
        return HttpResponse(body, status=receipt.status, headers=headers)

    # Django reads this mark; its decorator does no more.
    django_view.csrf_exempt = True  # type: ignore[attr-defined]

    def _counted(self, begun: float, receipt: Receipt) -> Receipt:
        """Count an answer of this thread to a request that came at *begun*."""
        return self._receiver.counted(
            begun + self._receiver.deadline, receipt, time.monotonic()
        )

    def _run_in_thread(
        self, running: Coroutine[Any, Any, T], begun: float
    ) -> T | Receipt:
        """
        Run a coroutine in the receiver's thread, which is started first, and return its result.

        If none comes, the receiver is unavailable: that answer is counted and returned.
        """
        answering = without_exit(running)
        future = None
        try:
            loop, stopping = self._starting().result(self._receiver.deadline)
            if stopping.is_set():
                raise ConfigurationError(  # noqa: TRY301
                    "receiver: its thread has ended. Start it again."
                )
            future = asyncio.run_coroutine_threadsafe(answering, loop)
            return future.result(self._receiver.deadline + _PATIENCE)
        except concurrent.futures.CancelledError:
            return self._counted(
                begun, unavailable(_RECEIVER, TimeoutError("the receiver stopped"))
            )
        # The start raises what the store or a vault's client raises, and a closed loop raises, too. The wait
        # times out if a handler blocks the loop.
        except Exception as failure:  # noqa: BLE001 - as said
            return self._counted(begun, unavailable(_RECEIVER, failure))
        finally:
            if future is None:
                answering.close()
                running.close()
            else:
                future.cancel()  # unless it is done

    def _live(self, start: _Start) -> None:
        """Run the receiver in this thread until ``stop``; *start* gets the loop, or why it does not run."""
        try:
            # A runner fails if the process has no more files, for example.
            with asyncio.Runner() as runner:
                self._run_in(runner.get_loop(), start)
        except BaseException as error:
            if start.outcome.done():
                raise
            # The next delivery starts another thread, although this one has not ended yet.
            if self._thread is threading.current_thread():
                self._thread = None
            start.outcome.set_exception(error)

    def _run_in(self, loop: asyncio.AbstractEventLoop, start: _Start) -> None:
        """Run the receiver in *loop*. An exit in any task, such as a store's, ends it as ``stop`` does."""
        running = loop.create_task(self._run(start))
        try:
            loop.run_until_complete(running)
        except (KeyboardInterrupt, SystemExit):
            running.cancel()
            while not running.done():
                with suppress(KeyboardInterrupt, SystemExit, asyncio.CancelledError):
                    loop.run_until_complete(running)
            raise

    async def _run(self, start: _Start) -> None:
        """Run the receiver in this loop, until ``stop`` sets the event that *start* gets."""
        stopping = asyncio.Event()  # what comes once it is set is answered 503
        async with self._receiver:
            if start.is_given_up:
                raise ConfigurationError("receiver: it was stopped as it started.")
            self._running_process = os.getpid()
            start.outcome.set_result((asyncio.get_running_loop(), stopping))
            try:
                await stopping.wait()
            finally:
                stopping.set()

    def _forget(self) -> None:
        """In a forked process, forget the thread and its lock, which belong to the parent."""
        self._lock = threading.Lock()
        self._thread = None


class _WsgiInput:
    """The body of a WSGI request.  Its repr shows nothing of the request."""

    def __init__(self, environ: dict[str, Any]) -> None:  # Any: as in WSGI
        self._environ = environ

    def __call__(self, size: int) -> bytes:
        """Read up to *size* bytes; without a length, only if the server marks the end of the body."""
        has_end = self._environ.get("CONTENT_LENGTH") or self._environ.get(
            "wsgi.input_terminated"
        )
        if not has_end:
            return b""
        found: bytes = self._environ["wsgi.input"].read(size)
        return found


def _head_in(environ: dict[str, Any]) -> Head:  # Any: as in WSGI
    """Return the headers of a WSGI request; headers of one name are joined, and match no secret."""
    named = {"CONTENT_TYPE", "CONTENT_LENGTH"}
    headers: list[tuple[str, str]] = []
    for name, value in environ.items():
        if name.startswith("HTTP_") or (name in named and value):
            bare = name.removeprefix("HTTP_").replace("_", "-")
            headers.append((bare, str(value)))
    return Head(headers)
