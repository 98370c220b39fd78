"""
What the writes of a batch left of each thing: evidence for later writes, after a restart or elsewhere.

Rows contain no secrets; the statements are in ``store/states``.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import msgspec

from invsvc_async.api.operations import BY_NAME
from invsvc_async.codec import envelope
from invsvc_async.codec.exact_json import MEMBERS, Wire, salvage
from invsvc_async.durable.entry import ANSWERED, unreadable
from invsvc_async.durable.records import is_answered
from invsvc_async.durable.store.states import Left, claims_among, webhooks_made_for
from invsvc_async.errors import InvsvcError
from invsvc_async.reconcile.differences import LEFT_OUT, digest_of
from invsvc_async.reconcile.enums import NO_EFFECT, Verdict
from invsvc_async.reconcile.facts import Known
from invsvc_async.reconcile.findings import is_unique
from invsvc_async.reconcile.history import Resumed
from invsvc_async.reconcile.kinds import WriteKind, is_created, kind_of_write
from invsvc_async.reconcile.turn import free_at
from invsvc_async.writes.answers import field_of
from invsvc_async.writes.line_names import kind_of_create
from invsvc_async.writes.new_intent import request_of
from invsvc_async.writes.things import sound, version_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.reconcile.history import Reading
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import AnyOutcome
    from invsvc_async.transport.client_core import ClientCore, ClientOptions
    from invsvc_async.writes.register import WriteRegister
    from invsvc_async.writes.things import LastState


MOST_LARGE = 4096  # bytes: of a larger graph, a stored state has only a digest
_RECENT = 600.0  # s for which the state of a webhook counts
_encode = msgspec.json.Encoder(decimal_format="number").encode


def left_unread(entry: Entry) -> Left | None:
    """
    Return what an *entry* leaves that ended unread: the thing, if there may be an effect; else ``None``.

    A create leaves nothing, because it replaces nothing.
    """
    may_have_effect = entry.verdict not in {verdict.value for verdict in NO_EFFECT}
    if entry.thing is None or is_created(entry.thing) or not may_have_effect:
        return None
    return Left(entry.thing)


def left_by(
    thing: str | None,
    outcome: AnyOutcome,
    writes: WriteRegister,
) -> Left | None:
    """
    Return the state in which the write with *outcome* left *thing*; ``None`` after a create or no effect.

    *writes* has the states that the client's answers showed.
    """
    kind = kind_of_write(BY_NAME[outcome.started_as.operation])
    if thing is None or outcome.verdict in NO_EFFECT or kind.creates:
        return None
    team = outcome.started_as.scope.team
    last = writes.last_state(team, thing) if kind.thing.stored else None
    # What shows no time of its last change proves nothing, if it was seen before a write in doubt.
    if last is None or (outcome.verdict is Verdict.UNKNOWN and not kind.shows_change):
        return Left(thing)
    try:
        shown = last.shown
        if isinstance(shown, msgspec.Raw):
            shown = MEMBERS.decode(shown)
        state = _kept(kind, shown)
        text = None if state is None else _encode(state).decode()
    except (
        InvsvcError,
        msgspec.MsgspecError,
        ValueError,
        TypeError,
    ):  # no text in UTF-8, for example
        return Left(thing)
    return Left(thing, team, text, last.stamp)


def claim_by(outcome: AnyOutcome) -> str | None:
    """Return which webhook the untagged create with *outcome* made, as stores note it; ``None``: none."""
    intent = outcome.started_as
    made = field_of(outcome.value, "id")
    if outcome.verdict is not Verdict.APPLIED or not isinstance(made, str):
        return None
    kind = _kind_created_by(intent)
    if kind is None or is_unique(intent.tag):
        return None
    if _shows_another(kind, outcome):
        return None
    made = _storable(made)
    if is_answered(outcome):
        return ANSWERED + made
    return made


def _kind_created_by(intent: Intent) -> WriteKind | None:
    """Return the kind of the create of *intent*, by a method or raw; ``None`` if it is no create."""
    operation = BY_NAME[intent.operation]
    if not operation.listed:
        return kind_of_create(request_of(intent))
    kind = kind_of_write(operation)
    return kind if kind.creates else None


def _shows_another(kind: WriteKind, outcome: AnyOutcome) -> bool:
    """Return whether the value of a raw create may be another's, by its URL: no answer to one is checked."""
    intent = outcome.started_as
    if BY_NAME[intent.operation].listed:
        return False
    shown = field_of(outcome.value, str(kind.found_by))
    if not isinstance(shown, str):
        return False
    return kind.alike({str(kind.found_by): shown}) != kind.alike(intent.body)


def _storable(made: str) -> str:
    """Return the id *made* as it is stored: PostgreSQL would refuse a null character."""
    return made.replace("\0", "\ufffd")


