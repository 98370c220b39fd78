"""The invoice lists: envelopes, cursors, filters, exact numbers."""

import re
from decimal import Decimal

import pytest

from invsvc_async.simulator import Simulator

from .conftest import Caller, plain_session

pytestmark = pytest.mark.one_python

EGRESS, COMPLEMENTS = "/invoices/egress", "/invoices/payment"


async def folios(call, path, **params):
    """Read one page's fiscal folios."""
    return [
        invoice["uuid"]
        for invoice in (await call("GET", path, params=params)).body["data"]
    ]


async def test_cursor_pages_cover_everything_once(service, call):
    """Following `next` shows each invoice once, newest first, and ends with null."""
    service.seed_invoices(15)
    seen, params = [], {"limit": "10"}
    while True:
        page = (await call("GET", EGRESS, params=params)).body
        seen += [invoice["created_at"] for invoice in page["data"]]
        assert page["total_results"] == 27
        assert page["has_more"] == (page["next"] is not None)
        assert "page" not in page
        if page["next"] is None:
            break
        params["next"] = page["next"]
    assert len(seen) == 27
    assert seen == sorted(seen, reverse=True)


async def test_cursor_while_invoices_arrive(service, call):
    """A newer invoice between two pages neither repeats nor hides one."""
    first = (await call("GET", EGRESS, params={"limit": "5"})).body
    service.seed_invoice(created_at=service.clock.now_ms())
    second = (
        await call("GET", EGRESS, params={"limit": "100", "next": first["next"]})
    ).body
    folios = [invoice["uuid"] for invoice in first["data"] + second["data"]]
    assert len(set(folios)) == len(folios) == 12


async def test_cursor_of_another_list(call):
    """A cursor that is not from this list is a 400."""
    for cursor in ("nonsense", "é", "WyJhIl0="):
        assert (await call("GET", EGRESS, params={"next": cursor})).status == 400


async def test_message_of_a_list(call):
    """Every list envelope has a message, as in the specification."""
    for path, params in (
        (EGRESS, {}),
        (COMPLEMENTS, {}),
        (EGRESS, {"metadata.order": "A-1"}),
    ):
        body = (await call("GET", path, params=params)).body
        assert isinstance(body["message"], str)
        assert list(body)[:3] == ["success", "message", "data"]


@pytest.mark.parametrize(
    ("kept", "asked", "found"),
    [
        ({}, "None", 0),
        ({"k": None}, "None", 0),
        ({"k": None}, "null", 1),
        ({"k": True}, "true", 1),
    ],
)
async def test_metadata_filter_compares_what_json_shows(
    service, call, kept, asked, found
):
    """An absent key matches nothing; values other than text match their JSON form."""
    service.seed_invoices(1, metadata=kept)
    page = (await call("GET", EGRESS, params={"metadata.k": asked})).body
    assert page["total_results"] == found


async def test_metadata_filter_gives_numbered_pages(service, call):
    """With a metadata filter, in either form, the envelope has `page` and `per_page` and no cursor."""
    service.seed_invoices(3, metadata={"tour": 7})
    for name in ("metadata.tour", "metadata_tour"):
        page = (
            await call("GET", EGRESS, params={name: "7", "limit": "2", "page": "2"})
        ).body
        assert (
            page["page"],
            page["per_page"],
            page["has_more"],
            page["total_results"],
        ) == (2, 2, False, 3)
        assert len(page["data"]) == 1
        assert "next" not in page


async def test_money_on_the_wire(service, call):
    """Decimals keep exactly the digits with which they were seeded."""
    service.seed_invoice(
        series="X", total=Decimal("1234567890.123456789"), exchange_rate=Decimal("1E-7")
    )
    async with call.session.get(
        f"{service.base_url}{EGRESS}?series=X",
        headers={"Authorization": f"Bearer {service.api_key}"},
    ) as response:
        text = await response.text()
    assert '"total":1234567890.123456789,' in text
    assert '"exchange_rate":1E-7,' in text


async def test_seeded_invoices_look_like_the_specification(call):
    """Folios are upper-case UUIDs, tax ids have the right form, and one total has awkward decimals."""
    page = (await call("GET", EGRESS, params={"limit": "100"})).body["data"]
    assert Decimal("1234567890.123456789") in [invoice["total"] for invoice in page]
    for invoice in page:
        assert re.fullmatch(
            r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}", invoice["uuid"]
        )
        assert re.fullmatch(r"[A-Z]{3}[0-9]{6}[0-9]{3}", invoice["client"]["tax_id"])
        assert {"payment_form", "payment_method"} <= invoice.keys()


