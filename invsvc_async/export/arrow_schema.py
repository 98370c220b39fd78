"""Parquet schema of a model, and conversion of items to it without rounding."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast, get_args, get_origin

import attrs

from invsvc_async.codec import envelope, unstructure
from invsvc_async.codec.fields import fields_of, is_model
from invsvc_async.export.files import PROBLEMS, ExportError, named, present
from invsvc_async.models.common import Model

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
        return pa.schema([*self._fields(self.model), pa.field(PROBLEMS, pa.list_(pa.string()))])

    def table(self, items: Sequence[Model]) -> Any:  # Any: a pyarrow table
        """
        Return a table of *items*.

        Raises:
            ExportError: A number does not fit its column; the message names item, field and value.
        """
        rows = [
            {
                **self._struct(item, str(present(item, "uuid") or "an item without uuid")),
                PROBLEMS: named(item),
            }
            for item in items
        ]
        return pa.Table.from_pylist(rows, schema=self.schema())

    def _fields(self, model: type[Model]) -> list[Any]:
        return [pa.field(field.wire, self._type(field.type)) for field in fields_of(model)]

    def _type(self, hint: Any) -> Any:
        if hint in _PLAIN:
            return _PLAIN[hint]
        if hint is Decimal:
            return pa.decimal128(self.precision, self.scale)
        if get_origin(hint) is tuple:
            return pa.list_(self._type(get_args(hint)[0]))
        if is_model(hint):
            return pa.struct(self._fields(hint))
        return pa.string()  # an enum that may get new values, or plain data

    def _struct(self, item: Model, path: str) -> dict[str, Any]:
        return {
            field.wire: self._value(present(item, field.name), field.type, f"{path}.{field.wire}")
            for field in fields_of(type(item))
        }

    def _value(self, value: Any, hint: Any, path: str) -> Any:
        if value is None or isinstance(value, str | bool | datetime):
            return str(value) if isinstance(value, str) else value
        if isinstance(value, Decimal | int) and hint in (Decimal, int):
            return self._number(value, path)
        if isinstance(value, Model):
            return self._struct(value, path)
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
