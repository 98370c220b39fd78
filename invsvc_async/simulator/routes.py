"""
The table of routes, with the function that answers each.

A test compares it with the client's table of operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from invsvc_async.simulator import invoices, reads, writes

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.simulator.calls import Answer, Call
    from invsvc_async.simulator.state import State


@dataclass(frozen=True, slots=True)
class Route:
    """One operation of the service."""

    operation: str
    method: str
    path: str
    run: Callable[[State, Call], Answer]
    public: bool = False  # needs no credential
    named_only: bool = False  # the specification mentions it without describing it

    @property
    def write(self) -> bool:
        """Whether it may change the state."""
        return self.method != "GET"


TABLE = (
    Route("journeys.update", "PUT", "/journeys/{id}", writes.update_journey),
    Route("journeys.get", "GET", "/journeys/{id}", reads.journey),
    Route("invoices.egress", "GET", "/invoices/egress", invoices.egress),
    Route("invoices.payment_complements", "GET", "/invoices/payment", invoices.payment_complements),
    Route("invoices.download_status", "GET", "/invoices/download/status/{request_id}", reads.download_status),
    Route("retentions.files", "GET", "/retentions/{id}/files", reads.retention_files),
    Route("teams.create", "POST", "/teams", writes.create_team),
    Route(
        "teams.dbtable_webhooks", "GET", "/teams/{id}/integrations/dbtable/webhooks", reads.dbtable_webhooks
    ),
    Route(
        "teams.dbtable_tables",
        "GET",
        "/teams/{id}/integrations/dbtable/bases/{baseId}/tables",
        reads.dbtable_tables,
    ),
    Route("users.get", "GET", "/users/{id}", reads.user),
    Route("users.update_preferences", "PATCH", "/users/me/preferences/{teamId}", writes.update_preferences),
    Route("payments.link", "GET", "/payments/links/{linkId}", reads.payment_link),
    Route(
        "payments.reminder_operation",
        "GET",
        "/payments/{paymentId}/reminder-operations/{operationId}",
        reads.reminder_operation,
    ),
    Route("sheets.save_mapping", "PUT", "/sheets/mapping", writes.save_mapping),
    Route("webhooks.health", "GET", "/webhooks/health", reads.health, public=True),
    Route("webhooks.list", "GET", "/webhooks", reads.webhooks),
    Route("webhooks.get", "GET", "/webhooks/{id}", reads.webhook),
    Route("webhooks.create", "POST", "/webhooks", writes.create_webhook),
    Route("webhooks.update", "PUT", "/webhooks/{id}", writes.update_webhook),
    Route("webhooks.delete", "DELETE", "/webhooks/{id}", writes.delete_webhook),
    Route(
        "invoices.download_package",
        "GET",
        "/invoices/download/package/{package_id}",
        reads.download_package,
        named_only=True,
    ),
    Route("invoices.income_batch", "POST", "/invoices/income/batch", writes.income_batch, named_only=True),
)
UNKNOWN = Route("unknown", "GET", "/{tail:.*}", reads.unknown, public=True)
BY_OPERATION = {route.operation: route for route in TABLE}


def routes() -> list[tuple[str, str, str]]:
    """List (operation, method, path) of the 19 operations and of the read of a journey."""
    return [(route.operation, route.method, route.path) for route in TABLE if not route.named_only]
