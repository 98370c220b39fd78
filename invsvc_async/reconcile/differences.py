"""
How the state that a read showed differs from a write, field by field, and the words for it.

Each field that was sent shows one of these: what was sent, what was there before, *other words*, which the
service may have made of what was sent (``made_of``), a *foreign* value (``foreign``), or what is *unclear*.
Where the state before may be what the service makes of what was sent, and where what is shown may be made of
the state before, it shows *either*.
"""

from __future__ import annotations

import json
import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.kinds import WriteKind

# A member of a stored state: the digests of the large fields that it leaves out, by their names.
LEFT_OUT: Final = "digests of fields left out"
_MOST_FIELDS: Final = 5  # that are told
_LONGEST_VALUE: Final = 60  # characters of a value that is told
_LOGIN: Final = re.compile(r"//[^/@\s]*@")  # user and password in a URL
# one member of the query of a URL, often a token
_QUERY: Final = re.compile(r"([?&][^=&#\s]*=)[^&#\s]*")
# one segment of the path of a URL, after its host
_SEGMENT: Final = re.compile(r"(?<=[^/:]/)[^/?#\s]+")
_FRAGMENT: Final = re.compile(r"(://[^#\s]*#)\S+")
_LONGEST_WORD: Final = 20  # characters of a segment that is no token
_SHORTEST_TOKEN: Final = 6

Shows: TypeAlias = Literal[
    "as sent", "as before", "foreign", "other words", "either", "unclear"
]
# What a field shows that the write may have put there.
OF_THE_WRITE: Final[frozenset[Shows]] = frozenset({"as sent", "other words", "either"})


class Field(NamedTuple):
    """A field that was sent.  ``before`` is its value before the write, if ``was_known``."""

    name: str
    sent: Wire
    before: Wire
    was_known: bool
    shown: Wire
    shows: Shows
    was_changed: (
        bool  # by the write, as far as it is known: its value before was another one
    )


def differences(
    kind: WriteKind,
    wanted: Mapping[str, Wire],
    baseline: Wire,
    seen: Mapping[str, Wire],
) -> tuple[Field, ...]:
    """Compare each field of *wanted* with its value before the write and with that in *seen*."""
    return tuple(
        _field(kind, name, sent, baseline, seen.get(name))
        for name, sent in wanted.items()
    )


def _field(
    kind: WriteKind,
    name: str,
    sent: Wire,
    baseline: Wire,
    shown: Wire,
) -> Field:
    was_known, before = _value_before(kind, name, baseline, shown)
    shows = _shows(kind, name, sent, before, shown, was_known=was_known)
    return Field(
        name=name,
        sent=sent,
        before=before,
        was_known=was_known,
        shown=shown,
        shows=shows,
        was_changed=not was_known or _is_changed(kind, name, sent, before, shows),
    )


def _value_before(
    kind: WriteKind,
    name: str,
    baseline: Wire,
    shown: Wire,
) -> tuple[bool, Wire]:
    """
    Return whether the value before is known, and that value.  A baseline that was read lacks only nulls.

    One that was stored may have only a digest of the value, which tells whether it is the one *shown*.
    """
    if not isinstance(baseline, dict):
        return False, None
    if name in baseline:
        return True, baseline[name]
    left_out = baseline.get(LEFT_OUT)
    if isinstance(left_out, dict) and left_out.get(name) == digest_of(shown):
        return True, shown
    return kind.needs_baseline, None


def _is_changed(
    kind: WriteKind,
    name: str,
    sent: Wire,
    before: Wire,
    shows: Shows,
) -> bool:
    """Return whether the write changes the value *before*."""
    # What is shown as before, and not as sent, is changed.  A graph may be large: it is not compared again.
    if shows in ("as before", "either"):
        return True
    return not kind.thing.same_field(name, before, sent)


def _shows(
    kind: WriteKind,
    name: str,
    sent: Wire,
    before: Wire,
    shown: Wire,
    *,
    was_known: bool,
) -> Shows:
    if kind.thing.same_field(name, sent, shown):
        return "as sent"
    is_made_of_sent = kind.thing.is_made_of(name, sent, shown)
    if was_known and kind.thing.same_field(name, before, shown):
        return "either" if is_made_of_sent else "as before"
    # An answer may have repeated what was sent, so the state before is in the service's own words as well.
    may_be_of_before = was_known and _may_be_of(kind, name, before, shown)
    if may_be_of_before and kind.thing.is_made_of(name, before, shown):
        return "either"
    if is_made_of_sent:
        return "other words"
    if may_be_of_before or not kind.thing.is_foreign(name, sent, shown):
        return "unclear"
    return "foreign"