def _kept(kind: WriteKind, fields: Mapping[str, Wire]) -> dict[str, Wire] | None:
    """Return what a journal keeps of a state, empty if the thing is gone; ``None`` if it is only a part."""
    chosen = {name: fields[name] for name in kind.thing.stored if name in fields}
    is_part = bool(fields) and not chosen.keys() >= {*kind.thing.always}
    if is_part:
        return None
    large = kind.thing.large
    if large not in chosen:
        return chosen
    text = _encode(chosen[large])
    if len(text) <= MOST_LARGE:
        return chosen
    del chosen[large]
    return {**chosen, LEFT_OUT: {large: digest_of(envelope.loads(text))}}


def learn(options: ClientOptions, rows: Iterable[Left]) -> None:
    """
    Pass the states that a journal stores on to the client, in place of states seen earlier.

    The state of a webhook, which shows no time of its last change, counts only for ten minutes, by the
    service's clock. After that, while that clock is not known, and if a row has no state or no time, the
    client knows nothing of the thing: a read before the write says more.

    Raises:
        JournalError: A state cannot be read.
    """
    writes = options.core.writes
    for row in rows:
        known = writes.last_state(row.team, row.thing)
        if known is not None:
            if _is_as_late(known, row):
                continue
            writes.forget_state(row.thing)
        is_later = known is None or None not in (known.stamp, row.stamp)
        if row.state is None or not is_later:
            continue
        state = _state_of(row)
        lasts = not state or version_of(state) is not None  # what was deleted stays so
        if lasts or _is_recent(options, row):
            writes.learn_state(
                row.team,
                row.thing,
                state,
                -inf,
                -inf,
                stamp=row.stamp,
                weight=len(row.state),
                written=True,
            )


def _is_as_late(known: LastState, row: Left) -> bool:
    """Return whether the client has surely seen the *known* state when that of *row* was, or later."""
    if row.state is None or row.stamp is None or known.stamp is None:
        return False
    return row.stamp <= known.stamp


def _is_recent(options: ClientOptions, row: Left) -> bool:
    """Return whether the state in *row* was seen within the last ten minutes, by the service's clock."""
    core = options.core
    now = core.clock.now()
    bounds = core.server_clock.bounds(now, options.reconcile.clock_slack)
    if row.stamp is None or bounds is None:
        return False
    return now + bounds.high - row.stamp / 1000 < _RECENT


def _state_of(row: Left) -> Wire:
    text = (row.state or "").encode()
    try:
        state = envelope.loads(text)
    except InvsvcError as error:
        # an answer may have had a number that no parser accepts
        state = sound(salvage(text))
        if state is None:
            raise unreadable(row.thing, error) from None
    if not isinstance(state, dict):
        raise unreadable(row.thing, "it is no object")
    return state


def close_line(
    core: ClientCore,
    thing: str,
    intent: Intent,
    *seen: Reading,
    sender_gone: bool = True,
    since: float | None = None,
) -> None:
    """
    Delay the next write to *thing* as long as *intent*, which is open or UNKNOWN, may have an effect.

    Only the service's clock shows how long ago it was sent: what was *seen* shows that clock.  Otherwise it
    may have been sent until now, or until the local time *since*.
    """
    resumed = Resumed(
        at=core.clock.now(), journaled=True, sender_gone=sender_gone, since=since
    )
    known = Known(BY_NAME[intent.operation], intent, (resumed, *seen))
    until = free_at(known)
    if until > resumed.at:
        core.writes.close_for_unknown(thing, intent.identity, until)


async def take_claims(
    writes: WriteRegister,
    store: Store,
    things: Sequence[str],
) -> None:
    """Note the webhooks that untagged creates of the URLs *things* made, and how certain each claim is."""
    _note_claims(writes, await webhooks_made_for(store, things))


async def take_claims_on(
    writes: WriteRegister,
    store: Store,
    listed: Iterable[str],
) -> None:
    """
    Note which untagged creates made webhooks of those with the ids *listed*, as :func:`take_claims`.

    Such a webhook may have been made for any URL: somebody may have edited that since.  So this is asked when
    a list is judged.  *listed* are of one list, so they are few.
    """
    stored = [*map(_storable, listed)]
    claims = [*stored, *(ANSWERED + each for each in stored)]
    _note_claims(writes, await claims_among(store, claims))


def _note_claims(writes: WriteRegister, claims: Iterable[tuple[str, str]]) -> None:
    """Note in *writes* the *claims* of a store, each with the key of its create."""
    for claim, key in claims:
        writes.claim(
            claim.removeprefix(ANSWERED), key, is_certain=claim.startswith(ANSWERED)
        )
