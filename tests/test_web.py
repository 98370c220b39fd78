"""What a web API answers, by verdict and by error."""

from __future__ import annotations

import asyncio
import json

import aiosqlite
import msgspec
import pytest

from invsvc_async import (
    ApiKey,
    Client,
    ConfigurationError,
    DeadlineExceededError,
    InvalidRequestError,
    JournalError,
    KeyConflictError,
    NotFoundError,
    NotSentError,
    Outbox,
    PagingError,
    RateLimitedError,
    ReconcilePolicy,
    ResponseLostError,
    SecretLostError,
    ServerError,
    Verdict,
    WriteNotAppliedError,
    enc_hook,
)
from invsvc_async.errors import service_error_class
from invsvc_async.web import answer_to, status_of
from tests.outbox.conftest import enqueue, entries_of
from tests.support.waiting import until

QUICK = ReconcilePolicy(settle_after_error=0.1, settle_after_loss=0.2, reads_lag=0.0)


@pytest.fixture
async def client(service):
    async with Client(
        service.base_url, ApiKey(service.api_key), reconcile=QUICK
    ) as made:
        yield made


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidRequestError("name: is too short", operation="journeys.update"), 400),
        (
            InvalidRequestError(
                "graph.nodes[0].id: is missing", operation="journeys.update"
            ),
            400,
        ),
        (InvalidRequestError("key: is too long", operation="journeys.update"), 400),
        (InvalidRequestError("token: is damaged"), 400),
        (
            InvalidRequestError(
                "reader: cannot be stored", operation="journeys.update"
            ),
            500,
        ),
        (
            InvalidRequestError(
                ["name: is too short", "reader: is none"], operation="journeys.update"
            ),
            500,
        ),
        (InvalidRequestError("connection: is closed"), 500),
        (KeyConflictError("body.name", operation="journeys.update"), 409),
        (KeyConflictError("body.name"), 409),
        (ConfigurationError("closed"), 500),
        (JournalError("away", is_away=True), 500),
        (JournalError("nobody", is_missing=True), 404),
        (JournalError("final", is_conflict=True), 409),
        (DeadlineExceededError("late"), 504),
        (DeadlineExceededError("late", goes_on=True), 202),
        (NotSentError("no connection"), 503),
        (ResponseLostError("reset"), 502),
        (PagingError("no end"), 502),
        (NotFoundError(status=404), 404),
        (RateLimitedError(status=429, retry_after=2.5), 503),
        (ServerError(status=500), 502),
        (service_error_class(401)(status=401), 502),
        (service_error_class(403)(status=403), 502),
        (service_error_class(418)(status=418), 502),
        (RuntimeError("a defect"), 500),
    ],
)
def test_status_of_error(error, status):
    """What the caller did is 4xx; what your credential may not do, or the service cannot, is 5xx."""
    assert status_of(error) == status
    assert answer_to(error).status == status


async def verdict_of(service, write, *steps):
    """Return the outcome of *write*, whose arrivals end as the *steps* say."""
    if steps:
        service.script(write.intent.operation, *steps)
    return await write.outcome()


@pytest.mark.parametrize(
    ("steps", "verdict", "status"),
    [
        ((), Verdict.APPLIED, 200),
        (("apply, then reset",), Verdict.APPLIED, 200),
        (("reset", "reset"), Verdict.NOT_APPLIED, 503),
        (("403",), Verdict.REFUSED, 502),
        (("409",), Verdict.REFUSED, 409),
    ],
)
async def test_status_of_outcome(service, client, steps, verdict, status):
    """It follows from the verdict, and of a refusal from its status."""
    outcome = await verdict_of(
        service, client.journeys.update("jrn_1", name="May"), *steps
    )
    assert (outcome.verdict, status_of(outcome)) == (verdict, status)


async def test_status_of_what_is_not_known(service, client):
    """It is 202, also if it is raised."""
    outcome = await verdict_of(
        service, client.teams.create(legal_name="A"), "apply, then reset"
    )
    assert status_of(outcome) == 202
    with pytest.raises(Exception, match="unknown") as caught:
        outcome.unwrap()
    assert answer_to(caught.value)[:2] == (
        202,
        {
            "verdict": "unknown",
            "value": None,
            "attempts": 1,
            "message": "It is not known yet whether it was done.",
            "error": "unknown",
        },
    )


async def test_status_of_a_create(service, client):
    """The one of success may be another."""
    outcome = await verdict_of(
        service,
        client.webhooks.create(url="https://me.example/1", events=["invoice.created"]),
    )
    assert status_of(outcome, applied=201) == 201


async def test_lost_secret_is_done(service, client):
    """The webhook exists."""
    service.script("webhooks.create", "apply, then reset")
    with pytest.raises(SecretLostError) as caught:
        await client.webhooks.create(
            url="https://me.example/1", events=["invoice.created"]
        )
    assert answer_to(caught.value).status == 200


