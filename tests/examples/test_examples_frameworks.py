"""The Starlette and Litestar applications under uvicorn: digits, verdicts and the ledger."""

from __future__ import annotations

from decimal import Decimal

import pytest

from invsvc_async import Invoice, Outcome, Page, Verdict
from tests.support.web_server import web_server

pytestmark = pytest.mark.untraced

DIGITS = "1234567890.123456789"
KEY = {"X-Events-Key": "a secret of the dashboard"}
EVENT = {
    "id": "whd_1",
    "type": "invoice.created",
    "created": 1,
    "livemode": True,
    "data": {"object": {"uuid": "A"}},
}


def starlette_app():
    from examples import starlette_app

    return starlette_app.create_app()


def litestar_app():
    pytest.importorskip("litestar", reason="Litestar is not installed")
    from examples import litestar_app

    return litestar_app.create_app()


@pytest.mark.parametrize("make", [starlette_app, litestar_app])
async def test_application(make, service):
    """A page has the wire's digits as numbers; a write whose answer is lost is applied once, and said to be."""
    service.seed_invoice(total=Decimal(DIGITS))
    async with web_server(make()) as browser:
        page = await browser.get("/invoices")
        service.script("journeys.update", "apply, then reset")
        renamed = await browser.put("/journeys/jrn_1", json={"name": "May"})
        missing = await browser.put("/journeys/nowhere", json={"name": "May"})

    assert f'"total":{DIGITS}' in page.text
    assert Page[Invoice].from_json(page.text)[0].total == Decimal(DIGITS)
    assert renamed.status_code == 200
    assert Outcome.from_json(renamed.text).verdict is Verdict.APPLIED
    assert (missing.status_code, Outcome.from_json(missing.text).verdict) == (409, Verdict.REFUSED)
    assert len(service.ledger.effects("journeys.update")) == 1


async def test_starlette_receives_an_event(service):
    """The receiver is a route of the application."""
    app = starlette_app()
    async with web_server(app) as browser:
        answers = [await browser.post("/events", json=EVENT, headers=headers) for headers in (KEY, {})]

    assert [answer.status_code for answer in answers] == [200, 401]
    assert app.state.seen == ["whd_1"]
