"""
The receiver in applications that are not async: WSGI, Flask, Django views.

One thread owns an event loop, in which the receiver runs; requests wait for its answers.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from invsvc_async.errors import ConfigurationError
from invsvc_async.events.headers import by_name
from invsvc_async.events.receiving.receipt import Receipt, unavailable
from invsvc_async.events.receiving.web import NoRoomError, refuse_by_head

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from types import TracebackType
    from typing import Self

    from invsvc_async.events.headers import Headers
    from invsvc_async.events.receiving.receiver import Receiver

__all__ = ["SyncReceiver"]

T = TypeVar("T")

_log: Final = logging.getLogger("invsvc_async.events")
_PATIENCE: Final = 1.0  # s beyond the receiver's deadline until a request is answered without it
_REASONS: Final = {
    200: "OK", 202: "Accepted", 400: "Bad Request", 401: "Unauthorized", 405: "Method Not Allowed",
    408: "Request Timeout", 413: "Content Too Large", 415: "Unsupported Media Type",
    429: "Too Many Requests", 500: "Internal Server Error", 503: "Service Unavailable",
}  # fmt: skip


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
        self._started: concurrent.futures.Future[None] | None = None  # of that thread: done once it receives
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
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

    def _starting(self) -> concurrent.futures.Future[None]:
        """Return the start that is under way, or has succeeded; or begin one."""
        with self._lock:
            if self._started_in not in {None, os.getpid()}:  # its thread and connections stayed behind
                raise ConfigurationError(
                    "receiver: it was started before the process forked. Start it in each process, or let "
                    "the first delivery start it."
                )
            started = self._started
            # A thread that could not start ends after it has said so.
            failed = started is not None and started.done() and started.exception() is not None
            if started is None or failed or self._thread is None or not self._thread.is_alive():
                started = self._begin()
            return started  # to wait for without the lock: all that wait for one start share its result

    def _begin(self) -> concurrent.futures.Future[None]:
        started: concurrent.futures.Future[None] = concurrent.futures.Future()
        thread = threading.Thread(target=self._live, args=(started,), name="invsvc events", daemon=True)
        self._thread, self._started = thread, started  # before, for ``stop``: this may be interrupted
        try:
            thread.start()
        except RuntimeError:  # the process has too many
            self._thread = self._started = None
            raise
        return started

    def stop(self) -> None:
        """Wait up to the deadline for running handlers, release what is not handled, close the store."""
        with self._lock:
            thread, started = self._thread, self._started
            if thread is None or started is None:
                return
            has_started = started.exception() is None  # waits for it
            self._thread = self._started = None
            if not (has_started and thread.is_alive()) or self._loop is None or self._stopping is None:
                return
            self._loop.call_soon_threadsafe(self._stopping.set)
            thread.join()
            self._started_in = None

    def __enter__(self) -> Self:
        """Start as ``start`` does."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop as ``stop`` does."""
        self.stop()

    def receive(self, body: bytes, headers: Headers) -> Receipt:
        """
        Process one delivery and return the answer.  Raises no exceptions, because the sender needs an answer.

        The application has to check method, type and coding itself; ``answer`` does so.

        Spec: Events, Delivery behavior.
        """
        return self._waited(lambda: self._receiver.receive(body, headers))

    def answer(self, method: str, headers: Headers, read: Callable[[int], bytes]) -> Receipt:
        """
        Process one request: refuse what its head rules out, then read at most so many bytes and process them.

        Spec: Events, Delivery behavior.
        """
        found = by_name(headers)
        refusal = refuse_by_head(method, found, self._receiver.max_body_bytes)
        if refusal is None and self._receiver.doubts(found):
            refusal = self._waited(lambda: self._receiver.refusal(None, found))
        if refusal is not None:
            return refusal
        most = self._receiver.max_body_bytes + 1
        length = found.get("content-length", "")
        with self._receiver.room.body() as take:
            try:
                take(int(length) if length.isdecimal() else most)
                body = read(most)
            except NoRoomError as error:
                return error.receipt
            except Exception as error:  # noqa: BLE001 - each server has its own errors for a broken body
                _log.info("A delivery was cut off: %s", type(error).__name__)
                return Receipt(400, "unreadable")
            return self.receive(body, found)

    def wsgi_app(
        self, environ: dict[str, Any], start_response: Callable[..., object]
    ) -> Iterable[bytes]:  # Any: as in WSGI
        """Answer one request as a WSGI application for one path."""
        receipt = self.answer(
            environ["REQUEST_METHOD"], _headers_of(environ), lambda most: _read(environ, most)
        )
        body = receipt.outcome.encode()
        answer = {
            "Content-Type": "text/plain; charset=utf-8",
            "Content-Length": str(len(body)),
            **receipt.headers,
        }
        status = f"{receipt.status} {_REASONS.get(receipt.status, 'Unknown')}"
        start_response(status, list(answer.items()))
        return [body]

    def django_view(self, request: Any) -> Any:  # Any: Django has no types
        """Answer one request as a view of Django, without a CSRF token."""
        from django.http import HttpResponse  # pyright: ignore[reportMissingTypeStubs]

        receipt = self.answer(
            request.method, list(request.headers.items()), partial(_read_in_django, request)
        )
        return HttpResponse(
            receipt.outcome.encode(),
            status=receipt.status,
            headers=dict(receipt.headers),
            content_type="text/plain",
        )

    # Django reads this mark; its decorator does no more.
    django_view.csrf_exempt = True  # type: ignore[attr-defined]

    def _waited(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T | Receipt:
        """Return what a coroutine returns in the receiver's thread, or the answer if it has none."""
        try:
            self._starting().result(self._receiver.deadline)
        except Exception as failure:  # noqa: BLE001 - of the store, or of a vault's client
            return unavailable(failure)
        loop, running = self._loop, begin()
        if loop is None:
            running.close()
            return unavailable(ConfigurationError("receiver: its thread has ended. Start it again."))
        try:
            future = asyncio.run_coroutine_threadsafe(running, loop)
        except RuntimeError as failure:  # the loop was closed meanwhile
            running.close()
            return unavailable(failure)
        try:
            return future.result(self._receiver.deadline + _PATIENCE)
        except (TimeoutError, concurrent.futures.CancelledError) as failure:  # a handler blocks the loop
            future.cancel()
            return unavailable(
                failure if isinstance(failure, Exception) else TimeoutError("the receiver stopped")
            )

    def _live(self, started: concurrent.futures.Future[None]) -> None:
        try:
            with asyncio.Runner() as runner:  # which fails if the process has no more files, for example
                runner.run(self._run(started))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    async def _run(self, started: concurrent.futures.Future[None]) -> None:
        self._stopping = asyncio.Event()
        async with self._receiver:
            self._loop, self._started_in = asyncio.get_running_loop(), os.getpid()
            started.set_result(None)
            await self._stopping.wait()
            self._loop = None  # what comes from now on is answered 503

    def _forget(self) -> None:
        """Forget the thread in a forked process, which has none, and a lock that it may have held."""
        self._lock = threading.Lock()
        self._thread = self._started = self._loop = None


def _headers_of(environ: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the request's headers; a server joins those of one name by commas, which no secret matches."""
    found = [
        (name[5:].replace("_", "-").lower(), str(value))
        for name, value in environ.items()
        if name.startswith("HTTP_")
    ]
    named = ("CONTENT_TYPE", "CONTENT_LENGTH")
    found.extend((name.replace("_", "-").lower(), environ[name]) for name in named if environ.get(name))
    return found


def _read(environ: dict[str, Any], most: int) -> bytes:
    """Read the body: as long as its header says, or to its end if the server marks that."""
    length = environ.get("CONTENT_LENGTH") or ""
    if not length.isdecimal():
        return environ["wsgi.input"].read(most) if environ.get("wsgi.input_terminated") else b""
    body: bytes = environ["wsgi.input"].read(min(int(length), most))
    if len(body) < min(int(length), most):
        raise EOFError
    return body


def _read_in_django(request: Any, most: int) -> bytes:  # Any: Django has no types
    """Read the body; under WSGI, Django reads none that comes in chunks, and does not tell of one cut off."""
    length = request.META.get("CONTENT_LENGTH") or ""
    if not length and hasattr(request, "environ"):
        return _read(request.environ, most)
    body: bytes = request.read(most)
    if length.isdecimal() and 0 < len(body) < min(int(length), most):
        raise EOFError
    return body
