"""Lists walked page by page: against the simulator, and against a service that misbehaves."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from msgspec.structs import replace

from invsvc_async.client import Client
from invsvc_async.errors import (
    CursorStalledError,
    FilterNotHonouredError,
    InvalidRequestError,
    InvsvcError,
    PagingError,
    ServerError,
    ValidationFailedError,
)
from invsvc_async.reads.resume_token import read_token, write_token
from invsvc_async.settings import ParameterNames, ReadRetries
from invsvc_async.transport.credentials import ApiKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from invsvc_async.reads.pages import Pages
    from invsvc_async.simulator import Simulator

pytestmark = pytest.mark.every_python

ONCE = ReadRetries(attempts=1)


@pytest.fixture
async def client(service: Simulator) -> AsyncIterator[Client]:
    """Yield a client of the simulator that sends each read once."""
    async with Client(service.base_url, ApiKey(service.api_key), reads=ONCE) as client:
        yield client


class Lists:
    """A service that answers each request for a list with the next of *pages*, and keeps what was asked."""

    def __init__(self) -> None:
        self.pages: list[dict[str, Any]] = []
        self.asked: list[dict[str, str]] = []
        self.second = asyncio.Event()
        self.client: Client

    async def answer(self, request: web.Request) -> web.Response:
        """Answer with the next page; the last one repeats."""
        page = self.pages[min(len(self.asked), len(self.pages) - 1)]
        self.asked.append(dict(request.query))
        if len(self.asked) == 2:
            self.second.set()
        return web.Response(
            text=json.dumps({"success": True, "data": [], "timestamp": 1, **page}),
            content_type="application/json",
        )

    async def user(self, _: web.Request) -> web.Response:
        """Answer with a user."""
        return web.json_response({"success": True, "data": {}})

    def seen(self, name: str) -> list[str | None]:
        """List what was asked under *name*."""
        return [query.get(name) for query in self.asked]


@pytest.fixture
async def lists() -> AsyncIterator[Lists]:
    """Yield such a service, with a client."""
    lists = Lists()
    app = web.Application()
    app.router.add_get("/v2/invoices/egress", lists.answer)
    app.router.add_get("/v2/users/x", lists.user)
    server = TestServer(app)
    await server.start_server()
    url = str(server.make_url("/v2"))
    async with server, Client(url, ApiKey("eyJ.a.b"), reads=ONCE) as client:
        lists.client = client
        yield lists


def items(*numbers: int, **fields: object) -> list[dict[str, object]]:
    """Make invoices with these folios."""
    return [
        {"uuid": f"U{number}", "folio_number": number, **fields} for number in numbers
    ]


async def folios(pages: Pages[Any]) -> list[int]:
    """Walk a list to its end."""
    return [invoice.folio_number async for invoice in pages]


async def walk_into(
    seen: list[Any], pages: Pages[Any], name: str = "folio_number"
) -> None:
    """Walk a list, keeping what came in *seen* also where it breaks off."""
    async for invoice in pages:
        seen.append(getattr(invoice, name))  # noqa: PERF401 - it may break off


async def test_list_walked_by_its_cursor(service, client):
    """Every invoice comes once, in as many requests as there are pages."""
    total = (await client.invoices.egress(limit=1)).total_results
    service.seed_invoices(25)
    before = service.arrivals("invoices.egress")

    uuids = [invoice.uuid async for invoice in client.invoices.egress(limit=10)]

    assert len(uuids) == len(set(uuids)) == total + 25
    assert service.arrivals("invoices.egress") - before == -(-len(uuids) // 10)


async def test_list_walked_by_page_numbers(service, client):
    """A metadata filter, whose envelope has page numbers, is walked the same way."""
    service.seed_invoices(7, metadata={"tour": "May"})

    pages = [
        page
        async for page in client.invoices.egress(
            limit=3, metadata={"tour": "May"}
        ).by_page()
    ]

    assert [len(page) for page in pages] == [3, 3, 1]
    assert [page.page for page in pages] == [1, 2, 3]
    assert {page.next for page in pages} == {None}


async def test_list_from_a_page_of_its_own(service, client):
    """A page number, or a cursor, is where the walk begins."""
    service.seed_invoices(7, metadata={"tour": "May"})
    assert (
        len(
            await client.invoices.egress(
                limit=3, metadata={"tour": "May"}, page=2
            ).collect()
        )
        == 4
    )

    first = await client.invoices.egress(limit=3)
    rest = await client.invoices.egress(limit=3, cursor=first.next).collect()
    assert len(rest) == first.total_results - 3


async def test_awaited_list_is_its_first_page(service, client):
    """Awaiting reads one page, as often as it is awaited."""
    service.seed_invoices(5)
    pages = client.invoices.egress(limit=2)

    assert len(await pages) == len(await pages) == 2
    assert service.arrivals("invoices.egress") == 2


async def test_collect_up_to_a_number(service, client):
    """No page is read beyond the one with the last item wanted."""
    service.seed_invoices(20)

    assert len(await client.invoices.egress(limit=5).collect(max=10)) == 10
    assert service.arrivals("invoices.egress") == 2
    assert len(await client.invoices.egress(limit=5).collect(max=7)) == 7
    assert service.arrivals("invoices.egress") == 4


@pytest.mark.parametrize("most", [0, -1, True, 1.5, "3"])
async def test_collect_without_a_number(service, client, most):
    """A maximum that is not a number of items is refused, unsent."""
    with pytest.raises(InvalidRequestError):
        await client.invoices.egress().collect(max=most)

    assert service.arrivals() == 0


async def test_complements_are_a_list_too(service, client):
    """The other list is walked alike."""
    service.seed_invoices(4, invoice_type="P")

    invoices = await client.invoices.payment_complements(limit=3).collect()

    assert len(invoices) >= 4
    assert {invoice.invoice_type for invoice in invoices} == {"P"}
    assert {invoice.total for invoice in invoices} == {0}


async def test_unwalked_list_sends_nothing(service, client):
    """Making a list, and breaking off after a page, asks for no more."""
    service.seed_invoices(20)
    pages = client.invoices.egress(limit=5)
    assert service.arrivals() == 0

    async for _ in pages:
        break

    assert service.arrivals() == 1


async def test_prefetch_reads_one_page_ahead(lists):
    """With prefetch, the second page is asked for while the first is at hand, but not the third."""
    lists.pages = [
        {"data": items(n), "next": f"c{n}", "has_more": True} for n in range(5)
    ]
    walk = lists.client.invoices.egress(prefetch=True).by_page()

    await anext(walk)
    async with asyncio.timeout(300):
        await lists.second.wait()
    for _ in range(20):  # rounds in which a third request could be begun
        await asyncio.sleep(0)

    assert lists.seen("next") == [None, "c0"]
    await walk.aclose()


async def test_walk_without_prefetch(lists):
    """A page is asked for only when it is wanted."""
    lists.pages = [{"data": items(n), "next": f"c{n}"} for n in range(5)]
    walk = lists.client.invoices.egress().by_page()

    await anext(walk)
    for _ in range(20):  # rounds in which a second request could be begun
        await asyncio.sleep(0)
    await lists.client.users.get("x")  # what was begun before this has arrived by now

    assert len(lists.asked) == 1
    await walk.aclose()


async def test_prefetch_that_fails(lists):
    """An error of the page ahead comes after the page at hand, with its own place."""
    lists.pages = [
        {"data": items(1), "next": "c1"},
        {"success": False},
        {"data": items(2)},
    ]
    seen = []
    pages = lists.client.invoices.egress(prefetch=True)

    with pytest.raises(InvsvcError) as caught:
        await walk_into(seen, pages)

    assert seen == [1]
    assert await folios(pages.resume(caught.value.resume_token)) == [2]
    assert lists.seen("next") == [None, "c1", "c1"]


async def test_prefetch_broken_off_leaves_nothing(lists):
    """Closing the walk cancels the page ahead and waits for it."""
    lists.pages = [{"data": items(n), "next": f"c{n}"} for n in range(5)]
    before = asyncio.all_tasks()
    walk = lists.client.invoices.egress(prefetch=True).by_page()
    await anext(walk)
    await walk.aclose()

    assert {
        task for task in asyncio.all_tasks() - before if "Pages." in repr(task)
    } == set()


END = {"data": [], "next": "b", "has_more": False}
WALKS = {  # the pages, and the cursors that are asked for
    "with more": (
        [{"data": items(1), "next": "a", "has_more": True}, {"data": items(2)}],
        [None, "a"],
    ),
    "denied": (
        [{"data": items(1), "next": "a", "has_more": False}, {"data": items(2)}],
        [None, "a"],
    ),
    "until an empty page": (
        [{"data": items(1), "next": "a"}, {"data": items(2), "next": "b"}, END],
        [None, "a", "b"],
    ),
    "before a number": (
        [
            {"data": items(1), "next": "a", "has_more": True, "page": 1},
            {"data": items(2)},
        ],
        [None, "a"],
    ),
    "empty at first": (
        [
            {"next": "a", "has_more": True},
            {"data": items(1, 2), "next": "", "has_more": False},
        ],
        [None, "a"],
    ),
    "empty in between": (
        [{"data": items(1), "next": "a"}, END, {"data": items(2)}],
        [None, "a", "b"],
    ),
}


@pytest.mark.parametrize("walk", WALKS)
async def test_cursor_is_followed_whatever_else_is_said(lists, walk):
    """A string in `next` leads on, also where `has_more` denies it, and behind a page without items."""
    lists.pages, cursors = WALKS[walk]

    assert await folios(lists.client.invoices.egress()) == [1, 2]
    assert lists.seen("next") == cursors
    assert set(lists.seen("page")) == {None}


async def test_cursor_that_comes_back(lists):
    """A cursor that was followed before ends the walk in words, after the items that came."""
    lists.pages = [
        {"data": items(1), "next": "a"},
        {"data": items(2), "next": "b"},
        {"data": items(3), "next": "a"},
    ]
    seen = []

    with pytest.raises(CursorStalledError) as caught:
        await walk_into(seen, lists.client.invoices.egress())

    assert seen == [1, 2, 3]
    assert len(lists.asked) == 3
    assert caught.value.resume_token


async def test_cursor_that_the_caller_began_with(lists):
    """The caller's own cursor, coming back, is stalled at once."""
    lists.pages = [{"data": items(1), "next": "a"}]

    with pytest.raises(CursorStalledError):
        await lists.client.invoices.egress(cursor="a").collect()

    assert len(lists.asked) == 1


