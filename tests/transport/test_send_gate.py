"""The way out of one request: what opens it, and what keeps it shut."""

from __future__ import annotations

import asyncio
import socket

import pytest
from yarl import URL

from invsvc_async.concurrency.clock import SystemClock
from invsvc_async.transport.exchange import Exchange
from invsvc_async.transport.send_gate import Gate, RefusedError
from tests.support.virtual_time import HandClock

BODY = "né".encode()


class Wire:
    """What aiohttp has of a connection: a transport of the loop, a protocol on it, and a writer."""

    should_close = False

    def __init__(self, sock=None, *, tls=False):
        self._extra = {"socket": sock, "sslcontext": object() if tls else None}
        self.protocol = self.transport = self
        self.written = []
        self.aborted = False

    def get_extra_info(self, name):
        return self._extra.get(name)

    def is_closing(self):
        return False

    def abort(self):
        self.aborted = True

    async def write(self, part):
        self.written.append(part)


def gate_of(clock=None, **changes):
    """Make the gate of a write."""
    exchange = Exchange(
        method="PUT",
        url=URL("http://127.0.0.1/v2/x"),
        headers={},
        **{"content": BODY, "write": True, **changes},
    )
    return Gate(exchange, clock or SystemClock(), asyncio.get_running_loop())


@pytest.fixture
def pair():
    """Two ends of a connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


async def test_body_as_text():
    """It is UTF-8 unless something else is said, and bytes that are none are an error unless they may be replaced."""
    gate = gate_of()
    assert gate.decode() == "né"
    assert gate.decode("latin-1") == "nÃ©"
    assert gate_of(content=b"\xff").decode(errors="replace") == "�"
    assert gate_of(content=None).decode() == ""
    with pytest.raises(UnicodeDecodeError):
        gate_of(content=b"\xff").decode()


async def test_gate_lets_a_body_out_once():
    """It opens for the first writer and for no other."""
    gate, wire = gate_of(), Wire()
    await gate.write(wire)
    assert (wire.written, gate.opened, gate.transport) == ([BODY], True, wire)
    with pytest.raises(RefusedError, match=r"^it was already sent, or given up$"):
        await gate.write(wire)
    assert wire.written == [BODY]


def nothing(_):
    """Stay silent."""


def speak(theirs):
    """Send something that nobody asked for."""
    theirs.send(b"x")


def leave(theirs):
    """End the connection."""
    theirs.close()


@pytest.mark.parametrize(
    ("peer", "tls", "lets_out"),
    [
        (nothing, False, True),
        (nothing, True, True),
        (speak, False, False),
        (speak, True, True),
        (leave, False, False),
        (leave, True, False),
    ],
)
async def test_gate_and_a_peer_that_was_first(pair, peer, tls, lets_out):
    """Bytes that nobody asked for shut it, but within TLS, where they may be a ticket; the end always does."""
    ours, theirs = pair
    peer(theirs)
    gate, wire = gate_of(), Wire(ours, tls=tls)
    if lets_out:
        await gate.write(wire)
    else:
        with pytest.raises(
            RefusedError,
            match=r"^the server had closed the connection, or spoken first$",
        ):
            await gate.write(wire)
    assert gate.opened is lets_out
    assert wire.written == [BODY] * lets_out


@pytest.mark.parametrize(
    ("changes", "asks"),
    [
        ({}, True),
        ({"write": False, "lane": "settle"}, True),
        ({"write": False, "lane": "call"}, False),
    ],
)
async def test_gate_asks_the_kernel_where_it_matters(pair, changes, asks):
    """A plain read is spared the question."""
    ours, theirs = pair
    speak(theirs)
    gate, wire = gate_of(**changes), Wire(ours)
    if asks:
        with pytest.raises(RefusedError):
            await gate.write(wire)
    else:
        await gate.write(wire)
    assert gate.opened is not asks


async def test_gate_and_a_proof_that_expires():
    """Its last moment counts."""
    gate = gate_of(not_after=5.0, clock=HandClock(5.0))
    await gate.write(Wire())
    assert gate.exchange.started == 5.0
    with pytest.raises(
        RefusedError, match=r"^the time until which it may be sent had passed$"
    ):
        await gate_of(not_after=5.0, clock=HandClock(5.001)).write(Wire())


async def test_gate_after_its_deadline():
    """Nothing is let out."""
    gate = gate_of(deadline=asyncio.get_running_loop().time())
    with pytest.raises(RefusedError, match=r"^its deadline had passed$"):
        await gate.write(Wire())


class HandLoop:
    """A loop whose time stands."""

    def __init__(self, at):
        self.time = lambda: at


async def test_gate_at_its_deadline():
    """The very moment is too late."""
    gate = gate_of(deadline=5.0)
    gate._loop = HandLoop(4.999)
    await gate.write(Wire())
    gate = gate_of(deadline=5.0)
    gate._loop = HandLoop(5.0)
    with pytest.raises(RefusedError, match=r"^its deadline had passed$"):
        await gate.write(Wire())


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (
            "should_close",
            True,
            "the connection held a stale answer, or was to be closed",
        ),
        ("transport", None, "the connection was closed"),
        ("is_closing", lambda: True, "the connection was closed"),
    ],
)
async def test_gate_of_a_connection_that_is_no_more(name, value, words):
    """It stays shut, and says why."""
    gate, wire = gate_of(), Wire()
    setattr(wire, name, value)
    with pytest.raises(RefusedError, match=f"^{words}$"):
        await gate.write(wire)
    assert (gate.refusal, gate.opened, wire.written) == (words, False, [])


async def test_read_that_aiohttp_repeats():
    """Once it was let out, its second sending is refused, in words that say what became of the first."""
    gate = gate_of()
    gate.sealed = True
    with pytest.raises(
        RefusedError, match=r"^the connection dropped before an answer began$"
    ):
        gate.send_read(None, None)


async def test_connection_that_another_request_may_have():
    """It is dropped only by force, or where it is closing already."""
    gate, wire = gate_of(), Wire()
    gate.drop(force=True)  # before there is one
    await gate.write(wire)
    gate.drop()
    assert not wire.aborted
    wire.is_closing = lambda: True
    gate.drop()
    assert wire.aborted


async def test_gate_that_nobody_waits_at():
    """Interrupted, it stays shut."""
    gate = gate_of()
    gate.interrupt()
    with pytest.raises(RefusedError):
        await gate.write(Wire())
