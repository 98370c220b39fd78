"""The ready readers, asked directly and by writes whose answers are lost."""

from __future__ import annotations

from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from invsvc_async import readers
from invsvc_async.client import Client
from invsvc_async.errors import (
    FilterNotHonouredError,
    InvalidRequestError,
    NotFoundError,
    ServerError,
)
from invsvc_async.reconcile.history import Absent, Applied, CannotTell
from invsvc_async.settings import ParameterNames, ReadRetries
from invsvc_async.transport.credentials import ApiKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from invsvc_async.simulator import Simulator

pytestmark = pytest.mark.every_python

UUID4 = "0b9e6b0a-3f52-4d0e-9a6f-6f0d7b8f5a11"


@pytest.fixture
async def client(service: Simulator) -> AsyncIterator[Client]:
    """Yield a client of the simulator that sends each read once."""
    reads = ReadRetries(attempts=1)
    async with Client(service.base_url, ApiKey(service.api_key), reads=reads) as client:
        yield client


@asynccontextmanager
async def client_of_answers(path, *answers):
    """Yield a client of a service that answers reads of *path* with these, as JSON, one after the other."""
    left = [{"success": True, "timestamp": 1, **answer} for answer in answers]

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(left.pop(0))

    app = web.Application()
    app.router.add_get(f"/v2{path}", answer)
    async with TestServer(app, host="127.0.0.1") as server:
        address, once = str(server.make_url("/v2")), ReadRetries(attempts=1)
        async with Client(address, ApiKey("eyJ.a.b"), reads=once) as client:
            yield client


@pytest.fixture
def intent(client: Client):
    """Return the intent of some write, which is not sent."""
    with closing(client.write("POST", "/receipts", json={})) as write:
        return write.intent


async def test_invoice_of_a_deployment_without_a_page_size(service, intent):
    """The list is read in the deployment's own pages."""
    made = service.seed_invoice(idempotency_key="row-17")
    names = ParameterNames(limit=None)
    async with Client(service.base_url, ApiKey(service.api_key), names=names) as client:
        found = await readers.invoice_by_idempotency_key("egress", "row-17")(
            client, intent
        )

    assert isinstance(found, Applied)
    assert found.value.uuid == made["uuid"]


@pytest.mark.parametrize(
    ("kind", "letter"), [("egress", "E"), ("payment_complements", "P")]
)
async def test_invoice_found_by_its_key(service, client, intent, kind, letter):
    """An invoice with the key is applied, a second one is a duplicate, and none is absent."""
    reader = readers.invoice_by_idempotency_key(kind, "row-17")
    service.seed_invoice(invoice_type=letter, idempotency_key="row-18")
    assert await reader(client, intent) == Absent()

    first = service.seed_invoice(invoice_type=letter, idempotency_key="row-17")
    found = await reader(client, intent)
    assert (found.value.uuid, found.duplicates) == (first["uuid"], ())

    service.seed_invoice(invoice_type=letter, idempotency_key="row-17")
    found = await reader(client, intent)
    assert isinstance(found, Applied)
    assert len(found.duplicates) == 1


async def test_invoice_after_empty_pages(intent):
    """A service that filters its pages late returns empty ones first: only the last of them proves absence."""
    empty = {"data": [], "has_more": True}
    pages = {**empty, "next": "a"}, {**empty, "next": "b"}
    found = {"data": [{"uuid": "U1", "idempotency_key": "row-17"}], "has_more": False}
    reader = readers.invoice_by_idempotency_key("egress", "row-17")

    async with client_of_answers("/invoices/egress", *pages, found) as client:
        assert (await reader(client, intent)).value.uuid == "U1"
    async with client_of_answers(
        "/invoices/egress", *pages, {"data": [], "has_more": False}
    ) as client:
        assert await reader(client, intent) == Absent()


@pytest.mark.parametrize("broken", [None, 7, {"uuid": "U1", "idempotency_key": 17}])
async def test_invoice_whose_key_cannot_be_read(intent, broken):
    """It is no proof that the write was applied; one that has the key is, beside it."""
    reader = readers.invoice_by_idempotency_key("egress", "17")
    sound = {"uuid": "U2", "idempotency_key": "17"}

    async with client_of_answers(
        "/invoices/egress", {"data": [broken]}, {"data": [broken, sound]}
    ) as client:
        assert isinstance(await reader(client, intent), CannotTell)
        found = await reader(client, intent)

    assert (found.value.uuid, found.duplicates) == ("U2", ())


async def test_invoice_reader_of_a_list_that_is_not_filtered(
    client, intent, monkeypatch
):
    """A service that ignores the filter proves nothing: the reader fails."""
    from invsvc_async.api import operations

    rows = [
        msgspec.structs.replace(row, wire="ignored")
        if row.name == "idempotency_key"
        else row
        for row in operations.INVOICES_EGRESS.parameters
    ]
    row = msgspec.structs.replace(operations.INVOICES_EGRESS, parameters=tuple(rows))
    # reaches: a specification in which the parameter has another name
    monkeypatch.setattr(operations, "INVOICES_EGRESS", row)

    with pytest.raises(FilterNotHonouredError):
        await readers.invoice_by_idempotency_key("egress", "no such key")(
            client, intent
        )


