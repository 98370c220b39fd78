"""The lock by which one process at a time owns a journal, under whatever name."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import struct
import sys
import threading
from collections import Counter, defaultdict
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING

from invsvc_async.errors import JournalError
from invsvc_async.storage.private_file import open_private

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["FileLock", "WhileOpen", "check_names"]

if sys.platform == "win32":  # pragma: no cover - the other branch is tested
    import msvcrt

    _FAR = 2**30  # a byte beyond the text, because locks on Windows block readers too

    def _lock(number: int) -> None:
        os.lseek(number, _FAR, os.SEEK_SET)
        msvcrt.locking(number, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(number: int) -> None:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)


if sys.platform == "linux":
    # Bytes beyond those that SQLite locks: of the owner, and one for each name under which a file may be
    # shared.  The locks are of the kind that ends with the descriptor, because SQLite ends all others of the
    # process when it unlocks the file.
    _OWNER, _SHARED, _NAMES = 2**40, 2**41, 2**32

    def _ask(number: int, command: int, kind: int, start: int, length: int) -> int:
        lock = struct.pack("@hhqqi0q", kind, os.SEEK_SET, start, length, 0)
        answer: int = struct.unpack("@hhqqi0q", fcntl.fcntl(number, command, lock))[0]
        return answer

    def _is_locked(number: int) -> bool:
        """Lock a file of SQLite as its owner, or return whether another process has."""
        try:
            _ask(number, fcntl.F_OFD_SETLK, fcntl.F_WRLCK, _OWNER, 1)
        except OSError as error:  # otherwise the file system has no such locks
            return error.errno in (errno.EACCES, errno.EAGAIN)
        return False

    def _is_shared_elsewhere(number: int, name: bytes) -> bool:
        """Share the lock of a *name* of a file, and return whether a process has that of another one."""
        place = int.from_bytes(blake2b(name, digest_size=4).digest())
        try:
            _ask(number, fcntl.F_OFD_SETLK, fcntl.F_RDLCK, _SHARED + place, 1)
            others = (_SHARED, place), (_SHARED + place + 1, _NAMES - place)
            asked = [_ask(number, fcntl.F_OFD_GETLK, fcntl.F_WRLCK, *each) for each in others if each[1]]
        except OSError:  # the file system has no such locks
            return False
        return any(kind != fcntl.F_UNLCK for kind in asked)

    def _unlock(number: int) -> None:
        with suppress(OSError):
            _ask(number, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, _OWNER, 0)
else:  # pragma: no cover - the other branch is tested

    def _is_locked(_number: int) -> bool:
        """Return False: only the lock file excludes others."""
        return False

    def _is_shared_elsewhere(_number: int, _name: bytes) -> bool:
        """Return False: other names of a file that mounts give it are not recognised."""
        return False

    def _unlock(_number: int) -> None:
        """Do nothing: it is not locked."""


_PART = 1 << 20  # bytes read at once
_owned: set[tuple[int, int]] = set()  # files owned in this process
# To close any descriptor of a file ends the locks that SQLite has on it in this process.  Other processes
# then delete its log under its connections, and it is damaged.  So a descriptor is kept while there are any.
_used: Counter[tuple[int, int]] = Counter()  # connections of this process, by file
_kept: defaultdict[tuple[int, int], list[int]] = defaultdict(list)  # descriptors, to be used again or closed
_names: dict[tuple[int, int], bytes] = {}  # under which this process shares files
_changing = threading.Lock()  # the last four: a cancelled closing ends on another thread
_held: set[FileLock | WhileOpen] = set()


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
        self._beside = path.with_name(f"{path.name}.owner")
        self._lock_file: int | None = None  # descriptors
        self._file: int | None = None
        self._identity: tuple[int, int] | None = None  # of the file, while SQLite may use it

    def acquire(self) -> None:
        """
        Acquire the lock, or fail at once; create the file with mode 0600 if it does not exist.

        Raises:
            JournalError: Another process has it, which is named; or one of the files cannot be opened.

        """
        with suppress(OSError):  # it does not exist, or opening it says what is wrong
            _check_kind(self._path.stat(), self._name)
        _held.add(self)
        try:
            self._acquire_lock_file()
            self._acquire_file()
        except BaseException:
            self.release()
            raise

    def share(self) -> None:
        """Note, before SQLite opens the file, that this process reads it. Others may own it."""
        _held.add(self)
        with suppress(OSError):  # opening it says what is wrong
            self._use(_identity(self._path.stat()))

    def join(self) -> None:
        """
        Share the file, which exists, with all processes that use it under this name.

        SQLite's log has the name of the file.  Under another name, of a hard link or of a mount of the file
        alone, there would be a second log, and the file would be damaged.

        Raises:
            JournalError: Another process uses it under another name, or it has hard links.
            OSError: It cannot be opened.

        """
        check_names(self._path, self._name)
        real = self._path.resolve()
        name = f"{_identity(real.parent.stat())} {real.name}".encode()
        _held.add(self)
        try:
            with _changing:
                identity = _identity(real.stat())
                kept = _kept[identity].pop() if _kept[identity] else None
                if not _used[identity]:
                    _names.pop(identity, None)
                is_known = _names.setdefault(identity, name) == name and _used[identity]
            self._file = number = os.open(real, os.O_RDWR) if kept is None else kept
            self._use(identity)
            is_elsewhere = _is_shared_elsewhere(number, name) and not is_known
        except BaseException:
            self.release()
            raise
        if is_elsewhere:
            self.release()
            raise JournalError(
                f"{self._name}: another process uses it under another name, such as a mount of the file "
                f"alone, which would have a log of its own. {self._advice}"
            )

    def _use(self, identity: tuple[int, int], *, owns: bool = False) -> None:
        with _changing:
            self._identity = identity
            _used[identity] += 1
            if owns:
                _owned.add(identity)

    def _acquire_lock_file(self) -> None:
        number = self._lock_file = self._opened(self._beside)
        try:
            _lock(number)
        except OSError as error:
            text = os.pread(number, 1000, 0) if hasattr(os, "pread") else b""
            raise self._in_use(_holder(text)) from error
        with suppress(OSError):  # on a full disk the lock is held, but does not name its owner
            os.ftruncate(number, 0)
            os.write(number, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())

    def _acquire_file(self) -> None:
        number: int | None = None
        with suppress(OSError), _changing:  # it does not exist, or opening it says what is wrong
            identity = _identity(self._path.stat())
            if identity in _owned:
                raise self._in_use(f"process {os.getpid()} under another name")
            number = _kept[identity].pop() if _kept[identity] else None
        self._file = number = self._opened(self._path) if number is None else number
        if _is_locked(number):
            raise self._in_use("another process under another name")
        self._use(_identity(os.fstat(number)), owns=True)

    def _opened(self, path: Path) -> int:
        """Open one of the two files, and create it with mode 0600 if it does not exist."""
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)  # not yet known to be ours
        except OSError as error:
            raise JournalError(
                f"{self._name}: {path.name} cannot be opened ({error.strerror}). Check that "
                "the folder exists, and the permissions of both."
            ) from error

    def _in_use(self, holder: str) -> JournalError:
        return JournalError(
            f"{self._name}: it is in use by {holder}, and one process at a time may use it. {self._advice}"
        )

    def read_ahead(self) -> None:
        """
        Read the owned file once in its own order, so that the system has it in memory.

        SQLite reads an index in the order of its values.  Where nothing is in memory yet, that took a disk
        seven times as long.
        """
        offset, number = 0, self._file
        assert number is not None
        while hasattr(os, "pread") and (part := os.pread(number, _PART, offset)):
            offset += len(part)

    def release(self) -> None:
        """
        Release the lock, or note that nothing is read any more.

        SQLite's connection to the file must be closed already.  The lock file stays: deleting it could delete
        a newer owner's.
        """
        _held.discard(self)
        identity, self._identity = self._identity, None
        number, self._file = self._file, None
        with _changing:
            if number is not None:
                if identity is not None:
                    _owned.discard(identity)
                _kept[_identity(os.fstat(number))].append(number)
            if identity is not None:
                _used[identity] -= 1
                if not _used[identity]:
                    del _used[identity]
                    _names.pop(identity, None)
            _close_unused()
        lock_file, self._lock_file = self._lock_file, None
        if lock_file is not None:
            os.close(lock_file)

    def forget(self) -> None:
        """Close the descriptors, in a forked process. The locks stay, because the parent has them open."""
        numbers = self._lock_file, self._file
        self._lock_file = self._file = self._identity = None
        _close(numbers)


def _close_unused() -> None:
    """Close the kept descriptors of files that nothing in this process uses, and unlock the others."""
    for identity, numbers in [*_kept.items()]:
        for number in numbers:
            _unlock(number) if _used[identity] else os.close(number)
        if not _used[identity]:
            del _kept[identity]


class WhileOpen:
    """
    A lock that is a file at *path*, which exists only while the lock is held.

    After a kill the file stays, but the lock has ended.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number: int | None = None

    def acquire(self) -> bool:
        """
        Acquire the lock, or return False if another process, or another task of this one, has it.

        A file system without locks excludes nobody.

        Raises:
            OSError: The file cannot be created.

        """
        while True:
            number = open_private(str(self._path), os.O_RDWR | os.O_CREAT)
            try:
                _lock(number)
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    os.close(number)
                    return False
            with suppress(FileNotFoundError):
                if _identity(os.fstat(number)) == _identity(self._path.stat()):
                    self._number = number
                    _held.add(self)
                    return True
            os.close(number)  # its last owner deleted it before it was locked

    def release(self) -> None:
        """Delete the file and release the lock.  A second call does nothing."""
        if self._number is None:
            return
        with suppress(OSError):  # Windows deletes no open file
            self._path.unlink()
        os.close(self._number)
        self._number = None
        _held.discard(self)

    def forget(self) -> None:
        """Close the descriptor, in a forked process: the file is the parent's."""
        number, self._number = self._number, None
        _close([number])


def _close(numbers: Iterable[int | None]) -> None:
    for number in numbers:
        if number is not None:
            with suppress(OSError):
                os.close(number)


def _forget_all() -> None:
    """Close the parent's descriptors in a forked process: with them, locks would outlast the parent."""
    global _changing  # noqa: PLW0603 - another thread of the parent may have it
    _changing = threading.Lock()
    for lock in _held:
        lock.forget()
    for numbers in _kept.values():
        _close(numbers)
    for each in (_held, _owned, _used, _kept, _names):
        each.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget_all)


def check_names(path: Path, name: str) -> None:
    """
    Check that the file at *path*, which errors call *name*, has no other name.

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
        raise JournalError(f"{name}: it is a folder, a pipe or a device. Choose the path of a file.")


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _holder(text: bytes) -> str:
    try:
        holder = json.loads(text)
        return f"process {holder['pid']} on {holder['host']}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return "another process"
