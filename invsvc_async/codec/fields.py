"""The fields of a model class, derived from its attrs definition and cached."""

from __future__ import annotations

import types
from enum import StrEnum
from inspect import Parameter, signature
from typing import (
    TYPE_CHECKING,
    Any,
    TypeGuard,
    TypeVar,
    cast,
    get_args,
    get_type_hints,
)

import attrs
from msgspec import Struct

from invsvc_async.models.common import Model, once, wire_names

if TYPE_CHECKING:
    from collections.abc import Mapping


T = TypeVar("T")


class WireField(Struct, frozen=True):
    """A field: the Python name, the name on the wire, and the type without ``None``."""

    name: str
    wire: str
    type: Any  # Any: types are values here, unions among them
    nullable: bool


@once
def fields_of(cls: type[Model]) -> tuple[WireField, ...]:
    """Return the fields of *cls* that come from the wire, in its order."""
    hints = get_type_hints(cls)
    return tuple(
        WireField(name, wire, *_without_none(hints[name]))
        for name, wire in wire_names(cls).items()
    )


def _without_none(hint: Any) -> tuple[Any, bool]:
    if hint is Any:
        return hint, True
    if not isinstance(hint, types.UnionType):
        return hint, False
    parts = get_args(hint)
    some = [part for part in parts if part is not type(None)]
    has_none = len(some) < len(parts)
    if len(some) == 1:
        return some[0], has_none
    return some[0] | some[1], has_none


def is_model(hint: Any) -> TypeGuard[type[Model]]:
    """Return whether a type is a model class."""
    return isinstance(hint, type) and issubclass(hint, Model)


def enum_in(hint: Any) -> Mapping[str, str] | None:
    """Return the members of an open enum (``WebhookStatus | str``) by value; for other types, ``None``."""
    if not isinstance(hint, types.UnionType):
        return None
    first = get_args(hint)[0]
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
    open_to_all = {
        name: getattr(object, name)
        for name in ("__init__", "__setattr__", "__delattr__")
    }
    return type(f"Blank{cls.__name__}", (cls,), {"__slots__": (), **open_to_all})


def maker_of(cls: type[T]) -> type[T]:
    """
    Return a function that makes an instance of *cls*, a frozen attrs class, as its constructor does.

    For what each write makes: an object with 13 fields takes 0.35 instead of 1.4 µs, and with that a small
    write 0.97 of its machine instructions. A field whose default is made by a factory must be given.
    """
    # Any: whatever the code refers to
    names: dict[str, Any] = {"blank": blank_of(cls), "cls": cls}
    arguments = []
    code = ["made = blank()"]
    for name, parameter in signature(cls).parameters.items():
        is_needed = parameter.default in (Parameter.empty, attrs.NOTHING)
        arguments.append(name if is_needed else f"{name}=default_{name}")
        code.append(f"made.{name} = {name}")
        names[f"default_{name}"] = parameter.default
    lines = [
        f"def make(*, {', '.join(arguments)}):",
        *code,
        "made.__class__ = cls",
        "return made",
    ]
    compiled = compile(
        "\n ".join(lines), f"<invsvc_async: maker of {cls.__name__}>", "exec"
    )
    exec(compiled, names)  # noqa: S102 - the code contains only our own field names
    return cast("type[T]", names["make"])