async def test_page_number_that_is_ignored(lists):
    """A service that gives page 1 for page 2 is found out before its items are taken twice."""
    lists.pages = [{"data": items(1), "has_more": True, "page": 1}]

    with pytest.raises(
        CursorStalledError, match="page 2 was requested, but page 1 was returned"
    ):
        await lists.client.invoices.egress(metadata={"a": "b"}).collect()

    assert lists.seen("page") == [None, "2"]


@pytest.mark.parametrize(
    "page",
    [{"data": items(1), "has_more": True}, {"data": [], "has_more": True, "page": 1}],
)
async def test_more_without_a_way_to_it(lists, page):
    """`has_more` with neither cursor nor page number, or on an empty numbered page, is an error."""
    lists.pages = [page]

    with pytest.raises(PagingError) as caught:
        await lists.client.invoices.egress().collect()

    assert not isinstance(caught.value, CursorStalledError)
    assert caught.value.resume_token
    assert len(lists.asked) == 1


async def test_further_page_that_cannot_be_asked_for(lists):
    """A cursor whose parameter is switched off is an error in words, not an end."""
    lists.pages = [{"data": items(1), "next": "a"}]
    client = lists.client.with_options(names=ParameterNames(cursor=None))

    with pytest.raises(PagingError, match="ParameterNames"):
        await client.invoices.egress().collect()

    assert len(lists.asked) == 1


