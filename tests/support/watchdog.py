"""
Stop what a test process has started, however that process ends.

The tests start programs and PostgreSQL servers.  If pytest or one of its workers is killed, no clean-up of its own runs, and
a server is in a session that no Ctrl-C reaches.  So each has a watchdog: a process that waits for the end of a pipe,
which the system closes with the process.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO
from uuid import uuid4

# How the name of a test begins that a test writes beside itself, runs, and deletes.
WRITTEN = "test_hanging_"
MARK = "INVSVC_TEST_RUN"  # in the environment of what a test process starts


@cache
def watchdog() -> IO[str]:
    """Start the watchdog of this process; return the pipe that takes folders of PostgreSQL servers, one a line."""
    os.environ[MARK] = uuid4().hex
    command = [sys.executable, "-I", "-S", __file__, os.environ[MARK]]
    child = subprocess.Popen(  # noqa: S603
        command, stdin=subprocess.PIPE, text=True, env={}, start_new_session=True
    )
    child.returncode = 0  # it outlives this process, which need not warn of that
    assert child.stdin is not None
    return child.stdin


def watch(folder: Path) -> None:
    """Have the PostgreSQL server in *folder* stopped, and the folder deleted, once this process has ended."""
    pipe = watchdog()
    pipe.write(f"{folder}\n")
    pipe.flush()


def _wait_and_stop(mark: str) -> None:
    """Read folders until the process that writes them has ended, then stop everything."""
    folders = [Path(line.rstrip("\n")) for line in sys.stdin]
    for number in _marked(mark):
        _signal(number, signal.SIGKILL)
    for folder in folders:
        _stop_server(folder)


def _marked(mark: str) -> list[int]:
    """Return the processes that were started with *mark* in their environment."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for each in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or is somebody else's
            if wanted in each.read_bytes().split(b"\0"):
                found.append(int(each.parent.name))
    return [number for number in found if number != os.getpid()]


def _stop_server(folder: Path) -> None:
    with suppress(OSError, ValueError, IndexError):  # the usual clean-up has stopped it
        number = int((folder / "postmaster.pid").read_text().split()[0])
        if str(folder).encode() in Path(f"/proc/{number}/cmdline").read_bytes():
            _signal(number, signal.SIGQUIT)  # at once
            until = time.monotonic() + 30
            while Path(f"/proc/{number}").exists() and time.monotonic() < until:
                time.sleep(0.05)  # sleeps: a program of its own, which imports nothing
    shutil.rmtree(folder, ignore_errors=True)


def _signal(number: int, which: signal.Signals) -> None:
    with suppress(OSError):
        os.kill(number, which)


if __name__ == "__main__":
    _wait_and_stop(sys.argv[1])
