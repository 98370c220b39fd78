"""Sphinx directive for figures that a command has made; without them it names the command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from docutils.statemachine import StringList
from ratio_chart import chart, ratios_in
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx

MADE = Path(__file__).parents[1] / "_generated"


class Figures(SphinxDirective):
    """``{figures} NAME COMMAND``: the fragment ``_generated/NAME.md``, made by COMMAND."""

    required_arguments = 1
    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Parse the fragment in place."""
        name, command = self.arguments
        made = MADE / f"{name}.md"
        self.env.note_dependency(str(made))
        if made.is_file():
            told = made.read_text(encoding="utf-8")
            lines = told.splitlines() + (
                [] if "Made by " in told else ["", f"Made by `{command}`."]
            )
        else:
            lines = [
                f"No figures are kept here yet. `{command}` makes them, on your machine."
            ]
        place = nodes.Element()
        if ratios := ratios_in("\n".join(lines)):
            place += nodes.raw("", chart(ratios), format="html")
        self.state.nested_parse(
            StringList(lines, source=str(made)), self.content_offset, place
        )
        return place.children


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("figures", Figures)
    return {"parallel_read_safe": True}
