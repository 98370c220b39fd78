"""
What the writes of a batch left of each thing: evidence for later writes, after a restart or elsewhere.

A journal has one row for each thing that was changed. Rows contain no secrets.
"""

from __future__ import annotations

import time
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from invsvc_async.api.operations import BY_NAME
from invsvc_async.codec import envelope
from invsvc_async.codec.encode import plain_of, unstructure
from invsvc_async.codec.exact_json import holds_broken, salvage
from invsvc_async.durable.entry import ANSWERED, unreadable
from invsvc_async.errors import InvsvcError
from invsvc_async.models.common import UNSET, Model, stored_value, wire_names
from invsvc_async.reconcile.compare import HOOK_FIELDS
from invsvc_async.reconcile.enums import NO_EFFECT, Verdict
from invsvc_async.reconcile.own_writes import version_of
from invsvc_async.transport.write_register import can_overtake

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.reconcile.own_writes import LastState, OwnWrites
    from invsvc_async.transport.write_register import WriteRegister

__all__ = ["LastWrite", "Left", "learn", "left_by", "take_claims"]

MOST_GRAPH = 4096  # bytes: a larger graph is left out of a stored state
# What an update can change, and what finds compare: a state needs no more.
_JOURNEY = ("id", "status", "last_updated", "name", "description", "graph", "triggerType", "replacesDefaults")
_WEBHOOK = ("id", *HOOK_FIELDS)
_ALWAYS = ("url", "events", "status")  # of a webhook: its description may be left out if there is none

_RECENT = 600.0  # s for which the state of a webhook counts
_encode = msgspec.json.Encoder(decimal_format="number").encode


class _Data(msgspec.Struct):
    """An answer's payload, of which only the members are parsed."""

    data: dict[str, msgspec.Raw]


_data_of = msgspec.json.Decoder(_Data).decode


class Left(msgspec.Struct, frozen=True):
    """
    What one write left of *thing*.

    ``state`` is the last known state as JSON text (``{}`` if the thing is gone, ``None`` if it is not known),
    as the members of *team* see it; ``stamp`` the time of the answer that showed it (server ms).
    """

    thing: str
    team: str | None = None
    state: str | None = None
    stamp: int | None = None


class LastWrite(Left, frozen=True, kw_only=True):
    """The same, of all writes of a journal; ``seq`` is the last of those that may have had an effect."""

    seq: int


def left_by(
    thing: str | None,
    outcome: Outcome[Any],  # Any: of any operation
    own: OwnWrites,
    answer: bytes = b"",
) -> Left | None:
    """
    Return what the write with *outcome* left of its thing; ``None`` if it did nothing.

    *own* is what the client's answers showed. *answer* is the body of the last answer to the write.
    """
    if thing is None or outcome.verdict in NO_EFFECT or not can_overtake(outcome.started_as.operation):
        return None
    finder = BY_NAME[outcome.started_as.operation].finder
    team = outcome.started_as.scope.team
    last = None if finder is None else own.last(thing, team)
    # A webhook shows no time of its last change, so a state from before a write in doubt proves nothing.
    if last is None or (outcome.verdict is Verdict.UNKNOWN and finder != "journey"):
        return Left(thing)
    try:
        state = _webhook(last) if finder != "journey" else _journey(last.state, outcome.value, answer)
        text = None if state is None else _encode(state).decode()
    except (InvsvcError, msgspec.MsgspecError, ValueError, TypeError):  # no text in UTF-8, for example
        return Left(thing)
    return Left(thing, team, text, last.stamp)


def _journey(state: Model | dict[str, Wire], value: object, answer: bytes) -> dict[str, Wire]:
    """Return the wire form of a journey, without what no update changes; a find bears missing fields."""
    if isinstance(state, Model) and state is not value:
        return {name: found for name, found in _short_fields(state) if name in _JOURNEY}
    # The answer itself: to make the wire form of a model's graph takes longer than all else here.
    fields = _data_of(answer).data if isinstance(state, Model) else state
    chosen = {name: fields[name] for name in _JOURNEY if name in fields}
    if "graph" in chosen and len(_encode(chosen["graph"])) > MOST_GRAPH:
        del chosen["graph"]
    return chosen


def _short_fields(model: Model) -> Iterator[tuple[str, Wire]]:
    """Yield the fields of a model by their wire names, but for its graph."""
    for name, sent_as in wire_names(type(model)).items():
        value = stored_value(model, name)
        if value is not UNSET and sent_as != "graph":
            yield sent_as, plain_of(value)


def _webhook(last: LastState) -> dict[str, Wire] | None:
    """Return the wire form of a webhook, empty if it is gone; ``None`` if it was not shown whole."""
    state = unstructure(last.state)
    if state and not all(name in state for name in _ALWAYS):
        return None
    return {name: state[name] for name in _WEBHOOK if name in state}


def learn(writes: WriteRegister, rows: Iterable[LastWrite]) -> None:
    """
    Pass what a journal stores of things on to the client.

    It replaces nothing that the client has seen later itself. The state of a webhook, which shows no time of
    its last change, counts only for ten minutes. After that, a read before the write says more.

    Raises:
        JournalError: A state cannot be read.

    """
    for row in rows:
        if row.state is None:
            continue
        known = writes.last_state(row.team, row.thing)
        if known is not None and not _is_later(row.stamp, known.stamp):
            continue
        state, weight = _state_of(row), len(row.state)
        lasts = not state or version_of(state) is not None  # what was deleted stays so
        if lasts or _is_recent(row.stamp):
            writes.learn_state(
                row.team, row.thing, state, -inf, -inf, stamp=row.stamp, weight=weight, written=True
            )


def _is_later(stamp: int | None, known: int | None) -> bool:
    """Return whether another worker's answer is surely later than the one that this client had."""
    return stamp is not None and known is not None and stamp > known


def _is_recent(stamp: int | None) -> bool:
    """Return whether it is some minutes ago at most; a clock that is wrong costs certainty, not truth."""
    return stamp is not None and time.time() - stamp / 1000 < _RECENT


def _state_of(row: LastWrite) -> Wire:
    text = (row.state or "").encode()
    try:
        state = envelope.loads(text)
    except InvsvcError as error:
        found = salvage(text)  # an answer may have had a number that no parser accepts
        if not isinstance(found, dict):
            raise unreadable(row.thing, error) from None
        state = {name: value for name, value in found.items() if not holds_broken(value)}
    if not isinstance(state, dict):
        raise unreadable(row.thing, "it is no object")
    return state


def take_claims(writes: WriteRegister, claims: Iterable[tuple[str, str]]) -> None:
    """Note which webhooks the untagged creates made, and how certain that is."""
    for webhook_id, key in claims:
        is_certain = webhook_id.startswith(ANSWERED)
        writes.claim(webhook_id.removeprefix(ANSWERED), key, is_certain=is_certain)
