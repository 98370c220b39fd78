"""How values leave the package: plain data, JSON, pydantic, rich and notebooks, for all classes alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast, get_args

import attrs

from invsvc_async.errors import InvalidRequestError, UnreadableResponseError

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

    from invsvc_async.codec.exact_json import WireObject

__all__ = ["FieldName", "Portable", "hide_fields", "html_table", "keep_arguments"]

_LONGEST_CELL = 200  # characters


class _Serializer:
    """The serializer by which pydantic encodes a value where it does not know the type."""

    def __get__(self, value: object, owner: type[Portable]) -> object:
        from invsvc_async.codec.pydantic_schema import serializer

        return serializer()


class FieldName(str):
    """
    The name of a field, as attrs reads it from a class.

    A model that is read by it, as by ``attrs.evolve``, returns for an absent or broken field what the class
    takes for it, and raises nothing.
    """

    __slots__ = ()


@cache
def _named(cls: type[Portable]) -> tuple[attrs.Attribute[Any], ...]:
    fields = cls._attrs
    return type(fields)(field.evolve(name=FieldName(field.name)) for field in fields)


class _Fields:
    """The ``__attrs_attrs__`` of all classes, which attrs reads and msgspec does not find."""

    def __get__(self, value: object, owner: type[Portable]) -> object:
        return _named(owner)  # type: ignore[arg-type]  # classes can be hashed


def hide_fields(cls: type[Portable]) -> None:
    """
    Hide the attrs fields of *cls* from msgspec.

    It would encode an instance of any attrs class by its Python names, secrets included, and not ask
    ``enc_hook``.  It has no documented way to leave a class to that hook.  It looks for the attribute in the
    class itself, where attrs uses inheritance.
    """
    fields = cls.__dict__.get("__attrs_attrs__")
    if fields is not None:
        cls._attrs = fields
        del cls.__attrs_attrs__


class Portable:
    """
    The base class of models, pages, outcomes and events: values with a plain wire form.

    A subclass defines ``_to_plain``, ``_from_plain``, and for pydantic ``_wire_types``.  The codec is a layer
    above the models, so the methods import it when they are called.
    """

    __slots__ = ()

    # the members that pydantic shows; all, if there are none here
    _public: ClassVar[tuple[str, ...]] = ()
    if TYPE_CHECKING:
        _attrs: ClassVar[tuple[attrs.Attribute[Any], ...]]
    __attrs_attrs__: ClassVar[Any] = _Fields()  # Any: as attrs has it

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        hide_fields(cls)

    def to_dict(self) -> WireObject:
        """
        Return the wire form as plain data: numbers are ``int`` or exact ``Decimal``, times epoch ms.

        Raises:
            InvalidRequestError: A value has no wire form, such as a time without a zone.
        """
        from invsvc_async.codec.encode import unstructure

        return self._to_plain(unstructure)

    def to_json(self) -> str:
        """
        Return the wire form as JSON.  Numbers keep all digits.  Bytes that are no UTF-8 become U+FFFD.

        Raises:
            InvalidRequestError: As for :meth:`to_dict`.
        """
        from invsvc_async.codec.exact_json import dumps

        return dumps(self.to_dict()).decode(errors="replace")

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:  # Any: as in to_dict
        """
        Return the value with the wire form *plain*, as :meth:`to_dict` returns it.

        A field of the wrong type does not affect the others, as in an answer of the service: it is listed in
        ``problems`` if the class has that.

        Raises:
            InvalidRequestError: It is not an object, lacks what the class needs, or contains what JSON cannot
                represent: NaN, a key that is not a string, more than 256 levels.
        """
        return _from_dict(cls, (), plain)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """
        Return the value with the wire form in *text*, as :meth:`to_json` returns it.

        Raises:
            InvalidRequestError: It is not JSON, or as for :meth:`from_dict`.
        """
        return _from_json(cls, (), text)

    def _to_plain(self, convert: Callable[[object], Any], /) -> dict[str, Any]:
        """Return the wire form; *convert* returns that of a part."""
        raise NotImplementedError

    def _to_public(
        self, convert: Callable[[object], Any], *, full: bool = False
    ) -> dict[str, Any]:
        """Return the part of the wire form that pydantic, and so an endpoint, shows."""
        return self._to_plain(convert)

    @classmethod
    def _from_plain(cls, plain: dict[str, Any], arguments: tuple[Any, ...], /) -> Self:
        """*arguments* are those of the type: of ``Page[Invoice]``, ``(Invoice,)``."""
        raise NotImplementedError

    @classmethod
    def _with_decimals(
        cls, plain: dict[str, Any], _convert: Callable[[Any, Any], Any], /
    ) -> dict[str, Any]:
        """Return *plain*, read by pydantic; the function makes decimals of texts, given a type and a part."""
        return plain

    @classmethod
    def _wire_types(cls, arguments: tuple[Any, ...], /) -> dict[str, tuple[Any, bool]]:
        """Return the type of each member of the wire form, and whether it is required, by wire name."""
        raise NotImplementedError

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        # Any: a class or an alias of it, such as Page[Invoice]
        from invsvc_async.codec.pydantic_schema import core_schema_of

        return core_schema_of(cls, source, handler)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        from inspect import cleandoc

        made = handler(schema)
        found = handler.resolve_ref_schema(made)
        found.setdefault(
            "description", re.split(r"\n\n|  Spec: ", cleandoc(cls.__doc__ or ""))[0]
        )
        required = [
            name
            for name, (_, is_required) in cls._wire_types(()).items()
            if is_required
        ]
        # Not of input: the service may leave out a field, and what was stored must be readable again.
        if handler.mode != "serialization":
            return made
        if required:
            found["required"] = required
        if cls._public:
            found["properties"] = {
                name: found["properties"][name] for name in cls._public
            }
        return made

    if not TYPE_CHECKING:
        __pydantic_serializer__ = _Serializer()

        @property
        def __dict__(self) -> dict[str, Any]:
            """
            The wire form with numbers that survive conversion to floats.

            FastAPI takes what ``vars`` returns of a value whose endpoint has no return annotation.  A class
            cannot say otherwise how it is encoded there: its encoders are a setting of each application.
            """
            from invsvc_async.codec.pydantic_schema import jsonable

            return jsonable(self)

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        """Yield what the repr shows, for rich."""
        for field in self._attrs:
            if not field.repr:
                continue
            with suppress(AttributeError):  # an absent field
                value: object = object.__getattribute__(self, field.name)
                if callable(field.repr):
                    value = _Verbatim(field.repr(value))
                yield field.name, value

    def _repr_html_(self) -> str:
        """Return a table of what the repr shows, for notebooks."""
        rows = ((name, _in_cell(value)) for name, value in self.__rich_repr__())
        return html_table(type(self).__name__, ("field", "value"), rows)


P = TypeVar("P", bound=Portable)


def _from_dict(cls: type[P], arguments: tuple[Any, ...], plain: object) -> P:
    from invsvc_async.codec.encode import unstructure
    from invsvc_async.codec.exact_json import check

    try:
        copied = unstructure(plain) if isinstance(plain, Mapping) else plain
    except RecursionError:
        raise InvalidRequestError(f"{cls.__name__}: is nested too deeply") from None
    check(copied)
    return _from_wire(cls, arguments, copied)


def _from_wire(cls: type[P], arguments: tuple[Any, ...], plain: object) -> P:
    if not isinstance(plain, dict):
        raise InvalidRequestError(
            f"{cls.__name__}: expected an object, got {type(plain).__name__}"
        )
    return cls._from_plain(cast("dict[str, Any]", plain), arguments)


def _from_json(cls: type[P], arguments: tuple[Any, ...], text: str | bytes) -> P:
    from invsvc_async.codec.exact_json import loads_text

    try:
        plain = loads_text(text)
    except (UnreadableResponseError, UnicodeEncodeError):
        raise InvalidRequestError(
            f"{cls.__name__}: the text is not valid JSON"
        ) from None
    return _from_wire(cls, arguments, plain)


def keep_arguments(cls: type[Portable], alias: Any) -> Any:  # Any: typing's own class
    """Make ``from_dict`` and ``from_json`` of *alias*, such as ``Page[Invoice]``, know its arguments."""
    for name, read in (("from_dict", _from_dict), ("from_json", _from_json)):
        object.__setattr__(alias, name, partial(read, cls, get_args(alias)))
    return alias


class _Verbatim(str):
    """A text whose repr is the text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _in_cell(value: object) -> str | None:
    """Return *value* for the cell of a table: a text as it is, all else by its repr."""
    if value is None or isinstance(value, str):
        return value
    return repr(value)


def html_table(
    title: str,
    columns: Iterable[str],
    rows: Iterable[Iterable[object]],
) -> str:
    """Return an HTML table.  All texts are escaped, and long ones are cut."""
    from html import escape

    def text(value: object) -> str:
        if value is None:
            return ""
        shown = str(value)
        if len(shown) > _LONGEST_CELL:
            shown = f"{shown[:_LONGEST_CELL]}…"
        return escape(shown)

    def cells(tag: str, values: Iterable[object]) -> str:
        return "".join(f"<{tag}>{text(value)}</{tag}>" for value in values)

    head = cells("th", columns)
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return (
        f"<table><caption>{text(title)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )
