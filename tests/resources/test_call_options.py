"""Options of one call, and the status and headers of an answer."""

from __future__ import annotations

import asyncio
import inspect
import json
import pickle

import pytest

from invsvc_async import ApiKey, CallOptions, Client, Intent, Timeouts, Verdict
from invsvc_async.api.operations import TABLE
from invsvc_async.errors import (
    ConfigurationError,
    DeadlineExceededError,
    InvalidRequestError,
)
from invsvc_async.models import Meta
from invsvc_async.resources.by_name import as_write
from invsvc_async.settings import ReadRetries
from tests.support.raw_server import RawServer, obliging

TRACED = CallOptions(headers={"X-Trace": "t-1"})


def method_of(client, row):
    resource, _, name = row.name.partition(".")
    return getattr(client if resource == "client" else getattr(client, resource), name)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
async def test_every_method_takes_options(client, row):
    """Each operation has the argument, and refuses what is no CallOptions, before anything is sent."""
    method = method_of(client, row)
    assert inspect.signature(method).parameters["options"].default is None
    words = {"method": "GET" if row.name == "client.request" else "PUT"}
    parameters = inspect.signature(method).parameters.items()
    given = {
        name: words.get(name, "x")
        for name, each in parameters
        if each.default is each.empty
    }

    with pytest.raises(InvalidRequestError, match="options"):
        found = method(**given, options={"timeout": 1})
        await found


async def test_headers_of_reads_and_writes():
    """They are on each request of the call, of a list and of the unlisted operations too, and on no other."""
    async with RawServer(obliging) as server, client_of(server) as client:
        calls = [
            client.webhooks.get("wh_1", options=TRACED), client.webhooks.delete("wh_1", options=TRACED),
            client.request("GET", "/a", options=TRACED), client.write("PUT", "/a", json={}, options=TRACED),
            client.webhooks.health(options=TRACED), client.webhooks.get("wh_1"),
        ]  # fmt: skip
        for call in calls:
            await asyncio.gather(call, return_exceptions=True)
        await client.download("/a", options=TRACED).read()

        seen = [arrival.header("X-Trace") for arrival in server.arrivals]
        assert seen.count("t-1") >= 6
        assert [
            arrival.header("Authorization")
            for arrival in server.arrivals
            if arrival.head[:10] != b"GET /v2/we"
        ]
        assert {arrival.header("X-Trace") for arrival in server.arrivals[-2:]} == {
            None,
            "t-1",
        }


def client_of(server, **settings):
    return Client(
        str(server.url.with_path("/v2")),
        ApiKey("key-of-the-tests"),
        reads=ReadRetries(attempts=1),
        **settings,
    )


@pytest.mark.parametrize(
    "name",
    ["Authorization", "AUTHORIZATION", "Host", "Content-Type", "content-length", "Transfer-Encoding", "Expect",
     "Accept", "Accept-Encoding", "Connection", "Range", "X-HTTP-Method-Override", "Cookie", "X-Api-Key", "X-Auth",
     "Proxy-Authorization", "X-Session-Token", "a b", "a:b", "", "X\r\nY"],
)  # fmt: skip
def test_header_that_a_call_cannot_have(name):
    """What authenticates, what the client relies on, and what may be a secret is refused in words."""
    with pytest.raises(ConfigurationError, match="headers: "):
        CallOptions(headers={name: "text"})


@pytest.mark.parametrize(
    "headers", [{"X-A": "a\r\nAuthorization: b"}, {"X-A": 7}, {7: "a"}, ["X-A"], "X-A"]
)
def test_headers_of_the_wrong_form(headers):
    """Values are printable texts."""
    with pytest.raises(ConfigurationError, match="headers"):
        CallOptions(headers=headers)


@pytest.mark.parametrize(
    "timeout",
    [
        0,
        -1,
        "5",
        True,
        float("inf"),
        float("nan"),
        pytest.param(10**400, id="huge"),
        Timeouts,
    ],
)
def test_timeout_of_the_wrong_form(timeout):
    """It is a positive number of seconds, or Timeouts."""
    with pytest.raises(ConfigurationError, match="timeout"):
        CallOptions(timeout=timeout)


@pytest.mark.parametrize("timeout", [0.3, Timeouts(attempt=0.3, call=0.3)])
async def test_timeout_of_a_read(service, timeout):
    """A read that hangs ends by the call's own timeout, not the client's of half a minute."""
    for _ in range(9):
        service.script("users.get", "hang")
    async with Client(service.base_url, ApiKey(service.api_key)) as client:
        async with asyncio.timeout(25):
            with pytest.raises(DeadlineExceededError):
                await client.users.get("usr_1", options=CallOptions(timeout=timeout))


