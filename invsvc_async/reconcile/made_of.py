"""
Values that a service may have made of what was sent.

This is the other question to that of ``foreign``.  Where a read shows a field as it was before the write, the
write was lost, or the state before was already what the service makes of what is sent: an equal write of
yesterday left it so.  Only a value that the service *cannot* have made of what was sent shows that the write
left no trace.

A service leaves out, folds, masks and cuts.  It does not add, but for signs of what it left out.  So a text
may be made of another one if it consists of long parts of that one, in their order.  ``hook v1`` is not made
of ``hook v2``, although they share much; both may be made of ``hook v1, formerly hook v2``.

There is one function for each kind of field, ``(sent, shown) -> bool``.  Each prefers ``True``, which costs
certainty: the other mistake tells that a write was not applied that was.  A null is the exception.  A service
that drops a field whole, whatever is sent, would make every first value of it doubtful.
"""

from __future__ import annotations

import html
import re
from itertools import product
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import unquote

from invsvc_async.reconcile.compare import (
    MOST_ROUNDED,
    is_number,
    parts_of,
    same,
    tidied,
    url_key,
)
from invsvc_async.reconcile.foreign import has_other_host, letters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from invsvc_async.codec.exact_json import Wire

MadeOf: TypeAlias = "Callable[[Wire, Wire], bool]"

_LEAST_PART: Final = 4  # letters and digits; shorter parts are in most texts
# characters of a text that is compared: the specification allows 1,000
_LONGEST: Final = 20_000
_MASK: Final = re.compile(r"[xX]{3,}|\[[^\[\]]*\]")  # instead of a part: xxxx, [hidden]
_TAG: Final = re.compile(r"\[iv-[a-z2-7]{16}\]")  # of a write of this package
# an escape or a tag that a cut has left open
_CUT_SIGN: Final = re.compile(r"(&[a-zA-Z0-9#]*|<[^<>]*)$")
_SEPARATORS: Final = re.compile(r"[/?&=;#]")
_SIGNS: Final = " ,.:;_()'/-"
_PLAIN: Final = re.compile(rf"[A-Za-z0-9{re.escape(_SIGNS)}]+").fullmatch
_ROUNDING: Final = 1.0  # by less than this, a rounded number is away


def always(_sent: Wire, _shown: Wire) -> bool:
    """Return ``True``: of a field whose values are not closed, any may be an alias of any other."""
    return True


def value(sent: Wire, shown: Wire) -> bool:
    """
    Return whether a service may have made *shown* of *sent*, of whatever kind: texts, numbers, booleans.

    What has an inner structure, it may have changed in any way.
    """
    if isinstance(sent, bool) or isinstance(shown, bool):
        return switch(sent, shown)
    if is_number(sent) and is_number(shown):
        return _is_near(sent, shown)
    has_structure = isinstance(sent, (dict, list, tuple))
    if has_structure and isinstance(shown, (dict, list, tuple)):
        return True
    if isinstance(sent, str):
        return text(sent, shown)
    return sent is None


def never(_sent: Wire, _shown: Wire) -> bool:
    """Return ``False``: the values of the field are closed, and none stands for another one."""
    return False


def text(sent: Wire, shown: Wire) -> bool:
    """Return whether a service may have made the text *shown* of *sent*."""
    if not isinstance(sent, str) or not letters(sent):
        return True  # the service may have a default for what is empty
    if not isinstance(shown, str) or not shown.strip():
        return False
    if max(len(sent), len(shown)) > _LONGEST:
        return True
    whole = letters(sent)
    wholes = {whole, "".join(filter(str.isascii, whole))}
    forms = {letters(form) for form in _without_signs(shown)}
    return any(_consists_of_parts(*pair) for pair in product(wholes, forms))


def _without_signs(shown: str) -> Iterator[str]:
    """Yield *shown* as it is, and without the signs that a service may put in place of parts left out."""
    yield shown
    yield _CUT_SIGN.sub("", html.unescape(_CUT_SIGN.sub("", shown)))
    yield _MASK.sub(_left_of_mask, shown)


def _left_of_mask(found: re.Match[str]) -> str:
    """Return what stays of a mask: nothing, but a tag of a write is none, which no service makes."""
    return found[0] if _TAG.fullmatch(found[0]) else " "


def _consists_of_parts(whole: str, parts: str) -> bool:
    """Return whether *parts* are long parts of *whole*, one after the other, in their order."""
    at = 0
    while parts:
        length = _longest_start(whole[at:], parts)
        if length < _LEAST_PART and not _is_short_end(whole, parts, at, length):
            return False
        at = whole.index(parts[:length], at) + length
        parts = parts[length:]
    return True


def _is_short_end(
    whole: str,
    parts: str,
    at: int,
    length: int,
) -> bool:
    """Return whether a short part is the last one, where a cut may have left so little."""
    if length < len(parts):
        return False
    return at > 0 or whole.startswith(parts)


