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

__all__ = ["BY_NAME", "EVENT_TYPES", "TABLE", "Form", "Kind", "Operation", "Parameter"]


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


_TEAM_ID = r"[A-Za-z0-9_-]{1,128}"
_WEBHOOK_ID = r"wh_[^/\s]+"
_PAYMENT_ID = r"[A-Za-z0-9_-]{1,160}"
_UUID4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_PERSON = ("person_token",)

Fields: TypeAlias = Any  # the other fields of a Parameter, each of its own type

_WITHOUT_READ: dict[str, Any] = {
    "kind": Kind.WRITE,
    "write_kind": "write without a read",
    "settled": "The specification has no read for it. The caller's reader decides; without one: unknown "
    "at once.",
}


def _path(name: str, wire: str = "id", *, pattern: str | None = None, bearer: str | None = None) -> Parameter:
    return Parameter(
        name=name, where="path", form=Form.ID, wire=wire, pattern=pattern, bearer=bearer, required=True
    )


def _body(name: str, form: Form = Form.TEXT, *, wire: str | None = None, **constraints: Fields) -> Parameter:
    return Parameter(name=name, where="body", form=form, wire=wire or name, **constraints)


def _query(name: str, form: Form = Form.TEXT, **constraints: Fields) -> Parameter:
    return Parameter(name=name, where="query", form=form, wire=name, **constraints)


def _unnamed(
    name: str, form: Form = Form.TEXT, *, assumed: str | None = None, **constraints: Fields
) -> Parameter:
    return Parameter(name=name, where="query", form=form, assumed=assumed or name, **constraints)


