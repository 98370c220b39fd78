"""Files that only their owner may read, where there is one already."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from invsvc_async import events
from invsvc_async.cli.secrets_file import SecretsFile
from invsvc_async.durable.journal import ClientJournal
from invsvc_async.errors import JournalError
from invsvc_async.storage.private_file import write_private

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.one_python


@asynccontextmanager
async def _event_store(path: Path) -> AsyncIterator[None]:
    store = events.SqliteStore(path)
    try:
        await store.open()
        yield
    finally:
        await store.close()


@asynccontextmanager
async def _journal(path: Path) -> AsyncIterator[None]:
    journal = ClientJournal(path)
    try:
        await journal.open()
        yield
    finally:
        await journal.aclose()


@asynccontextmanager
async def _text(path: Path) -> AsyncIterator[None]:
    write_private(path, "text")
    yield


users = pytest.mark.parametrize("use", [_event_store, _journal, SecretsFile, _text])


def _modes(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()}


@users
async def test_new_file(use, tmp_path):
    """It is for its owner alone, whatever the umask, and so are the log and the index beside it."""
    before = os.umask(0)
    try:
        async with use(tmp_path / "file"):
            modes = _modes(tmp_path)
    finally:
        os.umask(before)
    assert {*modes.values()} == {0o600}
    assert use not in {_event_store, _journal} or {*modes} >= {
        "file",
        "file-wal",
        "file-shm",
    }


@users
async def test_file_that_others_may_read(use, tmp_path):
    """It is made private, and nothing is left beside it that others may read."""
    path = tmp_path / "file"
    async with use(path):
        pass
    path.chmod(0o644)
    async with use(path):
        pass
    assert {*_modes(tmp_path).values()} == {0o600}
    assert not (tmp_path / "file-wal").exists()


@users
async def test_file_of_another_user(use, tmp_path, monkeypatch):
    """It is refused in words, and left as it is; root may use it."""
    path = tmp_path / "file"
    path.write_bytes(b"")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)

    with pytest.raises((JournalError, OSError), match="belongs to another user"):
        async with use(path):
            pass
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
        await SecretsFile(path).__aenter__()


@pytest.mark.parametrize("use", [SecretsFile, _text])
@pytest.mark.parametrize("exists", [True, False])
async def test_file_that_is_a_symbolic_link(use, exists, tmp_path):
    """It is refused: somebody else may have made it, to get what is written or to have a file overwritten."""
    target, path = tmp_path / "target", tmp_path / "file"
    if exists:
        target.write_text("kept")
    path.symlink_to(target)

    with pytest.raises((JournalError, OSError), match=r"symbolic link|No such file"):
        async with use(path):
            pass
    assert (target.read_text() if exists else target.exists()) == (
        "kept" if exists else False
    )


async def test_link_to_a_device(tmp_path):
    """It is followed, as /dev/stdout is a link."""
    path = tmp_path / "file"
    path.symlink_to("/dev/null")
    write_private(path, "text")
