"""The inspector: its data, who may open it, and the page in a real browser."""

import asyncio
import contextlib
import json

import aiohttp
import pytest

from invsvc_async.simulator import Entry, Faults, Simulator
from invsvc_async.simulator.inspector import SHOWN, plan_text
from invsvc_async.simulator.loopback_page import is_loopback
from tests.support.browser import BROKEN, CHROMIUM, FITS, browser

from .conftest import HOOK, Caller, plain_session

pytestmark = pytest.mark.one_python


class Inspected(Caller):
    """A plain client that also reads the inspector's data."""

    async def data(self, first=1):
        async with self.session.get(
            f"{self.service.inspect_url}data?from={first}"
        ) as response:
            assert response.status == 200
            return await response.json()


@pytest.fixture
async def inspected(service):
    async with plain_session() as session:
        yield Inspected(session, service)


async def test_arrivals(inspected, service):
    """Each arrival has its fault, its answer and its effect, as in the ledger."""
    service.script("webhooks.create", "apply, then 500", "403")
    for _ in range(3):
        await inspected("POST", "/webhooks", json=HOOK)
    await inspected("GET", "/webhooks")

    told = await inspected.data()
    writes, (read,) = told["arrivals"][:3], told["arrivals"][3:]

    assert (
        [each["number"] for each in told["arrivals"]]
        == [1, 2, 3, 4]
        == [*range(1, told["newest"] + 1)]
    )
    assert [each["fault"] for each in writes] == ["apply, then 500", "403", None]
    assert [each["answered"] for each in writes] == [500, 403, 201]
    assert [each["applied"] is not None for each in writes] == [
        entry.applied for entry in service.ledger.entries
    ]
    assert [each["refused"] for each in writes] == [False, True, False]
    # equal requests are attempts of one write
    assert len({each["write"] for each in writes}) == 1
    assert writes[0]["thing"] == service.ledger.entries[0].target
    assert json.loads(writes[0]["body"]) == HOOK
    assert (read["operation"], read["write"], read["answered"]) == (
        "webhooks.list",
        None,
        200,
    )
    assert all(each["at"] <= each["ended"] for each in told["arrivals"])
    assert told["totals"] == {"writes": 3, "reads": 1, "effects": 2, "deliveries": 0}
    assert [each["number"] for each in (await inspected.data(3))["arrivals"]] == [3, 4]


async def test_writes_that_name_their_sender(inspected):
    """The header that attributes requests separates equal writes."""
    for sender in ("a", "b", "a"):
        headers = {"Authorization": f"Bearer {inspected.token}", "X-Write-Id": sender}
        url = f"{inspected.service.base_url}/webhooks"
        async with inspected.session.post(url, json=HOOK, headers=headers) as response:
            assert response.status == 201

    assert [each["write"] for each in (await inspected.data())["arrivals"]] == [
        "a",
        "b",
        "a",
    ]


@pytest.mark.parametrize(
    "step",
    ["reset", "close", "apply, then truncate", "hang 0.01", "apply, then drip", "500"],
)
async def test_end_of_an_exchange(inspected, service, step):
    """An exchange ends with its answer or its connection, not before; `ended_at` is in the ledger."""
    service.script("journeys.update", step)
    with contextlib.suppress(aiohttp.ClientError):
        await inspected("PUT", "/journeys/jrn_1", json={"name": "May"})
    (entry,) = service.ledger.entries
    while entry.ended_at is None:  # noqa: ASYNC110 - the last byte arrives before the service notes the end
        await asyncio.sleep(0)

    assert entry.received_at <= entry.ended_at
    if step == "hang 0.01":
        assert entry.ended_at - entry.received_at >= 0.01
    assert (await inspected.data())["arrivals"][0]["ended"] is not None


async def test_effect_that_is_late(inspected, service):
    """It is pending at first, and has its time after it happened."""
    service.script("webhooks.create", "late 0.05, then 500")
    await inspected("POST", "/webhooks", json=HOOK)
    before = (await inspected.data())["arrivals"][0]
    await service.settled()
    after = (await inspected.data())["arrivals"][0]

    assert (before["late"], before["applied"]) == (True, None)
    assert after["applied"] > after["ended"]


async def test_deliveries(inspected, service):
    """Each delivery has its receiver and what came back from each attempt."""
    await service.deliver("invoice.created", url=f"{service.base_url}/nowhere")

    (told,) = (await inspected.data())["deliveries"]

    assert (told["event"], told["delivered"]) == ("invoice.created", False)
    assert [each["status"] for each in told["attempts"]] == [404]


