"""Receivers in real applications on real sockets: what the sender gets back, byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from aiohttp import web
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from invsvc_async import events
from invsvc_async.api.operations import EVENT_TYPES
from invsvc_async.errors import JournalError
from invsvc_async.simulator import Simulator
from tests.events.bodies import (
    HEADER,
    SECRET,
    SHARED,
    encoded,
    headers_of,
    signature,
    signed_body,
    v1,
    v2,
)
from tests.events.receiving.test_receiver import until_none_is_open
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

pytestmark = pytest.mark.one_python


@asynccontextmanager
async def in_aiohttp(receiver: events.Receiver) -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_route("*", "/in", receiver.aiohttp_handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield runner.addresses[0][1]
    await runner.cleanup()


@asynccontextmanager
async def in_uvicorn(app: Any, lifespan: str = "off") -> AsyncIterator[int]:
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, lifespan=lifespan, ws="none")  # type: ignore[arg-type]
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    await until(lambda: server.started or task.done())
    yield listening.getsockname()[1]
    server.should_exit = True
    await task


@asynccontextmanager
async def in_own_endpoint(receiver: events.Receiver) -> AsyncIterator[int]:
    async def endpoint(request: Request) -> PlainTextResponse:
        receipt = await receiver.answer(
            request.method, request.headers.raw, request.stream()
        )
        return PlainTextResponse(receipt.outcome, receipt.status, dict(receipt.headers))

    methods = ["GET", "POST", "PUT"]
    async with in_uvicorn(
        Starlette(routes=[Route("/in", endpoint, methods=methods)])
    ) as port:
        yield port


@asynccontextmanager
async def in_fastapi(receiver: events.Receiver) -> AsyncIterator[int]:
    app = FastAPI()
    app.add_route("/in", receiver.asgi_app)  # type: ignore[arg-type]
    async with in_uvicorn(app) as port:
        yield port


@asynccontextmanager
async def bare(receiver: events.Receiver) -> AsyncIterator[int]:
    async with in_uvicorn(receiver.asgi_app, lifespan="on") as port:
        yield port


hosts = pytest.mark.parametrize("host", [in_aiohttp, in_own_endpoint, in_fastapi, bare])


async def exchange(
    port: int, *parts: bytes, pause: float = 0, end: bool = False
) -> bytes:
    """Send raw bytes on a connection of their own and read one answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)  # sleeps: as a sender that is slow, if any
        if end:
            return b""
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        return head + await reader.readexactly(length)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def request(
    body: bytes,
    headers: Any,
    *,
    method: str = "POST",
    path: str = "/in",
    **changes: str | None,
) -> bytes:
    """Write a request; a change of ``None`` leaves that header out."""
    pairs = list(headers.items() if isinstance(headers, dict) else headers)
    named = {name.replace("_", "-"): value for name, value in changes.items()}
    kept = [(name, value) for name, value in pairs if name.lower() not in named]
    kept += [(name, value) for name, value in named.items() if value is not None]
    lines = [
        f"{method} {path} HTTP/1.1",
        *(f"{name}: {value}" for name, value in kept),
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + body


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def ignore(_event: events.Event) -> None:
    """Do nothing with an event."""


def receiver_of(
    seen: list[events.Event], *, takes_tests: bool = True, **settings: Any
) -> events.Receiver:
    receiver = events.Receiver(
        **{"secrets": [SECRET], "shared_header": HEADER} | settings
    )

    if takes_tests:
        receiver.on_test(ignore)

    @receiver.on("*")
    async def keep(event: events.Event) -> None:
        seen.append(event)
        if event.type == "service.deleted":
            raise RuntimeError("the handler fails")

    return receiver


@hosts
async def test_deliveries_of_every_kind(host) -> None:
    """Handled, duplicate, refused, unreadable, failed and unknown arrive as such at the sender."""
    seen: list[events.Event] = []
    resource, signed, failing = (
        encoded(v2("invoice.created")),
        encoded(signed_body("sat.invoice.synced")),
        encoded(v1("service.deleted")),
    )

    async with host(receiver_of(seen)) as port:

        async def answer(
            body: bytes, headers: Any, **changes: str | None
        ) -> tuple[int, bytes]:
            whole = await exchange(port, request(body, headers, **changes))
            return status(whole), whole.rpartition(b"\r\n\r\n")[2]

        assert await answer(resource, headers_of(resource, shared=True)) == (
            200,
            b"handled",
        )
        assert await answer(resource, headers_of(resource, shared=True)) == (
            200,
            b"duplicate",
        )
        assert await answer(resource, headers_of(resource)) == (401, b"refused")
        assert await answer(signed, headers_of(signed, signed=True)) == (
            200,
            b"handled",
        )
        assert await answer(signed, headers_of(signed)) == (401, b"refused")
        for given in ("sha1=00", "ü", ""):
            assert await answer(
                signed, headers_of(signed), x_service_signature=given
            ) == (401, b"refused")
        assert await answer(failing, headers_of(failing, shared=True)) == (
            500,
            b"failed",
        )
        assert await answer(b"{", headers_of(b"{")) == (401, b"refused")
        assert await answer(b"{", headers_of(b"{", test=True)) == (400, b"unreadable")
        assert await answer(b"{", headers_of(b"{", signed=True)) == (
            202,
            b"dead letter",
        )

    assert [event.type for event in seen] == [
        "invoice.created",
        "sat.invoice.synced",
        "service.deleted",
    ]


@hosts
async def test_signature_that_came_in_two_headers(host) -> None:
    """Two signatures on the wire are refused, even if both are right."""
    seen: list[events.Event] = []
    body = encoded(signed_body("sat.invoice.synced"))
    pairs = [
        *headers_of(body).items(),
        *signature(body).items(),
        *signature(body).items(),
    ]

    async with host(receiver_of(seen)) as port:
        assert status(await exchange(port, request(body, pairs))) == 401

    assert seen == []


UNREADABLE = {  # others: tests/events/test_parse.py
    "white space": b" ",
    "truncated": encoded(v2("invoice.created"))[:-9],
    "no UTF-8": b'{"event":"payment.created","data":{"a":"\xff"}}',
    "deep nesting": b'{"event":"payment.created","data":' + b"[" * 100_000,
    "deep and whole": b'{"event":"payment.created","data":{"a":'
    + b'{"a":' * 50_000
    + b"0"
    + b"}" * 50_002,
}


@hosts
@pytest.mark.parametrize("what", UNREADABLE)
async def test_body_that_is_no_event(host, what: str) -> None:
    """From anybody it is a 401, or 400 as a test, and forgotten; from who proves to be the service, a 2xx and kept byte for byte."""
    seen: list[events.Event] = []
    receiver = receiver_of(seen)
    body = UNREADABLE[what]

    async with host(receiver) as port:
        answers = [
            status(await exchange(port, request(body, headers_of(body, **proof))))
            for proof in ({}, {"shared": True}, {"signed": True}, {"test": True})
        ]

    assert answers == [401, 202, 202, 400]
    assert [letter.body for letter in await receiver.store.events(state="dead")] == [
        body,
        body,
    ]
    assert seen == []


@hosts
async def test_body_that_was_lost_on_the_way(host) -> None:
    """It is not acknowledged as a dead letter, of which nothing could be mended: the service sends it again."""
    receiver = receiver_of([])
    async with host(receiver) as port:
        answers = [
            status(await exchange(port, request(b"", headers_of(b"", **proof))))
            for proof in ({}, {"shared": True}, {"signed": True}, {"test": True})
        ]

    assert answers == [401, 503, 503, 400]
    assert await receiver.store.counts() == {"open": 0, "handled": 0, "dead": 0}


@hosts
@pytest.mark.parametrize(
    ("method", "changes", "expected"),
    [
        ("GET", {}, 405),
        ("PUT", {}, 405),
        ("POST", {"content_type": None}, 415),
        ("POST", {"content_type": "text/plain"}, 415),
        ("POST", {"content_type": "application/x-www-form-urlencoded"}, 415),
        ("POST", {"content_encoding": "deflate"}, 415),
        ("POST", {"content_encoding": "gzip"}, 415),
        ("POST", {"content_encoding": "identity\r\nContent-Encoding: identity"}, 415),
        ("POST", {"content_type": "Application/JSON; charset=utf-8"}, 200),
        ("POST", {"content_encoding": "identity"}, 200),
    ],
)
async def test_requests_that_are_no_deliveries(
    host, method: str, changes: dict[str, str | None], expected: int
) -> None:
    """Another method or content type gets its own status, and no handler is called."""
    seen: list[events.Event] = []
    body = encoded(v2("invoice.created"))

    async with host(receiver_of(seen)) as port:
        answer = await exchange(
            port, request(body, headers_of(body, shared=True), method=method, **changes)
        )

    assert status(answer) == expected
    assert (b"allow: post" in answer.lower()) is (expected == 405)
    assert len(seen) == (expected == 200)


@hosts
async def test_body_beyond_the_limit(host) -> None:
    """A body that is too large is refused by its announced length, and by its real one."""
    seen: list[events.Event] = []
    body = encoded(v2("invoice.created", more="x" * 2000))
    chunked = request(
        b"",
        headers_of(body, shared=True),
        content_length=None,
        transfer_encoding="chunked",
    )
    pieces = [
        b"3e8\r\n" + body[:1000] + b"\r\n",
        b"3e8\r\n" + body[1000:2000] + b"\r\n",
    ]

    async with host(receiver_of(seen, max_body_bytes=1500)) as port:
        announced = await exchange(port, request(b"", headers_of(body, shared=True)))
        absurd = await exchange(
            port, request(b"", headers_of(body, shared=True), content_length="9" * 18)
        )
        counted = await exchange(port, chunked, *pieces, pause=0.01)

    assert [status(one) for one in (announced, absurd, counted)] == [413, 413, 413]
    assert seen == []


@hosts
async def test_body_that_does_not_arrive(host) -> None:
    """A body that is too slow is given up at the deadline."""
    body = encoded(v2("invoice.created"))

    async with host(receiver_of([], deadline=0.05)) as port:
        answer = await exchange(
            port, request(b"", headers_of(body, shared=True)), body[:10]
        )

    assert status(answer) == 408


@hosts
@pytest.mark.parametrize(
    ("settings", "headers", "expected"),
    [
        ({}, {}, 401),
        ({}, {SHARED[0]: "guessed"}, 401),
        ({"secrets": ()}, {"X-Service-Signature": f"sha256={'0' * 64}"}, 401),
        ({"accept_unsigned": True}, {}, 401),
        ({"secrets": (), "accept_unsigned": True}, {}, 408),
        ({"shared_header": None, "accept_unsigned": True}, {}, 408),
        ({}, {"X-Service-Signature": f"sha256={'0' * 64}"}, 408),
        ({}, {"X-Service-Signature": "sha256=00"}, 401),
        ({}, {"X-Service-Signature": f"sha256={'A' * 64}"}, 401),
        ({}, {"X-Service-Signature": "sha256=00", "X-Service-Test": "true"}, 401),
        ({}, {"X-Service-Test": "true"}, 408),
        # nothing is done with it
        ({"takes_tests": False}, {"X-Service-Test": "true"}, 200),
        ({}, dict([SHARED]), 408),
    ],
)
async def test_body_that_its_headers_rule_out(
    host, settings: dict[str, Any], headers: dict[str, str], expected: int
) -> None:
    """It is refused without waiting for the body, which is read only if that may authenticate the delivery."""
    receiver = receiver_of([], deadline=0.5 if expected == 408 else 9.9, **settings)
    async with host(receiver) as port:
        answer = await exchange(port, request(b"{", headers_of(b"{}") | headers))

    assert status(answer) == expected
    assert receiver.stats().answers.get((401, "refused"), 0) == (expected == 401)


@pytest.mark.slow
@hosts
@pytest.mark.parametrize(
    ("size", "part"), [(1250, 320_000), (20_000, 960_000)], ids=["small", "large"]
)
async def test_strangers_that_fill_the_memory(host, size: int, part: int) -> None:
    """Bodies that do not come to their end give way to those that do, whatever their heads say."""
    seen: list[events.Event] = []
    receiver = receiver_of(seen, max_body_bytes=20_000, deadline=9.9)
    forged = {
        "Content-Type": "application/json",
        "X-Service-Signature": f"sha256={'0' * 64}",
    }
    unfinished = request(
        b"x" * (size - 1), forged, Host="me.example", Content_Length=str(size)
    )
    body = encoded(signed_body("sat.invoice.synced"))

    async with host(receiver) as port:
        strangers = [
            asyncio.create_task(exchange(port, unfinished)) for _ in range(300)
        ]
        await until(lambda: receiver.room.size - receiver.room.free > part - 2 * size)
        answers = [
            status(await exchange(port, request(body, headers_of(body, signed=True))))
            for _ in range(3)
        ]
        free = receiver.room.free
        for stranger in strangers:
            stranger.cancel()
        await asyncio.wait(strangers)

    assert answers == [200] * 3
    assert len(seen) == 1
    assert free >= 0


@hosts
async def test_sender_that_breaks_off(host, caplog) -> None:
    """A body that breaks off handles nothing, raises nothing, and leaves the receiver well."""
    caplog.set_level(logging.INFO)
    seen: list[events.Event] = []
    body = encoded(v2("invoice.created"))

    async with host(receiver_of(seen)) as port:
        await exchange(
            port,
            request(b"", headers_of(body, shared=True)),
            body[:10],
            pause=0.01,
            end=True,
        )
        assert (
            status(await exchange(port, request(body, headers_of(body, shared=True))))
            == 200
        )

    assert len(seen) == 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("version", ["v1", "v1.1", "v2"])
@pytest.mark.parametrize("host", [in_aiohttp, in_own_endpoint])
async def test_service_that_delivers_every_event(host, version: str) -> None:
    """What a service written from the specification alone sends is taken, each type once by its one handler."""
    seen: list[events.Event] = []

    async with (
        Simulator(delivery_backoff=0.001) as service,
        host(receiver_of(seen)) as port,
    ):
        url = f"http://127.0.0.1:{port}/in"
        for name in EVENT_TYPES:
            await service.deliver(
                name, url=url, version=version, secret=SECRET, headers=dict([SHARED])
            )
            await service.deliver(
                name, url=url, version=version, secret=SECRET, test=True
            )

    assert Counter(event.type for event in seen) == {
        name: 16 if name == "service.deleted" else 1 for name in EVENT_TYPES
    }
    for event in seen:
        assert getattr(event.data, "problems", ()) == ()
        assert event.extra == {}


async def test_mount_in_fastapi() -> None:
    """A mount answers below its path; its bare path redirects, which is why the docs say to route."""
    app = FastAPI()
    app.mount("/in", receiver_of([]).asgi_app)
    body = encoded(v2("invoice.created"))

    async with in_uvicorn(app) as port:
        below = await exchange(
            port, request(body, headers_of(body, shared=True), path="/in/")
        )
        at = await exchange(port, request(body, headers_of(body, shared=True)))

    assert (status(below), status(at)) == (200, 307)


async def test_asgi_app_run_by_itself(tmp_path) -> None:
    """Served bare, it starts its worker with the server and stops it at the end."""
    seen: list[events.Event] = []
    receiver = receiver_of(seen, mode="inbox", store=str(tmp_path / "events.db"))
    body = encoded(v2("invoice.created"))

    async with bare(receiver) as port:
        answer = await exchange(port, request(body, headers_of(body, shared=True)))
        await until_none_is_open(receiver.store)

    assert answer.endswith(b"stored")
    assert len(seen) == 1


async def test_asgi_app_whose_store_cannot_be_used(tmp_path) -> None:
    """A receiver that cannot start reports the error to the server."""
    receiver = receiver_of([], mode="inbox", store=str(tmp_path))
    sent: list[Any] = []

    async def receive() -> dict[str, str]:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message)

    await receiver.asgi_app({"type": "lifespan"}, receive, send)

    assert [message["type"] for message in sent] == ["lifespan.startup.failed"]
    assert "it is a folder" in sent[0]["message"]


