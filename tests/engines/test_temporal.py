"""Activities that are cancelled and run again, in Temporal's own environment for tests, which has no server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from invsvc_async import (
    Client,
    KeyConflictError,
    RateLimitedError,
    ReconcilePolicy,
    SecretLostError,
    ValidationFailedError,
)
from invsvc_async.errors import ConfigurationError
from tests.support.waiting import until

pytest.importorskip("temporalio", reason="temporalio is not installed")

from temporalio import activity
from temporalio.api.failure.v1 import Failure
from temporalio.converter import DefaultFailureConverter, DefaultPayloadConverter
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from examples import temporal_activities as example
from invsvc_async.engines.temporal import AGAIN, InvsvcPlugin

pytestmark = pytest.mark.filterwarnings("default")

URL = "https://k.example/order-1"
EVENTS = ["invoice.created"]


def environment(
    *, workflow: str = "order-1", run: str = "r1", number: str = "1", attempt: int = 1, **more
) -> ActivityEnvironment:  # fmt: skip
    """Return what an attempt of an activity runs in."""
    here = ActivityEnvironment()
    here.info = replace(
        here.info, workflow_id=workflow, workflow_run_id=run, activity_id=number, attempt=attempt, **more,
    )  # fmt: skip
    return here


def made():
    policy = ReconcilePolicy(settle_after_error=0.1, settle_after_loss=0.2)
    return Client.from_env(reconcile=policy, on_secret=lambda *_: None)


@pytest.fixture
def service(service_in_environment):
    return service_in_environment


@pytest.fixture
def invsvc():
    return InvsvcPlugin(made)


@pytest.fixture
def register(invsvc):
    @activity.defn
    async def register(url: str, key: str = "", name: str = "") -> str:
        write = invsvc.client.webhooks.create(url=url, events=EVENTS)
        return (await invsvc.send(write, key=key, name=name)).id

    return register


def targets(service):
    return [entry.target for entry in service.ledger.effects("webhooks.create")]


async def cancelled(service, register, step):
    """Run the activity of order-1, and cancel it when its write has arrived, of which *step* says what happens."""
    service.script("webhooks.create", step)
    first = environment()
    running = asyncio.create_task(first.run(register, URL))
    await until(lambda: service.arrivals("webhooks.create"))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_run_after_one_that_was_cancelled_before_the_effect(service, register):
    """It does the write, once; the runs after it return the same, and other activities do their own."""
    await cancelled(service, register, "hang")
    assert not targets(service)

    made = [await environment(attempt=attempt).run(register, URL) for attempt in (2, 3)]
    assert [made[0]] * 2 == made
    others = [
        await environment(**ids).run(register, f"{URL}{number}")
        for number, ids in enumerate([{"number": "2"}, {"workflow": "order-2"}])
    ]
    assert targets(service) == [made[0], *others]


async def test_run_after_one_that_was_cancelled_after_the_effect(service, register):
    """It finds the webhook, and says that its secret is lost, which no further run changes."""
    await cancelled(service, register, "apply, then hang")

    for attempt in (2, 3):
        with pytest.raises(SecretLostError):
            await environment(attempt=attempt).run(register, URL)
    assert (len(targets(service)), service.arrivals("webhooks.create")) == (1, 1)
    assert "SecretLostError" in AGAIN.non_retryable_error_types


async def test_new_run_of_the_workflow(service, register):
    """It starts over, but not with a key of the business."""
    runs = [environment(run=run) for run in ("r1", "r2")]
    first, anew = [await here.run(register, URL) for here in runs]
    assert first != anew
    same = [await here.run(register, f"{URL}/17", "order-17") for here in runs]
    assert same[0] == same[1]
    assert targets(service) == [first, anew, same[0]]


async def test_two_writes_of_an_activity(service, register):
    """The second needs a name; without one, its key has another write."""
    here = environment()
    first = await here.run(register, URL)
    with pytest.raises(KeyConflictError):
        await here.run(register, f"{URL}/b")
    second = await here.run(register, f"{URL}/b", "", "b")
    assert targets(service) == [first, second]


async def test_service_that_says_when_to_come_back(service, register):
    """Temporal runs the activity again then, and not by its own policy before."""
    service.script("webhooks.create", "429 after 7")
    with pytest.raises(ApplicationError) as caught:
        await environment().run(register, URL)
    assert caught.value.next_retry_delay == timedelta(seconds=7)
    assert not caught.value.non_retryable
    assert not targets(service)


async def test_service_that_does_not_say_when_to_come_back(service, register):
    """The error is that of the client, which Temporal can store; its policy says when to run it again."""
    service.script("webhooks.create", "429 credits")
    with pytest.raises(RateLimitedError) as caught:
        await environment().run(register, URL)
    failure = Failure()
    DefaultFailureConverter().to_failure(
        caught.value, DefaultPayloadConverter(), failure
    )
    assert failure.application_failure_info.type == "RateLimitedError"
    assert not failure.application_failure_info.non_retryable


async def test_activity_whose_write_is_overtaken(service, invsvc):
    """Temporal does not run it again: no further run would send its write."""

    @activity.defn
    async def rename(name: str) -> str:
        write = invsvc.client.journeys.update("jrn_1", name=name)
        return (await invsvc.send(write, key=name)).id

    [own] = invsvc.activities
    service.script("journeys.update", "400")
    with pytest.raises(ValidationFailedError):
        await environment().run(rename, "older")
    await environment().run(rename, "newer")
    arguments = {"journey": "jrn_1", "name": "older"}
    line = {"operation": "journeys.update", "arguments": arguments, "key": "older"}
    for function, argument in ((rename, "older"), (own, line)):
        with pytest.raises(ApplicationError) as caught:
            await environment(attempt=2).run(function, argument)
        assert caught.value.non_retryable
        assert caught.value.type == "WriteNotAppliedError"
    names = [each.body["name"] for each in service.ledger.effects("journeys.update")]
    assert names == ["newer"]


async def test_heartbeats(service, register):
    """They are sent while the write is under way, if the activity has a timeout for them."""
    service.script("webhooks.create", "slow 3")
    here = environment(heartbeat_timeout=timedelta(seconds=0.3))
    beats = []
    here.on_heartbeat = lambda *_: beats.append(1)
    await here.run(register, URL)
    assert len(beats) >= 3


async def test_write_as_data(service, invsvc):
    """The activity of the plugin does it once, and returns what is told of it, without the secret."""
    assert invsvc.configure_worker({})["activities"] == [*invsvc.activities]
    [own] = invsvc.activities
    assert activity._Definition.must_from_callable(own).name == "invsvc_write"
    line = {"operation": "webhooks.create", "arguments": {"url": URL, "events": EVENTS}}
    first, again = [
        await environment(attempt=attempt).run(own, line) for attempt in (1, 2)
    ]
    assert (first["verdict"], first["replayed"], again["replayed"]) == (
        "applied",
        False,
        True,
    )
    assert "secret" not in first
    assert targets(service) == [first["id"]] == [again["id"]]


async def test_secret_that_nobody_would_get(service, monkeypatch):
    """Without ``on_secret``, the activity of the plugin creates no webhook, and is not run again."""
    [own] = InvsvcPlugin().activities
    line = {"operation": "webhooks.create", "arguments": {"url": URL, "events": EVENTS}}
    with pytest.raises(ConfigurationError, match="on_secret: is not set"):
        await environment().run(own, line)
    assert targets(service) == []


async def test_file_as_journal(service, register, monkeypatch, tmp_path):
    """Workers cannot share it, which is said in words."""
    monkeypatch.setenv("INVSVC_JOURNAL", str(tmp_path / "calls.db"))
    with pytest.raises(ConfigurationError, match="a file belongs to one process"):
        await environment().run(register, URL)
    assert "ConfigurationError" in AGAIN.non_retryable_error_types


async def test_example(service):
    """Its activity creates one webhook, however often it runs."""
    first, again = [
        await environment(attempt=attempt).run(example.register, URL)
        for attempt in (1, 2)
    ]
    assert targets(service) == [first] == [again]
