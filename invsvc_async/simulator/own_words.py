"""
Words of its own in which a service may store a value: a function for each way and kind of value.

All are what services do: they normalise, clean, mask and complete.  None changes what the value means to its
service.
"""

from __future__ import annotations

import html
import re
import unicodedata
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from invsvc_async.simulator.json_records import Json

    # Any: a value of its kind, and the characters that a cut leaves
    Way = Callable[[Any, int], Json]

MASK: Final = "****"
VIEWPORT: Final = {"x": 0, "y": 0, "zoom": 1}
ALIASES: Final = {
    "manual": "on_demand",
    "schedule": "cron",
    "webhook": "http_request",
    "email": "inbound",
}
FIELDS: Final[Mapping[str, str]] = {  # a field, and the kind of its values
    "name": "text",
    "description": "text",
    "graph": "graph",
    "triggerType": "trigger",
    "url": "url",
    "events": "events",
    "status": "status",
}

_TAG = re.compile(r"<[^<>]*>")
_EMOJI = re.compile("[\U0001f000-\U0001faff\u2600-\u27bf\ufe0f]")
_ZERO_WIDTH = re.compile("[\u200b-\u200d\u2060\ufeff]")
_SECRET_NAME = re.compile(
    r"(?i)(^|[&;])([^=&;]*(?:token|key|secret|sig|password)[^=&;]*)=[^&;]+"
)
_TOKEN = re.compile(r"(?=[\w-]*[0-9])(?=[\w-]*[A-Za-z])([\w-]{4})[\w-]{8,}", re.ASCII)


def _without(pattern: re.Pattern[str]) -> Way:
    return lambda value, _longest: pattern.sub("", value)


def _masked(value: str, _longest: int) -> str:
    """Hide what looks like a token but for its first four characters."""
    return _TOKEN.sub(rf"\1{MASK}", value)


def _masked_url(value: str, longest: int) -> str:
    """Hide a password, the values of parameters such as ``token``, and tokens in the path."""
    parts = urlsplit(value)
    user, at, host = parts.netloc.rpartition("@")
    if ":" in user:
        user = f"{user.partition(':')[0]}:{MASK}"
    query = _SECRET_NAME.sub(rf"\1\2={MASK}", parts.query)
    path = _masked(parts.path, longest)
    return urlunsplit((parts.scheme, f"{user}{at}{host}", path, query, parts.fragment))


def _folded_url(value: str, _longest: int) -> str:
    """Fold the case of host and path; a query may be in base64."""
    parts = urlsplit(value)
    return urlunsplit(
        parts._replace(netloc=parts.netloc.lower(), path=parts.path.lower())
    )


def _sorted_query(value: str, _longest: int) -> str:
    parts = urlsplit(value)
    return urlunsplit(parts._replace(query="&".join(sorted(parts.query.split("&")))))


def _with_viewport(graph: dict[str, Json], _longest: int) -> Json:
    return {**graph, "viewport": graph.get("viewport") or VIEWPORT}


def _with_nodes_reordered(graph: dict[str, Json], _longest: int) -> Json:
    return {**graph, "nodes": graph["nodes"][::-1]}


def _with_positions_rounded(graph: dict[str, Json], _longest: int) -> Json:
    nodes = [
        {**node, "position": {axis: round(at) for axis, at in node["position"].items()}}
        for node in graph["nodes"]
    ]
    return {**graph, "nodes": nodes}


def _alias(trigger: str, _longest: int) -> str:
    """Return the service's own name of *trigger*."""
    return ALIASES.get(trigger) or re.sub(r"\W", "_", trigger).upper()


def _nfc(value: str, _longest: int) -> str:
    return unicodedata.normalize("NFC", value)


def _entities(value: str, _longest: int) -> str:
    return html.escape(value)


def _trimmed(value: str, _longest: int) -> str:
    return value.strip()


def _folded(value: str, _longest: int) -> str:
    return value.casefold()


def _cut(value: str, longest: int) -> str:
    return value[:longest]


def _sorted_events(value: list[str], _longest: int) -> Json:
    return sorted(value)


def _inactive(_value: str, _longest: int) -> str:
    return "inactive"


# in the order in which they are applied
WAYS: Final[Mapping[str, Mapping[str, Way]]] = {
    "nfc": {"text": _nfc, "url": _nfc},
    "no markup": {"text": _without(_TAG)},
    "no emoji": {"text": _without(_EMOJI)},
    "no zero-width": {"text": _without(_ZERO_WIDTH), "url": _without(_ZERO_WIDTH)},
    "trimmed": {"text": _trimmed, "url": _trimmed},
    "folded": {"text": _folded, "url": _folded_url},
    "masked": {"text": _masked, "url": _masked_url},
    "sorted": {"url": _sorted_query, "events": _sorted_events},
    "cut": {"text": _cut},
    "entities": {"text": _entities, "url": _entities},
    "viewport": {"graph": _with_viewport},
    "reordered": {"graph": _with_nodes_reordered},
    "rounded": {"graph": _with_positions_rounded},
    "alias": {"trigger": _alias},
    "inactive": {"status": _inactive},
}
WORDS: Final = tuple(WAYS)
