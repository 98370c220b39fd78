"""A journal is searched for damage where it may have any: after a power cut, and in a copy of an open file."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from invsvc_async import JournalError
from invsvc_async.concurrency.clock import SystemClock
from invsvc_async.durable.store import sqlite as sqlite_store
from invsvc_async.storage import sqlite_file
from tests.batch.writing import opened
from tests.support.power_cut import cut_power

DIES = """
import asyncio, os, sys
from invsvc_async.batch.entries import entries_of
async def main(path):
    await entries_of(path).open()
    os._exit(9)
asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.db"


async def use(path, *, reading=False):
    async with opened(path, reading=reading):
        pass


@pytest.fixture
def checked(monkeypatch):
    """Return the names of the files that are checked."""
    names = []
    monkeypatch.setattr(
        sqlite_store, "check_file", lambda _, name, *__: names.append(name)
    )
    return names


async def test_file_that_was_closed(path, checked, monkeypatch):
    """It is whole, whatever happened to the machine since."""
    await use(path)
    monkeypatch.setattr(sqlite_file, "boot", lambda: "the next run of the machine")
    await use(path)
    await use(path, reading=True)

    assert checked == []


@pytest.mark.parametrize(
    ("boot", "searches"), [(sqlite_file.boot(), 0), ("the next run of the machine", 2)]
)
async def test_file_of_a_process_that_was_killed(
    path, checked, monkeypatch, boot, searches
):
    """It is whole, as long as the machine runs; readers beside an owner, who has searched it, do not search."""
    await (
        await asyncio.create_subprocess_exec(sys.executable, "-c", DIES, str(path))
    ).wait()
    monkeypatch.setattr(sqlite_file, "boot", lambda: boot)
    await use(path, reading=True)
    async with opened(path):
        await use(path, reading=True)

    assert len(checked) == searches


@pytest.mark.parametrize("reading", [True, False], ids=["reader", "owner"])
async def test_file_that_was_open_when_the_machine_lost_its_power(
    path, checked, reading
):
    """It is searched until an owner has closed it."""
    await use(path)
    cut_power(path)
    await use(path, reading=reading)
    assert checked == [f"journal {path}"]

    await use(path)
    await use(path)
    assert len(checked) == (2 if reading else 1)


async def test_copy_of_an_open_file(path, checked, tmp_path):
    """It may have been copied in the middle of a change."""
    async with opened(path):
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", tmp_path / f"copy.db{end}")
    await use(tmp_path / "copy.db", reading=True)

    assert checked == [f"journal {tmp_path / 'copy.db'}"]


async def test_index_that_lacks_a_row(path):
    """A write that an index lacks would be overlooked, so the file is refused as damaged."""
    await use(path)
    cut_power(path)
    for change in (
        "INSERT INTO entries (place, key, lane, digest, operation, state, verdict) VALUES (1, 'k', 1, '', '', 2, 'x')",
        """UPDATE sqlite_master SET sql = replace(sql, "<> 'applied'", "= 'refused'") WHERE name = 'not_applied'""",
        "REINDEX not_applied",
        """UPDATE sqlite_master SET sql = replace(sql, "= 'refused'", "<> 'applied'") WHERE name = 'not_applied'""",
    ):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute(change)

    for reading in (True, False):
        with pytest.raises(
            JournalError, match=r"run\.db: the file is damaged \(.*not_applied\)"
        ):
            await use(path, reading=reading)


def test_boot_without_linux(monkeypatch, tmp_path):
    """Where the system does not tell, two starts of a machine differ by their hours."""
    monkeypatch.setattr(sqlite_file, "Path", lambda _: tmp_path / "nowhere")
    texts = []
    for begun, running in ((1800.0, 60.0), (1800.0, 7200.0), (9000.0, 60.0)):  # s
        monkeypatch.setattr(
            time, "time", lambda now=begun + running: 1_728_000_000.0 + now
        )
        # reaches: the machine's clock, which counts its sleep, too
        monkeypatch.setattr(SystemClock, "now", lambda running=running: running)
        texts.append(sqlite_file.boot())

    assert texts == ["480000", "480000", "480002"]


# --- the check itself


@pytest.fixture
def large(tmp_path):
    """Return the path of a file with an index, for which a check takes thousands of steps."""
    path = tmp_path / "large.db"
    with closing(sqlite3.connect(path)) as making:
        making.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT UNIQUE)")
        making.executemany(
            "INSERT INTO t (b) VALUES (?)", ((f"{'x' * 500}{i}",) for i in range(3000))
        )
        making.commit()
    return path


def fail_reads(path):
    """Let reads of *path* by this process fail from now on: the descriptors of the file become those of a folder."""
    folder = os.open(path.parent, os.O_RDONLY)
    for entry in Path("/proc/self/fd").iterdir():
        if entry.is_symlink() and entry.readlink() == path:
            os.dup2(folder, int(entry.name))
    os.close(folder)


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux lists the descriptors of a process so"
)
@pytest.mark.parametrize("step", range(1, 8))
def test_file_of_which_a_part_cannot_be_read(large, monkeypatch, step):
    """The words are about the disk, wherever the check comes to it, and say nothing of damage."""
    monkeypatch.setattr(sqlite_file, "STEPS", step)
    looks = iter(range(1_000_000))

    def stops():
        if next(looks) == step:
            fail_reads(large)
        return False

    with closing(sqlite3.connect(large)) as connection:
        connection.execute("SELECT 1 FROM sqlite_master").fetchall()
        with pytest.raises(sqlite3.Error) as failed:
            sqlite_file.check_file(connection, "a file", stops)
    words = str(sqlite_file.in_words("a file", failed.value))
    assert "the disk cannot be read or written" in words
    assert "damaged" not in words
    assert failed.value.sqlite_errorcode & 0xFF == sqlite3.SQLITE_IOERR


def test_file_with_a_spoilt_page(large):
    """It is damaged, although the check names an error code for it, too."""
    size = 4096
    with large.open("r+b") as spoiling:
        spoiling.seek(20 * size)
        spoiling.write(b"\xff" * 64)
    with (
        closing(sqlite3.connect(large)) as connection,
        pytest.raises(JournalError, match="the file is damaged") as told,
    ):
        sqlite_file.check_file(connection, "a file")
    assert "error code" in str(told.value)


def test_check_that_lasts(large, monkeypatch, caplog):
    """The log says so now and then."""
    monkeypatch.setattr(sqlite_file, "STEPS", 100)
    with (
        closing(sqlite3.connect(large)) as connection,
        caplog.at_level(logging.WARNING, "invsvc_async.storage"),
    ):
        sqlite_file.check_file(connection, "a file")
        assert caplog.messages == []
        monkeypatch.setattr(sqlite_file, "_TELL_EVERY", 0.0)
        sqlite_file.check_file(connection, "a file")
    assert len(caplog.messages) > 10
    assert caplog.messages[0] == "a file: is searched for damage, since 0 s"


def test_check_that_cannot_read_a_page():
    """It is no damage if the page could not be loaded for another reason; a fault of the disk is named."""
    # reaches: no test can make a disk fail so
    told = [str(sqlite_file._unread("a page", code)) for code in (10, 266, 14)]
    assert told == [
        "disk I/O error: a page",
        "disk I/O error: a page",
        "it cannot be checked: a page",
    ]
