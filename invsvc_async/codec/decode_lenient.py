"""
Decoding of items field by field, so that an invalid field does not affect the others.

Each type has one hook, made at first use and cached by a cattrs converter.  A hook raises ``MisfitError``;
the hook of a model records it as a problem of that field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar, cast, get_args, get_origin

from cattrs import Converter
from msgspec import Raw

from invsvc_async.codec.encode import plain_of
from invsvc_async.codec.exact_json import EPOCH, EXACT_UNTIL, holds_broken, is_array, is_object, utc
from invsvc_async.codec.fields import Field, blank_of, enum_in, fields_of
from invsvc_async.errors import FieldError
from invsvc_async.models.common import UNSET, Flaws, Model, add_flaws, once, restore

__all__ = ["MisfitError", "setter_of", "structure_item"]

M = TypeVar("M", bound=Model)
Hook: TypeAlias = Callable[[Any, Any], Any]

# Raises if a digit would be lost.  The bounded exponents prevent 1e999999999 from taking minutes as an int.
_EXACT = Context(prec=40, Emax=40, Emin=-40, traps=[Inexact, InvalidOperation, Overflow])

_WORDS: Mapping[type[object], str] = {
    dict: "an object", list: "an array", str: "a string", int: "a whole number", Decimal: "a number",
    bool: "a boolean", type(None): "null", Raw: "a value that cannot be decoded",
}  # fmt: skip


# The code that sets a value that came in its usual form, by the type of its field.
_USUAL: dict[Any, str] = {
    str: "if type(v) is str: {0} = v",
    bool: "if type(v) is bool: {0} = v",
    int: "if type(v) is int: {0} = v",
    Decimal: "if type(v) is Decimal: {0} = v\n elif type(v) is int: {0} = Decimal(v)",
    datetime: f"if type(v) is int and 0 <= v < {EXACT_UNTIL}: {{0}} = moment(v / 1000, utc)",
    tuple[str, ...]: "if type(v) is list and {{*map(type, v)}} <= texts: {0} = tuple(v)",
}


class MisfitError(ValueError):
    """A value does not fit the type of its field.  The message says why, without the value."""


def structure_item(cls: type[M], plain: object) -> M:
    """Convert *plain* to a model; if it is not an object, every field of the model has that problem."""
    hook: Hook = converter().get_structure_hook(cls)
    try:
        made: M = hook(plain, cls)
    except MisfitError as misfit:
        made = restore(cls, {"_rest": Flaws({"": FieldError("$", plain, str(misfit))}, {})})
    return made


def _expected(what: str, got: object) -> MisfitError:
    return MisfitError(f"expected {what}, got {_WORDS.get(type(got), 'something else')}")


def _text(value: object, _: object) -> str:
    if type(value) is not str:
        raise _expected("a string", value)
    return value


def _boolean(value: object, _: object) -> bool:
    if type(value) is not bool:
        raise _expected("a boolean", value)
    return value


def _number(value: object) -> int | Decimal:
    if isinstance(value, float) and math.isfinite(value):  # from a caller's plain data: our parser makes none
        return Decimal(repr(value))
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise _expected("a number", value)
    return value


def _decimal(value: object, _: object) -> Decimal:
    return Decimal(_number(value))


def _whole(value: object, _: object) -> int:
    number = _number(value)
    try:
        return number if isinstance(number, int) else int(_EXACT.to_integral_exact(_EXACT.plus(number)))
    except ArithmeticError:
        raise MisfitError("expected a whole number, got a fraction or too many digits") from None


def _float(value: object, _: object) -> float:
    try:
        found = float(_number(value))
    except OverflowError:
        found = math.inf
    if math.isinf(found):
        raise MisfitError("expected a number within the range of a float")
    return found


def _time(value: object, _: object) -> datetime:
    milliseconds = _number(value)
    if not 0 <= milliseconds < 253_402_300_800_000:  # the year 10000
        raise MisfitError("expected epoch milliseconds between 1970 and the year 10000")
    if isinstance(milliseconds, int):
        return utc(milliseconds)
    try:
        microseconds = _EXACT.to_integral_exact(_EXACT.multiply(milliseconds, 1000))
    except ArithmeticError:
        raise MisfitError("expected a time in whole microseconds") from None
    return EPOCH + timedelta(microseconds=int(microseconds))


def _object(value: object) -> dict[str, Any]:
    if not is_object(value):
        raise _expected("an object", value)
    return value


def _free_form(value: object, _: object) -> dict[str, Any]:
    return _object(_anything(value, _))


def _anything(value: object, _: object) -> object:
    if holds_broken(value):
        raise MisfitError("contains a value that cannot be decoded")
    return value


@once
def converter() -> Converter:
    """Return the shared converter.  It makes the hook of a type at first use."""
    made = Converter()
    scalars: dict[Any, Hook] = {
        str: _text, bool: _boolean, int: _whole, float: _float, Decimal: _decimal, datetime: _time,
    }  # fmt: skip
    for kind, hook in scalars.items():
        made.register_structure_hook(kind, hook)
    made.register_structure_hook_factory(_is_anything, _anything_hook)
    made.register_structure_hook_factory(_is_open_enum, _open_enum_hook)
    made.register_structure_hook_factory(_is_tuple, _tuple_hook)
    made.register_structure_hook_factory(_is_mapping, _mapping_hook)
    made.register_structure_hook_factory(_is_model, _model_hook)
    return made


def _is_anything(hint: Any) -> bool:
    return hint is Any


def _is_open_enum(hint: Any) -> bool:
    return enum_in(hint) is not None


def _is_tuple(hint: Any) -> bool:
    return get_origin(hint) is cast("object", tuple)


def _is_mapping(hint: Any) -> bool:
    return get_origin(hint) is cast("object", Mapping)


def _is_model(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Model)


def _anything_hook(_: Any) -> Hook:
    return _anything


def _open_enum_hook(hint: Any) -> Hook:
    known = enum_in(hint) or {}

    def open_enum(value: object, _: object) -> str:
        text = _text(value, _)
        return known.get(text, text)

    return open_enum


def _tuple_hook(hint: Any) -> Hook:
    each = _each_of(get_args(hint)[0])

    def items(value: object, _: object) -> tuple[Any, ...]:
        if not is_array(value):
            raise _expected("an array", value)
        try:
            return tuple(each(value))
        except MisfitError as misfit:
            raise MisfitError(f"an element: {misfit}") from None

    return items


def _mapping_hook(hint: Any) -> Hook:
    inner = get_args(hint)[1]
    if inner is Any:
        return _free_form
    each = _each_of(inner)

    def members(value: object, _: object) -> dict[str, Any]:
        found = _object(value)
        return dict(zip(found, each(found.values()), strict=True))

    return members


def _each_of(inner: Any) -> Callable[[Iterable[object]], list[Any]]:
    """Return a function that converts elements; one that should be an object and is not keeps its place."""
    hook: Hook = converter().get_structure_hook(inner)
    if _is_model(inner):
        return lambda values: [
            hook(value, inner) if is_object(value) else structure_item(inner, value) for value in values
        ]
    return lambda values: [hook(value, inner) for value in values]


def _model_hook(cls: type[Model]) -> Hook:
    known = {field.wire for field in fields_of(cls)}
    fill = _filler_of(cls)
    blank = blank_of(cls)

    def model(plain: object, _: object) -> Model:
        if not is_object(plain):
            raise _expected("an object", plain)
        made: Any = blank()
        fill(made, plain.get)
        if not plain.keys() <= known:
            made.extra = MappingProxyType({name: plain[name] for name in plain if name not in known})
        made.__class__ = cls
        return made  # type: ignore[no-any-return]

    return model


def _filler_of(cls: type[Model]) -> Callable[[Model, Callable[..., Any]], None]:
    """Generate the function that fills a blank of *cls*.  It calls hooks for values in an unusual form."""
    names: dict[str, Any] = {
        "unset": UNSET, "fill": _fill, "Decimal": Decimal, "moment": datetime.fromtimestamp, "utc": UTC,
        "texts": {str},
    }  # fmt: skip
    lines = ["def filler(o, get):", " pass"]
    for field in fields_of(cls):
        names[f"f_{field.name}"] = field
        names[f"h_{field.name}"] = converter().get_structure_hook(field.type)
        lines += [
            f" v = get({field.wire!r}, unset)",
            f" {_usual(field, names).format(f'o.{field.name}')}",
            f" elif v is not unset: fill(o, f_{field.name}, h_{field.name}, v)",
        ]
    exec("\n".join(lines), names)  # noqa: S102 - the code contains only our own field names
    return names["filler"]  # type: ignore[no-any-return]


def _usual(field: Field, names: dict[str, Any]) -> str:
    """Return the code that sets a value of *field* in its usual form."""
    if (known := enum_in(field.type)) is not None:
        names[f"known_{field.name}"] = known.get
        return f"if type(v) is str: {{0}} = known_{field.name}(v, v)"
    if _is_model(field.type):
        return f"if type(v) is dict: {{0}} = h_{field.name}(v, unset)"
    return _USUAL.get(field.type, "if False: pass")


def setter_of(field: Field) -> Callable[[Any, object], None]:
    """Return the function that sets *field* of a model that is being made, or records its problem."""
    hook = converter().get_structure_hook(field.type)
    return lambda made, value: _fill(made, field, hook, value)


def _fill(made: Any, field: Field, hook: Hook, value: object) -> None:
    try:
        found = None if value is None and field.nullable else hook(value, field.type)
    except MisfitError as misfit:
        add_flaws(made).problems[field.name] = FieldError(f"$.{field.wire}", value, str(misfit))
        return
    setattr(made, field.name, found)
    if (type(found) is float or type(value) is Decimal) and str(plain_of(found)) != str(value):
        # The same number, but it would be encoded with other digits.
        add_flaws(made).spelt[field.name] = found, value
