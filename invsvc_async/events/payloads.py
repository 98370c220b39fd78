"""
The models of ``data`` in the two signed events.

Imported on first use of ``event.data``, because building these classes takes longer than the rest of the
package.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal  # noqa: TC003 - convert resolves the annotations
from enum import StrEnum

import attrs

from invsvc_async.errors import FieldError, MalformedEventError
from invsvc_async.models.common import ABSENT, Model


class BatchResult(StrEnum):
    """How a batch ended."""

    COMPLETED = "completed"
    PARTIALLY_COMPLETED = "partially_completed"
    FAILED = "failed"


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class Party(Model):
    """
    The issuer or receiver of a tax-authority invoice.

    Spec: Events, Tax-authority sync body.
    """

    rfc: str = ABSENT
    name: str = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class SyncedInvoice(Model):
    """
    A tax-authority invoice whose XML was fetched and stored.

    ``direction`` is ``issued`` or ``received``; ``invoice_type`` one of ``I``, ``E``, ``P``, ``N``, ``T``;
    ``retried`` is present and true after the retry-xml operation only.

    Spec: Events, Tax-authority sync body.
    """

    uuid: str = ABSENT
    direction: str = ABSENT
    resource_status: str = ABSENT
    issuer: Party = ABSENT
    receiver: Party = ABSENT
    total: Decimal = ABSENT
    currency: str = ABSENT
    issue_date_sent: str = attrs.field(default=ABSENT, metadata={"wire": "issue_date"})
    invoice_type: str = ABSENT
    status: str = ABSENT
    team: str = ABSENT
    credit_charged: bool = ABSENT
    retried: bool | None = ABSENT

    @property
    def issue_date(self) -> datetime:
        """
        The local date-time of issue; naive, because the body contains no zone.

        Raises:
            MalformedEventError: It is not a local date-time, or absent; ``issue_date_sent`` has the text.
        """
        # FieldError is an AttributeError, which a property would turn into "has no attribute".
        try:
            moment = datetime.fromisoformat(self.issue_date_sent)
        except (ValueError, FieldError):
            moment = None
        if moment is None or moment.tzinfo is not None:
            raise MalformedEventError(
                "issue_date: it is not a local date-time. Look at issue_date_sent."
            )
        return moment


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class BatchCounts(Model):
    """
    How many invoices of a batch ended in which way; ``queued`` is always 0.

    Spec: Events, Invoice batch body.
    """

    queued: int = ABSENT
    stamped: int = ABSENT
    failed: int = ABSENT
    duplicate: int = ABSENT
    needs_review: int = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class InvoiceBatch(Model):
    """
    An income batch in which every accepted invoice has a final status; ``id`` is the batch's.

    Spec: Events, Invoice batch body.
    """

    id: str = ABSENT
    livemode: bool = ABSENT
    total: int = ABSENT
    accepted: int = ABSENT
    rejected: int = ABSENT
    counts: BatchCounts = ABSENT
    result: BatchResult | str = ABSENT
