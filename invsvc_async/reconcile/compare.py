"""
Comparison of wire data with the semantics of the service.

1 equals 1.0, and the order of keys does not matter.  An absent key equals a null one only where the
specification allows null.
"""

from __future__ import annotations

import re
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from itertools import repeat
from math import isfinite
from typing import TYPE_CHECKING, TypeGuard
from urllib.parse import quote, unquote, urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async.codec.exact_json import Wire

_NO_TIME = 10**15  # ms: 30,000 years
_SCALARS = frozenset({str, int, float, Decimal, bool, type(None)})
# Nodes and edges of a graph.  What takes longer would hold up all other writes.
MOST_COMPARED = 200_000
MOST_ROUNDED = 2_000  # that are compared as rounded: this makes copies of all
_ESCAPE = "%([0-9A-Fa-f]{2})"
# Characters that mean the same whether they are escaped or not; programs differ in which they escape.
_UNRESERVED = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!'()*"
)
_KEPT = "!#$%&'()*+,/:;=?@"  # ASCII that is not escaped
_NOT_KEPT = re.compile(f"[^A-Za-z0-9._~{re.escape(_KEPT)}-]").search


def same(one: Wire, other: Wire) -> bool:
    """
    Return whether two JSON values are equal.  Numbers are compared by value; booleans are not numbers.

    This takes time in proportion to the smaller value, for a graph may have 100,000 nodes.
    """
    if type(one) is type(other) and type(one) in _SCALARS:
        return bool(one == other)
    if isinstance(one, dict):
        if not isinstance(other, dict) or one.keys() != other.keys():
            return False
        return all(map(same, one.values(), map(other.__getitem__, one)))
    if isinstance(one, (list, tuple)):
        if not isinstance(other, (list, tuple)) or len(one) != len(other):
            return False
        return all(map(same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float, Decimal)) and isinstance(
        other, (int, float, Decimal)
    ):
        return _exact(one) == _exact(other)
    return isinstance(one, str) and isinstance(other, str) and one == other


def _exact(number: float | Decimal) -> int | Decimal:
    return Decimal(repr(number)) if isinstance(number, float) else number


def same_journey_field(name: str, one: Wire, other: Wire) -> bool:
    """Return whether one field of two journeys is equal."""
    if name == "graph":  # a null ``viewport``, ``sourceHandle`` or ``config`` is absent
        return _same_but_for_nulls(one, other, _NULLABLE)
    return same(one, other)