async def test_asgi_app_whose_store_cannot_be_closed() -> None:
    """A receiver that cannot stop reports the error as one of the shutdown."""

    class Store(events.MemoryStore):
        async def close(self) -> None:
            raise JournalError("the database is away")

    receiver, sent = receiver_of([], store=Store()), []
    phases = iter(["startup", "shutdown"])

    async def receive() -> dict[str, str]:
        return {"type": f"lifespan.{next(phases)}"}

    async def send(message: Any) -> None:
        sent.append(message)

    await receiver.asgi_app({"type": "lifespan"}, receive, send)

    assert [message["type"] for message in sent] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.failed",
    ]


async def test_asgi_app_and_a_web_socket() -> None:
    """What is not HTTP is closed and not raised upon."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await receiver_of([]).asgi_app({"type": "websocket"}, send, send)  # type: ignore[arg-type]

    assert sent == [{"type": "websocket.close", "code": 1003}]


async def test_asgi_server_whose_sender_is_gone() -> None:
    """An answer that can no longer be sent does not raise in the application."""
    body = encoded(v2("invoice.created"))
    headers = [
        (name.lower().encode(), value.encode())
        for name, value in headers_of(body, shared=True).items()
    ]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(_: Any) -> None:
        raise OSError

    seen: list[events.Event] = []
    await receiver_of(seen).asgi_app(
        {"type": "http", "method": "POST", "headers": headers}, receive, send
    )

    assert len(seen) == 1
