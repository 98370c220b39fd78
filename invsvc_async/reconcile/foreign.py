"""
Foreign values, which no service can have made of the value sent: somebody else wrote.

A service stores a write in its own words.  It trims texts, composes accents, escapes ``&``, leaves out emoji
and tags, masks tokens in URLs, orders nodes, rounds positions, names things by an alias.  A value that
differs from the one sent is therefore no stranger's yet.  It is *foreign* if there is no way from the one to
the other.

There is one function for each kind of field, ``(sent, shown) -> bool``.  Each prefers "not foreign": that
costs certainty, and the other mistake blames somebody who did nothing.  So a null, a field that is left out,
and a value of another type are never foreign: a service may drop what it does not like.  A value that is
too large to be compared in a moment is not, either.
"""

from __future__ import annotations

import html
import re
import unicodedata
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

from invsvc_async.reconcile.compare import url_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.codec.exact_json import Wire

Foreign: TypeAlias = "Callable[[Wire, Wire], bool]"

# Letters and digits that two texts must have in common, one after the other, to be of one origin: a quarter
# of the shorter text, but not fewer than the first number, which chance brings together, and not more than
# the second one, which chance does not.
_LEAST_IN_COMMON: Final = 4
_MOST_IN_COMMON: Final = 16
# characters of a text that is compared: the specification allows 1,000
_LONGEST: Final = 20_000
_MARKUP: Final = re.compile(r"<[^<>]*>")
_UNESCAPED: Final = 3  # times: what is escaped may be escaped again
_MOST_NAMES: Final = 2_000  # that are compared by their letters
_STATUSES: Final = frozenset({"active", "inactive"})


def never(_sent: Wire, _shown: Wire) -> bool:
    """Return ``False``: of a field whose values are not closed, any may be an alias of any other."""
    return False


def text(sent: Wire, shown: Wire) -> bool:
    """
    Return whether two texts share little.

    They are compared by their letters and digits alone, without accents, case, markup and escapes.  They
    share enough if one contains the other, or if they have a run of characters in common that is too long
    for chance.
    """
    if not isinstance(sent, str) or not isinstance(shown, str):
        return False
    if max(len(sent), len(shown)) > _LONGEST:
        return False
    one = letters(sent)
    other = letters(shown)
    if _contains(one, other) or _contains(other, one):
        return False
    return not _have_run_in_common(one, other)


def _contains(whole: str, part: str) -> bool:
    """Return whether *whole* contains *part*, and not by chance: a single letter is in most texts."""
    if part not in whole:
        return False
    if not part or len(part) >= _LEAST_IN_COMMON:
        return True
    return len(whole) <= _LEAST_IN_COMMON * len(part)


def letters(words: str) -> str:
    """Return the letters and digits of *words* in one form, whatever a service does with the others."""
    for _ in range(_UNESCAPED):
        words = html.unescape(words)
    plain = unicodedata.normalize("NFKD", _MARKUP.sub(" ", words)).casefold()
    # Once more: some letters have accents only after they are folded.
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKD", plain)))


def _have_run_in_common(one: str, other: str) -> bool:
    share = min(len(one), len(other)) // 4
    length = min(max(_LEAST_IN_COMMON, share), _MOST_IN_COMMON)
    runs = {one[start : start + length] for start in range(len(one) - length + 1)}
    return any(
        other[start : start + length] in runs
        for start in range(len(other) - length + 1)
    )


def names(sent: Wire, shown: Wire) -> bool:
    """Return whether a list of names has none of those sent, in whatever spelling."""
    ours = _texts_in(sent)
    theirs = _texts_in(shown)
    if not ours.isdisjoint(theirs):
        return False
    if max(len(ours), len(theirs)) > _MOST_NAMES:
        return False
    ours = {letters(each) for each in ours} - {""}
    theirs = {letters(each) for each in theirs} - {""}
    if not ours or not theirs:
        return False
    return ours.isdisjoint(theirs)


def _texts_in(items: Wire) -> set[str]:
    if not isinstance(items, (list, tuple)):
        return set()
    return {each for each in items if isinstance(each, str)}


def graph(sent: Wire, shown: Wire) -> bool:
    """Return whether a graph has no node with an id of those sent."""
    return names(_ids_of_nodes(sent), _ids_of_nodes(shown))


def _ids_of_nodes(value: Wire) -> list[Wire]:
    if not isinstance(value, dict):
        return []
    nodes = value.get("nodes")
    if not isinstance(nodes, (list, tuple)):
        return []
    return [node.get("id") for node in nodes if isinstance(node, dict)]


def url(sent: Wire, shown: Wire) -> bool:
    """Return whether a URL has another host.  All else of it may be masked, sorted or left out."""
    return has_other_host(sent, shown)


def has_other_host(sent: Wire, shown: Wire) -> bool:
    """Return whether two URLs show different hosts."""
    ours = host_of(sent)
    theirs = host_of(shown)
    if ours is None or theirs is None:
        return False
    return ours != theirs


def host_of(value: Wire) -> str | None:
    """Return the host of a URL in a normal form; ``None`` if there is no host, or it may be masked."""
    if not isinstance(value, str):
        return None
    try:
        if not urlsplit(value.strip()).hostname:
            return None
        place = url_key(value).partition("/")[0]
        host = urlsplit(f"//{place}").hostname
    except ValueError:
        return None
    if not host or not any(map(str.isalnum, host)):
        return None
    is_masked = "%" in host or "*" in host
    if is_masked:
        return None
    return host


def status(sent: Wire, shown: Wire) -> bool:
    """Return whether the status of a webhook is the opposite of the status sent; there are only two."""
    return _is_other_of(_STATUSES, sent, shown)


def switch(sent: Wire, shown: Wire) -> bool:
    """Return whether a boolean is the other one."""
    if not isinstance(sent, bool) or not isinstance(shown, bool):
        return False
    return sent is not shown


def _is_other_of(
    values: frozenset[str],
    sent: Wire,
    shown: Wire,
) -> bool:
    if not isinstance(sent, str) or not isinstance(shown, str):
        return False
    return shown.casefold() in values and sent.casefold() != shown.casefold()
