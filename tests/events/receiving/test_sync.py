"""The receiver in WSGI applications on real sockets: the same answers, stores and rules as elsewhere."""

from __future__ import annotations

import asyncio
import errno
import io
import signal
import socket
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import pytest
from multidict import CIMultiDict

from invsvc_async import events
from invsvc_async.errors import ConfigurationError, JournalError
from tests.events.bodies import (
    HEADER,
    SECRET,
    SHARED,
    encoded,
    filled,
    headers_of,
    signature,
    signed_body,
    v1,
    v2,
)
from tests.support.forks import forks, in_child

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

pytestmark = pytest.mark.one_python

RESOURCE, SIGNED = (
    encoded(v2("invoice.created")),
    encoded(signed_body("sat.invoice.synced")),
)


class _Threading(WSGIServer):
    request_queue_size = 100

    def process_request(self, request: Any, client_address: Any) -> None:
        threading.Thread(
            target=self._serve, args=(request, client_address), daemon=True
        ).start()

    def _serve(self, request: Any, client_address: Any) -> None:
        self.finish_request(request, client_address)
        self.shutdown_request(request)


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002 - the name of the base class


@contextmanager
def served(app: Any) -> Iterator[int]:
    server = make_server("127.0.0.1", 0, app, _Threading, _Quiet)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}
    )
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def post(
    port: int,
    body: bytes,
    headers: dict[str, str],
    *,
    method: str = "POST",
    path: str = "/events",
) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(
        method, path, body, {"Content-Type": "application/json"} | headers
    )
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


class Opened(events.MemoryStore):
    """A store whose opening begins with something else."""

    def __init__(self, first: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self.first: Callable[[], Awaitable[None]] | None = first

    async def open(self) -> None:
        if self.first is not None:
            await self.first()
        await super().open()


class Kept:
    """A receiver, and what its handler was given."""

    def __init__(self, **settings: Any) -> None:
        self.receiver = events.Receiver(
            **{"secrets": SECRET, "shared_header": HEADER} | settings
        )
        self.seen: list[str] = []
        self.threads: set[str] = set()
        self.arrived = threading.Condition()
        self.receiver.on("*")(self._take)

    async def _take(self, event: events.Event) -> None:
        with self.arrived:
            self.seen.append(event.type)
            self.threads.add(threading.current_thread().name)
            self.arrived.notify_all()

    def wait_for(self, count: int) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.seen) >= count, 300)


def flask_app(receiver: events.Receiver) -> Any:
    flask = pytest.importorskip("flask")
    app = flask.Flask("test")

    @app.post("/events")
    def take() -> Any:
        receipt = receiver.sync.receive(
            flask.request.get_data(), flask.request.headers.items()
        )
        return receipt.outcome, receipt.status, receipt.headers

    return app


def django_app(receiver: events.Receiver) -> Any:
    pytest.importorskip("django")
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.urls import path

    module = type(sys)("urls_of_the_test")
    module.urlpatterns = [path("events", receiver.django_view)]  # type: ignore[attr-defined]
    sys.modules["urls_of_the_test"] = module
    middleware = ["django.middleware.csrf.CsrfViewMiddleware"]
    if not settings.configured:
        settings.configure(
            ROOT_URLCONF="urls_of_the_test", MIDDLEWARE=middleware, ALLOWED_HOSTS=["*"]
        )
        django.setup()
    from django.urls import clear_url_caches

    clear_url_caches()
    return get_wsgi_application()


APPS = {
    "wsgi": lambda receiver: receiver.wsgi_app,
    "flask": flask_app,
    "django": django_app,
}


@pytest.mark.parametrize("mode", ["inline", "inbox"])
@pytest.mark.parametrize("framework", APPS)
def test_deliveries(tmp_path, framework: str, mode: str) -> None:
    """Answers are those of the async applications; each event is handled once, in the receiver's thread."""
    kept = Kept(mode=mode, store=str(tmp_path / "events.db"))
    shared = dict([SHARED])
    with kept.receiver.sync, served(APPS[framework](kept.receiver)) as port:
        answers = [
            post(port, RESOURCE, shared),
            post(port, RESOURCE, shared),
            post(port, RESOURCE, {}),
            post(port, SIGNED, signature(SIGNED)),
            post(port, SIGNED, signature(SIGNED, "forged")),
            post(port, b"{", shared),
        ]
        kept.wait_for(2)

    done = "handled" if mode == "inline" else "stored"
    assert answers == [
        (200, done), (200, "duplicate"), (401, "refused"), (200, done), (401, "refused"),
        (202, "dead letter"),
    ]  # fmt: skip
    assert sorted(kept.seen) == ["invoice.created", "sat.invoice.synced"]
    assert kept.threads == {"invsvc events"}