async def test_no_more_than_the_last_arrivals(inspected, service):
    """An answer is limited, however long the ledger is."""
    for _ in range(SHOWN + 50):
        service.ledger.add(Entry(operation="webhooks.update"), write=True)

    numbers = [each["number"] for each in (await inspected.data())["arrivals"]]

    assert numbers == [*range(51, SHOWN + 51)]


async def test_long_body(inspected):
    """Only its beginning is shown."""
    await inspected("PUT", "/journeys/jrn_1", json={"description": "x" * 3000})

    (told,) = (await inspected.data())["arrivals"]
    assert told["body"].startswith('{"description":"xxx')
    assert told["body"].endswith("x…")
    assert len(told["body"]) == 2001


async def test_no_credentials(inspected, service):
    """Neither the page nor its data has a token or a webhook's secret."""
    await inspected("POST", "/webhooks", json=HOOK)
    (secret,) = (each.secret for each in service.book().receivers.values())
    async with inspected.session.get(service.inspect_url) as response:
        page = await response.text()
    text = page + json.dumps(await inspected.data())

    for each in (
        secret,
        service.api_key,
        service.test_key,
        service.oauth_token,
        service.person_token,
    ):
        assert each not in text


# --- who may open it


async def test_closed_until_it_is_used(service, call):
    """Nothing is served before somebody asked for the address."""
    root = service.base_url.removesuffix("/v2")
    for path in ("/_inspect/", "/_inspect/data"):
        async with call.session.get(root + path) as response:
            assert response.status == 404
    async with call.session.get(service.inspect_url) as response:
        assert response.status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:8000"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
async def test_inspector_and_other_sites(inspected, service, headers, status):
    """Neither the page nor its data can be read through a page of another site."""
    for path in ("", "data"):
        async with inspected.session.get(
            service.inspect_url + path, headers=headers
        ) as response:
            assert response.status == status


