"""Only a whole answer is one, and none takes more memory or time than it was given."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest

from invsvc_async import ApiKey, Client, ReconcilePolicy
from invsvc_async.errors import NotSentError, ResponseLostError
from invsvc_async.reconcile.history import End
from invsvc_async.transport.response_body import CutError, inflate
from tests.support.raw_server import (
    RawServer,
    obliging,
    on_both_loops,
    request_to,
    transport_for,
)

pytestmark = pytest.mark.every_python

CAP = 1000
BOMB = gzip.compress(bytes(50_000_000), compresslevel=9)


def answer(*headers, body=b"", status="200 OK"):
    """Make an answer of plain parts; its framing is whatever *headers* say."""
    return b"".join(
        (
            f"HTTP/1.1 {status}\r\n".encode(),
            *(f"{each}\r\n".encode() for each in headers),
            b"\r\n",
            body,
        )
    )


def of_length(body, *headers, status="200 OK"):
    """Make an answer that states the length of *body*."""
    return answer(f"Content-Length: {len(body)}", *headers, body=body, status=status)


def saying(*parts, then="fin"):
    """Make a script that answers each request with *parts*, then ends the connection, or (``None``) keeps it."""

    async def script(peer):
        while await peer.arrival():
            await peer.send(*parts)
            if then:
                await peer.end(then)

    return script


async def ask(script, method, *, within=5.0, **settings):
    """Send one request to a server of *script*; return its exchange."""
    async with (
        RawServer(script) as server,
        transport_for(server, max_response_bytes=CAP, **settings) as transport,
    ):
        exchange = request_to(server, method, within=within)
        await transport.send(exchange)
        assert len(server.arrivals) == 1
        return exchange


WHOLE = {
    "a length": (of_length(b"x" * CAP), b"x" * CAP),
    "no body": (answer(status="204 No Content"), b""),
    "length 0": (of_length(b""), b""),
    "chunks": (answer("Transfer-Encoding: chunked", body=b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"), b"abcde"),
    "chunks, one named twice": (
        answer("Transfer-Encoding: gzip, chunked", body=b"3\r\nabc\r\n0\r\n\r\n"), b"abc"),
    "gzip": (of_length(gzip.compress(b"hello"), "Content-Encoding: gzip"), b"hello"),
    "gzip of two members": (
        of_length(gzip.compress(b"hel") + gzip.compress(b"lo"), "Content-Encoding: gzip"), b"hello"),
    "deflate": (of_length(zlib.compress(b"hello"), "Content-Encoding: deflate"), b"hello"),
    "bare deflate": (of_length(zlib.compress(b"hello")[2:-4], "Content-Encoding: deflate"), b"hello"),
    "a coding not asked for": (of_length(b"\x1b\x02", "Content-Encoding: br"), b"\x1b\x02"),
    "interim answers before it": (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 50 + of_length(b"ok"), b"ok"),
}  # fmt: skip

CUT = {
    "a length and less": answer("Content-Length: 20", body=b"x" * 19),
    "chunks without an end": answer("Transfer-Encoding: chunked", body=b"3\r\nabc\r\n"),
    "a chunk that is short": answer("Transfer-Encoding: chunked", body=b"9\r\nabc"),
    "a chunk size that is no number": answer(
        "Transfer-Encoding: chunked", body=b"zz\r\nabc\r\n0\r\n\r\n"
    ),
    "nothing but the connection's end": answer(body=b'{"success":true}'),
    "a coding that is not chunked last": answer(
        "Transfer-Encoding: chunked, gzip", body=b"3\r\nabc\r\n0\r\n\r\n"
    ),
    "one byte over the cap": of_length(b"x" * (CAP + 1)),
    "chunks over the cap": answer(
        "Transfer-Encoding: chunked", body=b"fff\r\n" + b"x" * 4095 + b"\r\n0\r\n\r\n"
    ),
    "a bomb": of_length(BOMB[:900], "Content-Encoding: gzip"),
    "gzip cut short": of_length(gzip.compress(b"hello")[:-4], "Content-Encoding: gzip"),
    "gzip that is broken": of_length(b"not gzip at all", "Content-Encoding: gzip"),
}


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize("framing", WHOLE)
@on_both_loops
async def test_answer_that_is_whole(framing, method):
    """Its end is marked and reached: answered, unfolded."""
    said, body = WHOLE[framing]

    exchange = await ask(saying(said), method)

    assert (exchange.end, exchange.answer) == (End.ANSWERED, body)


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize("fault", CUT)
@on_both_loops
async def test_answer_that_is_not_whole(fault, method):
    """It is lost, whatever its status says; the status stays as a hint."""
    exchange = await ask(saying(CUT[fault]), method)

    # aiohttp drops a head whose body is broken in the same packet.
    status = None if fault == "a chunk size that is no number" else 200
    assert (exchange.end, exchange.status, exchange.answer) == (End.LOST, status, b"")
    assert "secret-token" not in repr(exchange.error)
    assert exchange.error.__cause__ is exchange.error.__context__ is None


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize(
    "said", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 20x OK\r\n\r\n", b"\0" * 64]
)
async def test_answer_that_is_not_http(said, method):
    """It is lost, without a status, though aiohttp invents a 400."""
    exchange = await ask(saying(said), method)

    assert (exchange.end, exchange.status) == (End.LOST, None)


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize(
    ("framed", "part", "pause", "within", "why"),
    [
        pytest.param("Content-Length: 1000", b"x", 0.01, 0.3, "time", id="a trickle does not move the deadline"),
        pytest.param("Transfer-Encoding: chunked", b"64\r\n%b\r\n" % (b"x" * 100), 0, 5.0,
                     "longer than 1000 bytes", id="it ends at the cap, long before the deadline"),
    ],
)  # fmt: skip
async def test_answer_whose_body_never_ends(framed, part, pause, within, why, method):
    """It is lost, with its status."""

    async def script(peer):
        await peer.arrival()
        await peer.send(answer(framed))
        while True:
            await peer.send(part)
            await asyncio.sleep(pause)

    exchange = await ask(script, method, within=within)

    assert (exchange.end, exchange.status, exchange.timed_out) == (
        End.LOST,
        200,
        why == "time",
    )
    assert why in str(exchange.error)


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize(
    "flood",
    [b"X-More: " + b"y" * 4000 + b"\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 5],
    ids=["headers", "interim"],
)
async def test_answer_whose_head_never_ends(flood, method):
    """It ends, by aiohttp's bound on a head or by the deadline."""

    async def script(peer):
        await peer.arrival()
        await peer.send(b"HTTP/1.1 200 OK\r\n" if flood.startswith(b"X") else b"")
        while True:
            await peer.send(flood)

    exchange = await ask(script, method, within=0.4)

    assert exchange.end is End.LOST


@pytest.mark.parametrize("method", ["PUT", "POST"])
@on_both_loops
async def test_answer_that_comes_before_the_body_was_read(method):
    """An early refusal of a long body is an answer, and its connection is not used again."""

    async def script(peer):
        if peer.number == 0:
            await peer.arrival(upto="head")
            await peer.send(of_length(b"too much", status="413 Content Too Large"))
            await ended.wait()
        else:
            await obliging(peer)

    ended = asyncio.Event()
    async with RawServer(script) as server, transport_for(server) as transport:
        long, short = (
            request_to(server, method, content=b"x" * 30_000_000),
            request_to(server, method),
        )

        await transport.send(long)
        await transport.send(short)
        ended.set()

        assert (long.end, long.status, long.answer) == (End.ANSWERED, 413, b"too much")
        assert (short.end, short.status) == (End.ANSWERED, 200)
        assert (server.connections, len(server.arrivals)) == (2, 2)


def test_inflate_of_a_bomb():
    """Not more than the cap is ever unfolded."""
    with pytest.raises(CutError, match="longer than 4096 bytes"):
        inflate(BOMB, "gzip", cap=4096)


async def test_requests_ask_for_codings_that_can_be_undone():
    """Reads offer gzip and deflate, writes nothing but identity."""
    async with RawServer(obliging) as server, transport_for(server) as transport:
        for method in ("GET", "PUT"):
            await transport.send(request_to(server, method))

    assert [each.header("Accept-Encoding") for each in server.arrivals] == [
        "gzip, deflate",
        "identity",
    ]


LONG = [b"a" * 5000, b"b" * 5000, b"c" * 5000]


@on_both_loops
async def test_stream_of_any_length():
    """Its status and headers come first, then its bytes, past the cap of whole answers."""
    async with (
        RawServer(saying(of_length(b"".join(LONG), "X-Name: a.zip"))) as server,
        transport_for(server, max_response_bytes=CAP) as transport,
    ):
        async with transport.stream(exchange := request_to(server, "GET")) as download:
            assert (download.status, download.headers["X-Name"]) == (200, "a.zip")
            assert exchange.end is None

            got = b"".join([part async for part in download])

        assert got == b"".join(LONG)
        assert exchange.end is End.ANSWERED
        assert server.arrivals[0].header("Accept-Encoding") == "identity"


@pytest.mark.parametrize(
    "said",
    [answer("Content-Length: 20", body=b"x" * 19), answer(body=b"x" * 19)],
    ids=["short", "unmarked"],
)
async def test_stream_that_is_cut(said):
    """What came is handed out, then it is said that it is not the whole."""
    async with RawServer(saying(said)) as server, transport_for(server) as transport:
        got = b""
        async with transport.stream(exchange := request_to(server, "GET")) as download:
            with pytest.raises(ResponseLostError):
                async for part in download:
                    got += part

        assert (got, exchange.end) == (b"x" * 19, End.LOST)


