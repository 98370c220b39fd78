"""Say where in a list a walk stands, and write that as opaque text; never put a credential in it."""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any

import attrs

from invsvc_async.errors import InvalidRequestError

__all__ = ["FIRST", "Place", "Position", "read_token", "write_token"]

_VERSION = 1
_LONGEST = 32_768  # characters of a token: a cursor is part of an address, which no server takes longer
_ALPHABET = re.compile(r"[A-Za-z0-9_-]+")
_MOST_PAGES = 2**53


@attrs.frozen(kw_only=True)
class Position:
    """A page of a list: behind a cursor, by its number, or (neither) the first."""

    cursor: str | None = None
    page: int | None = None


FIRST = Position()


@attrs.frozen(kw_only=True)
class Place:
    """A position together with the list that it belongs to."""

    operation: str
    query: dict[str, str]  # wire names, without the position's own
    team: str | None
    position: Position


def write_token(place: Place) -> str:
    """Write *place* as text that goes into an address or a file as it is."""
    fields = [_VERSION, place.operation, place.query, place.team, place.position.cursor, place.position.page]
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).rstrip(b"=").decode()


def read_token(token: object) -> Place:
    """
    Read what :func:`write_token` wrote.

    Raises:
        InvalidRequestError: It is not such a text, is cut, or is of another version.

    """
    if not isinstance(token, str) or not 0 < len(token) <= _LONGEST or not _ALPHABET.fullmatch(token):
        raise InvalidRequestError("token: is no resume token")
    try:
        fields = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise InvalidRequestError("token: is damaged, or cut") from error
    match fields:
        case [int(), str(operation), dict(query), None | str() as team, None | str() as cursor, page] if (
            fields[0] == _VERSION and _is_page(page) and _are_texts(query)
        ):
            position = Position(cursor=cursor, page=page)
            return Place(operation=operation, query=query, team=team, position=position)
        case _:
            raise InvalidRequestError("token: is of another version, or no resume token")


def _is_page(page: Any) -> bool:  # Any: whatever a token may hold
    return page is None or (type(page) is int and 1 <= page <= _MOST_PAGES)


def _are_texts(query: dict[str, Any]) -> bool:  # Any: whatever a token may hold
    return all(isinstance(value, str) for value in query.values())
