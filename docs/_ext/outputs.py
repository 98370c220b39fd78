"""What a block of code prints looks unlike the code, and has no button that copies it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def mark_outputs(_app: Sphinx, doctree: nodes.document) -> None:
    """Mark the blocks of text that stand right after code; ``pages.css`` and the copy button know them."""
    for block in doctree.findall(nodes.literal_block):
        before = block.previous_sibling()
        is_after_code = (
            isinstance(before, nodes.literal_block) and before.get("language") != "text"
        )
        if is_after_code and block.get("language") == "text":
            block["classes"].append("output")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the hook."""
    app.connect("doctree-read", mark_outputs)
    return {"parallel_read_safe": True}
