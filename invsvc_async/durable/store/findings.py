"""
What a person has found out about a write, stored as its verdict; ``durable/resolve.py`` says when.

The finding is stored in one transaction, under the locks of a take-over: on the lane, then on the entry.  So
if a process takes the lane over before, the finding is refused, because that process lives; if afterwards,
the process finds the verdict.  The previous owner, which was silent for too long, may still store something:
that is refused, because the entry is done.  An entry without a key of the user's own could be
overwritten and sent (``PUT_UNKEYED``), or deleted (``REMOVE``): so it gets another lane, if another process
had its own.  If this one had it, the journal stores nothing more of the write (``_resolved`` of
``durable/journal.py``), unless the finding is that it was not applied: then it may be sent again.

A process that takes an entry over also waits for requests that the previous owner may still have under way. A
finding only waits until that owner can begin no further one.  For that, the database's clock, which may have
been set, is not enough to count that owner as silent: its sign of life must also stay the same for as long as
silence may last, as measured by this process.  The owner then begins nothing any more, because it measures
the same time.

Another process may have taken the entry over from such an owner meanwhile.  Then its sign of life says
nothing, because nobody knows whose the entry was.  So a finding is refused for as long as silence may last
after the last take-over from a process that was only silent (``rest_of_silence``), unless the entry is in
``ENDED``.  To wait here instead would not do: what the person has seen is older, and may be from before the
last send.  The time is that of the database's clock, so it is too short if that is set forward once more.
"""

from __future__ import annotations

import asyncio
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from invsvc_async.api.operations import BY_NAME
from invsvc_async.durable.entry import State, columns_of, entry_in
from invsvc_async.durable.store.conditions import ENDED, is_aside
from invsvc_async.durable.store.due import make_due_again
from invsvc_async.durable.store.lanes import owner_of, rest_of_silence
from invsvc_async.durable.store.members import last_sign
from invsvc_async.durable.store.statements import entry_sql, key_sql, store_sql
from invsvc_async.durable.store.tables import move_count
from invsvc_async.errors import JournalError
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.reconcile.kinds import kind_of_write

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.lanes import LaneOwner
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.storage.dialect import Script


class Replaced(NamedTuple):
    """An entry with a person's finding; *is_new*: no earlier try has stored it."""

    entry: Entry
    is_new: bool


async def entry_of(store: Store, key: str) -> Entry | None:
    """Return the entry of *key*."""
    found = await store.entries(entry_sql.OF_KEY, key)
    if not found:
        return None
    return found[0]


async def store_finding(
    store: Store,
    seen: Entry,
    make: Callable[[int], Entry],
    tries: Collection[str],
    *,
    mine: str | None,
    called: str,
) -> str:
    """
    Store the entry that *make* returns for a time of the store (epoch ms), in place of *seen*.

    For a key in the journal of a client, *make* has to return the entry in the lane ``FREED`` (see
    ``STORE_FINDING``); in a batch or an outbox, in its own lane.

    Return its outcome, as it is stored.  *tries* is a live view of the outcomes that *make* has returned: if
    the reply of a try was lost, the next one finds which of them is stored.  If the lane has the token
    *mine*, of this process, that is no reason to refuse: the caller knows that no run here has the write.
    Errors call the write *called*.

    Raises:
        JournalError: A living process has the write, a process from which something was taken may still
            send it, or it was changed since it was *seen*.
    """
    silent = None
    if seen.state is not State.DONE:
        silent = await _silent_owner(store, seen.lane, mine, called)
        if store.is_shared:
            await store.rows(store_sql.SILENT_NOT_IN_FUTURE)
    # Makes a script, because the store may run it several times, each time a new one.
    put_finding = partial(
        _put_finding,
        seen,
        make,
        tries,
        mine=mine,
        silent=silent,
        silence=store.silence,
        called=called,
    )
    has_results = store.how.kind != "journal"
    text = await store.run(lambda: _store(put_finding(), has_results=has_results))
    await store.notify(str(seen.lane))  # also of a lane aside: see ``batch/notices``
    return text


async def _silent_owner(
    store: Store,
    lane: int,
    mine: str | None,
    called: str,
) -> LaneOwner | None:
    """
    Return the silent owner of *lane*; ``None`` if no other process owns the lane.

    This waits for as long as a process may be silent, unless the owner has ended.

    Raises:
        JournalError: The owner lives.
    """
    owner = await owner_of(store, lane)
    if owner is None or owner.token == mine:
        return None
    # In a file, whose opening has released all lanes, an owner is this process.
    if owner.is_alive:
        raise _is_alive(called)
    if owner.sign is not None:
        await asyncio.sleep(owner.silence)
    return owner


