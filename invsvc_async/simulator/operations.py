"""
The operations of the service, each with its route.

Reads do not change the state, so they can be repeated or show a past state.  A write either raises a refusal
before it changes anything, or is applied: completely, unless `Stores.partly` says otherwise.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING

from invsvc_async.simulator import samples, validate
from invsvc_async.simulator.calls import Answer, Call
from invsvc_async.simulator.json_records import Json, Record, json_text
from invsvc_async.simulator.state import Subscription
from invsvc_async.simulator.stores import (
    Kept,
    kept_of_new,
    kept_of_update,
    listed_hooks,
    time_of,
)
from invsvc_async.simulator.validate import Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Run = Callable[[Call], Answer]

NAME = r"[A-Za-z0-9_-]"
# probability that a journey that is changed in part shows the time of it
LAST_UPDATED_TOO = 0.5
UUID4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


@dataclass(frozen=True, slots=True)
class Route:
    """One operation of the service."""

    operation: str
    method: str
    path: str
    run: Run
    public: bool = False  # needs no credential
    named_only: bool = False  # the specification mentions it without describing it

    @property
    def write(self) -> bool:
        """Whether it may change the state."""
        return self.method != "GET"


BY_OPERATION: dict[str, Route] = {}


def routes() -> list[tuple[str, str, str]]:
    """List (operation, method, path) of the operations, without those that are only named."""
    return [
        (each.operation, each.method, each.path)
        for each in BY_OPERATION.values()
        if not each.named_only
    ]


def _route(
    operation: str, method: str, path: str, **more: bool
) -> Callable[[Run], Run]:
    def add(run: Run) -> Run:
        BY_OPERATION[operation] = Route(operation, method, path, run, **more)
        return run

    return add


# --- journeys


@_route("journeys.update", "PUT", "/journeys/{id}")
def update_journey(call: Call) -> Answer:
    """Change the draft fields of a journey.  A null for a field that is never null is ignored."""
    call.require_role("admin")
    body = call.checked(validate.JOURNEY_UPDATE)
    journey = call.found(call.rows(call.book.journeys), call.path["id"], "Journey")
    if journey["status"] == "archived":
        raise call.refusal(
            409, "resource_conflict", "An archived journey cannot be changed"
        )
    sent = {
        name: value
        for name, value in body.items()
        if value is not None or name == "description"
    }
    kept = _kept(call, sent, journey)
    changes = dict(kept.stored)
    if not kept.in_part or call.state.chance.random() < LAST_UPDATED_TOO:
        changes["last_updated"] = time_of(
            call.state.stores.last_updated, call.state.clock.now_ms()
        )
    journey = call.book.journeys.change(journey["id"], changes)
    return call.kept(journey, kept)


def _kept(
    call: Call,
    sent: dict[str, Json],
    before: Record,
) -> Kept:
    state = call.state
    return kept_of_update(state.stores, sent, before, state.seeded, state.chance)


@_route("journeys.get", "GET", "/journeys/{id}")
def journey(call: Call) -> Answer:
    """Show a journey, as `journey_reads` says.  The specification does not list this read."""
    if call.state.journey_reads == "off":
        raise call.not_found("Route")
    record = call.found(call.rows(call.book.journeys), call.path["id"], "Journey")
    if call.state.journey_reads == "published" and record["status"] != "draft":
        record = call.book.published.get(record["id"], record)
    return call.success(record)


# --- invoices: both list envelopes, and all filters of the specification


@_route("invoices.egress", "GET", "/invoices/egress")
def egress(call: Call) -> Answer:
    """List invoices of type E.  A metadata filter changes the envelope to numbered pages."""
    names = call.state.names
    wanted = dict[tuple[str, ...], str]()
    places = {
        "series": ("series",),
        "folio": ("folio_number",),
        "status": ("status",),
        names["client_id"]: ("client", "id"),
        names["client_tax_id"]: ("client", "tax_id"),
    }
    for name, value in call.query.items():
        if (name, value) == ("status", "cancelled"):
            wanted["status",] = "canceled"
        elif name in places:
            wanted[places[name]] = value
        elif name.startswith(("metadata.", "metadata_")) and len(name) > len(
            "metadata."
        ):
            wanted["metadata", name[len("metadata.") :]] = value
    return _invoices(call, "E", wanted)


@_route("invoices.payment_complements", "GET", "/invoices/payment")
def payment_complements(call: Call) -> Answer:
    """List invoices of type P."""
    return _invoices(call, "P", {})


def _invoices(
    call: Call,
    kind: str,
    wanted: dict[tuple[str, ...], str],
) -> Answer:
    """List invoices of type *kind* that have the *wanted* texts, each at the path of its field."""
    names = call.state.names
    query = Query(call.query)
    limit = query.whole(names["limit"], 10, 100)
    page = query.whole(names["page"], 1)
    name_first = query.choice(names["order_by"], "name", "timestamp") == "name"
    descending = query.choice(names["order"], "asc", "desc") != "asc"
    after = query.instant(names["created_after"])
    before = query.instant(names["created_before"])
    if kind == "E":
        query.choice("status", "valid", "canceled", "cancelled")
    call.check_query(query)
    if "idempotency_key" in call.query:
        wanted["idempotency_key",] = call.query["idempotency_key"]
    is_numbered = any(path[0] == "metadata" for path in wanted)

    def shown(invoice: Record) -> bool:
        if invoice["invoice_type"] != kind:
            return False
        if after is not None and invoice["created_at"] < after:
            return False
        if before is not None and invoice["created_at"] > before:
            return False
        return all(_text_at(invoice, path) == value for path, value in wanted.items())

    def place(invoice: Record) -> tuple[Json, str]:
        first = invoice["client"]["name"] if name_first else invoice["created_at"]
        return first, invoice["uuid"]

    rows = sorted(
        filter(shown, call.rows(call.book.invoices).values()),
        key=place,
        reverse=descending,
    )
    pages: dict[str, Json] = {"total_results": len(rows)}
    if is_numbered:
        end = page * limit
        data = rows[end - limit : end]
        pages |= {"has_more": end < len(rows), "page": page, "per_page": limit}
    else:
        data, pages["next"] = _part(call, rows, "uuid", limit)
        pages["has_more"] = pages["next"] is not None
    found = {"success": True, "message": "Invoices found", "data": data, **pages}
    return Answer({**found, "timestamp": call.state.clock.now_ms()})


def _text_at(invoice: Record, path: tuple[str, ...]) -> str | None:
    """Return the value at *path* as text.  A null is a value in metadata only."""
    *outer, name = path
    holder = invoice[outer[0]] if outer else invoice
    value = holder.get(name)
    is_null_in_metadata = outer == ["metadata"] and name in holder
    if value is None and not is_null_in_metadata:
        return None
    if isinstance(value, str):
        return value
    return json_text(value)


def _part(
    call: Call,
    rows: list[Record],
    key: str,
    limit: int,
) -> tuple[list[Record], str | None]:
    """Return the rows after the call's cursor, and the cursor of what follows them, if anything does."""
    ids = [row[key] for row in rows]
    start = _start_of_part(call, ids)
    end = start + limit
    if end >= len(rows):
        return rows[start:], None
    following = base64.urlsafe_b64encode(ids[end - 1].encode()).decode()
    return rows[start:end], following


