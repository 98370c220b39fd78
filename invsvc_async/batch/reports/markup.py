"""The template of pages, and how its parts are filled: every value is escaped that is not markup."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_PART = re.compile(r"<!-- part: (\w+) -->\n")


class Html(str):
    """Markup, which is not escaped again."""

    __slots__ = ()


def filled(part: str, /, **values: object) -> Html:
    """Fill a part of the template; every value is escaped that is not markup, or a list of it."""
    return Html(
        _parts()[part].substitute(
            {name: _markup(value) for name, value in values.items()}
        )
    )


def filled_with_each(part: str, texts: Iterable[object]) -> list[Html]:
    """Fill a part of the template once for each text."""
    return [filled(part, text=text) for text in texts]


def filled_if_any(part: str, text: str | None) -> list[Html]:
    """Fill a part of the template with *text*, if there is any."""
    if not text:
        return []
    return [filled(part, text=text)]


def moment_of(milliseconds: int) -> str:
    """Return a time (epoch ms) in UTC, to the second."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime(
        "%Y-%m-%d %H:%M:%S"
    )


@cache
def _parts() -> dict[str, Template]:
    """Return the parts of the template by name."""
    text = (
        files("invsvc_async.batch.reports")
        .joinpath("report.html")
        .read_text(encoding="utf-8")
    )
    _, *parts = _PART.split(text)
    return {
        name: Template(part) for name, part in zip(parts[::2], parts[1::2], strict=True)
    }


def _markup(value: object) -> str:
    match value:
        case Html():
            return value
        case list():
            return "".join(map(_markup, value))
        case int():
            return f"{value:,}"
        case float():  # a place on the timeline
            return f"{value:.1f}"
        case _:
            return escape(str(value))
