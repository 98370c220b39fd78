"""Say what a row of the table of operations is; never hold one."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import attrs

from invsvc_async.codec.shape import Shape

__all__ = ["Form", "Kind", "Operation", "Parameter"]


class Kind(StrEnum):
    """Whether an operation may change anything."""

    READ = "read"
    WRITE = "write"


class Form(StrEnum):
    """What a parameter takes, and so how it is checked."""

    ID = "id"  # text that becomes a segment of the path; for some, the object that bears it
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
    URL = "absolute http(s) URL"
    METADATA = "object of texts"


@attrs.frozen(kw_only=True)
class Parameter:
    """A path, query or body parameter with its constraint, as the specification states it."""

    name: str  # in Python
    where: Literal["path", "query", "body"]
    form: Form = Form.TEXT
    wire: str | None = None  # on the wire; None: a name that the specification does not show
    assumed: str | None = None  # then the attribute of settings.ParameterNames that holds the assumption
    constraint: str = ""  # in words, where the fields below do not say it all
    bearer: str | None = None  # the model whose `id` is taken from an object given in its place
    pattern: str | None = None
    choices: tuple[str, ...] = ()
    minimum: int | None = None  # of a number, of a text's length
    maximum: int | None = None
    nullable: bool = False
    required: bool = False


@attrs.frozen(kw_only=True)
class Operation:
    """One operation: a row of the table."""

    name: str  # "webhooks.create": the resource and its method
    method: str
    path: str  # "/webhooks/{id}"
    kind: Kind = Kind.READ
    shape: Shape = Shape.STANDARD
    result: str  # a class of invsvc_async.models, by name
    many: bool = False  # the payload is a list of them
    authority: str = ""
    # Kinds that the specification admits; with none, no credential is sent.
    credentials: tuple[str, ...] = ("api_key", "oauth_token", "person_token")
    connect: bool = True  # takes the query parameter `team`
    listed: bool = True  # in the specification's list of operations
    parameters: tuple[Parameter, ...] = ()
    # Where the specification says that there is more, but not what.
    extra: tuple[Literal["query", "body"], ...] = ()
    reserved: tuple[str, ...] = ()  # keys of the body that the service sets itself
    reader: str | None = None  # the operation whose answer settles this write
    finder: str | None = None  # the function of reconcile.find that judges that answer
    settled: str = ""  # in words, for the docs
    section: str = ""  # of the specification