def _may_be_of(
    kind: WriteKind,
    name: str,
    before: Wire,
    shown: Wire,
) -> bool:
    """Return whether what is shown may come from the value before.  Nothing comes from an empty one."""
    if before is None or before == "":
        return False
    return not kind.thing.is_foreign(name, before, shown)


def is_part(fields: Iterable[Field]) -> bool:
    """
    Return whether some fields show the write, in any words, and all others the state before the write.

    A field that may show either counts for neither.  One that shows what neither of them explains may be what
    another write has left: to complete this one would undo that.
    """
    fields = tuple(fields)
    if any(field.shows in ("unclear", "foreign") for field in fields):
        return False
    shown = {field.shows for field in fields if field.was_changed}
    if "as before" not in shown:
        return False
    return "as sent" in shown or "other words" in shown


def digest(wanted: Iterable[str], seen: Mapping[str, Wire]) -> str:
    """Return a text that is the same for two states if each field of *wanted* shows the same in both."""
    return digest_of({name: seen.get(name) for name in wanted})


def digest_of(value: Wire) -> str:
    """Return a text that is the same for equal values.  It may be another one for 1 and 1.0."""
    return blake2b(_json(value).encode(), digest_size=16).hexdigest()


def _json(value: Wire) -> str:
    return json.dumps(
        value,
        ensure_ascii=False,
        sort_keys=True,
        default=str,
    )


def told(fields: Iterable[Field]) -> str:
    """Format each field that does not show the value sent, with the values sent, before and now."""
    fields = tuple(fields)
    differing = [field for field in fields if field.shows != "as sent"]
    as_sent = [field.name for field in fields if field.shows == "as sent"]
    texts = [_told(field) for field in differing[:_MOST_FIELDS]]
    if len(differing) > _MOST_FIELDS:
        texts.append(f"and {len(differing) - _MOST_FIELDS} more fields")
    if as_sent:
        texts.append(f"{', '.join(as_sent[:_MOST_FIELDS])} as sent")
    return "; ".join(texts)


def _told(field: Field) -> str:
    before = f"before {_short(field.before)}, " if field.was_known else ""
    return f"{field.name}: sent {_short(field.sent)}, {before}now {_short(field.shown)}"


def _short(value: Wire) -> str:
    """Format *value* in a few characters, without what may be a secret in a URL."""
    if isinstance(value, dict):
        return _counts(value)
    if isinstance(value, (list, tuple)):
        value = list(value[:_LONGEST_VALUE])
    if isinstance(value, str) and "://" in value:
        value = _without_tokens(value)
    text = _json(value)
    if len(text) <= _LONGEST_VALUE:
        return text
    return f"{text[:_LONGEST_VALUE]}…"


def _without_tokens(text: str) -> str:
    """Return *text*, with a URL in it, without what may be a token there."""
    plain = _QUERY.sub(r"\1…", _LOGIN.sub("//***@", text))
    return _SEGMENT.sub(_shown_segment, _FRAGMENT.sub(r"\1…", plain))


def _shown_segment(found: re.Match[str]) -> str:
    """Return a segment of a path, or ``…`` if it may be a token: long, or with digits or capitals inside."""
    segment = found[0]
    if len(segment) < _SHORTEST_TOKEN:
        return segment
    if _is_word(segment):
        return segment
    return "…"


def _is_word(segment: str) -> bool:
    """Return whether *segment* is like a word: short, ASCII, no digits, a capital only at its start."""
    if len(segment) >= _LONGEST_WORD:
        return False
    if any(map(str.isdigit, segment)):
        return False
    return segment.isascii() and segment[1:] == segment[1:].lower()


def _counts(value: dict[str, Wire]) -> str:
    """Format an object by the sizes of its lists, such as ``{3 nodes, 2 edges}``."""
    lists = {
        name: each for name, each in value.items() if isinstance(each, (list, tuple))
    }
    if not lists:
        return f"{{{len(value)} members}}"
    sizes = [f"{len(each)} {name}" for name, each in lists.items()]
    return f"{{{', '.join(sizes)}}}"
