"""The tools, made from the table of operations: their names, descriptions and arguments."""

from __future__ import annotations

import inspect
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

import attrs

from invsvc_async.api.operations import TABLE, Form, OperationKind
from invsvc_async.api.parameters import wire_name
from invsvc_async.client import options_of
from invsvc_async.errors import ConfigurationError
from invsvc_async.resources.by_name import did_you_mean, method_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from invsvc_async.api.operations import Operation, Parameter
    from invsvc_async.client import Client
    from invsvc_async.codec.exact_json import WireObject

KEY: Final = "key"
CONFIRM: Final = "confirm"
CONTINUE: Final = "continue_with"
_PLACES_OF_PAGES: Final = ("cursor", "page")  # in whose place CONTINUE stands
_MOST_IN_KEY: Final = 200  # characters

_KEY_WORDS = (
    "The business action, the same in every retry: an order number, a ticket, a row of a table. Make it of "
    "what was asked for, never of the time or at random. The same key has one effect, however often it is "
    "used."
)
_CONFIRM_WORDS = (
    "The digest of the plan. Without it, the answer is the plan and nothing is sent."
)
_CONTINUE_WORDS = "From the answer before, for the page that follows."
_OF_KEYED_WRITES = (
    "Writes once under its key. If no answer comes, or the verdict is unknown, call it again with the same "
    "key and the same arguments: it looks first, and sends again only on proof that nothing happened."
)
# In place of the first sentences of the method, which are for programs.
_DESCRIPTIONS: Final = {
    "webhooks.create": (
        "Subscribe a URL to events. The secret that signs deliveries goes to the operator of this server."
    ),
    "webhooks.get": "Read a webhook.",
    "webhooks.list": "Read the webhooks of the team, at most 100: there is no page after the first.",
    "invoices.egress": "Read a page of the invoices that were issued.",
    "invoices.payment_complements": (
        "Read a page of the payment complements, which register payments of invoices. Their totals are zero."
    ),
}
_PATTERNS: Final = "Use a name such as users.get, or a pattern such as webhooks.*."
_TYPES: Final[Mapping[Form, WireObject]] = {
    Form.ID: {"type": "string"},
    Form.TEXT: {"type": "string"},
    Form.FOLIO: {"type": ["string", "integer"]},
    Form.INTEGER: {"type": "integer"},
    Form.NUMBER: {"type": "number"},
    Form.FLAG: {"type": "boolean"},
    Form.TIME: {
        "type": ["string", "integer"],
        "description": "a time with its offset (2026-05-01T00:00:00Z), a date (its midnight in UTC), or "
        "epoch milliseconds",
    },
    Form.OBJECT: {"type": "object"},
    Form.GRAPH: {
        "type": "object",
        "required": ["nodes", "edges"],
        "description": "nodes, edges, and perhaps a viewport, with the keys of the specification only",
    },
    Form.MEMBERS: {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["id", "role"],
            "properties": {"id": {"type": "string"}, "role": {"type": "string"}},
        },
    },
    Form.EVENTS: {"type": "array", "items": {"type": "string"}},
    Form.URL: {"type": "string", "format": "uri"},
    Form.METADATA: {"type": "object", "additionalProperties": {"type": "string"}},
}


@attrs.frozen(kw_only=True)
class Tool:
    """One operation as a tool.  ``takes`` are the parameters that an agent may give, by their names."""

    name: str
    operation: Operation
    description: str
    takes: Mapping[str, Parameter]
    schema: WireObject

    @property
    def writes(self) -> bool:
        """Whether a call of the tool may change anything."""
        return self.operation.kind is OperationKind.WRITE


def tools_for(
    client: Client,
    *,
    only: Sequence[str] = (),
    read_only: bool = False,
    dry_run: bool = False,
) -> dict[str, Tool]:
    """
    Return the tools for the credential of *client*, by their names.

    *only* are patterns of operations, such as ``webhooks.*``; none stands for all.  A tool has the name of
    its operation with an underscore, because some models accept no dot.

    Raises:
        ConfigurationError: A pattern fits no operation, or nothing is left.
    """
    listed = [row for row in TABLE if not row.name.startswith("client.")]
    _check_patterns(only, [row.name for row in listed])
    kind = options_of(client).core.credential.kind
    patterns = only or ("*",)
    offered = [
        row for row in listed if _is_offered(row, kind, patterns, read_only=read_only)
    ]
    if not offered:
        raise ConfigurationError(
            "only: no operation is left for this kind of credential, and without writes if they are switched "
            "off. Name others."
        )
    tools = [_tool(client, row, dry_run=dry_run) for row in offered]
    return {tool.name: tool for tool in tools}


