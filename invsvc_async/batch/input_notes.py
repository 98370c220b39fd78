"""What the store of a batch notes of its inputs: who reads one, how far, and what is added of it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from invsvc_async.batch.file_check import Checkpoint
from invsvc_async.durable.store import inputs
from invsvc_async.durable.store.adding import KnownEntry, known_of
from invsvc_async.durable.store.facts import Facts, now_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.inputs import Added
    from invsvc_async.durable.store.opening import Store


_CHECKPOINT = "checkpoint"  # the fact that says how far the latest input was taken in


class InputNotes:
    """The inputs of the batch in *store*, each of which a process reads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._facts = Facts(store)

    async def known(self, keys: Iterable[str]) -> dict[str, KnownEntry]:
        """Return what the journal has under *keys*, at most 256."""
        return await known_of(self._store, [*keys])

    async def add(
        self,
        entries: Sequence[Entry],
        reader: str,
        checkpoint: Checkpoint | None,
    ) -> Added:
        """
        Store new *entries*, at most 256, in their order.

        With them, store how far their file was read, and that the process *reader* reads it: another one may
        have closed its input while it was silent.
        """
        text = None if checkpoint is None else msgspec.json.encode(checkpoint).decode()
        return await inputs.add_part(
            self._store, entries, reader, text, checkpoint_fact=_CHECKPOINT
        )

    async def checkpoint(self) -> Checkpoint | None:
        """Return how far the latest input was taken in, if all its lines have keys."""
        text = await self._facts.get(_CHECKPOINT)
        with suppress(msgspec.MsgspecError):  # damaged: the file is read from its start
            if text is None:
                return None
            return msgspec.json.decode(text, type=Checkpoint)
        return None

    async def begin(self, reader: str) -> float:
        """Note that the process *reader* reads an input; return the time of the store's clock, in seconds."""
        await inputs.begin(self._store, reader)
        return await self.now()

    async def end(self, reader: str) -> None:
        """Note that *reader* has read its input to the end."""
        await inputs.end(self._store, reader)

    async def close_of_dead(self, before: float = inputs.FOREVER) -> int:
        """
        Mark the inputs of processes that are gone as read, as far as they were; return how many.

        Only those that were begun *before* a time of the store's clock, in seconds.
        """
        return await inputs.close_of_dead(self._store, before)

    async def now(self) -> float:
        """Return the time of the store's clock, in seconds."""
        return await now_of(self._store)

    async def is_undecided(self, since: float, name: str) -> bool:
        """
        Return whether another process than *name* may be gone: it gave no sign of life *since* (store's s).

        One that has neither results nor an input does not matter.
        """
        return await inputs.is_undecided(self._store, since, name)
