"""Several runs of one write, and older writes that only a reader of the user settles: no second effect, no lost one."""

from __future__ import annotations

import asyncio

import attrs
import pytest

from invsvc_async import Absent, Applied, Verdict
from invsvc_async.writes import open_writes
from tests.faults.conftest import SHORT, client_of
from tests.faults.test_siblings import URL, cancelled, effects

pytestmark = pytest.mark.every_python


async def is_written(client, intent):
    """Tell whether the webhook has the description that was sent, whatever wrote it."""
    found = await client.webhooks.list()
    ours = [hook for hook in found if hook.description == intent.body["description"]]
    return Applied(ours[0], duplicates=tuple(ours[1:])) if ours else Absent()


def write(client, method, path, text):
    body = {"description": text}
    if method == "POST":
        body |= {"url": URL, "events": ["invoice.created"]}
    return client.write(method, path, json=body, reader=is_written)


async def test_older_write_with_a_reader_is_not_resumed_elsewhere_over_a_newer_one(
    service, client
):
    """An intent from elsewhere does not tell what was written after it, so what does not show may be undone."""
    path = f"/webhooks/{service.seed_webhook(description='start').id}"
    bare = await cancelled(
        service, write(client, "PUT", path, "old"), "webhooks.update", "hang"
    )
    await write(client, "PUT", path, "new")
    async with client_of(service) as other:
        outcome = await other.resume(bare, reader=is_written).outcome()

    assert [
        entry.body["description"] for entry in effects(service, "webhooks.update")
    ] == ["new"]
    assert outcome.verdict is Verdict.UNKNOWN


async def test_write_with_a_reader_is_resumed_in_its_client(service, client):
    """A client knows that it sent nothing to the thing since, and sends it again."""
    path = f"/webhooks/{service.seed_webhook(description='start').id}"
    await cancelled(
        service, write(client, "PUT", path, "old"), "webhooks.update", "hang"
    )
    outcome = await client.resume(client.unsettled[0], reader=is_written).outcome()

    assert outcome.verdict is Verdict.APPLIED
    assert len(effects(service, "webhooks.update")) == 1


async def test_create_with_a_reader_that_is_resumed_while_its_own_run_goes_on(
    service, client
):
    """One awaiter is cancelled and its intent resumed, while another still awaits the write: one effect."""
    create = write(client, "POST", "/webhooks", "mine")
    service.script("webhooks.create", "hang")
    first, second = (
        asyncio.create_task(create.outcome()),
        asyncio.create_task(create.outcome()),
    )
    await service.arrived("webhooks.create", 1)
    await asyncio.sleep(0.02)
    first.cancel()
    await asyncio.wait([first])
    (intent,) = client.unsettled
    resumed, outcome = await asyncio.gather(
        client.resume(intent, reader=is_written).outcome(), second
    )

    assert len(effects(service, "webhooks.create")) == 1
    assert (resumed.verdict, outcome.verdict) == (Verdict.APPLIED, Verdict.APPLIED)


@pytest.mark.parametrize("operation", ["webhooks.create", "webhooks.update"])
async def test_write_that_was_resumed_in_vain_and_is_awaited_again(
    service, client, operation
):
    """What a later run of it sent counts: it is not sent beside that."""
    if operation == "webhooks.create":
        await client.webhooks.list()
        write = client.webhooks.create(
            url=URL, events=["invoice.created"], on_lost_secret="keep"
        )
    else:
        write = client.webhooks.update(service.seed_webhook().id, description="mine")
    await cancelled(service, write, operation, "hang")
    resumed = client.resume(attrs.evolve(client.unsettled[0], policy=SHORT))
    await cancelled(service, resumed, operation, "late 0.2, then hang")
    outcome = await write.outcome()
    await asyncio.sleep(SHORT.settle_after_loss)  # until nothing can land any more

    assert len(effects(service, operation)) == 1
    assert outcome.verdict is Verdict.APPLIED


@pytest.mark.parametrize("second", ["resume", "await again", "settle"])
@pytest.mark.parametrize("operation", ["webhooks.create", "webhooks.update"])
async def test_run_that_waited_for_one_that_ended_in_vain(
    service, client, operation, second
):
    """It has the same verdict, and sends nothing: the caller of the first may have made the write again."""
    if operation == "webhooks.create":
        write = client.webhooks.create(url=URL, events=["invoice.created"], tag=True)
    else:
        write = client.webhooks.update(service.seed_webhook().id, description="mine")
    await cancelled(service, write, operation, "hang")
    intent = client.unsettled[0]
    service.script(operation, "reset")
    runs = {
        "resume": lambda: client.resume(intent).outcome(),
        "await again": write.outcome,
        "settle": lambda: client.settle(intent),
    }
    found = await asyncio.gather(client.resume(intent).outcome(), runs[second]())

    assert [outcome.verdict for outcome in found] == [
        Verdict.NOT_APPLIED,
        Verdict.NOT_APPLIED,
    ]
    assert (service.arrivals(operation), effects(service, operation)) == (2, [])
    # this one was asked for later
    assert (await client.resume(intent).outcome()).verdict is Verdict.APPLIED


async def test_resume_that_waited_for_a_run_that_only_reads(service, client):
    """It sends what the other one has shown to be absent."""
    write = client.webhooks.update(service.seed_webhook().id, description="mine")
    await cancelled(service, write, "webhooks.update", "hang")
    intent = client.unsettled[0]
    settled, resumed = await asyncio.gather(
        client.settle(intent), client.resume(intent).outcome()
    )

    assert (settled.verdict, resumed.verdict) == (Verdict.NOT_APPLIED, Verdict.APPLIED)
    assert len(effects(service, "webhooks.update")) == 1


async def test_write_that_a_full_client_dropped_and_a_newer_one_followed(
    service, tmp_path, monkeypatch
):
    """The journal does not go on saying that it is the newest: no stranger is blamed for what came after."""
    monkeypatch.setattr(open_writes, "UNSETTLED_KEPT", 1)
    path, journey, other = (
        tmp_path / "journal.db",
        *(service.seed_journey(status="draft") for _ in range(2)),
    )
    async with client_of(service, journal=path) as first:
        update = first.journeys.update
        await cancelled(
            service, update(journey.id, name="old"), "journeys.update", "hang"
        )
        await cancelled(service, update(other.id, name="x"), "journeys.update", "hang")
        await update(journey.id, name="new")
    async with client_of(service, journal=path) as second:
        verdicts = {
            found.intent.body["name"]: found.verdict for found in await second.recover()
        }

    assert verdicts == {"old": Verdict.UNKNOWN, "x": Verdict.NOT_APPLIED}
