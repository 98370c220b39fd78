"""Lists and counts of the entries of a store, as people see them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from invsvc_async.durable.store.migrations import WITH_DUE_TIMES, WITH_FLAGS
from invsvc_async.durable.store.noted import columns_in, noted_in, wanted_by
from invsvc_async.durable.store.statements import entry_sql
from invsvc_async.storage.dialect import in_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.noted import Chosen
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.reconcile.enums import Verdict
    from invsvc_async.storage.dialect import Cell
    from invsvc_async.writes.noted import Noted


class Counted(NamedTuple):
    """How many entries there are, up to the most asked for, and when the oldest was stored (epoch ms)."""

    many: int
    oldest: int | None


class Notes(NamedTuple):
    """
    What people see of an entry besides its progress.

    When it was stored first (epoch ms), whether its verdict was not acknowledged (in the journal of a client:
    whether a secret was not returned), the time before which it is not sent (epoch ms), and what users have
    noted.
    """

    added_at: int | None
    is_unheard: bool
    not_before: int | None
    noted: Noted


async def count_unfinished(store: Store) -> int:
    """Count the unfinished entries, in a store that keeps counts."""
    return int((await store.rows(entry_sql.KEPT_COUNT_OF_UNFINISHED))[0][0])


async def has_open(store: Store, operations: Sequence[str]) -> bool:
    """Return whether an entry of one of *operations* is open."""
    return bool(await store.rows(entry_sql.HAS_OPEN_OF_OPERATIONS, operations))


async def first_unfinished(store: Store, limit: int) -> list[Entry]:
    """Return the first unfinished entries, of all lanes."""
    return await store.entries(entry_sql.FIRST_UNFINISHED, limit)


async def first(
    store: Store,
    chosen: Chosen,
    limit: int,
) -> list[Entry]:
    """Return the first of the *chosen* entries."""
    where, texts = _condition_of(chosen, store)
    return await store.entries(entry_sql.first_of(where), limit, *texts)


async def count(store: Store, chosen: Chosen, most: int) -> Counted:
    """Count the *chosen* entries, up to *most*."""
    where, texts = _condition_of(chosen, store)
    [(many, oldest)] = await store.rows(entry_sql.count_of(where), most, *texts)
    return Counted(int(many), oldest)


async def ready_since(store: Store, most: int) -> int | None:
    """
    Return when the first of the open entries could be sent (epoch ms); ``None`` if none can be sent.

    At most *most* entries are looked at.  The time for which the user let an entry wait does not count.  One
    that is tried again counts from when it was stored first.
    """
    [(since,)] = await store.rows(entry_sql.READY_SINCE, most)
    if since is None:
        return None
    return int(since)


async def counts(store: Store) -> Sequence[Cell]:
    """Count all entries by state, verdict (or "") and flags."""
    if store.how.counted:
        return await store.rows(entry_sql.KEPT_COUNTS)
    if store.version < WITH_FLAGS:
        return await store.rows(entry_sql.COUNT_ENTRIES_BY_TEXT)
    return await store.rows(entry_sql.COUNT_ENTRIES)


async def done(
    store: Store,
    verdict: Verdict | None,
    after: int,
    limit: int,
) -> list[Entry]:
    """Return the next entries *after* a number that are done, with *verdict*, or any."""
    return await store.entries(entry_sql.done_after(verdict), after, limit)


async def latest(
    store: Store,
    verdict: Verdict,
    limit: int,
) -> list[Entry]:
    """Return the last entries with *verdict*, which is not APPLIED, the last one first."""
    return await store.entries(entry_sql.latest_of(verdict), limit)


async def of_verdict(
    store: Store,
    verdict: str,
    after: int,
    last: int,
    limit: int,
) -> list[tuple[int, str]]:
    """Return numbers and keys of the next entries with *verdict*, *after* a number, up to the *last*."""
    rows = await store.rows(entry_sql.NUMBERS_OF_VERDICT, verdict, after, last, limit)
    return [(seq, key) for seq, key in rows]


async def last_number(store: Store) -> int:
    """Return the number of the last entry; 0 if there is none."""
    return int((await store.rows(entry_sql.LAST_NUMBER))[0][0])


async def end_of_part(
    store: Store,
    after: int,
    size: int,
) -> int | None:
    """Return the number of the last of the next *size* entries *after* a number; ``None``: there is none."""
    last: int | None = (await store.rows(entry_sql.END_OF_PART, after, size))[0][0]
    return last


async def notes_of(store: Store, seqs: Sequence[int]) -> dict[int, Notes]:
    """Return the notes of the entries *seqs*, by their numbers."""
    rows = await in_parts(partial(store.rows, _notes_text(store.version)), seqs)
    return {
        seq: Notes(added, unheard is not None, not_before, noted_in(noted))
        for seq, added, unheard, not_before, *noted in rows
    }


def _notes_text(version: int) -> str:
    """Return the statement that selects ``Notes`` from tables of a *version*, which may lack columns."""
    not_before = "e.not_before" if version >= WITH_DUE_TIMES else "NULL"
    return entry_sql.notes(not_before=not_before, noted=columns_in(version))


async def keys_called(store: Store, key: str) -> list[str]:
    """Return the whole keys of up to ten entries of a journal that people call *key*."""
    return [entry.key for entry in await store.entries(entry_sql.NAMED, key)]


def _condition_of(chosen: Chosen, store: Store) -> tuple[str, list[str]]:
    """
    Return the condition of *chosen* entries in the tables of *store*, and its values from the second on.

    The first value is how many entries are asked for.
    """
    wanted = wanted_by(chosen)
    if any(store.version < each.column.since for each in wanted):
        return "false", []
    condition = entry_sql.in_state(chosen.state)
    if chosen.state == "untold" and store.how.kind == "journal":
        condition = entry_sql.UNTOLD_IN_JOURNAL
    elif chosen.state == "untold" and wanted:  # The first ones may lack what is wanted.
        condition = entry_sql.AMONG_ALL_UNTOLD
    conditions = [each.condition(number) for number, each in enumerate(wanted, 2)]
    return " AND ".join([condition, *conditions]), [each.text for each in wanted]