@pytest.mark.parametrize(
    ("address", "is_local"),
    [("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("192.0.2.7", False),
     ("::ffff:192.0.2.7", False), ("2001:db8::1", False), ("", False), (None, False), ("local", False)],
)  # fmt: skip
def test_addresses_of_this_machine(address, is_local):
    """Only the loopback interface counts, whatever address the service listens on."""
    assert is_loopback(address) is is_local


async def test_headers_of_the_page(inspected, service):
    """The page may load nothing, run only its own script, and be in no other page's frame."""
    async with inspected.session.get(service.inspect_url) as response:
        policy = response.headers["Content-Security-Policy"]
        text = (await response.text()).replace("http://www.w3.org/2000/svg", "")
        assert response.headers["X-Frame-Options"] == "DENY"
    async with inspected.session.get(service.inspect_url) as response:
        # the nonce is new each time
        assert response.headers["Content-Security-Policy"] != policy

    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "http://" not in text
    assert "https://" not in text


@pytest.mark.parametrize("wrong", ["x", "-1", "1.5", "²"])
async def test_number_that_is_none(inspected, service, wrong):
    """A wrong number is a 400."""
    async with inspected.session.get(
        f"{service.inspect_url}data", params={"from": wrong}
    ) as response:
        assert response.status == 400


@pytest.mark.parametrize(
    "text",
    [
        "none",
        "rate=0.25,reads=0.1,kinds=500+reset,late_up_to=0.5,hang=2",
        "rate=1,operations=webhooks.create",
    ],
)
def test_plan_in_words(text):
    """The words of a plan are those from which it can be made."""
    assert plan_text(Faults.parse(text)) == text
    assert Faults.parse(plan_text(Faults.parse(text))) == Faults.parse(text)


@pytest.mark.parametrize(
    ("host", "shown"),
    [("127.0.0.1", "//127.0.0.1:"), ("0.0.0.0", "//127.0.0.1:")],  # noqa: S104 - tested
)
async def test_address(host, shown):
    """The address is one that a browser of this machine can open."""
    async with Simulator(host=host) as service:
        assert shown in service.inspect_url
        assert service.inspect_url.endswith("/_inspect/")
        assert service.pages == {"inspect_url": service.inspect_url}


async def test_pages_that_are_enabled():
    """Beside the API nothing is served by default; the addresses of the rest are listed."""
    async with (
        Simulator() as plain,
        Simulator(admin=True, inspect=True) as service,
        plain_session() as session,
    ):
        assert plain.pages == {}
        assert [*service.pages] == ["admin_url", "inspect_url"]
        async with session.get(service.pages["inspect_url"]) as response:
            assert response.status == 200
        async with session.get(service.pages["admin_url"] + "ledger") as response:
            assert response.status == 200


# --- in a browser


ROW = "[...document.querySelectorAll('#arrivals tr')]"


@pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")
async def test_page_in_a_browser(tmp_path):
    """It shows arrivals live, filters them, draws a write's timeline, and scripts a fault by a click."""
    name = "<img src=x onerror=document.title='hacked'>"
    async with (
        Simulator(admin=True) as service,
        plain_session() as session,
        browser(tmp_path) as page,
    ):
        call = Caller(session, service)
        await page.open(service.inspect_url)
        await page.until("document.getElementById('live').textContent === 'live'")
        await page.until("document.querySelectorAll('#quick button').length > 5")
        await page.run("[...document.querySelectorAll('#quick button')]"
                       ".find(each => each.title === 'apply, then 500').click()")  # fmt: skip
        await page.until(
            "document.getElementById('queue').textContent.includes('webhooks.create: apply, then 500')"
        )

        assert (await call("POST", "/webhooks", json=HOOK)).status == 500
        assert (await call("GET", "/webhooks")).status == 200
        assert (await call("PUT", "/journeys/jrn_1", json={"name": name})).status == 200
        await page.until(f"{ROW}.length === 3")
        (made, _) = service.ledger.entries
        await page.run(
            f"{ROW}.find(each => each.textContent.includes('webhooks.create')).click()"
        )
        detail = await page.until(
            "document.querySelector('#detail .verdict')?.textContent"
        )
        steps = await page.run("document.getElementById('detail').textContent")

        assert (
            detail
            == "Applied once. No clear answer; the client has read the state since."
        )
        assert made.target in steps
        assert "attempt 1 arrives; fault: apply, then 500" in steps
        assert "read webhooks.list: 200" in steps
        assert (
            await page.run("document.querySelectorAll('#detail svg path').length") == 1
        )
        assert (
            await page.run("document.querySelectorAll('#detail svg circle').length")
            == 1
        )

        await page.run(
            f"{ROW}.find(each => each.textContent.includes('journeys.update')).click()"
        )
        assert (
            name
            in json.loads(
                await page.until("document.querySelector('#detail pre')?.textContent")
            )["name"]
        )
        for field, value, left in (
            ("operation", "journeys.update", 1),
            ("resource", made.target, 1),
            ("write", "zz", 0),
        ):
            await page.run(f"{{const it = document.getElementById('{field}'); it.value = '{value}';"
                           "it.dispatchEvent(new Event('input'))}")  # fmt: skip
            assert await page.run(f"{ROW}.length") == left
            await page.run(f"{{const it = document.getElementById('{field}'); it.value = '';"
                           "it.dispatchEvent(new Event('input'))}")  # fmt: skip
        assert await page.run("document.title") == "Embedded service"
        assert await page.run(FITS)
        assert page.messages == []


@pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")
async def test_page_without_the_admin_api(tmp_path):
    """Without it the page only reads, says how to enable it, and fits a phone."""
    async with Simulator(faults=Faults(rate=0.5)) as service, browser(tmp_path) as page:
        await page.open(service.inspect_url, 390, 800)
        await page.until("document.getElementById('plan').textContent === 'rate=0.5'")

        assert (
            await page.run("document.getElementById('script').checkVisibility()")
            is False
        )
        assert (
            await page.run("document.getElementById('closed').checkVisibility()")
            is True
        )
        assert "--admin" in await page.run(
            "document.getElementById('closed').innerText"
        )
        assert await page.run(FITS)
        assert page.messages == []


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")
@pytest.mark.parametrize("width", [390, 1000, 1280])
async def test_no_column_is_cut(tmp_path, service, call, width):
    """Each arrival shows its effect without scrolling, and the timeline's labels have the size of text."""
    service.script("webhooks.create", "late 0.05, then 500")
    assert (await call("POST", "/webhooks", json=HOOK)).status == 500
    await service.settled()
    async with browser(tmp_path) as page:
        await page.open(service.inspect_url, width)
        await page.until(f"{ROW}.length === 1")
        right = await page.run(
            f"Math.max(...[...{ROW}[0].children].map(each => each.getBoundingClientRect().right))"
        )
        edge = await page.run(
            "document.getElementById('arrivals').closest('.scroll').getBoundingClientRect().right"
        )
        assert "applied late" in await page.run(f"{ROW}[0].innerText")
        assert right <= edge
        assert await page.run(BROKEN) == []
        assert await page.run(FITS)
        await page.run(f"{ROW}[0].click()")
        drawn = await page.until(
            "document.querySelector('#detail svg text')?.getBoundingClientRect().height"
        )
        assert drawn >= 11
