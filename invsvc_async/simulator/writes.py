"""
The writes of the service.

Each one either raises a refusal before it changes anything, or is applied completely.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.simulator import sample_documents, sample_people, validate
from invsvc_async.simulator.auth import require_person, require_role
from invsvc_async.simulator.calls import Answer, Call, found, path_id, refusal, success
from invsvc_async.simulator.json_records import Json, Record
from invsvc_async.simulator.reads import NAME
from invsvc_async.simulator.validate import checked

if TYPE_CHECKING:
    from invsvc_async.simulator.state import State


def update_journey(state: State, call: Call) -> Answer:
    """Change the draft fields of a journey.  A null for a field that is never null is ignored."""
    require_role(state, call.caller, "admin")
    body = checked(state, call.body, validate.JOURNEY_UPDATE)
    shelf, journey_id = call.book.journeys, call.path["id"]
    journey = found(state, shelf.items, journey_id, "Journey")
    if journey["status"] == "archived":
        raise refusal(state, 409, "resource_conflict", "An archived journey cannot be changed")
    changes = {name: value for name, value in body.items() if value is not None or name == "description"}
    changes["last_updated"] = state.clock.now_ms()
    journey = shelf.put(journey_id, journey.with_changes(changes))
    return Answer(success(state.clock, journey), target=journey_id)


def create_webhook(state: State, call: Call) -> Answer:
    """Make a webhook.  Only this answer shows its secret."""
    body = checked(state, call.body, validate.WEBHOOK_CREATE)
    hook_id = state.new_id("wh_")
    fields = {name: body[name] for name in validate.WEBHOOK_FIELDS if name in body}
    hook = Record(
        {
            "id": hook_id,
            **fields,
            "status": body.get("status", "active"),
            "owner": call.caller.credential.user,
            "created_at": state.clock.now_ms(),
        }
    )
    call.book.webhooks.put(hook_id, hook)
    secret = call.book.secrets[hook_id] = state.new_id("whsec_")
    message = "Webhook created. Store the secret now: it is not shown again."
    return Answer(success(state.clock, {**hook, "secret": secret}, message), 201, hook_id)


def update_webhook(state: State, call: Call) -> Answer:
    """Change fields of a webhook.  The specification leaves the answer open; this one shows the webhook."""
    body = checked(state, call.body, validate.WEBHOOK_UPDATE)
    hook_id = call.path["id"]
    hook = found(state, call.book.webhooks.items, hook_id, "Webhook")
    changes = {name: body[name] for name in validate.WEBHOOK_FIELDS if name in body}
    hook = call.book.webhooks.put(hook_id, hook.with_changes(changes))
    return Answer(success(state.clock, hook, "Webhook updated"), target=hook_id)


def delete_webhook(state: State, call: Call) -> Answer:
    """Remove a webhook.  The answer has neither payload nor timestamp."""
    hook_id = call.path["id"]
    found(state, call.book.webhooks.items, hook_id, "Webhook")
    call.book.webhooks.remove(hook_id)
    return Answer({"success": True, "message": "Webhook deleted"}, target=hook_id)


def create_team(state: State, call: Call) -> Answer:
    """Make a team of the same billing account."""
    account = state.accounts[call.caller.team]
    if "multipleIssuerAccounts" not in account.features:
        raise refusal(state, 403, "insufficient_permissions", "The plan lacks multipleIssuerAccounts")
    if "suppliers" not in account.features:
        raise refusal(state, 401, "unauthorized", "The plan lacks the suppliers feature")
    body = checked(state, call.body, validate.TEAM_CREATE)
    master, owner = state.teams.items[call.caller.team], call.caller.credential.user
    team = sample_people.new_team(state, body, owner=owner, billing=account.billing, master=master)
    state.teams.put(team["id"], team)
    return Answer(success(state.clock, team, "Team created"), 201, team["id"])


def update_preferences(state: State, call: Call) -> Answer:
    """Store a person's preferences for a team.  `testmode` sets the data mode of their later calls."""
    team = path_id(state, call, "teamId", rf"{NAME}{{1,256}}")
    require_person(state, call.caller, team)
    body = checked(state, call.body, validate.PREFERENCES)
    user = call.caller.credential.user
    before = state.preference(user, team)
    changes = {name: body[name] for name in before if name in body and name != "team_id"}
    state.preferences[user, team] = before.with_changes(changes)
    return Answer(success(state.clock, state.preferences[user, team]), target=team)


def save_mapping(state: State, call: Call) -> Answer:
    """Save the import mapping of the spreadsheet, which pauses its connection."""
    require_role(state, call.caller, "editor", "payments")
    body = checked(state, call.body, validate.MAPPING)
    shelf = call.book.sheets
    connection = found(state, shelf.items, "connection", "Spreadsheet connection")
    mapping = {**connection["mapping"], "fields": body["fields"]}
    changes: dict[str, Json] = {
        "mapping": mapping,
        "enabled": False,
        "last_activity_at": state.clock.now_ms(),
    }
    connection = shelf.put("connection", connection.with_changes(changes))
    message = "Mapping saved; the connection is paused"
    target = connection["spreadsheet_id"]
    return Answer(success(state.clock, {"connection": connection}, message), target=target)


def income_batch(state: State, call: Call) -> Answer:
    """Issue invoices, with the fields that lists need.  The specification has only the operation's name."""
    body = checked(state, call.body, validate.INCOME_BATCH)
    invoices: list[Record] = []
    for fields in body.get("invoices", [body]):
        kept: dict[str, Json] = {"idempotency_key": fields.get("idempotency_key"), "from": "api"}
        invoice = sample_documents.new_invoice(
            state, call.book, kept | {"metadata": fields.get("metadata", {})}
        )
        invoices.append(call.book.invoices.put(invoice["uuid"], invoice))
    batch: dict[str, Json] = {
        "id": state.new_id("batch_"),
        "total": len(invoices),
        "accepted": [invoice["uuid"] for invoice in invoices],
        "rejected": [],
    }
    return Answer(success(state.clock, batch), 201, batch["id"])
