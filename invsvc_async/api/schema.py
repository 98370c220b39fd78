"""The classes that a row of the table of operations consists of."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from invsvc_async.codec.envelope import Shape

__all__ = ["Form", "Kind", "Operation", "Parameter"]


class Kind(StrEnum):
    """Whether an operation may change anything."""

    READ = "read"
    WRITE = "write"


class Form(StrEnum):
    """What a parameter accepts; it determines the check."""

    ID = "id"  # text that becomes a segment of the path; for some parameters also the object with that id
    TEXT = "text"
    FOLIO = "text or whole number"
    INTEGER = "whole number"
    NUMBER = "number"
    FLAG = "boolean"
    TIME = "aware datetime, date or epoch ms"
    OBJECT = "object"
    GRAPH = "journey graph"
    MEMBERS = "list of {id, role}"
    EVENTS = "list of event types"
    URL = "absolute URL"
    METADATA = "object of texts"


class Parameter(Struct, frozen=True, kw_only=True):
    """A path, query or body parameter with its constraint, as the specification states it."""

    name: str  # in Python
    where: Literal["path", "query", "body"]
    form: Form = Form.TEXT
    wire: str | None = None  # on the wire; None: the specification does not show the name
    assumed: str | None = None  # in that case, the attribute of settings.ParameterNames with the assumed name
    constraint: str = ""  # in words, beyond the fields below
    bearer: str | None = None  # the model that may be passed instead of its `id`
    pattern: str | None = None
    choices: tuple[str, ...] = ()
    minimum: int | None = None  # of a number, or of the length of a text
    maximum: int | None = None
    nullable: bool = False
    required: bool = False


class Operation(Struct, frozen=True, kw_only=True):
    """One operation: a row of the table."""

    name: str  # "webhooks.create": the resource and its method
    method: str
    path: str  # "/webhooks/{id}"
    kind: Kind = Kind.READ
    shape: Shape = Shape.STANDARD
    result: str  # the name of a class of invsvc_async.models
    many: bool = False  # the payload is a list of them
    authority: str = ""
    # The kinds that the specification allows.  If empty, no credential is sent.
    credentials: tuple[str, ...] = ("api_key", "oauth_token", "person_token")
    connect: bool = True  # has the query parameter `team`
    listed: bool = True  # in the specification's list of operations
    parameters: tuple[Parameter, ...] = ()
    # Where the specification mentions further parameters without naming them.
    extra: tuple[Literal["query", "body"], ...] = ()
    # A body without any is surely a mistake, although the specification allows it, and no read could show it.
    needs_field: bool = False
    reserved: tuple[str, ...] = ()  # keys of the body that the service sets itself
    reader: str | None = None  # the operation whose answer settles this write
    write_kind: str | None = None  # of a write: the key in reconcile.kinds.KINDS of what decides about it
    settled: str = ""  # in words, for the docs
    section: str = ""  # of the specification
