"""The fenced blocks of a page."""

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
    "docs/how-to/load-a-warehouse.md",
)  # pages whose ``sh`` blocks run in an empty home directory
_FENCE = re.compile(
    r"^```(?P<kind>[^\n]*)\n(?P<code>.*?)^```$"
    # what it prints, perhaps after the command that runs it
    r"(?=(?:\n\n?```sh\npython \w+\.py\n```$)?\n\n?```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A block: language, text, first line, and the ``text`` block after it, with what it prints."""

    kind: str
    code: str
    line: int
    output: str | None


def blocks_of(page: Path, kind: str) -> Iterator[Block]:
    """Yield the blocks of *page* in the language *kind*, in order."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        if found["kind"] == kind:
            yield Block(
                kind,
                found["code"],
                text.count("\n", 0, found.start()) + 1,
                found["output"],
            )
