"""
Entries that are added: their numbers, and what is known under their keys already.

A script may be run again after its reply was lost, and then finds what its earlier run has done.  The caller
gives a set that outlasts the runs, *ours*, and each run adds to it.  In a file, what an earlier run has done
was always rolled back, so there the set may be the script's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from invsvc_async.durable.entry import Entry, State, written_of
from invsvc_async.durable.store.statements import entry_sql
from invsvc_async.durable.store.tables import change_counts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from invsvc_async.durable.store.opening import Store
    from invsvc_async.storage.dialect import Script


class KnownEntry(NamedTuple):
    """What a store has under a key; ``done_at`` is in epoch ms."""

    seq: int
    digest: str
    state: int
    done_at: int | None


async def known_of(store: Store, keys: Sequence[str]) -> dict[str, KnownEntry]:
    """Return what the store has under *keys*, at most 256, by key."""
    rows = await store.rows(entry_sql.SELECT_KNOWN, list(keys))
    return {key: KnownEntry(*known) for key, *known in rows}


def numbers(many: int) -> Script[list[int]]:
    """Return the next *many* numbers, for new entries, or as places at the end of the order."""
    in_database = yield entry_sql.NEXT_NUMBERS, (many,)
    if in_database:
        return [number for (number,) in in_database]
    # The statement for PostgreSQL returns nothing in a file.
    [(last,)] = (yield entry_sql.NEXT_NUMBERS_IN_FILE, (many,)) or (
        yield entry_sql.FIRST_NUMBERS_IN_FILE, (many,)
    )
    return [*range(last - many + 1, last + 1)]


def add(
    entries: Sequence[Entry],
    commons: Mapping[int, str],
    *,
    ours: set[int],
) -> Script[dict[str, KnownEntry]]:
    """
    Insert new *entries* in their order; return what is known under their keys, by key.

    With them, store the common parts of their intents, which *commons* has by number.  The numbers that this
    run gives are added to *ours*: an entry under one of them was inserted by this run, or an earlier one.

    They are counted as TO DO.  Claims of keys also insert entries that are being sent, but keys are in the
    journals of clients, which keep no counts.
    """
    needed = {entry.common for entry in entries if entry.common}
    yield entry_sql.INSERT_COMMONS, ([(number, commons[number]) for number in needed],)
    given = yield from numbers(len(entries))
    ours.update(given)
    numbered = [*zip(given, entries, strict=True)]
    rows = [(seq, seq, entry.lane, *written_of(entry)) for seq, entry in numbered]
    new = yield entry_sql.ADD, (rows,)
    yield from change_counts({(State.TO_DO, "", 0): len(new)})
    if len(new) == len(entries):
        return {
            entry.key: KnownEntry(seq, entry.digest, int(entry.state), None)
            for seq, entry in numbered
        }
    found = yield entry_sql.SELECT_KNOWN, ([entry.key for entry in entries],)
    known = {key: KnownEntry(*columns) for key, *columns in found}
    # Their keys were known, and another process has deleted those entries since.
    if deleted := [entry for entry in entries if entry.key not in known]:
        known |= yield from add(deleted, commons, ours=ours)
    return known
