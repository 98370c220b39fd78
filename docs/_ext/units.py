"""No line ends between a number and its unit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|(?:[µm]?s|[kMGT]B|[KMG]iB)\b))")


def joined(text: str) -> str:
    """Return *text* with a no-break space before each unit."""
    return BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)


def join_units(_app: Sphinx, doctree: nodes.document) -> None:
    """Join the units of all text; code stays as it is, for copying."""
    from docutils import nodes  # the tests of ``joined`` need no docutils

    code = (nodes.FixedTextElement, nodes.literal, nodes.raw)
    for text in list(doctree.findall(nodes.Text)):
        kept = joined(text)
        if kept != text and not isinstance(text.parent, code):
            text.parent.replace(text, nodes.Text(kept))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the hook."""
    app.connect("doctree-read", join_units)
    return {"parallel_read_safe": True}