async def test_body_says_what_the_caller_did(client):
    """It has the problems, or the words of the service."""
    with pytest.raises(InvalidRequestError) as invalid:
        client.journeys.update("jrn_1", name="")
    assert answer_to(invalid.value).body["message"].startswith("name: ")
    with pytest.raises(NotFoundError) as missing:
        await client.users.get("usr_nobody")
    assert answer_to(missing.value).body["error"] == "resource_not_found"


async def test_body_says_nothing_of_the_inside(service, client):
    """Neither the address, nor the operation, nor what the service said to your credential."""
    service.script("journeys.update", "reset", "reset")
    with pytest.raises(WriteNotAppliedError) as caught:
        await client.journeys.update("jrn_1", name="May")
    for error in (
        caught.value,
        service_error_class(403)(status=403, message="Invalid API Key"),
        JournalError("postgresql://db/shop is away"),
    ):
        shown = str(answer_to(error).body)
        for word in ("127.0.0.1", "journeys", "API Key", "postgresql"):
            assert word not in shown


def test_retry_after_is_passed_on():
    """In whole seconds, rounded up."""
    assert answer_to(RateLimitedError(status=429, retry_after=2.5)).headers == {
        "Retry-After": "3"
    }
    assert answer_to(RateLimitedError(status=429)).headers == {}


async def test_one_shape_of_bodies(service, client):
    """That of an error has the members of an outcome's, and its code."""
    outcome = await client.journeys.update("jrn_1", name="May").outcome()
    service.script("journeys.update", "reset", "reset")
    with pytest.raises(WriteNotAppliedError) as caught:
        await client.journeys.update("jrn_1", name="June")
    members = set(json.loads(msgspec.json.encode(outcome, enc_hook=enc_hook)))
    for error in (caught.value, NotFoundError(status=404), RuntimeError("a defect")):
        assert set(answer_to(error).body) == members | {"error"}
    assert answer_to(caught.value).body["verdict"] == "not applied"


async def test_webhook_whose_secret_is_lost_is_in_the_body(service, client):
    """As in that of an outcome, so that the caller learns its id."""
    service.script("webhooks.create", "apply, then reset")
    with pytest.raises(SecretLostError) as caught:
        await client.webhooks.create(
            url="https://me.example/1", events=["invoice.created"]
        )
    body = answer_to(caught.value).body
    assert (body["verdict"], body["error"]) == ("applied", "secret_lost")
    assert body["value"]["id"] == caught.value.webhook.id
    json.dumps(body)


@pytest.fixture
async def outbox(client, tmp_path):
    async with Outbox.open(tmp_path / "app.db", client) as opened:
        yield opened


async def test_mistake_of_the_application(client, outbox, tmp_path):
    """A connection that it has closed is not the caller's fault."""
    async with aiosqlite.connect(tmp_path / "app.db") as connection:
        pass
    with pytest.raises(InvalidRequestError) as caught:
        await outbox.enqueue(connection, client.journeys.update("jrn_1", name="May"))
    assert answer_to(caught.value)[:2] == (
        500,
        {
            "verdict": None,
            "value": None,
            "attempts": None,
            "message": "This service failed. It may have been done.",
            "error": "internal_error",
        },
    )


async def test_wait_that_ends_before_the_verdict(service, client, outbox):
    """It is 202, because the write is stored and goes on; a later wait has its verdict."""
    await enqueue(outbox, client.journeys.update("jrn_1", name="May").keyed("k"))
    with pytest.raises(DeadlineExceededError) as caught:
        await outbox.wait("k", timeout=0.01)
    assert answer_to(caught.value)[:2] == (
        202,
        {
            "verdict": None,
            "value": None,
            "attempts": None,
            "message": "It is not known yet whether it was done.",
            "error": "unknown",
        },
    )
    async with outbox.dispatching():
        assert (await outbox.wait("k", timeout=60)).applied
    assert len(service.ledger.effects("journeys.update")) == 1


async def test_outbox_that_is_closed_while_it_is_waited_for(client, outbox):
    """The answer does not say that nothing was done: another process sends the write."""
    sending = asyncio.create_task(
        outbox.send(client.journeys.update("jrn_1", name="May").keyed("k"))
    )
    await until(lambda: entries_of(outbox))
    await outbox.__aexit__()
    with pytest.raises(JournalError) as caught:
        await sending
    answer = answer_to(caught.value)
    assert (answer.status, answer.body["message"]) == (
        500,
        "This service failed. It may have been done.",
    )


async def test_what_cannot_be_resolved(client, outbox):
    """A key that is not there is 404, and one with a final verdict 409."""
    with pytest.raises(JournalError) as missing:
        await outbox.resolve("k", applied=False, because="looked")
    async with outbox.dispatching():
        await outbox.send(client.journeys.update("jrn_1", name="May").keyed("k"))
    with pytest.raises(JournalError) as final:
        await outbox.resolve("k", applied=False, because="looked")
    assert (status_of(missing.value), status_of(final.value)) == (404, 409)
