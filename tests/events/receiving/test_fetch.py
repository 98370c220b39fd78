"""Handlers that get the current state beside the event, on real sockets, compared with the service's own."""

from __future__ import annotations

import asyncio
import functools
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from invsvc_async import ApiKey, Client, ReadRetries, ServerError, TokenProvider
from invsvc_async.errors import ConfigurationError
from invsvc_async.events import Gone, MemoryStore, Receiver
from invsvc_async.models import Invoice
from invsvc_async.simulator import Simulator
from invsvc_async.simulator.deliveries import prepare
from invsvc_async.simulator.json_records import Record
from tests.events.bodies import HEADER, SHARED
from tests.events.receiving.test_receiver import FAST, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from invsvc_async.events import Event, Handling
    from invsvc_async.simulator.deliveries import EventDelivery

pytestmark = pytest.mark.one_python

Current: TypeAlias = Invoice | Gone
RETRIES = ReadRetries(initial=1e-6, maximum=1e-6)
LISTS = {"E": "invoices.egress", "P": "invoices.payment_complements"}


@attrs.define
class World:
    """The service, and a receiver on a socket, whose handlers record what they get."""

    service: Simulator
    receiver: Receiver
    url: str = ""
    got: list[tuple[Event, Current]] = attrs.field(
        factory=list[tuple["Event", Current]]
    )
    raises: list[Exception] = attrs.field(factory=list[Exception])

    async def handle(self, event: Event, current: Current) -> None:
        self.got.append((event, current))
        if self.raises:
            raise self.raises.pop()

    async def deliver(
        self, event: str, resource: Record, **options: Any
    ) -> EventDelivery:
        return await self.service.deliver(
            event, url=self.url, headers=dict([SHARED]), resource=resource, **options
        )

    def change(self, invoice: Record, **fields: Any) -> Record:
        """Change an invoice as somebody else does."""
        return self.service.book().invoices.put(
            invoice["uuid"], invoice.with_changes(fields)
        )


def receiver_of(client: Any, **settings: Any) -> Receiver:
    settings = {"store": MemoryStore(), "inbox": FAST, **settings}
    return Receiver(secrets=(), shared_header=HEADER, client=client, **settings)


@asynccontextmanager
async def world(**settings: Any) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(
            Simulator(seed=5, delivery_backoff=0.001)
        )
        client = await stack.enter_async_context(
            Client(service.base_url, ApiKey(service.api_key), reads=RETRIES)
        )
        made = World(service, receiver_of(client, **settings))
        made.receiver.on("invoice.created", "invoice.canceled", fetch=True)(made.handle)
        await stack.enter_async_context(made.receiver)
        made.url = str(
            (await stack.enter_async_context(server_of(made.receiver))).make_url("/")
        )
        yield made


def client_of(server: TestServer) -> Client:
    return Client(str(server.make_url("/v2")), ApiKey("eyJ.a.b"))


def server_of(receiver: Receiver) -> TestServer:
    app = web.Application()
    app.router.add_post("/", receiver.aiohttp_handler)
    return TestServer(app)


@pytest.mark.parametrize("version", ["v1", "v1.1", "v2"])
@pytest.mark.parametrize("key", ["order-17", None])
@pytest.mark.parametrize("kind", ["E", "P"])
async def test_state_is_the_services_own(
    kind: str, key: str | None, version: Any
) -> None:
    """Whatever the event says, the handler gets the invoice as the service has it now."""
    async with world() as here:
        here.service.seed_invoices(12, invoice_type=kind)
        invoice = here.service.seed_invoice(
            invoice_type=kind, idempotency_key=key, status="valid"
        )
        now = here.change(invoice, status="canceled", emails=["new@cliente.example"])

        delivery = await here.deliver("invoice.created", invoice, version=version)

        [(event, current)] = here.got
        assert delivery.statuses == [200]
        assert isinstance(current, Invoice)
        assert current.to_dict() == now
        data = event.data if isinstance(event.data, dict) else event.data.to_dict()
        assert data["status"] == "valid"
        assert here.service.arrivals() == here.service.arrivals(LISTS[kind]) == 1


