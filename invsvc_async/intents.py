"""
Make what is stored of a write before it is sent, from its request; never keep a secret or a token.
"""

from __future__ import annotations

from base64 import b32encode
from secrets import token_bytes, token_hex
from typing import TYPE_CHECKING

from invsvc_async.convert import unstructure
from invsvc_async.models.common import Model
from invsvc_async.reconcile.intent import Intent, Scope

if TYPE_CHECKING:
    from invsvc_async.reconcile.evidence import Bounds, Reader, Wire
    from invsvc_async.session import Request, View
    from invsvc_async.settings import ReconcilePolicy

__all__ = ["intent_of", "new_tag", "tagged_body"]


def new_tag() -> str:
    """Make a tag that no other write bears, in the form by which tags are known."""
    return f"[iv-{b32encode(token_bytes(10)).decode().lower()}]"


def intent_of(
    view: View,
    request: Request,
    policy: ReconcilePolicy,
    bounds: Bounds | None,
    *,
    key: str | None,
    tag: str | None,
    baseline: Model | Wire,
    reader: Reader | None,
) -> Intent:
    """Make the intent of a write; each call without a *key* makes another."""
    session, operation = view.session, request.operation
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
    return Intent(
        key=key,
        operation=operation.name,
        path=path,
        query=dict(request.query),
        body=tagged_body(request, tag),
        has_body=request.has_body,
        scope=scope,
        tag=tag,
        baseline=_without_secret(baseline),
        bounds=bounds,
        policy=policy,
        timeouts=view.timeouts,
        reader=None if reader is None else _reader_name(reader),
    )


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


def _reader_name(reader: Reader) -> str:
    """Name a reader of the caller's: what an intent can hold of it."""
    return str(getattr(reader, "name", None) or getattr(reader, "__qualname__", type(reader).__qualname__))
