"""Every operation, answered as the specification describes."""

import base64
import io
import re
import zipfile
from decimal import Decimal
from pathlib import Path

import pytest

from invsvc_async.simulator import Simulator, routes

from .conftest import HOOK, Caller, plain_session

pytestmark = pytest.mark.one_python


async def test_route_table_and_its_answers(service, call):
    """Each route is answered by its operation, not by the 404 for unknown routes."""
    ids = {"operationId": "0b0e7f9a-6f0b-4c5e-8a39-1d1a2b3c4d5e", "linkId": "plink_9"}
    for operation, method, path in routes():
        filled = re.sub(r"\{(\w+)\}", lambda name: ids.get(name[1], "x"), path)
        await call(method, filled)
        assert service.arrivals(operation) == 1, operation
    assert service.arrivals() == len(routes()) == len(FINDABLE)


RETENTION, REMINDER = (
    "11111111-1111-4111-8111-111111111111",
    "22222222-2222-4222-8222-222222222222",
)
DBTABLE = "/teams/team_1/integrations/dbtable"
# What a user of a fresh service can ask for: every id is one that the how-to page names, or that a list shows.
FINDABLE = {
    "journeys.update": ("/journeys/jrn_1", {"name": "Dunning, May"}),
    "journeys.get": ("/journeys/jrn_1", None),
    "invoices.egress": ("/invoices/egress", None),
    "invoices.payment_complements": ("/invoices/payment", None),
    "invoices.download_status": ("/invoices/download/status/request_1", None),
    "retentions.files": (f"/retentions/{RETENTION}/files", None),
    "teams.create": ("/teams", {"legal_name": "Sucursal Uno"}),
    "teams.dbtable_webhooks": (f"{DBTABLE}/webhooks", None),
    "teams.dbtable_tables": (f"{DBTABLE}/bases/base_1/tables", None),
    "users.get": ("/users/usr_1", None),
    "users.update_preferences": ("/users/me/preferences/team_1", {"testmode": False}),
    "payments.link": ("/payments/links/plink_1", None),
    "payments.reminder_operation": (
        f"/payments/pay_1/reminder-operations/{REMINDER}",
        None,
    ),
    "sheets.save_mapping": ("/sheets/mapping", {"fields": {"amount": "B"}}),
    "webhooks.health": ("/webhooks/health", None),
    "webhooks.create": ("/webhooks", HOOK),
    "webhooks.list": ("/webhooks", None),
    "webhooks.get": ("/webhooks/{listed}", None),
    "webhooks.update": ("/webhooks/{listed}", {"status": "inactive"}),
    "webhooks.delete": ("/webhooks/{listed}", None),
}
FOR_PERSONS = {
    "teams.dbtable_webhooks",
    "teams.dbtable_tables",
    "users.update_preferences",
}


@pytest.mark.parametrize("token", ["api_key", "test_key"])
async def test_every_operation_of_a_fresh_service(service, call, token):
    """Each operation answers 2xx, in both data modes, with ids that its user can find."""
    method_of = {operation: method for operation, method, _ in routes()}
    assert FINDABLE.keys() == method_of.keys()
    key, listed = getattr(service, token), None
    for operation, (path, body) in FINDABLE.items():
        presented = service.person_token if operation in FOR_PERSONS else key
        path = path.replace("{listed}", str(listed))  # noqa: PLW2901 - the same path, filled in
        answered = await call(method_of[operation], path, json=body, token=presented)
        assert 200 <= answered.status < 300, operation
        assert service.arrivals(operation) == 1
        if operation == "webhooks.list":
            listed = answered.body["data"][0]["id"]


def test_ids_that_the_how_to_page_names():
    """A new service shows all its records to its users, by id."""
    page = (Path(__file__).parents[2] / "docs/how-to/test-your-code.md").read_text(
        encoding="utf-8"
    )
    named = (
        "jrn_1",
        "request_1",
        "base_1",
        "usr_1",
        "plink_1",
        "pay_1",
        "team_1",
        RETENTION,
        REMINDER,
    )
    assert [each for each in named if f"`{each}`" not in page] == []


async def test_reminder_operation_of_a_fresh_service(call):
    """It has only the ids by which it is read, because the specification lists no fields."""
    shown = (await call("GET", FINDABLE["payments.reminder_operation"][0])).body["data"]
    assert shown == {"payment_id": "pay_1", "operation_id": REMINDER}


async def test_unknown_route(call):
    """A path that the service does not have is a 404 in the standard envelope."""
    answered = await call("GET", "/nothing/here")
    assert (answered.status, answered.body["error"]["code"]) == (
        404,
        "resource_not_found",
    )


