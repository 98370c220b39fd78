"""
Whatever a server sends, a call ends in time, in little memory and with a named error. A write is not
repeated.
"""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from functools import partial

import pytest

from invsvc_async import (
    ApiKey,
    Client,
    CursorStalledError,
    NotSentError,
    ReadRetries,
    ReconcilePolicy,
    ResponseLostError,
    ServiceError,
    Timeouts,
    UnreadableResponseError,
    Verdict,
    unstructure,
)
from invsvc_async.codec import exact_json
from tests.support.hostile import (
    CAP,
    NEVER_ENDING,
    NEVER_WHOLE,
    ODD_USERS,
    SAYS_NOTHING,
    enveloped,
    once,
    whole,
)
from tests.support.raw_server import CLIENT_TLS, RawServer, server_tls  # noqa: F401 - a fixture

pytestmark = pytest.mark.untraced

TOKEN = "marked-token-of-hostile-tests"
# s: an end that does not wait for the client's own time comes long before
PATIENT = 30.0
WITHIN = 0.3  # s of an attempt that only the client's own time ends
CPU = 5.0  # s of work, the server's included, beyond the time of the attempt where that is filled
MEMORY = 16 * 2**20  # bytes beyond those of before, at most, whatever the server sends
TAKEN = []  # what each call took of both, for who asks how near they come
ONE_TRY = ReadRetries(attempts=1)
NO_RESEND = ReconcilePolicy(
    settle_after_error=0.1, settle_after_loss=0.1, deadline=1.0, resend="never"
)


def client_of(server, attempt=PATIENT):
    base = str(server.url).removesuffix("/things/1")
    return Client(
        base,
        ApiKey(TOKEN),
        timeout=Timeouts(attempt=attempt, connect=attempt, call=2 * attempt),
        reads=ONE_TRY,
        reconcile=NO_RESEND,
        max_response_bytes=CAP,
        ssl=CLIENT_TLS() if server.url.scheme == "https" else None,
    )


@pytest.fixture(params=["plain", "tls"])
def serving(request):
    """Make servers with TLS and without."""
    context = request.getfixturevalue("server_tls") if request.param == "tls" else None
    return partial(RawServer, context=context)


async def bounded(call, attempt=0.0):
    """Await *call*; give what it gave or raised, and see that it ends, in little work and memory."""
    tracemalloc.start()
    began = time.thread_time()
    try:
        async with asyncio.timeout(PATIENT):
            found = (await asyncio.gather(call, return_exceptions=True))[0]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    spent = time.thread_time() - began
    TAKEN.append((spent - attempt, peak))
    assert spent < CPU + attempt
    assert peak < MEMORY
    return found


async def sent_in_time(server, ask):
    """Ask in ever more time until a request leaves: a busy machine may not connect in a moment."""
    attempt = WITHIN
    while True:
        async with client_of(server, attempt) as client:
            found = await bounded(ask(client), attempt)
        if not isinstance(getattr(found, "error", found), NotSentError):
            return found
        assert not server.arrivals
        attempt *= 2


def get_user(client):
    return client.users.get("usr_1")


def save_mapping(client):
    return client.sheets.save_mapping({"amount": "A"}).outcome()


@pytest.mark.parametrize("answer", NEVER_WHOLE)
async def test_read_whose_answer_is_never_whole(answer, serving):
    """It ends at once as a lost answer, in little memory, and says nothing of the token."""
    async with serving(NEVER_WHOLE[answer]) as server, client_of(server) as client:
        error = await bounded(get_user(client))

    assert isinstance(error, ResponseLostError), error
    assert not isinstance(error.__cause__, TimeoutError)
    assert TOKEN not in f"{error!r} {error.__cause__!r}"


@pytest.mark.parametrize("answer", NEVER_ENDING)
async def test_read_whose_answer_never_ends(answer, serving):
    """It ends as a lost answer, in the time of an attempt and little memory, and says nothing of the token."""
    async with serving(NEVER_ENDING[answer]) as server:
        error = await sent_in_time(server, get_user)

    assert isinstance(error, ResponseLostError), error
    assert isinstance(error.__cause__, TimeoutError)
    assert TOKEN not in f"{error!r} {error.__cause__!r}"


@pytest.mark.parametrize("answer", [*NEVER_WHOLE, *SAYS_NOTHING])
async def test_write_whose_answer_is_never_whole_or_says_nothing(answer, serving):
    """It arrives once and nothing is claimed of it, even if the status was 200."""
    script = NEVER_WHOLE.get(answer) or once(SAYS_NOTHING[answer])
    async with serving(script) as server, client_of(server) as client:
        outcome = await bounded(save_mapping(client))
        writes = [each for each in server.arrivals if each.method == "PUT"]

    assert (outcome.verdict, len(writes)) == (Verdict.UNKNOWN, 1)


