"""
A check that the items of a list match the filters of the request.

Several parameter names are assumptions (:class:`~invsvc_async.settings.ParameterNames`). A service that does
not know a name ignores it, and returns all items.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from invsvc_async.api.json_values import is_object
from invsvc_async.api.parameters import METADATA, wire_name
from invsvc_async.codec.exact_json import utc
from invsvc_async.errors import FieldError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from invsvc_async.api.operations import Operation
    from invsvc_async.settings import ParameterNames

Item: TypeAlias = Any  # a model that may have the field

# the service also takes seconds, so it may compare in seconds
_ROUNDING = timedelta(seconds=1)
_LAST = 253_402_300_798_000  # ms: the last time that can still be rounded up
_LONGEST = 18  # digits of a folio
_SPELLINGS = {"cancelled": "canceled"}
_NAMES = "status series folio idempotency_key client_id client_tax_id created_after created_before"
_CHECKED = frozenset(_NAMES.split())


def filters_of(
    operation: Operation,
    query: Mapping[str, str],
    names: ParameterNames,
) -> dict[str, str]:
    """Return what *query* (wire names) asks for, by the parameters that can be checked on an item."""
    filters: dict[str, str] = {}
    for row in operation.parameters:
        asked = query.get(wire_name(row, names) or "")
        if asked is not None and row.name in _CHECKED:
            filters[row.name] = asked
    return filters | {
        name: asked for name, asked in query.items() if name.startswith(METADATA)
    }


def first_mismatch(items: Sequence[object], filters: Mapping[str, str]) -> str | None:
    """Return which of *items* does not match which filter, or ``None`` if all match."""
    for at, item in enumerate(items):
        for name, asked in filters.items():
            try:
                if _differs(item, name, asked):
                    return f"item {at} does not match {name}={asked}"
            except FieldError:  # absent or broken: it may match
                continue
    return None


def _differs(item: Item, name: str, asked: str) -> bool:
    """Return whether *item* certainly does not match the parameter *name*."""
    match name:
        case "status":
            return bool(
                _SPELLINGS.get(item.status, item.status) != _SPELLINGS.get(asked, asked)
            )
        case "folio":
            is_number = asked.isdecimal() and len(asked) <= _LONGEST
            return is_number and item.folio_number != int(asked)
        case "client_id" | "client_tax_id":
            return _is_other_text(
                getattr(item.client, name.removeprefix("client_"), None), asked
            )
        case "created_after":
            return bool(item.created_at < _instant(asked) - _ROUNDING)
        case "created_before":
            return bool(item.created_at > _instant(asked) + _ROUNDING)
        case "series" | "idempotency_key":
            return bool(getattr(item, name) != asked)
        case _:
            return _metadata_differs(item.metadata, name.removeprefix(METADATA), asked)


def _metadata_differs(
    metadata: object,
    key: str,
    asked: str,
) -> bool:
    is_path = "." in key  # perhaps into nested metadata
    if is_path or not is_object(metadata):
        return False
    return metadata.get(key) is None or _is_other_text(metadata[key], asked)


def _is_other_text(value: object, asked: str) -> bool:
    return isinstance(value, str) and value.casefold() != asked.casefold()


@lru_cache(maxsize=16)
def _instant(asked: str) -> datetime:
    return utc(min(int(asked), _LAST))
