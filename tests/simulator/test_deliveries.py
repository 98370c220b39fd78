"""Event deliveries: bodies of each family, headers, signatures, retries, duplicates and reordering."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
from decimal import Decimal

import pytest
from aiohttp import web

from invsvc_async.simulator import Faults, Simulator
from invsvc_async.simulator.deliveries import ATTEMPTS, signature
from invsvc_async.simulator.json_records import read_json
from invsvc_async.simulator.validate import EVENTS
from tests.support.waiting import until

from .conftest import HOOK, Caller, plain_session

pytestmark = pytest.mark.one_python

SIGNED = ["sat.invoice.synced", "invoice_batch.completed"]


class Receiver:
    """Records what arrives and answers with the given statuses, then 200; `None` is no answer in time."""

    def __init__(self) -> None:
        self.bodies: list = []
        self.headers: list = []
        self.raw: list[bytes] = []
        self.statuses: list[int | None] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        """Record one delivery."""
        self.raw.append(await request.read())
        self.bodies.append(read_json(self.raw[-1]))
        self.headers.append(request.headers)
        status = self.statuses.pop(0) if self.statuses else 200
        if status is None:
            await asyncio.sleep(0.3)  # sleeps: as a receiver that answers too late
        return web.Response(status=status or 200, headers={"Location": "/elsewhere"})


@pytest.fixture
async def receiver():
    """Return a receiver on a real socket."""
    taken = Receiver()
    app = web.Application()
    app.router.add_post("/in", taken.take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    taken.url = f"http://127.0.0.1:{runner.addresses[0][1]}/in"
    yield taken
    await runner.cleanup()


@pytest.mark.parametrize("event", EVENTS)
async def test_each_type_in_its_family(service, receiver, event):
    """Signed families have their own body; all others that of the requested version."""
    for version in ("v1", "v1.1", "v2"):
        delivery = await service.deliver(
            event, url=receiver.url, version=version, secret="s"
        )
        assert (delivery.delivered, delivery.statuses) == (True, [200])
    headers = receiver.headers[0]
    assert headers["Content-Type"] == "application/json"
    v1, v11, v2 = receiver.bodies
    if event in SIGNED:
        assert (
            v1.keys()
            == v11.keys()
            == v2.keys()
            == {"id", "event", "created_at", "data"}
        )
        assert re.fullmatch(r"evt_[0-9a-f]{16}", v2["id"])
        assert 10**9 < v2["created_at"] < 10**10, "seconds"
        assert headers["X-Service-Event"] == event
        assert headers["X-Service-Signature"] == signature(receiver.raw[0], "s")
    else:
        assert (v1["event"], v1["team"], v1["webhook"], v1["livemode"]) == (
            event,
            "team_1",
            "wh_1",
            True,
        )
        assert v11.keys() == {"payload"}
        assert (
            v11["payload"].keys()
            == v1.keys()
            == {"event", "team", "webhook", "livemode", "data"}
        )
        assert (v2["type"], v2["livemode"], v2["data"].keys()) == (
            event,
            True,
            {"object"},
        )
        assert v2["created"] > 10**12, "milliseconds"
        assert (
            not {"X-Service-Event", "X-Service-Signature", "X-Service-Test"}
            & headers.keys()
        )


def test_signature_of_a_public_example():
    """The signature is HMAC-SHA256 over the raw bytes, as in the published example of another provider."""
    expected = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert (
        signature(b"Hello, World!", "It's a Secret to Everybody")
        == f"sha256={expected}"
    )
    assert hmac.new(b"k", b"b", hashlib.sha256).hexdigest() in signature(b"b", "k")


async def test_forms_of_one_invoice(service, receiver):
    """
    v2 has the form of the API. v1 has an internal one in camelCase. v1.1 adds a customer and shifts the date.
    """
    told = {
        "order_id": 17,
        "rate": Decimal("1.50"),
        "paid": True,
        "note": None,
        "lines": [1, {"of": "A"}],
        "text": "é",
    }
    invoice = service.seed_invoice(metadata=told, total=Decimal("0.10"))
    for version in ("v2", "v1", "v1.1"):
        await service.deliver(
            "invoice.created", url=receiver.url, version=version, resource=invoice
        )
    v2, v1, v11 = receiver.bodies
    assert v2["data"]["object"] == invoice
    assert b'"total":0.10' in receiver.raw[0]
    assert v1["data"]["folioNumber"] == invoice.folio_number
    assert v1["data"]["metadata"] == {
        "order_id": "17", "rate": "1.50", "paid": "true", "note": "null", "lines": '[1,{"of":"A"}]', "text": "é",
    }  # fmt: skip
    assert v1["data"]["client"]["legalName"] == invoice.client["legal_name"]
    assert v1["data"]["date"] == invoice.date
    assert v11["payload"]["data"]["date"] == invoice.date - 6 * 3_600_000
    assert v11["payload"]["data"]["customer"]["address"]["country"] == "MEX"


async def test_connect_fields(service, receiver):
    """A delivery to a master team names the connected team, with its metadata as strings if it has any."""
    plain, rich = service.seed_team(), service.seed_team(metadata={"branch": 4})
    for team in (plain, rich):
        await service.deliver(
            "invoice.created", url=receiver.url, version="v1", connected_team=team.id
        )
    assert (
        receiver.bodies[0]["connectedTeam"],
        "connectedTeamMetadata" in receiver.bodies[0],
    ) == (
        plain.id,
        False,
    )
    assert receiver.bodies[1]["connectedTeamMetadata"] == {"branch": "4"}


async def test_dashboard_test_event(service, receiver):
    """A test event is marked in body and header, and has no custom headers."""
    headers = {"X-Shared": "secret"}
    await service.deliver(
        "payment.created", url=receiver.url, version="v1", headers=headers, test=True
    )
    await service.deliver(
        "payment.created", url=receiver.url, version="v1", headers=headers
    )
    sample, real = receiver.bodies
    assert sample.keys() == {"event", "data", "test"}
    assert receiver.headers[0]["X-Service-Test"] == "true"
    assert "X-Shared" not in receiver.headers[0]
    assert "test" not in real
    assert receiver.headers[1]["X-Shared"] == "secret"


async def test_webhook_from_before_signing(service, receiver):
    """Without a secret, a signed family is sent without a signature."""
    await service.deliver(
        "sat.invoice.synced", url=receiver.url, headers={"X-Shared": "x"}
    )
    assert receiver.headers[0]["X-Service-Event"] == "sat.invoice.synced"
    assert not {"X-Service-Signature", "X-Shared"} & receiver.headers[0].keys()


async def test_retries_of_a_resource_event(service, receiver):
    """408, 429 and 5xx are retried with the same bytes, until a 2xx."""
    receiver.statuses = [408, 429, 500, 503, 204]
    delivery = await service.deliver("invoice.created", url=receiver.url)
    assert delivery.statuses == [408, 429, 500, 503, 204]
    assert len(set(receiver.raw)) == 1


async def test_retries_that_are_used_up(receiver):
    """There are 16 attempts, with growing pauses."""
    async with Simulator(delivery_backoff=0.0005) as service:
        receiver.statuses = [500] * 99
        delivery = await service.deliver("invoice.created", url=receiver.url)
        assert (
            (len(delivery.attempts), delivery.delivered)
            == (ATTEMPTS, False)
            == (16, False)
        )


async def test_answers_that_are_final(service, receiver):
    """Any other 4xx, and a redirect, end a delivery; a signed event has only one attempt."""
    receiver.statuses = [400, 302, 500]
    assert (await service.deliver("invoice.created", url=receiver.url)).statuses == [
        400
    ]
    assert (await service.deliver("invoice.created", url=receiver.url)).statuses == [
        302
    ]
    assert (
        await service.deliver("sat.invoice.synced", url=receiver.url, secret="s")
    ).statuses == [500]


async def test_receiver_that_is_slow_or_away(receiver):
    """A timeout and a refused connection are attempts without a status, and are retried."""
    async with Simulator(delivery_timeout=0.1, delivery_backoff=0.0001) as service:
        receiver.statuses = [None]
        slow = (await service.deliver("invoice.created", url=receiver.url)).statuses
        # a busy machine may be slow more than once
        assert (slow[0], slow[-1]) == (None, 200)
        away = await service.deliver("invoice.created", url="http://127.0.0.1:1/in")
        assert (away.statuses, away.delivered) == ([None] * 16, False)
        assert "Cannot connect" in away.attempts[0].error


async def test_shutdown_in_the_middle_of_a_delivery(receiver):
    """Stopping cancels running deliveries."""
    async with Simulator(delivery_backoff=60) as service:
        receiver.statuses = [500]
        service.seed_webhook(url=receiver.url, events=["invoice.created"])
        waiting = asyncio.create_task(service.emit("invoice.created"))
        await until(lambda: service.deliveries and service.deliveries[0].attempts)
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_event_that_is_emitted_after_the_end(receiver):
    """It is not sent, and raises no error that nobody retrieves."""
    async with Simulator() as service:
        service.seed_webhook(url=receiver.url, events=["invoice.created"])
        await service.emit("invoice.created")
    [late] = await service.emit("invoice.created")

    assert late.attempts == []


async def test_duplicates_on_demand(service, receiver):
    """A duplicate has the same body, including the id."""
    await service.deliver("invoice.created", url=receiver.url, duplicates=2)
    assert len(receiver.raw) == 3
    assert len({body["id"] for body in receiver.bodies}) == 1


async def test_body_of_ones_own(service, receiver):
    """A mapping is sent unchanged, by the rules of the family that it names."""
    await service.deliver(
        {"event": "sat.invoice.synced", "id": "evt_x"}, url=receiver.url, secret="s"
    )
    assert receiver.bodies == [{"event": "sat.invoice.synced", "id": "evt_x"}]
    assert receiver.headers[0]["X-Service-Signature"] == signature(receiver.raw[0], "s")


async def test_unknown_event(service, receiver):
    """A type that the specification does not have is rejected."""
    with pytest.raises(
        ValueError,
        match=r"unknown event 'invoice\.exploded'; expected one of payment\.created",
    ):
        await service.deliver("invoice.exploded", url=receiver.url)


async def test_event_to_its_subscribers(service, receiver):
    """Every active subscriber of the team and mode gets its own version, id, secret and headers."""
    hooks = [
        service.seed_webhook(url=receiver.url, events=["receipt.created"])
        for _ in range(2)
    ]
    service.seed_webhook(
        url=receiver.url, events=["receipt.created"], status="inactive"
    )
    service.seed_webhook(url=receiver.url, events=["receipt.deleted"])
    service.seed_webhook(url=receiver.url, events=["receipt.created"], livemode=False)
    service.set_delivery_headers(hooks[0].id, {"X-Shared": "one"})
    service.set_delivery_version(hooks[1].id, "v2")
    deliveries = await service.emit("receipt.created")
    assert [delivery.delivered for delivery in deliveries] == [True, True]
    by_form = {
        "type" in body: headers
        for body, headers in zip(receiver.bodies, receiver.headers, strict=True)
    }
    assert by_form[False]["X-Shared"] == "one"
    assert "X-Shared" not in by_form[True]
    with pytest.raises(ValueError, match="no webhook 'wh_none'"):
        service.set_delivery_headers("wh_none", {})


async def test_automatic_deliveries(receiver):
    """An income batch causes an event for each invoice and a signed one for the batch."""
    async with Simulator(deliver=True) as service, plain_session() as session:
        call = Caller(session, service)
        hook = service.seed_webhook(
            url=receiver.url, events=["invoice.created", "invoice_batch.completed"]
        )
        service.set_delivery_version(hook.id, "v2")
        answered = await call(
            "POST", "/invoices/income/batch", json={"invoices": [{}, {}]}
        )
        await service.delivered()
        batch = next(
            body
            for body in receiver.bodies
            if body.get("event") == "invoice_batch.completed"
        )
        told = {
            body["data"]["object"]["uuid"] for body in receiver.bodies if "type" in body
        }
        assert told == set(answered.body["data"]["accepted"])
        assert (batch["data"]["accepted"], batch["data"]["result"]) == (2, "completed")
        assert len(service.deliveries) == 3
        signed = next(
            headers for headers in receiver.headers if "X-Service-Signature" in headers
        )
        assert signed["X-Service-Signature"] == signature(
            receiver.raw[receiver.headers.index(signed)], service.secret_of(hook.id)
        )


async def test_no_deliveries_unless_asked_for(service, call, receiver):
    """By default a write causes no deliveries."""
    service.seed_webhook(url=receiver.url, events=["invoice.created"])
    await call("POST", "/invoices/income/batch", json={"invoices": [HOOK]})
    await service.delivered()
    assert receiver.raw == []


async def test_delivery_faults(receiver):
    """A plan can duplicate events, and let later ones overtake."""
    plan = Faults(duplicate_deliveries=0.5, reorder_deliveries=0.5)
    async with Simulator(faults=plan) as service:
        hook = service.seed_webhook(url=receiver.url, events=["customer.updated"])
        service.set_delivery_version(hook.id, "v2")
        for number in range(20):
            service._post.emit("customer.updated", service.book(), {"id": number})
        await service.delivered()
        order = [int(body["data"]["object"]["id"]) for body in receiver.bodies]
        assert set(order) == set(range(20))
        assert 20 < len(order) < 40
        firsts = list(dict.fromkeys(order))
        assert firsts != sorted(firsts)


async def test_deliveries_to_a_receiver_that_is_gone():
    """Only so many are kept and under way; for each new one, the oldest is given up."""
    async with Simulator(
        deliver=True, delivery_backoff=60.0, deliveries_kept=5
    ) as service:
        service.seed_webhook(url="http://127.0.0.1:1/none", events=EVENTS)
        first = asyncio.create_task(service.emit("invoice.created"))
        await asyncio.sleep(0)

        for _ in range(24):
            service.emit_soon("invoice.created")
            await asyncio.sleep(0)

        async with asyncio.timeout(300):
            [given_up] = await first
        assert given_up.given_up
        assert not given_up.delivered
        assert len(service.deliveries) == 5
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        under_way = [task for task in asyncio.all_tasks() if "_start" in repr(task)]
        assert len(under_way) == 5


async def test_stop_as_a_delivery_ends():
    """A delivery that has ended, and is not yet forgotten, does not keep `stop` from giving up the event loop."""

    class Read(dict):
        times = 0

        def __iter__(self):
            self.times += 1
            assert self.times < 100, "stop() does not let the event loop go on"
            return super().__iter__()

    async with Simulator(deliver=True) as service:
        service.seed_webhook(url="http://127.0.0.1:1/none", events=EVENTS)
        service._post._under_way = Read()
        service.emit_soon("invoice.created")
        [task] = service._post._under_way
        await asyncio.sleep(0)
        task.cancel()  # it ends in the next turn of the loop, just before `stop` looks
        await asyncio.create_task(service._post.stop())
        assert not service._post._under_way


async def test_deliveries_that_ended_are_forgotten(receiver):
    """The latest are kept, however many were made."""
    async with Simulator(deliveries_kept=3) as service:
        for number in range(5):
            await service.deliver(
                "invoice.created", url=receiver.url, changes={"id": f"dlv_{number}"}
            )

        assert [json.loads(each.body)["id"] for each in service.deliveries] == [
            "dlv_2",
            "dlv_3",
            "dlv_4",
        ]


def test_number_of_deliveries_that_cannot_be():
    """At least one is kept."""
    with pytest.raises(ValueError, match="deliveries_kept"):
        Simulator(deliveries_kept=0)
