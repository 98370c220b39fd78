"""The inputs of a batch: which processes read them, and how entries are added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from invsvc_async.durable.store.adding import KnownEntry, add
from invsvc_async.durable.store.fact_names import INPUT
from invsvc_async.durable.store.statements import store_sql
from invsvc_async.storage.dialect import MOST, not_found, slices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.storage.dialect import Script


FOREVER: Final = 1e300  # a time (s) that all inputs were begun before


class Added(NamedTuple):
    """The numbers of new entries by key, and what the store had under the keys of others."""

    new: dict[str, int]
    others: dict[str, KnownEntry]


async def add_part(
    store: Store,
    entries: Sequence[Entry],
    reader: str,
    checkpoint: str | None,
    *,
    checkpoint_fact: str,
) -> Added:
    """
    Store new *entries*, at most 256, in their order.

    With them, store the *checkpoint*, which says how far their file was read, as the fact *checkpoint_fact*,
    and that the process *reader* reads it.
    """
    ours: set[int] = set()

    def script() -> Script[dict[str, KnownEntry]]:
        known: dict[str, KnownEntry] = {}
        if entries:
            known = yield from add(entries, store.commons.texts, ours=ours)
        are_same = all(known[entry.key].digest == entry.digest for entry in entries)
        # How far the file was read is not stored past another write under a known key: the next run has to
        # meet it again, and to refuse it, too.
        if checkpoint is not None and are_same:
            yield store_sql.SET_FACT, (checkpoint_fact, checkpoint)
        # With each part: another process may have closed the input meanwhile (``close_of_dead``).
        yield store_sql.NOTE_INPUT, (f"{INPUT}{reader}",)
        return known

    found = await store.run(script)
    new = {key: known.seq for key, known in found.items() if known.seq in ours}
    others = {key: known for key, known in found.items() if known.seq not in ours}
    return Added(new, others)


async def begin(store: Store, reader: str) -> None:
    """Note that the process *reader* reads an input, unless that is noted."""
    await store.rows(store_sql.NOTE_INPUT, f"{INPUT}{reader}")


async def end(store: Store, reader: str) -> None:
    """Note that *reader* has read its input to the end."""
    await store.rows(store_sql.DELETE_INPUTS, [f"{INPUT}{reader}"])


async def close_of_dead(store: Store, before: float) -> int:
    """
    Delete the notes that processes which are gone read inputs; return how many there were.

    Only of inputs that were begun *before* a time of the store's clock, in seconds.  A run that has stored
    its whole input calls this: its input has the writes of those begun before it, too.
    """
    # What earlier runs have deleted, unless they were rolled back.
    tried: set[str] = set()

    def script() -> Script[int]:
        closed = yield from not_found(tried, store_sql.LOCK_INPUTS)
        names = [
            name
            for (name,) in (yield store_sql.INPUTS_OF_DEAD, (store.silence, before))
        ]
        for some in slices(names, MOST):
            yield store_sql.DELETE_INPUTS, (some,)
        closed.update(names)
        tried.update(names)
        return len(closed)

    return await store.run(script)


async def is_undecided(
    store: Store,
    since: float,
    name: str,
) -> bool:
    """
    Return whether another process than *name*, silent *since* a time of the store's clock (s), may be gone.

    The processes of a batch end at about the same time.  One that ends gives the results that processes which
    are gone have not given, so it has to know which of them are gone.  One that has neither results nor an
    input does not matter.
    """
    return bool(
        await store.rows(store_sql.UNDECIDED_MEMBERS, store.silence, since, name)
    )


async def count(store: Store) -> int:
    """Count the inputs that were begun and not read to their end."""
    return int((await store.rows(store_sql.COUNT_INPUTS))[0][0])
