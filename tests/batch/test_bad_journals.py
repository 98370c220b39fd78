"""Journals that cannot be used: the words say which, what is safe and what to do, and nothing is sent."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import sys

import pytest

from invsvc_async import InvalidRequestError, JournalError
from invsvc_async.batch import Batch
from invsvc_async.cli.app import run
from invsvc_async.storage.file_lock import FileLock
from invsvc_async.storage.private_file import own_private
from tests.batch.conftest import HOOK, client_of
from tests.batch.reports.test_live import mixed, read
from tests.batch.test_restored import creates
from tests.batch.writing import create_line, run_all
from tests.durable.stores import spoil


def linked(path):
    os.link(path, path.with_name("other.db"))


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_short(path):
    path.write_bytes(path.read_bytes()[:100])


def emptied(path):
    path.write_bytes(b"")


def made_a_folder(path):
    path.unlink()
    path.mkdir()


BAD = {
    "folder": (made_a_folder, "it is a folder, a pipe or a device", "Choose the path of a file"),
    "linked": (linked, "has 2 names (hard links)", "Keep the name under which it was last used"),
    "cut": (cut, "the file is damaged", "do not continue with an older copy"),
    "cut short": (cut_short, "damaged", "do not continue with an older copy"),
    "emptied": (emptied, "it is new, but run.db.epoch counts 5 sends", "Put that journal back"),
    "text": (lambda path: path.write_text("x" * 5000), "is not a SQLite database", "choose another path"),
    "future": (
        lambda path: spoil(path, "UPDATE facts SET value = '99' WHERE name = 'schema'"),
        "its tables have version 99, and this package reads version 1",
        "Finish what is open in it with that version",
    ),
    "of the development": (
        lambda path: spoil(path, "DELETE FROM facts WHERE name = 'schema'"),
        "its tables have no version, and this package reads version 1",
        "begin a new one in its place",
    ),
    "foreign": (
        lambda path: spoil(path, "PRAGMA application_id = 7"),
        "another program's database",
        "Choose another path",
    ),
    "of a client": (
        lambda path: spoil(path, "UPDATE facts SET value = 'the journal of a client' WHERE name = 'kind'"),
        "it is the journal of a client, not a batch",
        "Choose another path",
    ),
}


@pytest.fixture
async def journal(service, client, tmp_path):
    """Return a journal with five writes, in one file."""
    path = tmp_path / "run.db"
    await run_all(path, client, creates(client, 5), on_secret=lambda *_: None)
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
    if kind in ("foreign", "text", "future"):  # perhaps somebody else's, named by mistake
        assert stat.S_IMODE(journal.stat().st_mode) == 0o644
    assert wrong in str(found.value)
    assert remedy in str(found.value)
    if kind in ("text", "foreign", "of a client"):
        with pytest.raises(JournalError, match=re.escape(wrong)):
            await read(journal)

    file = journal.with_name("writes.jsonl")
    file.write_text(create_line(1, None))
    assert await asyncio.to_thread(run, ["batch", str(file), "--journal", str(journal), "--no-secrets"]) == 1
    assert wrong in capsys.readouterr().err
    assert service.arrivals() == sent


async def test_damaged_entry(client, tmp_path):
    """What only reads a batch tells it in words, too."""
    await run_all(tmp_path / "run.db", client, mixed(client, 2))
    spoil(tmp_path / "run.db", "UPDATE entries SET operation = x'ff' WHERE verdict = 'refused'")
    with pytest.raises(JournalError, match="cannot be read"):
        await read(tmp_path / "run.db")


@pytest.mark.parametrize(
    "kind", ["future", "of the development", "foreign", "text", "a batch", "in no folder"]
)
async def test_bad_journal_of_a_client(service, tmp_path, kind):
    """It is refused before anything is sent."""
    path = tmp_path / "journal.db" if kind != "in no folder" else tmp_path / "none" / "journal.db"
    if kind != "in no folder":
        async with client_of(service, journal=path) as client:
            await client.recover()
    if kind == "a batch":
        spoil(path, "UPDATE facts SET value = 'a batch' WHERE name = 'kind'")
    elif kind in BAD:
        BAD[kind][0](path)
    words = {"a batch": "it is a batch", "in no folder": "the folder exists"}.get(kind) or BAD[kind][1]
    client = client_of(service, journal=path)
    with pytest.raises(JournalError, match=words):
        await client.webhooks.create(**HOOK).outcome()
    await client.aclose()
    assert service.ledger.entries == []


def test_report_of_an_empty_file(tmp_path, capsys):
    """The words say so, and do not speak of a folder that is read-only."""
    path = tmp_path / "run.db"
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


async def test_journal_of_another_batch(service, client, journal):
    """An input with other writes under its keys is refused."""
    others = [client.webhooks.create(url="https://other.example", events=["invoice.created"]).keyed("row-1")]
    sent = service.arrivals()
    with pytest.raises(InvalidRequestError, match="the journal has another write under the key 'row-1'"):
        await run_all(journal, client, others, on_secret=lambda *_: None)
    assert service.arrivals() == sent


async def test_symbolic_link_is_followed(service, client, journal):
    """A journal under a symbolic link is the same one, with the same file beside it."""
    link = journal.with_name("link.db")
    link.symlink_to(journal)
    await run_all(link, client, creates(client, 6), on_secret=lambda *_: None)
    assert service.arrivals("webhooks.create") == 6
    assert not link.with_name("link.db.epoch").exists()
