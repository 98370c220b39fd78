"""What every test rests on."""

from __future__ import annotations

import asyncio
import atexit
import gc
import inspect
import logging
import signal
import sys
import threading
from logging.handlers import QueueHandler, QueueListener

import pytest

from invsvc_async.simulator import Simulator
from invsvc_async.testing import quick_client
from tests.support.systems import cannot_import, why_not
from tests.support.virtual_time import (
    VirtualTimeLoop,
    loop_factories,
    service_clock,
)
from tests.support.watchdog import watchdog

# A shell that runs the suite in the background has it ignore Ctrl-C, which the programs that tests start would
# inherit: those that are interrupted on purpose would never end.
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)


if sys.platform == "linux":
    watchdog()  # each worker of pytest has its own


def pytest_collection_finish() -> None:
    """Take what was imported and collected out of each later garbage collection: a twelfth of the CPU time."""
    gc.collect()
    gc.freeze()


def pytest_ignore_collect(collection_path):
    """Leave out files that need modules of POSIX, where there are none."""
    if collection_path.suffix != ".py" or sys.platform != "win32":
        return None
    return cannot_import(collection_path.read_text(encoding="utf-8")) or None


def pytest_collection_modifyitems(items):
    """Skip what needs something that this system does not have."""
    if sys.platform == "linux":
        return
    for item in items:
        reason = why_not(inspect.getsource(item.function))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_asyncio_loop_factories(config, item):
    """Run each test on the loop of its folder or its markers."""
    return loop_factories(item)


@pytest.fixture
async def service():
    """Yield a service without faults, which follows the loop if that runs in virtual time."""
    is_virtual = isinstance(asyncio.get_running_loop(), VirtualTimeLoop)
    async with Simulator(clock=service_clock() if is_virtual else None) as running:
        yield running


@pytest.fixture
async def client(service):
    """Yield a client of it, with short times."""
    async with quick_client(service) as made:
        yield made


@pytest.fixture
def root_logger_restored(monkeypatch):
    """Remove what a Litestar application, when it is made, adds to the root logger of the process, and its thread."""
    root = logging.getLogger()
    level, start, started = root.level, QueueListener.start, []

    def noted(listener):
        started.append(listener)
        start(listener)

    monkeypatch.setattr(QueueListener, "start", noted)
    yield
    for listener in started:
        atexit.unregister(listener.stop)
        listener.stop()
    for handler in [each for each in root.handlers if isinstance(each, QueueHandler)]:
        root.removeHandler(handler)
    root.setLevel(level)
