"""An ``on_secret`` that hangs while its client, batch or outbox is closed."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import (
    ConfigurationError,
    JournalError,
    Outbox,
    SecretLostError,
    Verdict,
)
from invsvc_async.batch import Batch
from invsvc_async.client import options_of
from invsvc_async.transport import under_way
from tests.batch.conftest import HOOK, client_of
from tests.support.waiting import cancel, until

pytestmark = pytest.mark.one_python


class Hook:
    """A hook that never ends, unless it is cancelled."""

    def __init__(self):
        self.begun = asyncio.Event()
        self.calls = 0
        self.cancelled = False

    async def __call__(self, _key, _webhook):
        self.calls += 1
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


@pytest.fixture
def bound(monkeypatch):
    """Give hooks little time."""
    monkeypatch.setattr(under_way, "TO_KEEP_SECRETS", 0.05)


@pytest.mark.parametrize("key", [None, "k"])
async def test_close_of_the_client(service, tmp_path, bound, caplog, key):
    """The close ends; the verdict stands, and whoever awaits the write has the secret, and says so."""
    hook = Hook()
    client = client_of(service, journal=tmp_path / "calls.db", on_secret=hook)
    write = client.webhooks.create(**HOOK)
    writing = asyncio.create_task(
        (write if key is None else write.keyed(key)).outcome()
    )
    await hook.begun.wait()
    async with asyncio.timeout(60):
        await client.aclose()
        outcome = await writing

    assert hook.cancelled
    assert (outcome.verdict, outcome.secret) == (Verdict.APPLIED, "returned")
    assert outcome.value.secret is not None
    assert "on_secret did not end within 0.05 s" in caplog.text
    assert "only who awaits the write has it" in caplog.text
    if key is not None:
        async with client_of(service, journal=tmp_path / "calls.db") as other:
            again = await other.webhooks.create(**HOOK).keyed(key).outcome()
        assert (again.replayed, again.secret) == (True, "not stored")


class Stubborn(Hook):
    """A hook that goes on when it is cancelled, until it is let go."""

    def __init__(self):
        super().__init__()
        self.go_on = asyncio.Event()

    async def until_called(self, many):
        while self.calls < many:
            await self.begun.wait()
            self.begun.clear()

    async def __call__(self, _key, _webhook):
        self.calls += 1
        self.begun.set()
        while not self.go_on.is_set():
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.cancelled = True


@pytest.fixture
def stubborn():
    """Yield a hook that is let go when the test ends, so that a failure is one, and no loop that never ends."""
    hook = Stubborn()
    yield hook
    hook.go_on.set()


@pytest.mark.parametrize("many", [1, 2])
async def test_close_beside_hooks_that_go_on(
    service, tmp_path, bound, caplog, monkeypatch, many, stubborn
):
    """The close ends without them, and says so. The next process settles the writes, which were applied."""
    monkeypatch.setattr(under_way, "TO_BE_CANCELLED", 0.05)
    client = client_of(service, journal=tmp_path / "calls.db", on_secret=stubborn)
    writes = [client.webhooks.create(**HOOK, tag=True) for _ in range(many)]
    writing = [asyncio.create_task(write.outcome()) for write in writes]
    await stubborn.until_called(many)
    async with asyncio.timeout(60):
        await client.aclose()

    assert stubborn.cancelled
    assert f"closed without {many} writes" in caplog.text
    assert not any(each.done() for each in writing)
    stubborn.go_on.set()
    assert {outcome.verdict for outcome in await asyncio.gather(*writing)} == {
        Verdict.APPLIED
    }
    async with client_of(service, journal=tmp_path / "calls.db") as other:
        assert {each.verdict for each in await other.recover()} == {Verdict.APPLIED}
    assert service.arrivals("webhooks.create") == many


@pytest.mark.parametrize("has_key", [False, True])
async def test_close_beside_a_hook_that_goes_on_and_a_write_behind_it(
    service, tmp_path, bound, caplog, monkeypatch, has_key, stubborn
):
    """The write that waits for that of the hook is not sent, and does not hold the close up."""
    monkeypatch.setattr(under_way, "TO_BE_CANCELLED", 0.05)
    client = client_of(service, journal=tmp_path / "calls.db", on_secret=stubborn)
    create = client.webhooks.create(**HOOK, tag=False)
    first = create.keyed("k") if has_key else create
    writing = asyncio.create_task(first.outcome())
    await stubborn.until_called(1)
    behind = asyncio.create_task(
        client.webhooks.create(**HOOK, tag=False, description="second").outcome()
    )
    runs = options_of(client).core.under_way.runs
    await until(lambda: len(runs) == (3 if has_key else 2))
    async with asyncio.timeout(300):
        await client.aclose()
        with pytest.raises(ConfigurationError, match="closed, so this was not sent"):
            await behind

    assert "closed without" in caplog.text
    stubborn.go_on.set()
    await asyncio.wait([writing])
    if has_key:
        with pytest.raises(JournalError, match="its verdict, applied, could not be"):
            writing.result()
    else:
        assert writing.result().applied
    assert service.arrivals("webhooks.create") == 1


async def test_close_before_a_hook_that_goes_on(
    service, bound, caplog, monkeypatch, stubborn
):
    """A hook that begins only while the close waits for its write does not hold the close up."""
    monkeypatch.setattr(under_way, "TO_BE_CANCELLED", 0.05)
    client = client_of(service)
    runs = options_of(client).core.under_way
    is_stored = asyncio.Event()

    async def write():
        await is_stored.wait()  # as for the commit of a verdict
        with runs.hook_ended_after_close():
            await stubborn("k", None)

    writing = asyncio.create_task(runs.tracked(write))
    await asyncio.sleep(0)
    runs.closed = True
    closing = asyncio.create_task(runs.wait_for_runs())
    await asyncio.sleep(0)  # it has looked for hooks
    is_stored.set()
    async with asyncio.timeout(60):
        await closing

    assert stubborn.cancelled
    assert "closed without 1 writes" in caplog.text
    stubborn.go_on.set()
    await asyncio.wait([writing])
    runs.closed = False
    await client.aclose()


async def test_hook_that_begins_once_the_client_is_closed(service, bound):
    """It has the same time."""
    hook = Hook()
    client = client_of(service, on_secret=hook)
    options = options_of(client)

    async with asyncio.timeout(60):
        options.core.under_way.closed = True
        with (
            pytest.raises(TimeoutError),
            options.core.under_way.hook_ended_after_close() as waiting,
        ):
            await hook("k", None)
    assert waiting.has_expired
    options.core.under_way.closed = False
    await client.aclose()


async def test_hook_that_ends_in_time(service, tmp_path):
    """A hook that the close finds at work may end, and the outcome says that it had the secret."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def hook(_key, _webhook):
        begun.set()
        await go_on.wait()

    client = client_of(service, on_secret=hook)
    writing = asyncio.create_task(client.webhooks.create(**HOOK).outcome())
    await begun.wait()
    closing = asyncio.create_task(client.aclose())
    await asyncio.sleep(0.02)  # sleeps: in which it would end without waiting
    assert not closing.done()
    go_on.set()
    await closing
    assert (await writing).secret == "delivered"


