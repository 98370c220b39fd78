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
import concurrent.futures
import logging
import os
import threading
import time
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from invsvc_async.errors import ConfigurationError
from invsvc_async.events.event import ByName, Headers, by_name
from invsvc_async.events.receiving.admission import COME_BACK, Receipt, unavailable

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Coroutine,
        Generator,
        Iterable,
        MutableMapping,
    )

    from invsvc_async.events.receiving.receiver import Receiver

T = TypeVar("T")
_Message: TypeAlias = "MutableMapping[str, Any]"  # Any: as in ASGI
_Receive: TypeAlias = "Callable[[], Awaitable[_Message]]"
_Send: TypeAlias = "Callable[[_Message], Awaitable[None]]"

_Started: TypeAlias = concurrent.futures.Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]

_log: Final = logging.getLogger("invsvc_async.events")
FULL: Final = Receipt(503, "unavailable", headers=COME_BACK)  # other bodies take all the room
_PATIENCE: Final = 1.0  # s beyond the receiver's deadline until a request is answered without it


class BodyRoom:
    """Room for *size* bytes of bodies from their arrival until their answers, in all threads together."""

    def __init__(self, size: int) -> None:
        self._size = self._free = size
        self._lock = threading.Lock()

    @contextmanager
    def body(self) -> Generator[Callable[[int], bool]]:
        """Yield a function that takes room for bytes of one body, if there is; the block's end returns it."""
        taken = 0

        def take(size: int) -> bool:
            nonlocal taken
            with self._lock:
                if size > self._free:
                    _log.warning("A delivery was refused: others fill the %s bytes for bodies", self._size)
                    return False
                self._free -= size
            taken += size
            return True

        try:
            yield take
        finally:
            with self._lock:
                self._free += taken


def cut_off(error: Exception) -> Receipt:
    """Return the answer to a delivery whose body did not come to its end."""
    _log.info("A delivery was cut off: %s", type(error).__name__)
    return Receipt(400, "unreadable")


def refuse_by_head(method: str, headers: ByName, limit: int) -> Receipt | None:
    """Return the answer to a request that its method, type, coding or length rules out."""
    if method != "POST":
        return Receipt(405, "refused", headers={"Allow": "POST"})
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    coding = headers.get("content-encoding")  # "" if it came twice; a server may have decoded it
    if kind != "application/json" or (coding is not None and coding.lower() != "identity"):
        return Receipt(415, "refused", headers={"Accept": "application/json"})
    length = headers.get("content-length", "")
    if length.isdecimal() and (len(length) > 18 or int(length) > limit):
        return Receipt(413, "refused")
    return None


