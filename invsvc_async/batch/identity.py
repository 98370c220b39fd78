"""
Tell writes apart: by what they ask for, and by the thing they touch; pure, never by their place in the input.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from invsvc_async.reconcile.find import is_unique
from invsvc_async.reconcile.same import normal_url

if TYPE_CHECKING:
    from invsvc_async.reconcile.evidence import Wire
    from invsvc_async.session import Request

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
    Name the thing that *request* touches, so that writes of one thing keep their order; ``None``: it
    touches no other's.

    Creates touch nothing, but for those of a webhook without a tag of its own: of one URL, and of one text
    of the caller's own, they could not be told apart.
    """
    operation = request.operation
    if operation.finder == "created_webhook":
        return None if is_unique(tag) else f"{team} new {normal_url(_url(request.body))} {tag or ''}"
    if request.raw_path is not None:
        return None if request.method == "POST" else f"{team} {request.raw_path.partition('?')[0]}"
    if operation.method == "POST":
        return None
    path = operation.path
    for name, value in request.path.items():
        path = path.replace(f"{{{name}}}", value)
    return f"{team} {path}"


def _url(body: Wire) -> str:
    return str(body["url"])
