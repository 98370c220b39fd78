"""
Entries that are reopened, because people ask for it: what is done anew, and what is settled again.

The next run of a key reopens its own entry by ``reopen_seen`` in ``claims``.

A script may be run again: the earlier run was rolled back, or was done and only its reply was lost.  The
caller gives a dict that outlasts the runs, *tried*.  After its last statement, each run notes there what it
has reopened, and the next run looks which of that has changed, so was not rolled back.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from operator import itemgetter
from secrets import token_hex
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from invsvc_async.durable.entry import State
from invsvc_async.durable.store.adding import numbers
from invsvc_async.durable.store.statements import entry_sql
from invsvc_async.durable.store.tables import change_counts
from invsvc_async.reconcile.history import Verdict
from invsvc_async.storage.dialect import in_parts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from invsvc_async.durable.store.opening import Store
    from invsvc_async.storage.dialect import Script


_PLACE: Final = -1  # the column of ``LOCK_REOPENABLE``
_OF_SENDS: Final = ("sent", "bounds", "baseline", "mixture")  # members of an intent
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_sends = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_encode = msgspec.json.Encoder().encode


class Reopened(NamedTuple):
    """An entry that was reopened, and when it was done, in epoch ms."""

    key: str
    lane: int
    done_at: int


def reopen(
    keys: Sequence[str],
    verdicts: Sequence[str],
    tried: dict[int, Reopened],
    *,
    at_end: bool = False,
) -> Script[list[Reopened]]:
    """
    Reopen the entries of *keys* with one of *verdicts*, and return them; *tried* is by their numbers.

    One with the verdict UNKNOWN keeps its sends, and is settled first.  All keep their places; with *at_end*,
    they get places after all others, in the same order.
    """
    earlier = yield from _reopened_before(tried)
    new = yield from _reopen(_without(keys, earlier), verdicts, at_end=at_end)
    tried |= new
    return [*earlier, *new.values()]


async def in_order(store: Store, keys: Sequence[str]) -> list[tuple[int, str]]:
    """Return the places and keys of the entries of *keys*, in the order of their places."""
    rows = await in_parts(partial(store.rows, entry_sql.PLACES_OF_KEYS), keys)
    return sorted((place, key) for place, key in rows)


def _reopened_before(tried: Mapping[int, Reopened]) -> Script[list[Reopened]]:
    """Return the *tried* entries that are open now, or done at another time."""
    if not tried:
        return []
    rows = yield entry_sql.LOCK_DONE_AT, ([*tried],)
    return [tried[seq] for seq, done_at in rows if done_at != tried[seq].done_at]


def _without(keys: Sequence[str], reopened: Sequence[Reopened]) -> list[str]:
    """Return *keys* without those of *reopened* writes, which may have failed once more since."""
    known = {each.key for each in reopened}
    return [key for key in keys if key not in known]


def _reopen(
    keys: Sequence[str],
    verdicts: Sequence[str],
    *,
    at_end: bool,
) -> Script[dict[int, Reopened]]:
    rows = yield entry_sql.LOCK_REOPENABLE, (keys, verdicts)
    if not rows:
        return {}
    places: Sequence[int | None] = [None] * len(rows)
    if at_end:  # The rows are locked in the order of their numbers, which a forced retry does not change.
        rows = sorted(rows, key=itemgetter(_PLACE))
        places = yield from numbers(len(rows))
    counts: Counter[tuple[int, str, int]] = Counter({(State.TO_DO, "", 0): len(rows)})
    changed: list[tuple[int, str, int | None]] = []
    for place, (seq, *_, verdict, intent, flags, _) in zip(places, rows, strict=True):
        is_new = verdict != Verdict.UNKNOWN
        changed.append((seq, _to_do(intent, is_new=is_new, at_end=at_end), place))
        counts[State.DONE, verdict, flags] -= 1
    yield entry_sql.REOPEN_CHOSEN, (changed,)
    yield entry_sql.DELETE_UNHEARD, ([seq for seq, *_ in rows],)
    yield from change_counts(counts)
    return {seq: Reopened(key, lane, done_at) for seq, key, lane, done_at, *_ in rows}


def reopen_keyed(
    keys: Sequence[str],
    verdicts: Sequence[str],
    tried: dict[int, Reopened],
    *,
    at_end: bool,
) -> Script[list[Reopened]]:
    """
    Reopen entries as ``reopen`` does, so that the next run of each write does it anew.

    Only of writes under keys of the user's own: nothing runs another one again.
    """
    earlier = yield from _reopened_before(tried)
    keyed = yield entry_sql.LOCK_KEYED, (_without(keys, earlier),)
    # At the end of the order, reopened writes come before the write to their thing that is claimed next,
    # which must not take itself for next in the order (``key_sql.CLAIM``).  This comes first: a claim then
    # has its place before theirs, or waits for this transaction.  At old places, reopened writes do not
    # matter: if the write that was claimed last is applied, that one has overtaken them; if not, no claim is
    # next.
    if at_end:
        yield entry_sql.FORGET_NEWEST, (sorted(key for key, _ in keyed),)
    new = yield from _reopen([key for key, _ in keyed], verdicts, at_end=at_end)
    found = {each.key for each in new.values()}
    unknown = {key for key, verdict in keyed if verdict == Verdict.UNKNOWN}
    # Those that were UNKNOWN may have been sent, so the next run settles them before it sends.
    yield entry_sql.FREE_REOPENED, (sorted(found & unknown), int(State.SENDING))
    yield entry_sql.FREE_REOPENED, (sorted(found - unknown), int(State.TO_DO))
    tried |= new
    return [*earlier, *new.values()]


def _without_effect(sent: msgspec.Raw) -> msgspec.Raw:
    """Return the last of packed sends as one that had no effect, as ``intents.without_effect`` does."""
    ended: list[dict[str, object]] = [
        {**last, "end": {"kind": "not applied"}} for last in _sends(sent)[-1:]
    ]
    return msgspec.Raw(_encode(ended))


def _to_do(intent: str, *, is_new: bool, at_end: bool) -> str:
    """
    Return a packed intent as that of a write that is to be done again.

    If it *is_new*, it has no sends that may have an effect, as ``intents.as_new`` makes it.  If its new place
    is *at_end*, it has no member ``newest``, whose ``false`` says that a newer write was sent.  Only these
    members are decoded.  Not in SQL, because PostgreSQL's JSON cannot store every text.
    """
    kept = _members(intent)
    if at_end:
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
