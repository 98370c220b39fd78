"""
Entries that are added, reopened, dropped or pruned, with all that follows from it: numbers, counts, verdicts.

A script may be run again after its reply was lost, and then finds what its earlier run has done.  If that is
the result, such as the keys that were reopened, the caller gives a set that outlasts the runs, and each run
adds to it: *ours*, *again*, *dropped*, *gone*.
"""

from __future__ import annotations

from collections import Counter
from secrets import token_hex
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from invsvc_async.durable.entry import (
    ENTRY,
    WRITTEN,
    WRITTEN_NAMES,
    Entry,
    State,
    entry_in,
    is_same_row,
    written_of,
)
from invsvc_async.durable.records import may_be_sent
from invsvc_async.durable.store.conditions import FREED, KEYED, is_aside, lane_of
from invsvc_async.durable.store.due import look_again
from invsvc_async.durable.store.restored import marked
from invsvc_async.durable.store.tables import count
from invsvc_async.durable.store.verdicts import DELETE_UNHEARD
from invsvc_async.reconcile.history import Verdict
from invsvc_async.storage.dialect import MOST, Script, slices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from invsvc_async.durable.store.opening import Store


# The keys of entries, and of each what a ``KnownEntry`` has.
SELECT_KNOWN: Final = (
    "SELECT key, seq, digest, state, done_at FROM {s}entries WHERE key {any 1 text}"
)
# Processes take numbers in turn, so that the order of numbers is that of the commits.  A file has one writer,
# which takes them from SQLite's own table; the row is not there before the first entry.
_NUMBERS: Final = """
{postgres}WITH turn AS MATERIALIZED (SELECT pg_advisory_xact_lock(hashtext('{s}entries')) AS done)
    SELECT nextval('{s}entries_seq_seq') FROM turn CROSS JOIN generate_series(1, {arg 1 bigint})
"""
_NEXT_SEQ: Final = "{sqlite}UPDATE sqlite_sequence SET seq = seq + $1 WHERE name = 'entries' RETURNING seq"
_FIRST_SEQ: Final = "{sqlite}INSERT INTO sqlite_sequence (name, seq) VALUES ('entries', $1) RETURNING seq"
_COLUMNS: Final = ", ".join(("seq", "place", "lane", *WRITTEN_NAMES))
_ADD: Final = f"""
INSERT INTO {{s}}entries ({_COLUMNS}) SELECT {_COLUMNS}
    FROM {{rows 1 seq:bigint place:bigint lane:bigint {WRITTEN}}} WHERE true
    ON CONFLICT (key) DO NOTHING RETURNING seq
"""
COMMONS: Final = """
INSERT INTO {s}commons (number, text) SELECT * FROM {rows 1 number:bigint text:text} WHERE true
    ON CONFLICT DO NOTHING
"""

_MAY_REOPEN: Final = f"""
SELECT e.seq, e.key, e.lane, e.verdict, e.intent, e.flags FROM {{s}}entries AS e
    WHERE e.key {{any 1 text}} AND e.verdict {{any 2 text}} AND e.state = {State.DONE:d}
    AND e.verdict <> 'applied' AND e.intent IS NOT NULL ORDER BY e.seq {{update}}
"""
_REOPEN: Final = f"""
UPDATE {{s}}entries AS e SET state = {State.TO_DO:d}, verdict = NULL, outcome = NULL, done_at = NULL,
    flags = 0, intent = given.intent, place = coalesce(given.place, e.place)
    FROM {{rows 1 seq:bigint intent:text place:bigint}} WHERE e.seq = given.seq
"""
_KEYED: Final = f"""
SELECT key, verdict FROM {{s}}entries WHERE key {{any 1 text}} AND {KEYED} ORDER BY seq {{update}}
"""
_FREE_REOPENED: Final = f"""
UPDATE {{s}}entries SET lane = {FREED}, state = $2 WHERE key {{any 1 text}} AND state = {State.TO_DO:d}
"""
_LOOK_AGAIN: Final = """
UPDATE {s}states SET newest = NULL WHERE thing IN (SELECT thing FROM {s}entries WHERE key {any 1 text})
"""
# Entries that were done before $1 (epoch ms), but not UNKNOWN ones, or emptied ones.  Their verdicts were
# acknowledged, unless $2 is 1.
_OLD: Final = f"""
e.state = {State.DONE:d} AND e.done_at < $1 AND e.verdict <> '{Verdict.UNKNOWN}'
    AND (e.intent IS NOT NULL OR e.outcome IS NOT NULL)
    AND ({{arg 2 smallint}} = 1 OR NOT EXISTS (SELECT 1 FROM {{s}}unheard AS u WHERE u.seq = e.seq))
"""
_FIND_OLD: Final = f"SELECT e.seq, e.key FROM {{s}}entries AS e WHERE {_OLD} AND e.seq > $3 AND e.seq <= $4"
_STILL_OLD: Final = (
    f"WHERE {_OLD} AND e.seq {{any 3 bigint}} RETURNING seq, thing, place"
)
_PRUNE: Final = f"DELETE FROM {{s}}entries AS e {_STILL_OLD}"
_EMPTY: Final = f"""
UPDATE {{s}}entries AS e SET intent = NULL, outcome = NULL, claim = NULL, labels = NULL {_STILL_OLD}
"""
_EMPTY_STATES: Final = """
UPDATE {s}states AS s SET team = NULL, state = NULL, stamp = NULL
    FROM {rows 1 thing:text place:bigint} WHERE s.thing = given.thing AND s.place = given.place
"""