def _start_of_part(call: Call, ids: list[str]) -> int:
    """Return the index of the first row after the one that the call's cursor names."""
    name = call.state.names["cursor"]
    cursor = call.query.get(name)
    if cursor is None:
        return 0
    try:
        return ids.index(base64.urlsafe_b64decode(cursor).decode()) + 1
    except ValueError:
        raise call.invalid([f"{name}: is not a cursor of this list"]) from None


@_route("invoices.download_status", "GET", "/invoices/download/status/{request_id}")
def download_status(call: Call) -> Answer:
    """Show a download request of the tax authority."""
    return call.success(
        call.found(
            call.rows(call.book.downloads), call.path["request_id"], "Download request"
        )
    )


@_route(
    "invoices.download_package",
    "GET",
    "/invoices/download/package/{package_id}",
    named_only=True,
)
def download_package(call: Call) -> Answer:
    """Return the bytes of a package, without an envelope."""
    return Answer(call.found(call.book.packages, call.path["package_id"], "Package"))


@_route("invoices.income_batch", "POST", "/invoices/income/batch", named_only=True)
def income_batch(call: Call) -> Answer:
    """Issue invoices, with the fields that lists need.  The specification has only the operation's name."""
    body = call.checked(validate.INCOME_BATCH)
    issued: list[str] = []
    for each in body.get("invoices", [body]):
        told = {
            "idempotency_key": each.get("idempotency_key"),
            "metadata": each.get("metadata", {}),
        }
        invoice = samples.new_invoice(call.state, call.book, {**told, "from": "api"})
        issued.append(call.book.invoices.put(invoice["uuid"], invoice)["uuid"])
    batch = {
        "id": call.state.new_id("batch_"),
        "total": len(issued),
        "accepted": issued,
        "rejected": [],
    }
    return call.success(batch, status=201, target=str(batch["id"]))


