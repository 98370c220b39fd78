"""
A check that the items of a list match the filters of the request.

Several parameter names are assumptions (:class:`~invsvc_async.settings.ParameterNames`). A service that does
not know a name ignores it, and returns all items.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from invsvc_async.api.arguments import wire_name
from invsvc_async.api.json_values import is_object
from invsvc_async.api.parameters import METADATA
from invsvc_async.errors import FieldError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from invsvc_async.api.operations import Operation
    from invsvc_async.settings import ParameterNames

__all__ = ["Filter", "filters_of", "first_mismatch"]

Item: TypeAlias = Any  # a model that may have the field
Fails: TypeAlias = "Callable[[Item], bool]"  # True: the item does not match
Filter: TypeAlias = "tuple[str, Fails]"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROUNDING = timedelta(seconds=1)  # the service also takes seconds, so it may compare in seconds
_LAST = 253_402_300_798_000  # ms: the last time that can still be rounded up
_LONGEST = 18  # digits of a folio
_SPELLINGS = {"cancelled": "canceled"}


def filters_of(operation: Operation, query: Mapping[str, str], names: ParameterNames) -> tuple[Filter, ...]:
    """Return the parameters of *query* (wire names) that can be checked on an item."""
    filters: list[Filter] = []
    for parameter in operation.parameters:
        value = query.get(wire_name(parameter, names) or "")
        make = _MADE.get(parameter.name)
        if value is not None and make is not None:
            filters.append((f"{parameter.name}={value}", make(value)))
    filters += [
        (f"{name}={value}", _metadata(name.removeprefix(METADATA), value))
        for name, value in query.items()
        if name.startswith(METADATA)
    ]
    return tuple(filters)


def first_mismatch(items: Sequence[object], filters: tuple[Filter, ...]) -> str | None:
    """Return which of *items* does not match which filter, or ``None`` if all match."""
    for at, item in enumerate(items):
        for asked, fails in filters:
            if _fails(fails, item):
                return f"item {at} does not match {asked}"
    return None


def _fails(fails: Fails, item: object) -> bool:
    try:
        return fails(item)
    except FieldError:  # absent or broken: it may match
        return False


def _status(asked: str) -> Fails:
    wanted = _SPELLINGS.get(asked, asked)
    return lambda item: _SPELLINGS.get(item.status, item.status) != wanted


def _folio(asked: str) -> Fails:
    if not asked.isdecimal() or len(asked) > _LONGEST:
        return lambda _: False
    return lambda item: item.folio_number != int(asked)


def _metadata(key: str, asked: str) -> Fails:
    if "." in key:  # perhaps a path into nested metadata
        return lambda _: False

    def fails(item: Item) -> bool:
        metadata = item.metadata
        if not is_object(metadata):
            return False
        value = metadata.get(key)
        return value is None or (isinstance(value, str) and value.casefold() != asked.casefold())

    return fails


def _client(asked: str, name: str) -> Fails:
    def fails(item: Item) -> bool:
        value = getattr(item.client, name, None)
        return isinstance(value, str) and value.casefold() != asked.casefold()

    return fails


def _instant(asked: str) -> datetime:
    return _EPOCH + timedelta(milliseconds=min(int(asked), _LAST))


def _created_after(asked: str) -> Fails:
    earliest = _instant(asked) - _ROUNDING
    return lambda item: item.created_at < earliest


def _created_before(asked: str) -> Fails:
    latest = _instant(asked) + _ROUNDING
    return lambda item: item.created_at > latest


_MADE: dict[str, Callable[[str], Fails]] = {
    "status": _status,
    "series": lambda asked: lambda item: item.series != asked,
    "folio": _folio,
    "idempotency_key": lambda asked: lambda item: item.idempotency_key != asked,
    "client_id": lambda asked: _client(asked, "id"),
    "client_tax_id": lambda asked: _client(asked, "tax_id"),
    "created_after": _created_after,
    "created_before": _created_before,
}
