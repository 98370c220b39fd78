"""Numbers and their units on the pages."""

from __future__ import annotations

import pytest
from docutils import nodes
from docutils.utils import new_document

from docs._ext.phone_tables import keep_units


def text_after(node: nodes.Element) -> str:
    """Return the text of *node* in a document whose units were kept."""
    document = new_document("page")
    document += node
    keep_units(None, document)
    return document.astext()


@pytest.mark.parametrize("unit", ["s", "ms", "µs", "kB", "MB", "TB", "MiB", "%"])
def test_unit(unit) -> None:
    """It stays on the line of its number."""
    assert text_after(nodes.paragraph("", f"up to 15 {unit}.")) == (
        f"up to 15\N{NO-BREAK SPACE}{unit}."
    )


def test_other_word() -> None:
    """It may begin a line."""
    assert text_after(nodes.paragraph("", "15 seconds")) == "15 seconds"


@pytest.mark.parametrize("code", [nodes.literal, nodes.literal_block])
def test_code(code) -> None:
    """It is copied with the spaces that it has."""
    assert text_after(code("15 s", "15 s")) == "15 s"