@_route("retentions.files", "GET", "/retentions/{id}/files")
def retention_files(call: Call) -> Answer:
    """Show both files of a stamped retention, or the requested one."""
    query = Query(call.query)
    wanted = query.choice("file_type", "pdf", "xml")
    call.check_query(query)
    files = call.found(call.book.retentions, call.path["id"], "Retention")
    if wanted is None:
        return call.success(files)
    return call.success(
        [file for file in files if file["filename"].endswith(f".{wanted}")]
    )


# --- teams and users


@_route("teams.create", "POST", "/teams")
def create_team(call: Call) -> Answer:
    """Make a team of the same billing account."""
    state = call.state
    account = state.accounts[call.caller.team]
    if "multipleIssuerAccounts" not in account.features:
        raise call.refusal(
            403, "insufficient_permissions", "The plan lacks multipleIssuerAccounts"
        )
    if "suppliers" not in account.features:
        raise call.refusal(401, "unauthorized", "The plan lacks the suppliers feature")
    body = call.checked(validate.TEAM_CREATE)
    master = state.teams.items[call.caller.team]
    owner = call.caller.credential.user
    team = samples.new_team(
        state,
        body,
        owner=owner,
        billing=account.billing,
        master=master,
    )
    state.teams.put(team["id"], team)
    return call.success(team, "Team created", status=201, target=team["id"])


@_route("teams.dbtable_webhooks", "GET", "/teams/{id}/integrations/dbtable/webhooks")
def dbtable_webhooks(call: Call) -> Answer:
    """List the import mappings of the table-database provider."""
    team = call.path_id("id", rf"{NAME}{{1,128}}")
    call.require_person(team)
    query = Query(call.query)
    names = call.state.names
    limit = query.whole(names["dbtable_limit"], 10, 100)
    scope = query.choice("scope", "mode", "shared") or "mode"
    wanted = query.choice(names["dbtable_state"], "active", "expired", "disabled")
    call.check_query(query)
    livemode = call.caller.livemode
    manages = call.caller.credential.role == "admin"
    mappings = call.state.book(team, livemode=livemode).mappings
    rows = _chosen(mappings, "state", wanted)
    about = samples.sample(
        call.state,
        "mappings",
        scope=scope,
        livemode=livemode,
        can_manage=manages,
    )
    return call.success({**_listing(call, rows, limit), **about})


@_route(
    "teams.dbtable_tables",
    "GET",
    "/teams/{id}/integrations/dbtable/bases/{baseId}/tables",
)
def dbtable_tables(call: Call) -> Answer:
    """List the tables and fields of one base."""
    team = call.path_id("id", rf"{NAME}{{1,128}}")
    base = call.path_id("baseId", rf"{NAME}{{1,128}}")
    call.require_person(team)
    tables = call.found(call.state.bases, (team, base), "Base")
    return call.success(
        {**_listing(call, tables, 100), "effect_scope": "team_provider_connection"}
    )


def _chosen(
    rows: Iterable[Record],
    name: str,
    wanted: str | None,
) -> list[Record]:
    """Return the *rows* in which *name* has the *wanted* value; all rows if *wanted* is ``None``."""
    if wanted is None:
        return list(rows)
    return [row for row in rows if row[name] == wanted]


def _listing(
    call: Call,
    rows: list[Record],
    limit: int,
) -> dict[str, Json]:
    data, following = _part(call, rows, "id", limit)
    page = {"data": data, "has_more": following is not None, "next_cursor": following}
    return {**page, "provider_environment": "production"}


@_route("users.get", "GET", "/users/{id}")
def user(call: Call) -> Answer:
    """Show a user of the selected team."""
    record = call.found(call.rows(call.state.users), call.path["id"], "User")
    if call.caller.team not in record["teams"]:
        raise call.not_found("User")
    return call.success(record, "User found")


@_route("users.update_preferences", "PATCH", "/users/me/preferences/{teamId}")
def update_preferences(call: Call) -> Answer:
    """Store a person's preferences for a team.  `testmode` sets the data mode of their later calls."""
    team = call.path_id("teamId", rf"{NAME}{{1,256}}")
    call.require_person(team)
    body = call.checked(validate.PREFERENCES)
    user = call.caller.credential.user
    before = call.state.preference(user, team)
    names = (before.keys() & body.keys()) - {"team_id"}
    changed = before.with_changes({name: body[name] for name in names})
    call.state.preferences[user, team] = changed
    return call.success(changed, target=team)


# --- payments and sheets


@_route("payments.link", "GET", "/payments/links/{linkId}")
def payment_link(call: Call) -> Answer:
    """Show a reusable payment link to a caller with authority over payments."""
    link_id = call.path_id("linkId", rf"plink{NAME}{{1,155}}")
    call.require_role("viewer", "payments")
    return call.success(call.found(call.rows(call.book.links), link_id, "Payment link"))


