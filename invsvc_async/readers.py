"""
Find out what became of a write that the specification has no read for, by reads that are there; never write.

Each is passed as ``reader=``; a reader of your own is an async callable of the client and the intent that
returns a finding.  What a reader raises counts as a failed read, which proves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from invsvc_async._errors import InvalidRequestError, NotFoundError
from invsvc_async.reconcile.history import Absent, Applied, CannotTell

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.client import Client, Reader
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.history import Finding
    from invsvc_async.reconcile.intent import Intent

__all__ = ["get", "invoice_by_idempotency_key", "reminder_operation"]

_MOST = 100  # the largest page


def invoice_by_idempotency_key(kind: Literal["egress", "payment_complements"], key: str) -> Reader:
    """
    Look for the invoice that bears *key*, on which both lists filter exactly: present is applied, more of
    them are duplicates.

    Raises:
        InvalidRequestError: *kind* is no list of invoices, or *key* is empty.

    Spec: Endpoints, Invoices.

    """
    if kind not in {"egress", "payment_complements"} or not key:
        raise InvalidRequestError(
            "invoice_by_idempotency_key: takes 'egress' or 'payment_complements', and a key"
        )
    return _InvoiceByKey(kind, key)


def reminder_operation(payment_id: str, operation_id: str) -> Reader:
    """
    Look for the reminder operation with this version-4 UUID: present is applied.

    Where it is not found it cannot tell: a reminder is never sent again without a person's review.

    Spec: Endpoints, Payments.
    """
    return _ReminderOperation(payment_id, operation_id)


def get(path: str, *, matches: Callable[[Wire], bool]) -> Reader:
    """
    Read *path* (relative to the base URL): applied where *matches* is true of its payload, absent where it
    is false.

    *matches* gets plain data with exact numbers, and is to be true only of what this very write leaves.  A
    404 in the service's own envelope counts as absent.

    Spec: Endpoints.
    """
    return _Get(path, matches)


@attrs.frozen
class _InvoiceByKey:
    kind: Literal["egress", "payment_complements"]
    key: str
    name: str = "readers.invoice_by_idempotency_key"

    async def __call__(self, client: Client, intent: Intent) -> Finding:
        team = intent.scope.team
        invoices = client.invoices
        listed = invoices.egress if self.kind == "egress" else invoices.payment_complements
        first, *others = (await listed(idempotency_key=self.key, limit=_MOST, team=team)).items or (None,)
        return Absent() if first is None else Applied(first, duplicates=tuple(others))


@attrs.frozen
class _ReminderOperation:
    payment_id: str
    operation_id: str
    name: str = "readers.reminder_operation"

    async def __call__(self, client: Client, intent: Intent) -> Finding:
        try:
            found = await client.payments.reminder_operation(
                self.payment_id, self.operation_id, team=intent.scope.team
            )
        except NotFoundError:
            return CannotTell(
                "the service knows no such reminder operation; sending again needs a person's review"
            )
        return Applied(found)


@attrs.frozen
class _Get:
    path: str
    matches: Callable[[Wire], bool]
    name: str = "readers.get"

    async def __call__(self, client: Client, intent: Intent) -> Finding:
        try:
            payload = (await client.request("GET", self.path, team=intent.scope.team)).data
        except NotFoundError as error:
            if not error.own_envelope:  # a gateway's 404 says nothing
                raise
            return Absent()
        return Applied(payload) if self.matches(payload) else Absent()
