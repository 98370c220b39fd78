"""Output of lists as a table, JSON, JSON lines or CSV, in the order received."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal

import attrs

from invsvc_async.cli.formatting import texts
from invsvc_async.cli.output import emit_json, table
from invsvc_async.codec import unstructure
from invsvc_async.export.files import csv_row, escaped_formula

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Form", "Sink"]

Form = Literal["table", "json", "jsonl", "csv"]
_NUMBERS = ("total", "subtotal", "discount", "taxes", "folio_number")


@attrs.define
class Sink:
    """Prints items: JSON lines and CSV at once; a table or a JSON array when all have arrived."""

    form: Form
    columns: Sequence[str]
    escape_formulas: bool = False
    wide: bool = False
    taken: int = 0
    _kept: list[Any] = attrs.field(factory=list[Any], init=False)  # rows of a table, or items of a JSON array

    def take(self, item: Any) -> None:  # Any: a model
        """Print *item*, or keep it for the end."""
        if self.form == "csv" and not self.taken:
            self._csv(self.columns)
        self.taken += 1
        match self.form:
            case "table":
                self._kept.append(texts(item, self.columns))
            case "json":
                self._kept.append(unstructure(item))
            case "jsonl":
                emit_json(unstructure(item))
            case "csv":
                self._csv(texts(item, self.columns))

    def end(self) -> None:
        """Print what was kept, and the header of a CSV without rows."""
        if self.form == "table":
            right = [index for index, name in enumerate(self.columns) if name in _NUMBERS]
            table(self.columns, self._kept, right=right, wide=self.wide)
        elif self.form == "json":
            emit_json(self._kept)
        elif self.form == "csv" and not self.taken:
            self._csv(self.columns)

    def _csv(self, cells: Sequence[str]) -> None:
        if self.escape_formulas:
            cells = [*map(escaped_formula, cells)]
        sys.stdout.write(csv_row(cells))