@pytest.mark.parametrize(("kind", "key"), [("income", "k"), ("egress", "")])
def test_invoice_reader_of_nothing(kind, key):
    """A list that there is none of, and an empty key, are refused at once."""
    with pytest.raises(InvalidRequestError):
        readers.invoice_by_idempotency_key(kind, key)


async def test_reminder_found_by_its_uuid(service, client, intent):
    """An operation that is there is applied; where it is not, nobody can tell, so that none is sent again."""
    reader = readers.reminder_operation("pay_1", UUID4)
    assert isinstance(await reader(client, intent), CannotTell)

    service.seed_reminder("pay_1", UUID4)
    found = await reader(client, intent)

    assert isinstance(found, Applied)
    assert found.value.content["operation_id"] == UUID4


async def test_reminder_whose_answer_is_something_else(service, client, intent):
    """An answer that does not name the operation, as the current configuration, does not prove that it was applied."""
    record = service.seed_reminder(
        "pay_1", UUID4, receipt=[{"operation": UUID4.upper()}]
    )
    reader = readers.reminder_operation("pay_1", UUID4)
    del record["operation_id"]
    assert isinstance(await reader(client, intent), Applied)

    record["receipt"] = [{"revision": 7, "steps": ["email"]}]
    assert isinstance(await reader(client, intent), CannotTell)


async def test_get_reader(service, client, intent):
    """What matches is applied. What differs, or is not there, is absent. A gateway's 404 proves nothing."""
    user = service.seed_user()
    path = f"/users/{user['id']}"
    assert isinstance(
        await readers.get(path, matches=lambda seen: seen["id"] == user["id"])(
            client, intent
        ),
        Applied,
    )
    assert await readers.get(path, matches=lambda _: False)(client, intent) == Absent()
    assert await readers.get("/users/none", matches=bool)(client, intent) == Absent()

    service.script("users.get", "gateway 404", "500")
    with pytest.raises(NotFoundError):
        await readers.get(path, matches=bool)(client, intent)
    with pytest.raises(ServerError):
        await readers.get(path, matches=bool)(client, intent)


@pytest.mark.parametrize(
    "more", [{"has_more": True}, {"next": "a"}, {"total_results": 2}]
)
async def test_get_reader_of_a_list_that_goes_on(intent, more):
    """What is not on the first page may be on another one, so nobody can tell."""
    reader = readers.get("/receipts", matches=lambda seen: "mine" in seen)

    async with client_of_answers(
        "/receipts", {"data": [], **more}, {"data": ["mine"], **more}, {"data": []}
    ) as client:
        assert isinstance(await reader(client, intent), CannotTell)
        assert isinstance(await reader(client, intent), Applied)
        assert await reader(client, intent) == Absent()


@pytest.mark.parametrize(
    "more",
    [
        {"has_more": True},
        {"next_cursor": "a"},
        {"next": "a"},
        {"status": "processing"},
        {"status": "outcome_unknown"},
    ],
)
async def test_get_reader_of_a_listing_that_is_not_complete(intent, more):
    """Listings of the table-database provider say so beside their items, within the payload."""
    reader = readers.get("/mappings", matches=lambda seen: "mine" in seen["data"])
    first, second = ({"data": {"data": found, **more}} for found in ([], ["mine"]))

    async with client_of_answers(
        "/mappings", first, second, {"data": {"data": []}}
    ) as client:
        assert isinstance(await reader(client, intent), CannotTell)
        assert isinstance(await reader(client, intent), Applied)
        assert await reader(client, intent) == Absent()


@pytest.mark.parametrize(
    "more", [{"has_more": True}, {"next": "a"}, {"total_results": 2}]
)
async def test_webhooks_that_are_not_all(more):
    """A list that says that there are more is full, whatever its length."""
    async with client_of_answers(
        "/webhooks", {"data": [], **more}, {"data": []}
    ) as client:
        assert (await client.webhooks.list()).is_full
        assert not (await client.webhooks.list()).is_full


async def matching_in_a_coroutine(_payload):
    return False


@pytest.mark.parametrize("matches", [matching_in_a_coroutine, "id"])
def test_matches_that_cannot_be_asked(matches):
    """An async function would always be true, so each write would count as applied."""
    with pytest.raises(
        InvalidRequestError, match="matches: must be a function that is not async"
    ):
        readers.get("/x", matches=matches)


@pytest.mark.filterwarnings(
    "ignore:coroutine 'matching_in_a_coroutine' was never awaited"
)
async def test_matches_that_returns_a_coroutine(client, intent):
    """The read has failed, so it proves nothing."""
    reader = readers.get(
        "/webhooks", matches=lambda payload: matching_in_a_coroutine([payload])
    )
    with pytest.raises(
        InvalidRequestError, match="matches: must be a function that is not async"
    ):
        await reader(client, intent)


def test_readers_have_names():
    """An intent holds a reader by its name, so each has one."""
    made = {
        "invoice_by_idempotency_key": readers.invoice_by_idempotency_key("egress", "k"),
        "reminder_operation": readers.reminder_operation("p", UUID4),
        "get": readers.get("/x", matches=bool),
    }

    assert [each.__qualname__ for each in made.values()] == [
        f"readers.{name}" for name in made
    ]