@pytest.mark.parametrize(
    ("asked", "item"),
    [
        ({"status": "valid"}, {"status": "canceled"}),
        ({"status": "canceled"}, {"status": "archived"}),
        ({"series": "A"}, {"series": "B"}),
        ({"folio": "7"}, {"folio_number": 8}),
        ({"folio": 7}, {"folio_number": 8}),
        ({"idempotency_key": "k"}, {"idempotency_key": "other"}),
        ({"idempotency_key": "k"}, {"idempotency_key": None}),
        ({"client_id": "c1"}, {"client": {"id": "c2"}}),
        ({"client_tax_id": "AAA010101AAA"}, {"client": {"tax_id": "BBB010101BBB"}}),
        ({"metadata": {"order": "1"}}, {"metadata": {}}),
        ({"metadata": {"order": "1"}}, {"metadata": {"order": "2"}}),
        ({"created_after": date(2026, 5, 2)}, {"created_at": 1_777_636_800_000}),
        (
            {"created_before": datetime(2026, 4, 30, tzinfo=UTC)},
            {"created_at": 1_777_636_800_000},
        ),
    ],
)
async def test_filter_that_is_not_honoured(lists, asked, item):
    """An item that plainly fails the filter asked for is an error before any item is given."""
    lists.pages = [
        {"data": [*items(7), {"uuid": "U", **item}] if "folio" not in asked else [item]}
    ]

    with pytest.raises(FilterNotHonouredError, match="does not match") as caught:
        await lists.client.invoices.egress(**asked)

    assert caught.value.resume_token


