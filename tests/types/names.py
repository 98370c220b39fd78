"""Every name at the top is exported, and what 0.1.0 had there, as type checkers see it. Checked, not run."""

from __future__ import annotations

from typing import assert_type

from invsvc_async import (
    ApiKey,
    CallOptions,
    Client,
    EventType,
    Invoice,
    InvoiceItem,
    Journey,
    JourneyGraph,
    Outcome,
    Page,
    Pages,
    ReconcilePolicy,
    ServiceError,
    Verdict,
    Webhook,
    WebhookStatus,
    Write,
    enc_hook,
    models,
    unstructure,
)


async def use(key: str) -> Page[models.Invoice]:
    async with Client(
        "https://host.example/v2", ApiKey(key), reconcile=ReconcilePolicy(deadline=10)
    ) as client:
        write = client.webhooks.delete("wh_1")
        assert_type(write, Write[models.Deleted])
        outcome = await write.outcome()
        assert_type(outcome, Outcome[models.Deleted])
        assert_type(outcome.verdict, Verdict)
        try:
            pages = client.invoices.egress()
            assert_type(pages, Pages[models.Invoice])
            return await pages
        except ServiceError as error:
            assert_type(error.status, int)
            raise


def top(
    name: EventType, hook: Webhook, invoice: models.Invoice, journey: models.Journey
) -> None:
    same: tuple[models.Webhook, Invoice, Journey] = hook, invoice, journey
    given: str = name
    enc_hook(same)
    unstructure([given, CallOptions])


def inside_others(
    item: InvoiceItem, graph: JourneyGraph, status: WebhookStatus
) -> tuple[models.InvoiceItem, models.JourneyGraph, models.WebhookStatus]:
    return item, graph, status
