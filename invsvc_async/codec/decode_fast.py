"""
Fast decoding of valid items, by code generated from the attrs classes.

For each class a ``msgspec.Struct`` mirrors its fields, and a generated function copies a decoded mirror into
the attrs object.  Anything unusual raises, and the item is decoded by ``decode_lenient``.

Unknown fields that an item had are added to the mirrors (``grown``), so that those of later items cost no
more than known ones.  Without this, an item would have to be copied, and read again for its unknown fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Annotated, Any, Final, NoReturn, TypeAlias, TypeVar, get_args, get_origin

import msgspec
from msgspec import Raw, UnsetType

from invsvc_async.codec.exact_json import EXACT_UNTIL, UNREADABLE, exact, salvage
from invsvc_async.codec.fields import Field, blank_of, enum_in, fields_of
from invsvc_async.codec.nesting import NestingError, check_depth
from invsvc_async.codec.unknown_fields import Grown, grown_by
from invsvc_async.errors import UnreadableResponseError
from invsvc_async.models.common import Model, once

__all__ = ["check", "decode_all", "refused", "sound"]

T = TypeVar("T", bound=Model)
Build: TypeAlias = "Callable[..., Any]"  # takes a mirror and its Place, if the item is kept
One: TypeAlias = "Callable[[Raw | bytes], Any]"

_AT: Final = r"(?s)Expected .* - at `\$\.(\w+)"  # where a value has the wrong type
_UNKNOWN = "contains unknown field"
_LEARNED: Final = 16  # times: each makes new classes, which takes some milliseconds and stays in memory
_AROUND: Final = 2  # levels around an item of a list: the array and the envelope
_Milliseconds = Annotated[int, msgspec.Meta(ge=0, lt=EXACT_UNTIL)]


class _Item:
    """
    The wire form of one item, decoded at first use.

    It is a copy, because a slice would keep the whole page in memory.  It is checked to be UTF-8, because the
    parser does not check what it skips.
    """

    __slots__ = ("_plain", "_raw")

    def __init__(self, raw: Raw | bytes) -> None:
        self._raw: bytes | None = bytes(raw)
        self._raw.decode()

    def plain(self) -> Any:
        if self._raw is not None:
            self._plain = salvage(self._raw)
            self._raw = None
        return self._plain


class _Expected:
    """The fast decoder of a class.  It includes the unknown fields that items had so far."""

    __slots__ = ("cls", "decode", "grown", "left")

    def __init__(self, cls: type[Model]) -> None:
        self.cls = cls
        self.grown: Grown = ()
        self.left = _LEARNED
        self.decode = _decoder_of(cls, ())

    def learn(self, raw: Raw | bytes) -> bool:
        """Add the unknown fields of an item.  Returns whether the item can now be decoded."""
        if not self.left:
            return False
        self.left -= 1
        self.grown = grown_by(self.cls, salvage(raw), self.grown)
        self.decode = _decoder_of(self.cls, self.grown)
        with suppress(*UNREADABLE):
            self.decode(raw)
            return True
        return False


_expected = once(_Expected)


def decode_all(cls: type[T], raws: Sequence[Raw | bytes]) -> tuple[T, ...]:
    """
    Decode each item in the way that accepted the last one, or else in a more general one.

    Raises:
        UnreadableResponseError: An item is nested too deeply.
    """
    made: list[T] = []
    decode = _expected(cls).decode
    for raw in raws:
        check(cls, raw, around=_AROUND)
        try:
            made.append(decode(raw))
        except UNREADABLE as refusal:
            found, decode = _retried(cls, raw, decode, refusal)
            made.append(found)
    return tuple(made)


def sound(cls: type[Model]) -> One:
    """Return the fastest decoder of an item.  It raises one of UNREADABLE if it rejects the item."""
    return _expected(cls).decode


def refused(cls: type[T], raw: Raw | bytes, refusal: Exception) -> T:
    """Decode an item that the decoder of :func:`sound` rejected."""
    return _retried(cls, raw, _expected(cls).decode, refusal)[0]


def check(cls: type[Model], raw: Raw | bytes, *, around: int = 0) -> None:
    """
    Check the depth of an item, which *around* levels surround.

    Raises:
        UnreadableResponseError: It is nested too deeply.
    """
    try:
        check_depth(raw, around=around)
    except NestingError as cause:
        raise UnreadableResponseError(
            f"the {cls.__name__} in the answer cannot be read: {cause}. Look at .raw.", raw=bytes(raw)
        ) from None


def _retried(cls: type[T], raw: Raw | bytes, decode: One, refusal: Exception) -> tuple[T, One]:
    """Decode an item that *decode* rejected, and return the decoder to go on with."""
    found: T
    general = _decoder_of(cls, None)
    fast = _expected(cls)
    if suspect := _field_of(cls, refusal):
        with suppress(*UNREADABLE):
            found = _decoder_of(cls, fast.grown, suspect)(raw)
            return found, decode
    elif decode is not general and not isinstance(refusal, _UnusualError):
        with suppress(*UNREADABLE):
            found = general(raw)
            learned = _UNKNOWN in str(refusal) and fast.learn(raw)
            return found, fast.decode if learned else general
    from invsvc_async.codec.decode_lenient import structure_item

    return structure_item(cls, salvage(raw)), decode


def _field_of(cls: type[Model], refusal: Exception) -> str:
    """Return the field of *cls* whose value was of the wrong type, or "" if *refusal* does not name one."""
    if isinstance(refusal, _UnusualError):
        return refusal.field if refusal.cls is cls else ""
    found = re.match(_AT, str(refusal))
    return next((field.name for field in fields_of(cls) if found and field.wire == found[1]), "")


@once
def _decoder_of(cls: type[Model], grown: Grown | None, suspect: str = "") -> One:
    """
    Make the function that decodes an item to its model.

    With *grown*, the item may have these unknown fields only, and must have all fields that are not nullable.
    With ``None`` instead, it may have any unknown fields and lack any field; a copy of the item is kept.  The
    field *suspect* may have a value of any type.
    """
    mirror = msgspec.json.Decoder(_mirror_of(cls, grown, suspect), float_hook=exact).decode
    build = _build_of(cls, grown, suspect)
    if grown is not None:
        return lambda raw: build(mirror(raw))
    return lambda raw: build(mirror(raw), _Item(raw))


@once
def _mirror_of(cls: type[Model], grown: Grown | None, suspect: str = "") -> type[msgspec.Struct]:
    wires = {field.name: field.wire for field in fields_of(cls)} | _unknown_in(cls, grown)
    order = {wire: at for at, wire in enumerate(_order_of(cls, grown))}
    fields = [_mirrored(field, grown, free=field.name == suspect) for field in fields_of(cls)]
    fields += [(name, Any, msgspec.UNSET) for name in _unknown_in(cls, grown)]
    return msgspec.defstruct(
        f"{cls.__name__}Mirror",
        sorted(fields, key=lambda field: order.get(wires[field[0]], 0)),  # the next field is tried first
        rename=wires,
        forbid_unknown_fields=grown is not None,
        kw_only=True,
        gc=False,
    )


def _order_of(cls: type[Model], grown: Grown | None) -> tuple[str, ...]:
    return dict(grown or ()).get(cls, ())


def _unknown_in(cls: type[Model], grown: Grown | None) -> dict[str, str]:
    """Return the unknown fields of *cls*: their names on the wire by those in its mirror."""
    known = {field.wire for field in fields_of(cls)}
    names = (name for name in _order_of(cls, grown) if name not in known)
    return {f"unknown_{at}": name for at, name in enumerate(names)}


def _mirrored(field: Field, grown: Grown | None, *, free: bool) -> Any:
    hint = Any if free else _mirrored_type(field.type, grown)
    if field.nullable:
        hint |= None
    return (
        (field.name, hint | UnsetType, msgspec.UNSET) if _may_be_absent(field, grown) else (field.name, hint)
    )


def _mirrored_type(hint: Any, grown: Grown | None) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if _is_model(hint):
        return _mirror_of(hint, grown)
    if origin is tuple:
        as_it_is = _made(args[0], "w", "", grown, {}) == "w"
        return hint if as_it_is else list[_mirrored_type(args[0], grown)]  # type: ignore[misc]
    if origin is Mapping:
        return dict[str, _mirrored_type(args[1], grown)]  # type: ignore[misc]
    if enum_in(hint):
        return str
    return {Decimal: Any, float: Any, datetime: _Milliseconds}.get(hint, hint)


def _is_model(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Model)


def _may_be_absent(field: Field, grown: Grown | None) -> bool:
    return field.nullable or grown is None


@once
def _build_of(cls: type[Model], grown: Grown | None, suspect: str = "") -> Build:
    """Generate the function that copies a mirror of *cls* into the model."""
    names: dict[str, object] = _names_of(cls)
    lines = [
        "def build(s, place=None):",
        " o = blank()",
        *([" o._rest = place"] if grown is None else []),
    ]
    for field in fields_of(cls):
        copy = _copy_suspect if field.name == suspect else _copy
        lines += copy(field, grown, names)
    lines += _copy_unknown(_unknown_in(cls, grown), names)
    lines += [" o.__class__ = cls", " return o"]
    exec("\n".join(lines), names)  # noqa: S102 - the code contains only our own field names
    return names["build"]  # type: ignore[return-value]


def _names_of(cls: type[Model]) -> dict[str, object]:
    """Return the names that generated code uses."""
    return {
        "blank": blank_of(cls), "cls": cls, "Decimal": Decimal, "as_float": _float, "wholes": _WHOLES,
        "moment": datetime.fromtimestamp, "proxy": MappingProxyType, "unset": msgspec.UNSET,
        "unusual": _unusual, "utc": UTC,
    }  # fmt: skip


def _copy_unknown(unknown: Mapping[str, str], names: dict[str, object]) -> list[str]:
    if not unknown:
        return []
    names.update(unknown)  # the service chose these names: they must not become code
    lines = [f" if (v := s.{name}) is not unset: e[{name}] = v" for name in unknown]
    return [" e = {}", *lines, " if e: o.extra = proxy(e)"]


def _copy_suspect(field: Field, _: Grown | None, names: dict[str, object]) -> list[str]:
    """Generate the code for a field whose value may not fit: it becomes a problem of this field."""
    from invsvc_async.codec.decode_lenient import setter_of

    names["set_it"] = setter_of(field)
    return [f" if s.{field.name} is not unset: set_it(o, s.{field.name})"]


def _copy(field: Field, grown: Grown | None, names: dict[str, object]) -> list[str]:
    place = f"(place, {field.wire!r})" if grown is None else ""
    made = _made(field.type, "v", place, grown, names, field.name)
    if _may_be_absent(field, grown):
        null = "None if v is None else " if field.nullable and made != "v" else ""
        return [f" v = s.{field.name}", f" if v is not unset: o.{field.name} = {null}{made}"]
    if made == "v":
        return [f" o.{field.name} = s.{field.name}"]
    return [f" v = s.{field.name}", f" o.{field.name} = {made}"]


def _made(
    hint: Any, value: str, place: str, grown: Grown | None, names: dict[str, object], field: str = ""
) -> str:
    """Generate the expression that converts *value* of a mirror to *hint*; *place* is its Place, if kept."""
    origin, args = get_origin(hint), get_args(hint)
    if _is_model(hint):
        names[hint.__name__] = _build_of(hint, grown)
        return f"{hint.__name__}({value}, {place})" if place else f"{hint.__name__}({value})"
    if origin is tuple or (origin is Mapping and args[1] is not Any):
        inner = args[-1] if origin is Mapping else args[0]
        one = _made(inner, "w", f"({place}, i)" if place else "", grown, names)
        return _made_each(origin, inner, value, one)
    if known := enum_in(hint):
        names[(table := f"known_{len(names)}")] = known.get
        return f"{table}({value}, {value})"
    templates = {
        Decimal: "{0} if type({0}) is Decimal else wholes[{0}] if type({0}) is int else unusual(cls, {1!r})",
        float: "as_float({0})",
        datetime: "moment({0} / 1000, utc)",
    }
    return templates.get(hint, "{0}").format(value, field)


def _made_each(container: Any, inner: Any, value: str, one: str) -> str:
    if container is Mapping:
        return f"{{i: {one} for i, w in {value}.items()}}"
    if one == "w":
        return value
    if one == f"{getattr(inner, '__name__', '')}(w)":
        return f"tuple(map({inner.__name__}, {value}))"
    return f"tuple([{one} for i, w in enumerate({value})])"


class _UnusualError(ValueError):
    """A value that ``decode_lenient`` must judge, in the *field* of *cls*."""

    def __init__(self, cls: object = None, field: str = "") -> None:
        self.cls = cls
        self.field = field


class _Wholes(dict[int, Decimal]):
    """
    Integers as decimals; the small ones, common in quantities and rates, are made in advance.

    With this, a page of 100 invoices is decoded in 690 instead of 715 µs (on 3.11).
    """

    def __missing__(self, number: int) -> Decimal:
        return Decimal(number)


_WHOLES = _Wholes({number: Decimal(number) for number in range(101)})


def _unusual(cls: object, field: str) -> NoReturn:
    raise _UnusualError(cls, field)


def _float(number: object) -> float:
    """Return the float that is encoded with the same digits as *number*."""
    if type(number) is int and abs(number) < 2**53:
        return float(number)
    if type(number) is Decimal:
        found = float(number)
        if not found.is_integer() and str(Decimal(repr(found))) == str(number):
            return found
    raise _UnusualError
