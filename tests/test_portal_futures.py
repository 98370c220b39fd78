"""What threads submit to a portal: a future for each awaitable, and what becomes of it when the portal ends."""

from __future__ import annotations

import asyncio
import contextvars
import multiprocessing
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed

import pytest

from invsvc_async import (
    ApiKey,
    Client,
    ConfigurationError,
    NotFoundError,
    Portal,
    ReconcilePolicy,
    TokenProvider,
    Verdict,
)
from invsvc_async.testing import serving
from tests.support.waiting import forever

pytestmark = pytest.mark.filterwarnings("error")

HOOK = {"url": "https://me.example/in", "events": ["invoice.created"]}
CALLER = contextvars.ContextVar("CALLER", default="nobody")
LONG = 60.0  # s that nothing here takes


@pytest.fixture
def service():
    with serving() as running:
        yield running


def made(service, **settings):
    policy = ReconcilePolicy(settle_after_error=0.05, settle_after_loss=0.2)
    return lambda: Client(
        service.base_url, ApiKey(service.api_key), reconcile=policy, **settings
    )


@pytest.fixture
def portal(service):
    with Portal(made(service)) as opened:
        yield opened


def test_writes_that_are_submitted(portal, service):
    """They are under way together; each future has its own outcome, and each write one effect."""
    barrier = asyncio.Barrier(20)

    async def created(number):
        await barrier.wait()
        url = f"https://me.example/{number}"
        write = portal.client.webhooks.create(url=url, events=["invoice.created"])
        return await write.outcome()

    futures = [portal.submit(created(number)) for number in range(20)]
    outcomes = [future.result(LONG) for future in as_completed(futures, LONG)]

    assert {outcome.verdict for outcome in outcomes} == {Verdict.APPLIED}
    assert len({entry.target for entry in service.ledger.effects()}) == 20


def test_order_of_what_is_submitted(portal, service):
    """Updates of one journey take effect in the order in which they were submitted."""
    names = [f"Name {number}" for number in range(20)]
    futures = [
        portal.submit(portal.client.journeys.update("jrn_1", name=name))
        for name in names
    ]
    assert [future.result(LONG).name for future in futures] == names
    assert [entry.body["name"] for entry in service.ledger.effects()] == names


def test_error_of_what_is_submitted(portal):
    """The future has it, also if it would end the loop; the portal goes on."""

    async def leaves():
        raise SystemExit(3)

    with pytest.raises(NotFoundError):
        portal.submit(portal.client.journeys.get("nowhere")).result(LONG)
    with pytest.raises(SystemExit):
        portal.submit(leaves()).result(LONG)
    assert portal.call(portal.client.journeys.get("jrn_1")).id == "jrn_1"


def test_context_of_who_submits(portal):
    """It sees the context variables of the thread that submits it."""

    async def who():
        return CALLER.get()

    CALLER.set("main")
    assert portal.submit(who()).result(LONG) == "main"
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: portal.submit(who()).result(LONG)).result() == (
            "nobody"
        )


def test_future_that_is_cancelled(portal):
    """What it is of is cancelled in the loop."""
    begun = threading.Event()
    cancelled = threading.Event()

    async def hangs():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    future = portal.submit(hangs())
    assert begun.wait(LONG)
    assert future.cancel()
    assert cancelled.wait(LONG)
    with pytest.raises(CancelledError):
        future.result(LONG)


def test_future_that_is_cancelled_before_it_begins(portal, service):
    """Nothing of it is sent, and Python does not warn of a write that was not awaited."""
    blocked = threading.Event()

    async def block():
        blocked.wait(LONG)

    first = portal.submit(block())
    second = portal.submit(portal.client.journeys.update("jrn_1", name="No"))
    assert second.cancel()
    blocked.set()
    first.result(LONG)
    portal.call(portal.client.journeys.get("jrn_1"))
    assert not service.ledger.effects()


def test_what_ends_by_its_own_cancellation(portal):
    """The future has that as its error."""

    async def ends():
        raise asyncio.CancelledError

    with pytest.raises((CancelledError, asyncio.CancelledError)):
        portal.submit(ends()).result(LONG)


