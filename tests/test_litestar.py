"""Litestar applications that return what the client returns: the JSON, and its description."""

from __future__ import annotations

import warnings
from decimal import Decimal

import pytest

from invsvc_async import Invoice, Outcome, Page, Team, Webhook
from invsvc_async.events import ResourceEvent

litestar = pytest.importorskip("litestar")
pytestmark = pytest.mark.usefixtures("root_logger_restored")

INVOICE = Invoice.from_json('{"uuid": "A", "total": 1234567890.123456789}')


def schema_of(result):
    """Return the description of the JSON of *result*, and all that it refers to, by name."""
    from invsvc_async.litestar import LitestarPlugin

    async def show(): ...

    show.__annotations__["return"] = result
    app = litestar.Litestar([litestar.get("/")(show)], plugins=[LitestarPlugin()])
    described = app.openapi_schema.to_schema()
    answer = described["paths"]["/"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    schemas = described["components"]["schemas"]
    return {"": schemas[answer["$ref"].rpartition("/")[2]], **schemas}


def test_schema_of_an_outcome():
    """It has the verdicts, and its value is a webhook or null."""
    schemas = schema_of(Outcome[Webhook])
    outcome = schemas[""]

    assert {"verdict", "value", "error", "intent"} <= set(outcome["required"])
    assert set(outcome["properties"]["verdict"]["enum"]) >= {"applied", "unknown"}
    assert {"$ref": "#/components/schemas/Webhook"} in outcome["properties"]["value"]["oneOf"]
    assert "url" in schemas["Webhook"]["properties"]


def test_schema_of_a_page():
    """Its data are invoices, described by their names on the wire."""
    schemas = schema_of(Page[Invoice])

    assert schemas[""]["properties"]["data"]["items"] == {"$ref": "#/components/schemas/Invoice"}
    invoice = schemas["Invoice"]["properties"]
    assert {"uuid", "total"} <= set(invoice)
    assert not [name for name in invoice if name.startswith("_") or name in ("extra", "meta")]
    assert invoice["total"]["type"] == "number"


def test_schema_of_an_event():
    """An event has the members of its body."""
    assert "data" in schema_of(ResourceEvent)[""]["properties"]


@pytest.mark.parametrize(("result", "member"), [(Team, "scheduled_deletion"), (Outcome, "value")])
def test_schema_of_what_may_be_anything(result, member):
    """Null fits once: "one of null and anything" would exclude it."""
    assert "oneOf" not in schema_of(result)[""]["properties"][member]


def test_schemas_agree_with_pydantic():
    """They have the members and the required members of the schemas that pydantic makes."""
    pydantic = pytest.importorskip("pydantic")
    for cls in (Invoice, Webhook, Page[Invoice], Outcome[Webhook]):
        theirs = pydantic.TypeAdapter(cls).json_schema(mode="serialization")
        theirs = theirs.get("$defs", {}).get(theirs.get("$ref", "").rpartition("/")[2], theirs)
        ours = schema_of(cls)[""]
        assert set(ours["properties"]) == set(theirs["properties"]), cls
        assert set(ours.get("required", ())) == set(theirs.get("required", ())), cls


def test_answer_with_all_digits():
    """A handler returns models as they are; they have the wire's digits."""
    from litestar.testing import TestClient

    from invsvc_async.litestar import LitestarPlugin

    @litestar.get("/")
    async def show() -> Invoice:
        return INVOICE

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the test client
        with TestClient(litestar.Litestar([show], plugins=[LitestarPlugin()])) as browser:
            found = browser.get("/").text

    assert found == '{"uuid":"A","total":1234567890.123456789}'
    assert Invoice.from_json(found).total == Decimal("1234567890.123456789")