def _store(putting: Script[Replaced], *, has_results: bool) -> Script[str]:
    """
    Replace an entry by *putting*, and store all that follows from it; return the stored outcome.

    *has_results* is whether verdicts are given to the application.  From the journal of a client, it gets
    them by the keys.
    """
    yield store_sql.COMMIT_DURABLY, ()
    entry, is_new = yield from putting
    if not is_new:  # What follows was stored, too, and may have changed since.
        return str(entry.outcome)
    if has_results:
        yield key_sql.NOTE_UNHEARD, (entry.seq,)
    is_create = kind_of_write(BY_NAME[entry.operation]).creates
    has_changed_thing = entry.thing is not None and not is_create
    if entry.verdict == Verdict.APPLIED and has_changed_thing:
        # One without a key of the user's own has no place, but a number.
        last = entry.place or entry.seq
        yield key_sql.PERHAPS_CHANGED, (entry.thing, last)
    return str(entry.outcome)


def _put_finding(
    seen: Entry,
    make: Callable[[int], Entry],
    tries: Collection[str],
    *,
    mine: str | None,
    silent: LaneOwner | None,
    silence: float,
    called: str,
) -> Script[Replaced]:
    """
    Store the entry that *make* returns in place of *seen*, unless an earlier try has; return it.

    *silent* is another process that owned its lane, and is silent if its last sign of life is still the same.
    *silence* is that of the store.  The other arguments are those of ``store_finding``.
    """
    # What is aside, or released, is in no lane that has an owner.
    lanes = yield store_sql.LOCK_LANE, (seen.lane,)
    owner = lanes[0][0] if lanes else None
    rows = yield key_sql.LOCK_ENTRY, (seen.seq,)
    if not rows:
        raise changed_meanwhile(called)
    *fields, flags = rows[0]
    there = entry_in(fields)
    if there.outcome is not None and there.outcome in tries:
        return Replaced(there, is_new=False)
    if there != seen:
        raise changed_meanwhile(called)
    other: str | None = None if owner == mine else owner
    is_unfinished = seen.state is not State.DONE
    if is_unfinished and (yield from _may_live(other, silent)):
        raise _is_alive(called)
    if is_unfinished and seen.lane != ENDED:
        rest = yield from rest_of_silence(silence)
        if rest > 0:
            raise _may_be_sent(called, rest)
    [(now,)] = yield store_sql.NOW_MS, ()
    entry = make(int(now))
    if seen.digest == "" and other is not None:
        # That process may go on: in its lane, it could send the write, or delete the finding.
        [(entry.lane,)] = yield store_sql.INSERT_LANE_OF_DEAD, (seen.lane,)
    yield entry_sql.DELETE_UNHEARD, ([seen.seq],)
    yield key_sql.OPEN_AGAIN, (seen.seq,)
    yield key_sql.STORE_FINDING, ([(entry.seq, entry.lane, *columns_of(entry))],)
    before = int(seen.state), seen.verdict or "", int(flags)
    after = int(entry.state), str(entry.verdict), entry.flags
    yield from move_count(before, after)
    if is_aside(seen.lane):
        yield from make_due_again(entry.thing, entry.place)
    return Replaced(entry, is_new=True)


def _may_live(owner: str | None, silent: LaneOwner | None) -> Script[bool]:
    """Return whether *owner* may live: not ended, and with another sign of life than *silent* shows."""
    if owner is None:
        return False
    sign = yield from last_sign(owner)
    if sign is None:
        return False
    return silent is None or (silent.token, silent.sign) != (owner, sign)


def _is_alive(called: str) -> JournalError:
    return JournalError(
        f"{called} belongs to a living process, which finds out what became of it. Wait for its verdict, or "
        "end that process. Nothing was stored.",
        is_conflict=True,
    )


def _may_be_sent(called: str, rest: float) -> JournalError:
    return JournalError(
        f"{called} may still be sent, by a process that was just taken for dead, and may live. Look again in "
        f"{ceil(rest)} s, at what the service has then. Nothing was stored.",
        is_conflict=True,
    )


def changed_meanwhile(called: str) -> JournalError:
    """Return the error for a write that is not as it was seen."""
    return JournalError(
        f"{called} was changed at the same time. Look at it again. Nothing was stored.",
        is_conflict=True,
    )
