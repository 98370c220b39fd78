"""The writes that other processes have left in the journal of a client: taken over, and read."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeVar

from invsvc_async.durable.removal import PAGE, Removal, Sender, StoredWrite
from invsvc_async.durable.store.lanes import move_entries
from invsvc_async.durable.store.unkeyed_removal import entries_of
from invsvc_async.errors import JournalError
from invsvc_async.storage.dialect import slices

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.intents import Commons
    from invsvc_async.durable.leases import Lane
    from invsvc_async.durable.store.opening import Store


log: logging.Logger = logging.getLogger("invsvc_async.writes")

T = TypeVar("T")
_DEAD_AT_ONCE: Final = 20  # lanes of dead processes taken over in one transaction


class LeftWrites:
    """
    The entries in *store* that other processes have left; those taken over are among *writes*.

    One that *removal* is about to remove was heard meanwhile, so it is not left any more.
    """

    def __init__(
        self,
        store: Store,
        writes: dict[str, StoredWrite],
        removal: Removal,
    ) -> None:
        self._store = store
        self._writes = writes
        self._removal = removal

    async def take(
        self,
        lane: Lane,
        credential: str | None,
        *,
        most: int = _DEAD_AT_ONCE,
    ) -> None:
        """
        Acquire the lanes of dead processes, up to *most* at once, and move their entries to *lane*, our own.

        With *credential*, take only those of a client that had it.
        With a *most* of 0, only lanes that an earlier call has taken, also if its reply was lost.
        """
        taken: list[Lane] | None = None
        while taken is None or len(taken) >= _DEAD_AT_ONCE:
            taken = await lane.leases.take(most, credential=credential)
            await self._move_others(lane)

    async def _move_others(self, lane: Lane) -> None:
        """
        Move the entries of all further lanes of this process to *lane*, and give up the lanes.

        They are those just taken, and those of an earlier recovery that was cancelled, or failed, before it
        moved them.  Which of their entries came out of which lane is not known, so the senders count as gone
        only if all of them are.  If there is no further lane, but entries were moved, then the reply of an
        earlier move was lost: nothing is known of those senders any more.
        """
        leases = lane.leases
        others = [each for each in leases.lanes.values() if each is not lane]
        moved = await move_entries(self._store, others, lane)
        for each in others:
            leases.lanes.pop(each.number, None)
        are_all_gone = bool(others) and all(each.has_ended for each in others)
        sender = Sender.GONE if are_all_gone else Sender.ELSEWHERE
        for key, is_done in moved.items():
            self._note_taken(key, lane, sender, is_done=is_done)

    def _note_taken(
        self,
        key: str,
        lane: Lane,
        sender: Sender,
        *,
        is_done: bool,
    ) -> None:
        """Note an entry that is in *lane* now, unless it is a write of this process that was sent since."""
        write = self._writes.get(key)
        if write is None:
            self._writes[key] = StoredWrite(lane, sender, is_done)
        elif write.is_left:
            write.lane = lane
            write.done = write.done or is_done

    async def read(
        self, as_value: Callable[[Entry, Commons], T], *, done: bool
    ) -> AsyncIterator[tuple[Entry, T]]:
        """
        Iterate over the entries that were taken over, with or without a verdict, each with its value.

        They come oldest first. Of a journal that processes share, unreadable ones are logged.
        """

        def is_left(key: str) -> bool:
            write = self._writes.get(key)
            if write is None or not write.is_left:
                return False
            return not self._removal.is_soon(key)

        for some in slices([*filter(is_left, self._writes)], PAGE):
            for entry in await entries_of(self._store, some, done=done):
                was_heard_meanwhile = not is_left(entry.key)
                if was_heard_meanwhile:
                    continue
                try:
                    found = as_value(entry, self._store.commons)
                except JournalError as error:
                    if not self._store.is_shared:
                        raise
                    log.error("left in the journal: %s", error)
                else:
                    yield entry, found