def _told(receipt: Receipt) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of an answer."""
    body = receipt.outcome.encode()
    basic = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(body))}
    return body, {**basic, **receipt.headers}


class AsgiApp:
    """
    An ASGI application for one path, to be routed to, mounted or run on its own.

    It is an object because Starlette calls a function with a ``Request``.
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Serve one connection."""
        match scope["type"]:
            case "http":
                receipt = await self._receiver.answer(scope["method"], scope["headers"], _chunks(receive))
                body, headers = _told(receipt)
                pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
                try:
                    await send({"type": "http.response.start", "status": receipt.status, "headers": pairs})
                    await send({"type": "http.response.body", "body": body})
                except Exception as error:  # noqa: BLE001 - each server has its own for a sender that is gone
                    _log.info("An answer could not be sent: %s", type(error).__name__)
            case "lifespan":
                await self._live(receive, send)
            case _:
                await send({"type": "websocket.close", "code": 1003})

    async def _live(self, receive: _Receive, send: _Send) -> None:
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
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise ConnectionResetError  # the sender disconnected before its body was complete
        yield message.get("body", b"")
        more = message.get("more_body", False)


class SyncReceiver:
    """
    Run *receiver* in a thread of its own, for applications that are not async.

    The thread starts with the first delivery, or with ``start``: in each process of a server that forks.  It
    opens the store and runs the worker; handlers are async functions as always, and run in that thread.
    ``with`` and ``stop`` end it; without these, it ends with the process, and what was not handled is handled
    after the next start.

    Spec: Events, Delivery behavior.
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._lock = threading.Lock()
        self._started_in: int | None = None
        self._thread: threading.Thread | None = None
        self._started = _Started()  # of that thread: done once it receives
        if hasattr(os, "register_at_fork"):  # not on Windows
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
            if self._started_in not in {None, os.getpid()}:  # its thread and connections stayed behind
                raise ConfigurationError(
                    "receiver: it was started before the process forked. Start it in each process, or let "
                    "the first delivery start it."
                )
            if self._thread is None or not self._thread.is_alive():
                self._started = _Started()
                live = partial(self._live, self._started)
                # Stored before its start, for ``stop``, as this may be cut off.
                self._thread = thread = threading.Thread(target=live, name="invsvc events", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the process has too many
                    self._thread = None
                    raise
            return self._started  # to wait for without the lock: all that wait for one start share its result

    def stop(self) -> None:
        """Wait up to the deadline for running handlers, release what is not handled, close the store."""
        with self._lock:
            if (thread := self._thread) is None:
                return
            has_started = self._started.exception() is None  # waits for it
            self._thread = None
            if has_started and thread.is_alive():
                loop, stopping = self._started.result()
                loop.call_soon_threadsafe(stopping.set)
                thread.join()
                self._started_in = None

    def __enter__(self) -> Self:
        """Start as ``start`` does."""
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        """Stop as ``stop`` does."""
        self.stop()

    def receive(self, body: bytes, headers: Headers) -> Receipt:
        """
        Process one delivery and return the answer.  Raises no exceptions, because the sender needs an answer.

        The application has to check method, type and coding itself; ``answer`` does so.

        Spec: Events, Delivery behavior.
        """
        return self._waited(self._receiver.receive(body, headers), time.monotonic())

    def answer(self, method: str, headers: Headers, read: Callable[[int], bytes]) -> Receipt:
        """
        Process one request: refuse what its head rules out, then read at most so many bytes and process them.

        Spec: Events, Delivery behavior.
        """
        found, begun = by_name(headers), time.monotonic()
        refusal = refuse_by_head(method, found, self._receiver.max_body_bytes)
        if refusal is not None:
            return self._counted(begun, refusal)
        if self._receiver.doubts(found):
            refusal = self._waited(self._receiver.refusal(None, found), begun)
            if refusal is not None:
                return refusal
        most = self._receiver.max_body_bytes + 1
        length = found.get("content-length", "")
        with self._receiver.room.body() as take:
            if not take(int(length) if length.isdecimal() else most):
                return self._counted(begun, FULL)
            try:
                body = read(most)
            except Exception as error:  # noqa: BLE001 - each server has its own errors for a broken body
                return self._counted(begun, cut_off(error))
            return self.receive(body, found)

    def wsgi_app(
        self, environ: dict[str, Any], start_response: Callable[..., object]
    ) -> Iterable[bytes]:  # Any: as in WSGI
        """Answer one request as a WSGI application for one path."""
        named = {"CONTENT_TYPE", "CONTENT_LENGTH"}
        headers = [  # a server joins those of one name by commas, which no secret matches
            (name.removeprefix("HTTP_").replace("_", "-").lower(), str(value))
            for name, value in environ.items()
            if name.startswith("HTTP_") or (name in named and value)
        ]
        receipt = self.answer(environ["REQUEST_METHOD"], headers, partial(_read_wsgi, environ))
        body, answer = _told(receipt)
        start_response(f"{receipt.status} {HTTPStatus(receipt.status).phrase}", list(answer.items()))
        return [body]

    def django_view(self, request: Any) -> Any:  # Any: Django has no types
        """Answer one request as a view of Django, without a CSRF token."""
        from django.http import HttpResponse  # pyright: ignore[reportMissingTypeStubs]

        def read(most: int) -> bytes:
            length = request.META.get("CONTENT_LENGTH") or ""
            if not length and hasattr(request, "environ"):  # under WSGI, it reads none that comes in chunks
                return _read_wsgi(request.environ, most)
            body: bytes = request.read(most)
            return _complete(body, min(int(length), most)) if body and length.isdecimal() else body

        receipt = self.answer(request.method, list(request.headers.items()), read)
        body, headers = _told(receipt)
        return HttpResponse(body, status=receipt.status, headers=headers)

    # Django reads this mark; its decorator does no more.
    django_view.csrf_exempt = True  # type: ignore[attr-defined]

    def _counted(self, begun: float, receipt: Receipt) -> Receipt:
        """Count an answer that this thread has made, to a request that came at *begun*."""
        return self._receiver.counted(begun + self._receiver.deadline, receipt, time.monotonic())

    def _waited(self, running: Coroutine[Any, Any, T], begun: float) -> T | Receipt:
        """Return what a coroutine returns in the receiver's thread, or the answer if it has none."""
        future = None
        try:
            loop, stopping = self._starting().result(self._receiver.deadline)
            if stopping.is_set():
                raise ConfigurationError("receiver: its thread has ended. Start it again.")  # noqa: TRY301
            future = asyncio.run_coroutine_threadsafe(running, loop)
            return future.result(self._receiver.deadline + _PATIENCE)
        except concurrent.futures.CancelledError:
            return self._counted(begun, unavailable(TimeoutError("the receiver stopped")))
        except Exception as failure:  # noqa: BLE001 - of the store, of a vault's client, or of a closed loop
            return self._counted(begun, unavailable(failure))  # or a timeout: a handler blocks the loop
        finally:
            if future is None:
                running.close()
            else:
                future.cancel()  # unless it is done

    def _live(self, started: _Started) -> None:
        try:
            with asyncio.Runner() as runner:  # which fails if the process has no more files, for example
                runner.run(self._run(started))
        except BaseException as error:
            if started.done():
                raise
            self._thread = None  # the next one begins anew, although this one has not ended yet
            started.set_exception(error)

    async def _run(self, started: _Started) -> None:
        stopping = asyncio.Event()  # what comes once it is set is answered 503
        async with self._receiver:
            self._started_in = os.getpid()
            started.set_result((asyncio.get_running_loop(), stopping))
            await stopping.wait()

    def _forget(self) -> None:
        """Forget the thread in a forked process, which has none, and a lock that it may have held."""
        self._lock, self._thread = threading.Lock(), None


def _read_wsgi(environ: dict[str, Any], most: int) -> bytes:
    """Read the body: as long as its header says, or to its end if the server marks that."""
    length = environ.get("CONTENT_LENGTH") or ""
    if not length.isdecimal():
        return environ["wsgi.input"].read(most) if environ.get("wsgi.input_terminated") else b""
    size = min(int(length), most)
    return _complete(environ["wsgi.input"].read(size), size)


def _complete(body: bytes, size: int) -> bytes:
    """Return a body of *size* bytes, unless it was cut off: servers and Django do not tell."""
    if len(body) < size:
        raise EOFError
    return body
