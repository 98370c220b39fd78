"""What type checkers refuse: each ignored error must be one, or the check of unused ignores fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

from invsvc_async.models import Invoice, Webhook

if TYPE_CHECKING:
    from invsvc_async import Outcome
    from invsvc_async.client import Client
    from invsvc_async.events import (
        Gone,
        InvoiceEvent,
        Receiver,
        ResourceEvent,
        SatInvoiceSynced,
    )


async def refused(client: Client) -> None:
    client.webhooks.create(events=["invoice.created"])  # type: ignore[call-arg]
    client.webhooks.create(url=1, events=["invoice.created"])  # type: ignore[arg-type]
    client.journeys.update("jrn_1", "May")  # type: ignore[call-arg]
    client.journeys.update("jrn_1", nmae="May")  # type: ignore[call-arg]
    client.invoices.egress(limit="ten")  # type: ignore[arg-type]
    client.invoices.egress(order="sideways")  # type: ignore[arg-type]
    (await client.journeys.get("jrn_1")).nmae  # type: ignore[attr-defined]  # noqa: B018
    (await client.journeys.get("jrn_1")).name = "May"  # type: ignore[misc]
    client.webhooks.delete("wh_1").url  # type: ignore[attr-defined]  # noqa: B018
    client.webhooks.create(url="https://me.example/in", events=["invoice.craeted"])  # type: ignore[list-item]


def names_of_events(receiver: Receiver) -> None:
    receiver.on("invoice.craeted")  # type: ignore[call-overload]
    receiver.on("invoices.*")  # type: ignore[call-overload]


def handlers_of_current_state(receiver: Receiver) -> None:
    @receiver.on("invoice.created", fetch=True)  # type: ignore[type-var]
    async def forgets_gone(event: ResourceEvent, invoice: Invoice) -> None: ...

    @receiver.on("invoice.created")  # type: ignore[type-var]
    async def gets_nothing(event: ResourceEvent, invoice: Invoice | Gone) -> None: ...


def handlers_of_other_events(receiver: Receiver) -> None:
    @receiver.on("sat.invoice.synced")  # type: ignore[type-var]
    async def of_resources(event: ResourceEvent) -> None: ...

    @receiver.on("invoice.created")  # type: ignore[type-var]
    async def of_syncs(event: SatInvoiceSynced) -> None: ...

    @receiver.on("customer.created")  # type: ignore[type-var]
    async def of_invoices(event: InvoiceEvent) -> None: ...


def data_of_versions(event: InvoiceEvent) -> None:
    event.data.uuid  # type: ignore[union-attr]  # noqa: B018


def truth(outcome: Outcome[Webhook]) -> None:
    """Mypy narrows by truth alone; pyright needs `is True`, as in uses.py."""
    if outcome.applied:
        assert_type(outcome.value, Webhook)
    else:
        outcome.value.url  # type: ignore[attr-defined]  # noqa: B018
