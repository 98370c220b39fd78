"""The OpenAPI description of the embedded service: its routes, with what the table says of each."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeAlias, get_args, get_origin

from invsvc_async import __version__, models
from invsvc_async.api.operations import BY_NAME, Form, Operation, Parameter
from invsvc_async.codec.envelope import Shape
from invsvc_async.codec.fields import enum_in, fields_of, is_model
from invsvc_async.settings import ParameterNames
from invsvc_async.simulator.operations import BY_OPERATION, Route

Schema: TypeAlias = dict[str, Any]  # JSON

_SECURITY = {"bearer": {"type": "http", "scheme": "bearer"}}
_TIME = "seconds, milliseconds, or ISO 8601"
_TYPES: dict[object, Schema] = {  # of types of fields, and forms of arguments
    **{each: {"type": "boolean"} for each in (bool, Form.FLAG)},
    **{each: {"type": "integer"} for each in (int, Form.INTEGER)},
    **{each: {"type": "number"} for each in (float, Decimal, Form.NUMBER)},
    **{each: {"type": "object"} for each in (Form.OBJECT, Form.GRAPH)},
    str: {"type": "string"},
    Any: {},
    datetime: {"type": "number", "description": "epoch milliseconds"},
    Form.FOLIO: {"type": ["string", "integer"]},
    Form.TIME: {"type": ["string", "integer"], "description": _TIME},
    Form.EVENTS: {"type": "array"},
    Form.MEMBERS: {
        "type": "array",
        "items": {"type": "object", "required": ["id", "role"]},
    },
    Form.URL: {"type": "string", "format": "uri"},
}


def description() -> Schema:
    """Return the OpenAPI 3.1 description of the operations that the specification describes."""
    text = _TYPES[str]
    details = {"details": {"type": ["string", "array"], "items": text}}
    error = _object({"code": text, "message": text} | details, "code", "message")
    envelope = {"success": {"const": False}, "error": error, "timestamp": _TYPES[int]}
    schemas = {
        "Error": _object(envelope, *envelope),
        "Unauthorized": _object({"message": text}, "message"),
    }
    paths: dict[str, Schema] = {}
    for route in BY_OPERATION.values():
        if not route.named_only:
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(
                route, schemas
            )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "The embedded service of invsvc_async",
            "version": __version__,
        },
        "servers": [{"url": "/v2"}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {"securitySchemes": _SECURITY, "schemas": schemas},
    }


def _operation(route: Route, schemas: dict[str, Schema]) -> Schema:
    row = BY_NAME[route.operation]
    words = " ".join((route.run.__doc__ or "").split())
    assumed = ParameterNames()
    body: dict[str, Parameter] = {}
    parameters: list[Schema] = []
    for each in row.parameters:
        name = each.wire or getattr(assumed, str(each.assumed))
        if each.where == "body":
            body[name] = each
        elif "<" in name:  # OpenAPI has no names with a free part
            words += f" It also takes `{name}` in the query."
        else:
            parameters.append(_parameter(name, each))
    status = "200"
    if route.method == "POST":
        status = "201"
    found: Schema = {
        "operationId": route.operation,
        "tags": [route.operation.partition(".")[0]],
        "description": words,
        "parameters": parameters,
        "responses": {
            status: _json("Success", _answer(row, schemas)),
            "4XX": _json(
                "Refused", {"anyOf": [_reference("Error"), _reference("Unauthorized")]}
            ),
            "5XX": {
                "description": "By a fault: nothing says whether a write was applied"
            },
        },
    }
    if row.connect:
        found["parameters"].append(
            {"name": "team", "in": "query", "schema": {"type": "string"}}
        )
    if body:
        found["requestBody"] = _body(body, takes_others="body" in row.extra)
    if route.public:
        found["security"] = []
    return found


def _parameter(name: str, row: Parameter) -> Schema:
    return {
        "name": name,
        "in": row.where,
        "required": row.required,
        "schema": _accepted(row),
    }


def _body(members: Mapping[str, Parameter], *, takes_others: bool) -> Schema:
    required = [name for name, each in members.items() if each.required]
    schema = _object(
        {name: _accepted(each) for name, each in members.items()}, *required
    )
    schema["additionalProperties"] = takes_others
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _accepted(parameter: Parameter) -> Schema:
    found = {**_TYPES.get(parameter.form, _TYPES[str])}
    if parameter.choices:
        choices: Schema = {"enum": [*parameter.choices]}
        if parameter.form is Form.EVENTS:
            choices = {"items": choices}
        found |= choices
    if parameter.pattern:
        found["pattern"] = f"^{parameter.pattern}$"
    for limit, number in (("min", parameter.minimum), ("max", parameter.maximum)):
        if number is None:
            continue
        if found["type"] == "string":
            found[f"{limit}Length"] = number
        else:
            found[f"{limit}imum"] = number
    return _or_null(found, parameter.nullable)


def _answer(row: Operation, schemas: dict[str, Schema]) -> Schema:
    payload = _schema(getattr(models, row.result), schemas)
    if row.shape is Shape.BARE:
        return payload
    if row.result == "SheetConnection":  # the one that is a member of the payload
        payload = _object({"connection": payload}, "connection")
    if row.many:
        payload = {"type": "array", "items": payload}
    members: Schema = {
        "success": {"const": True},
        "message": _TYPES[str],
        "timestamp": _TYPES[int],
        "data": payload,
    }
    if row.shape is Shape.OPEN:
        required = ["success"]
    else:
        required = ["success", "data", "timestamp"]
    if row.shape is Shape.LIST:
        members |= {
            "has_more": {"type": "boolean"},
            "next": {"type": ["string", "null"]},
        }
        required.append("has_more")
    return _object(members, *required)


def _schema(hint: Any, schemas: dict[str, Schema]) -> Schema:
    """Return the schema of a type, and add those of models to *schemas*."""
    if is_model(hint):
        if hint.__name__ not in schemas:
            schemas[hint.__name__] = {}
            fields = fields_of(hint)
            members = {
                each.wire: _or_null(_schema(each.type, schemas), each.nullable)
                for each in fields
            }
            required = [each.wire for each in fields if not each.nullable]
            schemas[hint.__name__] = _object(members, *required)
        return _reference(hint.__name__)
    if known_members := enum_in(hint):
        return {"type": "string", "examples": [*known_members]}
    origin = get_origin(hint)
    arguments = get_args(hint)
    if origin is tuple:
        return {"type": "array", "items": _schema(arguments[0], schemas)}
    if origin in (Mapping, dict):
        return {
            "type": "object",
            "additionalProperties": _schema(arguments[1], schemas),
        }
    return _TYPES[hint]


def _object(members: Schema, *required: str) -> Schema:
    return {"type": "object", "required": [*required], "properties": members}


def _or_null(schema: Schema, nullable: bool) -> Schema:  # noqa: FBT001 - as in the tables
    if schema and nullable:
        return {"anyOf": [schema, {"type": "null"}]}
    return schema


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(words: str, schema: Schema) -> Schema:
    return {"description": words, "content": {"application/json": {"schema": schema}}}