async def test_close_of_the_client_of_a_batch(service, tmp_path, bound):
    """The close ends, the hook is not asked again, and the result says that the secret is lost."""
    hook, results = Hook(), []
    client = client_of(service)

    async def run():
        async with Batch.open(tmp_path / "run.db", client, on_secret=hook) as batch:
            results.extend(
                [
                    result
                    async for result in batch.run(
                        [client.webhooks.create(**HOOK).keyed("a")]
                    )
                ]
            )

    running = asyncio.create_task(run())
    await hook.begun.wait()
    async with asyncio.timeout(60):
        await client.aclose()
        await asyncio.wait([running])
    assert (hook.calls, hook.cancelled) == (1, True)
    if not results:  # the run ended with its client
        async with (
            client_of(service) as other,
            Batch.open(tmp_path / "run.db", other) as batch,
        ):
            results.extend([result async for result in batch.run()])
    [result] = results
    assert (result.verdict, result.secret) == (Verdict.APPLIED, "lost")
    assert service.arrivals("webhooks.create") == 1


async def test_stop_of_a_batch(service, client, tmp_path):
    """A run that is left cancels the hook; the next one settles the write, and says that the secret is lost."""
    hook = Hook()

    async def run():
        async with Batch.open(tmp_path / "run.db", client, on_secret=hook) as batch:
            async for _ in batch.run([client.webhooks.create(**HOOK).keyed("a")]):
                pass

    running = asyncio.create_task(run())
    await hook.begun.wait()
    async with asyncio.timeout(60):
        await cancel(running)
    assert hook.cancelled
    async with Batch.open(tmp_path / "run.db", client) as batch:
        [result] = [result async for result in batch.run()]
    assert (result.verdict, result.secret) == (Verdict.APPLIED, "lost")
    assert service.arrivals("webhooks.create") == 1


async def test_close_of_the_client_of_an_outbox(service, tmp_path, bound):
    """The stored verdict says that the secret is lost."""
    hook = Hook()
    client = client_of(service)
    async with (
        Outbox.open(tmp_path / "app.db", client, on_secret=hook) as outbox,
        outbox.dispatching(),
    ):
        sending = asyncio.create_task(
            outbox.send(client.webhooks.create(**HOOK).keyed("a"))
        )
        await hook.begun.wait()
        async with asyncio.timeout(60):
            await client.aclose()
            with pytest.raises(SecretLostError):
                await sending
    assert (hook.calls, hook.cancelled) == (1, True)