_OF_SENDS: Final = ("sent", "bounds", "baseline", "mixture")  # members of an intent
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_sends = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_encode = msgspec.json.Encoder().encode


class KnownEntry(NamedTuple):
    """What a store has under a key; ``done_at`` is in epoch ms."""

    seq: int
    digest: str
    state: int
    done_at: int | None


async def known_of(store: Store, keys: Sequence[str]) -> dict[str, KnownEntry]:
    """Return what the store has under *keys*, at most 256, by key."""
    rows = await store.rows(SELECT_KNOWN, list(keys))
    return {key: KnownEntry(*known) for key, *known in rows}


def numbers(many: int) -> Script[list[int]]:
    """Return the next numbers, for new entries and for places at the end of the order."""
    in_database = yield _NUMBERS, (many,)
    if in_database:
        return [number for (number,) in in_database]
    # The statement for PostgreSQL returns nothing in a file.
    [(last,)] = (yield _NEXT_SEQ, (many,)) or (yield _FIRST_SEQ, (many,))
    return [*range(last - many + 1, last + 1)]


def add(
    entries: Sequence[Entry], commons: Mapping[int, str], *, ours: set[int]
) -> Script[dict[str, KnownEntry]]:
    """
    Insert new *entries* in their order; return what is known under their keys.

    With them, store the common parts of their intents, which *commons* has.  The numbers that this and
    earlier tries gave are added to *ours*.

    They are counted as TO DO.  Claims of keys also insert entries that are being sent, but keys are in the
    journals of clients, which keep no counts.
    """
    yield (
        COMMONS,
        (
            [
                (number, commons[number])
                for number in {e.common for e in entries if e.common}
            ],
        ),
    )
    given = yield from numbers(len(entries))
    ours.update(given)
    numbered = [*zip(given, entries, strict=True)]
    rows = [(seq, seq, entry.lane, *written_of(entry)) for seq, entry in numbered]
    new = yield _ADD, (rows,)
    yield from count({(State.TO_DO, "", 0): len(new)})
    if len(new) == len(entries):
        return {
            entry.key: KnownEntry(seq, entry.digest, int(entry.state), None)
            for seq, entry in numbered
        }
    found = yield SELECT_KNOWN, ([entry.key for entry in entries],)
    return {key: KnownEntry(*known) for key, *known in found}


def reopen(
    keys: Sequence[str],
    verdicts: Sequence[str],
    again: set[str],
    *,
    newest: bool = False,
) -> Script[set[int]]:
    """
    Reopen the entries of *keys* with one of *verdicts*; return their lanes, and add their keys to *again*.

    One with the verdict UNKNOWN keeps its sends, and is settled first. With *newest*, they come after all
    others, in the same order.
    """
    rows = yield _MAY_REOPEN, (keys, verdicts)
    if not rows:
        return set()
    places = (yield from numbers(len(rows))) if newest else [None] * len(rows)
    counts: Counter[tuple[int, str, int]] = Counter({(State.TO_DO, "", 0): len(rows)})
    changed: list[tuple[int, str, int | None]] = []
    for place, (seq, _, _, verdict, intent, flags) in zip(places, rows, strict=True):
        changed.append(
            (
                seq,
                _to_do(intent, is_new=verdict != Verdict.UNKNOWN, newest=newest),
                place,
            )
        )
        counts[State.DONE, verdict, flags] -= 1
    yield _REOPEN, (changed,)
    yield DELETE_UNHEARD, ([seq for seq, *_ in rows],)
    yield from count(counts)
    again.update(key for _, key, *_ in rows)
    return {lane for _, _, lane, *_ in rows}


