"""How a run of a batch ends: stopped, cancelled, dropped, failed; and what it leaves behind."""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
from contextlib import suppress
from functools import partial
from weakref import WeakSet

import pytest

from invsvc_async import (
    BatchStoppedError,
    ConfigurationError,
    InvalidRequestError,
    JournalError,
    Timeouts,
    Verdict,
)
from invsvc_async.batch import Batch, item_driver
from invsvc_async.batch.engine import Engine
from invsvc_async.batch.intake import AT_ONCE
from invsvc_async.batch.item import Item
from invsvc_async.batch.sending import Sending
from invsvc_async.durable.entry import Entry, LostEntryError, State
from tests.batch.conftest import HOOK, client_of
from tests.batch.writing import SECRETS, all_of, creates, made_once, run_all
from tests.support.power_cut import check_that_lasts
from tests.support.waiting import cancel, forever

pytestmark = pytest.mark.every_python


async def test_what_is_no_write_is_refused(client, path):
    """The words say what it is."""
    with pytest.raises(InvalidRequestError, match="must be a write, not a int"):
        await run_all(path, client, [7])


async def test_input_that_fails_while_writes_are_in_flight(service, client, journal):
    """They end first: their answers have secrets, which no read would show again."""
    service.script("webhooks.create", *["apply, then slow 0.5"] * 20)
    secrets = []

    async def source():
        for write in creates(client, 20):
            yield write
        await service.arrived("webhooks.create")
        raise LookupError("no more")

    async with Batch.open(
        journal, client, on_secret=lambda key, _: secrets.append(key)
    ) as batch:
        with pytest.raises(LookupError, match="no more"):
            await all_of(batch, source())
        await all_of(batch)
        assert (await batch.summary()).secrets_lost == 0
    assert len(secrets) == len(service.ledger.effects("webhooks.create"))


class Endless:
    """An input without an end, which counts the writes that it has given."""

    def __init__(self, client):
        self.client, self.given = client, 0

    def __iter__(self):
        for self.given in itertools.count(1):
            yield self.client.webhooks.create(**HOOK).keyed(f"k{self.given}")

    async def awaited(self):
        """Yield the same asynchronously."""
        for write in self:
            yield write


async def test_stopped_run_reads_no_further(service, client, path):
    """While the last answer is awaited, an endless input is not read on: nothing of it will be sent."""
    service.script("webhooks.create", "apply, then slow 1.0", "400")
    source = Endless(client)
    with pytest.raises(BatchStoppedError):
        await run_all(path, client, iter(source), concurrency=4, stop_after=1)
    assert source.given < 5 * AT_ONCE


async def test_stopped_run_says_what_it_left(service, client, path):
    """Stopped, a run lets what is under way end within the time given, and the next one does the rest."""
    service.latency = 0.05
    async with Batch.open(path, client, concurrency=2) as batch:
        first = []
        async for result in batch.run(creates(client, 20)):
            first.append(result)
            if len(first) == 2:
                stopping = asyncio.create_task(batch.stop(grace=5.0))
        await stopping
        rest = await all_of(batch, creates(client, 20))
    assert 2 <= len(first) <= 6
    assert (len(first) + len(rest), service.arrivals("webhooks.create")) == (20, 20)


async def test_cancelled_run_shelves_at_once(service, path):
    """A cancelled consumer leaves promptly; what was in flight is in the journal and in `client.unsettled`."""
    service.script("webhooks.create", *["hang"] * 4)
    async with (
        client_of(service, timeout=Timeouts(attempt=600.0)) as client,
        Batch.open(path, client, concurrency=4) as batch,
    ):
        running = asyncio.create_task(all_of(batch, creates(client, 4)))
        await service.arrived("webhooks.create", 4)
        running.cancel()
        await asyncio.wait([running], timeout=300)  # half of what the attempts have
        assert running.cancelled()
        summary = await batch.summary()
    assert (summary.sending, len(client.unsettled)) == (4, 4)