@pytest.mark.parametrize("framework", ["wsgi", "django"])
def test_requests_that_their_head_rules_out(framework: str) -> None:
    """Method, type, coding and length are checked before anything is read or started."""
    kept = Kept(max_body_bytes=2000)
    with served(APPS[framework](kept.receiver)) as port:
        shared = dict([SHARED])
        assert post(port, b"", shared, method="GET")[0] == 405
        assert post(port, RESOURCE, shared | {"Content-Type": "text/plain"})[0] == 415
        assert post(port, RESOURCE, shared | {"Content-Encoding": "gzip"})[0] == 415
        assert post(port, b" " * 2001, shared)[0] == 413
        assert kept.receiver.sync._thread is None
        assert post(port, RESOURCE, shared) == (200, "handled")
    kept.receiver.sync.stop()


@pytest.mark.parametrize("framework", ["wsgi", "django"])
def test_body_that_its_headers_rule_out(framework: str) -> None:
    """It is refused without waiting for the body."""
    kept = Kept()
    with kept.receiver.sync, served(APPS[framework](kept.receiver)) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            head = (
                "POST /events HTTP/1.1",
                "Content-Type: application/json",
                "Content-Length: 9",
                "Host: me",
                "",
            )
            connection.sendall("\r\n".join((*head, "{")).encode())
            assert connection.recv(100).split()[1] == b"401"
        assert kept.receiver.stats().answers == {(401, "refused"): 1}


def test_every_answer_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that a server's thread gives by itself, and how long they took."""
    kept = Kept(max_body_bytes=2000)

    def answer(read: Callable[[int], bytes], method: str = "POST") -> int:
        headers = {"Content-Type": "application/json", "Content-Length": "9"} | dict(
            [SHARED]
        )
        return kept.receiver.sync.answer(method, headers, read).status

    def broken(_: int) -> bytes:
        raise OSError

    def unread(_: int) -> bytes:
        pytest.fail("the body was read")

    with kept.receiver.sync:
        given = [answer(unread, "GET"), answer(broken), answer(lambda _: RESOURCE)]
        with filled(kept.receiver.room):
            given.append(answer(lambda _: RESOURCE))
    monkeypatch.setattr(threading.Thread, "start", broken)
    given.append(answer(lambda _: RESOURCE))  # its thread cannot start again

    assert sorted(given) == [200, 400, 405, 503, 503]
    found = kept.receiver.stats()
    assert sorted(
        status for (status, _), many in found.answers.items() for _ in range(many)
    ) == sorted(given)
    assert 0 <= found.slowest_answer <= found.answer_seconds < 60


def test_strangers_that_fill_the_memory() -> None:
    """What a head announces takes no room; a body that comes slowly gives way to one that is there."""
    kept = Kept(max_body_bytes=2000)
    reading, go_on = threading.Semaphore(0), threading.Event()

    def stalling() -> Callable[[int], bytes]:
        pieces = iter([b"x" * 1999])

        def read(asked: int) -> bytes:
            piece = next(pieces, b"")
            if piece:
                return piece + b"x" * (asked - len(piece) - 1)
            reading.release()
            assert go_on.wait(60)
            return b"x"

        return read

    def answer(read: Callable[[int], bytes], length: str = "2000") -> events.Receipt:
        headers = {"Content-Type": "application/json", "Content-Length": length} | dict(
            [SHARED]
        )
        return kept.receiver.sync.answer("POST", headers, read)

    with kept.receiver.sync, ThreadPoolExecutor(64) as threads:
        held = [threads.submit(answer, stalling()) for _ in range(64)]
        during = [answer(lambda _: RESOURCE, str(len(RESOURCE))) for _ in range(3)]
        go_on.set()
        statuses = Counter(each.result(60).status for each in held)

    assert [each.status for each in during] == [200, 200, 200]
    assert statuses.keys() <= {400, 503}


