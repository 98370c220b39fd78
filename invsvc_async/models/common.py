"""
The base class of models.

A field without a value leaves its slot unset, which costs nothing in the usual case.  Reading an unset slot
calls ``__getattr__``, which knows whether the field was absent or broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, reduce
from operator import getitem
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar, cast

import attrs
import msgspec
from multidict import CIMultiDict, CIMultiDictProxy

from invsvc_async.errors import NONE_CAME, FieldError
from invsvc_async.models.portable import FieldName, Portable
from invsvc_async.models.unset import UNSET, Unset

__all__ = ["UNSET", "Meta", "Model", "Unset"]

M = TypeVar("M", bound="Model")
F = TypeVar("F", bound=Callable[..., Any])


ABSENT: Any = UNSET  # Any: the default of fields of every type
NO_EXTRA: Mapping[str, Any] = MappingProxyType({})


def wire(name: str) -> dict[str, str]:
    """Return the metadata of a field that has another *name* on the wire."""
    return {"wire": name}


@attrs.frozen(kw_only=True, getstate_setstate=False)
class Meta:
    """
    The parts of an answer beside its payload.

    ``message`` and ``timestamp`` are the service's; the timestamp is aware, in UTC.  ``request_id`` is from
    a header, if there was one.  ``status`` and ``headers`` (their names in any case) are those of the answer,
    and do not count in comparisons.

    Spec: Response envelopes.
    """

    message: str | None = None
    timestamp: datetime | None = None
    request_id: str | None = None
    status: int | None = attrs.field(
        default=None,
        eq=False,
        repr=False,
    )
    headers: Mapping[str, str] = attrs.field(
        default=NO_EXTRA,
        eq=False,
        repr=False,
    )

    def __reduce__(self) -> tuple[Any, ...]:
        headers = tuple(self.headers.items())  # aiohttp's own class cannot be pickled
        return _restore_meta, (
            {**attrs.asdict(self, recurse=False), "headers": headers},
        )


def _restore_meta(parts: dict[str, Any]) -> Meta:
    parts["headers"] = CIMultiDictProxy(CIMultiDict(parts["headers"]))
    return Meta(**parts)


def once(make: F) -> F:
    """Cache the results of *make*: ``functools.cache``, typed so that it accepts classes as arguments."""
    return cast("F", cache(make))


class Received(msgspec.Struct):
    """The wire form of an item, decoded again only if its unknown fields are read."""

    content: Any  # Any: JSON, then what it contains

    def plain(self) -> Any:
        """Return the item as plain data."""
        from invsvc_async.codec.exact_json import salvage

        if isinstance(self.content, bytes):
            self.content = salvage(self.content)
        return self.content


Place: TypeAlias = "Received | tuple[Place, *tuple[str | int, ...]]"


class Flaws(msgspec.Struct):
    """
    The parts of an item that do not fit its fields.

    ``problems`` is by field name; "" stands for the whole item.  ``spelt``, by field name, is a value and
    the different form in which it was received (``3.0`` for 3).
    """

    problems: dict[str, FieldError] = {}
    spelt: dict[str, tuple[object, object]] = {}


@once
def wire_names(cls: type[Model]) -> dict[str, str]:
    """Return the wire name of each field of *cls*, by its Python name."""
    own = (field for field in cls._attrs if field.name not in _SHARED)
    return {
        field.name: field.metadata.get("wire", field.name.rstrip("_")) for field in own
    }


@once
def _nullable(cls: type[Model]) -> frozenset[str]:
    return frozenset(
        field.name
        for field in cls._attrs
        if str(field.type) == "Any" or str(field.type).endswith("| None")
    )


def _plain_at(place: Place) -> Any:
    if isinstance(place, Received):
        return place.plain()
    whole, *path = place
    return reduce(getitem, path, _plain_at(whole))


def restore(
    cls: type[M], slots: Mapping[str, object], extra: Mapping[str, Any] = NO_EXTRA
) -> M:
    """Create a model of *cls* from the values of its slots, without checks."""
    model = cls.__new__(cls)
    for name, value in slots.items():
        object.__setattr__(model, name, value)
    object.__setattr__(model, "extra", _read_only(extra))
    return model


def _read_only(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the unknown fields as a model has them."""
    if extra:
        return MappingProxyType(extra)
    return NO_EXTRA


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class Model(Portable):
    """
    A value of the service: frozen, with exact numbers and UTC times.

    Reading an absent field returns ``None`` if the specification allows it to be null or left out, and raises
    ``FieldError`` otherwise.  Reading a field of the wrong type raises ``FieldError``.  ``extra`` has the
    unknown fields by their wire names.  ``meta`` has the rest of the answer, and does not count in
    comparisons.  An absent field equals a null one.
    """

    extra: Mapping[str, Any] = attrs.field(default=ABSENT, repr=False)
    meta: Meta | None = attrs.field(
        default=None,
        eq=False,
        repr=False,
    )
    _rest: Flaws | Received | tuple[Any, ...] | None = attrs.field(
        init=False,
        default=None,
        eq=False,
        repr=False,
    )

    def __attrs_post_init__(self) -> None:
        given = {
            field.name: object.__getattribute__(self, field.name)
            for field in self._attrs
        }
        broken = {
            name: value
            for name, value in given.items()
            if isinstance(value, FieldError)
        }
        for name, value in given.items():
            if value is UNSET or name in broken:
                object.__delattr__(self, name)
        if given["extra"]:
            object.__setattr__(self, "extra", MappingProxyType(dict(given["extra"])))
        if broken:
            object.__setattr__(self, "_rest", Flaws(broken))

    def _to_plain(self, _convert: Callable[[object], Any], /) -> dict[str, Any]:
        from invsvc_async.codec.encode import object_of

        plain: dict[str, Any] = object_of(self)
        return plain

    @classmethod
    def _from_plain(cls, plain: dict[str, Any], _arguments: tuple[Any, ...], /) -> Self:
        from invsvc_async.codec.decoder import structure

        return structure(cls, plain)

    @classmethod
    def _wire_types(cls, _arguments: tuple[Any, ...], /) -> dict[str, tuple[Any, bool]]:
        from invsvc_async.codec.fields import fields_of

        types: dict[str, tuple[Any, bool]] = {}
        for field in fields_of(cls):
            hint = field.type
            if field.nullable:
                hint |= None
            types[field.wire] = hint, not field.nullable
        return types

    @property
    def problems(self) -> tuple[FieldError, ...]:
        """All fields of the wrong type, in this item and in the items inside."""
        rest = self._rest
        if rest is not None and not isinstance(rest, Flaws):
            return ()  # decoded by the fast path, which allows none
        own = tuple(rest.problems.values()) if rest else ()
        return (*own, *self._problems_inside())

    def _problems_inside(self) -> Iterator[FieldError]:
        """Yield the problems of the items inside, by their addresses in this one."""
        for field, name in wire_names(type(self)).items():
            for path, model in _models_in(stored_value(self, field)):
                for problem in model.problems:
                    address = f"$.{name}{path}{problem.address[1:]}"
                    yield FieldError(address, problem.raw, problem.why)

    def _problem(self, name: str) -> FieldError | None:
        problems = self._rest.problems if isinstance(self._rest, Flaws) else {}
        return problems.get(name) or problems.get("")

    def _held(self) -> tuple[object, ...]:
        """Return what comparisons use: values, and for broken fields what was received instead."""
        held: list[object] = []
        for name in wire_names(type(self)):
            value = stored_value(self, name)
            if value is UNSET and (problem := self._problem(name)):
                value = problem.why, problem.raw
            elif value is UNSET and name in _nullable(type(self)):
                value = None
            held.append(value)
        return tuple(held)

    if not TYPE_CHECKING:  # otherwise a type checker would accept every name

        def __getattr__(self, name: str) -> Any:
            if name == "extra":
                return self._read_extra()
            if name in _SHARED:
                return None
            if name not in wire_names(type(self)):
                raise AttributeError(
                    f"{type(self).__name__!r} has no attribute {name!r}",
                    name=name,
                    obj=self,
                )
            problem = self._problem(name)
            # attrs.evolve, which copies absent and broken fields as such
            if isinstance(name, FieldName):
                is_broken = problem is not None and problem.address != "$"
                if is_broken:
                    return problem
                return UNSET
            if problem:  # a new one each time: an error that is raised again keeps all its earlier frames
                raise FieldError(problem.address, problem.raw, problem.why)
            if name in _nullable(type(self)):
                return None
            raise FieldError(f"$.{wire_names(type(self))[name]}", None, NONE_CAME)

        def _read_extra(self) -> Mapping[str, Any]:
            """Read the unknown fields from the wire form, at first use; the wire form is then released."""
            rest = self._rest
            if rest is None or isinstance(rest, Flaws):
                return NO_EXTRA
            known = set(wire_names(type(self)).values())
            found = {
                name: value
                for name, value in _plain_at(rest).items()
                if name not in known
            }
            extra = _read_only(found)
            object.__setattr__(self, "extra", extra)
            object.__setattr__(self, "_rest", None)
            return extra

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._held() == other._held() and self.extra == other.extra

    def __hash__(self) -> int:
        return hash((type(self), self._held()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={it!r}' for name, it in self.__rich_repr__())})"

    def __reduce__(self) -> tuple[Any, ...]:
        extra = dict(self.extra)  # first, because this releases the wire form
        slots = {
            name: stored_value(self, name)
            for name in (*wire_names(type(self)), "meta", "_rest")
        }
        held = {name: value for name, value in slots.items() if value is not UNSET}
        return restore, (type(self), held, extra)


_SHARED: Final = ("extra", "meta", "_rest")


def stored_value(model: Model, name: str) -> Any:
    """Return the value of a field as it is stored, or UNSET if the field was absent or broken."""
    try:
        return object.__getattribute__(model, name)
    except AttributeError:
        return UNSET


def is_decoded(model: Model) -> bool:
    """Return whether *model* is known to have been decoded from JSON, so that ``unstructure`` cannot fail."""
    return stored_value(model, "_rest") is not None


def flaws_of(model: Model) -> Flaws | None:
    """Return the parts of *model* that do not fit its fields; ``None`` if there are none."""
    rest = stored_value(model, "_rest")
    if isinstance(rest, Flaws):
        return rest
    return None


def add_flaws(model: Model) -> Flaws:
    """Return the flaws of a *model* that is being filled, to add to them."""
    flaws = flaws_of(model)
    if flaws is None:
        flaws = Flaws()
        object.__setattr__(model, "_rest", flaws)
    return flaws


def _models_in(value: object) -> Iterator[tuple[str, Model]]:
    parts: Iterable[tuple[str, object]] = [("", value)]
    if isinstance(value, tuple):
        parts = (
            (f"[{at}]", item) for at, item in enumerate(cast("Sequence[object]", value))
        )
    elif isinstance(value, dict):
        parts = (
            (f".{name}", item)
            for name, item in cast("Mapping[str, object]", value).items()
        )
    for path, item in parts:
        if isinstance(item, Model):
            yield path, item