async def test_cancelled_run_whose_source_is_ahead(service, client, path, recwarn):
    """The write that its queue had no place for is not said to be forgotten, either."""
    service.script("webhooks.create", *["hang"] * 4)
    source, before = Endless(client), -1
    async with Batch.open(path, client, concurrency=4) as batch:
        running = asyncio.create_task(all_of(batch, source.awaited()))
        while source.given != before or not service.arrivals("webhooks.create"):
            before = source.given
            await asyncio.sleep(0.05)  # sleeps: in which it would ask for more
        await cancel(running)
    gc.collect()
    assert not [each for each in recwarn if "never awaited" in str(each.message)]


@pytest.mark.parametrize("goes_on", [True, False])
async def test_source_that_survives_its_cancellation(service, client, path, goes_on):
    """Nothing reads it once the batch is closed, whether it has more writes or only ends late."""
    service.script("webhooks.create", "hang")
    is_read = False

    async def source():
        nonlocal is_read
        for _ in range(3 if goes_on else 1):
            yield client.webhooks.create(**HOOK)
            is_read = True
            with suppress(asyncio.CancelledError):
                await forever()
            await asyncio.sleep(0.1)  # sleeps: it ends late
            is_read = False

    async with asyncio.timeout(300), Batch.open(path, client) as batch:
        running = asyncio.create_task(all_of(batch, source()))
        await service.arrived("webhooks.create")
        await cancel(running)
    assert not is_read


