"""What Litestar applications need to return models, pages, outcomes and events."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from enum import Enum
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from litestar.plugins import InitPlugin, OpenAPISchemaPlugin
from litestar.typing import FieldDefinition

from invsvc_async.codec import enc_hook
from invsvc_async.models.portable import Portable

if TYPE_CHECKING:
    from litestar._openapi.schema_generation import SchemaCreator
    from litestar.config.app import AppConfig
    from litestar.openapi.spec import Schema

__all__ = ["LitestarPlugin"]

_JSON: dict[Any, Any] = {Decimal: float, datetime: int}  # as numbers in a schema; times are epoch ms


class LitestarPlugin(InitPlugin, OpenAPISchemaPlugin):
    """
    ``Litestar(…, plugins=[LitestarPlugin()])``: encode models, pages, outcomes and events, and describe them.

    Their JSON is that of ``enc_hook``, with all digits, and has its names and types in the OpenAPI schema.
    """

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Add the encoder of these classes, unless the application has one for them."""
        app_config.type_encoders = {Portable: enc_hook, **(app_config.type_encoders or {})}
        return app_config

    @staticmethod
    def is_plugin_supported_type(value: Any) -> bool:  # Any: a type of an annotation
        """Return whether *value* is one of these classes, or one with type arguments."""
        found = get_origin(value) or value
        return isinstance(found, type) and issubclass(found, Portable)

    def to_openapi_schema(self, field_definition: FieldDefinition, schema_creator: SchemaCreator) -> Schema:
        """Return the schema of the wire form."""
        annotation = field_definition.annotation
        cls = get_origin(annotation) or annotation
        fields = cls._wire_types(get_args(annotation))
        return schema_creator.create_component_schema(
            field_definition,
            required=[name for name, (_, is_required) in fields.items() if is_required],
            property_fields={
                name: FieldDefinition.from_kwarg(_json_type(hint), name) for name, (hint, _) in fields.items()
            },
        )


def _json_type(hint: Any) -> Any:  # Any: a type of the wire form
    """Return a type whose schema is that of the JSON of *hint*.  Enumerations are open, so they are texts."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        if Any in arguments:  # null is in it, and would fit twice
            return Any
        kinds = {_json_type(each): None for each in arguments}  # in order, each once
        return Union[tuple(kinds)]  # noqa: UP007 - made at run time
    if origin is tuple:
        return list[_json_type(arguments[0])]  # type: ignore[misc]  # made at run time
    if origin in (Mapping, dict):
        return dict[str, _json_type(arguments[1])]  # type: ignore[misc]  # the same
    if isinstance(hint, type) and issubclass(hint, Enum):
        return str
    return _JSON.get(hint, hint)
