"""The lock by which one process at a time owns a journal, under whatever name."""

from __future__ import annotations

import errno
import json
import os
import socket
import sqlite3
import stat
import struct
import sys
import threading
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from invsvc_async.errors import JournalError
from invsvc_async.storage.private_file import open_private

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

# Bytes beyond those that SQLite locks: of the owner, and one for each name under which a file may be shared.
_OWNER = 2**40
_SHARED = 2**41
_NAMES = 2**32
_TAKEN = (errno.EACCES, errno.EAGAIN)


def _lock(number: int) -> None:
    """Lock a file; on Windows a byte beyond its text, because locks block readers there too."""
    if sys.platform == "win32":
        os.lseek(number, 2**30, os.SEEK_SET)
        try:
            msvcrt.locking(number, msvcrt.LK_NBLCK, 1)
        finally:
            os.lseek(number, 0, os.SEEK_SET)  # where the text is written
    else:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _ask(
    number: int,
    command: str,
    kind: str,
    start: int,
    length: int = 1,
) -> bool:
    """
    Ask for a lock that ends with the descriptor; return whether another lock is in the way.

    SQLite ends all others of the process when it unlocks the file.

    Raises:
        OSError: It is in the way (EACCES or EAGAIN), or the file system has no such locks.
    """
    if sys.platform == "linux":
        form = "@hhqqi0q"
        lock = struct.pack(form, getattr(fcntl, kind), os.SEEK_SET, start, length, 0)
        answer = fcntl.fcntl(number, getattr(fcntl, command), lock)
        found: int = struct.unpack(form, answer)[0]
        return found != fcntl.F_UNLCK
    else:  # noqa: RET505 - type checkers skip one of the branches
        raise OSError(errno.ENOTSUP, "only Linux has such locks")


def _is_shared_elsewhere(number: int, name: bytes) -> bool:
    """Share the lock of a *name* of a file, and return whether a process has that of another one."""
    place = int.from_bytes(blake2b(name, digest_size=4).digest())
    others = (_SHARED, place), (_SHARED + place + 1, _NAMES - place)
    try:
        _ask(number, "F_OFD_SETLK", "F_RDLCK", _SHARED + place)
        return any(
            _ask(number, "F_OFD_GETLK", "F_WRLCK", *each) for each in others if each[1]
        )
    except OSError:
        return False


class _LockFile:
    """
    An open file, which a forked process closes: with the file, a lock would outlast its owner.

    A process has one for each file of SQLite, and closes it once no lock uses it.  To close any ends the
    locks that SQLite has on the file in this process.  Other processes then delete its log under its
    connections, and the file is damaged.
    """

    def __init__(self, number: int) -> None:
        self.number = number  # -1: it is closed
        self.users: set[FileLock] = set()
        self.owner: FileLock | None = None
        self.name: bytes | None = None  # under which this process shares it
        _all.add(self)

    def close(self) -> None:
        """Close it, unless it is closed."""
        number, self.number = self.number, -1
        _all.discard(self)
        if number >= 0:
            os.close(number)


_all: set[_LockFile] = set()
# files of SQLite
_used: WeakValueDictionary[tuple[int, int], _LockFile] = WeakValueDictionary()
_changing = threading.Lock()  # the last: a cancelled closing ends on another thread


