"""What type checkers report about calls. Checked by them, not run."""

from __future__ import annotations

import asyncio
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, assert_type

from invsvc_async import (
    CallOptions,
    Client,
    InvsvcError,
    Outbox,
    Portal,
    Timeouts,
    Verdict,
    models,
)
from invsvc_async.events import (
    CustomerEvent,
    Event,
    Gone,
    InvoiceBatch,
    InvoiceBatchCompleted,
    InvoiceEvent,
    OtherEvent,
    ResourceEvent,
    SatInvoiceSynced,
    SyncedInvoice,
    parse,
)
from invsvc_async.models import (
    Customer,
    Deleted,
    DownloadRequest,
    Invoice,
    Journey,
    PaymentLink,
    Preferences,
    RetentionFile,
    SheetConnection,
    Team,
    User,
    Webhook,
    WebhookList,
)
from invsvc_async.models.page import Page
from invsvc_async.reads.pages import Pages
from invsvc_async.reconcile.outcome import Outcome, OutcomeBase
from invsvc_async.writes.write import Write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async import EventType
    from invsvc_async.batch import Batch
    from invsvc_async.events import Handling, Receiver
    from invsvc_async.reconcile.intent import Intent


async def writes(client: Client, intent: Intent) -> None:
    write = client.webhooks.create(
        url="https://me.example/in", events=["invoice.created"]
    )
    assert_type(write, Write[Webhook])
    assert_type(await write, Webhook)
    assert_type(await write.outcome(), Outcome[Webhook])
    assert_type((await write.outcome()).value, Webhook | None)
    assert_type((await write.outcome()).unwrap(), Webhook)
    assert_type(write.keyed("row-17"), Write[Webhook])
    assert_type(write.with_policy(deadline=10), Write[Webhook])
    assert_type(await client.webhooks.update("wh_1", status="inactive"), Webhook)
    assert_type(await client.webhooks.delete("wh_1"), Deleted)
    assert_type(await client.journeys.update("jrn_1", name="May"), Journey)
    assert_type(
        await client.users.update_preferences("team_1", testmode=True), Preferences
    )
    assert_type(await client.sheets.save_mapping({"a": "b"}), SheetConnection)
    assert_type(client.teams.create(legal_name="A"), Write[Team])
    assert_type(await client.settle(intent), Outcome[Any])
    assert_type(write.to_line(), dict[str, Any])
    assert_type(client.write_from(write.to_line()), Write[Any])
    client.write_from("{}")


def from_a_thread(make: Callable[[], Client]) -> None:
    with Portal(make) as portal:
        write = portal.client.webhooks.create(
            url="https://me.example/in", events=["invoice.created"]
        )
        assert_type(portal.call(write), Webhook)
        assert_type(portal.call(write.outcome()), Outcome[Webhook])
        assert_type(portal.call(portal.client.invoices.egress()), Page[Invoice])
        for invoice in portal.iterate(portal.client.invoices.egress()):
            assert_type(invoice, Invoice)
        outbox = portal.enter(Outbox.open("app.db", portal.client))
        assert_type(outbox, Outbox)
        made = Portal(Client.from_env)
    assert_type(made, Portal)  # the block cannot end early


def narrowing(outcome: Outcome[Webhook]) -> None:
    assert_type(outcome.value, Webhook | None)
    if outcome.applied is True:
        assert_type(outcome.value, Webhook)
        assert_type(outcome.verdict, Literal[Verdict.APPLIED])
    else:
        assert_type(outcome.value, None)
    if outcome.verdict is Verdict.APPLIED:
        assert_type(outcome.value, Webhook)
    match outcome.verdict:
        case Verdict.APPLIED:
            assert_type(outcome.value, Webhook)
        case (
            Verdict.NOT_APPLIED | Verdict.REFUSED | Verdict.SUPERSEDED | Verdict.UNKNOWN
        ):
            assert_type(outcome.value, None)
    if outcome.applied is not True:
        return
    assert_type(outcome.value, Webhook)


def narrowing_of_errors(outcome: Outcome[Webhook]) -> None:
    assert_type(outcome.error, InvsvcError | None)
    if outcome.verdict is Verdict.REFUSED:
        assert_type(outcome.error, InvsvcError)
        assert_type(outcome.value, None)
        assert_type(outcome.applied, Literal[False])
    match outcome.verdict:
        case Verdict.APPLIED:
            assert_type(outcome.value, Webhook)
        case Verdict.REFUSED:
            assert_type(outcome.error, InvsvcError)
        case Verdict.NOT_APPLIED:
            assert_type(outcome.applied, Literal[False])
        case Verdict.SUPERSEDED | Verdict.UNKNOWN:
            assert_type(outcome.applied, None)


def narrowing_of_events(body: bytes, mine: InvoiceEvent) -> None:
    if mine.version == "v2":
        assert_type(mine.data, Invoice)
    else:
        assert_type(mine.data, dict[str, Any])
    event = parse(body)
    if isinstance(event, SatInvoiceSynced):
        assert_type(event.data, SyncedInvoice)
    elif isinstance(event, InvoiceBatchCompleted):
        assert_type(event.data, InvoiceBatch)
    elif event.version == "v2":
        assert_type(event.data, Invoice | Customer | dict[str, Any])
    else:
        assert_type(event.data, dict[str, Any])