def test_end_of_the_portal(service):
    """A write under way has its verdict by then; all else has an error in words, and no future stays open."""

    async def hangs():
        await asyncio.Event().wait()

    service.script("webhooks.create", "apply, then hang")
    with Portal(made(service)) as portal:
        write = portal.submit(portal.client.webhooks.create(**HOOK).outcome())
        other = portal.submit(hangs())
        portal.call(service_has(service, 1))
    assert write.result(0).verdict is Verdict.UNKNOWN
    with pytest.raises(
        ConfigurationError, match=r"it ended during this call\. What may have been sent"
    ):
        other.result(0)
    with pytest.raises(ConfigurationError, match="it has ended"):
        portal.submit(hangs())


async def service_has(service, many):
    while service.arrivals("webhooks.create") < many:  # noqa: ASYNC110 - of another loop
        # sleeps: the service is in another loop
        await asyncio.sleep(0.01)


def test_submitting_to_a_portal_that_was_not_entered():
    """It is refused in words."""

    async def nothing():
        """Return at once."""

    with pytest.raises(ConfigurationError, match="it was not entered"):
        Portal(lambda: Client("http://127.0.0.1:1/v2", ApiKey("k"))).submit(nothing())


def _open_and_leave(base_url, api_key, journal):
    Portal(lambda: Client(base_url, ApiKey(api_key), journal=journal)).__enter__()


@pytest.mark.filterwarnings("default::DeprecationWarning")  # of a fork with threads
def test_portal_in_a_child_of_multiprocessing(service, tmp_path):
    """Such a process ends without ``atexit``; the client is closed all the same, and its journal."""
    journal = tmp_path / "calls.db"
    child = multiprocessing.get_context("fork").Process(
        target=_open_and_leave, args=(service.base_url, service.api_key, journal)
    )
    child.start()
    child.join(LONG)

    assert child.exitcode == 0
    assert [each.name for each in tmp_path.glob("calls.db-*")] == []


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("waits", [True, False])
def test_exit_in_a_task_of_the_client(service, error, waits):
    """It ends the loop; nothing waits for the end of the portal, and the errors have it as their cause."""

    async def source():
        raise error("no token in the vault")

    def make():
        return Client(service.base_url, TokenProvider(source, kind="api_key"))

    portal = Portal(make).__enter__()
    reading = portal.client.journeys.get("jrn_1")
    with pytest.raises(ConfigurationError, match="it ended during this call") as caught:
        if waits:
            portal.call(reading)
        else:
            portal.submit(reading).result(LONG)
    assert isinstance(caught.value.__cause__, error)
    with pytest.raises(ConfigurationError, match="it ended during this call") as caught:
        portal.__exit__(None, None, None)
    assert isinstance(caught.value.__cause__, error)


def test_loop_that_dies(service):
    """What was submitted does not wait for the end of the portal."""

    async def die():
        asyncio.get_running_loop().stop()
        await forever()

    portal = Portal(made(service)).__enter__()
    waiting = portal.submit(die())
    with pytest.raises(ConfigurationError, match="it ended during this call"):
        waiting.result(LONG)
    with pytest.raises(ConfigurationError, match="it has ended"):
        portal.submit(forever()).result(LONG)
    with pytest.raises(ConfigurationError, match="it ended during this call"):
        portal.__exit__(None, None, None)


def test_end_of_the_portal_while_its_loop_ends(service):
    """What the loop's end cancels ends by itself, and is not cut off."""
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    async def end_slowly():
        try:
            await forever()
        finally:
            begun.set()
            await asyncio.to_thread(may_end.wait, LONG)
            ended.set()

    async def exit_in_a_task():
        async def leave():
            raise SystemExit

        await asyncio.gather(leave(), forever())

    portal = Portal(made(service)).__enter__()
    portal.submit(end_slowly())
    portal.submit(exit_in_a_task())
    assert begun.wait(LONG)
    threading.Timer(0.2, may_end.set).start()
    with pytest.raises(ConfigurationError, match="it ended during this call"):
        portal.__exit__(None, None, None)
    assert ended.is_set()
