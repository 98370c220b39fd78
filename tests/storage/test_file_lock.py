"""Locks of files that several connections of one process use, beside the owner in another process."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from invsvc_async import JournalError
from invsvc_async.batch.entries import summary_of
from invsvc_async.storage import file_lock
from invsvc_async.storage.file_lock import FileLock, WhileOpen
from tests.batch.writing import opened
from tests.support.forks import forks

# Another process that owns the file for a moment, and writes some pages.
OWNER = """
import sqlite3, sys
from pathlib import Path
from invsvc_async.storage.file_lock import FileLock
lock = FileLock(Path(sys.argv[1]), "journal", "")
lock.acquire()
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.executemany("INSERT INTO facts VALUES (hex(randomblob(50)), ?)", [("x" * 3000,)] * 300)
print(connection.execute("PRAGMA integrity_check").fetchone()[0])
connection.close()
lock.release()
"""


ACQUIRES = """
import sys
from pathlib import Path
from invsvc_async import JournalError
from invsvc_async.storage.file_lock import FileLock
try:
    FileLock(Path(sys.argv[1]), "journal", "").acquire()
    print("acquired")
except JournalError as error:
    print(error)
"""


async def owned_elsewhere(path):
    """Let another process own the file at *path* for a moment; return what it finds wrong."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, str(path), stdout=asyncio.subprocess.PIPE
    )
    found = (await child.communicate())[0]
    return found.decode().strip()


@pytest.fixture
async def path(tmp_path):
    await own(tmp_path / "run.db")
    return tmp_path / "run.db"


@pytest.fixture
async def reader(path):
    async with opened(path, reading=True) as made:
        yield made


async def own(path):
    """Own the journal at *path* for a moment."""
    async with opened(path):
        pass


async def test_owner_that_ends_beside_a_reader(path, reader):
    """The reader keeps its locks, so other processes leave it the file's log; else the file would be damaged."""
    for _ in range(3):
        await own(path)
        assert await owned_elsewhere(path) == "ok"
        assert (await summary_of(reader)).total == 0
        [[facts]] = await reader.store.rows("SELECT count(*) FROM facts")
        assert facts > 300
    await own(path)
    assert await owned_elsewhere(path) == "ok"


async def test_owner_under_another_name_beside_a_reader(path, reader, tmp_path):
    """An attempt that is refused costs the reader nothing either."""
    (tmp_path / "elsewhere").mkdir()
    other = tmp_path / "elsewhere" / "run.db"
    os.link(path, other)
    lock = FileLock(other, "journal", "")
    lock.acquire()
    with pytest.raises(JournalError, match="under another name"):
        FileLock(path, "journal", "").acquire()
    lock.release()
    other.unlink()
    assert await owned_elsewhere(path) == "ok"
    assert path.with_name("run.db-wal").exists()


@pytest.mark.skipif(
    sys.platform != "linux", reason="it counts the descriptors in /proc"
)
async def test_descriptors_that_are_kept(path, reader):
    """One is used again and again, and closed once nothing in the process uses the file."""

    def count():
        return sum(each.resolve() == path for each in Path("/proc/self/fd").iterdir())

    await own(path)
    kept = count()
    for _ in range(3):
        await own(path)
    assert count() == kept
    async with opened(path):
        await reader.aclose()
        assert count() > 0
    assert count() == 0


@contextmanager
def forked(act=lambda: None):
    """Run *act* in a forked process, which lives as long as the block."""
    done, ready = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            act()
            os.write(ready, b"1")
            time.sleep(60)  # sleeps: it ends by itself if nobody kills it
        finally:
            os._exit(0)
    os.close(ready)
    try:
        assert os.read(done, 1) == b"1"
        yield
    finally:
        os.close(done)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def acquired_elsewhere(path):
    """Return what another process says that acquires the lock of the file at *path* for a moment."""
    command = [sys.executable, "-c", ACQUIRES, str(path)]
    return subprocess.run(  # noqa: S603 - our own
        command, capture_output=True, text=True, check=True
    ).stdout.strip()


@forks
def test_forked_process_that_outlives_the_lock(tmp_path):
    """It does not keep the lock, which it would until it ends."""
    lock = FileLock(tmp_path / "run.db", "journal", "")
    lock.acquire()
    with forked():
        lock.release()
        assert acquired_elsewhere(tmp_path / "run.db") == "acquired"
        lock.acquire()
    lock.release()


@forks
def test_forked_process_that_releases_the_lock(tmp_path):
    """The lock is still its parent's, and so is the file of a lock that is one."""
    lock, other = (
        FileLock(tmp_path / "run.db", "journal", ""),
        WhileOpen(tmp_path / "out.csv.lock"),
    )
    lock.acquire()
    assert other.acquire()

    def release():
        lock.release()
        other.release()

    with forked(release):
        assert f"in use by process {os.getpid()}" in acquired_elsewhere(
            tmp_path / "run.db"
        )
        assert not WhileOpen(tmp_path / "out.csv.lock").acquire()
    lock.release()
    other.release()
    assert not (tmp_path / "out.csv.lock").exists()


# --- a lock that is a file only while it is held


def test_one_at_a_time(tmp_path):
    """The second has to wait for the first, and nothing stays."""
    first, second = (WhileOpen(tmp_path / "a.lock") for _ in range(2))

    assert first.acquire()
    assert not second.acquire()
    first.release()
    assert second.acquire()
    first.release()  # which has it no longer
    assert not first.acquire()
    second.release()
    assert list(tmp_path.iterdir()) == []


def test_file_of_a_lock_that_a_kill_left(tmp_path):
    """It locks nothing."""
    (tmp_path / "a.lock").touch()
    lock = WhileOpen(tmp_path / "a.lock")

    assert lock.acquire()


@pytest.mark.parametrize("then", ["gone", "another"])
def test_file_of_a_lock_that_its_owner_deletes(then, tmp_path, monkeypatch):
    """A file that was deleted after it was opened, perhaps made again since, is not what others lock."""
    path = tmp_path / "a.lock"
    other, opened = WhileOpen(path), []

    def open_late(name, flags):
        number = real(name, flags)
        if not opened:
            opened.append(number)
            path.unlink()
            if then == "another":
                path.with_suffix(".new").touch()
                path.with_suffix(".new").rename(path)
        return number

    real = file_lock.open_private
    monkeypatch.setattr(file_lock, "open_private", open_late)

    assert WhileOpen(path).acquire()
    assert not other.acquire()


@pytest.mark.skipif(sys.platform == "win32", reason="its locks are others")
def test_file_system_without_locks(tmp_path, monkeypatch):
    """It excludes nobody."""

    def lock(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", lock)

    assert WhileOpen(tmp_path / "a.lock").acquire()
    assert WhileOpen(tmp_path / "a.lock").acquire()
