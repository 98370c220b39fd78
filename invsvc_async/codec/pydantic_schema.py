"""
What pydantic makes of models, pages, outcomes and events: schemas, validation and serialisation.

Only pydantic itself imports this module, through ``__get_pydantic_core_schema__``.  A *hint* is a type, which
no annotation but ``Any`` describes.

The form is that of the wire, with one difference in JSON: pydantic's encoder writes numbers as floats, which
lose digits.  Exact decimals are therefore strings there, as are the decimals of pydantic's own models.  In
data without a declared type (``extra``, metadata), a number stays a number if a float keeps all its digits.
Input may have strings or numbers; a float with more digits than it can keep is rejected.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin

from msgspec import Raw
from pydantic_core import CoreSchema, PydanticCustomError, SchemaSerializer, core_schema

from invsvc_async.codec.encode import unstructure
from invsvc_async.codec.exact_json import Wire, check, exact, is_array, is_object
from invsvc_async.codec.nesting import DEEPEST
from invsvc_async.errors import InvalidRequestError
from invsvc_async.models.common import Model
from invsvc_async.models.portable import Portable

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler


P = TypeVar("P", bound=Portable)

_KEPT = 15  # significant digits that each float keeps


def core_schema_of(
    cls: type[P], source: Any, handler: GetCoreSchemaHandler
) -> CoreSchema:
    """Return pydantic's schema of *cls*; *source* is the class, or an alias of it with type arguments."""
    arguments = get_args(source)
    wire = core_schema.typed_dict_schema(
        {
            name: core_schema.typed_dict_field(
                _schema_of(hint, handler), required=False
            )
            for name, (hint, _) in cls._wire_types(arguments).items()
        },
        extra_behavior="allow",
        extras_schema=_free_form(),
        metadata={"pydantic_js_updates": {"title": _title(cls, arguments)}},
    )

    def made(plain: dict[str, Any]) -> P:
        try:
            value: P = source.from_dict(cls._with_decimals(plain, with_decimals))
        except InvalidRequestError as error:
            raise ValueError("; ".join(error.problems)) from None
        problems = getattr(value, "problems", ())
        if problems:
            raise ValueError(
                "; ".join(f"{each.address}: {each.why}" for each in problems)
            )
        return value

    def made_unless_it_is(
        value: object, validate: Callable[[object], dict[str, Any]]
    ) -> P:
        if isinstance(value, cls):
            return value
        return made(validate(value))

    made_unless_it_is.__qualname__ = _title(cls, arguments)  # as errors show it
    place = _place(cls)
    if arguments:
        place += f"[{', '.join(map(_place, arguments))}]"
    return core_schema.no_info_wrap_validator_function(
        made_unless_it_is,
        wire,
        serialization=_encoder(cls, source),
        ref=place,
    )


def _place(hint: Any) -> str:
    """Return a name that no other type has."""
    if isinstance(hint, type):
        return f"{hint.__module__}.{hint.__qualname__}"
    return str(hint)


def _title(cls: type[Portable], arguments: tuple[Any, ...]) -> str:
    inner = ", ".join(getattr(each, "__name__", str(each)) for each in arguments)
    if inner:
        return f"{cls.__name__}[{inner}]"
    return cls.__name__


def serializer() -> SchemaSerializer:
    """Return what encodes any of these values where pydantic does not know the type."""
    return SchemaSerializer(core_schema.any_schema(serialization=_encoder()))


def _encoder(
    cls: type[Portable] | None = None, source: Any = None
) -> core_schema.WrapSerializerFunctionSerSchema:
    """Return the schema of what encodes the values of *cls* as *source* says, and others by their class."""

    def serialised(
        value: Portable,
        other: core_schema.SerializerFunctionWrapHandler,
        info: core_schema.SerializationInfo,
    ) -> Wire:
        full = is_object(info.context) and info.context.get("full") is True
        if info.mode == "json":
            plain = jsonable(value, full=full)
        else:
            plain = value._to_public(unstructure, full=full)
        if info.exclude_none:
            hint: Any = type(value)
            if cls is not None and isinstance(value, cls):
                hint = source
            plain = _without_none(hint, plain)
        if info.include is None and info.exclude is None:
            return plain
        return other(plain)

    # The inner schema is for plain data, to which pydantic applies its filters.
    return core_schema.wrap_serializer_function_ser_schema(
        serialised, info_arg=True, schema=core_schema.any_schema()
    )


def _without_none(hint: Any, plain: Wire) -> Wire:
    """Leave out fields that are null. Other data, such as metadata, does not change."""
    types = _wire_types_of(hint)
    found = _by_part(_without_none, hint, plain)
    if types is None or not is_object(found):
        return found
    return {
        name: value
        for name, value in found.items()
        if value is not None or name not in types
    }


def with_decimals(hint: Any, plain: Wire) -> Wire:
    """Replace texts by numbers where *hint* has decimals, which :func:`jsonable` writes as texts."""
    if _without_null(hint) is Decimal and isinstance(plain, str):
        with suppress(ArithmeticError):
            number = exact(plain)
            if number.is_finite():
                return number
            return plain
    return _by_part(with_decimals, hint, plain)


