"""A worker of Celery with a broker, which is stopped: its processes leave the journal."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.engines.programs import program_of
from tests.support.database import connected, database, schema_of
from tests.support.free_port import free_port
from tests.support.waiting import block_until

pytest.importorskip("celery", reason="celery is not installed")

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(
        shutil.which("redis-server") is None, reason="there is no redis-server"
    ),
]

NAME = "celery_worker"
ORDERS = ("order-17", "order-18", "order-17")  # one of them twice
SUBMIT = f"""
import sys, tasks
tasks.app.conf.broker_url = sys.argv[1]
for order in {ORDERS}:
    tasks.register.apply_async(("https://me.example/" + order,), task_id=order)
"""


@contextmanager
def running(*command, folder):
    """Run a program until the block ends."""
    with (folder / "log").open("a") as log:
        child = subprocess.Popen(  # noqa: S603 - Redis, or Celery with the page's program
            command, cwd=folder, stdout=log, stderr=log
        )
    try:
        yield child
    finally:
        if child.poll() is None:
            child.terminate()
        child.wait()


@pytest.fixture
def broker(tmp_path):
    """Yield the address of a Redis."""
    port = str(free_port())
    redis = ("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "")
    with running(*redis, folder=tmp_path):
        yield f"redis://127.0.0.1:{port}/0"


def members():
    """Return the names of the processes that the journal knows."""
    return asyncio.run(_members())


async def _members():
    async with connected() as connection:
        schema = await schema_of(connection, "journal", NAME)
        found = await connection.fetch(f"SELECT name FROM {schema}.members")
    return [row["name"] for row in found]


def test_worker_that_is_stopped(service_in_environment, monkeypatch, broker, tmp_path):
    """Its clients are closed: no process is left in the journal, for whose silence others would wait."""
    service = service_in_environment
    place = database().at(journal=NAME, silence=60)
    monkeypatch.setenv("INVSVC_JOURNAL", place)
    (tmp_path / "tasks.py").write_text(program_of("celery"), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{Path.cwd()}:{tmp_path}")

    worker = (sys.executable, "-m", "celery", "-b", broker, "-A", "tasks", "worker")
    how = ("-P", "prefork", "-c", "2", "-l", "INFO")
    with running(*worker, *how, folder=tmp_path) as child:
        command = (sys.executable, "-c", SUBMIT, broker)
        subprocess.run(command, cwd=tmp_path, check=True)  # noqa: S603 - written here
        log = tmp_path / "log"
        block_until(lambda: log.read_text().count(" succeeded in ") == len(ORDERS))
        assert members()
        child.send_signal(signal.SIGTERM)  # Celery's warm shutdown
        assert child.wait() == 0
    assert members() == []
    assert len(service.ledger.effects("webhooks.create")) == len(set(ORDERS))