@pytest.mark.parametrize(
    ("kind", "told", "read"),
    [
        ("E", {"idempotency_key"}, {"E"}),
        ("P", {"idempotency_key"}, {"E", "P"}),
        ("P", {"idempotency_key", "invoice_type"}, {"P"}),
        ("E", {"invoice_type", "series", "folio_number"}, {"E"}),
        ("E", {"created_at"}, {"E"}),
        ("P", {"created_at"}, {"E", "P"}),
        ("P", {"created_at", "invoice_type"}, {"P"}),
    ],
)
async def test_what_the_event_tells(kind: str, told: set[str], read: set[str]) -> None:
    """Each of these finds the invoice among others; without its type, both lists are searched."""
    async with world() as here:
        here.service.seed_invoices(12, invoice_type=kind)
        invoice = here.service.seed_invoice(
            invoice_type=kind, idempotency_key="order-17"
        )
        told = told | {"uuid"}

        await here.deliver(
            "invoice.created", Record({name: invoice[name] for name in told})
        )

        [(_, current)] = here.got
        assert isinstance(current, Invoice)
        assert current.to_dict() == invoice
        assert {each: here.service.arrivals(LISTS[each]) for each in LISTS} == {
            each: int(each in read) for each in LISTS
        }


async def test_invoice_that_is_gone() -> None:
    """One that no list shows is told as such, with its uuid, and the event is handled."""
    async with world() as here:
        invoice = here.service.seed_invoice()
        here.service.seed_invoice(series=invoice["series"])
        here.service.book().invoices.remove(invoice["uuid"])

        delivery = await here.deliver("invoice.canceled", invoice)

        assert delivery.statuses == [200]
        assert [current for _, current in here.got] == [Gone(invoice["uuid"])]


@pytest.mark.parametrize(("step", "calls"), [("own 404", 1), ("gateway 404", 0)])
async def test_404(step: str, calls: int) -> None:
    """The service's own is told as ``Gone``; that of a gateway proves nothing, and the event comes again."""
    async with world() as here:
        invoice = here.service.seed_invoice()
        here.service.script("invoices.egress", step)

        delivery = await here.deliver("invoice.created", invoice, attempts=1)

        assert [current for _, current in here.got] == [Gone(invoice["uuid"])] * calls
        assert delivery.statuses == [200 if calls else 500]


async def test_retries_of_a_read() -> None:
    """A read is retried as any other; the handler is called once, and the event delivered once."""
    async with world() as here:
        invoice = here.service.seed_invoice()
        here.service.script("invoices.egress", "503", "reset", "truncate")

        delivery = await here.deliver("invoice.created", invoice)

        assert delivery.statuses == [200]
        assert len(here.got) == 1
        assert here.service.arrivals("invoices.egress") == 4