_PAGE_SIZE: dict[str, Any] = {"minimum": 1, "maximum": 100}
_LISTING = (
    _unnamed("limit", Form.INTEGER, constraint="items per page; the service's default is 10", **_PAGE_SIZE),
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
JOURNEYS_UPDATE = Operation(
    name="journeys.update", method="PUT", path="/journeys/{id}", kind=Kind.WRITE, result="Journey",
    authority="admin in the selected team",
    parameters=(
        _path("journey", bearer="Journey"),
        _body("name", minimum=1, maximum=150),
        _body("description", maximum=1000, nullable=True),
        _body("graph", Form.GRAPH, nullable=True),
        _body("trigger_type", wire="triggerType", nullable=True),
        _body("replaces_defaults", Form.FLAG, wire="replacesDefaults", nullable=True),
    ),
    needs_field=True, reader="journeys.get", write_kind="update of a journey",
    settled="The journey is read back; its fields and its `last_updated` decide.",
)
JOURNEYS_GET = Operation(
    name="journeys.get", method="GET", path="/journeys/{id}", result="Journey", listed=False,
    parameters=(_path("journey_id"),),
)
INVOICES_EGRESS = Operation(
    name="invoices.egress", method="GET", path="/invoices/egress", shape=Shape.LIST, result="Invoice",
    many=True,
    parameters=(
        *_LISTING,
        _unnamed("client_id"),
        _unnamed("client_tax_id"),
        _query("status", choices=("valid", "canceled", "cancelled")),
        _query("series", constraint="exact match"),
        _query("folio", Form.FOLIO, constraint="exact match"),
        Parameter(name="metadata", where="query", form=Form.METADATA, wire="metadata.<key>"),
        _unnamed("page", Form.INTEGER, minimum=1, constraint="only with metadata filters"),
    ),
)
INVOICES_PAYMENT_COMPLEMENTS = Operation(
    name="invoices.payment_complements", method="GET", path="/invoices/payment", shape=Shape.LIST,
    result="Invoice", many=True,
    parameters=_LISTING,
)
INVOICES_DOWNLOAD_STATUS = Operation(
    name="invoices.download_status", method="GET", path="/invoices/download/status/{request_id}",
    result="DownloadRequest",
    parameters=(_path("request_id", "request_id"),),
)
RETENTIONS_FILES = Operation(
    name="retentions.files", method="GET", path="/retentions/{id}/files", result="RetentionFile", many=True,
    parameters=(
        _path("retention_id"),
        _query("file_type", choices=("pdf", "xml"), constraint="both if left out"),
    ),
)
TEAMS_CREATE = Operation(
    name="teams.create", method="POST", path="/teams", result="Team",
    authority="a plan with `multipleIssuerAccounts` (else 403) and suppliers (else 401)",
    parameters=(
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
    ),
    extra=("body",), reserved=("team", "livemode", "owner"),
    **_WITHOUT_READ,
)
TEAMS_DBTABLE_WEBHOOKS = Operation(
    name="teams.dbtable_webhooks", method="GET", path="/teams/{id}/integrations/dbtable/webhooks",
    result="DbtableWebhooks",
    authority="a person's token, with current authority in the team",
    credentials=_PERSON,
    parameters=(
        _path("team_id", pattern=_TEAM_ID),
        _query("scope", choices=("mode", "shared")),
        _unnamed("state", assumed="dbtable_state", choices=("active", "expired", "disabled")),
        _unnamed("limit", Form.INTEGER, assumed="dbtable_limit", **_PAGE_SIZE),
    ),
    extra=("query",),
)
TEAMS_DBTABLE_TABLES = Operation(
    name="teams.dbtable_tables", method="GET", path="/teams/{id}/integrations/dbtable/bases/{baseId}/tables",
    result="DbtableTables",
    authority="a person's token, with current authority in the team",
    credentials=_PERSON,
    parameters=(_path("team_id", pattern=_TEAM_ID), _path("base_id", "baseId", pattern=_TEAM_ID)),
    extra=("query",),
)
USERS_GET = Operation(
    name="users.get", method="GET", path="/users/{id}", result="User",
    parameters=(_path("user_id"),),
)
USERS_UPDATE_PREFERENCES = Operation(
    name="users.update_preferences", method="PATCH", path="/users/me/preferences/{teamId}",
    result="Preferences",
    authority="a person's token, with active membership in the team",
    credentials=_PERSON,
    parameters=(
        _path("team_id", "teamId", pattern=r"[A-Za-z0-9_-]{1,256}"),
        _body("testmode", Form.FLAG, required=True),
    ),
    extra=("body",),
    **_WITHOUT_READ,
)
PAYMENTS_LINK = Operation(
    name="payments.link", method="GET", path="/payments/links/{linkId}", result="PaymentLink",
    authority="the payment module",
    parameters=(_path("link_id", "linkId", pattern=r"plink[A-Za-z0-9_-]{1,155}"),),
)
PAYMENTS_REMINDER_OPERATION = Operation(
    name="payments.reminder_operation", method="GET",
    path="/payments/{paymentId}/reminder-operations/{operationId}", result="ReminderOperation",
    parameters=(
        _path("payment_id", "paymentId", pattern=_PAYMENT_ID),
        _path("operation_id", "operationId", pattern=_UUID4),
    ),
    extra=("query",),
)
SHEETS_SAVE_MAPPING = Operation(
    name="sheets.save_mapping", method="PUT", path="/sheets/mapping",
    result="SheetConnection",
    authority="editor, and editor on the target module, in the selected team",
    parameters=(_body("fields", Form.OBJECT, required=True),),
    extra=("body",),
    **_WITHOUT_READ,
)
WEBHOOKS_LIST = Operation(
    name="webhooks.list", method="GET", path="/webhooks", result="Webhook", many=True,
    shape=Shape.OPEN,  # the standard envelope, but what says that the list is cut off must be seen
    parameters=(
        _query("limit", Form.INTEGER, constraint="the service's default is 10", **_PAGE_SIZE),
        _query("status", choices=_STATUS),
    ),
)
WEBHOOKS_GET = Operation(
    name="webhooks.get", method="GET", path="/webhooks/{id}", result="Webhook",
    parameters=(_path("webhook_id", pattern=_WEBHOOK_ID),),
)
WEBHOOKS_CREATE = Operation(
    name="webhooks.create", method="POST", path="/webhooks", kind=Kind.WRITE, result="Webhook",
    parameters=(
        _body("url", Form.URL, required=True),
        _body("events", Form.EVENTS, choices=EVENT_TYPES, required=True),
        _body("description"),
        _body("status", choices=_STATUS, constraint="the service's default is active"),
    ),
    extra=("body",), reader="webhooks.list", write_kind="create of a webhook",
    settled="The webhooks are listed; the tag decides, or equal content created at the time of the send.",
)
WEBHOOKS_UPDATE = Operation(
    name="webhooks.update", method="PUT", path="/webhooks/{id}", kind=Kind.WRITE, shape=Shape.OPEN,
    result="Webhook",
    parameters=(
        _path("webhook", pattern=_WEBHOOK_ID, bearer="Webhook"),
        _body("url", Form.URL),
        _body("events", Form.EVENTS, choices=EVENT_TYPES),
        _body("description"),
        _body("status", choices=_STATUS),
    ),
    extra=("body",), needs_field=True, reader="webhooks.get", write_kind="update of a webhook",
    settled="The webhook is read back and compared with its state before the write (the baseline).",
)
WEBHOOKS_DELETE = Operation(
    name="webhooks.delete", method="DELETE", path="/webhooks/{id}", kind=Kind.WRITE, shape=Shape.OPEN,
    result="Deleted",
    parameters=(_path("webhook", pattern=_WEBHOOK_ID, bearer="Webhook"),),
    reader="webhooks.get", write_kind="delete of a webhook",
    settled="The webhook is read back; a 404 means that it was deleted.",
)
WEBHOOKS_HEALTH = Operation(
    name="webhooks.health", method="GET", path="/webhooks/health", shape=Shape.BARE, result="Health",
    credentials=(), connect=False,
)

# Requests that the specification does not list: method and path come with the request.
CLIENT_REQUEST = Operation(
    name="client.request", method="GET", path="", shape=Shape.OPEN, result="Envelope", listed=False,
)
CLIENT_DOWNLOAD = Operation(
    name="client.download", method="GET", path="", shape=Shape.BARE, result="bytes", listed=False,
)
CLIENT_WRITE = Operation(
    name="client.write", method="POST", path="", shape=Shape.OPEN, result="object",
    listed=False,
    **_WITHOUT_READ,
)

# fmt: on
TABLE: tuple[Operation, ...] = tuple(each for each in globals().values() if isinstance(each, Operation))
BY_NAME: dict[str, Operation] = {operation.name: operation for operation in TABLE}
