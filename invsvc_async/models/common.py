"""
Hold what every model shares: fields that may be absent or broken, unknown fields, pages; never any I/O.

A field without a value leaves its slot unset.  That costs nothing while all is well, and reading an
unset slot lands in ``__getattr__``, which knows whether the field was absent or broken.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar, cast, overload

import attrs

from invsvc_async._errors import NONE_CAME, FieldError

__all__ = ["UNSET", "Address", "Meta", "Model", "Page", "Unset"]

T_co = TypeVar("T_co", covariant=True)
M = TypeVar("M", bound="Model")
F = TypeVar("F", bound=Callable[..., Any])


class Unset(Enum):
    """The type of ``UNSET``: a field that is left out, which is not the same as null."""

    UNSET = "UNSET"

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET
ABSENT: Any = UNSET  # Any: the default of fields of every type
NO_EXTRA: Mapping[str, Any] = MappingProxyType({})


def wire(name: str) -> dict[str, str]:
    """Give the metadata of a field whose *name* on the wire is not its own."""
    return {"wire": name}


@attrs.frozen(kw_only=True, slots=False)  # with slots, a frozen class takes three times as long to fill
class Meta:
    """
    What an answer said beside its payload.

    ``message`` of the service, ``timestamp`` its own time (aware, UTC), ``request_id`` where a header gives
    one.

    Spec: Response envelopes.
    """

    message: str | None = None
    timestamp: datetime | None = None
    request_id: str | None = None


def once(make: F) -> F:
    """Keep what *make* gives for its arguments (``functools.cache``, whose signature refuses classes)."""
    return cast("F", cache(make))


class Source(Protocol):
    """The wire form of an item, read again only when somebody asks for its unknown fields."""

    def plain(self) -> Any:
        """Give the item as plain data."""


Place: TypeAlias = "Source | tuple[Place, str | int]"


@attrs.define
class Flaws:
    """
    What of an item does not fit its fields.

    ``problems`` by field name ("" stands for the whole item); ``spelt``, by field name, a value with the
    other spelling in which it came (``3.0`` for 3).
    """

    problems: dict[str, FieldError]
    spelt: dict[str, tuple[object, object]]


@once
def wire_names(cls: type[Model]) -> dict[str, str]:
    """Give the wire name of each field of *cls*, by its name here."""
    own = (field for field in attrs.fields(cls) if field.name not in _SHARED)
    return {field.name: field.metadata.get("wire", field.name.rstrip("_")) for field in own}


@once
def _nullable(cls: type[Model]) -> frozenset[str]:
    return frozenset(
        field.name for field in attrs.fields(cls) if str(field.type).endswith("| None") or field.type == "Any"
    )


def _plain_at(place: Place) -> Any:
    return _plain_at(place[0])[place[1]] if isinstance(place, tuple) else place.plain()


def restore(cls: type[M], slots: Mapping[str, object], extra: Mapping[str, Any] = NO_EXTRA) -> M:
    """Make a model of *cls* from the values of its slots, unchecked."""
    model = cls.__new__(cls)
    for name, value in slots.items():
        object.__setattr__(model, name, value)
    object.__setattr__(model, "extra", MappingProxyType(extra) if extra else NO_EXTRA)
    return model


@attrs.frozen(kw_only=True, eq=False, repr=False, getstate_setstate=False)
class Model:
    """
    A value of the service: frozen, with exact numbers and UTC times.

    Reading a field that was absent gives ``None`` where the specification lets it be null or left out, and
    raises ``FieldError`` otherwise; so does reading one that broke its type.  ``extra`` holds unknown
    fields by their wire names; ``meta`` what the answer said beside, and takes no part in equality.
    Equality takes an absent field and a null one as the same.
    """

    extra: Mapping[str, Any] = attrs.field(default=ABSENT, repr=False)
    meta: Meta | None = attrs.field(default=None, eq=False, repr=False)
    _rest: Flaws | Source | tuple[Any, str | int] | None = attrs.field(
        init=False, default=None, eq=False, repr=False
    )

    def __attrs_post_init__(self) -> None:
        given = {field.name: object.__getattribute__(self, field.name) for field in attrs.fields(type(self))}
        broken = {name: value for name, value in given.items() if isinstance(value, FieldError)}
        for name, value in given.items():
            if value is UNSET or name in broken:
                object.__delattr__(self, name)
        if given["extra"]:
            object.__setattr__(self, "extra", MappingProxyType(dict(given["extra"])))
        if broken:
            object.__setattr__(self, "_rest", Flaws(broken, {}))

    @property
    def problems(self) -> tuple[FieldError, ...]:
        """Every field, of this item and of those within it, that broke its type."""
        rest = self._rest
        if rest is not None and not isinstance(rest, Flaws):
            return ()  # came by the fast way, which admits none
        own = tuple(rest.problems.values()) if rest else ()
        return own + tuple(
            FieldError(f"$.{name}{path}{problem.address[1:]}", problem.raw, problem.why)
            for field, name in wire_names(type(self)).items()
            for path, model in _models_in(self._slot(field))
            for problem in model.problems
        )

    def _slot(self, name: str) -> Any:
        """Give what the slot holds, or UNSET."""
        try:
            return object.__getattribute__(self, name)
        except AttributeError:
            return UNSET

    def _is_of_wire(self) -> bool:
        """Tell whether it surely was decoded: then its wire form can be had at any time."""
        return self._slot("_rest") is not None

    def _problem(self, name: str) -> FieldError | None:
        problems = self._rest.problems if isinstance(self._rest, Flaws) else {}
        return problems.get(name) or problems.get("")

    def _held(self) -> tuple[object, ...]:
        """Give what equality looks at: values, and of broken fields what came instead."""
        return tuple(self._held_in(name) for name in wire_names(type(self)))

    def _held_in(self, name: str) -> object:
        value = self._slot(name)
        if value is not UNSET:
            return value
        if problem := self._problem(name):
            return problem.why, problem.raw
        return None if name in _nullable(type(self)) else UNSET

    def _unknown(self) -> Mapping[str, Any]:
        """Give the unknown fields: found in the wire form at first use, which is then let go."""
        rest = self._rest
        if rest is None or isinstance(rest, Flaws):
            return NO_EXTRA
        known = set(wire_names(type(self)).values())
        found = {name: value for name, value in _plain_at(rest).items() if name not in known}
        extra = MappingProxyType(found) if found else NO_EXTRA
        object.__setattr__(self, "extra", extra)
        object.__setattr__(self, "_rest", None)
        return extra

    if not TYPE_CHECKING:  # else a type checker would take every name for a field

        def __getattr__(self, name: str) -> Any:
            if name == "extra":
                return self._unknown()
            if name in _SHARED:
                return None
            if name not in wire_names(type(self)):
                raise AttributeError(
                    f"{type(self).__name__!r} has no attribute {name!r}", name=name, obj=self
                )
            problem = self._problem(name)
            if sys._getframe(1).f_code is attrs.evolve.__code__:  # noqa: SLF001 - it reads all, and must carry gaps over
                return (problem if problem and problem.address != "$" else None) or UNSET
            if (
                problem
            ):  # a new one each time: an error that is raised again keeps every frame it went through
                raise FieldError(problem.address, problem.raw, problem.why)
            if name in _nullable(type(self)):
                return None
            raise FieldError(f"$.{wire_names(type(self))[name]}", None, NONE_CAME)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._held() == other._held() and self.extra == other.extra

    def __hash__(self) -> int:
        return hash((type(self), self._held()))

    def __repr__(self) -> str:
        shown = (field.name for field in attrs.fields(type(self)) if field.repr)
        held = ((name, self._slot(name)) for name in shown)
        return f"{type(self).__name__}({', '.join(f'{name}={it!r}' for name, it in held if it is not UNSET)})"

    def __reduce__(self) -> tuple[Any, ...]:
        extra = dict(self.extra)  # first: it lets the wire form go
        slots = {name: self._slot(name) for name in (*wire_names(type(self)), "meta", "_rest")}
        held = {name: value for name, value in slots.items() if value is not UNSET}
        return restore, (type(self), held, extra)


_SHARED: Final = ("extra", "meta", "_rest")


def _models_in(value: Any) -> Iterator[tuple[str, Model]]:  # Any: what a slot holds
    parts: Iterable[tuple[str, object]] = [("", value)]
    if isinstance(value, tuple):
        parts = ((f"[{at}]", item) for at, item in enumerate(cast("Sequence[object]", value)))
    elif isinstance(value, dict):
        parts = ((f".{name}", item) for name, item in cast("Mapping[str, object]", value).items())
    yield from ((path, item) for path, item in parts if isinstance(item, Model))


@attrs.frozen(kw_only=True)
class Page(Sequence[T_co], Generic[T_co]):
    """
    One page of a list, in the service's order.

    ``next`` is the cursor of the following page (cursor lists), ``page`` and ``per_page`` the numbers of
    metadata-filtered ones; what the answer did not give is ``None``.  ``timestamp`` is aware, UTC.

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
    meta: Meta | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def problems(self) -> tuple[FieldError, ...]:
        """Every field of any item that broke its type, by its address in the answer (``$.data[3].total``)."""
        return tuple(
            FieldError(f"$.data[{at}]{problem.address[1:]}", problem.raw, problem.why)
            for at, item in enumerate(self.items)
            for problem in getattr(item, "problems", ())
        )

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


@attrs.frozen(kw_only=True, eq=False, repr=False, getstate_setstate=False)
class Address(Model):
    """
    A postal address; ``country`` is a 3-letter code.

    Spec: Client, Team.
    """

    street: str = ABSENT
    exterior: str = ABSENT
    neighborhood: str = ABSENT
    city: str = ABSENT
    state: str = ABSENT
    zip: str = ABSENT
    country: str = ABSENT
