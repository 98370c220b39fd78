"""The current state of what an event names, read for handlers that are registered with ``fetch=True``."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import attrs

from invsvc_async.concurrency.single_flight import SingleFlight
from invsvc_async.errors import ConfigurationError, MalformedEventError, ServiceError

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable

    from invsvc_async.client import Client
    from invsvc_async.events.event import Event
    from invsvc_async.models import Invoice

READABLE: Final = frozenset({"invoice.created", "invoice.canceled"})
"""Types whose events name a thing that the specification has a read of: the lists of invoices."""


@attrs.frozen
class Gone:
    """
    What a handler with ``fetch=True`` gets if the service does not show the invoice *uuid* any more, or yet.

    That holds for the team and the data mode of the receiver's client.

    Spec: Status codes; Endpoints, Invoices.
    """

    uuid: str


class CurrentInvoices:
    """
    Calls handlers with the invoices that events name, as *client* reads them now.

    *client* may be a function that makes one, which is opened and closed with the receiver. Events that name
    the same invoice share a read that begins after they came.
    """

    def __init__(self, client: Client | Callable[[], Client] | None) -> None:
        is_client = hasattr(client, "invoices")
        if client is not None and not is_client and not callable(client):
            raise ConfigurationError(
                f"client: {type(client).__name__} is not valid. Pass a Client, or a function that makes one."
            )
        self._make = client if callable(client) else None
        self.can_read: Final = client is not None
        self.is_ready_made: Final = client is not None and not callable(client)
        """Whether a client was passed, which belongs to one event loop, and no function that makes one."""
        self._client = None if callable(client) else client
        self._reads = SingleFlight()

    async def open(self) -> None:
        """Make the client, if a function does so; it may raise anything."""
        if self._make is not None and self._client is None:
            self._client = self._make()
            await self._client.__aenter__()

    async def close(self) -> None:
        """Close the client, if it was made here."""
        if self._make is not None and self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    async def call_with_invoice(
        self,
        function: Callable[[Event, Invoice | Gone], Awaitable[object]],
        event: Event,
    ) -> object:
        """Call *function* with *event* and its invoice; the read of the invoice begins after this call."""
        if self._client is None:
            raise ConfigurationError(
                "receiver: its client is not open. Use 'async with receiver'."
            )
        client = self._client
        data = event.data
        uuid = _field(data, "uuid")
        kind = _field(data, "invoice_type")
        filters = _filters(data)
        if not isinstance(uuid, str) or not uuid or not filters:
            raise _unreadable(event, "its data does not say which invoice it is")
        invoice = await self._reads.share(
            uuid.upper(), lambda: _read(client, uuid, filters, kind)
        )
        # The lists show types E and P alone: of another type, that neither has the invoice proves nothing.
        if isinstance(invoice, Gone) and kind not in (None, "E", "P"):
            raise _unreadable(event, "neither list has its type")
        return await function(event, invoice)


def _unreadable(event: Event, why: str) -> MalformedEventError:
    """Return the error for an event whose invoice cannot be read."""
    advice = "Register the handler without fetch=True, and look at event.raw."
    return MalformedEventError(f"{event.type}: {why}. {advice}", raw=event.raw)


async def _read(
    client: Client,
    uuid: str,
    filters: dict[str, Any],
    kind: object,
) -> Invoice | Gone:
    """Look the invoice up in the list for its *kind*, P or E; for any other kind in both lists."""
    lists: list[AsyncIterable[Invoice]] = []
    if kind != "P":
        lists.append(client.invoices.egress(**filters))
    if kind != "E":
        lists.append(client.invoices.payment_complements(**filters))
    try:
        for pages in lists:
            async for invoice in pages:
                if str(_field(invoice, "uuid")).upper() == uuid.upper():
                    return invoice
    except ServiceError as error:
        # a gateway's 404 proves nothing
        if error.status not in {404, 410} or not error.own_envelope:
            raise
    return Gone(uuid)


def _filters(data: object) -> dict[str, Any]:
    """Return the arguments with which a list finds the invoice of *data*; none if *data* names none."""
    key = _field(data, "idempotency_key")
    if key:
        return {"idempotency_key": key}
    if _field(data, "invoice_type") == "E":
        series = _field(data, "series")
        folio = _field(data, "folio_number")
        if series and folio:
            return {"series": series, "folio": folio}
    created = _field(data, "created_at")
    if not isinstance(created, (int, datetime)):
        return {}
    # the service may compare in seconds
    second: Any = timedelta(seconds=1) if isinstance(created, datetime) else 1000
    return {"created_after": created - second, "created_before": created + second}


def _field(data: Any, name: str) -> Any:
    """Return the field *name* of the API; v1 spells it in camelCase (assumed: not specified)."""
    if isinstance(data, dict):
        first, *rest = name.split("_")
        return data.get(first + "".join(map(str.capitalize, rest)))
    # For a field that is missing or malformed, a model raises ``FieldError``, which is an AttributeError.
    return getattr(data, name, None)
