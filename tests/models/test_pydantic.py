"""Models, pages, outcomes and events in pydantic and FastAPI, on a real server."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Annotated, Any

import attrs
import httpx
import pytest
from fastapi import Body, FastAPI
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from invsvc_async import ApiKey, Client, Outcome, Page, ReconcilePolicy, events, models
from invsvc_async.codec import envelope
from invsvc_async.models import Address, Invoice, Journey, Webhook, WebhookList
from invsvc_async.simulator import Simulator
from invsvc_async.testing import quick_client
from tests.codec.recorded import SAMPLES, spelt
from tests.events.bodies import SIGNED_TYPES, VERSIONS, encoded, signed_body
from tests.support.web_server import web_server

DIGITS = "1234567890.123456789"
HOOK = {
    "id": "wh_1", "url": "https://me.example/in", "events": ["invoice.created"], "status": "active",
    "owner": "usr_1", "created_at": 1_700_000_000_000,
}  # fmt: skip


class Order(BaseModel):
    """What an application stores."""

    invoice: Invoice
    hook: Webhook | None = None


class Row(BaseModel):
    """An outcome that an application stores."""

    outcome: Outcome[Journey]


def application(client: Client) -> FastAPI:  # noqa: C901 - endpoints
    app = FastAPI()

    @app.get("/invoice")
    async def invoice() -> Invoice:
        return (await client.invoices.egress(limit=1))[0]

    @app.get("/page", response_model=Page[Invoice])
    async def page() -> Any:
        return await client.invoices.egress(limit=2)

    @app.get("/bare")
    async def bare():
        return (await client.invoices.egress(limit=1))[0]

    @app.get("/within")
    async def within() -> dict[str, Any]:
        return {"invoice": (await client.invoices.egress(limit=1))[0]}

    @app.post(
        "/new", response_model_exclude={"secret"}, response_model_exclude_none=True
    )
    async def new() -> Webhook:
        made = await client.webhooks.create(
            url="https://me.example/in", events=["invoice.created"]
        )
        return attrs.evolve(made, description=None)

    @app.get("/hooks")
    async def hooks() -> WebhookList:
        return await client.webhooks.list()

    @app.put("/journey")
    async def journey(name: str) -> Outcome[Journey]:
        return await client.journeys.update("jrn_1", name=name).outcome()

    @app.put("/bare-journey")
    async def bare_journey(name: str):
        return await client.journeys.update("jrn_1", name=name).outcome()

    @app.put("/refused")
    async def refused() -> Outcome[Journey]:
        return await client.journeys.update("jrn_none", name="May").outcome()

    @app.put("/closed")
    async def closed() -> Outcome[Journey]:
        policy = ReconcilePolicy(deadline=0.2)
        async with Client(
            "http://127.0.0.1:9/v2", ApiKey("key"), reconcile=policy
        ) as other:
            return await other.journeys.update("jrn_1", name="May").outcome()

    @app.post("/bare-outcome")
    async def bare_outcome():
        return await client.webhooks.create(
            url="https://me.example/in", events=["invoice.created"]
        ).outcome()

    @app.post("/echo")
    async def echo(hook: Annotated[Webhook, Body()]) -> Webhook:
        return hook

    @app.post("/order")
    async def order(order: Order) -> Order:
        return order

    @app.post("/event")
    async def event(event: Annotated[events.Event, Body()]) -> events.Event:
        return event

    return app


@pytest.fixture
async def service():
    async with Simulator(seed=7) as running:
        running.seed_invoice(total=Decimal(DIGITS), subtotal=Decimal("116.00"))
        yield running


@pytest.fixture
async def browser(service):
    async with (
        quick_client(service) as client,
        web_server(application(client)) as found,
    ):
        yield found


async def on_the_wire(service):
    """Return the first invoice as the service sends it."""
    header = {"Authorization": f"Bearer {service.api_key}"}
    async with httpx.AsyncClient() as browser:
        answer = await browser.get(
            f"{service.base_url}/invoices/egress?limit=1", headers=header
        )
    return envelope.loads(answer.content)["data"][0]


@pytest.mark.parametrize("path", ["/invoice", "/bare", "/within", "/page"])
async def test_digits_of_an_endpoint(browser, service, path):
    """With and without an annotation, an endpoint answers the wire's own digits."""
    answer = await browser.get(path)
    found = envelope.loads(answer.content)
    found = (
        found["invoice"]
        if path == "/within"
        else found["data"][0]
        if path == "/page"
        else found
    )

    assert answer.status_code == 200
    assert spelt(found) == spelt(await on_the_wire(service))
    # decimals are strings, whatever their digits
    assert isinstance(found["total"], str)
    assert DIGITS in answer.text