@pytest.mark.parametrize("mode", ["inline", "inbox"])
async def test_read_that_fails(mode: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It is a failed attempt, as a handler that raises: the event is delivered, or taken, again."""
    async with world(mode=mode) as here:
        invoice = here.service.seed_invoice()
        here.service.script("invoices.egress", *["500"] * RETRIES.attempts)
        here.raises = [RuntimeError("the handler's own")]

        delivery = await here.deliver("invoice.created", invoice)
        await eventually(lambda: len(here.got) == 2)

        assert [
            current.to_dict() for _, current in here.got if isinstance(current, Invoice)
        ] == [invoice] * 2
        assert here.service.arrivals("invoices.egress") == RETRIES.attempts + 2
        assert delivery.statuses == ([500, 500, 200] if mode == "inline" else [200])
        assert here.receiver.stats().failed_calls == 2
        failures = [record.exc_info[1] for record in caplog.records if record.exc_info]
        assert [type(error) for error in failures] == [ServerError, RuntimeError]


async def test_reads_of_equal_events() -> None:
    """One read is in flight; those who came before the next one begins share it, and get the state of then."""
    async with world() as here:
        invoice, begun = here.service.seed_invoice(status="valid"), list[str]()
        asked, released = asyncio.Event(), asyncio.Event()

        async def token() -> str:
            asked.set()
            await released.wait()
            return here.service.api_key

        @here.receiver.middleware
        async def count(
            handling: Handling, proceed: Callable[[], Awaitable[None]]
        ) -> None:
            begun.append(handling.handler)
            await proceed()

        async with Client(
            here.service.base_url, TokenProvider(token, kind="api_key")
        ) as client:
            # its first read waits for the token
            here.receiver._current._client = client
            tasks = [asyncio.create_task(here.deliver("invoice.created", invoice))]
            await asyncio.wait_for(asked.wait(), 30)
            tasks += [
                asyncio.create_task(here.deliver("invoice.created", invoice))
                for _ in range(20)
            ]
            await eventually(lambda: len(begun) == len(tasks))
            await asyncio.sleep(0)
            here.change(invoice, status="canceled")
            released.set()
            await asyncio.gather(*tasks)

        assert here.service.arrivals("invoices.egress") == 2
        assert [
            current.status for _, current in here.got if isinstance(current, Invoice)
        ] == ["canceled"] * 21


async def test_event_that_names_nothing() -> None:
    """It is a dead letter at once: no attempt could find out what it is about."""
    async with world() as here:
        delivery = await here.deliver("invoice.created", Record(status="valid"))

        assert (delivery.statuses, here.got, here.service.arrivals()) == ([202], [], 0)
        [dead] = await here.receiver.store.events(state="dead")
        assert "does not say which invoice" in dead.reason


@pytest.mark.parametrize("version", ["v1", "v1.1", "v2"])
@pytest.mark.parametrize("kind", ["I", "N", "T"])
async def test_invoice_that_no_list_shows(kind: str, version: Any) -> None:
    """The lists have types E and P only: that they do not show another one does not mean that it is gone."""
    async with world() as here:
        invoice = here.service.seed_invoice(invoice_type=kind)

        delivery = await here.deliver("invoice.created", invoice, version=version)

        assert (delivery.statuses, here.got) == ([202], [])
        [dead] = await here.receiver.store.events(state="dead")
        assert "neither list has its type" in dead.reason


@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_service_that_compares_times_in_seconds(version: Any) -> None:
    """An invoice that is found by its time of creation is not taken for gone."""
    async with world() as here:
        invoice = here.service.seed_invoice(created_at=1_778_000_000_771)
        data = Record({name: invoice[name] for name in ("uuid", "created_at")})

        async def egress(request: web.Request) -> web.Response:
            first, last = (
                int(request.query[name]) // 1000
                for name in ("created_after", "created_before")
            )
            shown = (
                [dict(data)]
                if first * 1000 <= invoice["created_at"] <= last * 1000
                else []
            )
            return web.json_response(
                {"success": True, "data": shown, "next": None, "has_more": False}
            )

        app = web.Application()
        app.router.add_get("/v2/invoices/{which}", egress)
        async with (
            TestServer(app) as server,
            client_of(server) as here.receiver._current._client,
        ):
            await here.deliver("invoice.created", data, version=version)

        assert [type(current) for _, current in here.got] == [Invoice]


def test_registrations_that_cannot_be() -> None:
    """Each is refused at once, and the error says what to do."""
    receiver = receiver_of(lambda: None)

    async def handler(event: object, current: Current) -> None: ...

    async def of_event(event: object) -> None: ...

    for kind in (
        "payment.created",
        "invoice.failed",
        "invoice.*",
        "*",
        "invoice_batch.completed",
    ):
        with pytest.raises(
            ConfigurationError,
            match=r"no read.*invoice.canceled and invoice.created.*request",
        ):
            receiver.on("invoice.created", kind, fetch=True)  # type: ignore[arg-type]
    with pytest.raises(
        ConfigurationError, match=r"cannot be called with \(event, current\)"
    ):
        receiver.on("invoice.created", fetch=True)(of_event)  # type: ignore[type-var]
    with pytest.raises(
        ConfigurationError, match=r"cannot be called with \(event\).*fetch=True"
    ):
        receiver.on("invoice.created")(handler)  # type: ignore[type-var]
    with pytest.raises(
        ConfigurationError, match=r"needs a client. Use Receiver\(client="
    ):
        receiver_of(None).on("invoice.created", fetch=True)(handler)
    with pytest.raises(ConfigurationError, match="client: str is not valid"):
        receiver_of("https://service.example/v2")


@pytest.mark.parametrize("signature", ["unknown", 3])
async def test_handler_that_cannot_be_inspected(signature: object) -> None:
    """What its arguments are shows when it is called: Python cannot inspect every mock and every extension."""
    got: list[str] = []

    class Handler:
        __signature__ = signature  # the inspection fails, with ValueError or TypeError

        async def __call__(self, event: Any) -> None:
            got.append(event.type)

    receiver = Receiver(secrets=(), accept_unsigned=True, mode="inline")
    receiver.on("invoice.created")(Handler())
    await receiver.receive(
        b'{"id":"1","type":"invoice.created","created":1,"data":{"object":{}}}', {}
    )

    assert got == ["invoice.created"]


async def test_client_that_a_function_makes() -> None:
    """It is opened and closed with the receiver, and made anew when that is entered again."""
    async with Simulator(seed=5) as service:
        made: list[Client] = []

        def make() -> Client:
            made.append(Client(service.base_url, ApiKey(service.api_key)))
            return made[-1]

        receiver, got = receiver_of(make), list[Current]()

        @receiver.on("invoice.created", fetch=True)
        async def handle(_event: Event, current: Current) -> None:
            got.append(current)

        invoice = service.seed_invoice()
        for number in (1, 2):
            async with receiver, server_of(receiver) as server:
                url = str(server.make_url("/"))
                await service.deliver(
                    "invoice.created", url=url, headers=dict([SHARED]), resource=invoice
                )
            assert len(made) == len(got) == number
            with pytest.raises(ConfigurationError, match="closed"):
                await made[-1].invoices.egress()
        assert [each.to_dict() for each in got if isinstance(each, Invoice)] == [
            invoice
        ] * 2


async def test_client_that_cannot_be_made() -> None:
    """The receiver does not start, and says why; its store is not opened."""

    def make() -> Client:
        raise ConfigurationError("profile: there is none. Make one.")

    opened: list[bool] = []

    class Store(MemoryStore):
        async def open(self) -> None:
            opened.append(True)

    receiver = receiver_of(make, store=Store())
    with pytest.raises(ConfigurationError, match="profile: there is none"):
        await receiver.__aenter__()
    assert not opened


async def test_receiver_that_is_not_async() -> None:
    """It reads with a client that a function makes in its thread; one of another loop is refused at once."""
    async with Simulator(seed=5) as service:
        invoice, got = service.seed_invoice(), list[Current]()
        receiver = receiver_of(
            functools.partial(Client, service.base_url, ApiKey(service.api_key))
        )

        @receiver.on("invoice.created", fetch=True)
        async def handle(_event: Event, current: Current) -> None:
            got.append(current)

        body = {
            "id": "del_1",
            "type": "invoice.created",
            "livemode": True,
            "data": {"object": invoice},
        }
        delivery = prepare("invoice.created", body, "", None, dict([SHARED]))
        with receiver.sync as threaded:
            receipt = await asyncio.to_thread(
                threaded.receive, delivery.body, delivery.headers
            )
            await asyncio.to_thread(threaded.stop)

        assert receipt.outcome == "handled"
        assert [each.to_dict() for each in got if isinstance(each, Invoice)] == [
            invoice
        ]
        async with Client(service.base_url, ApiKey(service.api_key)) as client:
            with pytest.raises(
                ConfigurationError, match="Pass a function that makes the client"
            ):
                _ = receiver_of(client).sync
