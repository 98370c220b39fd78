"""Files that only their owner may read, where there is one already."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from invsvc_async import events
from invsvc_async.cli.secrets_file import SecretsFile
from invsvc_async.durable.journal import ClientJournal
from invsvc_async.errors import JournalError
from invsvc_async.storage.private_file import write_private

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_python


async def _event_store(path: Path) -> None:
    store = events.SqliteStore(path)
    try:
        await store.open()
    finally:
        await store.close()


async def _journal(path: Path) -> None:
    journal = ClientJournal(path)
    try:
        await journal.open()
    finally:
        await journal.aclose()


async def _secrets(path: Path) -> None:
    async with SecretsFile(path):
        pass


async def _text(path: Path) -> None:
    write_private(path, "text")


users = pytest.mark.parametrize("use", [_event_store, _journal, _secrets, _text])


@users
async def test_file_that_others_may_read(use, tmp_path):
    """It is made private, with what a killed process left of its log."""
    path = tmp_path / "file"
    path.touch()
    path.chmod(0o644)
    log = tmp_path / "file-wal"
    if use in {_event_store, _journal}:
        await use(path)  # so that it is a database
        path.chmod(0o644)
    await use(path)

    assert path.stat().st_mode & 0o777 == 0o600
    assert not log.exists()


@users
async def test_file_of_another_user(use, tmp_path, monkeypatch):
    """It is refused in words, and left as it is; root may use it."""
    path = tmp_path / "file"
    path.write_bytes(b"")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)

    with pytest.raises((JournalError, OSError), match="belongs to another user"):
        await use(path)
    assert path.read_bytes() == b""


async def test_secrets_file_of_another_user_and_root(tmp_path, monkeypatch):
    """Root does not write secrets to a file that its owner reads; other files it may use."""
    path = tmp_path / "file"
    path.touch()
    found = os.stat

    class Foreign:
        def __init__(self, real: os.stat_result) -> None:
            self.st_mode, self.st_uid = real.st_mode, 1000

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "stat", lambda file, **more: Foreign(found(file, **more)))

    write_private(path, "text")
    with pytest.raises(JournalError, match="belongs to another user"):
        await _secrets(path)
