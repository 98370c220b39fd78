"""Journals that cannot be used: the words say which, what is safe and what to do, and nothing is sent."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import sys

import pytest

from invsvc_async import ConfigurationError, JournalError
from invsvc_async.batch import Batch
from invsvc_async.batch.entries import entries_of
from invsvc_async.cli.app import run
from invsvc_async.storage.file_lock import FileLock
from invsvc_async.storage.private_file import own_private
from tests.batch.conftest import HOOK, client_of
from tests.batch.reports.test_live import mixed, read
from tests.batch.writing import SECRETS, create_line, creates, run_all
from tests.durable.stores import spoil
from tests.golden.loading import LAST
from tests.support.database import database

pytestmark = pytest.mark.one_python


def linked(path):
    os.link(path, path.with_name("other.db"))


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_short(path):
    path.write_bytes(path.read_bytes()[:100])


def emptied(path):
    path.write_bytes(b"")


def beside_cut(path):
    beside = path.with_name("run.db.epoch")
    beside.write_bytes(beside.read_bytes()[:20])


def made_a_folder(path):
    path.unlink()
    path.mkdir()


BAD = {
    "folder": (
        made_a_folder,
        "it is a folder, a pipe or a device",
        "Choose the path of a file",
    ),
    "linked": (
        linked,
        "has 2 names (hard links)",
        "Keep the name under which it was last used",
    ),
    "cut": (cut, "the file is damaged", "do not continue with an older copy"),
    "cut short": (cut_short, "damaged", "do not continue with an older copy"),
    "emptied": (
        emptied,
        "it is new, but run.db.epoch counts 5 sends",
        "Put that journal back",
    ),
    "beside another": (
        lambda path: spoil(
            path, "UPDATE facts SET value = 'other' WHERE name = 'epoch'"
        ),
        "the file run.db.epoch belongs to another journal",
        "Put that journal back, or the right file. Nothing was sent",
    ),
    "beside cut": (
        beside_cut,
        "the file run.db.epoch is damaged",
        "Nothing was sent. If nothing newer exists",
    ),
    "text": (
        lambda path: path.write_text("x" * 5000),
        "is not a SQLite database",
        "choose another path",
    ),
    "future": (
        lambda path: spoil(path, "UPDATE facts SET value = '99' WHERE name = 'schema'"),
        f"its tables have version 99, and this package knows version 1 to {LAST}",
        "Use that version, or a newer one",
    ),
    "of the development": (
        lambda path: spoil(path, "DELETE FROM facts WHERE name = 'schema'"),
        f"its tables have no version, and this package knows version 1 to {LAST}",
        "begin a new one in its place",
    ),
    "foreign": (
        lambda path: spoil(path, "PRAGMA application_id = 7"),
        "another program's database",
        "Choose another path",
    ),
    "of a client": (
        lambda path: spoil(
            path,
            "UPDATE facts SET value = 'the journal of a client' WHERE name = 'kind'",
        ),
        "it is the journal of a client, not a batch",
        "Choose another path",
    ),
}


@pytest.fixture
async def journal(service, client, path):
    """Return a journal with five writes, in one file."""
    await run_all(path, client, creates(client, 5), **SECRETS)
    spoil(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    return path


@pytest.mark.usefixtures("credential_in_environment")
@pytest.mark.parametrize("kind", BAD)
async def test_bad_journal(service, client, journal, kind, capsys):
    """It is refused by the library and the command line, also by what only reads, and the service is not called."""
    act, wrong, remedy = BAD[kind]
    act(journal)
    journal.chmod(0o644)
    sent = service.arrivals()
    with pytest.raises(JournalError) as found:
        async with Batch.open(journal, client):
            pass
    # perhaps somebody else's, named by mistake
    if kind in ("foreign", "text", "future"):
        assert stat.S_IMODE(journal.stat().st_mode) == 0o644
    assert wrong in str(found.value)
    assert remedy in str(found.value)
    if kind in ("text", "foreign", "of a client"):
        with pytest.raises(JournalError, match=re.escape(wrong)):
            await read(journal)
    if kind in ("text", "foreign", "future", "of the development"):
        await refused_by_a_client(service, journal, wrong)

    file = journal.with_name("writes.jsonl")
    file.write_text(create_line(1, None))
    assert (
        await asyncio.to_thread(
            run, ["batch", str(file), "--journal", str(journal), "--no-secrets"]
        )
        == 1
    )
    assert wrong in capsys.readouterr().err
    assert service.arrivals() == sent


async def test_damaged_entry(client, path):
    """What only reads a batch tells it in words, too."""
    await run_all(path, client, mixed(client, 2))
    spoil(path, "UPDATE entries SET operation = x'ff' WHERE verdict = 'refused'")
    with pytest.raises(JournalError, match="cannot be read"):
        await read(path)


async def test_bad_journal_of_a_client(service, journal, tmp_path):
    """That of a batch, and one that cannot be made, are refused before anything is sent."""
    for path, words in (
        (journal, "it is a batch"),
        (tmp_path / "none" / "run.db", "the folder exists"),
    ):
        await refused_by_a_client(service, path, words)


async def refused_by_a_client(service, path, words):
    sent = service.arrivals()
    client = client_of(service, journal=path)
    with pytest.raises(JournalError, match=re.escape(words)):
        await client.webhooks.create(**HOOK).outcome()
    await client.aclose()
    assert service.arrivals() == sent


def test_report_of_an_empty_file(tmp_path, capsys, path):
    """The words say so, and do not speak of a folder that is read-only."""
    path.touch()
    assert run(["batch", "report", str(path)]) == 1
    assert "the file has no journal yet" in capsys.readouterr().err.replace("\n", " ")
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
def test_pipe_instead_of_a_file(tmp_path):
    """It is refused before SQLite would wait for it, and neither a journal nor a file of secrets changes its mode."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    path.chmod(0o640)
    with pytest.raises(JournalError, match="a pipe or a device"):
        FileLock(path, "journal", "").acquire()
    with pytest.raises(OSError, match="not a regular file"):
        own_private(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [*tmp_path.iterdir()] == [path]


async def test_symbolic_link_is_followed(service, client, journal):
    """A journal under a symbolic link is the same one, with the same file beside it."""
    link = journal.with_name("link.db")
    link.symlink_to(journal)
    await run_all(link, client, creates(client, 6), **SECRETS)
    assert service.arrivals("webhooks.create") == 6
    assert not link.with_name("link.db.epoch").exists()


async def test_file_has_no_workers(client, path):
    """Workers are of shared batches: with a file, the words say what to do."""
    async with Batch.open(path, client) as batch:
        with pytest.raises(ConfigurationError, match="cannot be shared"):
            batch.work()


@pytest.mark.parametrize(
    "more",
    [
        "batch=A-B",
        "outbox=june",
        "silence=0.1",
        "silence=x",
        "silence=nan",
        "silence=inf",
    ],
)
def test_address_that_cannot_work(more):
    """A setting in the address that cannot work is refused at once."""
    with pytest.raises(ConfigurationError, match="the batch's address"):
        entries_of(f"postgresql://host/db?{more}")


@pytest.mark.parametrize("reading", [False, True])
async def test_batch_that_is_not_there(reading):
    """What only looks at a batch, or makes of it to do again, makes none of a mistyped name, and says so."""
    address = database().journal("mistyped")
    for _ in range(2):
        with pytest.raises(JournalError, match="it has no batch 'mistyped'"):
            await entries_of(address, create=False, reading=reading).open()