def test_body_that_comes_slowly() -> None:
    """Where no thread can be woken, the deadline is looked at between pieces: 408."""
    kept = Kept(deadline=0.2)

    def read(asked: int) -> bytes:
        time.sleep(0.3)  # sleeps: as a sender that is slow, in a thread
        return b"x" * asked

    headers = {"Content-Type": "application/json", "Content-Length": "100000"} | dict(
        [SHARED]
    )

    assert kept.receiver.sync.answer("POST", headers, read).status == 408


@pytest.mark.parametrize(
    ("body", "environ", "expected"),
    [
        (RESOURCE, {"wsgi.input_terminated": True}, "200 OK"),
        (RESOURCE, {}, "503 Service Unavailable"),  # read as empty
        (RESOURCE[:-1], {"CONTENT_LENGTH": str(len(RESOURCE))}, "400 Bad Request"),
    ],
    ids=["in chunks", "without a length", "cut off"],
)
@pytest.mark.parametrize("framework", ["wsgi", "django"])
def test_body_of_another_length(
    body: bytes, environ: dict[str, Any], expected: str, framework: str
) -> None:
    """A body without a length is read if the server marks its end; one that is cut off is not processed."""
    kept = Kept()
    name, value = SHARED
    answers: list[str] = []
    request = {
        "REQUEST_METHOD": "POST", "CONTENT_TYPE": "application/json", "wsgi.input": io.BytesIO(body),
        "PATH_INFO": "/events", "SERVER_NAME": "me.example", "SERVER_PORT": "80", "wsgi.url_scheme": "http",
        f"HTTP_{name.upper().replace('-', '_')}": value, **environ,
    }  # fmt: skip
    with kept.receiver.sync:
        app = APPS[framework](kept.receiver)
        b"".join(app(request, lambda status, _headers: answers.append(status)))
    assert answers == [expected]
    assert kept.seen == (["invoice.created"] if expected == "200 OK" else [])


def test_store_that_cannot_be_opened(tmp_path) -> None:
    """It is told at the start; a delivery is answered 503, and accepted once it can be opened."""
    kept = Kept(store=str(tmp_path / "no" / "events.db"))
    with pytest.raises(JournalError):
        kept.receiver.sync.start()
    headers = headers_of(RESOURCE, shared=True)
    assert kept.receiver.sync.receive(RESOURCE, headers).status == 503
    (tmp_path / "no").mkdir()
    with kept.receiver.sync as sync:
        assert sync.receive(RESOURCE, headers).outcome == "handled"
    assert sync.receive(RESOURCE, headers).outcome == "duplicate", (
        "it starts again by itself"
    )
    sync.stop()


def test_thread_that_cannot_make_an_event_loop(monkeypatch) -> None:
    """A delivery is answered 503 and does not wait for ever, and neither do those after it."""
    kept, headers = Kept(), headers_of(RESOURCE, shared=True)
    answers: list[int] = []

    def fail() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("asyncio.events.new_event_loop", fail)
        for _ in range(2):
            asked = threading.Thread(
                target=lambda: answers.append(
                    kept.receiver.sync.receive(RESOURCE, headers).status
                ),
                daemon=True,
            )
            asked.start()
            asked.join(300)
    assert answers == [503, 503]
    assert kept.receiver.sync.receive(RESOURCE, headers).status == 200
    kept.receiver.sync.stop()


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, KeyboardInterrupt])
def test_thread_that_cannot_start(monkeypatch, error: type[BaseException]) -> None:
    """Whatever cuts its start off, ``stop`` and the end of the process do not wait for it."""
    kept = Kept()

    def fail(_: threading.Thread) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        with pytest.raises(error):
            kept.receiver.sync.start()
    ended_by(kept.receiver.sync.stop)
    with kept.receiver.sync as sync:
        assert sync.receive(RESOURCE, headers_of(RESOURCE, shared=True)).status == 200


