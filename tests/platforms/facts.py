"""What the package does on the system on which it finds itself, printed as one JSON object."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import pkgutil
import signal
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import invsvc_async
from invsvc_async import ConfigurationError
from invsvc_async.cli import signals
from invsvc_async.cli.commands import conformance
from invsvc_async.cli.page_serving import has_screen
from invsvc_async.concurrency import clock
from invsvc_async.conformance import service_process
from invsvc_async.events import MemoryStore, Receiver
from invsvc_async.events.receiving.web import SyncReceiver
from invsvc_async.profiles import profile_of
from invsvc_async.simulator import replies
from invsvc_async.storage.flush import flush, flush_commits
from invsvc_async.transport import send_gate
from tests.support import other_systems


def not_imported():
    """Return what went wrong when each module was imported, but for what is not installed."""
    wrong = []
    for each in pkgutil.walk_packages(invsvc_async.__path__, "invsvc_async."):
        if each.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(each.name)
        except ImportError as error:
            if (error.name or "").partition(".")[0] in sys.stdlib_module_names:
                wrong.append(f"{each.name}: {error!r}")
        except Exception as error:  # noqa: BLE001 - it is told
            if not each.name.startswith("invsvc_async.engines."):
                wrong.append(f"{each.name}: {error!r}")
    return wrong


def flushed(folder):
    """Return whether a file was flushed as macOS needs it, and whether commits will be."""
    other_systems.flushed.clear()
    with (folder / "flushed").open("wb") as file:
        flush(file.fileno())
    with closing(sqlite3.connect(":memory:")) as connection:
        flush_commits(connection)
        [commits] = connection.execute("PRAGMA fullfsync").fetchone()
    return [len(other_systems.flushed), commits]


def profile(folder):
    """Return how a profile in a file is refused that others may write."""
    path = folder / "invsvc.toml"
    path.write_text(
        '[profiles.a]\nbase_url = "https://a.example/v2"\n', encoding="utf-8"
    )
    path.chmod(0o666)
    try:
        profile_of({"INVSVC_CONFIG": str(path)}, "a")
    except ConfigurationError as error:
        return str(error)
    return None


async def signalled(number):
    """Return whether a signal calls what it is to call, in the loop, and what handles it afterwards."""
    called = asyncio.Event()
    before = signal.signal(number, signal.default_int_handler)
    with signals.handled([number], called.set):
        os.kill(os.getpid(), number)
        async with asyncio.timeout(60):
            await called.wait()
    after = signal.signal(number, before)
    return [called.is_set(), after is signal.default_int_handler]


def received():
    """Start a receiver in a thread of its own, and stop it."""
    with SyncReceiver(Receiver(secrets=["whsec_1"], store=MemoryStore())) as receiver:
        return type(receiver).__name__


def facts():
    """Return all of it."""
    steady = clock._steady
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory() as folder:
        return {
            "not imported": not_imported(),
            "clock": list(getattr(steady, "args", ())),
            "clock runs": abs(steady() - clock.SystemClock.now()) < 60,
            "linger": [replies.LINGER_ZERO.hex(), send_gate._DISCARD.hex()],
            "words": conformance._words_of(r'python "C:\my runs\client.py" -x \n'),
            "flushed": flushed(Path(folder)),
            "profile": profile(Path(folder)),
            "signal": asyncio.run(signalled(signal.SIGINT)),
            "break": asyncio.run(signalled(other_systems.BREAK)),
            "stops": [int(each) for each in signals.stop_signals()],
            "apart": service_process._APART,
            "screen": has_screen(),
            "receiver": received(),
        }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(facts()))
