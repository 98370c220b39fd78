"""
Tell the whole API as one table; never build a request or touch the network.

Resource methods, argument checks, the reference in the docs and the tests all read these rows.  Result
types and finders are named, and resolved where they are used, so that importing this costs nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

import attrs


class Kind(StrEnum):
    """Whether an operation may change anything."""

    READ = "read"
    WRITE = "write"


class Shape(StrEnum):
    """How a successful answer is wrapped."""

    STANDARD = "standard"  # {success, data, message?, timestamp}
    LIST = "list"  # data, next and has_more side by side
    OPEN = "open"  # the specification leaves it open: any JSON object whose success is true
    BARE = "bare"  # no envelope


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
    credentials: tuple[str, ...] = (
        "api_key",
        "oauth_token",
        "person_token",
    )  # kinds that the specification admits; () : none is sent
    connect: bool = True  # takes the query parameter `team`
    listed: bool = True  # in the specification's list of operations
    parameters: tuple[Parameter, ...] = ()
    extra: tuple[
        Literal["query", "body"], ...
    ] = ()  # where the specification says that there is more, but not what
    reserved: tuple[str, ...] = ()  # keys of the body that the service sets itself
    reader: str | None = None  # the operation whose answer settles this write
    finder: str | None = None  # the function of reconcile.find that judges that answer
    settled: str = ""  # in words, for the docs
    section: str = ""  # of the specification


EVENT_TYPES = (
    "payment.created", "payment.updated", "payment.succeeded", "payment.canceled", "payment.deleted",
    "payment.upcoming_due_date",
    "invoice.created", "invoice.canceled", "invoice.failed", "invoice_batch.completed",
    "receipt.created", "receipt.updated", "receipt.completed", "receipt.deleted",
    "customer.created", "customer.updated", "customer.deleted",
    "service.created", "service.updated", "service.deleted", "sat.invoice.synced",
)  # fmt: skip

_TEAM_ID = r"[A-Za-z0-9_-]{1,128}"
_WEBHOOK_ID = r"wh_[^/\s]+"
_PAYMENT_ID = r"[A-Za-z0-9_-]{1,160}"
_UUID4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_PERSON = ("person_token",)
_UNTOLD = "The specification has no read for it: as the reader given finds; without one, unknown at once."


def _path(name: str, wire: str = "id", *, pattern: str | None = None, bearer: str | None = None) -> Parameter:
    return Parameter(
        name=name, where="path", form=Form.ID, wire=wire, pattern=pattern, bearer=bearer, required=True
    )


def _body(
    name: str, form: Form = Form.TEXT, *, wire: str | None = None, **constraints: Any
) -> Parameter:  # Any: the fields above
    return Parameter(name=name, where="body", form=form, wire=wire or name, **constraints)


def _query(name: str, form: Form = Form.TEXT, **constraints: Any) -> Parameter:  # Any: the fields above
    return Parameter(name=name, where="query", form=form, wire=name, **constraints)


def _unnamed(
    name: str, form: Form = Form.TEXT, *, assumed: str | None = None, **constraints: Any
) -> Parameter:  # Any: the same
    return Parameter(name=name, where="query", form=form, assumed=assumed or name, **constraints)


_PAGE_SIZE: dict[str, Any] = {"minimum": 1, "maximum": 100}
_LISTING = (
    _unnamed("limit", Form.INTEGER, constraint="items a page; the service's default is 10", **_PAGE_SIZE),
    _unnamed("cursor", constraint="`next` of the page before"),
    _unnamed("order_by", choices=("name", "timestamp")),
    _unnamed("order", choices=("asc", "desc")),
    _unnamed("created_after", Form.TIME, constraint="that instant included; sent as epoch ms"),
    _unnamed("created_before", Form.TIME, constraint="that instant included; sent as epoch ms"),
    _query("idempotency_key", constraint="exact match"),
)
_STATUS = ("active", "inactive")

JOURNEYS_UPDATE = Operation(
    name="journeys.update",
    method="PUT",
    path="/journeys/{id}",
    kind=Kind.WRITE,
    result="Journey",
    authority="admin in the selected team",
    parameters=(
        _path("journey", bearer="Journey"),
        _body("name", minimum=1, maximum=150),
        _body("description", maximum=1000, nullable=True),
        _body("graph", Form.GRAPH, nullable=True),
        _body("trigger_type", wire="triggerType", nullable=True),
        _body("replaces_defaults", Form.FLAG, wire="replacesDefaults", nullable=True),
    ),
    reader="journeys.get",
    finder="journey",
    settled="The journey is read back; what it shows, and its `last_updated`, tell.",
    section="Endpoints, Journeys",
)
JOURNEYS_GET = Operation(
    name="journeys.get",
    method="GET",
    path="/journeys/{id}",
    result="Journey",
    listed=False,
    parameters=(_path("journey_id"),),
    section="not in the list of operations",
)
INVOICES_EGRESS = Operation(
    name="invoices.egress",
    method="GET",
    path="/invoices/egress",
    shape=Shape.LIST,
    result="Invoice",
    many=True,
    parameters=(
        *_LISTING,
        _unnamed("client_id"),
        _unnamed("client_tax_id"),
        _query("status", choices=("valid", "canceled", "cancelled")),
        _query("series", constraint="exact match"),
        _query("folio", Form.FOLIO, constraint="exact match"),
        Parameter(name="metadata", where="query", form=Form.METADATA, wire="metadata.<key>"),
        _unnamed(
            "page",
            Form.INTEGER,
            minimum=1,
            constraint="only with metadata filters; the service's default is 1",
        ),
    ),
    section="Endpoints, Invoices",
)
INVOICES_PAYMENT_COMPLEMENTS = Operation(
    name="invoices.payment_complements",
    method="GET",
    path="/invoices/payment",
    shape=Shape.LIST,
    result="Invoice",
    many=True,
    parameters=_LISTING,
    section="Endpoints, Invoices",
)
INVOICES_DOWNLOAD_STATUS = Operation(
    name="invoices.download_status",
    method="GET",
    path="/invoices/download/status/{request_id}",
    result="DownloadRequest",
    parameters=(_path("request_id", "request_id"),),
    section="Endpoints, Invoices",
)
RETENTIONS_FILES = Operation(
    name="retentions.files",
    method="GET",
    path="/retentions/{id}/files",
    result="RetentionFile",
    many=True,
    parameters=(
        _path("retention_id"),
        _query("file_type", choices=("pdf", "xml"), constraint="left out: both"),
    ),
    section="Endpoints, Retentions",
)
TEAMS_CREATE = Operation(
    name="teams.create",
    method="POST",
    path="/teams",
    kind=Kind.WRITE,
    result="Team",
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
        _body(
            "credit_limit",
            Form.NUMBER,
            nullable=True,
            constraint="documents per billing period; null: no cap of its own",
        ),
    ),
    extra=("body",),
    reserved=("team", "livemode", "owner"),
    settled=_UNTOLD,
    section="Endpoints, Teams",
)
TEAMS_DBTABLE_WEBHOOKS = Operation(
    name="teams.dbtable_webhooks",
    method="GET",
    path="/teams/{id}/integrations/dbtable/webhooks",
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
    section="Endpoints, Teams",
)
TEAMS_DBTABLE_TABLES = Operation(
    name="teams.dbtable_tables",
    method="GET",
    path="/teams/{id}/integrations/dbtable/bases/{baseId}/tables",
    result="DbtableTables",
    authority="a person's token, with current authority in the team",
    credentials=_PERSON,
    parameters=(_path("team_id", pattern=_TEAM_ID), _path("base_id", "baseId", pattern=_TEAM_ID)),
    extra=("query",),
    section="Endpoints, Teams",
)
USERS_GET = Operation(
    name="users.get",
    method="GET",
    path="/users/{id}",
    result="User",
    parameters=(_path("user_id"),),
    section="Endpoints, Users",
)
USERS_UPDATE_PREFERENCES = Operation(
    name="users.update_preferences",
    method="PATCH",
    path="/users/me/preferences/{teamId}",
    kind=Kind.WRITE,
    result="Preferences",
    authority="a person's token, with active membership in the team",
    credentials=_PERSON,
    parameters=(
        _path("team_id", "teamId", pattern=r"[A-Za-z0-9_-]{1,256}"),
        _body("testmode", Form.FLAG, required=True),
    ),
    extra=("body",),
    settled=_UNTOLD,
    section="Endpoints, Users",
)
PAYMENTS_LINK = Operation(
    name="payments.link",
    method="GET",
    path="/payments/links/{linkId}",
    result="PaymentLink",
    authority="the payment module",
    parameters=(_path("link_id", "linkId", pattern=r"plink[A-Za-z0-9_-]{1,155}"),),
    section="Endpoints, Payments",
)
PAYMENTS_REMINDER_OPERATION = Operation(
    name="payments.reminder_operation",
    method="GET",
    path="/payments/{paymentId}/reminder-operations/{operationId}",
    result="ReminderOperation",
    parameters=(
        _path("payment_id", "paymentId", pattern=_PAYMENT_ID),
        _path("operation_id", "operationId", pattern=_UUID4),
    ),
    extra=("query",),
    section="Endpoints, Payments",
)
SHEETS_SAVE_MAPPING = Operation(
    name="sheets.save_mapping",
    method="PUT",
    path="/sheets/mapping",
    kind=Kind.WRITE,
    result="SheetConnection",
    authority="editor, and editor on the target module, in the selected team",
    parameters=(_body("fields", Form.OBJECT, required=True),),
    extra=("body",),
    settled=_UNTOLD,
    section="Endpoints, Spreadsheet import",
)
WEBHOOKS_LIST = Operation(
    name="webhooks.list",
    method="GET",
    path="/webhooks",
    result="Webhook",
    many=True,
    parameters=(
        _query("limit", Form.INTEGER, constraint="the service's default is 10", **_PAGE_SIZE),
        _query("status", choices=_STATUS),
    ),
    section="Endpoints, Webhooks",
)
WEBHOOKS_GET = Operation(
    name="webhooks.get",
    method="GET",
    path="/webhooks/{id}",
    result="Webhook",
    parameters=(_path("webhook_id", pattern=_WEBHOOK_ID),),
    section="Endpoints, Webhooks",
)
WEBHOOKS_CREATE = Operation(
    name="webhooks.create",
    method="POST",
    path="/webhooks",
    kind=Kind.WRITE,
    result="Webhook",
    parameters=(
        _body("url", Form.URL, required=True),
        _body("events", Form.EVENTS, choices=EVENT_TYPES, required=True),
        _body("description"),
        _body("status", choices=_STATUS, constraint="the service's default is active"),
    ),
    extra=("body",),
    reader="webhooks.list",
    finder="created_webhook",
    settled="The team's webhooks are listed; the tag, or the same content in the time of the sends, tells.",
    section="Endpoints, Webhooks",
)
WEBHOOKS_UPDATE = Operation(
    name="webhooks.update",
    method="PUT",
    path="/webhooks/{id}",
    kind=Kind.WRITE,
    shape=Shape.OPEN,
    result="Webhook",
    parameters=(
        _path("webhook", pattern=_WEBHOOK_ID, bearer="Webhook"),
        _body("url", Form.URL),
        _body("events", Form.EVENTS, choices=EVENT_TYPES),
        _body("description"),
        _body("status", choices=_STATUS),
    ),
    extra=("body",),
    reader="webhooks.get",
    finder="updated_webhook",
    settled="The webhook is read back and compared with its state before, the baseline.",
    section="Endpoints, Webhooks",
)
WEBHOOKS_DELETE = Operation(
    name="webhooks.delete",
    method="DELETE",
    path="/webhooks/{id}",
    kind=Kind.WRITE,
    shape=Shape.OPEN,
    result="Deleted",
    parameters=(_path("webhook", pattern=_WEBHOOK_ID, bearer="Webhook"),),
    reader="webhooks.get",
    finder="deleted_webhook",
    settled="The webhook is read back: gone means done.",
    section="Endpoints, Webhooks",
)
WEBHOOKS_HEALTH = Operation(
    name="webhooks.health",
    method="GET",
    path="/webhooks/health",
    shape=Shape.BARE,
    result="Health",
    credentials=(),
    connect=False,
    section="Endpoints, Webhooks",
)

# What the specification does not list: method and path come with the request.
CLIENT_REQUEST = Operation(
    name="client.request", method="GET", path="", shape=Shape.OPEN, result="Envelope", listed=False
)
CLIENT_DOWNLOAD = Operation(
    name="client.download", method="GET", path="", shape=Shape.BARE, result="bytes", listed=False
)
CLIENT_WRITE = Operation(
    name="client.write",
    method="POST",
    path="",
    kind=Kind.WRITE,
    shape=Shape.OPEN,
    result="object",
    listed=False,
    settled=_UNTOLD,
)

TABLE: tuple[Operation, ...] = (
    JOURNEYS_UPDATE, JOURNEYS_GET,
    INVOICES_EGRESS, INVOICES_PAYMENT_COMPLEMENTS, INVOICES_DOWNLOAD_STATUS,
    RETENTIONS_FILES,
    TEAMS_CREATE, TEAMS_DBTABLE_WEBHOOKS, TEAMS_DBTABLE_TABLES,
    USERS_GET, USERS_UPDATE_PREFERENCES,
    PAYMENTS_LINK, PAYMENTS_REMINDER_OPERATION,
    SHEETS_SAVE_MAPPING,
    WEBHOOKS_LIST, WEBHOOKS_GET, WEBHOOKS_CREATE, WEBHOOKS_UPDATE, WEBHOOKS_DELETE, WEBHOOKS_HEALTH,
    CLIENT_REQUEST, CLIENT_DOWNLOAD, CLIENT_WRITE,
)  # fmt: skip
BY_NAME: dict[str, Operation] = {operation.name: operation for operation in TABLE}
