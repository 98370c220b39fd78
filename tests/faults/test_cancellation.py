"""Cancellation at every await of a write: prompt, honest, and nothing leaks."""

from __future__ import annotations

import asyncio
import socket
import warnings

import pytest

from invsvc_async import (
    ApiKey,
    Client,
    ConfigurationError,
    ReconcilePolicy,
    Timeouts,
    Verdict,
)
from invsvc_async.batch import Batch
from invsvc_async.client import options_of
from invsvc_async.codec import envelope
from invsvc_async.durable.journal import ClientJournal
from tests.faults.conftest import SHORT, client_of
from tests.support.virtual_time import LoopClock
from tests.support.waiting import forever

pytestmark = pytest.mark.every_python

LONG_WAIT = ReconcilePolicy(
    settle_after_error=5.0, settle_after_loss=5.0, deadline=30.0
)
PATIENT = Timeouts(attempt=10.0, connect=10.0, call=20.0)


def create(client, **options):
    return client.webhooks.create(
        url="https://me.example/in", events=["invoice.created"], **options
    )


async def cancelled(task, within=0.2):
    """Cancel *task* and see one prompt CancelledError."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(within):
            await task
    assert task.cancelled()


async def no_task_is_left():
    for _ in range(5):
        await asyncio.sleep(0)
    codes = [
        (task, getattr(task.get_coro(), "cr_code", None))
        for task in asyncio.all_tasks()
    ]
    return [
        task
        for task, code in codes
        if code
        and "/invsvc_async/" in code.co_filename
        and "/simulator/" not in code.co_filename
    ]


async def test_cancelled_waiting_for_a_place(service):
    """A write that waits for a free connection has not left: its intent is not kept."""
    async with client_of(
        service, max_concurrency=1, timeout=PATIENT, clock=LoopClock()
    ) as client:
        service.script("webhooks.delete", "hang")
        first = asyncio.create_task(client.webhooks.delete(service.seed_webhook().id))
        await service.arrived("webhooks.delete")
        second = asyncio.create_task(create(client, tag=True))
        await asyncio.sleep(0.05)

        await cancelled(second)
        assert client.unsettled == ()
        await cancelled(first)
    assert service.arrivals("webhooks.create") == 0


async def test_cancelled_while_connecting(service):
    """A write whose connection is not there yet has not left."""
    with socket.socket() as full:  # accepts nothing: its backlog is taken
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(address)
        base_url = f"http://127.0.0.1:{address[1]}/v2"
        async with Client(
            base_url, ApiKey("k"), timeout=PATIENT, clock=LoopClock()
        ) as client:
            options_of(client).core.server_clock.learn(1, 0.0, 0.0)
            task = asyncio.create_task(client.webhooks.delete("wh_1"))
            await asyncio.sleep(0.1)
            await cancelled(task)
            assert client.unsettled == ()
        for filler in fillers:
            filler.close()


@pytest.mark.parametrize("step", ["hang", "apply, then hang", "apply, then drip"])
async def test_cancelled_after_sending(service, step):
    """A write of which a byte may have left goes to client.unsettled and to the hook, once."""
    told = []
    service.script("webhooks.create", step)
    async with client_of(service, timeout=PATIENT, on_unsettled=told.append) as client:
        task = asyncio.create_task(create(client))
        await service.arrived("webhooks.create")

        await cancelled(task)

        assert [intent.key for intent in client.unsettled] == [
            intent.key for intent in told
        ]
    assert len(told) == 1
    assert told[0].sent[0].end.kind == "long"
    assert await no_task_is_left() == []


async def test_cancelled_while_waiting_out_the_window(service, client):
    """A write in doubt that only waits can be cancelled at once, and stays settleable."""
    # the service's clock is known, and nothing is read before the write
    await client.webhooks.list()
    service.script("webhooks.delete", "apply, then reset", "pass")
    service.script("webhooks.get", *["503"] * 50)
    write = client.webhooks.delete(service.seed_webhook().id).with_policy(LONG_WAIT)
    task = asyncio.create_task(write)
    await service.arrived("webhooks.get", 2)
    await asyncio.sleep(0.05)

    await cancelled(task)

    assert [intent.operation for intent in client.unsettled] == ["webhooks.delete"]


async def test_cancelled_while_reading_state(service, client):
    """The read that settles is abandoned too, with its task and its connection."""
    service.script("webhooks.create", "apply, then reset")
    service.script("webhooks.list", "pass", "hang")
    task = asyncio.create_task(create(client))
    await service.arrived("webhooks.list", 2)

    await cancelled(task)

    assert len(client.unsettled) == 1
    assert await no_task_is_left() == []


async def test_cancelled_between_definite_answers(service, client):
    """Waiting to send a rate-limited write again is not doubt: the intent is not kept."""
    service.script("webhooks.delete", "429 after 5")
    write = client.webhooks.delete(service.seed_webhook().id).with_policy(
        LONG_WAIT, wait_when_limited=True
    )
    task = asyncio.create_task(write)
    await service.arrived("webhooks.delete")
    await asyncio.sleep(0.05)

    await cancelled(task)

    assert client.unsettled == ()


class HangingJournal(ClientJournal):
    """A journal in a file that hangs as it is to store the first verdict."""

    def __init__(self, path):
        super().__init__(path)
        self.hangs = asyncio.Event()
        self.stored = []

    async def settled(self, outcome):
        self.stored.append(outcome.verdict)
        if not self.hangs.is_set():
            self.hangs.set()
            await forever()
        await super().settled(outcome)


async def verdict_of_the_second_await(client, journal, write):
    """Cancel the await of *write* while its verdict is stored; return the verdict of the next one."""
    first = asyncio.create_task(write.outcome())
    await journal.hangs.wait()
    await cancelled(first)
    assert client.unsettled == () or journal.stored[0] is Verdict.UNKNOWN
    return (await write.outcome()).verdict


async def test_verdict_that_is_found_after_unknown(service, tmp_path):
    """An await that was cancelled as its verdict was stored leaves nothing of it to the next."""
    journal = HangingJournal(tmp_path / "journal.db")
    service.script("webhooks.create", "apply, then reset")
    service.script("webhooks.list", "pass", "403")
    async with client_of(service, journal=journal) as client:
        verdict = await verdict_of_the_second_await(client, journal, create(client))

        assert (
            journal.stored
            == [Verdict.UNKNOWN, verdict]
            == [Verdict.UNKNOWN, Verdict.APPLIED]
        )
        assert client.unsettled == ()
    assert len(service.ledger.effects("webhooks.create")) == 1


@pytest.mark.parametrize("step", ["400", "403", "422"])
async def test_refusal_that_is_stored_when_the_await_is_cancelled(
    service, step, tmp_path
):
    """The next await tells the same, and sends nothing."""
    journal = HangingJournal(tmp_path / "journal.db")
    service.script("webhooks.create", step)
    async with client_of(service, journal=journal) as client:
        verdict = await verdict_of_the_second_await(client, journal, create(client))

    assert verdict is Verdict.REFUSED
    assert journal.stored == [Verdict.REFUSED, Verdict.REFUSED]
    assert service.arrivals("webhooks.create") == 1


async def test_retry_after_outlives_a_cancellation(service, client):
    """The next await waits for as long as the service has asked for."""
    service.script("webhooks.create", "429 after 1")
    write = create(client).with_policy(LONG_WAIT, wait_when_limited=True)
    task = asyncio.create_task(write)
    await service.arrived("webhooks.create")
    await asyncio.sleep(0.1)
    await cancelled(task)

    await write
    first, second = service.ledger.find("webhooks.create")
    assert second.received_at - first.received_at >= 0.99


async def test_settling_that_is_cancelled_before_it_starts(service, client, tmp_path):
    """The intent is kept: nobody has settled it."""
    service.script("webhooks.create", "hang")
    task = asyncio.create_task(create(client).outcome())
    await service.arrived("webhooks.create")
    await cancelled(task)
    (intent,) = client.unsettled

    class SlowJournal(HangingJournal):
        async def open_intents(self):
            self.hangs.set()
            await forever()
            yield intent

    journal = SlowJournal(tmp_path / "journal.db")
    async with client_of(service, journal=journal) as other:
        settling = asyncio.create_task(other.settle(intent, same_mode=True))
        await journal.hangs.wait()
        await cancelled(settling)
        assert [each.identity for each in other.unsettled] == [intent.identity]


async def test_timeout_around_a_write(service, client):
    """asyncio.timeout gives TimeoutError at its time, and the intent is kept."""
    service.script("webhooks.delete", "hang")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await client.with_options(timeout=PATIENT).webhooks.delete(
                service.seed_webhook().id
            )
    assert len(client.unsettled) == 1


async def test_task_group_cancels_its_writes(service, client):
    """A failing sibling cancels the write; the group raises the sibling's error alone."""
    service.script("webhooks.delete", "hang")
    patient = client.with_options(timeout=PATIENT)

    async def fail():
        await service.arrived("webhooks.delete")
        raise LookupError("the sibling")

    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            group.create_task(patient.webhooks.delete(service.seed_webhook().id))
            group.create_task(fail())
    assert [type(error) for error in caught.value.exceptions] == [LookupError]
    assert len(client.unsettled) == 1