@pytest.mark.parametrize(
    ("asked", "item"),
    [
        ({"status": "cancelled"}, {"status": "canceled"}),
        ({"status": "canceled"}, {"status": "canceled"}),
        ({"series": "A"}, {"series": "A"}),
        ({"folio": "007"}, {"folio_number": 7}),
        ({"folio": "A-7"}, {"folio_number": 7}),
        ({"folio": "7" * 5000}, {"folio_number": 7}),
        ({"client_id": "c1"}, {"client": {"id": "c1"}}),
        ({"client_id": "c1"}, {"client": "broken"}),
        ({"client_tax_id": "aaa010101aaa"}, {"client": {"tax_id": "AAA010101AAA"}}),
        ({"metadata": {"order": "May"}}, {"metadata": {"order": "may"}}),
        ({"metadata": {"order": "1"}}, {"metadata": {"order": 1}}),
        ({"metadata": {"a.b": "1"}}, {"metadata": {}}),
        ({"created_after": 1_777_636_800_500}, {"created_at": 1_777_636_800_000}),
        ({"created_before": 1_777_636_800_000}, {"created_at": 1_777_636_800_000}),
        ({"created_before": 10**16}, {"created_at": 1_777_636_800_000}),
        ({"series": "A"}, {}),
        ({"created_after": date(2026, 5, 2)}, {"created_at": "broken"}),
    ],
)
async def test_filter_that_an_item_may_fit(lists, asked, item):
    """Other spellings, absent and malformed fields are not a failure of the filter."""
    lists.pages = [{"data": [{"uuid": "U", **item}]}]

    assert len(await lists.client.invoices.egress(**asked)) == 1


async def test_simulator_that_ignores_a_name(client):
    """A name that the deployment does not know is found out by the items."""
    client = client.with_options(names=ParameterNames(client_id="customer"))

    with pytest.raises(FilterNotHonouredError, match="client_id"):
        await client.invoices.egress(client_id="cli_none").collect()


async def test_walk_that_fails_goes_on_where_it_failed(service, client):
    """An error in mid-walk carries the place of its page: nothing is repeated or left out."""
    service.seed_invoices(25)
    everything = [
        invoice.uuid for invoice in await client.invoices.egress(limit=10).collect()
    ]
    service.script("invoices.egress", "pass", "500")
    seen, pages = [], client.invoices.egress(limit=10)

    with pytest.raises(ServerError) as caught:
        await walk_into(seen, pages, "uuid")
    assert len(seen) == 10

    token = caught.value.resume_token
    seen += [invoice.uuid async for invoice in client.invoices.egress().resume(token)]
    assert seen == everything


async def test_first_page_that_fails(service, client):
    """The token of a first page leads to the first page."""
    service.script("invoices.egress", "400")

    with pytest.raises(ValidationFailedError) as caught:
        await client.invoices.egress(limit=3)

    assert len(await client.invoices.egress().resume(caught.value.resume_token)) == 3


async def test_token_after_a_page(service, client):
    """A page can be remembered: the token leads to the next; after the last there is none."""
    service.seed_invoices(6, metadata={"tour": "May"})
    pages = client.invoices.egress(limit=4, metadata={"tour": "May"})
    first = await pages
    token = pages.token_after(first)

    rest = await pages.resume(token)

    assert (rest.page, len(rest)) == (2, 2)
    assert pages.token_after(rest) is None


async def test_token_holds_no_credential(service, client):
    """A token is text for an address or a file, and shows nothing of the key."""
    token = client.invoices.egress(limit=1).token_after(
        await client.invoices.egress(limit=1)
    )

    assert token.replace("-", "").replace("_", "").isalnum()
    assert service.api_key not in token
    assert token.isascii()


