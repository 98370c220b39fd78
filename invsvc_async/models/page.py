"""Pages of lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, get_type_hints, overload

import attrs

from invsvc_async.errors import FieldError
from invsvc_async.models.common import Meta, Model
from invsvc_async.models.portable import Portable, html_table, keep_arguments

__all__ = ["Page"]

T_co = TypeVar("T_co", covariant=True)


class Items(Portable, Generic[T_co], Sequence[T_co]):  # noqa: PYI059 - an alias of Sequence has no attributes
    """The base class of the sequences of ``items``."""

    __slots__ = ()

    if TYPE_CHECKING:
        items: tuple[T_co, ...]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[T_co]:
        return iter(self.items)

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T_co, ...]: ...

    def __getitem__(self, index: int | slice) -> T_co | tuple[T_co, ...]:
        return self.items[index]

    def _repr_html_(self) -> str:
        """Return a table with a column for each field that an item has."""
        rows = [_row_of(item) for item in self.items]
        columns = list(dict.fromkeys(chain.from_iterable(rows)))
        title = f"{type(self.items[0]).__name__}: {len(rows)}" if rows else "no items"
        return html_table(
            title, columns, ([row.get(name) for name in columns] for row in rows)
        )


def _row_of(item: object) -> dict[str, object]:
    """Return what a table shows of *item*, by column."""
    if isinstance(item, Model):
        return dict(item.__rich_repr__())
    return {"value": item}


@attrs.frozen(kw_only=True)
class Page(Items[T_co]):
    """
    One page of a list, in the service's order.  Its wire form is the service's envelope, with ``data``.

    ``Page[Invoice].from_dict(…)`` and ``from_json`` make items of that class; those of ``Page`` alone stay
    plain data.

    ``next`` is the cursor of the next page.  Lists filtered by metadata have ``page`` and ``per_page``
    instead.  Attributes missing from the answer are ``None``, but ``page`` is then the number that was
    requested, if one was.  ``timestamp`` is aware, in UTC.

    Spec: Response envelopes.
    """

    items: tuple[T_co, ...]
    next: str | None = None
    has_more: bool = False
    total_results: int | None = None
    page: int | None = None
    per_page: int | None = None
    message: str | None = None
    timestamp: datetime | None = None
    meta: Meta | None = attrs.field(
        default=None,
        eq=False,
        repr=False,
    )

    @property
    def problems(self) -> tuple[FieldError, ...]:
        """All fields of the wrong type, by their addresses in the answer (``$.data[3].total``)."""
        return tuple(
            FieldError(f"$.data[{at}]{problem.address[1:]}", problem.raw, problem.why)
            for at, item in enumerate(self.items)
            for problem in getattr(item, "problems", ())
        )

    def __class_getitem__(cls, item: Any) -> Any:  # Any: as in typing
        return keep_arguments(cls, super().__class_getitem__(item))  # type: ignore[misc]  # Generic has it

    def _to_plain(self, convert: Callable[[object], Any]) -> dict[str, Any]:
        numbers = {"page": self.page, "per_page": self.per_page}
        beside: dict[str, Any] = {
            name: number for name, number in numbers.items() if number is not None
        }
        if self.next is not None or not beside:
            beside = {"next": self.next, **beside}
        more = {
            "total_results": self.total_results,
            "message": self.message,
            "timestamp": self.timestamp,
        }
        return {
            "success": True,
            "data": [convert(item) for item in self.items],
            **beside,
            "has_more": self.has_more,
            **{
                name: convert(value)
                for name, value in more.items()
                if value is not None
            },
        }

    @classmethod
    def _from_plain(cls, plain: dict[str, Any], arguments: tuple[Any, ...]) -> Self:
        from invsvc_async.codec.decoder import page_from

        return page_from(cls, plain, next(iter(arguments), None))

    @classmethod
    def _wire_types(cls, arguments: tuple[Any, ...]) -> dict[str, tuple[Any, bool]]:
        item: Any = next(iter(arguments), Any)
        types = get_type_hints(cls)
        beside = (
            "next",
            "has_more",
            "total_results",
            "page",
            "per_page",
            "message",
            "timestamp",
        )
        around = {"success": (bool, False), "data": (tuple[item, ...], True)}
        return around | {name: (types[name], False) for name in beside}
