"""Sphinx directive for tables that are made of the code."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import tables
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx


class OperationsTable(SphinxDirective):
    """``operations-table`` with the name of one of ``tables``."""

    required_arguments = 1
    tables: ClassVar = {
        "all": tables.operations,
        "settling": tables.settling,
        "parameters": tables.parameters,
        "assumed": tables.assumed,
        "client": tables.client_settings,
    }

    def run(self) -> list[nodes.Node]:
        """Parse the table as Markdown in place."""
        rows = [
            [cell.replace("|", "\\|") for cell in cells]
            for cells in self.tables[self.arguments[0]]()
        ]
        lines = [f"| {' | '.join(cells)} |" for cells in rows]
        lines.insert(1, "|" + "---|" * len(rows[0]))
        place = nodes.Element()
        self.state.nested_parse(
            StringList(lines, source="operations"), self.content_offset, place
        )
        for table in place.findall(nodes.table):
            table["classes"].append(f"operations-{self.arguments[0]}")
        return place.children


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("operations-table", OperationsTable)
    return {"parallel_read_safe": True}
