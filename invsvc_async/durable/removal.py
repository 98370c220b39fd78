"""
The writes of a client's journal, as far as this process knows, and the removal of heard verdicts.

A verdict is removed between one and two periods after the application has had it, together with others, since
one task may pass it on to another, which has it a little later.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

import attrs

from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.store.unkeyed_removal import remove
from invsvc_async.errors import JournalError
from invsvc_async.storage.dialect import slices

if TYPE_CHECKING:
    from invsvc_async.durable.intents import Packed
    from invsvc_async.durable.leases import Lane
    from invsvc_async.durable.store.opening import Store


PAGE: Final = 256  # entries read or removed at once
_HEARD_AFTER: Final = 0.05  # s: a period


class Sender(Enum):
    """Which process has sent an entry last, or was about to."""

    HERE = auto()
    ELSEWHERE = auto()  # another one has left it, and may only be silent
    GONE = auto()  # another one has left it, and is provably done with it


@attrs.define
class StoredWrite:
    """An entry in a *lane* of this process."""

    lane: Lane
    sender: Sender = Sender.HERE
    done: bool = False  # it has a verdict
    # what was stored before the last send, until the verdict
    sent: Packed | None = None
    # Whether this process surely had it: the store of a send of it was not cancelled.
    is_stored: bool = False

    @property
    def is_left(self) -> bool:
        """Whether another process has left it, and nothing of it was sent here since."""
        return self.sender is not Sender.HERE


class Removal:
    """
    The removal of heard verdicts from *store*, and from *writes*, by the keys of their entries.

    A key is first ``soon`` to be removed, for a period, in which ``keep`` withdraws it; then it is removed,
    which ``remove_now`` waits for.
    """

    def __init__(
        self,
        store: Store,
        writes: dict[str, StoredWrite],
        close_began: asyncio.Event,
    ) -> None:
        self._store = store
        self._writes = writes
        self._close_began = close_began  # then no period is waited for
        self._heard: set[str] = set()
        self._removed: frozenset[str] = frozenset()  # that are removed now
        self._lock = asyncio.Lock()
        self.task: asyncio.Task[None] | None = None

    @property
    def heard(self) -> frozenset[str]:
        """The keys that are soon to be removed."""
        return frozenset(self._heard)

    def is_soon(self, key: str) -> bool:
        """Return whether *key* is soon to be removed."""
        return key in self._heard

    def soon(self, key: str) -> None:
        """Remove *key* soon, together with others."""
        self._heard.add(key)
        if self.task is None or self.task.done():
            self.task = asyncio.get_running_loop().create_task(self._run())

    def keep(self, key: str) -> None:
        """Do not remove *key*, if that has not begun."""
        self._heard.discard(key)

    async def remove_now(self, key: str) -> None:
        """Remove *key* if ``soon`` was called; wait for a removal that is under way."""
        while key in self._removed or key in self._heard:
            async with self._lock:  # a removal that is under way has it until it ends
                if key in self._heard:
                    self._heard.discard(key)
                    await self._remove(frozenset((key,)) & self._writes.keys())

    async def _run(self) -> None:
        """Remove what was heard, until there is no more."""
        try:
            while waiting := frozenset(self._heard):
                await set_within(self._close_began, _HEARD_AFTER)
                async with self._lock:
                    # One that was removed, and cancelled meanwhile, is heard again.
                    self._removed = waiting & self._heard & self._writes.keys()
                    self._heard -= waiting
                    await self._remove(self._removed)
                    self._removed = frozenset()
        finally:
            self._removed = frozenset()
            self.task = None

    async def _remove(self, keys: frozenset[str]) -> None:
        """
        Remove *keys*.

        If the store fails, the entries stay, and the next process gives, or settles, them once more.

        Meanwhile they count neither as done nor as left by others, so they are not heard or given again.
        """
        writes = [self._writes[key] for key in keys]
        for write in writes:
            write.sender = Sender.HERE
            write.done = False
        await self._store.idle()  # what is pending for them is stored
        lanes = list({write.lane.number for write in writes})
        with suppress(JournalError):
            for some in slices(sorted(keys), PAGE):
                await remove(self._store, some, lanes)
            for key in keys:
                del self._writes[key]