async def test_journey_update_and_get(service, call):
    """An update changes the fields sent and `last_updated`, and the read shows it."""
    before = (await call("GET", "/journeys/jrn_1")).body["data"]
    graph = {
        "nodes": [],
        "edges": [],
        "viewport": {"x": 0, "y": Decimal("1.50"), "zoom": 1},
    }
    sent = {
        "name": "Dunning, May",
        "description": None,
        "graph": {**graph, "viewport": None},
        "triggerType": None,
    }
    updated = await call("PUT", "/journeys/jrn_1", json=sent)
    assert updated.status == 200
    assert updated.body.keys() == {"success", "data", "timestamp"}
    shown = (await call("GET", "/journeys/jrn_1")).body["data"]
    assert shown == updated.body["data"]
    assert shown["name"] == "Dunning, May"
    assert shown["triggerType"] == before["triggerType"], "a null leaves it alone"
    assert shown["last_updated"] > before["last_updated"]
    assert service.ledger.effects("journeys.update")[0].target == "jrn_1"


async def test_journey_update_of_an_archived_one(service, call):
    """An archived journey is in a conflicting state: 409, nothing changed."""
    journey = service.seed_journey(status="archived", name="Old")
    answered = await call("PUT", f"/journeys/{journey.id}", json={"name": "New"})
    assert (answered.status, answered.body["error"]["code"]) == (
        409,
        "resource_conflict",
    )
    assert service.book().journeys.items[journey.id].name == "Old"


@pytest.mark.parametrize(
    ("reads", "status", "name"),
    [("draft", 200, "B"), ("published", 200, "A"), ("off", 404, None)],
)
async def test_journey_read_by_setting(reads, status, name):
    """The unlisted read shows the draft fields or the published snapshot, or is absent."""
    async with Simulator(journey_reads=reads) as service, plain_session() as session:
        call = Caller(session, service)
        service.seed_journey(id="jrn_p", status="published", name="A")
        await call("PUT", "/journeys/jrn_p", json={"name": "B"})
        answered = await call("GET", "/journeys/jrn_p")
        assert answered.status == status
        assert answered.body.get("data", {}).get("name") == name


async def test_journey_published_by_somebody_else():
    """Publishing takes a snapshot, which later updates of the draft fields do not change."""
    async with (
        Simulator(journey_reads="published") as service,
        plain_session() as session,
    ):
        call = Caller(session, service)
        service.change_journey("jrn_1", status="published", name="A")
        await call("PUT", "/journeys/jrn_1", json={"name": "B"})
        assert (await call("GET", "/journeys/jrn_1")).body["data"]["name"] == "A"


async def test_webhook_lifecycle(service, call):
    """Create shows the secret once. Get, list and update do not. Delete has neither payload nor time."""
    created = await call("POST", "/webhooks", json={**HOOK, "description": "one"})
    hook = created.body["data"]
    secret = hook.pop("secret")
    assert created.status == 201
    assert "Store the secret" in created.body["message"]
    assert re.fullmatch(r"wh_[0-9a-f]+", hook["id"])
    assert service.secret_of(hook["id"]) == secret
    assert hook["status"] == "active"
    assert (await call("GET", f"/webhooks/{hook['id']}")).body["data"] == hook
    updated = await call("PUT", f"/webhooks/{hook['id']}", json={"status": "inactive"})
    assert updated.body["data"] == {**hook, "status": "inactive"}
    assert (await call("GET", "/webhooks")).body["data"] == [
        {**hook, "status": "inactive"}
    ]
    assert (await call("DELETE", f"/webhooks/{hook['id']}")).body == {
        "success": True,
        "message": "Webhook deleted",
    }
    assert (await call("GET", f"/webhooks/{hook['id']}")).status == 404
    assert (await call("DELETE", f"/webhooks/{hook['id']}")).status == 404
    first, second = service.ledger.find("webhooks.delete")
    assert (first.applied, second.applied, second.refused) == (True, False, True)


async def test_webhook_list_order_and_filter(service, call):
    """Webhooks come newest first, at most `limit` (10 by default), filtered by status."""
    made = [
        service.seed_webhook(
            created_at=1000 + n, status="inactive" if n == 3 else "active"
        )
        for n in range(12)
    ]
    newest_first = [hook.id for hook in reversed(made)]
    listed = (await call("GET", "/webhooks")).body
    assert [hook["id"] for hook in listed["data"]] == newest_first[:10]
    assert "next" not in listed
    whole = (await call("GET", "/webhooks", params={"limit": "100"})).body["data"]
    assert [hook["id"] for hook in whole] == newest_first
    inactive = (await call("GET", "/webhooks", params={"status": "inactive"})).body[
        "data"
    ]
    assert [hook["id"] for hook in inactive] == [made[3].id]


async def test_health_without_credential(call):
    """The probe answers its fixed strings to everybody."""
    assert (await call("GET", "/webhooks/health", token=None)).body == {
        "status": "ok",
        "module": "webhooks",
    }


