"""Labels of keyed writes: what users note of them, to find them again in a store."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

NO_LABELS: Final[Mapping[str, str]] = {}
_MOST: Final = 10  # labels of one write
_LONGEST: Final = 100  # characters of a value
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def problems_of(labels: object) -> list[str]:
    """Return what is wrong with *labels*, which are to be texts by names."""
    if not isinstance(labels, Mapping):
        return [f"labels: must be an object of texts, not {type(labels).__name__}"]
    problems = [
        f"labels: {name!r:.80} is not a name of 1 to 64 of a-z, A-Z, 0-9, _, - and ."
        for name in labels
        if not _is_name(name)
    ]
    problems += [
        f"labels: {name} must have 0 to {_LONGEST} printable characters"
        for name, value in labels.items()
        if not _is_value(value)
    ]
    if len(labels) > _MOST:
        problems.append(f"labels: {len(labels)} are too many; at most {_MOST}")
    return problems


def _is_name(name: object) -> bool:
    """Return whether a label may have this *name*."""
    if not isinstance(name, str):
        return False
    return _NAME.fullmatch(name) is not None


def _is_value(value: object) -> bool:
    """Return whether a label may have this *value*."""
    if not isinstance(value, str):
        return False
    if len(value) > _LONGEST:
        return False
    return value.isprintable()


def text_of(labels: Mapping[str, str]) -> str | None:
    """
    Return the form in which *labels* are stored, an object of JSON; ``None`` if there are none.

    It contains the text of each pair, as ``pair`` returns it, and no other: names have no quotes.
    """
    if not labels:
        return None
    pairs = (pair(name, value) for name, value in sorted(labels.items()))
    return f"{{{','.join(pairs)}}}"


def pair(name: str, value: str) -> str:
    """Return one label as it is in the stored form."""
    return f'"{name}":{json.dumps(value, ensure_ascii=False)}'


def labels_in(text: str | None) -> dict[str, str]:
    """Return the labels in their stored form; empty if there are none, or they are damaged."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    if isinstance(found, dict):
        return found
    return {}


def in_words(labels: Mapping[str, str]) -> str:
    """Return *labels* as the command line takes them."""
    return " ".join(f"{name}={value}" for name, value in labels.items())
