"""Output of items as text (times in ISO 8601, numbers with all their digits), JSON, JSON lines or CSV."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Literal

import attrs

from invsvc_async.api.json_values import is_object
from invsvc_async.cli.output import (
    emit_json,
    is_terminal,
    print_facts,
    table,
    write_csv,
)
from invsvc_async.cli.visible_text import visible
from invsvc_async.codec import unstructure
from invsvc_async.errors import FieldError
from invsvc_async.export.files import csv_row, text_of
from invsvc_async.models.common import Model, wire_names

Form = Literal["table", "json", "jsonl", "csv"]
_NUMBERS = ("total", "subtotal", "discount", "taxes", "folio_number")


def show(value: Any) -> None:  # Any: a model, or plain data
    """Print one item, one field a line.  Secrets are left out."""
    if isinstance(value, Model):
        rows = [
            (name.removesuffix("_"), cell(value, name))
            for name in wire_names(type(value))
        ]
        rows += [(name, text_of(each)) for name, each in value.extra.items()]
    elif is_object(value):
        rows = [(name, text_of(each)) for name, each in value.items()]
    else:
        rows = [("value", text_of(value))]
    rows = [row for row in rows if row[1] and row[0] != "secret"]
    if is_terminal(sys.stdout):
        print_facts(dict(rows))
    else:
        table(("field", "value"), rows)


def cell(item: Any, path: str) -> str:  # Any: a model, or plain data
    """Return the text at a dotted *path* of *item*: empty if it is absent, "!" if it is malformed."""
    for name in path.split("."):
        try:
            item = item.get(name) if is_object(item) else getattr(item, name)
        except FieldError as error:
            if error.why == "absent":
                return ""
            return "!"
        except AttributeError:
            return ""
    return text_of(item)


@attrs.define
class Sink:
    """Prints items: JSON lines and CSV at once; a table or a JSON array when all have arrived."""

    form: Form
    columns: Sequence[str]
    escape_formulas: bool = False
    wide: bool = False
    taken: int = 0
    # rows of a table, or items of a JSON array
    _kept: list[Any] = attrs.field(factory=list[Any], init=False)

    def take(self, item: Any) -> None:  # Any: a model
        """Print *item*, or keep it for the end."""
        is_json = self.form in ("json", "jsonl")
        found: Any
        if is_json:
            found = unstructure(item)
        else:
            found = [cell(item, path) for path in self.columns]
        if self.form in ("json", "table"):
            self._kept.append(found)
        elif is_json:
            emit_json(found)
        else:
            self._csv(found)
        self.taken += 1

    def end(self) -> None:
        """Print what was kept, and the header of a CSV without rows."""
        if self.form == "table":
            right = [
                index for index, name in enumerate(self.columns) if name in _NUMBERS
            ]
            table(self.columns, self._kept, right=right, wide=self.wide)
        elif self.form == "json":
            emit_json(self._kept)
        elif self.form == "csv" and not self.taken:
            self._csv()

    def _csv(self, *rows: Sequence[str]) -> None:
        if not self.taken:
            rows = (self.columns, *rows)
        for cells in rows:
            # a file gets what there is
            shown = map(visible, cells) if sys.stdout.isatty() else cells
            write_csv(csv_row(shown, escape_formulas=self.escape_formulas))
