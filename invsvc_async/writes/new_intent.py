"""
The intent of a new write, and what is known before its first send: the baseline, the clock, the siblings.

An intent is made as late as possible, and of most writes never; see ``RunRecord``.
"""

from __future__ import annotations

from base64 import b32encode
from hashlib import blake2b
from math import isfinite
from secrets import token_bytes, token_hex
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from invsvc_async.api.operations import BY_NAME
from invsvc_async.codec import unstructure
from invsvc_async.codec.fields import maker_of
from invsvc_async.models.common import Model
from invsvc_async.reconcile.findings import is_unique
from invsvc_async.reconcile.intent import NEVER_LISTED, Intent, Scope, revised
from invsvc_async.reconcile.kinds import kind_of_write
from invsvc_async.reconcile.server_clock import WHOLE_SECOND
from invsvc_async.settings import AnyReader, CallOptions, ReconcilePolicy
from invsvc_async.transport.client_core import ClientOptions, Request
from invsvc_async.writes.spec import WriteSpec
from invsvc_async.writes.things import (
    LastState,
    Listed,
    UrlIds,
    milliseconds,
    sound,
    version_of,
)

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.history import Bounds
    from invsvc_async.transport.client_core import ClientCore

_intent = maker_of(Intent)
_scope = maker_of(Scope)


def new_tag() -> str:
    """Return a new tag. The form is fixed: so tags of other writes are recognised."""
    return f"[iv-{b32encode(token_bytes(10)).decode().lower()}]"


def tag_of(place: str, key: str) -> str:
    """Return the tag of the write *key* of the journal *place*: the same one each time."""
    digest = blake2b(key.encode(), key=place.encode()[:64], digest_size=10).digest()
    return f"[iv-{b32encode(digest).decode().lower()}]"


def request_of(intent: Intent) -> Request:
    """Return the request of *intent*."""
    operation = BY_NAME[intent.operation]
    request = Request(
        operation=operation,
        path=intent.path,
        query=intent.query,
        body=intent.body,
        has_body=intent.has_body,
        team=intent.scope.team,
    )
    if operation.listed:
        return request
    return replace(
        request,
        path={},
        method=intent.path["method"],
        raw_path=intent.path["path"],
    )


def spec_of_intent(
    options: ClientOptions,
    intent: Intent,
    reader: AnyReader | None = None,
    policy: ReconcilePolicy | None = None,
) -> WriteSpec:
    """
    Return what *intent* asks for, under *policy* if that is given.

    Its body has its tag already, so it gets no other one: a create without a tag was in the line of its URL
    when it was sent, and stays there.
    """
    if intent.headers:
        options = options.for_call(CallOptions(headers=intent.headers))
    request = request_of(intent)
    return WriteSpec(
        options=options,
        request=request,
        kind=kind_of_write(request.operation),
        policy=policy or intent.policy,
        key=intent.key,
        tag=intent.tag,
        may_tag=False,
        baseline=intent.baseline,
        reader=reader,
    )


def with_reader(intent: Intent, reader: AnyReader | None) -> Intent:
    """Return *intent* with the name of *reader*, unless another read settles the write."""
    operation = BY_NAME[intent.operation]
    # A read that a deployment may lack is chosen by the policy.
    may_lack_read = kind_of_write(operation).may_lack_read
    read = intent.policy.journey_reader if may_lack_read else operation.reader
    has_read = read is not None
    if has_read:
        return intent
    if reader is None or intent.reader is not None:
        return intent
    return revised(intent, reader=_reader_name(reader))


class Before(Struct, frozen=True):
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


def with_before(
    intent: Intent,
    known: Before,
    passed: Model | Wire = None,
) -> Intent:
    """Return *intent* with what was known before its first send. *passed* is the baseline of the user."""
    state, state_at = _baseline(known, passed)
    strangers = _strangers(intent, known)
    return revised(
        intent,
        bounds=known.bounds,
        baseline=state,
        baseline_at=state_at,
        strangers=tuple(sorted(strangers.ids)),
        forgotten_until=strangers.forgotten_until,
    )


