"""Parquet schema of a model, and conversion of items to it without rounding."""

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

pa: Any = import_module("pyarrow")  # Any: pyarrow is untyped
_PLAIN: dict[Any, Any] = {  # Any: Python types and Arrow types
    str: pa.string(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    datetime: pa.timestamp("ms", tz="UTC"),
}
_INT64 = 63  # bits without the sign


@attrs.frozen
class Columns:
    """
    The columns of *model*; *precision* and *scale* are those of decimals.

    Nested models become structs and tuples become lists; free-form data becomes JSON text.
    """

    model: type[Model]
    precision: int = 38
    scale: int = 12

    def schema(self) -> Any:  # Any: a pyarrow schema
        """Return the schema; its last column names the malformed fields of a row."""
        fields = [pa.field(spelt, self._type(hint)) for _, spelt, hint in _hints(self.model)]
        return pa.schema([*fields, pa.field(PROBLEMS, pa.list_(pa.string()))])

    def table(self, items: Sequence[Model]) -> Any:  # Any: a pyarrow table
        """
        Return a table of *items*.

        Raises:
            ExportError: A number does not fit its column; the message names item, field and value.

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
        return pa.string()  # an enum that may get new values, or plain data

    def _struct(self, item: Model, model: type[Model], path: str) -> dict[str, Any]:
        return {
            spelt: self._value(present(item, name), hint, f"{path}.{spelt}")
            for name, spelt, hint in _hints(model)
        }

    def _value(self, value: Any, hint: Any, path: str) -> Any:
        hint = _without_none(hint)
        if value is None or isinstance(value, str | bool | datetime):
            return str(value) if isinstance(value, str) else value
        if isinstance(value, Decimal | int) and hint in (Decimal, int):
            return self._number(value, path)
        if isinstance(value, Model):
            return self._struct(value, type(value), path)
        if get_origin(hint) is tuple:
            inner, many = get_args(hint)[0], cast("tuple[Any, ...]", value)
            return [self._value(each, inner, f"{path}[{at}]") for at, each in enumerate(many)]
        return value if isinstance(value, float) else envelope.dumps(unstructure(value)).decode()

    def _number(self, value: Decimal | int, path: str) -> Decimal | int:
        if isinstance(value, int):
            if value.bit_length() > _INT64:
                raise ExportError(f"{path}: {value} does not fit 64 bits. Export as jsonl or csv")
            return value
        _, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)  # the decoder accepts no NaN
        text = "".join(map(str, digits)).rstrip("0")
        if not text:
            return Decimal(0)
        fraction, whole = -exponent - (len(digits) - len(text)), len(digits) + exponent
        if fraction > self.scale or whole > self.precision - self.scale:
            raise ExportError(
                f"{path}: {value} does not fit decimal128({self.precision}, {self.scale}) without rounding. "
                "Set another scale=, or export as jsonl or csv"
            )
        return value


@once
def _hints(model: type[Model]) -> list[tuple[str, str, Any]]:
    """Return a model's fields: Python name, wire name, type."""
    hints = get_type_hints(model)
    return [(name, spelt, hints[name]) for name, spelt in wire_names(model).items()]


@once
def _without_none(hint: Any) -> Any:
    """Remove ``| None`` from a type; other unions are exported as text."""
    if hint is Any or get_origin(hint) in (Mapping, tuple) or isinstance(hint, type):
        return hint
    kept = [each for each in get_args(hint) if each is not type(None)]
    return kept[0] if len(kept) == 1 else str


def _name(item: Model) -> str:
    return str(present(item, "uuid") or "an item without uuid")