class FileLock:
    """
    The lock of the file at *path*, which errors call *name*.  It ends with the process.

    It consists of a lock file, whose text names the owner, and a lock of the file itself, which another name
    of the file does not escape.  *advice* is the last sentence of the error if another process has it.  A
    process that only reads the file does not acquire it, but notes that by ``share``.  A forked process does
    not have the locks of its parent.
    """

    def __init__(self, path: Path, name: str, advice: str) -> None:
        self._name = name
        self._advice = advice
        self._path = path
        self._lock_file: _LockFile | None = None
        self._file: _LockFile | None = None

    def is_ours(self) -> bool:
        """Return whether the lock file names this process, which may hold the lock by another object."""
        return owner_of(self._path) == (socket.gethostname(), os.getpid())

    def acquire(self) -> None:
        """
        Acquire the lock, or fail at once; create the file with mode 0600 if it does not exist.

        Raises:
            JournalError: Another process has it, which is named; or one of the files cannot be opened.
        """
        with suppress(OSError):  # it does not exist, or opening it says what is wrong
            _check_kind(self._path.stat(), self._name)
        beside = self._path.with_name(f"{self._path.name}.owner")
        opening = beside
        try:
            self._lock_file = _LockFile(os.open(beside, os.O_RDWR | os.O_CREAT, 0o600))
            self._acquire_lock_file(self._lock_file.number)
            opening = self._path
            self._own(self._use(self._path, os.O_CREAT))
        except BaseException as error:
            self.release()
            if isinstance(error, OSError):
                raise JournalError(
                    f"{self._name}: {opening.name} cannot be opened ({error.strerror}). Check that "
                    "the folder exists, and the permissions of both."
                ) from error
            raise

    def share(self) -> None:
        """Note this process as a reader, before SQLite opens the file. Another process may own the file."""
        with suppress(OSError):  # opening it says what is wrong
            self._use(self._path)

    def join(self) -> None:
        """
        Share the existing file with all processes that use this name.

        SQLite's log has the name of the file.  Under another name, of a hard link or of a mount of the file
        alone, there would be a second log, and the file would be damaged.

        Raises:
            JournalError: It is in use under another name, or it has hard links.
            OSError: It cannot be opened.
        """
        check_names(self._path, self._name)
        real = self._path.resolve()
        name = f"{_identity(real.parent.stat())} {real.name}".encode()
        file = self._use(real)
        with _changing:
            if file.name is None and not _is_shared_elsewhere(file.number, name):
                file.name = name
        if file.name != name:
            self.release()
            raise JournalError(
                f"{self._name}: it is in use under another name, such as a mount of the file alone, which "
                f"would have a log of its own. {self._advice}"
            )

    def is_owned(self) -> bool | None:
        """Return whether a process has the file that is shared; ``None`` if the system cannot tell."""
        file = self._file
        if file is None:
            return None
        if file.owner is not None:
            return True
        try:
            return _ask(file.number, "F_OFD_GETLK", "F_WRLCK", _OWNER)
        except OSError:
            return None

    def release(self) -> None:
        """
        Release the lock, or note that nothing is read any more.

        SQLite's connection to the file must be closed already.  The lock file stays: deleting it could delete
        a newer owner's.
        """
        with _changing:
            file, self._file = self._file, None
            # else it is that of the parent process
            if file is not None and file.number >= 0:
                file.users.discard(self)
                if not file.users:
                    file.close()
                elif file.owner is self:
                    file.owner = None
                    with suppress(OSError):
                        _ask(file.number, "F_OFD_SETLK", "F_UNLCK", _OWNER)
        if self._lock_file is not None:
            self._lock_file.close()

    def _use(self, path: Path, flags: int = 0) -> _LockFile:
        with _changing:
            file = None
            # it does not exist, or opening it says what is wrong
            with suppress(OSError):
                file = _used.get(_identity(path.stat()))
            if file is None or file.number < 0:
                # not yet known to be ours
                file = _LockFile(os.open(path, os.O_RDWR | flags, 0o600))
                _used[_identity(os.fstat(file.number))] = file
            file.users.add(self)
        self._file = file
        return file

    def _own(self, file: _LockFile) -> None:
        with _changing:
            if file.owner is not None:
                raise self._in_use("this process under another name")
            try:
                _ask(file.number, "F_OFD_SETLK", "F_WRLCK", _OWNER)
            except OSError as error:
                if error.errno in _TAKEN:  # otherwise there are no such locks
                    raise self._in_use("another process under another name") from error
            file.owner = self

    def _acquire_lock_file(self, number: int) -> None:
        try:
            _lock(number)
        except OSError as error:
            if self.is_ours():
                raise JournalError(
                    f"{self._name}: it is in use by this process itself ({os.getpid()}): something else has "
                    "it open, or was never closed. Close that first (use it with `async with`, or await its "
                    "aclose()), or use another path."
                ) from error
            host, pid = owner_of(self._path) or (None, None)
            raise self._in_use(
                f"process {pid} on {host}" if pid else "another process"
            ) from error
        # on a full disk the lock is held, but does not name its owner
        with suppress(OSError):
            os.ftruncate(number, 0)
            os.write(
                number,
                json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(),
            )

    def _in_use(self, holder: str) -> JournalError:
        return JournalError(
            f"{self._name}: it is in use by {holder}, and one process at a time may use it. {self._advice}"
        )


