"""What identifies the writes of a batch: a digest of their content, and the thing that they change."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from invsvc_async.durable.key_names import by_value
from invsvc_async.reconcile.findings import is_unique
from invsvc_async.reconcile.kinds import kind_of_write
from invsvc_async.writes.new_intent import line_of

if TYPE_CHECKING:
    from invsvc_async.transport.session import Request

__all__ = ["content_of", "thing_of"]

_encode = msgspec.json.Encoder(decimal_format="number", order="sorted").encode


def content_of(request: Request, team: str | None, tag: str | None) -> bytes:
    """
    Return a digest of *request*, 16 bytes. The order of a body's members does not matter, nor do the digits
    with which a number is written.

    A user-supplied text as *tag* is part of it. A generated tag is not.
    """
    asked: list[object] = [
        request.operation.name,
        request.method,
        request.raw_path,
        request.path,
        request.query,
        by_value(request.body) if request.has_body else None,
        team,
    ]
    if tag is not None and not is_unique(tag):
        asked.append(tag)
    return blake2b(_encode(asked), digest_size=16).digest()


def thing_of(request: Request, team: str | None, tag: str | None) -> str | None:
    """
    Return the line of a write in a batch, or ``None`` if it waits for no other write.

    This is ``line_of``, except that a create with a unique tag needs no line.
    """
    if kind_of_write(request.operation).creates and is_unique(tag):
        return None
    return line_of(request, team, tag)
