"""
Tell writes apart: by what they ask for, and by the thing they touch; pure, never by their place in the input.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from invsvc_async.reconcile.findings import is_unique
from invsvc_async.writes.new_intent import line_of

if TYPE_CHECKING:
    from invsvc_async.transport.session import Request

__all__ = ["content_of", "key_of", "thing_of"]

_encode = msgspec.json.Encoder(decimal_format="number", order="sorted").encode


def content_of(request: Request, team: str | None, tag: str | None) -> bytes:
    """
    Digest what *request* asks for, 16 bytes; the order of a body's members is nothing.

    A tag that is a text of the caller's own is asked for, too; one that was made for the write is not.
    """
    asked: list[object] = [
        request.operation.name,
        request.method,
        request.raw_path,
        request.path,
        request.query,
        request.body if request.has_body else None,
        team,
    ]
    if tag is not None and not is_unique(tag):
        asked.append(tag)
    return blake2b(_encode(asked), digest_size=16).digest()


def key_of(content: bytes, occurrence: int) -> str:
    """Make the key of the *occurrence*-th (from 1) among equal writes."""
    return content.hex() if occurrence == 1 else f"{content.hex()}-{occurrence}"


def thing_of(request: Request, team: str | None, tag: str | None) -> str | None:
    """
    Name the line of a write in a batch, so that those of one thing keep their order; ``None``: it needs none.

    As ``line_of``, but a create with a unique tag waits for nothing: nobody else has its tag.
    """
    if request.operation.finder == "created_webhook" and is_unique(tag):
        return None
    return line_of(request, team, tag)
