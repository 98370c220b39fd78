"""
Ready-made readers, which settle writes that have no read in the specification.

Pass one as ``reader=``.  A custom reader is an async callable that takes (client, intent) and returns a
finding.  An exception raised by a reader counts as a failed read, which proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from invsvc_async.codec.envelope import is_cut
from invsvc_async.concurrency.plain_function import is_plain_function
from invsvc_async.errors import InvalidRequestError, NotFoundError, ServiceError
from invsvc_async.reads.retry import NOT_A_CONDITION, is_true
from invsvc_async.reconcile.history import Absent, Applied, CannotTell, Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from invsvc_async.client import Client, Reader
    from invsvc_async.codec.envelope import Envelope
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.models import Invoice
    from invsvc_async.reconcile.intent import Intent

__all__ = ["get", "invoice_by_idempotency_key", "reminder_operation"]

_LIMIT = 100  # the largest page size
_NO_REMINDER = "the service has no such reminder operation; sending it again needs a person's review"
_ANOTHER = "the answer does not name this reminder operation: it may be the current configuration"


def invoice_by_idempotency_key(
    kind: Literal["egress", "payment_complements"], key: str
) -> Reader:
    """
    Find the invoice with this idempotency *key*; both lists filter exactly by it.

    If one is found, the write was applied; further ones are duplicates.  Use it only for a write whose
    invoices are in that list as soon as it is accepted: those that appear later would be sent again.

    Raises:
        InvalidRequestError: *kind* is not a list of invoices, or *key* is empty.

    Spec: Endpoints, Invoices.
    """
    if kind not in {"egress", "payment_complements"} or not key:
        wrong = "kind must be 'egress' or 'payment_complements', and key not empty"
        raise InvalidRequestError(f"invoice_by_idempotency_key: {wrong}")

    async def read(client: Client, intent: Intent) -> Finding:
        team = intent.scope.team
        invoices = client.invoices
        listed = invoices.egress if kind == "egress" else invoices.payment_complements
        try:
            pages = listed(
                idempotency_key=key,
                limit=_LIMIT,
                team=team,
            )
        except InvalidRequestError:  # ParameterNames.limit is None
            pages = listed(idempotency_key=key, team=team)
        async for page in pages.by_page():
            found = _with_key(page, key)
            if found:
                return Applied(found[0], duplicates=tuple(found[1:]))
            if page.items:
                return CannotTell(
                    "an invoice was found whose idempotency_key cannot be read"
                )
        # not before the last page: a service that filters late returns empty ones
        return Absent()

    read.__qualname__ = "readers.invoice_by_idempotency_key"  # as an intent names it
    return read


def _with_key(invoices: Iterable[Invoice], key: str) -> list[Invoice]:
    return [each for each in invoices if getattr(each, "idempotency_key", None) == key]


def reminder_operation(payment_id: str, operation_id: str) -> Reader:
    """
    Read the reminder operation with this version-4 UUID; if the answer names it, the write was applied.

    That is assumed: the specification does not show the answer, which may also be the current configuration.
    Otherwise the finding is ``CannotTell``: a reminder is not sent again without a person's review.

    Spec: Endpoints, Payments.
    """

    async def read(client: Client, intent: Intent) -> Finding:
        try:
            found = await client.payments.reminder_operation(
                payment_id, operation_id, team=intent.scope.team
            )
        except NotFoundError:
            return CannotTell(_NO_REMINDER)
        if _contains(found.content, operation_id):
            return Applied(found)
        return CannotTell(_ANOTHER)

    read.__qualname__ = "readers.reminder_operation"
    return read


def get(path: str, *, matches: Callable[[Wire], bool]) -> Reader:
    """
    Read *path* (relative to the base URL): applied if *matches* returns true for the payload, else absent.

    *matches* receives plain data with exact numbers.  It must be true only for what this write leaves
    behind.  A 404 or 410 in the service's own envelope counts as absent.  A list with more pages, or
    whose payload says that it is still processing, proves no absence.

    Raises:
        InvalidRequestError: *matches* is async, or is no function.

    Spec: Endpoints.
    """
    if not is_plain_function(matches):
        raise InvalidRequestError(f"matches: {NOT_A_CONDITION}")

    async def read(client: Client, intent: Intent) -> Finding:
        try:
            envelope = await client.request("GET", path, team=intent.scope.team)
        except ServiceError as error:
            # a gateway's 404 proves nothing
            if error.status not in (404, 410) or not error.own_envelope:
                raise
            return Absent()
        payload = envelope.data
        if is_true("matches", matches, payload):
            return Applied(payload)
        if not _is_complete(envelope):
            return CannotTell(
                f"{path}: the list is not complete, so what it does not show may exist"
            )
        return Absent()

    read.__qualname__ = "readers.get"
    return read


def _is_complete(envelope: Envelope) -> bool:
    """Return whether what the payload does not show is absent: no list goes on, nothing is in progress."""
    payload = envelope.data
    shown = envelope.total_results or 0
    if isinstance(payload, list):
        shown = len(payload)
    if is_cut(envelope, shown):
        return False
    if not isinstance(payload, dict):
        return True
    if not isinstance(payload.get("data"), list):
        return True
    if any(payload.get(name) for name in ("has_more", "next_cursor", "next")):
        return False
    return payload.get("status") not in ("processing", "outcome_unknown")


def _contains(value: object, text: str) -> bool:
    if isinstance(value, Mapping):
        value = [*value.values()]
    if isinstance(value, (list, tuple)):
        return any(_contains(each, text) for each in value)
    if isinstance(value, str):
        return value.lower() == text.lower()
    return False
