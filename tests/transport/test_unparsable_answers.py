"""
An answer that cannot be parsed is a lost one: of a read, of a write and within a batch, with and without TLS.

Over TLS, aiohttp closes the connection before its exception arrives, and its socket is then gone.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from invsvc_async import (
    ApiKey,
    Batch,
    Client,
    Intent,
    ReadRetries,
    ReconcilePolicy,
    ResponseLostError,
    Timeouts,
    Verdict,
)
from invsvc_async.client import options_of
from invsvc_async.concurrency.clock import SystemClock
from tests.support.hostile import chunks, enveloped, head, whole
from tests.support.raw_server import CLIENT_TLS, RawServer, server_tls  # noqa: F401 - a fixture

pytestmark = pytest.mark.every_python

PATIENCE = 30.0  # s: what hangs is a fault long before
GOOD = whole(enveloped(b'{"id":"usr_1"}'))
UNPARSABLE = {
    "a header of 9,000 bytes": head("Content-Length: 2", f"X-Long: {'x' * 9000}")
    + b"{}",
    "a header without a colon": head("Content-Length: 2", "what is this") + b"{}",
    "two lengths": head("Content-Length: 2", "Content-Length: 20") + enveloped(b"{}"),
    "a negative length": head("Content-Length: -2") + b"{}",
    "a bad chunk": chunks(b"zz\r\n{}\r\n0\r\n\r\n"),
    "a status of many digits": b"HTTP/1.1 2000000 OK\r\nContent-Length: 2\r\n\r\n{}",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "stray bytes behind an answer": GOOD + b"stray bytes\r\n\r\n",
}


def script_of(answer):
    """Make a script that answers writes, and reads of the second user, with *answer*, and other requests well."""

    async def script(peer):
        while came := await peer.arrival():
            is_good = came.method == "GET" and b"/usr_2 " not in came.head
            await peer.send(GOOD if is_good else answer)

    return script


class QuickClock(SystemClock):
    """A clock in whose pauses nothing would happen."""

    async def sleep(self, seconds):
        """Wait a hundredth of *seconds*."""
        await asyncio.sleep(seconds / 100)


@pytest.fixture(params=["plain", "tls"])
async def service(request):
    """Make a server of an answer, and a client of it that closes in time, with nothing left in flight."""
    context = request.getfixturevalue("server_tls") if request.param == "tls" else None

    @asynccontextmanager
    async def make(answer):
        async with (
            RawServer(script_of(answer), context=context) as server,
            asyncio.timeout(PATIENCE),
        ):
            client = Client(
                str(server.url).removesuffix("/things/1"),
                ApiKey("a-token-of-these-tests"),
                timeout=Timeouts(
                    attempt=2 * PATIENCE, connect=2 * PATIENCE, call=4 * PATIENCE
                ),
                reads=ReadRetries(attempts=1),
                reconcile=ReconcilePolicy(
                    settle_after_error=0.05,
                    settle_after_loss=0.05,
                    deadline=1.0,
                    resend="never",
                ),
                ssl=None if context is None else CLIENT_TLS(),
                clock=QuickClock(),
            )
            # from here on, the service's clock is known
            await client.users.get("usr_1")
            try:
                yield server, client
            finally:
                await client.aclose()
            assert not options_of(client).core.transport._in_flight

    return make


def writes(server):
    """Return the writes that arrived."""
    return [each for each in server.arrivals if each.method == "PUT"]


parsed = pytest.mark.parametrize("answer", UNPARSABLE.values(), ids=UNPARSABLE)


@parsed
async def test_read(answer, service):
    """It ends as a lost answer."""
    async with service(answer) as (server, client):
        with pytest.raises(ResponseLostError):
            await client.users.get("usr_2")

        assert len(server.arrivals) == 2


@parsed
async def test_write(answer, service):
    """It is sent once and unknown; its intent says when its send ended, and survives JSON."""
    async with service(answer) as (server, client):
        outcome = await client.sheets.save_mapping({"amount": "A"}).outcome()

        assert client.unsettled == (outcome.intent,)
    (sent,) = outcome.intent.sent
    assert (outcome.verdict, len(writes(server))) == (Verdict.UNKNOWN, 1)
    assert sent.end.kind == "long"
    assert sent.earliest <= sent.end.latest
    assert Intent.from_json(outcome.intent.to_json()) == outcome.intent


@pytest.mark.slow
@parsed
async def test_batch(answer, service, tmp_path):
    """Each of its writes is sent once, and has a result."""
    async with (
        service(answer) as (server, client),
        Batch.open(tmp_path / "batch.db", client, concurrency=2) as batch,
    ):
        keyed = (
            client.sheets.save_mapping({"amount": name}).keyed(name) for name in "ab"
        )
        results = [each async for each in batch.run(keyed)]

    assert sorted((each.key, each.verdict) for each in results) == [
        (name, Verdict.UNKNOWN) for name in "ab"
    ]
    assert len(writes(server)) == 2