async def test_team_create(service, call):
    """A new team has every field of a Team, and the onboarding URL only if requested."""
    sent = {
        "legal_name": "Sucursal Uno",
        "address": {"city": "León"},
        "credit_limit": 5,
        "generate_onboarding_url": True,
        "add_members": [{"id": "usr_9", "role": "viewer"}],
        "team": "reserved: ignored",
    }
    answered = await call("POST", "/teams", json=sent)
    team = answered.body["data"]
    assert answered.status == 201
    assert (team["legal_name"], team["credit_limit"], team["address"]["city"]) == (
        "Sucursal Uno",
        5,
        "León",
    )
    assert team["address"]["country"] == "MEX"
    assert [member["id"] for member in team["members"]] == ["usr_1", "usr_9"]
    assert team["onboarding_url"].endswith(team["id"])
    assert team["id"] in service.teams
    assert (await call("GET", "/webhooks", params={"team": team["id"]})).status == 200
    plain = await call("POST", "/teams", json={"legal_name": "Dos"})
    assert "onboarding_url" not in plain.body["data"]


async def test_team_create_with_the_members_of_the_master_team(service, call):
    """`add_master_team_members` copies each member with the role, and the creator only once."""
    members = [
        {"id": id_, "email": f"{id_}@example.com", "role": role}
        for id_, role in (("usr_1", "admin"), ("usr_2", "viewer"))
    ]
    master = service.seed_team(connect=True, members=members)
    key = service.issue_key(team=master.id)
    for asked, copied in (({}, []), ({"add_master_team_members": True}, members[1:])):
        team = (
            await call(
                "POST",
                "/teams",
                json={**asked, "add_members": [{"id": "usr_9", "role": "editor"}]},
                token=key,
            )
        ).body["data"]
        assert [member["id"] for member in team["members"]] == [
            "usr_1",
            *(each["id"] for each in copied),
            "usr_9",
        ]
        assert [
            member for member in team["members"] if member["id"] == "usr_2"
        ] == copied


@pytest.mark.parametrize(
    ("features", "status", "code"),
    [
        (("suppliers",), 403, "insufficient_permissions"),
        (("multipleIssuerAccounts",), 401, "unauthorized"),
    ],
)
async def test_team_create_without_the_plan_feature(
    service, call, features, status, code
):
    """Each missing feature has its own refusal, in the standard envelope."""
    service.set_features(service.team, *features)
    answered = await call("POST", "/teams", json={})
    assert (answered.status, answered.body["error"]["code"]) == (status, code)
    assert service.ledger.effects() == []


async def test_user(service, call):
    """A user of the team is shown; a user of another team is not."""
    assert (await call("GET", "/users/usr_1")).body["data"]["teams"] == [
        "team_1",
        "team_2",
    ]
    stranger = service.seed_user(teams=["team_3"])
    assert (await call("GET", f"/users/{stranger.id}")).status == 404


async def test_preferences_flip_the_mode_of_a_person(service, call):
    """`testmode` sets the data mode of the person's later calls."""
    hook = service.seed_webhook(livemode=False)
    token = service.person_token
    assert (await call("GET", "/webhooks", token=token)).body["data"] == []
    answered = await call(
        "PATCH", "/users/me/preferences/team_1", json={"testmode": True}, token=token
    )
    assert answered.body["data"]["testmode"] is True
    assert (await call("GET", "/webhooks", token=token)).body["data"] == [hook]


async def test_payment_link(service, call):
    """A link keeps its decimals. Its id must match the pattern. The payment module is required."""
    link = (await call("GET", "/payments/links/plink_1")).body["data"]
    assert str(link["amount"]) == "199.90"
    assert (await call("GET", "/payments/links/link_1")).status == 400
    assert (await call("GET", "/payments/links/plink_2")).status == 404
    outsider = service.issue_key(modules=frozenset())
    assert (await call("GET", "/payments/links/plink_1", token=outsider)).status == 403


async def test_reminder_operation(service, call):
    """The same UUID can be read again and shows later changes; other UUID forms are refused."""
    uuid4 = "0b0e7f9a-6f0b-4c5e-8a39-1d1a2b3c4d5e"
    path = f"/payments/pay_1/reminder-operations/{uuid4}"
    assert (await call("GET", path)).status == 404
    service.seed_reminder("pay_1", uuid4, status="sending")
    assert (await call("GET", path)).body["data"]["status"] == "sending"
    service.seed_reminder("pay_1", uuid4, status="sent")
    assert (await call("GET", path)).body["data"]["status"] == "sent"
    assert (
        await call("GET", path.upper().replace("/PAYMENTS", "/payments"))
    ).status == 404
    assert (
        await call("GET", f"/payments/pay_1/reminder-operations/{uuid4.upper()}")
    ).status == 400