@pytest.mark.parametrize("place", ["handler", "delivery"])
def test_exit_in_the_thread(place: str) -> None:
    """It ends neither the process nor the receiver: the delivery failed, and is handled when it comes again."""
    exits = [SystemExit("enough")]
    receiver = events.Receiver(secrets=SECRET, shared_header=HEADER)

    @receiver.on("*")
    async def take(_: events.Event) -> None:
        if place == "handler" and exits:
            raise exits.pop()

    async def around(_: object, processing: Awaitable[Any]) -> Any:
        receipt = await processing
        if exits:
            raise exits.pop()
        return receipt

    receiver.on_delivery = around
    headers = headers_of(RESOURCE, shared=True)
    with receiver.sync as sync:
        answers = [sync.receive(RESOURCE, headers).status for _ in range(2)]
    assert answers == [500 if place == "handler" else 503, 200]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_exit_in_the_worker() -> None:
    """It ends the receiver as ``stop`` does, so that the next delivery starts it again."""

    class Exiting(events.MemoryStore):
        exits = 1
        closed = 0

        async def take(self, **given: Any) -> Any:
            if self.exits:
                self.exits -= 1
                await asyncio.sleep(0)
                raise SystemExit("enough")
            return await super().take(**given)

        async def close(self) -> None:
            self.closed += 1
            await super().close()

    store = Exiting()
    kept = Kept(mode="inbox", store=store)
    kept.receiver.sync.start()
    until_no_thread()
    assert store.closed == 1
    with kept.receiver.sync as sync:
        assert sync.receive(RESOURCE, headers_of(RESOURCE, shared=True)).status == 200
        kept.wait_for(1)


def test_store_that_takes_its_time_to_fail() -> None:
    """All that wait for the start share its result; one after the other they would wait too long."""
    headers = headers_of(RESOURCE, shared=True)
    opened: list[int] = []
    ready = threading.Barrier(5)

    async def fail() -> None:
        opened.append(1)
        # sleeps: as a database that is slow to fail, on a loop in a thread
        await asyncio.sleep(1.0)
        raise JournalError("the database is away")

    def receive(_: int) -> int:
        ready.wait()
        return kept.receiver.sync.receive(RESOURCE, headers).status

    store = Opened(fail)
    kept = Kept(store=store)
    with ThreadPoolExecutor(5) as threads:
        assert [*threads.map(receive, range(5))] == [503] * 5
    store.first = None
    assert len(opened) < 5
    with kept.receiver.sync as sync:
        assert sync.receive(RESOURCE, headers).status == 200


def test_store_that_hangs() -> None:
    """A delivery is answered 503 at its deadline, and accepted once the store is open."""
    headers = headers_of(RESOURCE, shared=True)
    release = threading.Event()

    async def hang() -> None:
        await asyncio.to_thread(release.wait, 30)

    kept = Kept(deadline=0.1, store=Opened(hang))
    assert kept.receiver.sync.receive(RESOURCE, headers).status == 503
    release.set()
    with kept.receiver.sync as sync:
        kept.receiver.deadline = 8.0
        assert sync.receive(RESOURCE, headers).status == 200


