"""Columns of rows, and the fields of the service that they stand for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import date, datetime, time, tzinfo
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar, get_origin

import attrs

from invsvc_async.codec import envelope, unstructure
from invsvc_async.codec.fields import enum_in, fields_of, is_model
from invsvc_async.drift.table import FieldDifference
from invsvc_async.errors import InvalidRequestError, UnreadableResponseError
from invsvc_async.export.files import text_of
from invsvc_async.reconcile.compare import same

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.models.common import Model

T = TypeVar("T")

_NUMBER = re.compile(
    r"[+-]?(?=\.?[0-9])[0-9]{0,200}(\.[0-9]{0,200})?([eE][+-]?[0-9]{1,3})?"
)
_EPOCH = re.compile("[0-9]{1,7}|[0-9]{9,18}")  # ms; 20260501 is a date
_LAST = 253_402_300_800_000  # ms: the year 10000
_MOST = 1000  # columns
_NO_TIME = "is neither a time in ISO 8601 nor epoch ms"


@attrs.define
class RowColumns:
    """
    The columns of rows, learned as they are read: ``found`` has the path and type of the field that
    each is compared with.

    *fields* has columns by field, as in ``Comparison``.  *blank*: an empty text is null, as in CSV.
    """

    model: type[Model]
    key: str
    fields: Mapping[str, str | None]
    zone: tzinfo | None
    blank: bool
    found: dict[str, tuple[str, Any] | None] = attrs.field(
        factory=dict[str, Any], init=False
    )  # Any: types

    def __attrs_post_init__(self) -> None:
        self.fields = {self.key: self.key, **self.fields}
        unknown = [path for path in self.fields if _hint_of(self.model, path) is None]
        if unknown:
            raise InvalidRequestError(
                f"fields: {self.model.__name__} has no field {', '.join(unknown)}",
                hint="Name a field, then your column: total=amount. Nothing was sent.",
            )

    def read(self, row: object) -> tuple[str | None, dict[str, Wire]]:
        """Return key and compared fields of *row*, in wire form; a ``ValueError`` names the column."""
        try:
            columns: dict[str, object] = dict(row)  # type: ignore[call-overload]  # records of drivers, too
        except (TypeError, ValueError):
            raise ValueError("is no mapping of columns to values") from None
        if len(columns) > _MOST:
            raise ValueError(f"has more than {_MOST:,} columns")
        cells: dict[str, Wire] = {}
        for column, value in columns.items():
            if column not in self.found and len(self.found) < _MOST:
                self.found[column] = self._field(str(column))
            field = self.found.get(column)
            if field is None:
                continue
            path, hint = field
            try:
                cells[path] = self._cell(hint, value)
            except (ValueError, UnreadableResponseError) as error:
                raise ValueError(f"{column}: {value!r:.60} {words_of(error)}") from None
        return cells.pop(self.key, None) or None, cells

    def _cell(self, hint: Any, value: object) -> Wire:  # Any: a type
        """Return *value* of a row in the wire form of a field of the type *hint*."""
        given = self._or_null(value)
        if given is not None and hint in _SCALARS:
            return _SCALARS[hint](given, self.zone)
        if isinstance(given, str) and hint is not Any:
            return envelope.loads(given.encode())
        return unstructure(given)

    def _field(self, column: str) -> tuple[str, Any] | None:  # Any: a type
        """Return the field of *column*: as *fields* says, or the field of the same name if it is simple."""
        by_column = {name: path for path, name in self.fields.items()}
        path = by_column.get(column, column)
        hint = _hint_of(self.model, path)
        if enum_in(hint) is not None:
            hint = str
        if column in by_column:
            return path, hint
        if path in self.fields or hint is None:
            return None
        is_simple = hint in _SCALARS or "." in path
        if is_simple:
            return (path, hint)
        return None

    def check(self) -> None:
        """Raise ``InvalidRequestError``, after the last row, if the key's column or another was in none."""
        if not self.found:
            return
        missing: list[str] = []
        for path, column in self.fields.items():
            is_wanted = column or path == self.key
            if is_wanted and column not in self.found:
                missing.append(str(column))
        if missing:
            raise InvalidRequestError(
                f"{', '.join(missing)}: no row has this column. There are {', '.join(self.found):.300}",
                hint="Name the column of a field with fields= (--key COLUMN, --map FIELD=COLUMN).",
            )

    def differing(self, cells: Mapping[str, Wire], item: Wire) -> list[FieldDifference]:
        """Return the fields in which the *cells* of a row differ from an *item* in the wire form."""
        different: list[FieldDifference] = []
        for path, hint in filter(None, self.found.values()):
            ours = cells.get(path)
            theirs = at(item, path)
            if path != self.key and not self._is_same(hint, ours, theirs):
                different.append(
                    FieldDifference(path, _shown(ours, hint), _shown(theirs, hint))
                )
        return different

    def _is_same(self, hint: Any, ours: Wire, theirs: Wire) -> bool:  # Any: a type
        """Return whether the value of a row equals that of the service: numbers by value, others as text."""
        compared = self._or_null(theirs)
        if same(ours, compared):
            return True
        is_text_of_any = hint is Any and isinstance(ours, str)
        return is_text_of_any and ours == text_of(compared)

    def _or_null(self, value: T) -> T | None:
        """Return *value*, or ``None`` for an empty text that stands for null."""
        if self.blank and value == "":
            return None
        return value


