"""Answers that look final but are not: refusals of a gateway, 202, and the 410 of a settling read."""

import attrs
import pytest

from invsvc_async import (
    Absent,
    AmbiguousWriteError,
    Applied,
    AuthenticationError,
    Intent,
    Outcome,
    PermissionDeniedError,
    TokenProvider,
    Verdict,
    readers,
)
from invsvc_async.batch import Batch
from invsvc_async.simulator import app, replies
from tests.faults.conftest import SHORT, client_of

pytestmark = pytest.mark.every_python

URL = "https://me.example/in"
STATUSES = [400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 429, 451]


def create(client, **options):
    return client.webhooks.create(url=URL, events=["invoice.created"], **options)


def effects(service, operation="webhooks.create"):
    return [
        entry for entry in service.ledger.effects(operation) if entry.by == "client"
    ]


async def finding(service, *_):
    found = effects(service, "teams.create")
    return Applied({"id": found[0].target}) if found else Absent()


# --- a refusal in neither form of the service's


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize(
    "step", ["apply, then gateway {}", "late 0.2, then gateway {}", "gateway {}"]
)
async def test_refusal_of_a_gateway(service, client, status, step):
    """The state decides: shown is applied; absent is refused, with the gateway's error, and not sent again."""
    service.script("webhooks.create", step.format(status))
    outcome = await create(client).outcome()

    assert outcome.verdict is (Verdict.APPLIED if effects(service) else Verdict.REFUSED)
    assert bool(effects(service)) is (step != "gateway {}")
    assert (outcome.error.status, outcome.error.own_envelope) == (status, False)
    assert service.arrivals("webhooks.create") == 1


@pytest.mark.parametrize("status", [401, 403, 404, 429])
@pytest.mark.parametrize("step", ["apply, then gateway {}", "gateway {}"])
@pytest.mark.parametrize(
    "operation", ["journeys.update", "webhooks.update", "webhooks.delete"]
)
async def test_change_that_a_gateway_refuses(service, client, operation, status, step):
    """As for creates."""
    hook, journey = service.seed_webhook(url=URL), service.seed_journey(name="before")
    write = {
        "journeys.update": lambda: client.journeys.update(journey["id"], name="after"),
        "webhooks.update": lambda: client.webhooks.update(
            hook["id"], description="after"
        ),
        "webhooks.delete": lambda: client.webhooks.delete(hook["id"]),
    }[operation]()
    service.script(operation, step.format(status))
    outcome = await write.outcome()

    assert outcome.verdict is (
        Verdict.APPLIED if effects(service, operation) else Verdict.REFUSED
    )
    assert outcome.error.status == status
    assert service.arrivals(operation) == 1


@pytest.mark.parametrize("step", ["apply, then gateway 403", "gateway 403"])
async def test_refusal_of_a_gateway_without_a_read(service, client, step):
    """Nothing can tell: UNKNOWN at once, from the gateway's error; a reader settles it later."""
    service.script("teams.create", step)
    with pytest.raises(AmbiguousWriteError) as caught:
        await client.teams.create(legal_name="Acme")
    intent = caught.value.intent
    settled = await client.settle(intent, reader=lambda *_: finding(service))

    assert isinstance(caught.value.__cause__, PermissionDeniedError)
    assert settled.verdict is (
        Verdict.APPLIED if effects(service, "teams.create") else Verdict.REFUSED
    )
    assert isinstance(settled.error, PermissionDeniedError)


@pytest.mark.parametrize("way", ["settle", "resume"])
@pytest.mark.parametrize("step", ["apply, then gateway 403", "gateway 403"])
async def test_refusal_of_a_gateway_settled_elsewhere(service, client, way, step):
    """Another process, which has only the stored intent, comes to the same verdict and error."""
    service.script("webhooks.create", step)
    first = await create(client).with_policy(SHORT, deadline=0.01).outcome()
    stored = attrs.evolve(Intent.from_json(first.intent.to_json()), policy=SHORT)
    async with client_of(service) as other:
        outcome = await (
            other.settle(stored) if way == "settle" else other.resume(stored).outcome()
        )

    assert outcome.verdict is (Verdict.APPLIED if effects(service) else Verdict.REFUSED)
    assert outcome.error.status == 403
    assert Outcome.from_json(outcome.to_json()).error.status == 403
    assert service.arrivals("webhooks.create") == 1


@pytest.mark.parametrize("status", [403, 422])
@pytest.mark.parametrize("step", ["apply, then gateway {}", "gateway {}"])
async def test_refusal_of_a_gateway_in_a_batch(service, client, status, step, tmp_path):
    """As for single writes, but that an absent one is tried again once a 403 has gone away."""
    service.script("webhooks.create", step.format(status))
    async with Batch.open(tmp_path / "batch.db", client) as batch:
        [result] = [each async for each in batch.run([create(client).keyed("one")])]

    assert result.outcome.verdict is (
        Verdict.APPLIED if effects(service) else Verdict.REFUSED
    )
    assert len(effects(service)) == (status == 403 or step != "gateway {}")


