"""
The verdicts that nobody has acknowledged, and the process that gives each to the application.

Each is given at least once.  Those that a process has taken are given by no other while it lives, and are
free again if it does not acknowledge them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from invsvc_async.durable.entry import State
from invsvc_async.durable.store.conditions import DONE_AND_OPEN
from invsvc_async.durable.store.members import SEEN, dead, living, member_of
from invsvc_async.durable.store.tables import move_count, move_count_in_file
from invsvc_async.storage.dialect import slices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.storage.dialect import Script


_AT_ONCE: Final = 200  # verdicts that one statement acknowledges, or frees
# The verdicts that the taker $3 may give: its own, and what no living process has.
_MAY_GIVE: Final = f"""
SELECT u.seq, u.taker FROM {{s}}unheard AS u WHERE u.taker IS NULL OR u.taker = $3 OR {dead("u.taker")}
    ORDER BY u.seq LIMIT {{arg 2 bigint}} {{skip}}
"""
_GIVE: Final = "UPDATE {s}unheard SET taker = $1 WHERE seq {any 2 bigint}"
DELETE_UNHEARD: Final = "DELETE FROM {s}unheard WHERE seq {any 1 bigint}"
_KEPT: Final = (
    "SELECT seq FROM {s}unheard WHERE seq {any 1 bigint} AND taker = $2 {share}"
)
_RELEASE_VERDICTS: Final = """
UPDATE {s}unheard SET taker = NULL WHERE seq {any 1 bigint} AND taker LIKE {arg 2 text} || '.%'
"""
_ACKNOWLEDGE: Final = "DELETE FROM {s}unheard WHERE seq {any 1 bigint} AND taker = $2"
_NOTE_LOST: Final = """
UPDATE {s}entries SET outcome = $2, flags = {arg 3 smallint} WHERE seq = $1 AND outcome = $4 RETURNING seq
"""
# In batches and outboxes, a verdict is *unheard*, or *untold*, until it is acknowledged: the words mean the
# same.  In the journal of a client, what is untold is done and still open (``DONE_AND_OPEN``).
#
# The last error of ``on_result`` for a verdict is a fact: its name is this text, the time of the verdict, in
# epoch ms with so many digits, and the key.
FAILED_TO_TELL: Final = "untold "
_DIGITS: Final = 13
_FORGET_ERRORS: Final = (
    f"DELETE FROM {{s}}facts WHERE name LIKE '{FAILED_TO_TELL}%'"
    f" AND substr(name, {len(FAILED_TO_TELL) + 1}, {_DIGITS}) < $1"
)


def _count_up_to_limit(rows: str) -> str:
    return f"SELECT count(*) FROM (SELECT 1 FROM {{s}}{rows} LIMIT {{arg 1 bigint}}) AS chosen"


_COUNT_UNHEARD: Final = _count_up_to_limit("unheard")
# In a client's journal ``unheard`` only says who returns a secret.
_COUNT_OF_JOURNAL: Final = _count_up_to_limit(f"entries WHERE {DONE_AND_OPEN}")


async def take(store: Store, taker: str, limit: int) -> list[Entry]:
    """Assign up to *limit* verdicts to the token *taker*, and return their entries; see ``take_verdicts``."""
    script = partial(take_verdicts, taker, store.silence, limit)
    seqs = await store.run(script)
    if not seqs:
        return []
    # Not one that was reopened in between: it has no verdict any more.
    where = f"e.seq {{any 1 bigint}} AND e.state = {State.DONE:d} ORDER BY e.seq"
    found = await store.entries(where, seqs)
    for entry in found:
        entry.taker = taker
    return found


async def keeps(store: Store, taker: str, seq: int) -> bool:
    """Return whether *taker* still has the verdict *seq*; this is a sign of life, too."""
    script = partial(keep_verdicts, taker, store.silence, [seq])
    return bool(await store.run(script))


async def free(store: Store, seqs: Sequence[int], name: str) -> None:
    """Release the verdicts *seqs* that the process *name* has, for any taker."""
    for some in slices(seqs, _AT_ONCE):
        await store.rows(_RELEASE_VERDICTS, some, name)


async def acknowledge(store: Store, seqs: Sequence[int], taker: str) -> None:
    """Note that the verdicts *seqs*, which *taker* has, need not be given again."""
    for some in slices(seqs, _AT_ONCE):
        await store.rows(_ACKNOWLEDGE, some, taker)


async def note_secret_lost(store: Store, before: Entry, after: Entry) -> None:
    """
    Store in a batch that a secret is lost: outcome and flags of *after*, an entry that was as *before*.

    If the entry has another outcome by now, that stays.
    """
    await store.run(partial(_note_secret_lost, before, after))


def _note_secret_lost(before: Entry, after: Entry) -> Script[None]:
    values = after.seq, after.outcome, after.flags, before.outcome
    # an earlier try may have stored it, and its reply was lost
    if (yield _NOTE_LOST, values):
        counted, now = (
            (int(State.DONE), str(each.verdict), each.flags) for each in (before, after)
        )
        # Each does something in one of the databases: the state stays, so a file's triggers see no change.
        yield from move_count(counted, now)
        yield from move_count_in_file(counted, now)


async def forget_errors(store: Store, before: int) -> None:
    """Delete the errors of verdicts that are older than *before* (epoch ms)."""
    await store.rows(_FORGET_ERRORS, f"{max(before, 0):0{_DIGITS}}")


async def count_untold(store: Store, most: int) -> int:
    """Count the verdicts that nobody has acknowledged, up to *most*."""
    is_journal = store.how.kind == "journal"
    text = _COUNT_OF_JOURNAL if is_journal else _COUNT_UNHEARD
    return int((await store.rows(text, most))[0][0])


def take_verdicts(taker: str, silence: float, limit: int) -> Script[list[int]]:
    """
    Assign verdicts to *taker*; return the numbers of their entries.

    Nobody has acknowledged them, and no other living process has them.
    """
    rows = yield _MAY_GIVE, (silence, limit, taker)
    alive = yield from living(silence, (owner for _, owner in rows if owner != taker))
    seqs = [
        seq
        for seq, owner in rows
        if owner in (None, taker) or member_of(owner) not in alive
    ]
    if seqs:
        yield _GIVE, (taker, seqs)
    return seqs


def keep_verdicts(taker: str, silence: float, seqs: Sequence[int]) -> Script[set[int]]:
    """Note that the process of *taker* lives; return the verdicts among *seqs* that nobody else has taken."""
    yield SEEN, (member_of(taker), silence)
    # The lock waits for those who are about to take them.
    kept = yield _KEPT, (seqs, taker)
    return {seq for (seq,) in kept}
