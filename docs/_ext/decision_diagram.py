"""Sphinx directive for the picture of the decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagram import draw
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx


class DecisionDiagram(SphinxDirective):
    """``decision-diagram``: the picture, in the page."""

    def run(self) -> list[nodes.Node]:
        """Insert the SVG unchanged."""
        return [nodes.raw("", f'<div class="diagram">{draw()}</div>', format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("decision-diagram", DecisionDiagram)
    return {"parallel_read_safe": True}