async def test_timeout_of_a_write(client, service):
    """The attempt ends by the call's timeout; the write is settled as any other, and applied once."""
    service.script("journeys.update", "apply, then hang")
    outcome = await client.journeys.update(
        "jrn_1", name="May", options=CallOptions(timeout=0.2)
    ).outcome()

    assert (outcome.verdict, outcome.intent.timeouts.attempt) == (Verdict.APPLIED, 0.2)
    assert len(service.ledger.effects("journeys.update")) == 1


async def test_headers_of_a_lost_write(service, client):
    """Reads that settle a write carry its headers, here and after a hand-over of its intent."""
    service.script("webhooks.update", "apply, then reset")
    hook = await client.webhooks.get(service.seed_webhook()["id"])
    outcome = await client.webhooks.update(
        hook, status="inactive", options=TRACED
    ).outcome()
    intent = Intent.from_json(outcome.intent.to_json())

    assert outcome.verdict is Verdict.APPLIED
    assert intent.headers == {"X-Trace": "t-1"}
    assert (await client.settle(intent)).applied is True
    assert pickle.loads(pickle.dumps(intent)) == intent  # noqa: S301 - our own


async def test_resume_sends_the_headers_of_the_intent():
    """Another client sends them with its reads."""
    async with RawServer(obliging) as server, client_of(server) as client:
        write = client.webhooks.delete("wh_1", options=TRACED).with_policy(
            deadline=0.05, settle_after_loss=0
        )
        text = write.intent.to_json()
        write.close()
        async with client_of(server) as other:
            await other.resume(Intent.from_json(text)).outcome()

        assert {arrival.header("X-Trace") for arrival in server.arrivals} == {"t-1"}


@pytest.mark.parametrize(
    "headers", [{"Authorization": "Bearer other"}, {"X-A": 7}, {"X-A": "a\nb"}]
)
async def test_intent_with_forged_headers(client, headers):
    """An intent from elsewhere cannot replace the credential."""
    write = client.webhooks.delete("wh_1", options=TRACED)
    write.close()
    text = write.intent.to_json().replace('{"X-Trace":"t-1"}', json.dumps(headers))

    with pytest.raises(InvalidRequestError):
        Intent.from_json(text)


async def test_options_of_a_batch_line(client):
    """A line of JSON cannot have options, and is told so."""
    with pytest.raises(InvalidRequestError, match="options"):
        as_write(
            client, "webhooks.delete", {"webhook": "wh_1", "options": {"headers": {}}}
        )


async def test_status_and_headers_of_a_success(client, service):
    """They are in the meta of models and pages, in any case of letters, and survive a pickle."""
    hook = await client.webhooks.create(
        url="https://me.example/in", events=["invoice.created"]
    )
    page, hooks = await client.invoices.egress(limit=1), await client.webhooks.list()
    envelope = await client.request("GET", "/webhooks")

    assert (hook.meta.status, page.meta.status, hooks.meta.status, envelope.status) == (
        201,
        200,
        200,
        200,
    )
    for headers in (
        hook.meta.headers,
        page.meta.headers,
        hooks.meta.headers,
        envelope.headers,
    ):
        assert headers["CONTENT-type"].startswith("application/json")
    back = pickle.loads(pickle.dumps(hook.meta))  # noqa: S301 - our own
    assert (back, back.status, back.headers["content-TYPE"]) == (
        hook.meta,
        201,
        hook.meta.headers["Content-Type"],
    )
    assert "Content-Type" not in repr(hook.meta) + repr(envelope)
    assert Meta(status=201, headers={"a": "b"}) == Meta()


async def test_cached_headers_of_the_client_stay():
    """The headers of one call do not leak into the next one, even if they override the client's."""
    async with (
        RawServer(obliging) as server,
        client_of(server, headers={"X-Trace": "all"}) as client,
    ):
        for options in (None, TRACED, None):
            await asyncio.gather(
                client.webhooks.get("wh_1", options=options), return_exceptions=True
            )

        assert [arrival.header("x-trace") for arrival in server.arrivals] == [
            "all",
            "t-1",
            "all",
        ]


async def test_refused_options_send_nothing(client, service):
    """Nothing arrives."""
    before = service.ledger.arrivals()
    with pytest.raises(InvalidRequestError):
        client.webhooks.delete("wh_1", options="x")

    assert service.ledger.arrivals() == before