def rounded(value: Wire) -> Wire:
    """Return *value* with each number as a service keeps it whose numbers are doubles, as in JavaScript."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(each) for each in value]
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        with suppress(OverflowError):
            double = float(value)
            return double if isfinite(double) else value
    return value


def tidied(value: Wire) -> Wire:
    """
    Return *value* as stored by a service that trims texts, and stores empty values as null or not at all.

    Numbers are rounded, too.
    """
    if isinstance(value, dict):
        kept = {name: tidied(each) for name, each in value.items()}
        return {name: each for name, each in kept.items() if each is not None} or None
    if isinstance(value, (list, tuple)):
        return [tidied(each) for each in value]
    return value.strip() or None if isinstance(value, str) else rounded(value)


def parts_of(value: Wire) -> int:
    """Return the number of nodes and edges in *value*, if it is a graph; otherwise 0."""
    if not isinstance(value, dict):
        return 0
    return sum(len(each) for each in value.values() if isinstance(each, (list, tuple)))


# The members of a graph that may be null or absent are empty here; the others have such ones in them.
_NULLABLE: Wire = {
    "viewport": {},
    "nodes": {"data": {"config": {}}},
    "edges": {"sourceHandle": {}},
}


def _same_but_for_nulls(one: Wire, other: Wire, nullable: Wire) -> bool:
    """Return whether two values are equal if the members that are empty in *nullable* may be null."""
    if not nullable:
        return same(one, other)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        if len(one) != len(other):
            return False
        return all(map(_same_but_for_nulls, one, other, repeat(nullable)))
    if not isinstance(one, dict) or not isinstance(other, dict):
        return same(one, other)
    for name in one if one.keys() == other.keys() else {**one, **other}:
        inner = nullable.get(name)
        if inner == {}:
            if not same(one.get(name), other.get(name)):
                return False
        elif (
            name not in one
            or name not in other
            or not _same_but_for_nulls(one[name], other[name], inner)
        ):
            return False
    return True


@lru_cache(maxsize=4096)
def normal_url(url: str) -> str:
    """
    Return *url* in a normalised form.

    Scheme and host are in lower case, the host in its IDNA form.  The default port, dot segments and
    unnecessary escapes are removed; necessary escapes are added.  A backslash in a path is a slash, as in
    browsers and Node.js.
    """
    from yarl import URL  # slow to import

    try:
        parts = urlsplit(url.strip())
        host = (parts.hostname or "").rstrip(".")
        port = parts.port
        place = (
            URL.build(scheme=parts.scheme, host=host, port=port).raw_authority
            if host
            else ""
        )
    except ValueError:
        return url
    login = ":".join(
        quote(unquote(part), safe="")
        for part in parts.netloc.rpartition("@")[0].split(":", 1)
    )
    # an empty password is the same as none
    place = f"{login.rstrip(':')}@{place}".lstrip("@")
    path = _without_dots(_escaped(parts.path.replace("\\", "/"))) or "/"
    return urlunsplit(
        (parts.scheme, place, path, _escaped(parts.query), _escaped(parts.fragment))
    )


@lru_cache(maxsize=4096)
def url_key(url: str) -> str:
    """
    Return a key that is the same for all URLs that a service may store as equal.

    Scheme, user and password, fragment, case, a plus for a space, a last slash, and escapes do not count.
    """
    normal = re.sub("xn--([a-z0-9-]+)", _decoded, normal_url(url).partition("#")[0])
    place, _, rest = (normal.partition("://")[2] or normal).partition("/")
    path, _, query = rest.partition("?")
    plain = f"{place.rpartition('@')[2]}/{path.rstrip('/')}?{query}".replace("+", " ")
    # "ß" becomes "ss", as in IDNA 2003
    return quote(unquote(plain).casefold(), safe="/?:[]")


def _decoded(label: re.Match[str]) -> str:
    with suppress(UnicodeError):
        return label[1].encode().decode("punycode")
    return label[0]


def _escaped(text: str) -> str:
    def unescaped(escape: re.Match[str]) -> str:
        character = chr(int(escape[1], 16))
        return character if character in _UNRESERVED else escape[0].upper()

    plain = re.sub(_ESCAPE, unescaped, text)
    return quote(plain, safe=_KEPT) if _NOT_KEPT(plain) else plain


def _without_dots(path: str) -> str:
    if "/." not in path:
        return path
    kept: list[str] = []
    *segments, last = path.split("/")
    for segment in segments:
        if segment == "..":
            kept = kept[:-1] or kept  # the root has no parent
        elif segment != ".":
            kept.append(segment)
    if last == "..":
        kept = kept[:-1] or kept
    return "/".join([*kept, "" if last in (".", "..") else last])


HOOK_FIELDS = ("url", "events", "description", "status")


def same_hook_field(name: str, one: Wire, other: Wire) -> bool:
    """Return whether one field of two webhooks is equal.  An absent description equals an empty one."""
    if name == "url" and isinstance(one, str) and isinstance(other, str):
        return normal_url(one) == normal_url(other)
    if (
        name == "events"
        and isinstance(one, (list, tuple))
        and isinstance(other, (list, tuple))
    ):
        return set(map(str, one)) == set(map(str, other))
    if name == "description":
        return same(one or "", other or "")
    return same(one, other)


def names_another(shown: Wire, path: Mapping[str, str]) -> bool:
    """
    Return whether *shown*, the id in an answer, is not the one in the *path* of its request.

    A service may take an id in more than one spelling: case and hyphens do not count, as in UUIDs.
    """
    if not isinstance(shown, str) or (asked := path.get("id", shown)) == shown:
        return False
    return asked.replace("-", "").casefold() != shown.replace("-", "").casefold()


def is_time(value: Wire) -> TypeGuard[int | float | Decimal]:
    """Return whether *value* can be a time in ms.  Numbers too large for a float are rejected."""
    return (
        isinstance(value, (int, float, Decimal))
        and not isinstance(value, bool)
        and -_NO_TIME < value < _NO_TIME
    )