@pytest.mark.parametrize("path", ["/journey", "/bare-journey"])
async def test_outcome_of_an_endpoint(browser, service, path):
    """Callers see four members, and nothing of the intent, the service's address, the credential or the policy."""
    service.script("journeys.update", "apply, then reset")
    answer = await browser.put(path, params={"name": "May"})
    shown = answer.json()

    assert set(shown) == {"verdict", "value", "message", "attempts"}
    assert (shown["verdict"], shown["value"]["name"], shown["attempts"]) == (
        "applied",
        "May",
        1,
    )
    assert not [
        each
        for each in (service.base_url, "credential", "settle_after")
        if each in answer.text
    ]
    assert len(service.ledger.effects("journeys.update")) == 1
    with pytest.raises(ValidationError, match=r"has no intent.*\"full\": True"):
        TypeAdapter(Outcome[Journey]).validate_json(answer.content)


@pytest.mark.parametrize("path", ["/closed", "/refused"])
async def test_outcome_that_is_not_applied(browser, path):
    """Its message says why, without the address of the service."""
    answer = await browser.put(path)

    assert set(answer.json()) == {"verdict", "value", "message", "attempts"}
    assert "127.0.0.1" not in answer.text


async def test_outcome_that_an_application_stores(service):
    """With the context, a field of a pydantic model is read back, and can be settled elsewhere."""
    service.script("journeys.update", "apply, then reset")
    async with quick_client(service) as client:
        row = Row(outcome=await client.journeys.update("jrn_1", name="May").outcome())
    full: dict[str, Any] = {"context": {"full": True}}
    assert set(row.model_dump()["outcome"]) == {
        "verdict",
        "value",
        "message",
        "attempts",
    }

    for back in (
        Row.model_validate_json(row.model_dump_json(**full)),
        Row.model_validate(row.model_dump(**full)),
    ):
        assert back.outcome.value.name == "May"
        assert not back.outcome.history
        async with quick_client(service) as other:
            assert (await other.settle(back.outcome.intent)).applied is True


async def test_secret_of_an_outcome_without_annotation(browser, service):
    """An outcome that is only returned is answered, too, and shows no secret."""
    answer = await browser.post("/bare-outcome")

    assert answer.json()["verdict"] == "applied"
    assert "whsec" not in answer.text


async def test_fields_that_an_endpoint_leaves_out(browser):
    """FastAPI's settings for the fields of a response apply to models as to those of pydantic."""
    answer = await browser.post("/new")

    assert answer.status_code == 200
    assert set(answer.json()) == {
        "id",
        "url",
        "events",
        "status",
        "owner",
        "created_at",
    }


