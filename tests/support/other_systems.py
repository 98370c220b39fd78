"""
Let the package find itself on macOS or Windows, as far as Linux can imitate them.

A process begins so in an ``environment("win32")``. There the modules of the package, and no others, find what they would find there: ``sys.platform``, missing names of ``os``, ``time``,
``signal`` and ``select``, modules that do not exist, ``msvcrt``. Beside that, for the whole process:

- On Windows, loops have no ``add_signal_handler`` and no ``add_reader``, and a file that this process has open is not
  deleted or replaced. A number that ``os.open`` returned without ``O_BINARY`` writes two characters for a line end.
  Its clocks step by 1/64 s, as those of Python before 3.13 do.
- On macOS, there are no locks of open files (``F_OFD_SETLK``), no ``CLOCK_BOOTTIME`` and no ``POLLRDHUP``.

What this does not imitate: paths with drives, the proactor loop, locks that keep others from reading, consoles.
"""

from __future__ import annotations

import asyncio
import builtins
import errno
import fcntl
import math
import os
import select
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec

PACKAGE: Final = "invsvc_async"
NAME: Final = "INVSVC_SYSTEM"  # of the variable
BREAK: Final = signal.SIGUSR1  # stands for SIGBREAK
ROOT: Final = Path(__file__).parents[2]
_STEP: Final = 64  # of the clock of Windows, in a second
_POSIX_ALONE: Final = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "uvloop")


class Seen(ModuleType):
    """A module as another system has it: some names are others, and some are missing."""

    def __init__(
        self, real: ModuleType, *, lacks: Sequence[str] = (), **others: object
    ) -> None:
        super().__init__(real.__name__)
        self.__dict__["_real"] = real
        self.__dict__["_lacks"] = frozenset(lacks)
        self.__dict__.update(others)

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__["_lacks"]:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self.__dict__["_real"], name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.__dict__["_real"], name, value)  # a test that replaces something

    def __delattr__(self, name: str) -> None:
        delattr(self.__dict__["_real"], name)


# --- locks of Windows


class Msvcrt:
    """
    ``msvcrt.locking`` as Windows has it.

    It locks bytes from the position of the file on, which need not exist.  The lock is that of the handle: it
    excludes others of the same process too, and ends when the handle is closed.  A handle cannot lock a byte twice.
    """

    LK_UNLCK, LK_LOCK, LK_NBLCK, LK_RLCK, LK_NBRLCK = range(5)
    _FORM = "@hhqqi0q"  # struct flock of Linux: locks of open files end with them, too

    def __init__(self) -> None:
        self._held: dict[int, set[int]] = {}

    def locking(self, number: int, mode: int, count: int) -> None:
        """Lock or unlock *count* bytes of the file with this *number*."""
        start = os.lseek(number, 0, os.SEEK_CUR)
        bytes_ = set(range(start, start + count))
        held = self._held.setdefault(number, set())
        if mode == self.LK_UNLCK:
            if not bytes_ <= held:
                raise OSError(errno.EACCES, "Permission denied")
            held -= bytes_
            self._ask(number, fcntl.F_UNLCK, start, count)
            return
        waits = mode in (self.LK_LOCK, self.LK_RLCK)
        if held & bytes_ or not self._ask(number, fcntl.F_WRLCK, start, count):
            # Windows tries it ten times, once in a second
            refusal = errno.EDEADLOCK if waits else errno.EACCES
            raise OSError(refusal, os.strerror(refusal))
        held |= bytes_

    def closed(self, number: int) -> None:
        """Forget what the handle had locked."""
        self._held.pop(number, None)

    def _ask(self, number: int, kind: int, start: int, count: int) -> bool:
        lock = struct.pack(self._FORM, kind, os.SEEK_SET, start, count, 0)
        try:
            fcntl.fcntl(number, fcntl.F_OFD_SETLK, lock)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            return False
        return True


class _Files:
    """The numbers of files as Windows has them: in text mode, unless they were opened with ``O_BINARY``."""

    O_BINARY = 1 << 40  # no flag of Linux

    def __init__(self, locks: Msvcrt) -> None:
        self._locks = locks
        self._in_text: set[int] = set()

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        number = os.open(path, flags & ~self.O_BINARY, mode)
        if not flags & self.O_BINARY:
            self._in_text.add(number)
        return number

    def write(self, number: int, data: bytes) -> int:
        if number not in self._in_text:
            return os.write(number, data)
        os.write(number, data.replace(b"\n", b"\r\n"))
        return len(data)

    def read(self, number: int, most: int) -> bytes:
        found = os.read(number, most)
        return found.replace(b"\r\n", b"\n") if number in self._in_text else found

    def close(self, number: int) -> None:
        self._in_text.discard(number)
        self._locks.closed(number)
        os.close(number)


def _keep_open_files() -> None:
    """Refuse to delete or to replace a file that this process has open."""

    def guard(name: str, *, looks_at: Sequence[int]) -> None:
        real = getattr(os, name)

        def guarded(*arguments: Any, **more: Any) -> Any:
            for at in looks_at:
                if _is_open(arguments[at], more.get("dir_fd")):
                    words = "The process cannot access the file because it is being used by another process"
                    raise PermissionError(errno.EACCES, words, arguments[at])
            return real(*arguments, **more)

        setattr(os, name, guarded)

    for name in ("unlink", "remove"):
        guard(name, looks_at=(0,))
    for name in ("replace", "rename"):
        guard(name, looks_at=(0, 1))