async def test_token_of_another_list(service, client):
    """A token serves only the list, the team and the filters that it was made for."""
    pages = client.invoices.egress(limit=2, status="valid")
    token = pages.token_after(await pages)

    for other in (
        client.invoices.payment_complements(),
        client.invoices.egress(limit=2, status="canceled"),
        client.invoices.egress(team="team_2"),
        client.for_team("team_2").invoices.egress(),
        client.with_options(names=ParameterNames(limit="size")).invoices.egress(),
    ):
        with pytest.raises(InvalidRequestError, match="token"):
            other.resume(token)
    assert service.arrivals() == 1


@pytest.mark.parametrize(
    "query",
    [
        {"created_after": "yesterday"},
        {"created_before": "1e9"},
        {"created_before": "9" * 5000},
        {"limit": ""},
        {"page": "\u00b2", "metadata.a": "b"},
        {"unknown": "1"},
    ],
)
async def test_token_with_values_that_no_list_has(lists, query):
    """A forged token is refused in words, even if the service would answer to it."""
    lists.pages = [
        {
            "data": items(1, created_at=1_777_636_800_000, metadata={"a": "b"}),
            "next": "a",
        }
    ]
    pages = lists.client.invoices.egress()
    place = read_token(pages.token_after(await pages))
    lists.asked.clear()

    with pytest.raises(InvalidRequestError, match="token: contains arguments"):
        await folios(pages.resume(write_token(replace(place, query=query))))
    assert lists.asked == []


async def test_token_of_a_time_before_1970(lists):
    """All that a call accepts is accepted in its token."""
    lists.pages = [{"data": items(1, created_at=1_777_636_800_000), "next": "a"}]
    pages = lists.client.invoices.egress(created_after=date(1969, 1, 1))

    assert len(await pages.resume(pages.token_after(await pages))) == 1


async def test_token_of_another_service(service, client, lists):
    """It would go on in another list: the token of a deployment is refused by another."""
    lists.pages = [{"data": items(1), "next": "a"}]
    token = lists.client.invoices.egress().token_after(
        await lists.client.invoices.egress()
    )

    assert lists.client.invoices.egress().resume(token)
    with pytest.raises(InvalidRequestError, match="base URL"):
        client.invoices.egress().resume(token)
    assert service.arrivals() == 0


async def test_token_of_the_other_list(client):
    """Lists that take the same arguments do not take each other's tokens."""
    pages = client.invoices.egress(limit=2)
    token = pages.token_after(await pages)

    with pytest.raises(InvalidRequestError, match=r"belongs to invoices\.egress"):
        client.invoices.payment_complements(limit=2).resume(token)


async def test_list_in_a_team(lists):
    """Every page is asked for in the team of the first."""
    lists.pages = [{"data": items(1), "next": "a"}, {"data": items(2)}]
    pages = lists.client.invoices.egress(team="team_2")

    assert await folios(pages) == [1, 2]
    assert lists.seen("team") == ["team_2", "team_2"]
    assert repr(pages) == "<Pages of invoices.egress>"


@pytest.mark.parametrize(
    ("options", "asked"), [({}, [None, "2", "3"]), ({"page": 4}, ["4", "5", "6"])]
)
async def test_pages_that_name_no_number(lists, options, asked):
    """A list filtered by metadata is walked by page numbers, even if no answer has one; the first page is 1."""
    lists.pages = [
        {"data": items(1, metadata={"a": "b"}), "has_more": True},
        {"data": items(2, metadata={"a": "b"}), "has_more": True},
        {"data": items(3, metadata={"a": "b"})},
    ]

    assert await folios(
        lists.client.invoices.egress(metadata={"a": "b"}, **options)
    ) == [1, 2, 3]
    assert lists.seen("page") == asked


async def test_token_after_pages_that_name_no_number(lists):
    """The token leads to the page after the one that was read, even if no answer has a number."""
    lists.pages = [
        {"data": items(number, metadata={"a": "b"}), "has_more": number < 5}
        for number in range(1, 6)
    ]
    pages = lists.client.invoices.egress(metadata={"a": "b"})
    tokens = [pages.token_after(page) async for page in pages.by_page()]
    lists.asked.clear()

    await pages.resume(tokens[2])

    assert lists.seen("page") == ["4"]
    assert tokens[4] is None
