"""Every operation as it goes on the wire, recorded by a server on a real socket."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from invsvc_async.api.operations import BY_NAME, TABLE
from invsvc_async.client import Client
from invsvc_async.errors import ConfigurationError, InvalidRequestError
from invsvc_async.models import JourneyGraph, RetentionFile, Webhook, WebhookList
from invsvc_async.reconcile.outcome import Verdict
from invsvc_async.transport.credentials import ApiKey, OAuthToken, PersonToken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

UUID4 = "0b9e6b0a-3f52-4d0e-9a6f-6f0d7b8f5a11"
GRAPH = {"nodes": [], "edges": [], "viewport": {"x": 0, "y": 0, "zoom": 1.5}}


@attrs.frozen
class Call:
    """One call of the client, and the request that it must become."""

    operation: str
    make: Callable[[Client], Any]  # Any: a read, a write or a list, to be awaited
    target: str
    body: str | None = None
    payload: Any = attrs.field(factory=dict)  # Any: the payload of the answer


CALLS = [
    Call(
        "journeys.update",
        lambda client: client.journeys.update(
            "jrn 1",
            name="Dunning, May",
            description=None,
            graph=GRAPH,
            trigger_type="manual",
            replaces_defaults=False,
        ),
        "/v2/journeys/jrn%201",
        '{"name":"Dunning, May","description":null,'
        '"graph":{"nodes":[],"edges":[],"viewport":{"x":0,"y":0,"zoom":1.5}},"triggerType":"manual","replacesDefaults":false}',
        {"id": "jrn 1"},
    ),
    Call(
        "journeys.get",
        lambda client: client.journeys.get("jrn_1"),
        "/v2/journeys/jrn_1",
    ),
    Call(
        "invoices.egress",
        lambda client: client.invoices.egress(
            limit=100,
            cursor="a+b/c=",
            order_by="timestamp",
            order="desc",
            created_after=date(2026, 5, 1),
            created_before=date(2026, 6, 1),
            idempotency_key="k 1",
            client_id="cli_1",
            client_tax_id="AAA&010101",
            status="cancelled",
            series="Ñ",
            folio=17,
            metadata={"order": "1"},
        ),
        "/v2/invoices/egress?limit=100&order_by=timestamp&order=desc&created_after=1777593600000"
        "&created_before=1780272000000&idempotency_key=k+1&client_id=cli_1&client_tax_id=AAA%26010101"
        "&status=cancelled&series=%C3%91&folio=17&metadata.order=1&next=a%2Bb%2Fc%3D",
        payload=[],
    ),
    Call(
        "invoices.payment_complements",
        lambda client: client.invoices.payment_complements(limit=1, order="asc"),
        "/v2/invoices/payment?limit=1&order=asc",
        payload=[],
    ),
    Call(
        "invoices.download_status",
        lambda client: client.invoices.download_status("req_1"),
        "/v2/invoices/download/status/req_1",
    ),
    Call(
        "retentions.files",
        lambda client: client.retentions.files("ret_1", file_type="xml"),
        "/v2/retentions/ret_1/files?file_type=xml",
        payload=[],
    ),
    Call(
        "teams.create",
        lambda client: client.teams.create(
            legal_name="ACME",
            tax_id="AAA010101AAA",
            tax_system="601",
            address={"country": "MEX"},
            brand={"alias": "A"},
            support_email="a@b.example",
            support_phone="1",
            generate_onboarding_url=True,
            metadata={"n": Decimal("1.10")},
            add_members=[{"id": "usr_1", "role": "viewer"}],
            add_master_team_members=False,
            credit_limit=None,
            extra_body={"later": 1},
        ),
        "/v2/teams",
        '{"legal_name":"ACME","tax_id":"AAA010101AAA","tax_system":"601","address":{"country":"MEX"},'
        '"brand":{"alias":"A"},"support_email":"a@b.example","support_phone":"1","generate_onboarding_url":true,'
        '"metadata":{"n":1.10},"add_members":[{"id":"usr_1","role":"viewer"}],"add_master_team_members":false,'
        '"credit_limit":null,"later":1}',
        {"id": "team_9"},
    ),
    Call(
        "teams.dbtable_webhooks",
        lambda client: client.teams.dbtable_webhooks(
            "team_1", scope="shared", state="expired", limit=100, extra_query={"q": "x"}
        ),
        "/v2/teams/team_1/integrations/dbtable/webhooks?scope=shared&state=expired&limit=100&q=x",
    ),
    Call(
        "teams.dbtable_tables",
        lambda client: client.teams.dbtable_tables("team_1", "app_1"),
        "/v2/teams/team_1/integrations/dbtable/bases/app_1/tables",
    ),
    Call(
        "users.get",
        lambda client: client.users.get("usr?1#%"),
        "/v2/users/usr%3F1%23%25",
    ),
    Call(
        "users.update_preferences",
        lambda client: client.users.update_preferences(
            "team_1", testmode=True, extra_body={"later": None}
        ),
        "/v2/users/me/preferences/team_1",
        '{"testmode":true,"later":null}',
        {"team_id": "team_1", "testmode": True},
    ),
    Call(
        "payments.link",
        lambda client: client.payments.link("plink_1"),
        "/v2/payments/links/plink_1",
    ),
    Call(
        "payments.reminder_operation",
        lambda client: client.payments.reminder_operation(
            "pay_1", UUID4, extra_query={"x": "y"}
        ),
        f"/v2/payments/pay_1/reminder-operations/{UUID4}?x=y",
    ),
    Call(
        "sheets.save_mapping",
        lambda client: client.sheets.save_mapping(
            {"total": "B"}, extra_body={"target": "payment"}
        ),
        "/v2/sheets/mapping",
        '{"fields":{"total":"B"},"target":"payment"}',
        {"connection": {"enabled": False}},
    ),
    Call(
        "webhooks.list",
        lambda client: client.webhooks.list(limit=100, status="active"),
        "/v2/webhooks?limit=100&status=active",
        payload=[],
    ),
    Call(
        "webhooks.get", lambda client: client.webhooks.get("wh_1"), "/v2/webhooks/wh_1"
    ),
    Call(
        "webhooks.create",
        lambda client: client.webhooks.create(
            url="https://me.example/in",
            events=["invoice.created"],
            description="é",
            status="inactive",
        ),
        "/v2/webhooks",
        '{"url":"https://me.example/in","events":["invoice.created"],"description":"é","status":"inactive"}',
        {"id": "wh_1", "secret": "s"},
    ),
    Call(
        "webhooks.update",
        lambda client: client.webhooks.update(Webhook(id="wh_1"), status="active"),
        "/v2/webhooks/wh_1",
        '{"status":"active"}',
        {"id": "wh_1", "url": "https://me.example/in"},
    ),
    Call(
        "webhooks.delete",
        lambda client: client.webhooks.delete("wh_1"),
        "/v2/webhooks/wh_1",
    ),
    Call(
        "webhooks.health",
        lambda client: client.webhooks.health(),
        "/v2/webhooks/health",
    ),
    Call(
        "client.request",
        lambda client: client.request(
            "GET", "payments", params={"limit": 5, "open": True, "x": "a b"}
        ),
        "/v2/payments?limit=5&open=true&x=a+b",
    ),
    Call(
        "client.download",
        lambda client: client.download("/invoices/download/package/p 1").read(),
        "/v2/invoices/download/package/p%201",
    ),
    Call(
        "client.write",
        lambda client: client.write(
            "PATCH", "/receipts/r%2F1", params={"dry": False}, json=[1, Decimal("2.50")]
        ),
        "/v2/receipts/r%2F1?dry=false",
        "[1,2.50]",
    ),
]


class Recorder:
    """Answers everything with one payload, and keeps the writes and reads that arrived."""

    def __init__(self) -> None:
        self.base_url = ""
        self.payload: Any = {}  # Any: JSON
        self.arrived: list[tuple[str, str, dict[str, str], str]] = []

    async def answer(self, request: web.Request) -> web.Response:
        """Keep the request as it came."""
        body = (await request.read()).decode()
        self.arrived.append(
            (request.method, request.raw_path, dict(request.headers), body)
        )
        answer = {
            "success": True,
            "data": self.payload,
            "timestamp": 1_777_593_600_000,
            "message": "done",
        }
        return web.Response(text=json.dumps(answer), content_type="application/json")

    def of(self, method: str) -> tuple[str, dict[str, str], str]:
        """Return the one request of *method*; a write may have read the state before."""
        (found,) = [arrived[1:] for arrived in self.arrived if arrived[0] == method]
        return found


@pytest.fixture
async def recorder() -> AsyncIterator[Recorder]:
    """Yield a recording server."""
    recorder = Recorder()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", recorder.answer)
    async with TestServer(app) as server:
        recorder.base_url = str(server.make_url("/v2"))
        yield recorder


def credential_for(operation: str) -> ApiKey | PersonToken:
    """Return a credential of a kind that the operation accepts."""
    return (
        ApiKey("eyJ.key")
        if "api_key" in BY_NAME[operation].credentials
        else PersonToken("eyJ.key")
    )


every_call = pytest.mark.parametrize("call", CALLS, ids=lambda call: call.operation)


def test_every_operation_is_mapped() -> None:
    """No row of the table is without a call here."""
    assert [call.operation for call in CALLS] == [row.name for row in TABLE]


@every_call
async def test_operation_on_the_wire(recorder, call):
    """Method, target, body and headers are those of the specification."""
    recorder.payload = call.payload
    row = BY_NAME[call.operation]
    async with Client(recorder.base_url, credential_for(call.operation)) as client:
        await call.make(client)

    method = "PATCH" if call.operation == "client.write" else row.method
    target, headers, body = recorder.of(method)
    assert target == call.target
    assert body == (call.body or "")
    assert headers.get("Authorization") == (
        "Bearer eyJ.key" if row.credentials else None
    )
    assert headers.get("Content-Type") == ("application/json" if call.body else None)
    assert ("Content-Length" in headers) == (method != "GET")
    assert "Transfer-Encoding" not in headers


@every_call
async def test_operation_in_another_team(recorder, call):
    """The view's team, quoted, is the last parameter of every request, save the health probe's."""
    recorder.payload = call.payload
    async with Client(recorder.base_url, credential_for(call.operation)) as client:
        await call.make(client.for_team("team 2"))

    assert recorder.arrived
    for _, target, _, _ in recorder.arrived:
        has_team = target.endswith(("?team=team+2", "&team=team+2"))
        assert has_team == BY_NAME[call.operation].connect


async def test_team_of_a_call_goes_before_the_views(recorder):
    """`team=` of a method replaces the team of the view."""
    async with Client(recorder.base_url, ApiKey("eyJ.key"), team="team_1") as client:
        await client.users.get("usr_1", team="team_2")

    assert recorder.of("GET")[0] == "/v2/users/usr_1?team=team_2"


@pytest.mark.parametrize(
    "make",
    [
        lambda client: client.users.update_preferences("team_1", testmode=True),
        lambda client: client.teams.dbtable_webhooks("team_1"),
        lambda client: client.teams.dbtable_tables("team_1", "app_1"),
    ],
)
@pytest.mark.parametrize(
    "credential", [ApiKey("eyJ.key"), OAuthToken("eyJ.key")], ids=repr
)
async def test_operation_closed_to_a_credential(recorder, make, credential):
    """What the specification closes to a kind of credential is refused before anything is sent."""
    async with Client(recorder.base_url, credential) as client:
        with pytest.raises(ConfigurationError, match="person"):
            await make(client)

    assert recorder.arrived == []


async def test_answers_become_models(recorder):
    """Lists, files, mappings and deletions come as their models, with what the answer said beside."""
    recorder.payload = [{"id": "wh_1"}, {"id": "wh_2"}]
    async with Client(recorder.base_url, ApiKey("eyJ.key")) as client:
        hooks = await client.webhooks.list(limit=2)
        assert isinstance(hooks, WebhookList)
        assert (hooks.is_full, [hook.id for hook in hooks]) == (True, ["wh_1", "wh_2"])
        assert hooks.meta.message == "done"
        assert not (await client.webhooks.list()).is_full

        recorder.payload = [
            {"content": "aGk=", "filename": "a.xml", "type": "text/xml"}
        ]
        (file,) = await client.retentions.files("ret_1")
        assert isinstance(file, RetentionFile)
        assert file.content == b"hi"
        assert file.meta.message == "done"

        recorder.payload = {"connection": {"enabled": False, "spreadsheet_id": "s"}}
        assert (await client.sheets.save_mapping({})).spreadsheet_id == "s"

        recorder.payload = None
        deleted = await client.webhooks.delete("wh_1")
        assert (deleted.id, deleted.message) == ("wh_1", "done")

        recorder.payload = {"id": "usr_1"}
        assert (await client.users.get("usr_1")).meta.message == "done"


async def test_graph_model_goes_out_as_it_came(recorder):
    """A graph that was read can be sent back."""
    recorder.payload = {
        "id": "jrn_1",
        "graph": {"nodes": [], "edges": [], "viewport": None},
    }
    async with Client(recorder.base_url, ApiKey("eyJ.key")) as client:
        journey = await client.journeys.get("jrn_1")
        assert isinstance(journey.graph, JourneyGraph)
        outcome = await client.journeys.update(journey, graph=journey.graph).outcome()

    assert outcome.verdict is Verdict.APPLIED
    assert recorder.of("PUT")[2] == '{"graph":{"nodes":[],"edges":[],"viewport":null}}'


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/payments"),
        ("HEAD", "/payments"),
        ("get", "/payments"),
        ("GET", ""),
        ("GET", "/"),
        ("GET", "https://elsewhere.example/x"),
        ("GET", "//elsewhere.example/x"),
        ("GET", "%2Felsewhere.example/x"),
        ("GET", "/a//b"),
        ("GET", "/a/../../x"),
        ("GET", "../x"),
        ("GET", "/a/%2e%2e/x"),
        ("GET", "/a/%2E./x"),
        ("GET", "/a?b=c"),
        ("GET", "/a#b"),
        ("GET", "/a\\b"),
        ("GET", "/a%5c..%5cb"),
        ("GET", "/a\r\nX: y"),
        ("GET", "/a%0d%0aX"),
        ("GET", None),
    ],
)
async def test_unlisted_read_that_leaves_its_bounds(recorder, method, path):
    """Another method, another host, a dotted or doubled segment, a smuggled query: refused, unsent."""
    async with Client(recorder.base_url, ApiKey("eyJ.key")) as client:
        with pytest.raises(InvalidRequestError):
            await client.request(method, path)

    assert recorder.arrived == []


@pytest.mark.parametrize(
    "given", [{"tag": 5}, {"tag": ""}, {"tag": "a\n"}, {"on_lost_secret": "ignore"}]
)
async def test_create_with_a_tag_that_is_none(recorder, given):
    """A tag is a flag or a printable text, and a lost secret is raised or kept."""
    async with Client(recorder.base_url, ApiKey("eyJ.key")) as client:
        with pytest.raises(InvalidRequestError, match=next(iter(given))):
            client.webhooks.create(
                url="https://me.example", events=["invoice.created"], **given
            )

    assert recorder.arrived == []


async def test_create_with_a_tag(recorder):
    """The tag ends the description, one space behind the caller's own."""
    recorder.payload = {"id": "wh_1"}
    async with Client(recorder.base_url, ApiKey("eyJ.key")) as client:
        hook = client.webhooks.create(
            url="https://me.example",
            events=["invoice.created"],
            description="Dunning",
            tag="row-17",
        )
        await hook

    assert json.loads(recorder.of("POST")[2])["description"] == "Dunning row-17"


async def test_unlisted_write_that_reads(recorder):
    """A write by GET, with what JSON has no form for, or with a team in its query, is refused."""
    async with Client(recorder.base_url, ApiKey("eyJ.key")) as client:
        with pytest.raises(InvalidRequestError) as caught:
            client.write("GET", "/payments", json={"a": object()}, params={"team": "t"})

    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "method",
        "params.team",
        "json.a",
    ]


async def test_download_streams_and_fails_in_words(recorder):
    """A download can be iterated over, entered for its headers, or read whole."""
    recorder.payload = "x" * 10
    async with Client(recorder.base_url, ApiKey("eyJ.key")) as client:
        whole = await client.download("/f").read()
        assert b"".join([part async for part in client.download("/f")]) == whole
        async with client.download("/f") as body:
            assert body.headers["Content-Type"].startswith("application/json")
            assert await body.read() == whole
