"""Find the fenced blocks of a page, so that they can be run; never run one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TO_THE_LETTER = (
    "README.md",
    "docs/tutorial.md",
    "docs/how-to/batch.md",
)  # their ``sh`` blocks run in a clean home
_FENCE = re.compile(
    r"^```(?P<kind>[^\n]*)\n(?P<code>.*?)^```$(?:\n\n?```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A block: its language, its text, the line it begins at, and the ``text`` block right behind it."""

    kind: str
    code: str
    line: int
    output: str | None


def blocks_of(page: Path, kind: str) -> Iterator[Block]:
    """Give the blocks of *page* in the language *kind*, in their order."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        if found["kind"] == kind:
            yield Block(kind, found["code"], text.count("\n", 0, found.start()) + 1, found["output"])
