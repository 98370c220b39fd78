"""
Decoding of items field by field, so that an invalid field does not affect the others.

Each type has one hook, which raises ``MisfitError``.  The hook of a model records it as a problem of that
field.  cattrs, which converts intents and outcomes, is not used here: it gives up an object if a field is
invalid, and each of its hooks would be replaced, because numbers keep their digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar, get_args, get_origin

from msgspec import Raw

from invsvc_async.codec.encode import unstructure
from invsvc_async.codec.exact_json import EPOCH, holds_broken, utc
from invsvc_async.codec.fields import WireField, blank_of, enum_in, fields_of, is_model
from invsvc_async.errors import FieldError
from invsvc_async.models.common import Flaws, Model, add_flaws, once, restore

M = TypeVar("M", bound=Model)
Hook: TypeAlias = Callable[[Any], Any]

# Raises if a digit would be lost.  The bounded exponents prevent 1e999999999 from taking minutes as an int.
_EXACT = Context(
    prec=40,
    Emax=40,
    Emin=-40,
    traps=[Inexact, InvalidOperation, Overflow],
)

_WORDS: Mapping[type[object], str] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    int: "a whole number",
    Decimal: "a number",
    bool: "a boolean",
    type(None): "null",
    Raw: "a value that cannot be decoded",
}
# values of these types are stored as they are, without their hooks
_USUAL = (str, bool, int, Decimal)


class MisfitError(ValueError):
    """A value does not fit the type of its field.  The message says why, without the value."""


def structure_item(cls: type[M], plain: object) -> M:
    """Convert *plain* to a model; if it is not an object, every field of the model has that problem."""
    try:
        made: M = _hook_of(cls)(plain)
    except MisfitError as misfit:
        made = restore(cls, {"_rest": Flaws({"": FieldError("$", plain, str(misfit))})})
    return made


def _expected(what: str, got: object) -> MisfitError:
    return MisfitError(
        f"expected {what}, got {_WORDS.get(type(got), 'something else')}"
    )


def _only(kind: type[object]) -> Hook:
    """Return a hook that takes values of *kind* alone."""

    def hook(value: object) -> object:
        if type(value) is not kind:
            raise _expected(_WORDS[kind], value)
        return value

    return hook


def _number(value: object) -> int | Decimal:
    # from a caller's plain data: our parser makes none
    if isinstance(value, float) and math.isfinite(value):
        return Decimal(repr(value))
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise _expected("a number", value)
    return value


def _whole(value: object) -> int:
    number = _number(value)
    try:
        if isinstance(number, int):
            return number
        return int(_EXACT.to_integral_exact(_EXACT.plus(number)))
    except ArithmeticError:
        raise MisfitError(
            "expected a whole number, got a fraction or too many digits"
        ) from None


def _float(value: object) -> float:
    try:
        found = float(_number(value))
    except OverflowError:
        found = math.inf
    if math.isinf(found):
        raise MisfitError("expected a number within the range of a float")
    return found


def _time(value: object) -> datetime:
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


def _anything(value: object) -> object:
    if holds_broken(value):
        raise MisfitError("contains a value that cannot be decoded")
    return value


_object = _only(dict)
_array = _only(list)
_text = _only(str)
_SCALARS: Mapping[Any, Hook] = {
    str: _text,
    bool: _only(bool),
    int: _whole,
    float: _float,
    Decimal: lambda value: Decimal(_number(value)),
    datetime: _time,
    Any: _anything,
}


@once
def _hook_of(hint: Any) -> Hook:
    """Return the function that converts plain data to the type *hint*."""
    if is_model(hint):
        return _model_hook(hint)
    if (known := enum_in(hint)) is not None:
        return lambda value: known.get(_text(value), value)
    if (origin := get_origin(hint)) is None:
        return _SCALARS[hint]
    inner = get_args(hint)[1 if origin is Mapping else 0]
    # What should be an object and is not keeps its place in a tuple or a mapping.
    each: Hook = partial(structure_item, inner) if is_model(inner) else _hook_of(inner)
    if origin is Mapping:
        return lambda value: {
            name: each(member) for name, member in _object(value).items()
        }

    def items(value: object) -> tuple[Any, ...]:
        array = _array(value)
        try:
            return tuple(map(each, array))
        except MisfitError as misfit:
            raise MisfitError(f"an element: {misfit}") from None

    return items


def _model_hook(cls: type[Model]) -> Hook:
    known = {
        field.wire: (
            field,
            field.type if field.type in _USUAL else None,
            _hook_of(field.type),
        )
        for field in fields_of(cls)
    }
    blank = blank_of(cls)

    def model(plain: object) -> Model:
        made: Any = blank()
        extra = {}
        for name, value in _object(plain).items():
            if name not in known:
                extra[name] = value
                continue
            field, usual, hook = known[name]
            if type(value) is usual:
                setattr(made, field.name, value)
            else:
                _fill(made, field, hook, value)
        if extra:
            made.extra = MappingProxyType(extra)
        made.__class__ = cls
        return made  # type: ignore[no-any-return]

    return model


def _fill(
    made: Any,
    field: WireField,
    hook: Hook,
    value: object,
) -> None:
    """Set *field* of a model that is being made, or record its problem."""
    try:
        found = None if value is None and field.nullable else hook(value)
    except MisfitError as misfit:
        add_flaws(made).problems[field.name] = FieldError(
            f"$.{field.wire}", value, str(misfit)
        )
        return
    setattr(made, field.name, found)
    is_number = type(found) is float or type(value) is Decimal
    if is_number and str(unstructure(found)) != str(value):
        # The same number, but it would be encoded with other digits.
        add_flaws(made).spelt[field.name] = found, value
