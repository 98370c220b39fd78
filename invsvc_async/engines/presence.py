"""
Which workers of this machine are dead: writes of a killed worker are taken over at once, not after a silence.

A worker that shares a journal holds the lock of a file in memory of this machine while it lives. The system
releases the lock at the end of the process, however it ends. So who can acquire the lock of such a file knows
that its process sends nothing more, and releases in the journal what that process had: others take it over
at once, as from a worker that has left, and do not wait for the time limit of its requests.

A file that is not there proves nothing. Of workers of other machines and of other containers, and where
there is no such folder, the journal knows by their silence, as of all its processes.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from invsvc_async.concurrency.cancellation import raise_if_cancelled
from invsvc_async.durable.store.lanes import release_lanes
from invsvc_async.durable.store.members import forget, member_of
from invsvc_async.engines.results import log
from invsvc_async.errors import InvsvcError
from invsvc_async.storage.file_lock import WhileOpen

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from invsvc_async.client import Client
    from invsvc_async.durable.journal import ClientJournal

# Memory of this machine, whose locks end with their processes. A network's file system may end them sooner.
MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of its own in it
_PULSE: Final = 0.5  # s between two looks
_LONGEST: Final = 200  # characters of a token


@asynccontextmanager
async def present(client: Client) -> AsyncGenerator[None]:
    """Show the other workers of this machine that this process lives, and look for dead ones."""
    # Any: a journal is known here by its protocol only
    journal: Any = client._view.core.writes.journal  # noqa: SLF001 - the package's own
    if not _is_of_use(journal):
        yield
        return
    presence = Presence(journal)
    await presence.look()
    looking = asyncio.create_task(presence.look_on(), name="invsvc dead workers")
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.wait([looking])
        presence.end()


def _is_of_use(journal: ClientJournal | None) -> bool:
    """Return whether workers share *journal*, and this machine has a folder in memory, with locks."""
    if journal is None or not journal.is_shared:
        return False
    return sys.platform == "linux" and _has_locks(MEMORY)


def _has_locks(folder: Path) -> bool:
    """Return whether a second lock of a file in *folder* is refused. If not, locks prove nothing."""
    path = folder / f"invsvc-try-{uuid4().hex}"
    first, second = WhileOpen(path), WhileOpen(path)
    try:
        first.acquire()
        return not second.acquire()
    except OSError:
        return False
    finally:
        second.release()
        first.release()


class Presence:
    """The file of this process, and the tokens in the files of dead processes."""

    def __init__(self, journal: ClientJournal) -> None:
        self._journal = journal
        self._name = uuid4().hex
        # Both are known once the journal is open.
        self._folder: Path
        self._lock: WhileOpen | None = None
        self._shown = ""  # the token in the file
        self._dead: set[str] = set()  # tokens of lanes that are to be released

    async def look_on(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(_PULSE)
            await self.look()

    async def look(self) -> None:
        """Show the lane of this process, and release the lanes of the dead."""
        try:
            await self._look()
        except (InvsvcError, OSError) as error:
            raise_if_cancelled()
            log.debug("dead workers are not looked for now: %s", error)

    def end(self) -> None:
        """Delete the file: this process is about to leave its lane by itself."""
        if self._lock is None:
            return
        self._lock.release()
        with suppress(OSError):  # there are others
            self._folder.rmdir()

    async def _look(self) -> None:
        lane = await self._journal.life.own_lane()
        store: Any = lane.leases.store  # Any: one in PostgreSQL, which has a schema
        self._folder = _own_folder(store.schema)
        self.show(lane.token, self._folder / self._name)
        others = (path for path in self._folder.iterdir() if path.name != self._name)
        self._dead.update(filter(None, map(_token_of_dead, others)))
        for token in [*self._dead]:
            await release_lanes(store, [token])
            await forget(store, member_of(token))
            self._dead.discard(token)
            log.info("a worker of this machine was killed: others take over its writes")

    def show(self, token: str, path: Path) -> None:
        """
        Write the token of this process's lane into its file, if the token has changed.

        The token stands only in a file whose lock this process has: another process takes what is in any
        other file for that of a dead one.

        Raises:
            OSError: Another process has the lock at this moment, because it looks, or the file cannot be
                written.
        """
        if self._lock is None:
            lock = WhileOpen(path)
            if not lock.acquire():
                raise BlockingIOError(f"{path} is looked at")
            self._lock = lock
        if token != self._shown:
            self._lock.write(token)
            self._shown = token


def _own_folder(journal: str) -> Path:
    """
    Return the folder of the workers of a *journal* on this machine; only this user may use it.

    Raises:
        OSError: It cannot be made, or others may use it.
    """
    user = _user()
    folder = MEMORY / f"invsvc-workers-{user}"
    for each in (folder, folder / journal):
        each.mkdir(mode=0o700, exist_ok=True)
        found = each.lstat()
        is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == user
        if not is_own or found.st_mode & 0o077:
            raise PermissionError(f"{each} is not of this user alone")
    return folder / journal


def _user() -> int:
    """Return the number of the user of this process.  Windows, which has none, has no folder in memory."""
    if sys.platform == "win32":
        return 0
    else:  # noqa: RET505 - type checkers skip one of the branches
        return os.geteuid()


def _token_of_dead(path: Path) -> str | None:
    """
    Return the token in the file at *path* if its process is dead, and delete the file; otherwise ``None``.

    A process that is about to lock its file may lose it here, and shows itself at its next look.
    """
    lock = WhileOpen(path)
    if not lock.acquire():
        return None
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            return file.read(_LONGEST) or None
    finally:
        lock.release()
