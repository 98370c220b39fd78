"""Writes that get their verdict at the moment at which the thread that waits for them is interrupted."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from invsvc_async import ApiKey, Client, Portal, Verdict
from invsvc_async.concurrency.loop_thread import LoopThread
from invsvc_async.testing import serving
from invsvc_async.writes.run_journal import RunJournal

pytestmark = [
    pytest.mark.filterwarnings("error"),
    pytest.mark.skipif(
        not hasattr(signal, "SIGUSR1"), reason="Windows has no such signals"
    ),
]

HOOK = {"url": "https://me.example/in", "events": ["invoice.created"]}
LONG = 60.0  # s that nothing here takes


class TimeLimitError(Exception):
    """What a task queue raises in the thread of a task."""


@pytest.fixture
def service():
    with serving() as running:
        yield running


@pytest.fixture
def limit(monkeypatch):
    """Return what raises ``TimeLimitError`` in the main thread, and waits until that has cancelled its call."""
    soon, is_cancelled = LoopThread.soon, threading.Event()

    def noted(running, step):
        soon(running, step)
        if getattr(step, "__name__", "") == "cancel":
            is_cancelled.set()

    # reaches: nothing tells that the main thread has asked for the cancellation
    monkeypatch.setattr(LoopThread, "soon", noted)

    def raise_it(*_):
        raise TimeLimitError

    before = signal.signal(signal.SIGUSR1, raise_it)

    def interrupt():
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
        assert is_cancelled.wait(300)

    yield interrupt
    signal.signal(signal.SIGUSR1, before)


class Once:
    """Calls *function*, once, when the next write has its verdict: just before the task of the write ends."""

    def __init__(self, function):
        self.function = function

    def __call__(self, report):
        function = self.function
        if report.decision == "done" and function is not None:
            self.function = None
            function()


@pytest.fixture
def limit_once_stored(monkeypatch, limit):
    """Interrupt the main thread once the journal has stored a verdict."""
    settled = RunJournal.settled
    interrupts = [limit]

    async def and_interrupt(journal, outcome):
        await settled(journal, outcome)
        if interrupts:
            interrupts.pop()()

    # reaches: the moment between the store of a verdict and the end of its task
    monkeypatch.setattr(RunJournal, "settled", and_interrupt)


def portal_of(service, function, **settings):
    return Portal(
        lambda: Client(
            service.base_url,
            ApiKey(service.api_key),
            on_decision=Once(function),
            **settings,
        )
    )


def itself(write):
    return write


def outcome_of(write):
    return write.outcome()


@pytest.mark.parametrize("awaited", [itself, outcome_of])
def test_interrupted_call(service, limit, awaited):
    """The intent is there when the interrupt is raised; settled, it has the verdict, with the secret."""
    with portal_of(service, limit) as portal:
        client = portal.client
        write = client.webhooks.create(**HOOK)
        with pytest.raises(TimeLimitError):
            portal.call(awaited(write))
        assert len(service.ledger.effects("webhooks.create")) == 1
        (intent,) = client.unsettled
        reads = len(service.ledger.reads)
        settled = portal.call(client.settle(intent))

        assert settled.verdict is Verdict.APPLIED
        assert settled.secret == "returned"
        assert settled.value.secret is not None
        assert client.unsettled == ()
        assert len(service.ledger.reads) == reads


def test_interrupted_write_that_is_awaited_again(service, limit):
    """It has its result, and leaves nothing open."""
    with portal_of(service, limit) as portal:
        write = portal.client.webhooks.create(**HOOK)
        with pytest.raises(TimeLimitError):
            portal.call(write)
        assert portal.call(write).secret is not None
        portal.call(portal.client.webhooks.health())  # it is noted by then
        assert portal.client.unsettled == ()


def test_interrupted_write_that_was_refused(service, limit):
    """Nothing happened, so nothing is left."""
    with portal_of(service, limit) as portal:
        with pytest.raises(TimeLimitError):
            portal.call(portal.client.journeys.update("jrn_none", name="May"))
        assert portal.client.unsettled == ()


def test_future_that_is_cancelled(service):
    """As an interrupted call."""
    futures = []

    def cancel():
        while not futures:
            time.sleep(0.01)  # sleeps: a future is cancelled meanwhile
        assert futures[0].cancel()

    with portal_of(service, cancel) as portal:
        client = portal.client
        futures.append(portal.submit(client.webhooks.create(**HOOK)))
        while not futures[0].cancelled():
            time.sleep(0.01)  # sleeps: a future is cancelled meanwhile
        portal.call(client.webhooks.health())  # the write has ended by then
        (intent,) = client.unsettled
        assert portal.call(client.settle(intent)).secret == "returned"
        assert client.unsettled == ()


@pytest.mark.usefixtures("limit_once_stored")
def test_interrupted_call_with_a_journal(service, tmp_path):
    """The verdict stays in the journal, and the next process gets it."""
    place = tmp_path / "calls.db"
    with portal_of(service, None, journal=place) as portal:
        with pytest.raises(TimeLimitError):
            portal.call(portal.client.journeys.update("jrn_1", name="May"))
        time.sleep(0.3)  # sleeps: until what was heard would be noted
    with portal_of(service, None, journal=place) as portal:
        (found,) = portal.call(portal.client.recover())
        assert found.verdict is Verdict.APPLIED


@pytest.mark.usefixtures("limit_once_stored")
def test_interrupted_call_with_a_key(service, tmp_path):
    """The next run says that nobody has the secret."""
    place = tmp_path / "calls.db"
    with portal_of(service, None, journal=place) as portal:
        with pytest.raises(TimeLimitError):
            portal.call(portal.client.webhooks.create(**HOOK).keyed("order-17"))
        time.sleep(0.3)  # sleeps: until what was heard would be noted
    with portal_of(service, None, journal=place) as portal:
        write = portal.client.webhooks.create(**HOOK).keyed("order-17")
        again = portal.call(write.outcome())
    assert again.replayed
    assert again.secret == "lost"
    assert len(service.ledger.effects("webhooks.create")) == 1
