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
from typing import TYPE_CHECKING, Final, TypeGuard
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

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
_NOT_KEPT = f"[^A-Za-z0-9._~{re.escape(_KEPT)}-]"


def same(one: Wire, other: Wire) -> bool:
    """
    Return whether two JSON values are equal.  Numbers are compared by value; booleans are not numbers.

    This takes time in proportion to the smaller value, for a graph may have 100,000 nodes.
    """
    if type(one) is type(other) and type(one) in _SCALARS:
        return bool(one == other)
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return False
        return all(map(same, one.values(), map(other.__getitem__, one)))
    if _is_list(one) and _is_list(other):
        if len(one) != len(other):
            return False
        return all(map(same, one, other))
    if is_number(one) and is_number(other):
        return _exact(one) == _exact(other)
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    return False


def _is_list(value: Wire) -> bool:
    return isinstance(value, (list, tuple))


def is_number(value: Wire) -> TypeGuard[int | float | Decimal]:
    """Return whether *value* is a number of JSON.  A boolean is none, though Python's is an ``int``."""
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _exact(number: float | Decimal) -> int | Decimal:
    if isinstance(number, float):
        return Decimal(repr(number))
    return number


def same_journey_field(name: str, one: Wire, other: Wire) -> bool:
    """Return whether one field of two journeys is equal."""
    if name == "graph":
        return _same_but_for_nulls(one, other, _NULLABLE_IN_GRAPH)
    return same(one, other)


def rounded(value: Wire) -> Wire:
    """Return *value* with each number as a service keeps it whose numbers are doubles, as in JavaScript."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(each) for each in value]
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return _as_double(value)
    return value


def _as_double(number: int | Decimal) -> int | Decimal | float:
    """Return the double nearest to *number*; *number* itself if it is too large."""
    try:
        double = float(number)
    except OverflowError:
        return number
    if isfinite(double):
        return double
    return number


def tidied(value: Wire) -> Wire:
    """
    Return *value* as stored by a service that trims texts, and stores empty values as null or not at all.

    Numbers are rounded, too.
    """
    if isinstance(value, dict):
        return _tidied_members(value) or None
    if isinstance(value, (list, tuple)):
        return [tidied(each) for each in value]
    if isinstance(value, str):
        return value.strip() or None
    return rounded(value)


def _tidied_members(value: dict[str, Wire]) -> dict[str, Wire]:
    """Return the members of *value* that are stored, each as it is stored."""
    kept: dict[str, Wire] = {}
    for name, each in value.items():
        stored = tidied(each)
        if stored is not None:
            kept[name] = stored
    return kept


def parts_of(value: Wire) -> int:
    """Return the number of nodes and edges in *value*, if it is a graph; otherwise 0."""
    if not isinstance(value, dict):
        return 0
    return sum(len(each) for each in value.values() if isinstance(each, (list, tuple)))


_MAY_BE_NULL: Final = "may be null"
# Where in a graph a null member is the same as none, as the specification has it: by name, as deep as needed.
_NULLABLE_IN_GRAPH: Final[Wire] = {
    "viewport": _MAY_BE_NULL,
    "nodes": {"data": {"config": _MAY_BE_NULL}},
    "edges": {"sourceHandle": _MAY_BE_NULL},
}


def _same_but_for_nulls(
    one: Wire,
    other: Wire,
    nullable: Wire,
) -> bool:
    """Return whether two values are equal, but for members that may be null where *nullable* says so."""
    if nullable is None:
        return same(one, other)
    if _is_list(one) and _is_list(other):
        if len(one) != len(other):
            return False
        return all(map(_same_but_for_nulls, one, other, repeat(nullable)))
    if isinstance(one, dict) and isinstance(other, dict):
        names = one if one.keys() == other.keys() else one.keys() | other.keys()
        return all(_same_member(name, one, other, nullable) for name in names)
    return same(one, other)


def _same_member(
    name: str,
    one: dict[str, Wire],
    other: dict[str, Wire],
    nullable: dict[str, Wire],
) -> bool:
    inside = nullable.get(name)
    if inside == _MAY_BE_NULL:
        return same(one.get(name), other.get(name))
    if name not in one or name not in other:
        return False
    return _same_but_for_nulls(one[name], other[name], inside)


@lru_cache(maxsize=4096)
def normal_url(url: str) -> str:
    """
    Return *url* in a normalised form.

    Scheme and host are in lower case, the host in its IDNA form.  The default port, dot segments and
    unnecessary escapes are removed; necessary escapes are added.  A backslash in a path is a slash, as in
    browsers and Node.js.
    """
    try:
        parts = urlsplit(url.strip())
        host = _host_and_port_of(parts)
    except ValueError:
        return url
    place = _login_of(parts) + host
    path = _without_dots(_escaped(parts.path.replace("\\", "/"))) or "/"
    return urlunsplit(
        (parts.scheme, place, path, _escaped(parts.query), _escaped(parts.fragment))
    )


def _login_of(parts: SplitResult) -> str:
    """Return the user and the password of a URL, with "@"; empty if there are none."""
    login = parts.netloc.rpartition("@")[0]
    escaped = [quote(unquote(part), safe="") for part in login.split(":", 1)]
    plain = ":".join(escaped).rstrip(":")  # an empty password is the same as none
    if plain:
        return f"{plain}@"
    return ""


def _host_and_port_of(parts: SplitResult) -> str:
    """Return the host of a URL in IDNA form, and the port unless it is the scheme's own."""
    from yarl import URL  # slow to import

    host = (parts.hostname or "").rstrip(".")
    port = parts.port  # raises ValueError if it is not a number of a port
    if not host:
        return ""
    return URL.build(
        scheme=parts.scheme,
        host=host,
        port=port,
    ).raw_authority