def _is_open(path: Any, folder: int | None) -> bool:
    try:
        found = os.stat(path, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if os.path.samestat(os.fstat(int(each.name)), found):
                return True
    return False


def _refuse(*_: object) -> None:
    raise NotImplementedError


# --- what the package sees


class _Signals:
    """The signals by name, with that of Windows for Ctrl-Break, for which another one stands here."""

    def __getitem__(self, name: str) -> signal.Signals:
        return BREAK if name == "SIGBREAK" else signal.Signals[name]


def _windows() -> dict[str, Any]:
    locks = Msvcrt()
    files = _Files(locks)
    _keep_open_files()
    for loop in (
        asyncio.SelectorEventLoop,
        asyncio.selector_events.BaseSelectorEventLoop,
    ):
        for name in (
            "add_signal_handler",
            "remove_signal_handler",
            "add_reader",
            "add_writer",
        ):
            if name in vars(loop):
                setattr(loop, name, _refuse)

    def stepping(clock: Callable[[], float]) -> Callable[[], float]:
        return lambda: math.floor(clock() * _STEP) / _STEP

    def kill(*_: object) -> None:
        raise AssertionError("os.kill ends a process on Windows, whatever the signal")

    lacking = (
        "fork", "forkpty", "getuid", "geteuid", "getgid", "getegid", "register_at_fork", "O_NOFOLLOW", "O_CLOEXEC",
        "O_DIRECTORY", "O_NONBLOCK", "O_SYNC", "setsid", "killpg", "WNOHANG", "sched_getaffinity", "getloadavg",
        "sysconf", "mkfifo", "chown", "fchmod", "fchown", "pread", "pwrite", "openpty", "statvfs",
    )  # fmt: skip
    of_files = {
        name: getattr(files, name)
        for name in ("open", "write", "read", "close", "O_BINARY")
    }
    signals = [
        name
        for name in dir(signal)
        if name.startswith("SIG")
        and name not in {"SIGINT", "SIGTERM", "SIGABRT", "SIGFPE", "SIGILL", "SIGSEGV", "SIG_DFL", "SIG_IGN"}
    ]  # fmt: skip
    return {
        "sys": Seen(sys, platform="win32"),
        "os": Seen(os, lacks=lacking, name="nt", kill=kill, **of_files),
        "time": Seen(
            time,
            lacks=[each for each in dir(time) if each.startswith(("CLOCK_", "clock_"))],
            monotonic=stepping(time.monotonic),
            time=stepping(time.time),
        ),
        "select": Seen(select, lacks=[n for n in dir(select) if n not in ("select", "error")]),
        "signal": Seen(signal, lacks=[*signals, "set_wakeup_fd", "alarm", "setitimer", "pthread_sigmask", "sigwait"],
            SIGBREAK=BREAK, Signals=_Signals(), SIG_DFL=signal.SIG_DFL),
        "socket": Seen(socket, lacks=["AF_UNIX", "SO_REUSEPORT", "socketpair", "send_fds"]),
        "msvcrt": locks,
        **dict.fromkeys(_POSIX_ALONE),
    }  # fmt: skip


def _macos() -> dict[str, Any]:
    def fcntl_of(number: int, command: int, *more: Any) -> Any:
        if command == Macos.F_FULLFSYNC:
            flushed.append(number)
            return 0
        return fcntl.fcntl(number, command, *more)

    return {
        "sys": Seen(sys, platform="darwin"),
        "os": Seen(os),
        "time": Seen(time, lacks=["CLOCK_BOOTTIME"]),
        "select": Seen(select, lacks=["POLLRDHUP", "epoll"]),
        "fcntl": Seen(
            fcntl,
            lacks=[each for each in dir(fcntl) if each.startswith("F_OFD_")],
            fcntl=fcntl_of,
            F_FULLFSYNC=Macos.F_FULLFSYNC,
        ),
    }


class Macos:
    """What macOS alone has."""

    F_FULLFSYNC = 51


flushed: list[int] = []  # by F_FULLFSYNC

_SYSTEMS: Final[Mapping[str, Callable[[], dict[str, Any]]]] = {
    "win32": _windows,
    "darwin": _macos,
}


class _Finder(MetaPathFinder):
    """Finds the package's modules, which then import what is *seen*."""

    def __init__(self, seen: dict[str, Any]) -> None:
        self._seen = seen
        self._builtins = {**vars(builtins), "__import__": self._import}

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> ModuleSpec | None:
        if name != PACKAGE and not name.startswith(f"{PACKAGE}."):
            return None
        for finder in sys.meta_path:
            found = None if finder is self else finder.find_spec(name, path, target)
            if found is not None and found.loader is not None:
                found.loader = _Loading(found.loader, self._builtins)
                return found
        return None

    def _import(self, name: str, *arguments: Any, **more: Any) -> Any:
        if name not in self._seen:
            return builtins.__import__(name, *arguments, **more)
        module = self._seen[name]
        if module is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return module


class _Loading(Loader):
    def __init__(self, real: Any, names: dict[str, Any]) -> None:
        self._real = real
        self._names = names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = self._names
        self._real.exec_module(module)


def pretend(system: str) -> None:
    """Let the package, which nothing has imported yet, find itself on *system*: "darwin" or "win32"."""
    assert not any(each.partition(".")[0] == PACKAGE for each in sys.modules), (
        "the package is imported already"
    )
    sys.meta_path.insert(0, _Finder(_SYSTEMS[system]()))


def environment(system: str) -> dict[str, str]:
    """Return the environment of a process, and of those that it starts, in which the package is on *system*."""
    folders = (ROOT / "tests/support/pretended", ROOT)
    return {
        **os.environ,
        NAME: system,
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
    }


if pretended := os.environ.get(NAME):
    pretend(pretended)
