"""The fields of a model class, derived from its attrs definition and cached."""

from __future__ import annotations

import types
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeGuard, get_args, get_type_hints

from msgspec import Struct

from invsvc_async.models.common import Model, once, wire_names

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Field", "blank_of", "enum_in", "fields_of", "is_model"]


class Field(Struct, frozen=True):
    """A field: its Python name, its name on the wire, and its type without ``None``."""

    name: str
    wire: str
    type: Any  # Any: types are values here, unions among them
    nullable: bool


@once
def fields_of(cls: type[Model]) -> tuple[Field, ...]:
    """Return the fields of *cls* that come from the wire, in its order."""
    hints = get_type_hints(cls)
    return tuple(Field(name, wire, *_without_none(hints[name])) for name, wire in wire_names(cls).items())


def _without_none(hint: Any) -> tuple[Any, bool]:
    if hint is Any:
        return hint, True
    parts = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    some = [part for part in parts if part is not type(None)]
    return (some[0] if len(some) == 1 else some[0] | some[1]), len(some) < len(parts)


def is_model(hint: Any) -> TypeGuard[type[Model]]:
    """Return whether a type is a model class."""
    return isinstance(hint, type) and issubclass(hint, Model)


def enum_in(hint: Any) -> Mapping[str, str] | None:
    """Return the members of an open enum (``WebhookStatus | str``) by value; for other types, ``None``."""
    first = get_args(hint)[0] if isinstance(hint, types.UnionType) else None
    if not (isinstance(first, type) and issubclass(first, StrEnum)):
        return None
    return {member.value: member for member in first}


@once
def blank_of(cls: type[Any]) -> type[Any]:
    """
    Return a class like *cls* whose attributes can be assigned.

    Filling a frozen object takes four times as long as filling this one and then setting ``__class__`` (40
    fields: 2.0 against 0.5 µs, on 3.11 to 3.13).
    """
    open_to_all = {name: getattr(object, name) for name in ("__init__", "__setattr__", "__delattr__")}
    return type(f"Blank{cls.__name__}", (cls,), {"__slots__": (), **open_to_all})