@lru_cache(maxsize=4096)
def url_key(url: str) -> str:
    """
    Return a key that is the same for all URLs that a service may store as equal.

    Scheme, user and password, fragment, case, a plus for a space, a last slash, and escapes do not count.
    """
    without_fragment = normal_url(url).partition("#")[0]
    readable = re.sub("xn--([a-z0-9-]+)", _decoded, without_fragment)
    without_scheme = readable.partition("://")[2] or readable
    place, _, rest = without_scheme.partition("/")
    host = place.rpartition("@")[2]
    path, _, query = rest.partition("?")
    plain = f"{host}/{path.rstrip('/')}?{query}".replace("+", " ")
    folded = unquote(plain).casefold()  # "ß" becomes "ss", as in IDNA 2003
    return quote(folded, safe="/?:[]")


def _decoded(label: re.Match[str]) -> str:
    with suppress(UnicodeError):
        return label[1].encode().decode("punycode")
    return label[0]


def _escaped(text: str) -> str:
    def unescaped(escape: re.Match[str]) -> str:
        character = chr(int(escape[1], 16))
        if character in _UNRESERVED:
            return character
        return escape[0].upper()

    plain = re.sub(_ESCAPE, unescaped, text)
    if re.search(_NOT_KEPT, plain):
        return quote(plain, safe=_KEPT)
    return plain


def _without_dots(path: str) -> str:
    if "/." not in path:
        return path
    kept: list[str] = []
    *folders, last = path.split("/")
    for folder in folders:
        if folder == "..":
            kept = kept[:-1] or kept  # the root has no parent
        elif folder != ".":
            kept.append(folder)
    if last == "..":
        kept = kept[:-1] or kept
    name = "" if last in (".", "..") else last
    return "/".join([*kept, name])


HOOK_FIELDS = ("url", "events", "description", "status")


def same_hook_field(name: str, one: Wire, other: Wire) -> bool:
    """Return whether one field of two webhooks is equal.  An absent description equals an empty one."""
    if name == "url":
        return _same_url(one, other)
    if name == "events":
        return _same_events(one, other)
    if name == "description":
        return same(one or "", other or "")
    return same(one, other)


def _same_url(one: Wire, other: Wire) -> bool:
    """Return whether two URLs are equal in their normal form."""
    if isinstance(one, str) and isinstance(other, str):
        return normal_url(one) == normal_url(other)
    return same(one, other)


def _same_events(one: Wire, other: Wire) -> bool:
    """Return whether two lists have the same events, in any order."""
    if _is_list(one) and _is_list(other):
        return set(map(str, one)) == set(map(str, other))
    return same(one, other)


def names_another(shown: Wire, path: Mapping[str, str]) -> bool:
    """
    Return whether *shown*, the id in an answer, is not the one in the *path* of its request.

    A service may take an id in more than one spelling: case and hyphens do not count, as in UUIDs.
    """
    asked = path.get("id")
    if asked is None or not isinstance(shown, str):
        return False
    return _spelled_alike(asked) != _spelled_alike(shown)


def _spelled_alike(known_as: str) -> str:
    return known_as.replace("-", "").casefold()


def is_time(value: Wire) -> TypeGuard[int | float | Decimal]:
    """Return whether *value* can be a time in ms.  Numbers too large for a float are rejected."""
    return is_number(value) and -_NO_TIME < value < _NO_TIME
