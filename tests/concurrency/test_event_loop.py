"""The event loop of the command line."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys

import pytest

from invsvc_async.concurrency.event_loop import until_done

pytestmark = pytest.mark.one_python

WAITING = """
import asyncio
from invsvc_async.concurrency.event_loop import until_done

async def wait():
    try:
        print("waiting", flush=True)
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        print("cancelled", flush=True)
        raise

until_done(wait())
"""


async def kind():
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop is not for Windows")
def test_loop_where_uvloop_is_installed():
    """The uvloop loop is used by default."""
    assert until_done(kind()) == "uvloop"


def test_loop_of_a_short_command():
    """It is Python's own, because importing uvloop would take longer than it saves."""
    assert until_done(kind(), short=True) == "asyncio"


def test_loop_without_uvloop(monkeypatch):
    """Python's own loop is used if uvloop is not installed."""
    monkeypatch.setitem(sys.modules, "uvloop", None)

    assert until_done(kind()) == "asyncio"


def test_garbage_is_looked_for_rarely():
    """The thresholds apply while the command runs, and are restored afterwards, also after an error."""
    before = gc.get_threshold()

    async def look(failure=None):
        if failure is not None:
            raise failure
        return gc.get_threshold()

    assert until_done(look())[0] > before[0]
    assert gc.get_threshold() == before
    with pytest.raises(ZeroDivisionError):
        until_done(look(ZeroDivisionError()))
    assert gc.get_threshold() == before


def test_interruption():
    """Ctrl-C cancels the command, which can clean up before the process ends by the signal."""
    child = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", WAITING],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    child.stdout.readline()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=300)

    assert out == "cancelled\n"
    assert err.splitlines()[-1] == "KeyboardInterrupt"
