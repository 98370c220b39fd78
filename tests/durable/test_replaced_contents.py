"""The contents of a file are replaced by older ones while a process has it open: nothing is made twice."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import asynccontextmanager, closing, suppress

import pytest

from invsvc_async import JournalError, Outbox
from invsvc_async.batch import Batch
from tests.batch.conftest import client_of
from tests.batch.writing import SECRETS, all_of, creates, made_once
from tests.outbox.conftest import enqueue, verdicts_of

pytestmark = pytest.mark.one_python


class Copy:
    """Older contents of the files in *folder*, and of the logs beside them."""

    def __init__(self, folder, kept, how):
        self._how = how
        self._folder = folder
        self._kept = kept
        kept.mkdir()
        for path in self._databases():
            if how == "restore":
                self._copy(path, kept / path.name)
            else:
                for part in self._parts():
                    if (beside := path.with_name(path.name + part)).exists():
                        shutil.copyfile(beside, kept / beside.name)

    def put_back(self):
        """Replace the contents of the files, which stay the same files."""
        for path in self._databases():
            if self._how == "restore":
                self._copy(self._kept / path.name, path)
            else:
                for part in self._parts():
                    if (kept := self._kept / (path.name + part)).exists():
                        shutil.copyfile(kept, self._folder / kept.name)

    def _parts(self):
        return (
            ("", "-wal") if self._how == "copy of two files" else ("", "-wal", "-shm")
        )

    def _databases(self):
        names = [each.name for each in self._folder.iterdir()]
        return [
            self._folder / name
            for name in names
            if not name.endswith((".epoch", "-wal", "-shm", ".owner"))
        ]

    @staticmethod
    def _copy(source, target):
        with (
            closing(sqlite3.connect(source)) as before,
            closing(sqlite3.connect(target)) as after,
        ):
            before.backup(after)


def writes_of(client, *numbers):
    return (each for number in numbers for each in creates(client, 1, number))


@asynccontextmanager
async def keyed(service, folder):
    async with client_of(service, journal=folder / "run.db", **SECRETS) as client:

        async def run(*numbers):
            for write in writes_of(client, *numbers):
                await write

        yield run


@asynccontextmanager
async def batch(service, folder):
    async with (
        client_of(service) as client,
        Batch.open(folder / "run.db", client, **SECRETS) as opened,
    ):

        async def run(*numbers):
            await all_of(opened, writes_of(client, *numbers))

        yield run


@asynccontextmanager
async def replaced(use, service, tmp_path, how):
    """Yield what runs writes in a file that lacks the last two of three, because it has older contents now."""
    folder = tmp_path / "files"
    folder.mkdir()
    async with use(service, folder) as run:
        await run(0)
        copy = Copy(folder, tmp_path / "copy", how)
        await run(1, 2)
        copy.put_back()
        yield run


WAYS = ["restore", "copy"]


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("use", [keyed, batch])
async def test_used_on(service, tmp_path, use, how):
    """The process sends nothing that the older contents lack, and says why; nor does the next process."""
    async with replaced(use, service, tmp_path, how) as run:
        for numbers in [(1, 2), (3,)]:
            with pytest.raises(
                JournalError,
                match=r"replaced while it was open.*lacks the last 2 sends",
            ):
                await run(*numbers)
    await is_recognised(use, service, tmp_path)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("use", [keyed, batch])
async def test_closed(service, tmp_path, use, how):
    """What is only closed after that is recognised as an older copy by the next process."""
    async with replaced(use, service, tmp_path, how):
        pass
    await is_recognised(use, service, tmp_path)


async def is_recognised(use, service, tmp_path):
    """Check that another process does not make again what the older contents lack."""
    with pytest.raises(JournalError, match=r"older copy|restored from a copy"):
        async with use(service, tmp_path / "files") as run:
            await run(1, 2)
    assert made_once(service) == 3


@pytest.mark.parametrize("use", [keyed, batch])
async def test_log_cut_off(service, tmp_path, use):
    """SQLite does not see that its log was replaced; all the same, nothing is made twice, by either process."""
    with suppress(JournalError):
        async with replaced(use, service, tmp_path, "copy of two files") as run:
            await run(1, 2)
    with suppress(JournalError):
        async with use(service, tmp_path / "files") as run:
            await run(1, 2)
    assert made_once(service) == 3


@pytest.mark.parametrize("how", WAYS)
async def test_outbox(service, tmp_path, how):
    """Rows that are in the application's file again are not sent again, although the outbox lacks them."""
    folder = tmp_path / "files"
    folder.mkdir()
    async with (
        client_of(service) as client,
        Outbox.open(folder / "app.db", client, **SECRETS) as outbox,
    ):
        with pytest.raises(JournalError, match="replaced while it was open"):
            async with outbox.dispatching(grace=0.0):
                await verdicts_of(outbox, await enqueue(outbox, *creates(client, 1)))
                copy = Copy(folder, tmp_path / "copy", how)
                rows = await enqueue(outbox, *creates(client, 2, 1))
                await verdicts_of(outbox, rows)
                copy.put_back()
                rows = await enqueue(outbox, *creates(client, 1, 3))
                await verdicts_of(outbox, rows)
    assert made_once(service) == 3


async def test_changed_by_hand(service, tmp_path):
    """Another program that changes the file, and lacks nothing, stops nothing."""
    async with keyed(service, tmp_path) as run:
        await run(0)
        with closing(
            sqlite3.connect(tmp_path / "run.db", isolation_level=None)
        ) as other:
            other.execute("UPDATE entries SET labels = NULL")
            other.execute("VACUUM")
        await run(0, 1)
    async with keyed(service, tmp_path) as run:
        await run(0, 1, 2)
    assert made_once(service) == 3
