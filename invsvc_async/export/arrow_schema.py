"""
Say how a model stands in Parquet, and give its values that form; never round one, and name one that is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast, get_args, get_origin, get_type_hints

import attrs

from invsvc_async.codec import envelope, unstructure
from invsvc_async.export.files import PROBLEMS, ExportError, named, present
from invsvc_async.models.common import Model, once, wire_names

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Columns"]

pa: Any = import_module("pyarrow")  # Any: it has no types of its own
_PLAIN: dict[Any, Any] = {  # Any: types, here and there
    str: pa.string(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    datetime: pa.timestamp("ms", tz="UTC"),
}
_INT64 = 63  # bits beside the sign


@attrs.frozen
class Columns:
    """
    The columns of *model*: decimals of so many digits, so many of them behind the point.

    Nested models are structs, lists are lists; what the specification leaves open is JSON text.
    """

    model: type[Model]
    precision: int = 38
    scale: int = 12

    def schema(self) -> Any:  # Any: a schema of pyarrow
        """Give the schema, with a last column that names the fields of a row that broke their types."""
        fields = [pa.field(spelt, self._type(hint)) for _, spelt, hint in _hints(self.model)]
        return pa.schema([*fields, pa.field(PROBLEMS, pa.list_(pa.string()))])

    def table(self, items: Sequence[Model]) -> Any:  # Any: a table of pyarrow
        """
        Make a table of *items*.

        Raises:
            ExportError: A number does not fit its column; it names item, field and value.

        """
        rows = [{**self._struct(item, self.model, _name(item)), PROBLEMS: named(item)} for item in items]
        return pa.Table.from_pylist(rows, schema=self.schema())

    def _type(self, hint: Any) -> Any:
        hint = _without_none(hint)
        if hint in _PLAIN:
            return _PLAIN[hint]
        if hint is Decimal:
            return pa.decimal128(self.precision, self.scale)
        if get_origin(hint) is tuple:
            return pa.list_(self._type(get_args(hint)[0]))
        if isinstance(hint, type) and issubclass(hint, Model):
            return pa.struct([pa.field(spelt, self._type(each)) for _, spelt, each in _hints(hint)])
        return pa.string()  # an open enum, or plain data

    def _struct(self, item: Model, model: type[Model], place: str) -> dict[str, Any]:
        return {
            spelt: self._value(present(item, name), hint, f"{place}.{spelt}")
            for name, spelt, hint in _hints(model)
        }

    def _value(self, value: Any, hint: Any, place: str) -> Any:
        hint = _without_none(hint)
        if value is None or isinstance(value, str | bool | datetime):
            return str(value) if isinstance(value, str) else value
        if isinstance(value, Decimal | int) and hint in (Decimal, int):
            return self._number(value, place)
        if isinstance(value, Model):
            return self._struct(value, type(value), place)
        if get_origin(hint) is tuple:
            inner, many = get_args(hint)[0], cast("tuple[Any, ...]", value)
            return [self._value(each, inner, f"{place}[{at}]") for at, each in enumerate(many)]
        return value if isinstance(value, float) else envelope.dumps(unstructure(value)).decode()

    def _number(self, value: Decimal | int, place: str) -> Decimal | int:
        if isinstance(value, int):
            if value.bit_length() > _INT64:
                raise ExportError(f"{place}: {value} does not fit 64 bits. Export as jsonl or csv")
            return value
        _, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)  # no NaN comes off the wire
        text = "".join(map(str, digits)).rstrip("0")
        if not text:
            return Decimal(0)
        behind, before = -exponent - (len(digits) - len(text)), len(digits) + exponent
        if behind > self.scale or before > self.precision - self.scale:
            raise ExportError(
                f"{place}: {value} does not fit decimal128({self.precision}, {self.scale}) without rounding. "
                "Give another scale=, or export as jsonl or csv"
            )
        return value


@once
def _hints(model: type[Model]) -> list[tuple[str, str, Any]]:
    """List a model's fields: name here, name on the wire, type."""
    hints = get_type_hints(model)
    return [(name, spelt, hints[name]) for name, spelt in wire_names(model).items()]


@once
def _without_none(hint: Any) -> Any:
    """Take ``| None`` off a type; several others beside it are written as text."""
    if hint is Any or get_origin(hint) in (Mapping, tuple) or isinstance(hint, type):
        return hint
    kept = [each for each in get_args(hint) if each is not type(None)]
    return kept[0] if len(kept) == 1 else str


def _name(item: Model) -> str:
    return str(present(item, "uuid") or "an item without uuid")
