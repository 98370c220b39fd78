"""The keys of rows: the column that has them, or a function of a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from invsvc_async.errors import ConfigurationError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

R = TypeVar("R")
Key: TypeAlias = "str | Callable[[R], object]"
_EXACT: Final = 2.0**53  # from here on, floats leave out whole numbers


def key_of(row: R, key: Key[R]) -> str:
    """
    Return the key of *row*.

    Raises:
        InvalidRequestError: It has none, or one that may be that of another row.
        ConfigurationError: The rows have no such column.
    """
    value = key(row) if callable(key) else _column_of(row, key)
    source = key if isinstance(key, str) else "the function"
    if value is None or _is_missing(value):
        raise InvalidRequestError(f"key: is missing ({source} gave {value})")
    if isinstance(value, float):
        return _key_of_float(value, source)
    return str(value)


def _is_missing(value: object) -> bool:
    """Return whether *value* is what pandas has for a key that is missing: NaN, or NA."""
    try:
        return bool(value != value)  # noqa: PLR0124
    except TypeError:  # of NA, nothing is true or false
        return True


def _key_of_float(value: float, source: str) -> str:
    """
    Return the key that a whole number has in a table without gaps.

    pandas and numpy make whole numbers floats where one of them is missing: the next table may have none.
    """
    if abs(value) >= _EXACT:
        raise InvalidRequestError(
            f"key: {source} gave {value}, which as a float may stand for several numbers. Make it text, or "
            "an integer."
        )
    return str(int(value)) if value.is_integer() else str(value)


# Any: the caller says that rows have columns
def _column_of(row: Any, key: str) -> object:
    """Return what *row* has in the column *key*."""
    try:
        return row[key]
    except (KeyError, ValueError, TypeError):
        raise _no_column(key, _columns_of(row)) from None


def check_column(key: str, columns: Sequence[str]) -> None:
    """
    Check that a table with these *columns* has the column *key*.

    Raises:
        ConfigurationError: It has not.
    """
    if key not in columns:
        raise _no_column(key, columns)


def _no_column(key: str, columns: Sequence[str]) -> ConfigurationError:
    """Return the error of a table without the column *key*."""
    has = f", but {', '.join(map(str, columns))}" if columns else ""
    return ConfigurationError(
        f"key: the rows have no column {key!r}{has}. Name the column whose value is the same when the row is "
        "sent again, or pass a function of a row."
    )


def _columns_of(row: object) -> list[str]:
    if isinstance(row, Mapping):
        return [*map(str, row)]
    return [*map(str, getattr(row, "__fields__", ()))]  # of Spark's rows