@pytest.mark.parametrize("dump", ["json", "python"])
def test_fields_that_pydantic_leaves_out(dump):
    """Fields are named as on the wire, in parts too. Nulls of fields are left out, and those in metadata stay."""
    invoice = Invoice.from_dict(
        {"uuid": "A", "idempotency_key": None, "metadata": {"a": None}, "client": {"name": "C", "from": "api"},
         "items": [{"id": "i", "quantity": 1}], "news": None}
    )  # fmt: skip
    adapter, page = TypeAdapter(Page[Invoice]), Page(items=(invoice,))

    def dumped(value, made=adapter, **which):
        if dump == "json":
            return json.loads(made.dump_json(value, **which))
        return made.dump_python(value, **which)

    (left,) = dumped(
        page, exclude={"data": {"__all__": {"uuid": True, "client": {"from"}}}}
    )["data"]
    assert (set(left), left["client"]) == (
        {"idempotency_key", "metadata", "client", "items", "news"},
        {"name": "C"},
    )
    assert dumped(page, include={"data": {"__all__": {"uuid"}}}) == {
        "data": [{"uuid": "A"}]
    }
    (short,) = dumped(page, exclude_none=True)["data"]
    assert set(short) == {"uuid", "metadata", "client", "items", "news"}
    assert short["metadata"] == {"a": None}
    anything = TypeAdapter(object)
    assert "uuid" not in dumped(invoice, anything, exclude={"uuid"}, exclude_none=True)


async def test_request_bodies(browser):
    """A model is accepted as a body, unknown fields included, and a field of the wrong type is named."""
    sent = {**HOOK, "news": {"a": 1.5}}
    echoed = await browser.post("/echo", json=sent)
    wrong = await browser.post("/echo", json={**HOOK, "url": 7, "created_at": "now"})

    assert echoed.json() == sent
    assert wrong.status_code == 422
    assert [each["loc"] for each in wrong.json()["detail"]] == [
        ["body", "url"],
        ["body", "created_at"],
    ]


async def test_decimals_of_a_body(browser):
    """A decimal may be text or a short number; a number that JSON parsers have cut is refused."""
    exact = await browser.post("/order", json={"invoice": {"total": DIGITS}})
    short = await browser.post("/order", json={"invoice": {"total": 12.5, "news": 0.1}})
    kind = {"Content-Type": "application/json"}
    cut, hidden = [
        await browser.post("/order", content=f'{{"invoice": {body}}}', headers=kind)
        for body in (f'{{"total": {DIGITS}}}', f'{{"news": {{"a": [{DIGITS}]}}}}')
    ]

    assert exact.json()["invoice"]["total"] == DIGITS
    assert short.json()["invoice"] == {"total": "12.5", "news": 0.1}
    assert (cut.status_code, hidden.status_code) == (422, 422)
    assert cut.json()["detail"][0]["type"] == "inexact_number"


@pytest.mark.parametrize("place", ["metadata", "news"])
@pytest.mark.parametrize("levels", [300, 900])
async def test_body_that_is_nested_too_deeply(browser, place, levels):
    """It is refused with 422, as any other wrong value."""
    deep = f'{{"invoice": {{"{place}": {{"a": {"[" * levels}{"]" * levels}}}}}}}'

    answer = await browser.post(
        "/order", content=deep, headers={"Content-Type": "application/json"}
    )

    assert answer.status_code == 422
    assert "nested" in answer.json()["detail"][0]["msg"]


@pytest.mark.parametrize("total", [f'"{DIGITS}"', "12.5", "7"])
def test_strict_validation(total):
    """What pydantic writes is read again in its strict mode, too."""
    adapter = TypeAdapter(Invoice)
    invoice = adapter.validate_json(
        f'{{"total": {total}, "created_at": 5}}', strict=True
    )

    assert invoice.total == Decimal(total.strip('"'))
    assert adapter.validate_json(adapter.dump_json(invoice), strict=True) == invoice
    assert adapter.validate_python(invoice.to_dict(), strict=True) == invoice


@pytest.mark.parametrize("union", [Webhook | Invoice, Invoice | Webhook])
def test_null_fields_of_a_union(union):
    """The nulls of a field are left out by the class of the value."""
    adapter = TypeAdapter(union)

    invoice = adapter.dump_python(
        Invoice(uuid="A", idempotency_key=None), exclude_none=True
    )
    hook = adapter.dump_python(Webhook(id="wh_1", description=None), exclude_none=True)

    assert (invoice, hook) == ({"uuid": "A"}, {"id": "wh_1"})