@_route(
    "payments.reminder_operation",
    "GET",
    "/payments/{paymentId}/reminder-operations/{operationId}",
)
def reminder_operation(call: Call) -> Answer:
    """Show a payment reminder operation.  Reading it again settles an uncertain result."""
    payment = call.path_id("paymentId", rf"{NAME}{{1,160}}")
    operation = call.path_id("operationId", UUID4)
    return call.success(
        call.found(call.book.reminders, (payment, operation), "Reminder operation")
    )


@_route("sheets.save_mapping", "PUT", "/sheets/mapping")
def save_mapping(call: Call) -> Answer:
    """Save the import mapping of the spreadsheet, which pauses its connection."""
    call.require_role("editor", "payments")
    body = call.checked(validate.MAPPING)
    connection = call.found(
        call.rows(call.book.sheets), "connection", "Spreadsheet connection"
    )
    mapping = {**connection["mapping"], "fields": body["fields"]}
    changes = {
        "mapping": mapping,
        "enabled": False,
        "last_activity_at": call.state.clock.now_ms(),
    }
    connection = call.book.sheets.change("connection", changes)
    message = "Mapping saved; the connection is paused"
    target = connection["spreadsheet_id"]
    return call.success({"connection": connection}, message, target=target)


# --- webhooks


@_route("webhooks.health", "GET", "/webhooks/health", public=True)
def health(_call: Call) -> Answer:
    """Answer the health probe, which needs no credential."""
    return Answer({"status": "ok", "module": "webhooks"})


@_route("webhooks.list", "GET", "/webhooks")
def webhooks(call: Call) -> Answer:
    """List webhooks, newest first.  There is no cursor, so at most 100 can be seen."""
    query = Query(call.query)
    limit = query.whole("limit", 10, 100)
    status = query.choice("status", "active", "inactive")
    call.check_query(query)
    newest = reversed(call.rows(call.book.webhooks).values())
    hooks = _chosen(newest, "status", status)
    hooks.sort(key=lambda hook: hook["created_at"], reverse=True)
    shown = listed_hooks(call.state.stores, hooks, call.state.seeded, status=status)
    return call.success(shown[:limit])


@_route("webhooks.get", "GET", "/webhooks/{id}")
def webhook(call: Call) -> Answer:
    """Show one webhook, without its secret."""
    return call.success(
        call.found(call.rows(call.book.webhooks), call.path["id"], "Webhook")
    )


@_route("webhooks.create", "POST", "/webhooks")
def create_webhook(call: Call) -> Answer:
    """Make a webhook.  Only this answer shows its secret."""
    body = call.checked(validate.WEBHOOK_CREATE)
    state = call.state
    sent = {"status": "active"} | _webhook_fields(body)
    kept = kept_of_new(state.stores, sent, state.seeded)
    created_at = time_of(state.stores.created_at, state.clock.now_ms())
    made = {"owner": call.caller.credential.user, "created_at": created_at}
    hook = Record({"id": state.new_id("wh_"), **kept.stored, **made})
    call.book.webhooks.put(hook.id, hook)
    secret = state.new_id("whsec_")
    call.book.receivers[hook.id] = Subscription(secret)
    message = "Webhook created. Store the secret now: it is not shown again."
    return call.kept(hook, kept, message, status=201, secret=secret)


@_route("webhooks.update", "PUT", "/webhooks/{id}")
def update_webhook(call: Call) -> Answer:
    """Change fields of a webhook.  The specification leaves the answer open; this one shows the webhook."""
    body = call.checked(validate.WEBHOOK_UPDATE)
    hook = call.found(call.rows(call.book.webhooks), call.path["id"], "Webhook")
    kept = _kept(call, _webhook_fields(body), hook)
    hook = call.book.webhooks.change(hook.id, kept.stored)
    return call.kept(hook, kept, "Webhook updated")


def _webhook_fields(body: dict[str, Json]) -> dict[str, Json]:
    """Return the members of *body* that a webhook has."""
    return {name: body[name] for name in validate.WEBHOOK_FIELDS if name in body}


@_route("webhooks.delete", "DELETE", "/webhooks/{id}")
def delete_webhook(call: Call) -> Answer:
    """Remove a webhook.  The answer has neither payload nor timestamp."""
    hook = call.found(call.rows(call.book.webhooks), call.path["id"], "Webhook")
    call.book.webhooks.remove(hook.id)
    return Answer({"success": True, "message": "Webhook deleted"}, target=hook.id)


def unknown(call: Call) -> Answer:
    """Refuse a path that the service does not have."""
    raise call.refusal(404, "resource_not_found", "No such route")


UNKNOWN = Route("unknown", "GET", "/{tail:.*}", unknown, public=True)