def handlers(receiver: Receiver, name: EventType) -> None:
    @receiver.on("invoice.created", "invoice.canceled")
    async def of_invoices(event: InvoiceEvent) -> None: ...

    @receiver.on("invoice.*", "payment.created")
    async def of_resources(event: ResourceEvent) -> None: ...

    @receiver.on("customer.*")
    async def of_customers(event: CustomerEvent) -> None: ...

    @receiver.on("receipt.completed")
    async def of_receipts(event: OtherEvent) -> None: ...

    @receiver.on("sat.invoice.synced")
    async def of_syncs(event: SatInvoiceSynced) -> None: ...

    @receiver.on("invoice_batch.completed")
    async def of_batches(event: InvoiceBatchCompleted) -> None: ...

    @receiver.on("sat.*", "invoice.*", name)
    async def of_all(event: Event) -> None: ...

    @receiver.on("*")
    async def of_others(event: Event) -> None: ...


def plain_forms(text: str, hook: Webhook, page: Page[Invoice]) -> None:
    assert_type(Webhook.from_json(text), Webhook)
    assert_type(Webhook.from_dict(hook.to_dict()), Webhook)
    assert_type(Page[Invoice].from_json(page.to_json()), Page[Invoice])
    assert_type(OutcomeBase[Webhook].from_json(text), OutcomeBase[Webhook])
    assert_type(ResourceEvent.from_json(text), ResourceEvent)


async def events(client: Client, receiver: Receiver, name: EventType) -> None:
    await client.webhooks.create(
        url="https://me.example/in",
        events=[name, "invoice.created", models.EventType.INVOICE_CREATED],
    )
    await client.webhooks.create(
        url="https://me.example/in", events={"invoice.created"}
    )
    receiver.on("*")
    receiver.on(name, "invoice.canceled", models.EventType.INVOICE_FAILED)

    @receiver.on(
        "invoice.*",
        where=lambda event: event.livemode,
        key=lambda event: event.id,
        attempts=3,
    )
    async def handle(event: ResourceEvent) -> None: ...

    @receiver.on("invoice.created", fetch=True)
    async def update(event: ResourceEvent, invoice: Invoice | Gone) -> None:
        assert_type(invoice.uuid, str)
        if not isinstance(invoice, Gone):
            assert_type(invoice, Invoice)

    @receiver.middleware
    async def around(
        handling: Handling, proceed: Callable[[], Awaitable[None]]
    ) -> None:
        assert_type(handling.attempt, int)
        await proceed()


async def options(client: Client) -> None:
    limits = CallOptions(timeout=5, headers={"X-Trace": "t-1"})
    assert_type(await client.webhooks.get("wh_1", options=limits), Webhook)
    assert_type(
        await client.webhooks.delete(
            "wh_1", options=CallOptions(timeout=Timeouts(call=9))
        ),
        Deleted,
    )
    meta = (await client.webhooks.get("wh_1")).meta
    assert meta is not None
    assert_type(meta.status, int | None)


async def tasks(client: Client) -> None:
    write = client.journeys.update("jrn_1", name="May")
    assert_type(asyncio.create_task(write), asyncio.Task[Journey])
    both = await asyncio.gather(
        client.webhooks.delete("wh_1"), client.journeys.update("jrn_1", name="May")
    )
    assert_type(both, tuple[Deleted, Journey])
    assert_type(await asyncio.wait_for(write, 5), Journey)


async def reads(client: Client) -> None:
    assert_type(await client.journeys.get("jrn_1"), Journey)
    assert_type(await client.users.get("usr_1"), User)
    assert_type(await client.payments.link("plink_1"), PaymentLink)
    assert_type(await client.retentions.files("ret_1"), list[RetentionFile])
    assert_type(await client.invoices.download_status("dl_1"), DownloadRequest)
    hooks = await client.webhooks.list()
    assert_type(hooks, WebhookList)
    assert_type(list(hooks), list[Webhook])
    assert_type(hooks[0], Webhook)
    assert_type(hooks[:2], tuple[Webhook, ...])


async def pages(client: Client) -> None:
    found = client.invoices.egress(status="valid")
    assert_type(found, Pages[Invoice])
    assert_type(await found, Page[Invoice])
    assert_type((await found)[0], Invoice)
    assert_type((await found)[1:], tuple[Invoice, ...])
    assert_type(await found.collect(max=3), list[Invoice])
    assert_type(found.resume("token"), Pages[Invoice])
    async for invoice in found:
        assert_type(invoice, Invoice)
        assert_type(invoice.total, Decimal)
        assert_type(invoice.created_at, datetime)
    async for page in found.by_page():
        assert_type(page, Page[Invoice])


async def batches(client: Client, batch: Batch) -> None:
    async for result in batch.run([client.webhooks.delete("wh_1").keyed("1")]):
        assert_type(result.key, str)
        assert_type(result.outcome, Outcome[Deleted] | None)