@pytest.mark.parametrize("answer", NEVER_ENDING)
async def test_write_whose_answer_never_ends(answer, serving):
    """It arrives once and nothing is claimed of it, when its time is over."""
    async with serving(NEVER_ENDING[answer]) as server:
        outcome = await sent_in_time(server, save_mapping)
        await server.came()
        writes = [each for each in server.arrivals if each.method == "PUT"]

    assert (outcome.verdict, len(writes)) == (Verdict.UNKNOWN, 1)


@pytest.mark.parametrize("answer", SAYS_NOTHING)
async def test_read_whose_answer_says_nothing(answer, serving):
    """It is unreadable, with the bytes at hand; not one of the parser's own exceptions comes out."""
    async with (
        serving(once(SAYS_NOTHING[answer])) as server,
        client_of(server) as client,
    ):
        error = await bounded(get_user(client))

    assert isinstance(error, UnreadableResponseError), error
    assert error.raw == SAYS_NOTHING[answer].partition(b"\r\n\r\n")[2][:65536]


def egress(client):
    return client.invoices.egress().collect()


def webhooks(client):
    return client.webhooks.list()


@pytest.mark.parametrize("item", [b"0", b"{}", b'{"a":[0,0]}'])
@pytest.mark.parametrize("size", [2**18, 2**20, CAP - 1000])
@pytest.mark.parametrize("ask", [egress, webhooks])
async def test_list_of_tiny_items(ask, size, item, serving):
    """More of them than any page has are refused, in the time and memory of an answer of that length."""
    answer = whole(
        enveloped(b"[" + b",".join([item] * (size // (len(item) + 1))) + b"]")
    )
    async with serving(once(answer)) as server, client_of(server) as client:
        error = await bounded(ask(client))

    assert isinstance(error, UnreadableResponseError), error
    assert "10000" in str(error)


@pytest.mark.parametrize("many", [1, 10_000])
@pytest.mark.parametrize("pad", [b"", b" " * 2**20])
@pytest.mark.parametrize("ask", [egress, webhooks])
async def test_list_of_as_many_items_as_are_taken(ask, pad, many, serving):
    """All are there, in a short answer and in a long one."""
    answer = whole(enveloped(b"[" + b",".join([b"{}"] * many) + pad + b"]"))
    async with serving(once(answer)) as server, client_of(server) as client:
        assert len(await ask(client)) == many


@pytest.mark.parametrize("odd", ODD_USERS)
async def test_answer_with_an_odd_field(odd, serving):
    """One field's oddity costs that field at most: the rest is there, and the whole can be written out again."""
    payload, lost = ODD_USERS[odd]
    async with (
        serving(once(whole(enveloped(payload)))) as server,
        client_of(server) as client,
    ):
        user = await bounded(get_user(client))

    assert user.id == "usr_1"
    assert [each.address for each in user.problems] == lost
    assert exact_json.salvage(
        exact_json.dumps(unstructure(user))
    ) == exact_json.salvage(exact_json.without_halves(payload))


@pytest.mark.parametrize(
    "status", ["301 Moved Permanently", "302 Found", "307 Temporary", "308 Permanent"]
)
async def test_redirect_to_another_host(status, serving):
    """Nothing follows it, so no credential leaves for another host: the answer is an error."""
    async with serving(once()) as elsewhere:
        away = whole(b"", f"Location: {elsewhere.url}", status=status)
        async with serving(once(away)) as server, client_of(server) as client:
            error = await bounded(get_user(client))
            outcome = await bounded(save_mapping(client))

        assert isinstance(error, ServiceError)
        assert outcome.verdict is Verdict.UNKNOWN
        assert elsewhere.connections == 0


async def test_extra_bytes_behind_an_answer(serving):
    """Bytes behind an answer are no answer to the next request."""
    first, forged = (
        whole(enveloped(b'{"id":"usr_1"}')),
        whole(enveloped(b'{"id":"usr_forged"}')),
    )
    honest = whole(enveloped(b'{"id":"usr_2"}'))

    async def script(peer):
        answers = iter([first + forged] if peer.number == 0 else [honest])
        while await peer.arrival():
            await peer.send(next(answers))

    async with serving(script) as server, client_of(server) as client:
        one = await client.users.get("usr_1")
        two = await client.users.get("usr_2")

    assert (one.id, two.id) == ("usr_1", "usr_2")
    assert server.connections == 2


@pytest.mark.parametrize("cursors", [("a",), ("a", "b"), ("a", "b", "c")], ids=len)
async def test_cursor_that_loops(cursors, serving):
    """A walk ends when a cursor comes back that was followed before."""
    turns = 0

    async def script(peer):
        nonlocal turns
        while await peer.arrival():
            cursor = cursors[turns % len(cursors)].encode()
            turns += 1
            await peer.send(
                whole(
                    b'{"success":true,"data":[],"has_more":true,"next":"%s","total_results":9}'
                    % cursor
                )
            )

    async with serving(script) as server, client_of(server) as client:
        error = await bounded(client.invoices.egress().collect())

    assert isinstance(error, CursorStalledError)
    assert len(server.arrivals) <= len(cursors) + 1
    assert error.resume_token
