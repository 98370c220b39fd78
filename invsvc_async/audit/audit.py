"""The search for duplicates: lists are read once, and what is equal in them is compared."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import aclosing
from math import inf
from typing import TYPE_CHECKING, Final, Self

import attrs

from invsvc_async.audit.duplicates import Certainty, Duplicate
from invsvc_async.audit.fingerprints import fingerprint_of
from invsvc_async.audit.table import FingerprintTable, InvoiceGroup
from invsvc_async.audit.webhooks import WEBHOOKS, can_be_compared, duplicates_of
from invsvc_async.client import Client, options_of
from invsvc_async.errors import InvalidRequestError
from invsvc_async.resources.by_name import called
from invsvc_async.settings import is_number
from invsvc_async.storage.sqlite_file import in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import date, datetime

    from invsvc_async.models import Invoice, Webhook

EGRESS: Final = "invoices.egress"
COMPLEMENTS: Final = "invoices.payment_complements"
LISTS: Final = (EGRESS, COMPLEMENTS, WEBHOOKS)
_LARGEST: Final = 100  # items of a page
_ALIKE = {
    EGRESS: "equal client, total and items",
    COMPLEMENTS: "equal client, items and payments",
}


@attrs.define(eq=False, kw_only=True)
class Audit:
    """
    A search for duplicates in the lists of the service.  It only reads.

    ``with Audit(client) as audit: await audit.read()``, then iterate over :meth:`duplicates`.  If the reading
    is cancelled or fails, ``duplicates`` has what was found until then.

    *lists* are those to search, of ``invoices.egress``, ``invoices.payment_complements`` and
    ``webhooks.list``; by default all.  *within* is how many seconds may lie between two invoices that are
    likely duplicates.  *created_after* and *created_before* select invoices, as in the lists themselves: both
    are inclusive, and an aware ``datetime``, a ``date`` (its midnight in UTC) or epoch ms.  *on_read* is
    called for each item.

    ``complete`` is false if there may be others, and ``gaps`` says why: the reading did not end, the list of
    webhooks is full (it has no second page), or items have fields that cannot be compared.  ``items_read``
    counts all items.  What is stored of an invoice has a fixed size, in a temporary file, so memory stays
    bounded.

    Raises:
        InvalidRequestError: An argument is wrong.

    Spec: Endpoints, Invoices.
    """

    client: Client = attrs.field(kw_only=False)
    lists: Sequence[str] = LISTS
    within: float = 600.0
    created_after: datetime | date | int | None = None
    created_before: datetime | date | int | None = None
    on_read: Callable[[], object] | None = None
    items_read: int = attrs.field(default=0, init=False)
    counts: Counter[Certainty] = attrs.field(factory=Counter[Certainty], init=False)
    closed: int = attrs.field(default=0, init=False)
    _unreadable: int = attrs.field(default=0, init=False)
    _has_ended: bool = attrs.field(default=False, init=False)
    _is_full: bool = attrs.field(default=False, init=False)
    _tables: dict[str, FingerprintTable] = attrs.field(
        factory=dict[str, FingerprintTable],
        init=False,
        repr=False,
    )
    _hooks: list[Webhook] = attrs.field(
        factory=list["Webhook"],
        init=False,
        repr=False,
    )

    def __attrs_post_init__(self) -> None:
        problems = [
            f"lists: {name!r} is unknown. Use one of {', '.join(LISTS)}"
            for name in self.lists
            if name not in LISTS
        ]
        is_duration = is_number(self.within) and 0 <= self.within < inf
        if not is_duration:
            problems.append("within: must be a number of seconds, 0 or more")
        if problems:
            raise InvalidRequestError(problems)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Delete what was stored.  Nothing can be found any more."""
        tables = list(self._tables.values())
        self._tables.clear()
        self._hooks.clear()
        for table in tables:
            table.close()

    async def read(self) -> None:
        """
        Read the lists to their ends, anew if they were read before.

        Raises:
            InvalidRequestError: A time is wrong; nothing was sent.
            JournalError: The temporary file cannot be written.
            PagingError, ServiceError, TransportError, DeadlineExceededError: As of any read.
        """
        self.close()
        self.items_read = 0
        self._unreadable = 0
        self._has_ended = False
        self._is_full = False
        try:
            for name in dict.fromkeys(self.lists):
                if name == WEBHOOKS:
                    await self._read_webhooks()
                else:
                    await self._read_invoices(name)
        except sqlite3.Error as error:
            raise _in_words(error) from error
        self._has_ended = True

    @property
    def complete(self) -> bool:
        """Whether all duplicates among the items of the lists were found."""
        return not self.gaps

    @property
    def gaps(self) -> list[str]:
        """Why there may be more duplicates than were found, in words; empty if all were found."""
        found = []
        if not self._has_ended:
            found.append("the reading did not end")
        if self._is_full:
            found.append(f"more than {_LARGEST} webhooks may exist")
        if self._unreadable:
            found.append(f"{self._unreadable:,} have fields that cannot be compared")
        return found

    async def _read_webhooks(self) -> None:
        found = await self.client.webhooks.list(limit=_LARGEST)
        for hook in found:
            self._count()
            if can_be_compared(hook):
                self._hooks.append(hook)
            else:
                self._unreadable += 1
        self._is_full = found.is_full

    async def _read_invoices(self, name: str) -> None:
        table = self._tables[name] = FingerprintTable()
        limit = _LARGEST if options_of(self.client).names.limit else None
        asked = {
            "limit": limit,
            "created_after": self.created_after,
            "created_before": self.created_before,
        }
        given = {name: value for name, value in asked.items() if value is not None}
        pages = called(self.client, name, given, prefetch=True)
        async with aclosing(pages.by_page()) as walk:
            async for page in walk:
                for invoice in page:
                    self._take(table, invoice, has_payments=name == COMPLEMENTS)
                del page  # before the next is made

    def _take(
        self,
        table: FingerprintTable,
        invoice: Invoice,
        *,
        has_payments: bool,
    ) -> None:
        self._count()
        found, is_whole = fingerprint_of(invoice, has_payments=has_payments)
        self._unreadable += not is_whole
        # without a uuid, it may be one that was listed before
        if found.uuid:
            table.add(found)

    def _count(self) -> None:
        self.items_read += 1
        if self.on_read is not None:
            self.on_read()

    def duplicates(self) -> Iterator[Duplicate]:
        """
        Yield the duplicates in the lists that were read; of each list the certain duplicates first.

        ``counts`` has how many open duplicates were yielded, by their certainty, and ``closed`` how many
        others: of these, at most one item is in effect.

        Raises:
            JournalError: The temporary file cannot be read.
        """
        self.counts = Counter()
        self.closed = 0
        try:
            for each in self._found():
                if each.is_open:
                    self.counts[each.certainty] += 1
                else:
                    self.closed += 1
                yield each
        except sqlite3.Error as error:
            raise _in_words(error) from error

    def _found(self) -> Iterator[Duplicate]:
        for name, table in self._tables.items():
            for group in table.with_equal_keys():
                yield _with_equal_key(name, group)
            for group in table.alike(int(self.within * 1000)):
                yield _alike(name, group, self.within)
        yield from duplicates_of(self._hooks)


def _in_words(error: sqlite3.Error) -> Exception:
    return in_words("(temporary file of the audit)", error)


def _with_equal_key(name: str, group: InvoiceGroup) -> Duplicate:
    why = f"one idempotency key, {group.count:,} invoices"
    if not group.are_alike:
        why += f", not all of which have {_ALIKE[name]}"
    return _duplicate(name, group, Certainty.CERTAIN, why)


def _alike(
    name: str,
    group: InvoiceGroup,
    within: float,
) -> Duplicate:
    why = f"{_ALIKE[name]}, at most {within / 60:g} min apart"
    if group.keyed == 0:
        why += ", none with an idempotency key"
    elif group.keyed == group.count:
        why += ", with different idempotency keys"
    else:
        why += ", some with an idempotency key"
    if not group.relate_to_one:
        why += ", and they relate to different documents"
    return _duplicate(name, group, Certainty.LIKELY, why)


def _duplicate(
    name: str,
    group: InvoiceGroup,
    certainty: Certainty,
    why: str,
) -> Duplicate:
    return Duplicate(
        what=name,
        certainty=certainty,
        why=why,
        count=group.count,
        in_effect=group.in_effect,
        items=tuple(group.facts),
    )