def _baseline(known: Before, passed: Model | Wire) -> tuple[Wire, float | None]:
    """Return the last state that is known of the thing, and when it was seen at the latest (server s)."""
    last = known.last
    if last is not None and (passed is None or _is_fresher(last, passed)):
        seen = None
        if known.bounds is not None and isfinite(last.ended):
            seen = last.ended + known.bounds.high
        return _without_secret(last.state), seen
    if passed is not None:
        return _wire_form(passed), None
    return None, None


class Strangers(NamedTuple):
    """
    The *ids* of things that an untagged create surely does not make, because they were there before.

    Its intent stores them.  With what lists show later, they become ``before_send.StrangersBefore``.

    Of things that were created up to ``forgotten_until`` (server ms), ids may be missing; ``None``: of none.
    """

    ids: set[str]
    forgotten_until: int | None


def _strangers(intent: Intent, known: Before) -> Strangers:
    """Return the strangers to an untagged create *intent*: its own, and the *known* ones."""
    strangers = set(intent.strangers)
    if known.ids is None:
        return Strangers(strangers, intent.forgotten_until)
    earliest = None
    if known.bounds is not None:
        # What was created earlier than this is "before" the send for `SettleWindows.when`, also if times are
        # cut to whole seconds. That comparison allows for one slack. The second slack is for its clock
        # bounds: they come from later answers, and may differ from these by so much.
        earliest = known.at + known.bounds.low
        earliest -= WHOLE_SECOND
        earliest -= 2 * intent.policy.clock_slack
    strangers |= known.ids.created_since(earliest)
    if known.listed is None:
        return Strangers(strangers, NEVER_LISTED)
    kind = kind_of_write(BY_NAME[intent.operation])
    strangers |= known.listed.ids(kind, intent.body)
    return Strangers(strangers, known.ids.forgotten_until)


def _is_fresher(last: LastState, passed: Model | Wire) -> bool:
    """Return whether *last* may be as new as the state that the user *passed*, or newer."""
    ours = version_of(last.state)
    theirs = version_of(passed)
    if ours is not None and theirs is not None:
        return ours >= theirs
    if not isinstance(passed, Model):
        return True
    meta = passed.meta
    if meta is None or meta.timestamp is None:
        return True
    if last.stamp is None:
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
    baseline: Wire = None
    if known is None:
        baseline = _wire_form(spec.baseline)
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
        baseline=baseline,
        policy=spec.policy,
        timeouts=spec.options.timeouts,
        reader=_reader_name(spec.reader),
        headers=dict(spec.options.headers or {}),
        trace=_trace_of(core),
    )
    if known is None:
        return intent
    return with_before(intent, known, spec.baseline)


def tagged_body(request: Request, tag: str | None) -> Wire:
    """Return the body of *request*, with the tag, if there is one, at the end of the description."""
    body = request.body
    if tag is None:
        return body
    text = body.get("description")
    if text:
        return {**body, "description": f"{text} {tag}"}
    return {**body, "description": tag}


def untagged_body(intent: Intent) -> Wire:
    """Return the body of *intent* without its tag: the contrary of :func:`tagged_body`."""
    if intent.tag is None:
        return intent.body
    body = dict(intent.body)
    text = str(body.pop("description")).removesuffix(intent.tag).removesuffix(" ")
    if text:
        return {**body, "description": text}
    return body


def _wire_form(passed: Model | Wire) -> Wire:
    """Return a state that the user *passed* as an intent has it."""
    if isinstance(passed, Model):
        return _without_secret(sound(unstructure(passed)))
    return _without_secret(sound(passed))


def _without_secret(state: Wire) -> Wire:
    if isinstance(state, dict) and "secret" in state:
        return {name: value for name, value in state.items() if name != "secret"}
    return state


def _trace_of(core: ClientCore) -> str | None:
    """Return the trace in which the write is made, if the client traces."""
    if core.trace is None:
        return None
    trace: str | None = core.trace().get("traceparent")
    return trace


def _reader_name(reader: AnyReader | None) -> str | None:
    """Return the name by which an intent refers to a user-supplied reader, if there is one."""
    if reader is None:
        return None
    return str(
        getattr(reader, "name", None)
        or getattr(reader, "__qualname__", type(reader).__qualname__)
    )