async def test_full_disk_ends_the_run_with_nothing_sent_unstored(service, client, path):
    """When nothing can be stored any more the run ends in words, and what was not stored was not sent."""
    async with Batch.open(path, client) as batch:
        await all_of(batch, creates(client, 2))
        [(pages,)] = await batch.entries.store.rows("PRAGMA page_count")
        await batch.entries.store.rows(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(JournalError, match="disk is full"):
            await all_of(batch, creates(client, 300, start=2))
        await batch.entries.store.rows("PRAGMA max_page_count = 1000000")
        stored = (await batch.summary()).total
        arrived = service.arrivals("webhooks.create")
        assert arrived <= stored
        await all_of(batch, creates(client, 302))
        assert (await batch.summary()).verdicts == {Verdict.APPLIED: 302}
    assert made_once(service) == 302


async def test_run_that_fails_is_over_before_its_error_is_seen(
    service, client, path, monkeypatch
):
    """What ends while a failed run is being stopped is given before the error; after it the next run may begin."""

    def disk_is_full(key, _hook):
        if key == "row-0":
            raise OSError("no room")

    stop = Engine.stop

    async def stop_late(engine, grace):
        """Delay the stop until everything under way has ended: an order that once occurred by chance."""
        if engine.open_work.tasks:
            await asyncio.wait(engine.open_work.tasks)
        await stop(engine, grace)

    # reaches: an order of two ends that chance seldom makes
    monkeypatch.setattr(Engine, "stop", stop_late)
    async with Batch.open(path, client, concurrency=4, on_secret=disk_is_full) as batch:
        came = []
        with pytest.raises(OSError, match="no room"):
            async for result in batch.run(creates(client, 3)):
                came.append(result.key)  # noqa: PERF401 - what came before the error counts
        again = await all_of(batch, creates(client, 3))
    assert sorted(came) == ["row-1", "row-2"]
    assert [result.key for result in again] == ["row-0"]


@pytest.fixture
def storing(monkeypatch):
    """Return what lets *act* store the verdicts of a batch, in place of its journal; it is given what the journal does."""

    def replace(batch, act):
        put, ended = batch.entries.store.put, asyncio.Event()

        def stored(entry, *more):
            if entry.state is not State.DONE:
                return put(entry, *more)
            ended.set()
            return asyncio.ensure_future(act(lambda: put(entry, *more)))

        monkeypatch.setattr(batch.entries.store, "put", stored)
        return ended.wait

    return replace


async def test_stop_waits_for_what_is_being_stored(client, path, storing):
    """What has ended when a run is stopped is stored as done, though no time was given, and counts as done."""

    async def later(store):
        await asyncio.sleep(0.05)  # sleeps: longer than the stop takes by itself
        await store()

    async with Batch.open(path, client) as batch:
        ended = storing(batch, later)
        waiting = asyncio.ensure_future(anext(batch.run(creates(client, 1))))
        await ended()
        await batch.stop(0)
        assert (await waiting).applied
        assert (await batch.summary()).verdicts == {Verdict.APPLIED: 1}


async def test_stop_waits_for_no_journal_that_hangs(
    service, client, path, monkeypatch, storing
):
    """A run whose journal answers no more ends in bounded time; what it did is settled by the next, not sent again."""
    monkeypatch.setattr("invsvc_async.batch.open_work._TO_STORE", 0.05)
    async with Batch.open(path, client) as batch:
        ended = storing(batch, lambda _: asyncio.Event().wait())
        waiting = asyncio.ensure_future(anext(batch.run(creates(client, 1))))
        await ended()
        async with asyncio.timeout(300):
            await batch.stop(0)
            with pytest.raises(StopAsyncIteration):
                await waiting
        monkeypatch.undo()
        again = await all_of(batch, creates(client, 1))
    assert [(result.verdict, result.reads) for result in again] == [
        (Verdict.APPLIED, 1)
    ]
    assert service.arrivals("webhooks.create") == 1


async def test_result_that_cannot_be_stored(client, path, storing):
    """The run fails with the journal's error, and the intent of what it did is in the client's hands."""

    async def full(_):
        raise JournalError("the disk is full")

    async with Batch.open(path, client) as batch:
        storing(batch, full)
        with pytest.raises(JournalError, match="full"):
            await all_of(batch, creates(client, 1))
        [intent] = client.unsettled
        assert (await client.settle(intent)).applied


async def test_end_that_is_cancelled(service, client, path):
    """However often it is cancelled, what is under way ends first, and then the journal is closed."""
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def keep(_key, _webhook):
        begun.set()
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await may_end.wait()

    using = asyncio.create_task(
        run_all(path, client, creates(client, 1), on_secret=keep)
    )
    await begun.wait()
    for _ in range(3):  # of the run, of its stop, and of the batch's
        using.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
    assert not using.done()
    may_end.set()
    await asyncio.wait([using])
    assert using.cancelled()
    async with Batch.open(path, client) as batch:
        await all_of(batch, creates(client, 1))
        assert (await batch.summary()).verdicts == {Verdict.APPLIED: 1}
    assert service.arrivals("webhooks.create") == 1


async def test_opening_that_is_cancelled(client, path, monkeypatch):
    """The journal is closed, so that it can be opened again."""
    await run_all(path, client)
    async with check_that_lasts(monkeypatch, path) as begun:
        opening = asyncio.create_task(Batch.open(path, client).__aenter__())
        await begun()
        opening.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([opening])
    assert opening.cancelled()
    async with Batch.open(path, client) as batch:
        assert (await batch.summary()).total == 0


async def test_second_run_at_once_is_refused(service, client, path):
    """One batch runs one input at a time."""
    async with Batch.open(path, client) as batch:
        async for _ in batch.run(creates(client, 2)):
            with pytest.raises(ConfigurationError, match="under way"):
                batch.run()
            break


async def test_worker_beside_a_run_of_the_same_batch_is_refused(client, shared):
    """It would end the run, whose results would seem to be all there are."""
    async with Batch.open(shared, client, **SECRETS, concurrency=2) as batch:
        keys = []
        async for result in batch.run(creates(client, 30)):
            with pytest.raises(
                ConfigurationError, match="work: a run of this batch is under way"
            ):
                batch.work()
            keys.append(result.key)
    assert len(keys) == 30


async def test_run_that_is_dropped_leaves_nothing_behind(service, client, path):
    """A run whose results are not taken to the end is ended with the batch, without a warning."""
    async with Batch.open(path, client, concurrency=2) as batch:
        async for _ in batch.run(creates(client, 50)):
            break
    gc.collect()
    left = [
        task
        for task in asyncio.all_tasks()
        if "/batch/" in task.get_coro().cr_code.co_filename
    ]
    assert [task for task in left if task is not asyncio.current_task()] == []


@pytest.mark.no_secret_scan
async def test_what_is_done_is_freed_at_once(service, client, journal):
    """Nothing of a write that is done waits for a collection of garbage."""
    written = WeakSet()

    def source():
        for write in creates(client, 50):
            written.add(write._spec.request)
            yield write

    async with Batch.open(journal, client) as batch:
        gc.collect()
        gc.disable()
        try:
            results = await all_of(batch, source())
            count = len(results)
            del results
            await asyncio.sleep(0)
            left = len(written)
        finally:
            gc.enable()
    assert (count, left) == (50, 0)


@pytest.mark.parametrize("step", ["pass", "apply, then hang"])
async def test_client_that_is_closed_too_early(service, path, step):
    """No write is used up. Each is applied once by the next run, also the one that was in flight."""
    hooks = [service.seed_webhook().id for _ in range(40)]

    def updates(client):
        return [client.webhooks.update(hook, description="x") for hook in hooks]

    closed = client_of(service)
    async with Batch.open(path, closed, concurrency=2) as batch:
        results = batch.run(updates(closed))
        service.script("webhooks.update", "pass", step)
        await anext(results)
        await service.arrived("webhooks.update", 2)
        await closed.aclose()
        with pytest.raises(BatchStoppedError, match="client: it was closed"):
            while True:
                assert (await anext(results)).verdict is Verdict.APPLIED
    async with client_of(service) as client, Batch.open(path, client) as batch:
        await all_of(batch, updates(client))
        assert (await batch.summary()).verdicts == {Verdict.APPLIED: 40}
    assert len(service.ledger.effects("webhooks.update")) == 40


async def test_callback_that_is_cancelled_by_itself(service, client, path):
    """The run ends and says so; it does not wait for ever for an item that nobody works on."""

    def secret(key, _webhook):
        if key == "row-1":
            raise asyncio.CancelledError

    async with asyncio.timeout(300):
        with pytest.raises(ConfigurationError, match="a callback was cancelled"):
            await run_all(path, client, creates(client, 4), on_secret=secret)
        async with Batch.open(path, client) as batch:
            await all_of(batch, creates(client, 4))
            assert (await batch.summary()).verdicts == {Verdict.APPLIED: 4}
    assert len(service.ledger.effects("webhooks.create")) == 4


@pytest.mark.parametrize(
    "settings",
    [
        {"concurrency": 0},
        {"concurrency": "many"},
        {"rate": 0},
        {"rate": -1.0},
        {"rate": "2"},
        {"on_secret": "secrets.jsonl"},
        {"on_progress": 5},
        {"on_progress": partial(asyncio.sleep, 0)},
        *({"stop_after": limit} for limit in (0, -1, 1.0, 0.0, True, "5")),
    ],
)
def test_settings_that_cannot_work(path, client, settings):
    """
    A concurrency below one, a rate that is not positive, or a callback that is none or cannot be awaited, is refused.

    So is a limit of failures that is neither a number of writes nor a share.
    """
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        Batch.open(path, client, **settings)


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="tasks that begin at once are new in 3.12"
)
async def test_tasks_that_begin_at_once(service, client, path, monkeypatch):
    """A loop that runs each task as it is made changes nothing, be it over before it is known."""
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)

    class Lost:
        async def drive(self):
            raise LostEntryError("another worker has it")

    new_run = item_driver.new_run
    # reaches: a run whose lane was lost before it began
    monkeypatch.setattr(
        item_driver,
        "new_run",
        lambda spec, intent: spec if isinstance(spec, Lost) else new_run(spec, intent),
    )
    engine = Engine(Sending(client=client, concurrency=1, rate=None))
    write = client.webhooks.update("wh_1", description="x")
    entry = Entry(key="a", seq=1, state=State.TO_DO, operation="webhooks.update")
    engine.add(
        Item(engine=engine, lane=None, entry=entry, intent=write.intent, spec=Lost())
    )
    write.close()
    engine.feeding.start(asyncio.sleep(0))
    async with asyncio.timeout(300):
        assert await engine.next_finished() is None
        async with Batch.open(path, client, concurrency=3) as batch:
            results = [result async for result in batch.run(creates(client, 20))]
    assert [result.verdict for result in results] == ["applied"] * 20
    assert service.arrivals("webhooks.create") == 20