def is_owned(path: Path) -> bool | None:
    """Return whether a process has the lock of the file at *path*; ``None`` if the system cannot tell."""
    lock = FileLock(path, path.name, "")
    lock.share()
    try:
        return lock.is_owned()
    finally:
        lock.release()


def owner_of(path: Path) -> tuple[str, int] | None:
    """Return the host and the process that the lock file of *path* names, if it names any."""
    try:
        with path.with_name(f"{path.name}.owner").open("rb") as file:
            said = json.loads(file.read(1000))
        return str(said["host"]), int(said["pid"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None


class LockedConnection(sqlite3.Connection):
    """A connection that releases the lock of its file once the connection is closed."""

    release: Callable[[], None] | None = None

    def close(self) -> None:
        """Close it, and release the lock."""
        super().close()
        if self.release is not None:
            self.release()


class WhileOpen:
    """
    A lock that is a file at *path*, which exists only while the lock is held.

    After a kill the file stays, but the lock has ended.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: _LockFile | None = None

    def acquire(self) -> bool:
        """
        Acquire the lock; return False if another process, or another task here, has it.

        A file system without locks excludes nobody.

        Raises:
            OSError: The file cannot be created.
        """
        while True:
            number = open_private(str(self._path), os.O_RDWR | os.O_CREAT)
            try:
                _lock(number)
            except OSError as error:
                if error.errno in _TAKEN:
                    os.close(number)
                    return False
            with suppress(FileNotFoundError):
                if _identity(os.fstat(number)) == _identity(self._path.stat()):
                    self._file = _LockFile(number)
                    return True
            os.close(number)  # its last owner deleted it before it was locked

    def write(self, text: str) -> None:
        """
        Write *text* into the locked file, whatever stands at its path by now.

        Raises:
            OSError: It cannot be written.
        """
        assert self._file is not None
        data = text.encode()
        os.ftruncate(self._file.number, 0)
        os.lseek(self._file.number, 0, os.SEEK_SET)
        os.write(self._file.number, data)

    def release(self) -> None:
        """Delete the file and release the lock.  A second call, or one in a forked process, does nothing."""
        if self._file is None or self._file.number < 0:
            return
        if sys.platform == "win32":
            self._file.close()
            # Windows deletes no open file, so none that another process has opened meanwhile
            with suppress(OSError):
                self._path.unlink()
        else:
            with suppress(OSError):
                self._path.unlink()
            self._file.close()


def _close_all() -> None:
    """Close the parent's descriptors in a forked process."""
    global _changing  # noqa: PLW0603 - another thread of the parent may have it
    _changing = threading.Lock()
    for each in [*_all]:
        with suppress(OSError):
            each.close()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_close_all)


def check_names(path: Path, name: str) -> None:
    """
    Check that the file at *path* has no second name. Errors call the file *name*.

    Raises:
        JournalError: It has hard links.  SQLite's log is beside one of them, and its entries would be missed
            under the others.  Or it is no file.
    """
    found = path.stat()
    _check_kind(found, name)
    names = found.st_nlink
    if names > 1:
        raise JournalError(
            f"{name}: the file has {names} names (hard links), and recent entries may be found under only "
            "one of them. Keep the name under which it was last used, and delete the others."
        )


def _check_kind(found: os.stat_result, name: str) -> None:
    """Reject folders, pipes and devices: SQLite could wait for ever for them."""
    if not stat.S_ISREG(found.st_mode):
        raise JournalError(
            f"{name}: it is a folder, a pipe or a device. Choose the path of a file."
        )


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
