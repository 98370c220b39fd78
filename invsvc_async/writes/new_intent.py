"""
How a run of a write starts: the name of its line, and its intent, new or taken up.

The line itself, in which runs wait for their turn, is in ``lines``.
"""

from __future__ import annotations

from base64 import b32encode
from functools import partial
from hashlib import blake2b
from math import isfinite
from secrets import token_bytes, token_hex
from typing import TYPE_CHECKING, NamedTuple

import attrs

from invsvc_async.api.operations import BY_NAME, Operation
from invsvc_async.codec import unstructure
from invsvc_async.codec.fields import maker_of
from invsvc_async.models.common import Model
from invsvc_async.reconcile.attempts import sent_at_once
from invsvc_async.reconcile.facts import Known
from invsvc_async.reconcile.findings import is_unique
from invsvc_async.reconcile.history import Bounds, History, Resumed, Send
from invsvc_async.reconcile.intent import NEVER_LISTED, Intent, Scope, revised
from invsvc_async.reconcile.kinds import KINDS, Kind, kind_of_write
from invsvc_async.reconcile.server_clock import WHOLE_SECOND
from invsvc_async.settings import AnyReader, CallOptions
from invsvc_async.transport.client_core import ClientCore, ClientOptions, Request
from invsvc_async.writes.spec import WriteSpec
from invsvc_async.writes.things import (
    LastState,
    Listed,
    Thing,
    UrlIds,
    milliseconds,
    sound,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.writes.journal import Journal
    from invsvc_async.writes.register import WriteRegister

_intent = maker_of(Intent)
_scope = maker_of(Scope)
_SHORT = 500  # characters of a line: in UTF-8, four times as many fit into an index of PostgreSQL


def new_tag() -> str:
    """Return a new tag. The form is fixed: so tags of other writes are recognised."""
    return f"[iv-{b32encode(token_bytes(10)).decode().lower()}]"


def tag_of(place: str, key: str) -> str:
    """Return the tag of the write *key* of the journal *place*: the same one each time."""
    digest = blake2b(key.encode(), key=place.encode()[:64], digest_size=10).digest()
    return f"[iv-{b32encode(digest).decode().lower()}]"


def line_of(request: Request, team: str | None, tag: str | None) -> str | None:
    """
    Return the line of a write, or ``None`` if no other write can be mistaken for it.

    The writes of one line run one at a time. Changes of one thing are in one line. So are all creates of
    things that may look alike in a list: webhooks of one URL, whatever their team and description. A create
    with a unique tag has a line of its own.
    """
    operation = request.operation
    if (kind := KINDS[operation.write_kind or ""]).creates:
        line = (
            f"tag {tag}"
            if is_unique(tag)
            else line_of_alike(kind, request.body) or operation.path
        )
    elif (request.method or operation.method) == "POST":
        return None
    elif request.raw_path is not None:
        line = request.raw_path.partition("?")[0]
    elif not request.path:
        line = f"{operation.path} {team}"
    else:
        return line_of_thing(operation, *request.path.values())
    return _shortened(line)


def thing_of(spec: WriteSpec) -> Thing:
    """Return the record of the line of a write, or a record of its own if it is in none."""
    line = line_of(spec.request, spec.request.team, spec.tag)
    return Thing() if line is None else spec.options.core.writes.records.of(line)


def line_of_alike(kind: Kind, fields: Wire) -> str | None:
    """Return the line of the creates without a unique tag that could be mistaken for one with *fields*."""
    alike = kind.alike(fields)
    return None if alike is None else _shortened(alike)


def line_of_thing(operation: Operation, *ids: str) -> str:
    """Return the line of the writes to the thing that *operation* reads or writes at *ids*."""
    return _shortened(f"{operation.path.partition('{')[0]}{'/'.join(ids)}")


def _shortened(line: str) -> str:
    if len(line) <= _SHORT:
        return line
    whole = line.encode(errors="replace")
    if len(whole) <= 4 * _SHORT:
        return line
    return f"{line[:_SHORT]} {blake2b(whole, digest_size=16).hexdigest()}"


def request_of(intent: Intent) -> Request:
    """Return the request of *intent*."""
    operation = BY_NAME[intent.operation]
    unlisted = not operation.listed
    return Request(
        operation=operation,
        path={} if unlisted else intent.path,
        query=intent.query,
        body=intent.body,
        has_body=intent.has_body,
        team=intent.scope.team,
        method=intent.path["method"] if unlisted else None,
        raw_path=intent.path["path"] if unlisted else None,
    )


def spec_of_intent(
    options: ClientOptions, intent: Intent, reader: AnyReader | None = None
) -> WriteSpec:
    """Return what *intent* asks for. The body has its tag already."""
    if intent.headers:
        options = options.for_call(CallOptions(headers=intent.headers))
    request = request_of(intent)
    return WriteSpec(
        options=options,
        request=request,
        kind=kind_of_write(request.operation),
        policy=intent.policy,
        key=intent.key,
        tag=intent.tag,
        baseline=intent.baseline,
        reader=reader,
    )


def with_reader(intent: Intent, reader: AnyReader | None) -> Intent:
    """Return *intent* with the name of *reader*, unless another read settles the write."""
    operation = BY_NAME[intent.operation]
    has_read = operation.reader is not None
    if kind_of_write(operation).may_lack_read:
        has_read = intent.policy.journey_reader is not None
    if reader is None or intent.reader is not None or has_read:
        return intent
    return revised(intent, reader=_reader_name(reader))


class Before(NamedTuple):
    """What a client knows right before the first send of a write."""

    at: float  # local s
    bounds: Bounds | None
    last: LastState | None = None
    ids: UrlIds | None = None  # of an untagged create
    listed: Listed | None = None


def before(spec: WriteSpec, line: str | None) -> Before:
    """Return what the client knows now of the thing in *line*, which is the line of *spec*."""
    core = spec.options.core
    kind = spec.kind
    team = spec.request.team
    now = core.clock.now()
    bounds = core.server_clock.bounds(now, spec.policy.clock_slack)
    if line is None or kind.shown_by is None:
        return Before(now, bounds)
    if not kind.creates:
        return Before(now, bounds, core.writes.shown.last_state(team, line))
    if is_unique(spec.tag):
        return Before(now, bounds)
    writes = core.writes
    reader = spec.request.operation.reader
    listed = None if reader is None else writes.shown.last_list(reader, team)
    return Before(now, bounds, None, writes.shown.ids(line), listed)


def with_before(intent: Intent, known: Before, passed: Model | Wire = None) -> Intent:
    """Return *intent* with what was known before its first send. *passed* is the baseline of the user."""
    state = None
    seen = None
    if known.last is not None and (passed is None or _is_fresher(known.last, passed)):
        state = _without_secret(known.last.state)
        if known.bounds is not None and isfinite(known.last.ended):
            seen = known.last.ended + known.bounds.high
    elif passed is not None:
        state = _wire_form(passed)
    strangers = set(intent.strangers)
    forgotten_until = intent.forgotten_until
    if known.ids is not None:
        earliest = None
        if known.bounds is not None:
            earliest = (
                known.at
                + known.bounds.low
                - WHOLE_SECOND
                - 2 * intent.policy.clock_slack
            )
        strangers |= known.ids.created_since(earliest)
        forgotten_until = known.ids.forgotten_until
        if known.listed is None:
            forgotten_until = NEVER_LISTED
        else:
            strangers |= known.listed.ids(
                kind_of_write(BY_NAME[intent.operation]), intent.body
            )
    return revised(
        intent,
        bounds=known.bounds,
        baseline=state,
        baseline_at=seen,
        strangers=tuple(sorted(strangers)),
        forgotten_until=forgotten_until,
    )


def _is_fresher(last: LastState, passed: Model | Wire) -> bool:
    """Return whether *last* may be as new as the state that the user *passed*, or newer."""
    ours = version_of(last.state)
    theirs = version_of(passed)
    if ours is not None and theirs is not None:
        return ours >= theirs
    meta = passed.meta if isinstance(passed, Model) else None
    if meta is None or meta.timestamp is None or last.stamp is None:
        return True
    return last.stamp >= milliseconds(meta.timestamp)


def intent_of(spec: WriteSpec, known: Before | None = None) -> Intent:
    """Make the intent of a write. Each call without a key of the user's makes another."""
    core = spec.options.core
    request = spec.request
    key = spec.key
    nonce = None if key is None else token_hex(8)
    key = key or token_hex(8)
    path = dict(request.path)
    if request.raw_path is not None:
        path = {
            "method": request.method or request.operation.method,
            "path": request.raw_path,
        }
    scope = _scope(
        base_url=core.base_url,
        team=request.team,
        livemode=core.livemode,
        credential=core.credential.fingerprint(key),
    )
    intent = _intent(
        key=key,
        nonce=nonce,
        operation=request.operation.name,
        path=path,
        query=dict(request.query),
        body=tagged_body(request, spec.tag),
        has_body=request.has_body,
        scope=scope,
        tag=spec.tag,
        baseline=_wire_form(spec.baseline) if known is None else None,
        policy=spec.policy,
        timeouts=spec.options.timeouts,
        reader=None if spec.reader is None else _reader_name(spec.reader),
        headers=dict(spec.options.headers or {}),
        trace=None if core.trace is None else core.trace().get("traceparent"),
    )
    return intent if known is None else with_before(intent, known, spec.baseline)


def tagged_body(request: Request, tag: str | None) -> Wire:
    """Return the body of *request*, with the tag, if there is one, at the end of the description."""
    body = request.body
    if tag is None:
        return body
    text = body.get("description")
    return {**body, "description": f"{text} {tag}" if text else tag}


def _wire_form(passed: Model | Wire) -> Wire:
    """Return a state that the user *passed* as an intent has it."""
    return _without_secret(
        sound(unstructure(passed) if isinstance(passed, Model) else passed)
    )


def _without_secret(state: Wire) -> Wire:
    if isinstance(state, dict) and "secret" in state:
        return {name: value for name, value in state.items() if name != "secret"}
    return state


def _reader_name(reader: AnyReader) -> str:
    """Return the name by which an intent refers to a user-supplied reader."""
    return str(
        getattr(reader, "name", None)
        or getattr(reader, "__qualname__", type(reader).__qualname__)
    )


# --- how a run starts


class Start(NamedTuple):
    """How a run starts, once it has the lock of its line."""

    intent: Intent | Callable[[], Intent]  # or what makes it: few writes need it
    history: History = ()
    first: Send | None = (
        None  # what ``decide`` would say at the start, if that is known
    )


def new_start(
    spec: WriteSpec, line: str | None, intent: Intent | Callable[..., Intent]
) -> Start:
    """Start the first run of a write, with the present knowledge of the client."""
    known = before(spec, line)
    first = sent_at_once(
        spec.kind,
        spec.options.timeouts if callable(intent) else intent.timeouts,
        has_baseline=spec.baseline is not None or known.last is not None,
        knows_clock=known.bounds is not None,
        never_listed=known.ids is not None and known.listed is None,
    )
    if callable(intent):
        return Start(partial(intent, known), (), first)
    return Start(with_before(intent, known, spec.baseline), (), first)


def taken_up(
    core: ClientCore,
    intent: Intent,
    *,
    journaled: bool = False,
    gone_since: float | None = None,
    reads_only: bool = False,
) -> Start:
    """
    Start where another run left *intent*.

    *journaled*: it comes from a journal that stored every send. *gone_since*: the local time since which
    its sender is known to be dead. *reads_only*: it must not be sent.
    """
    writes = core.writes
    newest = intent.newest if journaled else None
    overtaken = intent.newest is False
    latest = writes.open_writes.opened(intent.identity)
    ended = writes.ended.get(intent.identity)
    # this client left it open itself
    if latest is not None and len(latest.sent) >= len(intent.sent):
        intent = attrs.evolve(latest, policy=intent.policy, reader=intent.reader)
        newest = latest.newest
    elif ended is not None and len(ended.intent.sent) >= len(
        intent.sent
    ):  # or has its outcome
        intent = attrs.evolve(ended.intent, policy=intent.policy, reader=intent.reader)
    # A journal does not know what this client has written otherwise since it had the verdict.
    if newest is None or (latest is None and ended is not None):
        is_last = _is_last(writes, intent)
        if is_last is not None:
            newest = is_last
    if overtaken or intent.newest is False:
        newest = False
    elif reads_only and not journaled and _has_company(writes, intent):
        newest = None
    resumed = Resumed(
        at=core.clock.now(),
        journaled=journaled,
        sender_gone=gone_since is not None,
        since=gone_since,
        newest=newest,
        reads_only=reads_only,
    )
    return Start(intent, (resumed,))


def _is_last(writes: WriteRegister, intent: Intent) -> bool | None:
    """Return whether *intent* was sent last to its thing, as far as this client knows."""
    line = line_of(request_of(intent), intent.scope.team, intent.tag)
    return None if line is None else writes.is_last(line, intent.identity)


def _has_company(writes: WriteRegister, intent: Intent) -> bool:
    """Return whether others may have written to the same thing, under keys of the same journal."""
    return intent.nonce is not None and getattr(writes.journal, "is_shared", False)


async def close_lines_of_leftovers(core: ClientCore, journal: Journal) -> None:
    """Close the lines of the open intents in *journal* for as long as their writes may still land."""
    writes = core.writes
    async with writes.looking:
        if writes.open_writes.leftovers is not None:
            return
        # All of them first: a cancelled or failed look must not count as one.
        found = [intent async for intent in journal.open_intents()]
        writes.open_writes.leftovers = {}
        for intent in found:
            line = line_of(request_of(intent), intent.scope.team, intent.tag)
            writes.open_writes.add_leftover(intent, line)
            if line is not None:
                resumed = Resumed(at=core.clock.now(), journaled=True, sender_gone=True)
                known = Known(BY_NAME[intent.operation], intent, (resumed,))
                writes.close_for_unknown(line, intent.identity, known.free_at)
