"""The portals of this process: one for each client, however many threads and tasks write tables."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs

from invsvc_async.portal import Portal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from invsvc_async.client import Client


@attrs.define
class _Open:
    """A portal that is open. ``made_by`` is what it was made by, in which environment."""

    made_by: tuple[object, dict[str, str]]
    portal: Portal
    users: int = 0


class _Portals:
    """The open portals of one process. Those that nobody uses are closed when another one is opened."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[_Open] = []

    def lend(self, client: Callable[[], Client]) -> _Open:
        """Return a portal that *client* makes, or has made in the same environment."""
        settings = {
            name: value
            for name, value in os.environ.items()
            if name.startswith("INVSVC_")
        }
        made_by = (client, settings)
        with self._lock:
            found = next((each for each in self._open if each.made_by == made_by), None)
            if found is None:
                self._close_unused()
                found = _Open(made_by, Portal(client).__enter__())
                self._open.append(found)
            found.users += 1
            return found

    def give_back(self, lent: _Open, *, keep: bool) -> None:
        """Note the end of a use; unless *keep*, close the portal if that was the last."""
        with self._lock:
            lent.users -= 1
            if not keep:
                self._close_unused()

    def forget(self) -> None:
        """Begin anew in a forked process: the portals, and perhaps a lock that is held, are the parent's."""
        self._lock = threading.Lock()
        self._open = []

    def _close_unused(self) -> None:
        for unused in [each for each in self._open if not each.users]:
            self._open.remove(unused)
            unused.portal.__exit__(None, None, None)


_portals = _Portals()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_portals.forget)


@contextmanager
def portal_of(client: Callable[[], Client], *, keep: bool) -> Generator[Portal]:
    """
    Lend the portal of this process for the client that *client* makes.

    With *keep* it stays open until the process ends, or needs one for another client.
    """
    lent = _portals.lend(client)
    try:
        yield lent.portal
    finally:
        _portals.give_back(lent, keep=keep)
