"""
Unknown fields that items had, by model class, so that the decoder can include them.

Their number is limited, because a service may have a member for each customer, for example.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias, cast, get_args, get_origin

from invsvc_async.codec.exact_json import is_array, is_object
from invsvc_async.codec.fields import fields_of
from invsvc_async.models.common import Model

__all__ = ["Grown", "grown_by"]

_MOST: Final = 64  # unknown fields of a class
_LONG: Final = 64  # characters of a name
Grown: TypeAlias = tuple[tuple[type[Model], tuple[str, ...]], ...]
"""For each class with unknown fields: the names of all its fields on the wire, in its order."""


def grown_by(cls: type[Model], plain: object, grown: Grown) -> Grown:
    """Return *grown* with the unknown fields of an item of *cls*, and of the objects in it."""
    found = {model: dict.fromkeys(names) for model, names in grown}
    for model, members in _objects(cls, plain):
        known = {field.wire for field in fields_of(model)}
        new = [name for name in members if name not in known and _can_be_learned(name)]
        earlier = found.get(model, {})
        if len({*earlier, *new} - known) <= _MOST and not earlier.keys() >= {*new}:
            order = [name for name in members if name in known or name in new]
            found[model] = dict.fromkeys(order) | earlier
    return tuple((model, tuple(names)) for model, names in found.items())


def _can_be_learned(name: str) -> bool:
    """Return whether a mirror may have a field of this name: msgspec rejects names that JSON would escape."""
    return len(name) <= _LONG and name.isprintable() and not {*name} & {'"', "\\"}


def _objects(hint: Any, value: object) -> Iterator[tuple[type[Model], dict[str, Any]]]:
    """Yield the objects in *value*, of the type *hint*, that become models, each with its class."""
    if isinstance(hint, type) and issubclass(hint, Model):
        if is_object(value):
            yield hint, value
            for field in fields_of(hint):
                yield from _objects(field.type, value.get(field.wire))
    elif get_origin(hint) is cast("object", tuple) and is_array(value):
        for each in value:
            yield from _objects(get_args(hint)[0], each)
    elif get_origin(hint) is cast("object", Mapping) and is_object(value):
        for each in value.values():
            yield from _objects(get_args(hint)[1], each)
