"""Encode a position in a paginated list as an opaque resume token. Tokens contain no credentials."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Annotated, Literal

import attrs
import msgspec

from invsvc_async.errors import InvalidRequestError

_LONGEST = 32_768  # characters of a token: servers accept no longer URLs, and a cursor is part of one
_ALPHABET = re.compile(r"[A-Za-z0-9_-]+")
_PageNumber = Annotated[int, msgspec.Meta(ge=1, le=2**53)]


@attrs.frozen(kw_only=True)
class PagePosition:
    """A page of a list, by cursor or number. With neither, it is the first page."""

    cursor: str | None = None
    page: int | None = None


FIRST = PagePosition()


class Place(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    array_like=True,
    forbid_unknown_fields=True,
):
    """A position, and the list to which it belongs. A token is the JSON of a place."""

    version: Literal[1] = 1
    operation: str
    query: dict[str, str]  # wire names, without the position's own
    team: str | None
    cursor: str | None
    page: _PageNumber | None
    service: str  # a digest of the base URL


_DECODER = msgspec.json.Decoder(Place)


def digest_of(base_url: str) -> str:
    """Return the digest of a base URL: a token may be given to those who must not know the address."""
    return hashlib.sha256(base_url.encode()).hexdigest()[:16]


def write_token(place: Place) -> str:
    """Encode *place* as text that can be used in a URL or a file as it is."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).rstrip(b"=").decode()


def read_token(token: object) -> Place:
    """
    Decode the result of :func:`write_token`.

    Raises:
        InvalidRequestError: It is not a resume token, is truncated, or is of another version.
    """
    if (
        not isinstance(token, str)
        or not 0 < len(token) <= _LONGEST
        or not _ALPHABET.fullmatch(token)
    ):
        raise InvalidRequestError("token: is not a resume token")
    try:
        text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(
            "token: is damaged, truncated, or of another version"
        ) from error
