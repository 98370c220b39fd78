"""A journal is searched for damage where it may have any: after a power cut, and in a copy of an open file."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import sys
import time
from contextlib import closing

import pytest

from invsvc_async import JournalError
from invsvc_async.durable import sqlite_store
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
    monkeypatch.setattr(sqlite_store, "check_file", lambda _, name: names.append(name))
    return names


async def test_file_that_was_closed(path, checked, monkeypatch):
    """It is whole, whatever happened to the machine since."""
    await use(path)
    monkeypatch.setattr(sqlite_file, "boot", lambda: "the next run of the machine")
    await use(path)
    await use(path, reading=True)

    assert checked == []


@pytest.mark.parametrize(("boot", "searches"), [(sqlite_file.boot(), 0), ("the next run of the machine", 2)])
async def test_file_of_a_process_that_was_killed(path, checked, monkeypatch, boot, searches):
    """It is whole, as long as the machine runs; readers beside an owner, who has searched it, do not search."""
    await (await asyncio.create_subprocess_exec(sys.executable, "-c", DIES, str(path))).wait()
    monkeypatch.setattr(sqlite_file, "boot", lambda: boot)
    await use(path, reading=True)
    async with opened(path):
        await use(path, reading=True)

    assert len(checked) == searches


@pytest.mark.parametrize("reading", [True, False], ids=["reader", "owner"])
async def test_file_that_was_open_when_the_machine_lost_its_power(path, checked, reading):
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
        with pytest.raises(JournalError, match=r"run\.db: the file is damaged \(.*not_applied\)"):
            await use(path, reading=reading)


def test_boot_without_linux(monkeypatch, tmp_path):
    """Where the system does not tell, two starts of a machine differ by their hours."""
    monkeypatch.setattr(sqlite_file, "Path", lambda _: tmp_path / "nowhere")
    texts = []
    for begun, running in ((1800.0, 60.0), (1800.0, 7200.0), (9000.0, 60.0)):  # s
        monkeypatch.setattr(time, "time", lambda now=begun + running: 1_728_000_000.0 + now)
        monkeypatch.setattr(time, "monotonic", lambda running=running: running)
        texts.append(sqlite_file.boot())

    assert texts == ["480000", "480000", "480002"]