async def test_sheet_mapping(service, call):
    """Saving a mapping pauses the connection; a viewer may not do it."""
    answered = await call("PUT", "/sheets/mapping", json={"fields": {"amount": "B"}})
    connection = answered.body["data"]["connection"]
    assert connection["mapping"] == {"target": "payment", "fields": {"amount": "B"}}
    assert connection["enabled"] is False
    viewer = service.issue_key(role="viewer")
    assert (
        await call("PUT", "/sheets/mapping", json={"fields": {}}, token=viewer)
    ).status == 403
    assert len(service.ledger.effects()) == 1


async def test_retention_files(service, call):
    """Both files are returned unless one is requested; their content is base64."""
    retention = service.seed_retention()
    files = (await call("GET", f"/retentions/{retention.id}/files")).body["data"]
    assert [file["type"] for file in files] == ["application/pdf", "application/xml"]
    assert base64.b64decode(files[0]["content"]).startswith(b"%PDF")
    only = await call(
        "GET", f"/retentions/{retention.id}/files", params={"file_type": "xml"}
    )
    assert [file["type"] for file in only.body["data"]] == ["application/xml"]
    assert (
        await call(
            "GET", f"/retentions/{retention.id}/files", params={"file_type": "doc"}
        )
    ).status == 400


async def test_download_and_its_package(service, call):
    """The tax authority completes a request; its package is returned as bytes without an envelope."""
    waiting = service.seed_download(status="processing", packages=[])
    path = f"/invoices/download/status/{waiting.request_id}"
    assert (await call("GET", path)).body["data"]["status"] == "processing"
    service.seed_download(request_id=waiting.request_id)
    done = (await call("GET", path)).body["data"]
    assert done["status"] == "completed"
    package = await call(
        "GET", f"/invoices/download/package/{done['packages'][0]['id']}"
    )
    assert package.headers["Content-Type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(package.body)) as opened:
        assert [name.endswith(".xml") for name in opened.namelist()] == [True]
    assert (await call("GET", "/invoices/download/package/pkg_none")).status == 404


async def test_dbtable_listings(service, call):
    """A member sees mappings and tables with a person's token; keys and other teams' members do not."""
    token, path = service.person_token, "/teams/team_1/integrations/dbtable"
    listing = (
        await call("GET", f"{path}/webhooks", token=token, params={"scope": "shared"})
    ).body["data"]
    assert (listing["scope"], listing["has_more"], listing["data"][0]["id"]) == (
        "shared",
        False,
        "map_1",
    )
    tables = (await call("GET", f"{path}/bases/base_1/tables", token=token)).body[
        "data"
    ]
    assert tables["data"][0]["fields"] == [{"id": "fld_1", "name": "Monto"}]
    assert (await call("GET", f"{path}/webhooks")).status == 403
    assert (
        await call("GET", "/teams/team_3/integrations/dbtable/webhooks", token=token)
    ).status == 403
    assert (
        await call("GET", f"{path}/webhooks", token=token, params={"scope": "x"})
    ).status == 400
    assert (await call("GET", f"{path}/bases/base_2/tables", token=token)).status == 404


async def test_dbtable_pages(service, call):
    """`next_cursor` leads to the next mappings, filtered by state."""
    book = service.book()
    book.mappings[:] = [
        type(book.mappings[0])(id=f"map_{n}", state="active" if n else "expired")
        for n in range(4)
    ]
    path, token = "/teams/team_1/integrations/dbtable/webhooks", service.person_token
    first = (
        await call("GET", path, token=token, params={"limit": "2", "state": "active"})
    ).body["data"]
    assert ([row["id"] for row in first["data"]], first["has_more"]) == (
        ["map_1", "map_2"],
        True,
    )
    params = {"limit": "2", "state": "active", "next": first["next_cursor"]}
    rest = (await call("GET", path, token=token, params=params)).body["data"]
    assert ([row["id"] for row in rest["data"]], rest["next_cursor"]) == (
        ["map_3"],
        None,
    )
    assert (
        await call("GET", path, token=token, params={"next": "map_9"})
    ).status == 400


async def test_income_batch_and_its_invoice(service, call):
    """An invoice issued with an idempotency key is found by it in the egress list."""
    sent = {"invoices": [{"idempotency_key": "row-17"}, {"idempotency_key": "row-18"}]}
    assert (await call("POST", "/invoices/income/batch", json=sent)).status == 201
    found = (
        await call("GET", "/invoices/egress", params={"idempotency_key": "row-17"})
    ).body["data"]
    assert [invoice["idempotency_key"] for invoice in found] == ["row-17"]
    assert len(service.ledger.effects("invoices.income_batch")) == 1
