"""On phones a row of a table that does not fit is shown as a card."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx

LONGEST = 110  # characters of a row that a phone shows as one
MOST = 4  # columns of a table that a phone shows as one
WIDEST = (
    48  # characters of the longest words of all columns, with gaps, that fit a phone
)
NARROWEST = 10  # characters of a column
GAP = 2  # characters between columns
SHORT = 30  # characters of a cell beside which another one fits
NUMBER = re.compile(r"[<>≤≥+-]? ?\d.{0,15}")  # with its unit, or a range
NAME = re.compile(r"[\w.-]+\[\w+\]")  # of a package with an extra


def keep_numbers_whole(_app: Sphinx, doctree: nodes.document) -> None:
    """Mark the cells that are a number or a package; ``pages.css`` keeps them on one line."""
    for entry in doctree.findall(nodes.entry):
        if NUMBER.fullmatch(entry.astext()):
            entry["classes"].append("whole")
        if NAME.fullmatch(entry.astext()):
            entry["classes"].append("name")


def label_cells(_app: Sphinx, doctree: nodes.document) -> None:
    """Put the title of its column into each cell of a wide table; ``pages.css`` hides it on wide screens."""
    for table in doctree.findall(nodes.table):
        head = next(table.findall(nodes.thead), None)
        body = next(table.findall(nodes.tbody))
        if head is None:
            continue
        titles = [entry.astext() for entry in head[0]]
        has_long_row = max(len(row.astext()) for row in body) >= LONGEST
        has_long_words = _width_of_words([*head, *body]) > WIDEST
        if len(titles) <= MOST and not (has_long_row or has_long_words):
            continue
        table["classes"].append("cards")
        for row in body:
            for title, entry in zip(titles, row, strict=True):
                text = entry.astext()
                is_heading = entry is row[0]
                if not is_heading and len(title) + len(text) <= SHORT:
                    entry["classes"].append("short")
                needs_title = not is_heading or "whole" in entry["classes"]
                if title and text and needs_title:
                    sign = "" if title.endswith("?") else ":"
                    label = nodes.inline("", f"{title}{sign} ", classes=["column"])
                    entry[0].insert(0, label)


def _width_of_words(rows: list[nodes.row]) -> int:
    """Return how many characters the columns need beside each other if no word is broken."""
    longest = [
        max(len(word) for entry in column for word in _words_in(entry.astext()))
        for column in zip(*rows, strict=True)
    ]
    return sum(max(each, NARROWEST) + GAP for each in longest)


def _words_in(text: str) -> list[str]:
    """Return the parts of a cell that are not broken; a number is one, with its unit."""
    return [text] if NUMBER.fullmatch(text) else ["", *text.split()]


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the hooks."""
    app.connect("doctree-read", keep_numbers_whole)  # before cells have their titles
    app.connect("doctree-read", label_cells)
    return {"parallel_read_safe": True}