async def test_second_awaiter_goes_on_when_the_first_is_cancelled(service, client):
    """The second awaiter takes over from the history: it reads first, and there is one effect."""
    patient = client.with_options(timeout=PATIENT)
    service.script("webhooks.create", "apply, then hang")
    write = create(patient)
    first = asyncio.create_task(write.outcome())
    await service.arrived("webhooks.create")
    second = asyncio.create_task(write.outcome())
    await asyncio.sleep(0.01)

    await cancelled(first)
    outcome = await second

    assert outcome.verdict is Verdict.APPLIED
    assert service.arrivals("webhooks.create") == 1
    assert client.unsettled == ()


async def test_awaiting_again_gives_the_same(service, client):
    """One run serves every await, and a second awaiter beside the first."""
    write = create(client)
    hooks = await asyncio.gather(write, write.outcome())
    assert (await write).id == hooks[0].id == hooks[1].value.id
    assert service.arrivals("webhooks.create") == 1


async def test_write_in_every_way_of_running_a_coroutine(service, client):
    """create_task, gather, wait_for and TaskGroup take a write as they take a coroutine."""
    ids = [service.seed_webhook().id for _ in range(4)]
    await asyncio.create_task(client.webhooks.delete(ids[0]))
    await asyncio.wait_for(client.webhooks.delete(ids[1]), 30)
    await asyncio.gather(client.webhooks.delete(ids[2]))
    async with asyncio.TaskGroup() as group:
        group.create_task(client.webhooks.delete(ids[3]))
    assert service.arrivals("webhooks.delete") == 4


