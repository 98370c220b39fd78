"""The portals of this process: one for each client, however many threads and tasks write tables."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING

import attrs

from invsvc_async.engines.places import RowPlaces
from invsvc_async.engines.presence import present
from invsvc_async.portal import Portal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from invsvc_async.client import Client


@attrs.define
class OpenPortal:
    """An open portal. ``made_by`` is the function that made its client, and a digest of the settings."""

    made_by: tuple[object, bytes]
    portal: Portal
    users: int = 0
    # by concurrency and rate: what iterators of several threads share
    places: dict[tuple[int, float | None], RowPlaces] = attrs.field(factory=dict)

    def places_for(self, concurrency: int, rate: float | None) -> RowPlaces:
        """Return the places of this process for rows with these limits."""
        core = self.portal.client._view.core  # noqa: SLF001 - the package's own
        made = RowPlaces(concurrency, rate, core.members)
        # one of two threads at the same moment makes them
        return self.places.setdefault((concurrency, rate), made)


def _settings_digest() -> bytes:
    """Return a digest of the settings in the environment."""
    # no local variable has them: tracebacks may show it, and there are tokens in them
    return sha256(
        repr(
            sorted(each for each in os.environ.items() if each[0].startswith("INVSVC_"))
        ).encode()
    ).digest()


def _opened(client: Callable[[], Client]) -> Portal:
    """Open a portal.  From then on, this process and other workers of the machine see each other."""
    portal = Portal(client).__enter__()
    try:
        portal.enter(present(portal.client))
    except BaseException:
        portal.__exit__(None, None, None)
        raise
    return portal


class _Portals:
    """The open portals of one process. Those that nobody uses are closed when another one is opened."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[OpenPortal] = []

    def lend(self, client: Callable[[], Client]) -> OpenPortal:
        """Return the open portal of *client* with these settings, or open one."""
        made_by = (client, _settings_digest())
        with self._lock:
            found = next((each for each in self._open if each.made_by == made_by), None)
            if found is None:
                self._close_unused()
                found = OpenPortal(made_by, _opened(client))
                self._open.append(found)
            found.users += 1
            return found

    def give_back(self, lent: OpenPortal, *, keep: bool) -> None:
        """Note the end of a use; unless *keep*, close the portal if that was the last."""
        with self._lock:
            lent.users -= 1
            if not keep:
                self._close_unused()

    def forget(self) -> None:
        """Begin anew in a forked process: the portals, and perhaps a lock that is held, are the parent's."""
        self._lock = threading.Lock()
        self._open = []

    def close(self) -> None:
        """Close what nobody uses, because the process is about to end."""
        with self._lock:
            self._close_unused()

    def _close_unused(self) -> None:
        for each in tuple(self._open):
            if not each.users:
                self._open.remove(each)
                each.portal.__exit__(None, None, None)


_portals = _Portals()
if sys.platform != "win32":
    os.register_at_fork(after_in_child=_portals.forget)


def close_portals() -> None:
    """Close the portals that nobody uses, in a process that ends without Python's exit handlers."""
    _portals.close()


@contextmanager
def portal_of(client: Callable[[], Client], *, keep: bool) -> Generator[OpenPortal]:
    """
    Lend the portal of this process for the client that *client* makes.

    With *keep* it stays open until the process ends, or needs one for another client.
    """
    lent = _portals.lend(client)
    try:
        yield lent
    finally:
        _portals.give_back(lent, keep=keep)
