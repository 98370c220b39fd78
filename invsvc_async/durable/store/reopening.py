"""
Entries that are reopened, because people ask for it: what is done anew, and what is settled again.

The next run of a key reopens its own entry by ``reopen`` in ``claims``.

A script may be run again after its reply was lost, and then finds what its earlier run has done.  The caller
gives a set that outlasts the runs, *again*, and each run adds to it.
"""

from __future__ import annotations

from collections import Counter
from secrets import token_hex
from typing import TYPE_CHECKING, Final

import msgspec

from invsvc_async.durable.entry import State
from invsvc_async.durable.store.adding import numbers
from invsvc_async.durable.store.conditions import FREED, KEYED, NOT_APPLIED
from invsvc_async.durable.store.tables import change_counts
from invsvc_async.durable.store.verdicts import DELETE_UNHEARD
from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.storage.dialect import Script


_MAY_REOPEN: Final = f"""
SELECT e.seq, e.key, e.lane, e.verdict, e.intent, e.flags FROM {{s}}entries AS e
    WHERE e.key {{any 1 text}} AND e.verdict {{any 2 text}} AND e.state = {State.DONE:d}
    AND e.{NOT_APPLIED} AND e.intent IS NOT NULL ORDER BY e.seq {{update}}
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

_OF_SENDS: Final = ("sent", "bounds", "baseline", "mixture")  # members of an intent
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_sends = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_encode = msgspec.json.Encoder().encode


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
    yield from change_counts(counts)
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