@pytest.mark.parametrize("kind", [Outcome, Outcome[models.Team], Outcome[Any]])
async def test_decimals_of_an_outcome(service, kind):
    """An outcome is read back with the numbers of its value, whatever the annotation says."""
    async with quick_client(service) as client:
        outcome = await client.teams.create(legal_name="A", credit_limit=5).outcome()
        other = await client.write("POST", "/nowhere", json={}).outcome()
    adapter = TypeAdapter(kind)

    full = {"full": True}

    back = adapter.validate_json(adapter.dump_json(outcome, context=full))

    assert back.value == outcome.value
    assert not back.value.problems
    assert (
        adapter.validate_json(adapter.dump_json(other, context=full)).verdict
        is other.verdict
    )
    with pytest.raises(ValidationError, match="intent"):
        adapter.validate_python({"verdict": "applied"})


@pytest.mark.parametrize("operation", ["webhooks.list", "none"])
def test_outcome_of_no_write(operation):
    """An outcome is rejected if its intent is of no write."""
    intent = json.dumps({"schema": 1, "operation": operation})
    stored = {"schema": 1, "verdict": "applied", "intent": intent}

    with pytest.raises(ValidationError, match="not an intent"):
        TypeAdapter(Outcome[Webhook]).validate_json(json.dumps(stored))


@pytest.mark.parametrize("name", SIGNED_TYPES)
async def test_events_of_an_endpoint(browser, name):
    """Events of each family are accepted and answered."""
    for body in (
        signed_body(name),
        VERSIONS["v2"]("invoice.created"),
        VERSIONS["v1"]("payment.created"),
    ):
        answer = await browser.post("/event", json=body)

        assert answer.status_code == 200, answer.text
        assert events.parse(answer.content).type == events.parse(encoded(body)).type


@pytest.mark.parametrize("total", [DIGITS, "twelve", "NaN"])
def test_decimals_of_the_resource_of_an_event(total):
    """A v2 event is read back with the numbers of its resource. What is no number stays a problem."""
    resource = {
        "uuid": "A",
        "total": total,
        "items": [{"quantity": total}],
        "client": {"name": "1"},
        "metadata": {"a": "1"},
    }
    body = VERSIONS["v2"]("invoice.created") | {"data": {"object": resource}}
    adapter = TypeAdapter(events.Event)
    event = adapter.validate_json(json.dumps(body))

    assert len(event.data.problems) == (0 if total == DIGITS else 2)
    assert (event.data.client.name, event.data.metadata["a"]) == ("1", "1")
    if total == DIGITS:
        assert (event.data.total, event.data.items[0].quantity) == (
            Decimal(DIGITS),
            Decimal(DIGITS),
        )
        assert adapter.validate_json(adapter.dump_json(event)).data == event.data


def test_event_without_its_resource():
    """It is refused, as by ``parse``."""
    body = VERSIONS["v2"]("invoice.created") | {"data": {}}
    with pytest.raises(ValidationError, match=r"data\.object"):
        TypeAdapter(events.Event).validate_json(json.dumps(body))


