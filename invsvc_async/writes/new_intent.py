"""
The intent of a write, made from its request and from what the client knew before the first send.

Intents contain no secret and no token.
"""

from __future__ import annotations

from base64 import b32encode
from secrets import token_bytes, token_hex
from typing import TYPE_CHECKING, NamedTuple

import attrs

from invsvc_async.api.operations import BY_NAME
from invsvc_async.codec import unstructure
from invsvc_async.models.common import Model
from invsvc_async.reconcile.compare import url_key
from invsvc_async.reconcile.findings import is_unique
from invsvc_async.reconcile.intent import NEVER_LISTED, Intent, Scope
from invsvc_async.reconcile.own_writes import milliseconds, version_of
from invsvc_async.transport.session import Request

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.history import Bounds
    from invsvc_async.reconcile.own_writes import LastState, Listed, UrlIds
    from invsvc_async.settings import AnyReader, ReconcilePolicy
    from invsvc_async.transport.session import ClientOptions

__all__ = [
    "Before",
    "before",
    "intent_of",
    "line_of",
    "new_tag",
    "request_of",
    "tagged_body",
    "with_before",
]


def new_tag() -> str:
    """Make a tag that no other write bears, in the form by which tags are known."""
    return f"[iv-{b32encode(token_bytes(10)).decode().lower()}]"


def line_of(request: Request, team: str | None, tag: str | None) -> str | None:
    """
    Name the line of a write: those of one line run one at a time; ``None`` if nothing else can be mistaken
    for it.

    Changes of one thing are in one line, and so are all creates of a webhook that may look alike in a list:
    those of one URL, whatever their team, description and text of a tag.  A create with a unique tag is in
    the line of its tag.
    """
    operation = request.operation
    if operation.finder == "created_webhook":
        return f"tag {tag}" if is_unique(tag) else f"url {url_key(str(request.body['url']))}"
    if request.raw_path is not None:
        return None if request.method == "POST" else request.raw_path.partition("?")[0]
    if operation.method == "POST":
        return None
    if not request.path:
        return f"{operation.path} {team}"
    return f"{operation.path.partition('{')[0]}{'/'.join(request.path.values())}"


def request_of(intent: Intent) -> Request:
    """Make the request that *intent* was, or would be."""
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


class Before(NamedTuple):
    """What a client knows right before the first send of a write."""

    at: float  # local s
    bounds: Bounds | None
    last: LastState | None = None
    ids: UrlIds | None = None
    listed: Listed | None = None
    never_listed: bool = False  # it is a create that could be taken for another, and no list has been seen


def before(view: ClientOptions, request: Request, line: str | None, policy: ReconcilePolicy) -> Before:
    """Return what the client knows now of the thing that *request*, in *line*, is about."""
    session = view.session
    now = session.clock.now()
    bounds = session.server_clock.bounds(now, policy.clock_slack)
    finder = request.operation.finder
    if line is None or finder is None or line.startswith("tag "):
        return Before(now, bounds)
    creates = finder == "created_webhook"
    if not session.is_bound_to_a_mode:
        return Before(now, bounds, never_listed=creates)
    if not creates:
        return Before(now, bounds, session.own.last((view.team_of(request), line)))
    listed = session.own.last_list(view.team_of(request))
    return Before(now, bounds, None, session.own.ids(line.removeprefix("url ")), listed, listed is None)


def with_before(intent: Intent, known: Before, passed: Model | Wire = None) -> Intent:
    """Return *intent* with what was known before its first send; *passed* is the caller's own last state."""
    state = passed
    if known.last is not None and (passed is None or _is_fresher(known.last, passed)):
        state = known.last.state
    strangers, forgotten_until = set(intent.strangers), intent.forgotten_until
    if known.ids is not None:
        earliest = None
        if known.bounds is not None:
            earliest = known.at + known.bounds.low - 2 * intent.policy.clock_slack
        strangers |= known.ids.created_since(earliest)
        forgotten_until = known.ids.forgotten_until
    if known.never_listed:
        forgotten_until = NEVER_LISTED
    if known.listed is not None:
        strangers |= known.listed.ids(url_key(intent.body["url"]))
    return attrs.evolve(
        intent,
        bounds=known.bounds,
        baseline=_without_secret(state),
        strangers=tuple(sorted(strangers)),
        forgotten_until=forgotten_until,
    )


def _is_fresher(last: LastState, passed: Model | Wire) -> bool:
    """Return whether *last* is not surely older than the state that the caller *passed*."""
    ours, theirs = version_of(last.state), version_of(passed)
    if ours is not None and theirs is not None:
        return ours >= theirs
    meta = passed.meta if isinstance(passed, Model) else None
    if meta is None or meta.timestamp is None or last.stamp is None:
        return True
    return last.stamp >= milliseconds(meta.timestamp)


def intent_of(
    view: ClientOptions,
    request: Request,
    policy: ReconcilePolicy,
    known: Before | None = None,
    *,
    key: str | None,
    tag: str | None,
    baseline: Model | Wire,
    reader: AnyReader | None,
) -> Intent:
    """Make the intent of a write; each call without a *key* makes another."""
    session, operation = view.session, request.operation
    nonce = None if key is None else token_hex(8)
    key = key or token_hex(8)
    path = dict(request.path)
    if request.raw_path is not None:
        path = {"method": request.method or operation.method, "path": request.raw_path}
    scope = Scope(
        base_url=session.base_url,
        team=view.team_of(request),
        livemode=session.livemode,
        credential=session.credential.fingerprint(key),
    )
    intent = Intent(
        key=key,
        nonce=nonce,
        operation=operation.name,
        path=path,
        query=dict(request.query),
        body=tagged_body(request, tag),
        has_body=request.has_body,
        scope=scope,
        tag=tag,
        baseline=_without_secret(baseline) if known is None else None,
        policy=policy,
        timeouts=view.timeouts,
        reader=None if reader is None else _reader_name(reader),
    )
    return intent if known is None else with_before(intent, known, baseline)


def tagged_body(request: Request, tag: str | None) -> Wire:
    """Put the tag, where there is one, at the end of the description."""
    body = request.body
    if tag is None:
        return body
    text = body.get("description")
    return {**body, "description": f"{text} {tag}" if text else tag}


def _without_secret(state: Model | Wire) -> Wire:
    """Keep a webhook's secret out of what is stored of it."""
    if isinstance(state, Model):
        state = unstructure(state)
    if isinstance(state, dict) and "secret" in state:
        return {name: value for name, value in state.items() if name != "secret"}
    return state


def _reader_name(reader: AnyReader) -> str:
    """Name a reader of the caller's: what an intent can hold of it."""
    return str(getattr(reader, "name", None) or getattr(reader, "__qualname__", type(reader).__qualname__))