def _longest_start(whole: str, parts: str) -> int:
    """Return how much of the beginning of *parts* is somewhere in *whole*."""
    least = 0
    most = len(parts)
    while least < most:
        middle = (least + most + 1) // 2
        if parts[:middle] in whole:
            least = middle
        else:
            most = middle - 1
    return least


def kept_of(shown: Wire) -> int:
    """
    Return how many characters of a text the service certainly keeps, judged by the text *shown*.

    Only plain texts count: escapes and masks may be longer than what they stand for.
    """
    if not isinstance(shown, str):
        return 0
    if not _PLAIN(shown) or _MASK.search(shown):
        return 0
    return len(shown.rstrip(_SIGNS))


def would_show(sent: Wire, shown: Wire, kept: int) -> bool:
    """
    Return whether a service that keeps *kept* characters of a text would show *sent* as other than *shown*.

    It would if *sent* only adds plain words to the end of *shown*: nothing but a cut leaves those out.
    """
    if not isinstance(sent, str) or not isinstance(shown, str):
        return False
    if not shown or not sent.startswith(shown):
        return False
    added = sent[len(shown) :]
    word = next((at for at, each in enumerate(added) if each.isalnum()), None)
    if word is None or not _PLAIN(added):
        return False
    up_to_word = f"{shown}{added[: word + 1]}"
    return len(up_to_word.encode(errors="replace")) <= kept


def names(sent: Wire, shown: Wire) -> bool:
    """
    Return whether two lists have the same names, in whatever spelling and order.

    The service refuses names that it does not know, so it leaves none out.
    """
    if not isinstance(sent, (list, tuple)) or not isinstance(shown, (list, tuple)):
        return False
    ours = {letters(str(each)) for each in sent}
    theirs = {letters(str(each)) for each in shown}
    return ours == theirs


def url(sent: Wire, shown: Wire) -> bool:
    """
    Return whether a service may have made the URL *shown* of *sent*.

    The host stays.  Each part of the rest is one that was sent, or what is left of one after masking.
    """
    if not isinstance(sent, str) or not isinstance(shown, str):
        return False
    if has_other_host(sent, shown):
        return False
    parts = _parts_of_url(sent)
    others = _parts_of_url(shown) - parts
    return all(_is_rest_of(part, parts) for part in others)


def _parts_of_url(value: str) -> set[str]:
    _, _, rest = url_key(html.unescape(value)).partition("/")
    return {
        letters(_MASK.sub("", part)) for part in _SEPARATORS.split(unquote(rest))
    } - {""}


def _is_rest_of(part: str, parts: set[str]) -> bool:
    """Return whether *part* is the beginning or the end of one of *parts*, the rest of which is masked."""
    if len(part) < _LEAST_PART:
        return False
    return any(each.startswith(part) or each.endswith(part) for each in parts)


def graph(sent: Wire, shown: Wire) -> bool:
    """Return whether two graphs have the same nodes and edges; order, positions and types may differ."""
    if not isinstance(sent, dict) or not isinstance(shown, dict):
        return False
    if max(parts_of(sent), parts_of(shown)) > MOST_ROUNDED:
        return True
    ours = _by_id(sent)
    theirs = _by_id(shown)
    if ours is None or theirs is None:
        return True
    if ours.keys() != theirs.keys():
        return False
    if _ends_of(sent) != _ends_of(shown):
        return False
    return all(_is_node_made_of(ours[known_as], theirs[known_as]) for known_as in ours)


def _by_id(value: dict[str, Wire]) -> dict[str, dict[str, Wire]] | None:
    """Return the nodes of a graph by their ids; ``None`` if they cannot be told apart."""
    nodes = value.get("nodes")
    if not isinstance(nodes, (list, tuple)):
        return None
    if not all(isinstance(node, dict) for node in nodes):
        return None
    found = {letters(str(node.get("id"))): node for node in nodes}
    if len(found) == len(nodes):
        return found
    return None


def _ends_of(value: dict[str, Wire]) -> set[tuple[str, str]]:
    edges = value.get("edges")
    if not isinstance(edges, (list, tuple)):
        return set()
    return {
        (letters(str(edge.get("source"))), letters(str(edge.get("target"))))
        for edge in edges
        if isinstance(edge, dict)
    }


def _is_node_made_of(sent: dict[str, Wire], shown: dict[str, Wire]) -> bool:
    if not same(tidied(sent.get("data")), tidied(shown.get("data"))):
        return False
    ours = sent.get("position")
    theirs = shown.get("position")
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return True
    return all(_is_near(ours.get(axis), theirs.get(axis)) for axis in ("x", "y"))


def _is_near(one: Wire, other: Wire) -> bool:
    try:
        return abs(float(one) - float(other)) < _ROUNDING
    except (TypeError, ValueError, OverflowError):
        return True


def switch(sent: Wire, shown: Wire) -> bool:
    """Return whether a boolean is not the other one."""
    if not isinstance(sent, bool) or not isinstance(shown, bool):
        return True
    return sent is shown