def _hint_of(model: type[Model], path: str) -> Any:  # Any: a type
    """Return the type of the field at *path*; ``None`` if there is none, or it is a secret."""
    name, _, rest = path.partition(".")
    if name == "secret":
        return None
    hints = {field.wire: field.type for field in fields_of(model)}
    hint = hints.get(name)
    if not rest:
        return hint
    if is_model(hint):
        return _hint_of(hint, rest)
    if get_origin(hint) is Mapping:
        return Any
    return None


def words_of(error: Exception) -> str:
    """Return what is wrong with a value, without advice."""
    if isinstance(error, UnreadableResponseError):
        return f"is not JSON ({error.__cause__})"
    return "; ".join(getattr(error, "problems", ())) or str(error)


def at(item: Wire, path: str) -> Wire:
    """Return the value at a dotted *path*; ``None`` if it is absent."""
    for name in path.split("."):
        item = item.get(name) if isinstance(item, dict) else None
    return item


def moment(value: object, zone: tzinfo | None) -> Wire:
    """Return a time as epoch ms, as digits but a date's are; *zone* is that of times without an offset."""
    if isinstance(value, str):
        value = _moment_of_text(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time.min)
    if isinstance(value, datetime):
        if not value.tzinfo:
            value = _placed(value, zone)
        return unstructure(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(_NO_TIME)  # noqa: TRY004 - of a row
    if not 0 <= value < _LAST:
        raise ValueError(_NO_TIME)
    return value


def _moment_of_text(text: str) -> object:
    """Return what *text* stands for: epoch ms, or a time in ISO 8601; *text* itself if it is neither."""
    with suppress(ValueError):
        if _EPOCH.fullmatch(text):
            return int(text)
        return datetime.fromisoformat(text)
    return text


def _placed(value: datetime, zone: tzinfo | None) -> datetime:
    if zone is None:
        raise ValueError(
            "has no offset from UTC. Give the time zone with zone= (--zone)"
        )
    placed = value.replace(tzinfo=zone)
    if placed.utcoffset() != placed.replace(fold=1 - value.fold).utcoffset():
        raise ValueError(
            f"exists twice or not at all in {zone}. Write its offset from UTC"
        )
    return placed


def _number(value: object, _: object) -> Decimal:
    text = str(value)  # of a float, its shortest digits
    if isinstance(value, bool) or not _NUMBER.fullmatch(text):
        raise ValueError("is not a number: write digits, and a point before decimals")
    return Decimal(text)


def _flag(value: object, _: object) -> bool:
    text = str(value).casefold()
    if text in ("true", "t", "1"):
        return True
    if text in ("false", "f", "0"):
        return False
    raise ValueError("is neither true nor false")


def _text(value: object, _: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ValueError("is not text")  # noqa: TRY004 - a wrong value, of whatever type
    return str(value)


_SCALARS = {
    Decimal: _number,
    int: _number,
    float: _number,
    datetime: moment,
    bool: _flag,
    str: _text,
}


def _shown(value: Wire, hint: Any) -> Wire:  # Any: the field's type
    if hint is datetime and isinstance(value, int):
        with suppress(OverflowError):
            return text_of(envelope.utc(value))
    return value