async def test_stream_read_whole_over_the_cap():
    """``read`` keeps to the cap."""
    async with (
        RawServer(saying(of_length(b"x" * (CAP + 1)))) as server,
        transport_for(server, max_response_bytes=CAP) as transport,
        transport.stream(request_to(server, "GET")) as download,
    ):
        with pytest.raises(ResponseLostError, match="longer than 1000"):
            await download.read()


async def test_stream_that_stalls():
    """Each wait for bytes is bounded by what the head was given, and a long stream by nothing more."""

    async def script(peer):
        await peer.arrival()
        await peer.send(answer("Content-Length: 1000"))
        for _ in range(5):
            await peer.send(b"x" * 100)
            await asyncio.sleep(0.08)
        await peer.gone()

    async with RawServer(script) as server, transport_for(server) as transport:
        got = b""
        async with transport.stream(
            exchange := request_to(server, "GET", within=0.3)
        ) as download:
            with pytest.raises(ResponseLostError):
                async for part in download:
                    got += part

        assert got == b"x" * 500
        assert (exchange.end, exchange.timed_out) == (End.LOST, True)


async def test_stream_that_is_left_early():
    """Its connection is closed, and its place given back."""

    async def script(peer):
        await peer.arrival()
        await peer.send(answer("Content-Length: 1000"), b"x")
        await peer.gone()
        left.set()

    left = asyncio.Event()
    async with RawServer(script) as server, transport_for(server) as transport:
        async with transport.stream(exchange := request_to(server, "GET")):
            assert transport._limiter.in_use == 1

        await asyncio.wait_for(left.wait(), 30)
        assert (exchange.end, transport._limiter.in_use) == (End.LOST, 0)


async def test_stream_that_cannot_begin():
    """Nothing sent and no answer are told apart."""

    async def script(peer):
        await peer.arrival()
        await peer.end("rst")

    async with RawServer(script) as server, transport_for(server) as transport:
        for within, kind in ((5.0, ResponseLostError), (0.0, NotSentError)):
            with pytest.raises(kind):
                async with transport.stream(request_to(server, "GET", within=within)):
                    pytest.fail("there is no answer")


SECRET = "whsec_" + "0123456789abcdef" * 3
CREATED = (
    b'{"success":true,"timestamp":1750000000000,"data":{"id":"wh_1","secret":"%s"}}'
    % SECRET.encode()
)
NO_HTTP = {
    "a length that is too small": [answer("Content-Length: 40", body=CREATED)],
    "no head": [CREATED],
    "a head of another protocol": [b"MYSQL " + CREATED],
    "a chunk that is longer than said": [
        answer(
            "Transfer-Encoding: chunked", body=b"28\r\n" + CREATED + b"\r\n0\r\n\r\n"
        )
    ],
    "a chunk without a size": [
        answer("Transfer-Encoding: chunked"),
        b"",
        CREATED + b"\r\n",
    ],
    "a remark of a chunk": [
        answer("Transfer-Encoding: chunked", body=b"5;" + CREATED + b"\n\r\n")
    ],
    "a header that is too long": [answer(f"X-More: {SECRET * 1000}")],
    "a header with a control character": [answer(f"X-More: \x01{SECRET}")],
    "a header without a name": [answer(f": {SECRET}")],
    "a trailer": [
        answer("Transfer-Encoding: chunked", body=b"0\r\n" + CREATED + b"\r\n\r\n")
    ],
    "data after the end": [
        answer("Connection: close", "Content-Length: 2", body=b"{}" + CREATED)
    ],
    "a coding that is broken": [of_length(CREATED, "Content-Encoding: gzip")],
}


@pytest.mark.parametrize("parts", NO_HTTP.values(), ids=NO_HTTP)
async def test_secret_in_an_answer_that_is_no_http(parts):
    """What the parser quotes of it is in no outcome, story or error."""

    async def script(peer):
        while await peer.arrival():
            for part in parts:
                await peer.send(part)
                await asyncio.sleep(0.01)  # so that they are read one after the other
            await peer.end("fin")

    policy = ReconcilePolicy(settle_after_loss=0.0, deadline=0.0, resend="never")
    async with RawServer(script) as server:
        url = str(server.url).removesuffix("/things/1")
        async with Client(url, ApiKey("eyJ" + "a" * 40), reconcile=policy) as client:
            write = client.webhooks.create(
                url="https://me.example/in", events=["invoice.created"]
            )
            outcome = await write.outcome()

    if outcome.value is not None:  # what came before was whole
        assert outcome.value.secret == SECRET or outcome.secret_lost
        return
    told = [
        outcome.message,
        outcome.explain(),
        outcome.to_json(),
        repr(outcome),
        str(outcome.error),
    ]
    assert [each for each in told if SECRET[:20] in each] == []
    assert "\n" not in str(outcome.error)