def reopen_keyed(
    keys: Sequence[str], verdicts: Sequence[str], again: set[str], *, newest: bool
) -> Script[set[int]]:
    """
    Reopen entries, so that the next run of each write does it anew.

    Only of writes under keys of the user's own: nothing runs another one again.
    """
    mine = yield _KEYED, (keys,)
    found: set[str] = set()
    lanes = yield from reopen([key for key, _ in mine], verdicts, found, newest=newest)
    if newest:  # the next claim of each thing has to look at them
        yield _LOOK_AGAIN, (sorted(found),)
    unknown = {key for key, verdict in mine if verdict == Verdict.UNKNOWN}
    # Those that were UNKNOWN may have been sent, so the next run settles them before it sends.
    for state, freed in (
        (State.SENDING, found & unknown),
        (State.TO_DO, found - unknown),
    ):
        yield _FREE_REOPENED, (sorted(freed), int(state))
    again |= found
    return lanes


def may_drop(
    key: str, *, done: bool = True, seen: Entry | None = None
) -> Script[Entry | None]:
    """
    Lock the entry of *key*, and return it; return ``None`` if the entry must not be deleted.

    An entry may be deleted if nothing of it was sent; with *done*, also if it has a verdict.  With *seen*,
    only if it is still as it was seen.
    """
    found = yield (
        f"SELECT {ENTRY} FROM {{s}}entries AS e WHERE e.key = $1 {{update}}",
        (key,),
    )
    if not found:
        return None
    entry = entry_in(found[0])
    if seen is not None and not is_same_row(entry, seen):
        return None
    if entry.state is State.DONE:
        return entry if done else None
    is_of_copy = entry.seq <= (yield from marked()).through
    return None if is_of_copy or may_be_sent(entry) else entry


def drop(
    key: str, dropped: set[str], *, done: bool, seen: Entry | None = None
) -> Script[int | None]:
    """
    Delete the entry of *key* if ``may_drop`` allows it; then add the key to *dropped*.

    In a batch, *done* is false: its input would send the write again.  A process that is about to send the
    write finds that its entry is gone, and does not.

    If the write waited for its time, return its lane, where later writes may have waited behind it.
    """
    yield "SELECT {durably}", ()
    entry = yield from may_drop(key, done=done, seen=seen)
    if entry is None:
        return None
    yield from count({(State.TO_DO, "", 0): -1})
    yield "DELETE FROM {s}entries WHERE seq = $1", (entry.seq,)
    yield DELETE_UNHEARD, ([entry.seq],)
    dropped.add(key)
    if not is_aside(entry.lane):
        return None
    yield from look_again(entry.thing, entry.place)
    return lane_of(entry.lane)


async def old_entries(
    store: Store, before: int, after: int, last: int, *, unacknowledged: bool
) -> list[tuple[int, str]]:
    """
    Return numbers and keys of the entries that may be pruned, *after* a number, up to the *last*.

    They were done before the time *before* (epoch ms).
    """
    rows = await store.rows(_FIND_OLD, before, int(unacknowledged), after, last)
    return [(seq, key) for seq, key in rows]


def prune(
    before: int,
    seqs: Sequence[int],
    *,
    unacknowledged: bool,
    gone: set[int],
    empties: bool = False,
) -> Script[None]:
    """
    Delete the entries *seqs* that ``old_entries`` still finds; add their numbers to *gone*.

    If it *empties* them, their keys, digests and verdicts stay.
    """
    for some in slices(seqs, MOST):
        rows = yield _EMPTY if empties else _PRUNE, (before, int(unacknowledged), some)
        if things := [(thing, place) for _, thing, place in rows if thing is not None]:
            yield _EMPTY_STATES, (things,)
        if rows:
            yield DELETE_UNHEARD, ([seq for seq, *_ in rows],)
        gone.update(seq for seq, *_ in rows)


def _without_effect(sent: msgspec.Raw) -> msgspec.Raw:
    """Return the last of packed sends as one that had no effect, as ``intents.without_effect`` does."""
    ended: list[dict[str, object]] = [
        {**last, "end": {"kind": "not applied"}} for last in _sends(sent)[-1:]
    ]
    return msgspec.Raw(_encode(ended))


def _to_do(intent: str, *, is_new: bool, newest: bool) -> str:
    """
    Return a packed intent as that of a write that is to be done again.

    If it *is_new*, it has no sends that may have an effect, as ``intents.as_new`` makes it; as the *newest*,
    no note that a newer write to its resource was sent.  Only these members are decoded.  Not in SQL, because
    PostgreSQL's JSON cannot store every text.
    """
    kept = _members(intent)
    if newest:
        kept.pop("newest", None)
    if is_new:
        sent = kept.get("sent")
        for name in _OF_SENDS:
            kept.pop(name, None)
        if sent is not None:
            kept["sent"] = _without_effect(sent)
        # A new identity: what clients remember of the earlier write is not about this one.
        kept["nonce"] = msgspec.Raw(_encode(token_hex(8)))
    return _encode(kept).decode()