async def test_openapi(browser):
    """The schema has types, optional and required fields, and allows further ones."""
    schemas = (await browser.get("/openapi.json")).json()["components"]["schemas"]
    output, given = schemas["Invoice-Output"], schemas["Invoice-Input"]

    assert output["properties"]["total"]["type"] == "string"
    assert {each["type"] for each in given["properties"]["total"]["anyOf"]} == {
        "number",
        "string",
    }
    assert output["properties"]["created_at"]["type"] == "integer"
    assert output["properties"]["client"] == {
        "$ref": "#/components/schemas/Customer-Output"
    }
    assert output["properties"]["items"]["items"]["$ref"].startswith(
        "#/components/schemas/InvoiceItem"
    )
    assert {"uuid", "total"} <= set(output["required"])
    assert "required" not in given
    assert output["additionalProperties"] is not False
    hook = schemas["Webhook-Output"]
    assert hook["properties"]["description"]["anyOf"] == [
        {"type": "string"},
        {"type": "null"},
    ]
    assert "description" not in hook["required"]
    outcome = schemas["Outcome_Journey_"]
    assert (
        set(outcome["properties"])
        == set(outcome["required"])
        == {"verdict", "value", "message", "attempts"}
    )
    assert outcome["properties"]["verdict"]["enum"] == [
        "applied",
        "not applied",
        "refused",
        "superseded",
        "unknown",
    ]
    assert outcome["properties"]["value"]["anyOf"][0] == {
        "$ref": "#/components/schemas/Journey"
    }
    assert schemas["Page_Invoice_"]["properties"]["data"]["items"]["$ref"].startswith(
        "#/components/schemas/Invoice"
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_through_pydantic(name):
    """Each sample is validated, encoded as JSON and validated again without a loss, and has a schema."""
    cls = getattr(models, name)
    adapter, model = TypeAdapter(cls), cls.from_json(SAMPLES[name])

    text = adapter.dump_json(model)

    assert adapter.validate_python(model) is model
    assert adapter.validate_python(model.to_dict()) == model
    back = spelt(adapter.validate_json(text).to_dict())
    # whose 3e3 is a float, so 3000
    assert back == spelt(model.to_dict()) or name == "Journey"
    assert adapter.dump_python(model) == model.to_dict()
    for mode in ("validation", "serialization"):
        assert set(adapter.json_schema(mode=mode)["properties"]) == {
            field.metadata.get("wire", field.name.rstrip("_")) for field in cls.__attrs_attrs__ if field.name not in ("extra", "meta", "_rest")
        }  # fmt: skip


def test_field_of_a_pydantic_model():
    """A stored order is read back, even if the service left out fields of its invoice."""
    order = Order(
        invoice=Invoice.from_json(
            f'{{"uuid": "A", "total": {DIGITS}, "news": {DIGITS}}}'
        )
    )

    back = Order.model_validate_json(order.model_dump_json())

    assert back.invoice.total == Decimal(DIGITS)
    # without a declared type, digits are kept as text
    assert back.invoice.extra["news"] == DIGITS
    assert Order.model_validate(order.model_dump()) == order
    assert order.model_dump()["invoice"]["total"] == Decimal(DIGITS)


@pytest.mark.parametrize(
    "value",
    [
        models.Position(x=float("inf")), models.Position(x=float("nan")), Invoice(total=Decimal("NaN")),
        Invoice(metadata={"a": Decimal("Infinity")}), Invoice(extra={"a": Decimal("NaN")}),
    ],
)  # fmt: skip
def test_numbers_that_json_cannot_represent(value):
    """They are refused, as by ``to_json``, and not written as null or text."""
    for adapter in (TypeAdapter(type(value)), TypeAdapter(Any)):
        with pytest.raises(PydanticSerializationError, match=r"represent|converted"):
            adapter.dump_json(value)


def test_classes_of_the_same_name():
    """Pages of two classes with one name stay apart."""
    own = attrs.frozen(kw_only=True, eq=False, repr=False, getstate_setstate=False)(
        type("Invoice", (Invoice,), {"__module__": __name__})
    )
    adapter = TypeAdapter(tuple[Page[Invoice], Page[own]])

    one, other = adapter.validate_python(
        ({"data": [{"uuid": "A"}]}, {"data": [{"uuid": "A"}]})
    )

    assert (type(one[0]), type(other[0])) == (Invoice, own)
    assert adapter.json_schema()["$defs"].keys() >= {"Address", "Customer"}


@pytest.mark.parametrize("wrong", [7, "a", None, [], {"zip": 7}, {"zip": []}])
def test_values_that_are_no_address(wrong):
    """Pydantic refuses them with its own error."""
    with pytest.raises(ValidationError):
        TypeAdapter(Address).validate_python(wrong)


def test_broken_parts_are_encoded():
    """A field of the wrong type, and one that cannot be decoded, are encoded as they came."""
    page = Page(items=(Invoice.from_dict({"uuid": 7}),))

    assert json.loads(TypeAdapter(Page[Invoice]).dump_json(page))["data"] == [
        {"uuid": 7}
    ]
