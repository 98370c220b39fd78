"""
The whole API as one table.

Resource methods, argument checks, the reference in the docs and the tests all read these rows.  Result
types and kinds of writes are given by name and resolved where they are used, so that importing this is cheap.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from invsvc_async.api.event_types import EVENT_TYPES
from invsvc_async.codec.envelope import Shape


class OperationKind(StrEnum):
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
    # on the wire; None: the specification does not show the name
    wire: str | None = None
    # in that case, the attribute of settings.ParameterNames with the assumed name
    assumed: str | None = None
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
    kind: OperationKind = OperationKind.READ
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
    # of a write: the key in reconcile.kinds.KINDS of what decides about it
    write_kind: str | None = None
    settled: str = ""  # in words, for the docs


_TEAM_ID = r"[A-Za-z0-9_-]{1,128}"
_WEBHOOK_ID = r"wh_[^/\s]+"
_PAYMENT_ID = r"[A-Za-z0-9_-]{1,160}"
_UUID4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_PERSON = ("person_token",)

Fields: TypeAlias = Any  # the other fields of a row, each of its own type

_WITHOUT_READ: dict[str, Any] = {
    "write_kind": "write without a read",
    "settled": "The specification has no read for it. The caller's reader decides; without one: unknown "
    "at once.",
}


def _path(name: str, wire: str = "id", **more: Fields) -> Parameter:
    return Parameter(
        name=name, where="path", form=Form.ID, wire=wire, required=True, **more
    )


def _body(
    name: str, form: Form = Form.TEXT, *, wire: str | None = None, **more: Fields
) -> Parameter:
    return Parameter(name=name, where="body", form=form, wire=wire or name, **more)


def _query(name: str, form: Form = Form.TEXT, **more: Fields) -> Parameter:
    return Parameter(name=name, where="query", form=form, wire=name, **more)


def _unnamed(
    name: str, form: Form = Form.TEXT, *, assumed: str | None = None, **more: Fields
) -> Parameter:
    return Parameter(
        name=name, where="query", form=form, assumed=assumed or name, **more
    )


def _operation(
    name: str, request: str, result: str, *rows: Parameter, **more: Fields
) -> Operation:
    """Return the row of a *request*: its method and its path."""
    method, path = request.split(" ")
    kind = OperationKind.READ if method == "GET" else OperationKind.WRITE
    return Operation(
        name=name,
        method=method,
        path=path,
        kind=kind,
        result=result,
        parameters=rows,
        **more,
    )


_PAGE_SIZE: dict[str, Any] = {"minimum": 1, "maximum": 100}
_LISTING = (
    _unnamed(
        "limit",
        Form.INTEGER,
        constraint="items per page; the service's default is 10",
        **_PAGE_SIZE,
    ),
    _unnamed("cursor", constraint="`next` of the previous page"),
    _unnamed("order_by", choices=("name", "timestamp")),
    _unnamed("order", choices=("asc", "desc")),
    _unnamed("created_after", Form.TIME, constraint="inclusive; sent as epoch ms"),
    _unnamed("created_before", Form.TIME, constraint="inclusive; sent as epoch ms"),
    _query("idempotency_key", constraint="exact match"),
)
_STATUS = ("active", "inactive")

# The table has several fields to a line.
# fmt: off
JOURNEYS_UPDATE = _operation(
    "journeys.update", "PUT /journeys/{id}", "Journey",
    _path("journey", bearer="Journey"),
    _body("name", minimum=1, maximum=150),
    _body("description", maximum=1000, nullable=True),
    _body("graph", Form.GRAPH, nullable=True),
    _body("trigger_type", wire="triggerType", nullable=True),
    _body("replaces_defaults", Form.FLAG, wire="replacesDefaults", nullable=True),
    authority="admin in the selected team",
    needs_field=True, reader="journeys.get", write_kind="update of a journey",
    settled="The journey is read back; its fields and its `last_updated` decide.",
)
JOURNEYS_GET = _operation("journeys.get", "GET /journeys/{id}", "Journey", _path("journey_id"), listed=False)
INVOICES_EGRESS = _operation(
    "invoices.egress", "GET /invoices/egress", "Invoice",
    *_LISTING,
    _unnamed("client_id"),
    _unnamed("client_tax_id"),
    _query("status", choices=("valid", "canceled", "cancelled")),
    _query("series", constraint="exact match"),
    _query("folio", Form.FOLIO, constraint="exact match"),
    Parameter(name="metadata", where="query", form=Form.METADATA, wire="metadata.<key>"),
    _unnamed("page", Form.INTEGER, minimum=1, constraint="only with metadata filters"),
    shape=Shape.LIST, many=True,
)
INVOICES_PAYMENT_COMPLEMENTS = _operation(
    "invoices.payment_complements", "GET /invoices/payment", "Invoice",
    *_LISTING,
    shape=Shape.LIST, many=True,
)
INVOICES_DOWNLOAD_STATUS = _operation(
    "invoices.download_status", "GET /invoices/download/status/{request_id}", "DownloadRequest",
    _path("request_id", "request_id"),
)
RETENTIONS_FILES = _operation(
    "retentions.files", "GET /retentions/{id}/files", "RetentionFile",
    _path("retention_id"),
    _query("file_type", choices=("pdf", "xml"), constraint="both if left out"),
    many=True,
)
TEAMS_CREATE = _operation(
    "teams.create", "POST /teams", "Team",
    _body("legal_name"),
    _body("tax_id"),
    _body("tax_system"),
    _body("address", Form.OBJECT),
    _body("brand", Form.OBJECT),
    _body("support_email"),
    _body("support_phone"),
    _body("generate_onboarding_url", Form.FLAG),
    _body("metadata", Form.OBJECT),
    _body("add_members", Form.MEMBERS),
    _body("add_master_team_members", Form.FLAG),
    _body("credit_limit", Form.NUMBER, nullable=True, constraint="documents per billing period"),
    authority="a plan with `multipleIssuerAccounts` (else 403) and suppliers (else 401)",
    extra=("body",), reserved=("team", "livemode", "owner"), **_WITHOUT_READ,
)
TEAMS_DBTABLE_WEBHOOKS = _operation(
    "teams.dbtable_webhooks", "GET /teams/{id}/integrations/dbtable/webhooks", "DbtableWebhooks",
    _path("team_id", pattern=_TEAM_ID),
    _query("scope", choices=("mode", "shared")),
    _unnamed("state", assumed="dbtable_state", choices=("active", "expired", "disabled")),
    _unnamed("limit", Form.INTEGER, assumed="dbtable_limit", **_PAGE_SIZE),
    authority="a person's token, with current authority in the team", credentials=_PERSON, extra=("query",),
)
TEAMS_DBTABLE_TABLES = _operation(
    "teams.dbtable_tables", "GET /teams/{id}/integrations/dbtable/bases/{baseId}/tables", "DbtableTables",
    _path("team_id", pattern=_TEAM_ID), _path("base_id", "baseId", pattern=_TEAM_ID),
    authority="a person's token, with current authority in the team", credentials=_PERSON, extra=("query",),
)
USERS_GET = _operation("users.get", "GET /users/{id}", "User", _path("user_id"))
USERS_UPDATE_PREFERENCES = _operation(
    "users.update_preferences", "PATCH /users/me/preferences/{teamId}", "Preferences",
    _path("team_id", "teamId", pattern=r"[A-Za-z0-9_-]{1,256}"),
    _body("testmode", Form.FLAG, required=True),
    authority="a person's token, with active membership in the team", credentials=_PERSON, extra=("body",),
    **_WITHOUT_READ,
)
PAYMENTS_LINK = _operation(
    "payments.link", "GET /payments/links/{linkId}", "PaymentLink",
    _path("link_id", "linkId", pattern=r"plink[A-Za-z0-9_-]{1,155}"),
    authority="the payment module",
)
PAYMENTS_REMINDER_OPERATION = _operation(
    "payments.reminder_operation", "GET /payments/{paymentId}/reminder-operations/{operationId}",
    "ReminderOperation",
    _path("payment_id", "paymentId", pattern=_PAYMENT_ID),
    _path("operation_id", "operationId", pattern=_UUID4),
    extra=("query",),
)
SHEETS_SAVE_MAPPING = _operation(
    "sheets.save_mapping", "PUT /sheets/mapping", "SheetConnection",
    _body("fields", Form.OBJECT, required=True),
    authority="editor, and editor on the target module, in the selected team", extra=("body",),
    **_WITHOUT_READ,
)
WEBHOOKS_LIST = _operation(
    "webhooks.list", "GET /webhooks", "Webhook",
    _query("limit", Form.INTEGER, constraint="the service's default is 10", **_PAGE_SIZE),
    _query("status", choices=_STATUS),
    many=True,
    shape=Shape.OPEN,  # the standard envelope, but what says that the list is cut off must be seen
)
WEBHOOKS_GET = _operation(
    "webhooks.get", "GET /webhooks/{id}", "Webhook", _path("webhook_id", pattern=_WEBHOOK_ID)
)
WEBHOOKS_CREATE = _operation(
    "webhooks.create", "POST /webhooks", "Webhook",
    _body("url", Form.URL, required=True),
    _body("events", Form.EVENTS, choices=EVENT_TYPES, required=True),
    _body("description"),
    _body("status", choices=_STATUS, constraint="the service's default is active"),
    extra=("body",), reader="webhooks.list", write_kind="create of a webhook",
    settled="The webhooks are listed; the tag decides, or equal content created at the time of the send.",
)
WEBHOOKS_UPDATE = _operation(
    "webhooks.update", "PUT /webhooks/{id}", "Webhook",
    _path("webhook", pattern=_WEBHOOK_ID, bearer="Webhook"),
    _body("url", Form.URL),
    _body("events", Form.EVENTS, choices=EVENT_TYPES),
    _body("description"),
    _body("status", choices=_STATUS),
    shape=Shape.OPEN,
    extra=("body",), needs_field=True, reader="webhooks.get", write_kind="update of a webhook",
    settled="The webhook is read back and compared with its state before the write (the baseline).",
)
WEBHOOKS_DELETE = _operation(
    "webhooks.delete", "DELETE /webhooks/{id}", "Deleted",
    _path("webhook", pattern=_WEBHOOK_ID, bearer="Webhook"),
    shape=Shape.OPEN, reader="webhooks.get", write_kind="delete of a webhook",
    settled="The webhook is read back; a 404 means that it was deleted.",
)
WEBHOOKS_HEALTH = _operation(
    "webhooks.health", "GET /webhooks/health", "Health", shape=Shape.BARE, credentials=(), connect=False
)

# Requests that the specification does not list: method and path come with the request.
CLIENT_REQUEST = _operation("client.request", "GET ", "Envelope", shape=Shape.OPEN, listed=False)
CLIENT_DOWNLOAD = _operation("client.download", "GET ", "bytes", shape=Shape.BARE, listed=False)
CLIENT_WRITE = _operation("client.write", "POST ", "object", shape=Shape.OPEN, listed=False, **_WITHOUT_READ)

# fmt: on
TABLE: tuple[Operation, ...] = tuple(
    each for each in globals().values() if isinstance(each, Operation)
)
BY_NAME: dict[str, Operation] = {operation.name: operation for operation in TABLE}