async def test_write_that_is_dropped_warns(client):
    """A write that nobody ran warns as a coroutine does; one that is closed, or became another, does not."""
    with pytest.warns(RuntimeWarning, match="never awaited"):
        create(client)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        create(client).close()
        create(client).keyed("row-1").close()


async def test_closing_a_write_under_way_keeps_its_intent(service, client):
    """close() in flight is a cancellation: what may have left is kept."""
    service.script("webhooks.delete", "hang")
    write = client.with_options(timeout=PATIENT).webhooks.delete(
        service.seed_webhook().id
    )
    task = asyncio.create_task(write.outcome())
    await service.arrived("webhooks.delete")
    await cancelled(task)
    write.close()
    assert [intent.key for intent in client.unsettled] == [write.intent.key]


async def test_client_closed_during_traffic(service):
    """aclose() ends promptly while writes are in flight; they end too, and leave their intents."""
    client = client_of(service, timeout=PATIENT, reconcile=SHORT)
    hooks = [service.seed_webhook().id for _ in range(5)]
    service.script("webhooks.delete", *["hang"] * 5)
    async with client:
        tasks = [
            asyncio.create_task(client.webhooks.delete(hook).outcome())
            for hook in hooks
        ]
        await service.arrived("webhooks.delete", 5)
        async with asyncio.timeout(300):
            await client.aclose()
        async with asyncio.timeout(300):
            await asyncio.gather(*tasks, return_exceptions=True)
        assert len(client.unsettled) == 5


