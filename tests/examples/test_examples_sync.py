"""The examples for code without async: one loop and one client for all threads of a process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from examples.shop import Shop
from examples.sync_script import Invoicing
from invsvc_async import Verdict

pytestmark = pytest.mark.untraced

ROOT = Path(__file__).parents[2]


@pytest.fixture
def invoicing(service):
    started = Invoicing()
    started.start()
    yield started
    started.stop()


def test_worker_with_many_threads(invoicing, service):
    """Writes of twenty threads go through one client: each once, and those to one journey in turn."""
    journeys = [service.seed_journey()["id"] for _ in range(5)]
    work = [(journeys[n % 5], f"Name {n}") for n in range(40)]

    with ThreadPoolExecutor(20) as pool:
        outcomes = list(pool.map(lambda each: invoicing.rename(*each), work))

    assert {outcome.verdict for outcome in outcomes} == {Verdict.APPLIED}
    assert service.arrivals("journeys.update") == len(service.ledger.effects("journeys.update")) == 40
    last = {entry.target: entry.body["name"] for entry in service.ledger.effects("journeys.update")}
    assert {each: invoicing.journey(each).name for each in journeys} == last
    assert sum(thread.name.startswith("AnyIO") for thread in threading.enumerate()) <= 1


def test_worker_that_loses_an_answer(invoicing, service):
    """The calling thread waits until the write is settled, and gets the verdict of the ledger."""
    service.script("journeys.update", "apply, then reset")
    outcome = invoicing.rename("jrn_1", "May")

    assert outcome.verdict is Verdict.APPLIED
    assert len(service.ledger.effects("journeys.update")) == 1


async def test_outbox_in_the_thread(service, address):
    """What the portal opens beside the client sends what a synchronous caller has committed."""

    def register():
        opened = Shop()
        with (
            start_blocking_portal() as portal,
            portal.wrap_async_context_manager(opened.running()),
        ):
            portal.call(opened.register, "ana")
            return portal.call(verdict_of, opened)

    assert await asyncio.to_thread(register) == "applied"
    assert len(service.ledger.effects("webhooks.create")) == 1


async def verdict_of(opened):
    async with asyncio.timeout(60):
        while (verdict := await opened.pool.fetchval("SELECT verdict FROM customers")) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return verdict


class TimeLimitError(Exception):
    """As a worker raises it in its main thread."""


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="Windows has no such signals")
def test_worker_that_is_interrupted(invoicing, service):
    """The write is cancelled, and its intent is kept: the next one does not wait for it, or make a second one."""

    def limit(*_: object) -> None:
        raise TimeLimitError

    def interrupt() -> None:
        while not service.arrivals("journeys.update"):
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    service.script("journeys.update", "hang")
    before = signal.signal(signal.SIGUSR1, limit)
    waiting = threading.Thread(target=interrupt, daemon=True)
    try:
        waiting.start()
        with pytest.raises(TimeLimitError):
            invoicing.rename("jrn_1", "May")
        (intent,) = invoicing.unsettled()  # at once, before anybody writes again
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert (intent.operation, intent.body) == ("journeys.update", {"name": "May"})


def test_worker_that_is_interrupted_as_its_write_begins(invoicing, service, monkeypatch):
    """The write is cancelled, and its intent is kept, though the loop had not yet told that it runs."""
    start = invoicing._portal.start_task_soon

    def interrupted(*arguments):
        monkeypatch.setattr(invoicing._portal, "start_task_soon", start)
        start(*arguments)
        while not service.arrivals("journeys.update"):
            time.sleep(0.01)
        raise TimeLimitError

    service.script("journeys.update", "hang")
    monkeypatch.setattr(invoicing._portal, "start_task_soon", interrupted)
    with pytest.raises(TimeLimitError):
        invoicing.rename("jrn_1", "May")

    assert [intent.operation for intent in invoicing.unsettled()] == ["journeys.update"]


def test_script(service):
    """It prints the verdict and ends with 0; a refusal ends with 1."""

    def run(journey):
        return subprocess.run(  # noqa: S603
            [sys.executable, "-W", "error", str(ROOT / "examples/sync_script.py"), journey, "June"],
            capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    assert (run("jrn_1").stdout, run("jrn_1").returncode) == ("applied June\n", 0)
    assert run("nowhere").returncode == 1


def test_process_that_does_not_stop_it(service):
    """The end of the process closes what it started."""
    code = "from examples.sync_script import service; service.start(); print(service.journey('jrn_1').id)"
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "jrn_1\n", "")


def test_django_view(service, invoicing, monkeypatch):
    """The views answer the model and the verdict."""
    pytest.importorskip("django", reason="Django is not installed")
    from django.conf import settings
    from django.test import RequestFactory

    if not settings.configured:
        settings.configure(DEFAULT_CHARSET="utf-8", ALLOWED_HOSTS=["*"])
    from examples import django_view

    monkeypatch.setattr(django_view, "service", invoicing)
    made = RequestFactory()

    shown = django_view.show(made.get("/"), "jrn_1")
    renamed = django_view.rename(made.post("/", {"name": "July"}), "jrn_1")
    missing = django_view.show(made.get("/"), "nowhere")

    assert json.loads(shown.content)["id"] == "jrn_1"
    assert (renamed.status_code, json.loads(renamed.content)["verdict"]) == (200, "applied")
    assert (missing.status_code, json.loads(missing.content)) == (404, {"error": "resource_not_found"})
