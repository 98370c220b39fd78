"""The package as it finds itself on macOS and Windows, which Linux imitates (``tests/support/other_systems.py``)."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from functools import cache

import pytest

from tests.support.other_systems import BREAK, ROOT, Msvcrt, environment

pytestmark = [
    pytest.mark.one_python,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux imitates others"),
]
SYSTEMS = ("win32", "darwin")
LONG = "0100000000000000"  # two numbers of 32 bits
SHORT = "01000000"  # of 16 bits


def ran_on(system, *arguments):
    """Return what Python prints with *arguments*, in a process whose package is on *system*."""
    ran = subprocess.run(  # noqa: S603 - our own
        [sys.executable, *arguments],
        capture_output=True, text=True, check=False, env=environment(system), cwd=ROOT,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@cache
def facts_of(system):
    return json.loads(ran_on(system, "-m", "tests.platforms.facts"))


def passed_on(system, *tests):
    """Return what pytest prints of *tests*, which pass."""
    # rewriting assertions would find the package's modules first
    how = ("-q", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist")
    return ran_on(system, "-m", "pytest", *how, *tests)


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_holds_everywhere(system):
    """It holds there, too: locks, writes whose answers are lost, files, and what commands print."""
    assert " passed" in passed_on(system, "tests/platforms/test_everywhere.py")


@pytest.mark.untraced
def test_batch_that_is_stopped_by_ctrl_c():
    """It ends in order without signal handlers of the loop, as with them, and the same command does the rest."""
    test = "tests/cli/test_batch.py::test_signal_ends_it_resumably"

    assert "1 passed" in passed_on("win32", test, "-k", f"[{int(signal.SIGINT)}]")


@pytest.mark.parametrize("system", SYSTEMS)
def test_import_of_all_modules(system):
    """No module needs at its import what only Linux has."""
    assert facts_of(system)["not imported"] == []


def test_clock():
    """It counts the time for which the machine sleeps: on macOS by a clock of its own, on Windows by the usual one."""
    assert facts_of("win32")["clock"] == []
    assert facts_of("darwin")["clock"] == [time.CLOCK_MONOTONIC_RAW]
    assert all(facts_of(system)["clock runs"] for system in SYSTEMS)


def test_lingering():
    """What closes a connection by RST has the form of the system's structure, in client and service."""
    assert facts_of("win32")["linger"] == [SHORT, SHORT]
    assert facts_of("darwin")["linger"] == [LONG, LONG]


def test_words_of_a_command():
    """On Windows a backslash belongs to a path; elsewhere it takes the meaning from the next character."""
    assert facts_of("win32")["words"] == [
        "python",
        r"C:\my runs\client.py",
        "-x",
        r"\n",
    ]
    assert facts_of("darwin")["words"] == ["python", r"C:\my runs\client.py", "-x", "n"]


def test_flush():
    """On macOS files and commits are flushed through the cache of the drive; Windows has no such thing."""
    assert facts_of("win32")["flushed"] == [0, 0]
    assert facts_of("darwin")["flushed"] == [1, 1]


def test_profile_in_a_file_that_others_may_write():
    """It is refused where modes say who may."""
    assert facts_of("win32")["profile"] is None
    assert "others can write it" in facts_of("darwin")["profile"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_signal_without_handlers_of_the_loop(system):
    """A signal calls its function in the loop, and has its handler of before once the block has ended."""
    assert facts_of(system)["signal"][0]
    assert facts_of("win32")["signal"] == [True, True]


def test_signals_of_a_terminal():
    """A run ends in order also when its terminal is closed, which each system tells by another signal."""
    assert facts_of("win32")["stops"] == [signal.SIGINT, signal.SIGTERM, BREAK]
    assert signal.SIGHUP in facts_of("darwin")["stops"]
    assert facts_of("win32")["break"] == [True, True]


def test_service_of_its_own_process():
    """Ctrl-C does not reach it."""
    assert facts_of("win32")["apart"] == {"creationflags": 0x200}
    assert facts_of("darwin")["apart"] == {"start_new_session": True}


@pytest.mark.parametrize("system", SYSTEMS)
def test_page_is_opened(system):
    """There is a screen, although no variable names it."""
    assert facts_of(system)["screen"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_receiver_in_a_thread(system):
    """It starts and stops where processes do not fork."""
    assert facts_of(system)["receiver"] == "SyncReceiver"


# --- the imitation of msvcrt


@pytest.fixture
def numbers(tmp_path):
    """Return two numbers of one file."""
    path = tmp_path / "file"
    opened = [os.open(path, os.O_RDWR | os.O_CREAT, 0o600) for _ in range(2)]
    yield opened
    for each in opened:
        os.close(each)


def test_locks_of_windows(numbers):
    """They are of bytes from the position on, exclude other handles and the same one, and end by name or close."""
    first, second = numbers
    locks = Msvcrt()
    locks.locking(first, locks.LK_NBLCK, 2)
    for number, mode, code in (
        (second, locks.LK_NBLCK, errno.EACCES),
        (second, locks.LK_LOCK, errno.EDEADLOCK),
        (first, locks.LK_NBLCK, errno.EACCES),
        (second, locks.LK_UNLCK, errno.EACCES),
    ):
        with pytest.raises(OSError, match=r".") as caught:
            locks.locking(number, mode, 1)
        assert caught.value.errno == code
    os.lseek(second, 2, os.SEEK_SET)
    locks.locking(second, locks.LK_NBLCK, 1)
    os.lseek(second, 0, os.SEEK_SET)
    locks.locking(first, locks.LK_UNLCK, 2)
    locks.locking(second, locks.LK_NBLCK, 2)
