"""
Operations of a store of writes, for SQLite and PostgreSQL: see ``storage.dialect``.

A script may be run again after its reply was lost.  Then it finds what the earlier run has done, so those
whose result is what they found add it to a set that outlasts the runs.
"""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING, Final

import msgspec

from invsvc_async.durable.entry import State
from invsvc_async.durable.leases import dead, living, member_of, show_life
from invsvc_async.durable.records import may_be_sent
from invsvc_async.durable.restored import FACT, FIND, last_of
from invsvc_async.durable.store import ENTRY, entry_in
from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.storage.dialect import Script

__all__ = ["drop", "find_old", "keep_verdicts", "may_drop", "prune", "reopen", "take_verdicts"]

_UNHEARD: Final = f"""
SELECT u.seq, u.taker FROM {{s}}unheard AS u WHERE u.taker IS NULL OR u.taker = $3 OR {dead("u.taker")}
    ORDER BY u.seq LIMIT {{arg 2 bigint}} {{skip}}
"""  # noqa: S608 - our own text
_GIVE: Final = "UPDATE {s}unheard SET taker = $1 WHERE seq {any 2 bigint}"
_HEARD: Final = "DELETE FROM {s}unheard WHERE seq {any 1 bigint}"
_TO_REOPEN: Final = f"""
SELECT e.seq, e.key, e.lane, e.verdict, e.intent FROM {{s}}entries AS e WHERE e.key {{any 1 text}}
    AND e.state = {State.DONE:d} AND e.verdict <> 'applied' AND e.intent IS NOT NULL ORDER BY e.seq {{update}}
"""  # noqa: S608 - our own text
_REOPEN: Final = f"""
UPDATE {{s}}entries AS e SET state = {State.TO_DO:d}, verdict = NULL, outcome = NULL, done_at = NULL,
    intent = given.intent FROM {{rows 1 seq:bigint intent:text}} WHERE e.seq = given.seq
"""  # noqa: S608 - our own text
_OLD: Final = f"""
e.state = {State.DONE:d} AND e.done_at < $1 AND e.verdict <> '{Verdict.UNKNOWN}'
    AND ({{arg 2 smallint}} = 1 OR NOT EXISTS (SELECT 1 FROM {{s}}unheard AS u WHERE u.seq = e.seq))
"""  # noqa: S608 - our own text
_FIND_OLD: Final = f"SELECT e.seq, e.key FROM {{s}}entries AS e WHERE {_OLD} AND e.seq > $3 AND e.seq <= $4"  # noqa: S608 - our own text
_PRUNE: Final = f"""
DELETE FROM {{s}}entries AS e WHERE {_OLD} AND e.seq {{any 3 bigint}} RETURNING seq, thing, place
"""  # noqa: S608 - our own text
_EMPTY_STATES: Final = """
UPDATE {s}states AS s SET team = NULL, state = NULL, stamp = NULL
    FROM {rows 1 thing:text place:bigint} WHERE s.thing = given.thing AND s.place = given.place
"""

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def take_verdicts(taker: str, silence: float, limit: int) -> Script[list[int]]:
    """
    Assign verdicts to *taker*; return the numbers of their entries.

    Nobody has acknowledged them, and no other living process has them.
    """
    rows = yield _UNHEARD, (silence, limit, taker)
    alive = yield from living(silence, (owner for _, owner in rows if owner != taker))
    seqs = [seq for seq, owner in rows if owner in (None, taker) or member_of(owner) not in alive]
    if seqs:
        yield _GIVE, (taker, seqs)
    return seqs


def keep_verdicts(taker: str, silence: float, seqs: Sequence[int]) -> Script[set[int]]:
    """Note that the process of *taker* lives; return which of its verdicts nobody else has taken."""
    yield from show_life(member_of(taker), silence, sends=False)
    # The lock waits for those who are about to take them.
    kept = yield "SELECT seq FROM {s}unheard WHERE seq {any 1 bigint} AND taker = $2 {share}", (seqs, taker)
    return {seq for (seq,) in kept}


def reopen(keys: Sequence[str], again: set[str]) -> Script[set[int]]:
    """
    Reopen entries that are done and not applied; return their lanes, and add their keys to *again*.

    One with the verdict UNKNOWN keeps its sends, and is settled first.
    """
    rows = yield _TO_REOPEN, (keys,)
    if rows:
        intents = [
            (seq, intent if verdict == Verdict.UNKNOWN else without_sends(intent))
            for seq, _, _, verdict, intent in rows
        ]
        yield _REOPEN, (intents,)
        yield _HEARD, ([seq for seq, *_ in rows],)
        again.update(key for _, key, *_ in rows)
    return {lane for _, _, lane, *_ in rows}


def may_drop(key: str) -> Script[int | None]:
    """Return the number of the entry of *key*, if nothing of it was sent, or it is done; and lock it."""
    found = yield f"SELECT {ENTRY} FROM {{s}}entries AS e WHERE e.key = $1 {{update}}", (key,)  # noqa: S608 - our own text
    if not found:
        return None
    entry = entry_in(found[0])
    if entry.state is not State.DONE:
        restored = yield FIND, (FACT,)
        if entry.seq <= last_of(restored[0][0] if restored else None) or may_be_sent(entry):
            return None
    return entry.seq


def drop(key: str, dropped: set[str]) -> Script[None]:
    """
    Delete the entry of *key* if nothing of it was sent, or it is done; then add the key to *dropped*.

    A process that is about to send it finds that it is gone, and does not.
    """
    yield "SELECT {durably}", ()
    seq = yield from may_drop(key)
    if seq is not None:
        yield "DELETE FROM {s}entries WHERE seq = $1", (seq,)
        yield _HEARD, ([seq],)
        dropped.add(key)


def find_old(before: int, after: int, last: int, *, unacknowledged: bool) -> Script[dict[int, str]]:
    """
    Return the keys of entries after *after* up to *last* that were done before *before* (epoch ms).

    Not UNKNOWN ones, nor those whose verdict nobody has acknowledged, unless *unacknowledged*.
    """
    return dict((yield _FIND_OLD, (before, int(unacknowledged), after, last)))


def prune(before: int, seqs: Sequence[int], *, unacknowledged: bool, gone: set[int]) -> Script[None]:
    """Delete the entries *seqs* that :func:`find_old` still finds; add their numbers to *gone*."""
    rows = yield _PRUNE, (before, int(unacknowledged), seqs)
    things = [(thing, place) for _, thing, place in rows if thing is not None]
    if things:
        yield _EMPTY_STATES, (things,)
    if rows:
        yield _HEARD, ([seq for seq, *_ in rows],)
    gone.update(seq for seq, *_ in rows)


def without_sends(intent: str) -> str:
    """
    Return a packed intent as that of a new write.

    Not in SQL, because PostgreSQL's JSON cannot store every text.
    """
    kept = _members(intent)
    for name in ("sent", "bounds", "baseline"):
        kept.pop(name, None)
    # A new identity: what clients remember of the earlier write is not about this one.
    kept["nonce"] = msgspec.Raw(_encode(token_hex(8)))
    return _encode(kept).decode()