@pytest.mark.parametrize("wait", ["for its rate", "in line"])
async def test_client_closed_while_a_write_waits(service, wait):
    """Nothing of it is in doubt, and it ends at once: refused so far, or never sent."""
    client = client_of(service, reconcile=LONG_WAIT)
    async with client:
        await client.webhooks.list()
        steps = (
            ["429 after 9"] if wait == "for its rate" else ["apply, then reset", "pass"]
        )
        service.script("webhooks.create", *steps)
        limited = create(client).with_policy(LONG_WAIT, wait_when_limited=True)
        if wait == "in line":
            assert (await create(client).outcome()).applied
        task = asyncio.create_task(limited.outcome())
        await asyncio.sleep(0.1)
    async with asyncio.timeout(0.5):
        (ended,) = await asyncio.gather(task, return_exceptions=True)

    assert service.arrivals("webhooks.create") == 1
    if wait == "for its rate":
        assert ended.verdict is Verdict.NOT_APPLIED
    else:
        assert isinstance(ended, ConfigurationError)


async def test_write_in_several_tasks(service, client):
    """Each task has the result, of one run; a task that is cancelled leaves the others theirs."""
    patient = client.with_options(timeout=PATIENT)
    service.script("webhooks.create", "pass", "apply, then hang")
    write = create(patient)
    hooks = await asyncio.gather(*(asyncio.create_task(write) for _ in range(3)))
    assert len({hook.id for hook in hooks}) == 1
    assert (await asyncio.wait_for(write, 30)).id == hooks[0].id

    shared = create(patient, on_lost_secret="keep")
    first, second = asyncio.create_task(shared), asyncio.create_task(shared)
    await service.arrived("webhooks.create", 2)
    await cancelled(first)
    assert (await second).secret is None
    assert service.arrivals("webhooks.create") == 2
    assert shared._runs.by_task == {}


async def test_write_that_times_out_and_is_awaited_again(service, client):
    """A second wait_for finds out what became of what the first one sent."""
    service.script("webhooks.create", "apply, then hang")
    write = create(client.with_options(timeout=PATIENT), on_lost_secret="keep")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(write, 0.1)

    assert (await asyncio.wait_for(write, 30)).secret is None
    assert service.arrivals("webhooks.create") == 1


async def test_write_that_was_closed_or_made_into_another(service, client):
    """It is not sent when it is awaited all the same: closed means never, and its tag is another's now."""
    closed, spent = create(client), create(client, tag=True)
    closed.close()
    other = spent.with_policy(resend="never")
    for write in (closed, spent):
        with pytest.raises(ConfigurationError, match="not sent"):
            await write
    with pytest.raises(ConfigurationError, match="another write was made of it"):
        spent.keyed("row-1")

    assert (await other.outcome()).applied
    assert service.arrivals("webhooks.create") == 1


async def test_write_that_was_handed_to_a_batch(service, client, tmp_path):
    """Awaited beside the batch it is refused: it would be sent twice."""
    write = create(client)
    async with Batch.open(tmp_path / "run.db", client) as batch:
        assert [result.applied async for result in batch.run([write])] == [True]
        with pytest.raises(ConfigurationError, match="handed to a batch"):
            await write
    assert service.arrivals("webhooks.create") == 1


async def test_answer_that_breaks_what_reads_it(service, client, monkeypatch):
    """Whatever goes wrong with an answer, its request was on the wire: the write is settled, not forgotten."""

    def broken(*answer: object, operation: str, **others: object) -> object:
        if operation == "webhooks.delete":
            raise ZeroDivisionError
        return read(*answer, operation=operation, **others)

    hook, read = service.seed_webhook(), envelope.read_success
    # reaches: an error of the package itself, of which none is known
    monkeypatch.setattr("invsvc_async.codec.envelope.read_success", broken)
    outcome = await client.webhooks.delete(hook.id).outcome()

    assert outcome.verdict is Verdict.APPLIED
    assert outcome.evidence.basis == "gone"
    assert service.arrivals("webhooks.delete") == 1