async def test_complements(call):
    """Complements are type P, have zero totals and no payment codes."""
    page = (await call("GET", COMPLEMENTS)).body
    assert page["total_results"] == 3
    for invoice in page["data"]:
        assert (invoice["invoice_type"], invoice["total"], invoice["taxes"]) == (
            "P",
            0,
            0,
        )
        assert not {"payment_form", "payment_method"} & invoice.keys()


@pytest.mark.parametrize("alias", ["canceled", "cancelled"])
async def test_status_filter(service, call, alias):
    """Both spellings filter canceled invoices, whose status is `canceled`."""
    wanted = service.seed_invoice(status="canceled", series="S")
    service.seed_invoice(status="valid", series="S")
    assert await folios(call, EGRESS, status=alias, series="S") == [wanted.uuid]


async def test_exact_filters(service, call):
    """Series, folio, client and key match exactly."""
    invoice = service.seed_invoice(
        series="Z", folio_number=4711, idempotency_key="key-1"
    )
    service.seed_invoice(series="ZZ", folio_number=47110, idempotency_key="key-10")
    for params in (
        {"series": "Z"},
        {"folio": "4711"},
        {"idempotency_key": "key-1"},
        {"client_id": invoice.client["id"]},
        {"client_tax_id": invoice.client["tax_id"]},
    ):
        assert await folios(call, EGRESS, **params) == [invoice.uuid], params


async def test_dates_in_each_format(service, call):
    """Seconds, milliseconds and ISO dates name the same instant, inclusively."""
    instant = 1_770_000_000_000
    service.seed_invoices(2, series="D", created_at=instant - 1)
    wanted = service.seed_invoice(series="D", created_at=instant)
    for form in (
        "1770000000",
        "1770000000000",
        "2026-02-02T02:40:00Z",
        "2026-02-02T02:40:00",
        "2026-02-01T20:40-06:00",
    ):
        assert await folios(call, EGRESS, series="D", created_after=form) == [
            wanted.uuid
        ], form
    assert len(await folios(call, EGRESS, series="D", created_before="1770000000")) == 3
    assert (
        len(await folios(call, EGRESS, series="D", created_before=str(instant - 1)))
        == 2
    )
    assert (await call("GET", EGRESS, params={"created_after": "soon"})).status == 400


async def test_order(service, call):
    """Order by the client's name or by time, in either direction."""
    for letter in "bca":
        service.seed_invoice(
            series="O", client={**service.seed_invoice().client, "name": letter}
        )
    page = (
        await call(
            "GET", EGRESS, params={"series": "O", "order_by": "name", "order": "asc"}
        )
    ).body["data"]
    assert [invoice["client"]["name"] for invoice in page] == ["a", "b", "c"]
    up = await folios(call, EGRESS, series="O", order_by="timestamp", order="asc")
    assert up == (await folios(call, EGRESS, series="O"))[::-1]


@pytest.mark.parametrize(
    "params",
    [
        {"limit": "0"},
        {"limit": "101"},
        {"limit": "x"},
        {"limit": "-1"},
        {"page": "0"},
        {"order": "up"},
        {"status": "open"},
    ],
)
async def test_bad_list_parameter(call, params):
    """A parameter outside its range is a 400 that names it; unknown ones are ignored."""
    answered = await call("GET", EGRESS, params={**params, "unheard_of": "1"})
    assert answered.status == 400
    assert answered.body["error"]["code"] == "validation_failed"
    assert [
        line.partition(":")[0] for line in answered.body["error"]["details"]
    ] == list(params)


async def test_webhook_list_bounds(call):
    """A webhook list accepts a limit of 1 to 100."""
    assert (await call("GET", "/webhooks", params={"limit": "100"})).status == 200
    assert (await call("GET", "/webhooks", params={"limit": "101"})).status == 400
    assert (await call("GET", "/webhooks", params={"status": "on"})).status == 400


async def test_other_parameter_names():
    """A deployment with other names accepts those, and ignores the usual ones."""
    async with (
        Simulator(names={"limit": "pageSize", "cursor": "after"}) as service,
        plain_session() as session,
    ):
        call = Caller(session, service)
        page = (await call("GET", EGRESS, params={"pageSize": "3", "limit": "5"})).body
        assert len(page["data"]) == 3
        rest = (
            await call("GET", EGRESS, params={"pageSize": "100", "after": page["next"]})
        ).body
        assert len(rest["data"]) == 9


def test_unknown_parameter_name():
    """A name that the simulator does not know is an error."""
    with pytest.raises(ValueError, match="names: size is not among"):
        Simulator(names={"size": "s"})
