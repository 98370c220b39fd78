"""What a web API answers, by verdict and by error."""

from __future__ import annotations

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
    PagingError,
    RateLimitedError,
    ReconcilePolicy,
    ResponseLostError,
    SecretLostError,
    ServerError,
    Verdict,
    WriteNotAppliedError,
)
from invsvc_async.errors import service_error_class
from invsvc_async.web import answer_to, status_of

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
        (InvalidRequestError("name: is too short"), 400),
        (KeyConflictError("body.name"), 409),
        (ConfigurationError("closed"), 500),
        (JournalError("away"), 503),
        (DeadlineExceededError("late"), 504),
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
        {"error": "unknown", "message": "It is not known yet whether it was done."},
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