@pytest.mark.skipif(
    not hasattr(signal, "pthread_kill"), reason="no signal can be sent to a thread here"
)
def test_start_that_is_interrupted() -> None:
    """Ctrl-C ends the wait for a store, and ``stop`` ends what was started."""
    interrupts: list[int] = []

    def interrupt() -> None:
        interrupts.append(1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    async def be_slow() -> None:
        interrupt()
        # sleeps: as a store that is slow to open, on a loop in a thread
        await asyncio.sleep(0.2)

    kept = Kept(store=Opened(be_slow))
    again = threading.Timer(20, interrupt)
    again.start()
    with pytest.raises(KeyboardInterrupt):
        kept.receiver.sync.start()
    again.cancel()
    assert interrupts == [1], (
        "it waits for the end of the thread, which receives events by now"
    )
    kept.receiver.sync.stop()
    assert not [each for each in threading.enumerate() if each.name == "invsvc events"]


@pytest.mark.parametrize(
    "form", [MappingProxyType, CIMultiDict, dict, lambda given: iter(given.items())]
)
def test_headers_of_any_form(form: Any) -> None:
    """Those of a framework may be a mapping that is no dict."""
    headers = {"Content-Type": "application/json", **headers_of(RESOURCE, shared=True)}
    with Kept().receiver.sync as sync:
        assert sync.answer("POST", form(headers), lambda _: RESOURCE).status == 200


@pytest.mark.parametrize("secrets", [SECRET, lambda: SECRET])
def test_receiver_that_starts_again(tmp_path, secrets: Any) -> None:
    """Each start has an event loop of its own, and the worker handles events in each."""
    kept = Kept(mode="inbox", store=str(tmp_path / "events.db"), secrets=secrets)
    for number in range(1, 4):
        with kept.receiver.sync as sync:
            body = encoded(v2("invoice.created", number=number))
            time.sleep(0.05)  # sleeps: so that the worker waits; nothing tells
            assert sync.receive(body, headers_of(body, shared=True)).outcome == "stored"
            kept.wait_for(number)
            assert sync.receive(SIGNED, signature(SIGNED, "forged")).status == 401


async def test_receiver_that_runs_elsewhere() -> None:
    """One that an event loop of the application runs is not started a second time."""
    kept = Kept()
    async with kept.receiver:
        with pytest.raises(ConfigurationError, match="already running"):
            kept.receiver.sync.start()


def test_handler_that_blocks_the_thread(monkeypatch) -> None:
    """The request is answered 503 all the same, so that the service sends it again."""
    monkeypatch.setattr("invsvc_async.events.receiving.web._PATIENCE", 0.0)
    kept, release = blocked()
    with kept.receiver.sync as sync:
        body = encoded(v1("payment.created"))
        assert sync.receive(body, headers_of(body, shared=True)).status == 503
        release.set()


def test_stop_while_a_handler_blocks_the_thread(monkeypatch, caplog) -> None:
    """It does not wait for the handler for ever, so the process ends."""
    monkeypatch.setattr("invsvc_async.events.receiving.web._PATIENCE", 0.0)
    kept, release = blocked()
    body = encoded(v1("payment.created"))
    assert kept.receiver.sync.receive(body, headers_of(body, shared=True)).status == 503
    try:
        ended_by(kept.receiver.sync.stop)
        assert "a handler blocks it" in caplog.text
    finally:
        release.set()
    until_no_thread()


def test_stop_while_a_store_hangs_as_it_is_opened(monkeypatch, caplog) -> None:
    """It does not wait for the store for ever; what is opened later is closed at once."""
    monkeypatch.setattr("invsvc_async.events.receiving.web._PATIENCE", 0.0)
    release = threading.Event()

    async def hang() -> None:
        await asyncio.to_thread(release.wait, 60)

    kept = Kept(deadline=0.2, store=Opened(hang))
    headers = headers_of(RESOURCE, shared=True)
    assert kept.receiver.sync.receive(RESOURCE, headers).status == 503
    try:
        ended_by(kept.receiver.sync.stop)
        assert "its store is not open yet" in caplog.text
    finally:
        release.set()
    until_no_thread()
    kept.receiver.deadline = 8.0
    with kept.receiver.sync as sync:
        assert sync.receive(RESOURCE, headers).status == 200


def blocked() -> tuple[Kept, threading.Event]:
    """Return a receiver whose handler of payments blocks its thread, and the event that ends that."""
    kept = Kept(deadline=0.5)
    release = threading.Event()

    @kept.receiver.on("payment.created")
    async def block(_: events.Event) -> None:
        release.wait(60)

    return kept, release


def ended_by(stop: Callable[[], None]) -> None:
    """Call *stop* in a thread, and check that it ends."""
    stopping = threading.Thread(target=stop, daemon=True)
    stopping.start()
    stopping.join(300)
    assert not stopping.is_alive()


def until_no_thread() -> None:
    """Wait until the threads of receivers have ended."""
    for thread in threading.enumerate():
        if thread.name == "invsvc events":
            thread.join(300)
            assert not thread.is_alive()


@forks
def test_process_that_is_forked(tmp_path) -> None:
    """The child of a server that forks has a thread of its own, unless it was started too early."""
    kept = Kept(store=str(tmp_path / "events.db"))
    headers = headers_of(RESOURCE, shared=True)

    def receive() -> str:
        outcome = kept.receiver.sync.receive(RESOURCE, headers).outcome
        kept.receiver.sync.start()
        return outcome

    assert in_child(receive) == "handled"
    with kept.receiver.sync as sync:
        assert sync.receive(RESOURCE, headers).outcome == "duplicate"
        assert "before the process forked" in in_child(receive)
    assert in_child(receive) == "duplicate"
