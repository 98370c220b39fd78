"""
The reads of the service, except the invoice lists.

They do not change the state, so a read can be repeated or show a past state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.simulator.auth import require_person, require_role
from invsvc_async.simulator.calls import Answer, Call, found, invalid, not_found, path_id, refusal, success
from invsvc_async.simulator.validate import Query

if TYPE_CHECKING:
    from invsvc_async.simulator.json_records import Json, Record
    from invsvc_async.simulator.state import State

NAME = r"[A-Za-z0-9_-]"
UUID4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


def journey(state: State, call: Call) -> Answer:
    """Show a journey, as `journey_reads` says.  The specification does not list this read."""
    if state.journey_reads == "off":
        raise not_found(state, "Route")
    record = found(state, call.book.journeys.as_of(call.past), call.path["id"], "Journey")
    if state.journey_reads == "published" and record["status"] != "draft":
        record = call.book.published.get(record["id"], record)
    return Answer(success(state.clock, record))


def webhooks(state: State, call: Call) -> Answer:
    """List webhooks, newest first.  There is no cursor, so at most 100 can be seen."""
    query = Query(call.query)
    limit, status = query.whole("limit", 10, 100), query.choice("status", "active", "inactive")
    query.check(state)
    hooks = [
        hook
        for hook in reversed(list(call.book.webhooks.as_of(call.past).values()))
        if status is None or hook["status"] == status
    ]
    hooks.sort(key=lambda hook: hook["created_at"], reverse=True)
    return Answer(success(state.clock, hooks[:limit]))


def webhook(state: State, call: Call) -> Answer:
    """Show one webhook, without its secret."""
    return Answer(
        success(state.clock, found(state, call.book.webhooks.as_of(call.past), call.path["id"], "Webhook"))
    )


def health(_state: State, _call: Call) -> Answer:
    """Answer the health probe, which needs no credential."""
    return Answer({"status": "ok", "module": "webhooks"})


def download_status(state: State, call: Call) -> Answer:
    """Show a download request of the tax authority."""
    shown = call.book.downloads.as_of(call.past)
    return Answer(success(state.clock, found(state, shown, call.path["request_id"], "Download request")))


def download_package(state: State, call: Call) -> Answer:
    """Return the bytes of a package, without an envelope."""
    package = call.book.packages.get(call.path["package_id"])
    if package is None:
        raise not_found(state, "Package")
    return Answer(package)


def retention_files(state: State, call: Call) -> Answer:
    """Show both files of a stamped retention, or the requested one."""
    query = Query(call.query)
    wanted = query.choice("file_type", "pdf", "xml")
    query.check(state)
    files = call.book.retentions.get(call.path["id"])
    if files is None:
        raise not_found(state, "Retention")
    shown = [file for file in files if wanted is None or file["filename"].endswith(f".{wanted}")]
    return Answer(success(state.clock, shown))


def user(state: State, call: Call) -> Answer:
    """Show a user of the selected team."""
    record = found(state, state.users.as_of(call.past), call.path["id"], "User")
    if call.caller.team not in record["teams"]:
        raise not_found(state, "User")
    return Answer(success(state.clock, record, "User found"))


def payment_link(state: State, call: Call) -> Answer:
    """Show a reusable payment link to a caller with authority over payments."""
    link_id = path_id(state, call, "linkId", rf"plink{NAME}{{1,155}}")
    require_role(state, call.caller, "viewer", "payments")
    return Answer(
        success(state.clock, found(state, call.book.links.as_of(call.past), link_id, "Payment link"))
    )


def reminder_operation(state: State, call: Call) -> Answer:
    """Show a payment reminder operation.  Reading it again settles an uncertain result."""
    payment = path_id(state, call, "paymentId", rf"{NAME}{{1,160}}")
    operation = path_id(state, call, "operationId", UUID4)
    record = call.book.reminders.get((payment, operation))
    if record is None:
        raise not_found(state, "Reminder operation")
    return Answer(success(state.clock, record))


def dbtable_webhooks(state: State, call: Call) -> Answer:
    """List the import mappings of the table-database provider."""
    team = path_id(state, call, "id", rf"{NAME}{{1,128}}")
    require_person(state, call.caller, team)
    query = Query(call.query)
    limit = query.whole(state.names["dbtable_limit"], 10, 100)
    scope = query.choice("scope", "mode", "shared") or "mode"
    wanted = query.choice(state.names["dbtable_state"], "active", "expired", "disabled")
    query.check(state)
    livemode = call.caller.livemode
    mappings = state.book(team, livemode=livemode).mappings
    rows = [row for row in mappings if wanted is None or row["state"] == wanted]
    listing: dict[str, Json] = _listing(state, call, rows, limit) | {
        "scope": scope,
        "livemode": livemode,
        "can_manage": call.caller.credential.role == "admin",
        "can_recover_registration": False,
        "blocking_operation_id": None,
        "connection": {
            "connected": True,
            "restricted": False,
            "recovery_session_id": None,
            "identity_verification": None,
            "effect_scope": "team_provider_connection",
            "oauth_credentials_retained": True,
        },
    }
    return Answer(success(state.clock, listing))


def dbtable_tables(state: State, call: Call) -> Answer:
    """List the tables and fields of one base."""
    team = path_id(state, call, "id", rf"{NAME}{{1,128}}")
    base = path_id(state, call, "baseId", rf"{NAME}{{1,128}}")
    require_person(state, call.caller, team)
    tables = state.bases.get((team, base))
    if tables is None:
        raise not_found(state, "Base")
    listing = _listing(state, call, tables, 100) | {"effect_scope": "team_provider_connection"}
    return Answer(success(state.clock, listing))


def _listing(state: State, call: Call, rows: list[Record], limit: int) -> dict[str, Json]:
    ids = [row["id"] for row in rows]
    cursor = call.query.get(state.names["cursor"])
    if cursor is not None and cursor not in ids:
        raise invalid(state, [f"{state.names['cursor']}: is not a cursor of this list"])
    start = 0 if cursor is None else ids.index(cursor) + 1
    more = start + limit < len(rows)
    return {
        "data": rows[start : start + limit],
        "has_more": more,
        "next_cursor": ids[start + limit - 1] if more else None,
        "provider_environment": "production",
    }


def unknown(state: State, _call: Call) -> Answer:
    """Refuse a path that the service does not have."""
    raise refusal(state, 404, "resource_not_found", "No such route")
