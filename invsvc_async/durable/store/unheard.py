"""
The verdicts that nobody has acknowledged, and the process that gives each to the application.

Each is given at least once.  Those that a process has taken are given by no other while it lives, and are
free again if it does not acknowledge them.

In batches and outboxes, a verdict is *unheard*, or *untold*, until it is acknowledged: the words mean the
same.  In the journal of a client, what is untold is done and still open (``DONE_AND_OPEN``).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from invsvc_async.durable.entry import State
from invsvc_async.durable.store.fact_names import DIGITS_OF_TIME
from invsvc_async.durable.store.members import living, member_of
from invsvc_async.durable.store.statements import entry_sql, store_sql
from invsvc_async.durable.store.tables import move_count, move_count_in_file
from invsvc_async.storage.dialect import slices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.durable.entry import Entry, VerdictAt
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.storage.dialect import Script


_AT_ONCE: Final = 200  # verdicts that one statement acknowledges, or frees


async def take(store: Store, taker: str, limit: int) -> list[Entry]:
    """Assign up to *limit* verdicts to the token *taker*, and return their entries; see ``take_verdicts``."""
    script = partial(take_verdicts, taker, store.silence, limit)
    seqs = await store.run(script)
    if not seqs:
        return []
    found = await store.entries(entry_sql.STILL_DONE, seqs)
    for entry in found:
        entry.taker = taker
    return found


async def kept(store: Store, taker: str, seqs: Sequence[int]) -> set[int]:
    """
    Return which of the verdicts *seqs* the token *taker* still has; this is a sign of life, too.

    It has lost those whose writes were reopened, dropped or resolved since, and what others have taken.
    """
    return await store.run(partial(keep_verdicts, taker, store.silence, seqs))


async def free(
    store: Store,
    seqs: Sequence[int],
    name: str,
) -> None:
    """Release the verdicts *seqs* that the process *name* has, for any taker."""
    for some in slices(seqs, _AT_ONCE):
        await store.rows(entry_sql.RELEASE_VERDICTS, some, name)


async def acknowledge(
    store: Store,
    heard: Sequence[VerdictAt],
    taker: str,
) -> None:
    """Note that the verdicts *heard*, which *taker* has, need not be given again."""
    for some in slices(heard, _AT_ONCE):
        await store.rows(entry_sql.ACKNOWLEDGE, some, taker)


async def note_secret_lost(
    store: Store,
    before: Entry,
    after: Entry,
) -> None:
    """
    Store in a batch that a secret is lost: outcome and flags of *after*, an entry that was as *before*.

    If the entry has another outcome by now, that stays.
    """
    await store.run(partial(_note_secret_lost, before, after))


def _note_secret_lost(before: Entry, after: Entry) -> Script[None]:
    values = after.seq, after.outcome, after.flags, before.outcome
    # an earlier try may have stored it, and its reply was lost
    if (yield entry_sql.NOTE_SECRET_LOST, values):
        counted, now = (
            (int(State.DONE), str(each.verdict), each.flags) for each in (before, after)
        )
        # Each does something in one of the databases: the state stays, so a file's triggers see no change.
        yield from move_count(counted, now)
        yield from move_count_in_file(counted, now)


async def forget_errors(store: Store, before: int) -> None:
    """Delete the errors of verdicts that are older than *before* (epoch ms)."""
    await store.rows(entry_sql.DELETE_OLD_ERRORS, f"{max(before, 0):0{DIGITS_OF_TIME}}")


async def count_untold(store: Store, most: int) -> int:
    """Count the verdicts that nobody has acknowledged, up to *most*."""
    is_journal = store.how.kind == "journal"
    text = entry_sql.COUNT_DONE_AND_OPEN if is_journal else entry_sql.COUNT_UNHEARD
    return int((await store.rows(text, most))[0][0])


def take_verdicts(
    taker: str,
    silence: float,
    limit: int,
) -> Script[list[int]]:
    """
    Assign verdicts to *taker*; return the numbers of their entries.

    Nobody has acknowledged them, and no other living process has them.
    """
    rows = yield entry_sql.LOCK_VERDICTS_TO_GIVE, (silence, limit, taker)
    alive = yield from living(silence, (owner for _, owner in rows if owner != taker))
    seqs = [
        seq
        for seq, owner in rows
        if owner in (None, taker) or member_of(owner) not in alive
    ]
    if seqs:
        yield entry_sql.GIVE_VERDICTS, (taker, seqs)
    return seqs


def keep_verdicts(
    taker: str,
    silence: float,
    seqs: Sequence[int],
) -> Script[set[int]]:
    """Note that the process of *taker* lives; return the verdicts among *seqs* that *taker* still has."""
    yield store_sql.SIGN_OF_LIFE, (member_of(taker), silence)
    # The lock waits for those who are about to take them.
    rows = yield entry_sql.LOCK_KEPT_VERDICTS, (seqs, taker)
    return {seq for (seq,) in rows}