def _check_patterns(patterns: Sequence[str], names: Sequence[str]) -> None:
    """Raise ConfigurationError if one of the *patterns* fits none of the *names*."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            hint = did_you_mean(pattern, names)
            raise ConfigurationError(
                f"only: {pattern!r} fits no operation. {hint or _PATTERNS}"
            )


def _is_offered(
    row: Operation,
    kind: str,
    patterns: Sequence[str],
    *,
    read_only: bool,
) -> bool:
    """Return whether the operation fits a pattern, and is open to this *kind* of credential."""
    if read_only and row.kind is OperationKind.WRITE:
        return False
    if row.credentials and kind not in row.credentials:
        return False  # the specification does not open it to this kind
    return any(fnmatchcase(row.name, pattern) for pattern in patterns)


def _tool(client: Client, row: Operation, *, dry_run: bool) -> Tool:
    names = options_of(client).names
    takes: dict[str, Parameter] = {}
    for each in row.parameters:
        if row.many and each.name in _PLACES_OF_PAGES:
            continue
        if wire_name(each, names) is not None:
            takes[each.name] = each
    return Tool(
        name=row.name.replace(".", "_"),
        operation=row,
        description=_description(client, row),
        takes=takes,
        schema=_schema(row, takes, dry_run=dry_run),
    )


def _description(client: Client, row: Operation) -> str:
    """Return what the operation does, whom it is open to, and how to call a write."""
    documented = inspect.getdoc(method_of(client, row.name)) or ""
    first = _DESCRIPTIONS.get(row.name, documented.split("\n\n")[0])
    sentences = [re.sub(r"``|\*(?=\w)|(?<=\w)\*", "", " ".join(first.split()))]
    if row.authority:
        sentences.append(f"Needs {row.authority}.")
    if row.kind is OperationKind.WRITE:
        sentences.append(_OF_KEYED_WRITES)
    return " ".join(sentences)


def _schema(
    row: Operation,
    takes: Mapping[str, Parameter],
    *,
    dry_run: bool,
) -> WireObject:
    """Return the JSON schema of the arguments."""
    properties: WireObject = {name: _accepted(each) for name, each in takes.items()}
    required: list[Any] = [name for name, each in takes.items() if each.required]
    if row.kind is OperationKind.WRITE:
        properties[KEY] = {
            "type": "string",
            "minLength": 1,
            "maxLength": _MOST_IN_KEY,
            "description": _KEY_WORDS,
        }
        required.append(KEY)
        if dry_run:
            properties[CONFIRM] = {"type": "string", "description": _CONFIRM_WORDS}
    elif has_pages(row):
        properties[CONTINUE] = {"type": "string", "description": _CONTINUE_WORDS}
    schema: WireObject = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    if required:
        schema["required"] = required
    return schema


def has_pages(row: Operation) -> bool:
    """Return whether the operation is a list whose answer may have a page after it."""
    if not row.many:
        return False
    return any(each.name == "cursor" for each in row.parameters)


def _accepted(row: Parameter) -> WireObject:
    """Return the schema of one argument."""
    schema: dict[str, Any] = dict(_TYPES[row.form])
    words = [schema.pop("description", ""), row.constraint]
    described = "; ".join(filter(None, words))
    if described:
        schema["description"] = described
    if row.pattern is not None:
        schema["pattern"] = f"^{row.pattern}$"
    if row.choices and row.form is Form.EVENTS:
        schema["items"] = {**schema["items"], "enum": [*row.choices]}
    elif row.choices:
        schema["enum"] = [*row.choices]
    schema |= _limits(row)
    if row.nullable:
        schema["type"] = [schema["type"], "null"]
    return schema


def _limits(row: Parameter) -> WireObject:
    """Return the least and the most of a number, or of the length of a text."""
    if row.form in {Form.INTEGER, Form.NUMBER}:
        limits = {"minimum": row.minimum, "maximum": row.maximum}
    else:
        limits = {"minLength": row.minimum, "maxLength": row.maximum}
    return {name: limit for name, limit in limits.items() if limit is not None}
