"""New entries of a batch or outbox: a digest of their content, and the thing that they change."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from invsvc_async.durable.entry import Entry, State
from invsvc_async.durable.key_names import by_value
from invsvc_async.durable.records import entry_of
from invsvc_async.reconcile.findings import is_unique
from invsvc_async.writes.new_intent import line_of

if TYPE_CHECKING:
    from invsvc_async.durable.intents import Commons
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.writes.spec import WriteSpec

__all__ = ["content_of", "new_entry"]

_encode = msgspec.json.Encoder(decimal_format="number", order="sorted").encode


def content_of(spec: WriteSpec) -> str:
    """
    Return a digest of the request, 32 characters. The order of a body's members does not matter, nor do the
    digits with which a number is written.

    A user-supplied text as tag is part of it. A generated tag is not.
    """
    request, tag = spec.request, spec.tag
    asked: list[object] = [
        request.operation.name,
        request.method,
        request.raw_path,
        request.path,
        request.query,
        by_value(request.body) if request.has_body else None,
        spec.team,
    ]
    if tag is not None and not is_unique(tag):
        asked.append(tag)
    return blake2b(_encode(asked), digest_size=16).hexdigest()


def new_entry(spec: WriteSpec, intent: Intent, commons: Commons, digest: str) -> Entry:
    """Return the entry of a write that is to do. A create with a unique tag waits for no other write."""
    is_alone = spec.kind.creates and is_unique(spec.tag)
    thing = None if is_alone else line_of(spec.request, spec.team, spec.tag)
    return entry_of(State.TO_DO, intent, commons, key=intent.key, thing=thing, digest=digest)