def _by_part(
    convert: Callable[[Any, Wire], Wire],
    hint: Any,
    plain: Wire,
) -> Wire:
    """Convert each item or field of *plain* by its type.  Data without a declared type does not change."""
    kind = _without_null(hint)
    origin = get_origin(kind)
    if is_array(plain) and origin is tuple:
        return [convert(get_args(kind)[0], each) for each in plain]
    if not is_object(plain):
        return plain
    if origin is Mapping:
        return {
            name: convert(get_args(kind)[1], value) for name, value in plain.items()
        }
    types = _wire_types_of(kind) or {}
    return plain | {
        name: convert(types[name], value)
        for name, value in plain.items()
        if name in types
    }


def _wire_types_of(hint: Any) -> dict[str, Any] | None:
    """Return the types of the members of a class of ours, or ``None`` if *hint* is another type."""
    hint = _without_null(hint)
    cls = get_origin(hint) or hint
    if not (isinstance(cls, type) and issubclass(cls, Portable)):
        return None
    return {name: each for name, (each, _) in cls._wire_types(get_args(hint)).items()}


def _without_null(hint: Any) -> Any:
    if get_origin(hint) not in (UnionType, Union):
        return hint
    return next(each for each in get_args(hint) if each is not NoneType)


# --- schemas of types


def _schema_of(hint: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
    """Return the schema of the wire form of a field's type."""
    origin = get_origin(hint)
    arguments = get_args(hint)
    if origin in (UnionType, Union):
        inner = _schema_of(_without_null(hint), handler)
        if NoneType in arguments:
            return core_schema.nullable_schema(inner)
        return inner
    # other texts are accepted, too
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return core_schema.str_schema(
            metadata={"pydantic_js_updates": {"examples": [*map(str, hint)]}}
        )
    if origin is Literal:
        return core_schema.literal_schema([*arguments])
    if origin is tuple:
        return core_schema.list_schema(_schema_of(arguments[0], handler))
    if origin in (Mapping, dict):
        return core_schema.dict_schema(
            core_schema.str_schema(), _schema_of(arguments[1], handler)
        )
    scalar = _SCALARS.get(hint)
    if scalar:
        return scalar()
    return handler.generate_schema(hint)


def _number(value: Wire) -> Wire:
    """Convert a number, as a text too, which pydantic's strict mode would refuse after this function."""
    found = with_decimals(Decimal, _exact(value))
    if type(found) is int:
        return Decimal(found)
    return found


def _free_form() -> CoreSchema:
    return core_schema.no_info_after_validator_function(
        _exact, core_schema.any_schema()
    )


_SCALARS: Mapping[Any, Callable[[], CoreSchema]] = {
    str: core_schema.str_schema,
    bool: core_schema.bool_schema,
    int: core_schema.int_schema,
    float: core_schema.float_schema,
    Decimal: lambda: core_schema.no_info_before_validator_function(
        _number, core_schema.decimal_schema()
    ),
    datetime: core_schema.int_schema,
    Any: _free_form,
    object: core_schema.any_schema,  # may have floats
}


def _exact(value: Wire, levels: int = DEEPEST) -> Wire:
    """Replace floats in *value* by decimals with the same digits; reject those that may have lost some."""
    if isinstance(value, float):
        found = Decimal(repr(value))
        if not found.is_finite() or len(found.as_tuple().digits) > _KEPT:
            raise PydanticCustomError(
                "inexact_number",
                "The number has more digits than a float keeps; send it as a string",
            )
        return found
    if not levels and isinstance(value, (dict, list)):
        raise PydanticCustomError(
            "nested_too_deeply",
            "The value is nested deeper than {levels} levels",
            {"levels": DEEPEST},
        )
    if is_object(value):
        return {name: _exact(item, levels - 1) for name, item in value.items()}
    if is_array(value):
        return [_exact(item, levels - 1) for item in value]
    return value


# --- JSON


def jsonable(value: object, *, full: bool = False) -> Wire:
    """Return the wire form of *value* with numbers that pydantic's encoder writes without loss."""
    if isinstance(value, Model):
        return _lossless(_declared(type(value), unstructure(value)))
    if isinstance(value, Portable):
        return _lossless(value._to_public(jsonable, full=full))
    return _lossless(unstructure(value))


def _declared(hint: Any, plain: Wire) -> Wire:
    """Replace numbers of a declared type by floats, or by strings if it is a decimal, whatever its digits."""
    kind = _without_null(hint)
    if type(plain) in (int, Decimal):
        if kind is Decimal:
            return _digits_of(Decimal(plain))
        if kind is float and abs(plain) <= sys.float_info.max:
            return float(plain)
        return plain
    return _by_part(_declared, hint, plain)


def _lossless(plain: Wire) -> Wire:
    """Replace each decimal in *plain* by a float with the same digits, or else by a string."""
    if is_object(plain):
        return {name: _lossless(item) for name, item in plain.items()}
    if is_array(plain):
        return [_lossless(item) for item in plain]
    if isinstance(plain, Raw):  # a part that could not be decoded
        return bytes(plain).decode(errors="replace")
    if not isinstance(plain, Decimal):
        return plain
    digits = _digits_of(plain)
    if repr(float(plain)) == digits:
        return float(plain)
    return digits


def _digits_of(number: Decimal) -> str:
    if not number.is_finite():
        check(number)  # raises
    return str(number)