@pytest.mark.parametrize("step", ["apply, then gateway 401", "gateway 401"])
async def test_gateways_401_and_a_token_that_can_be_renewed(service, step):
    """The write is not sent again with a fresh token: the first send may have taken effect."""

    async def fresh():
        return service.api_key

    credential = TokenProvider(fresh, kind="api_key")
    async with client_of(service, credential=credential) as client:
        service.script("webhooks.create", step)
        outcome = await create(client).outcome()

    assert outcome.verdict is (Verdict.APPLIED if effects(service) else Verdict.REFUSED)
    assert service.arrivals("webhooks.create") == 1


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    ("body", "is_own"),
    [
        ({"message": "x"}, True),
        ({"message": "x", "details": "Invalid API Key"}, True),
        ({"message": "x", "error": "invalid_token", "error_description": "x"}, True),
        (
            {
                "success": False,
                "error": {"code": "forbidden", "message": "x"},
                "timestamp": 1,
            },
            True,
        ),
        ({"message": "x", "request_id": "7"}, False),
        ({"statusCode": 403, "message": "x"}, False),
        ({"message": 5}, False),
        ({}, False),
        (["x"], False),
    ],
)
async def test_forms_of_a_refusal(service, client, monkeypatch, body, is_own, status):
    """Only the two forms of the specification are final without a read."""
    monkeypatch.setattr(
        replies, "gateway_page", lambda status: replies.answer(status, body)
    )
    service.script("teams.create", f"gateway {status}")
    outcome = await client.teams.create(legal_name="Acme").outcome()

    assert outcome.verdict is (Verdict.REFUSED if is_own else Verdict.UNKNOWN)


async def test_refusals_of_the_service_itself_need_no_read(service, client):
    """Both of its forms are final at once."""
    service.script("webhooks.create", "401 raw", "403", "404", "409", "410", "429")
    await client.webhooks.list()
    outcomes = [await create(client).outcome() for _ in range(6)]

    assert {outcome.verdict for outcome in outcomes} == {Verdict.REFUSED}
    assert service.arrivals("webhooks.list") == 1
    assert isinstance(outcomes[0].error, AuthenticationError)


# --- 202


def accepted(clock, data):
    """Return a 202 with *data*."""
    return replies.answer(
        202, {"success": True, "data": data, "timestamp": clock.now_ms()}
    )


@pytest.fixture
def accepting(monkeypatch):
    """Make the service answer 202 where its script says 499."""
    answered = app._false_answer

    def false_answer(step, entry, clock):
        if step.status != 499:
            return answered(step, entry, clock)
        entry.answered = 202
        return accepted(clock, {"id": "wh_soon", "url": URL, "status": "active"})

    monkeypatch.setattr(app, "_false_answer", false_answer)


@pytest.mark.usefixtures("accepting")
@pytest.mark.parametrize("tag", [True, False])
@pytest.mark.parametrize("step", ["apply, then 499", "late 0.3, then 499"])
async def test_create_that_is_only_accepted(service, client, step, tag):
    """It is applied once a read shows it, with the webhook that was read."""
    service.script("webhooks.create", step)
    outcome = await create(client, tag=tag).outcome()

    assert outcome.verdict is Verdict.APPLIED
    assert outcome.evidence.basis != "answered"
    assert [outcome.value.id] == [entry.target for entry in effects(service)]


@pytest.mark.usefixtures("accepting")
async def test_create_that_is_accepted_and_not_done(service, client):
    """After the long window it is absent."""
    service.script("webhooks.create", "499")
    outcome = await create(client).with_policy(resend="never").outcome()

    assert outcome.verdict is Verdict.NOT_APPLIED
    assert outcome.evidence.read_at >= outcome.history[-2].at
    assert effects(service) == []


@pytest.mark.usefixtures("accepting")
async def test_accepted_writes_that_no_read_shows(service, client):
    """A 202 alone does not say that the team exists."""
    service.script("teams.create", "499")
    outcome = await client.teams.create(legal_name="Acme").outcome()

    assert (outcome.verdict, outcome.value) == (Verdict.UNKNOWN, None)


@pytest.mark.usefixtures("accepting")
async def test_secret_in_the_answer_of_an_accepted_create(service, client, monkeypatch):
    """If the webhook that was read is the one of the answer, its secret is known."""
    made = {}
    service._app.on_effect = lambda _operation, _book, answer: made.update(
        answer.body["data"]
    )
    monkeypatch.setattr(
        app, "_false_answer", lambda _step, _entry, clock: accepted(clock, made)
    )
    service.script("webhooks.create", "apply, then 499")
    outcome = await create(client).outcome()

    assert (outcome.verdict, outcome.secret_lost) == (Verdict.APPLIED, False)
    assert outcome.value.secret == made["secret"]


# --- 410


@pytest.mark.parametrize("step", ["apply, then reset", "reset"])
async def test_deleted_webhook_that_is_read_as_410(service, client, monkeypatch, step):
    """In the service's envelope it is a 404: the webhook is gone."""
    hook = service.seed_webhook(url=URL)
    service.script("webhooks.delete", step)
    service.script("webhooks.get", *["410"] * 9)
    outcome = (
        await client.webhooks.delete(hook["id"]).with_policy(resend="never").outcome()
    )

    assert outcome.verdict is Verdict.APPLIED


async def test_410_of_a_gateway(service, client):
    """It says nothing."""
    hook = service.seed_webhook(url=URL)
    service.script("webhooks.delete", "reset")
    service.script("webhooks.get", "gateway 410", "gateway 410")
    outcome = (
        await client.webhooks.delete(hook["id"]).with_policy(resend="never").outcome()
    )

    assert outcome.verdict is Verdict.NOT_APPLIED


async def test_410_that_a_ready_reader_gets(service, client):
    """It counts as absent, as a 404 does."""
    service.script("teams.create", "reset")
    service.script("users.get", *["410"] * 9)
    reader = readers.get("/users/usr_9", matches=lambda _: False)
    write = client.teams.create(legal_name="Acme", reader=reader).with_policy(
        resend="never"
    )

    assert (await write.outcome()).verdict is Verdict.NOT_APPLIED
