"""Every name at the top is exported, as type checkers see it. Checked by them, not run."""

from __future__ import annotations

from typing import assert_type

from invsvc_async import (
    ApiKey,
    CallOptions,
    Client,
    EventType,
    Invoice,
    Journey,
    Outcome,
    Page,
    Pages,
    ReconcilePolicy,
    ServiceError,
    Verdict,
    Webhook,
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
