"""The inputs of a batch: which processes read them, and how entries are added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from invsvc_async.durable.store.adding import KnownEntry, add
from invsvc_async.durable.store.facts import SET
from invsvc_async.durable.store.members import dead_member
from invsvc_async.storage.dialect import MOST, not_found, slices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.storage.dialect import Script


# For each input that is being read there is a fact, named after the process that reads it; its value is when
# that was begun (s).
_INPUT: Final = "input "
_INPUTS: Final = f"SELECT count(*) FROM {{s}}facts WHERE name LIKE '{_INPUT}%'"
_NOTE_INPUT: Final = """
INSERT INTO {s}facts (name, value) VALUES ($1, CAST({now} AS text)) ON CONFLICT (name) DO NOTHING
"""
# Whether an input was begun before the time $2.  If its time is in the future, it was begun before the
# database's clock was set back, so before $2, unless $2 is in the future, too.
_IS_BEGUN_BEFORE: Final = """
        CAST(f.value AS float8) <= {arg 2 float8}
        OR CAST(f.value AS float8) > {now} AND {arg 2 float8} <= {now}"""
# Such inputs of processes that are gone, or silent.
_OF_DEAD: Final = f"""
SELECT f.name FROM {{s}}facts AS f
    WHERE f.name LIKE '{_INPUT}%' AND ({_IS_BEGUN_BEFORE})
    AND {dead_member(f"substr(f.name, {len(_INPUT) + 1})")}
"""
_FORGET_INPUTS: Final = "DELETE FROM {s}facts WHERE name {any 1 text}"
# The lock waits for an earlier run that the server has not ended yet.
_STILL_THERE: Final = (
    "SELECT name FROM {s}facts WHERE name {any 1 text} ORDER BY name {update}"
)
# Processes that gave no sign of life since $2, and do not count as dead yet.  A sign of life in the future
# was given before the database's clock was set back.
_UNDECIDED: Final = f"""
SELECT m.name FROM {{s}}members AS m
    WHERE (m.seen < {{arg 2 float8}} OR m.seen > {{now}}) AND m.sends >= 0 AND m.name <> $3
    AND NOT {dead_member("m.name")} AND (
        EXISTS (SELECT 1 FROM {{s}}unheard AS u WHERE u.taker LIKE m.name || '.%')
        OR EXISTS (SELECT 1 FROM {{s}}facts AS f WHERE f.name = '{_INPUT}' || m.name)) LIMIT 1
"""
FOREVER: Final = 1e300  # a time (s) that all inputs were begun before


class Added(NamedTuple):
    """The numbers of new entries by key, and what the journal had under the keys of others."""

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
        known = (
            (yield from add(entries, store.commons.texts, ours=ours)) if entries else {}
        )
        are_same = all(known[entry.key].digest == entry.digest for entry in entries)
        # How far the file was read is not stored past another write under a known key: the next run has to
        # meet it again, and to refuse it, too.
        if checkpoint is not None and are_same:
            yield SET, (checkpoint_fact, checkpoint)
        # With each part: another process may have closed the input meanwhile (``close_of_dead``).
        yield _NOTE_INPUT, (f"{_INPUT}{reader}",)
        return known

    found = await store.run(script)
    return Added(
        new={key: known.seq for key, known in found.items() if known.seq in ours},
        others={key: known for key, known in found.items() if known.seq not in ours},
    )


async def begin(store: Store, reader: str) -> None:
    """Note that the process *reader* reads an input, unless that is noted."""
    await store.rows(_NOTE_INPUT, f"{_INPUT}{reader}")


async def end(store: Store, reader: str) -> None:
    """Note that *reader* has read its input to the end."""
    await store.rows(_FORGET_INPUTS, [f"{_INPUT}{reader}"])


async def close_of_dead(store: Store, before: float) -> int:
    """
    Delete the notes that processes which are gone read inputs; return how many there were.

    Only of inputs that were begun *before* a time of the store's clock, in seconds.
    """
    # What earlier runs have deleted, unless they were rolled back.
    tried: set[str] = set()

    def script() -> Script[int]:
        closed = yield from not_found(tried, _STILL_THERE)
        names = [name for (name,) in (yield _OF_DEAD, (store.silence, before))]
        for some in slices(names, MOST):
            yield _FORGET_INPUTS, (some,)
        closed.update(names)
        tried.update(names)
        return len(closed)

    return await store.run(script)


async def is_undecided(store: Store, since: float, name: str) -> bool:
    """
    Return whether another process than *name*, silent *since* a time of the store's clock (s), may be gone.

    One that has neither results nor an input does not matter.
    """
    return bool(await store.rows(_UNDECIDED, store.silence, since, name))


async def count(store: Store) -> int:
    """Count the inputs that were begun and not read to their end."""
    return int((await store.rows(_INPUTS))[0][0])
