"""Whether there are authentic events that could not be read, and that nobody has dealt with."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from invsvc_async.errors import MalformedEventError

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.events.stores import Store

_LOOK_AGAIN: Final = 60.0  # s between two searches of the dead letters
_PAGE: Final = 100
# of dead letters, which have their bodies with them: a search stops there
_PAGES: Final = 10
_PROBLEM: Final = (
    "an authentic event could not be read, and is a dead letter. Look at it with invsvc events list "
    "--state dead, then revive or drop it"
)


class Unread:
    """
    Knows whether the store of a receiver has dead letters that are authentic and could not be read.

    The first search finds those of earlier processes.  While there are some, the store is searched again now
    and then: somebody may have revived or dropped them meanwhile.
    """

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._has_some: bool = False
        self._searched: float | None = None

    def note(self) -> None:
        """Note that an event became such a dead letter."""
        self._has_some = True
        self._searched = self._steady()

    async def problem(self, store: Store, dead: int) -> str | None:
        """
        Return what is wrong, in words, if there is such an event.

        *dead* is how many dead letters there are.
        """
        if dead == 0:
            self._has_some = False
            self._searched = self._steady()
        elif self._is_to_search:
            self._has_some = await _has_unread(store)
            self._searched = self._steady()
        if self._has_some:
            return _PROBLEM
        return None

    @property
    def _is_to_search(self) -> bool:
        """Whether what is known of the store is nothing, or may be out of date."""
        if self._searched is None:
            return True
        # After a search that found none, no other is needed: ``note`` says when this process makes one.
        return self._has_some and self._steady() - self._searched >= _LOOK_AGAIN


def is_unread(reason: str) -> bool:
    """Return whether *reason* says that a dead letter could not be read."""
    # ``reason_of`` begins each reason with the name of the error's class.
    return reason.startswith(MalformedEventError.__name__)


async def _has_unread(store: Store) -> bool:
    """Search the first ``_PAGES`` pages of dead letters for one that could not be read."""
    after = 0
    for _ in range(_PAGES):
        letters = await store.events(
            state="dead",
            after=after,
            limit=_PAGE,
        )
        if any(is_unread(letter.reason) for letter in letters):
            return True
        if len(letters) < _PAGE:
            return False
        after = letters[-1].id
    return False
