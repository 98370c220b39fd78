"""The lock that is a file only while it is held."""

from __future__ import annotations

import errno
import sys

import pytest

from invsvc_async.storage import file_lock
from invsvc_async.storage.file_lock import WhileOpen

pytestmark = pytest.mark.one_python


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


def test_file_that_a_kill_left(tmp_path):
    """It locks nothing."""
    (tmp_path / "a.lock").touch()
    lock = WhileOpen(tmp_path / "a.lock")

    assert lock.acquire()


@pytest.mark.parametrize("then", ["gone", "another"])
def test_file_that_its_owner_deletes(then, tmp_path, monkeypatch):
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
