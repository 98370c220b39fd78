"""Text form of values: times in ISO 8601, and numbers with all their digits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from invsvc_async.api.json_values import is_object
from invsvc_async.cli.output import console, table, visible
from invsvc_async.errors import FieldError
from invsvc_async.export.files import text_of
from invsvc_async.models.common import Model, wire_names

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["cell", "fields_of", "show", "text_of"]


def show(value: Any) -> None:  # Any: a model, or plain data
    """Print one item, one field a line.  Secrets are left out."""
    if isinstance(value, Model):
        rows = [(name, cell(value, name)) for name in fields_of(type(value))]
        rows += [(name, text_of(each)) for name, each in value.extra.items()]
    elif is_object(value):
        rows = [(name, text_of(each)) for name, each in value.items()]
    else:
        rows = [("value", text_of(value))]
    rows = [row for row in rows if row[1] and row[0] != "secret"]
    out = console()
    if not out.is_terminal:
        table(("field", "value"), rows)
        return
    from invsvc_async.cli.terminal_table import print_fields

    print_fields(out, [(visible(name), visible(text)) for name, text in rows])


def fields_of(model: type[Model]) -> tuple[str, ...]:
    """Return the names of a model's fields, in the order of the specification."""
    return tuple(wire_names(model))


def cell(item: Any, path: str) -> str:  # Any: a model, or plain data
    """Return the text at a dotted *path* of *item*: empty if it is absent, "!" if it is malformed."""
    for name in path.split("."):
        try:
            item = item.get(name) if is_object(item) else getattr(item, name)
        except FieldError as error:
            return "" if error.why == "absent" else "!"
        except AttributeError:
            return ""
    return text_of(item)


def texts(item: Any, paths: Iterable[str]) -> list[str]:
    """Return the texts at *paths* of *item*."""
    return [cell(item, path) for path in paths]
