"""
Events in place of lost deliveries: they are made from lists, and stored as delivered events are.

The lists show the invoices of types E and P that were created in some time, and which of them are canceled.
So they can stand for ``invoice.created`` and ``invoice.canceled`` of these, and for no other event.

Nothing but the store remembers how far this has come. Each page is looked up in it, and what it does not know
is stored, in one transaction. So it can be ended anywhere, begun again, and run in several processes at once.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import attrs

from invsvc_async.api.event_types import EVENT_TYPES
from invsvc_async.api.parameters import epoch_ms
from invsvc_async.codec.exact_json import utc
from invsvc_async.errors import (
    ConfigurationError,
    InvalidRequestError,
    MalformedEventError,
)
from invsvc_async.events.event import LISTED, caught_up, subject_of
from invsvc_async.events.stores import CatchUpStore, Delivery, Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
    from datetime import date

    from invsvc_async.client import Client
    from invsvc_async.events.event import Event
    from invsvc_async.models import Invoice, Page

_log: Final = logging.getLogger("invsvc_async.events")
_MARGIN: Final = 300.0  # s in which a delivery is still expected
_PAGE: Final = 100  # invoices
_EVERY: Final = 10.0  # s between lines in the log
_OF_EARLIER: Final = 100  # events of an earlier version, whose bodies are read at once
_LAST: Final = 253_402_300_799_000  # ms: the last time of a datetime, to the second
_NOT_SHOWN: Final = (
    "No list shows invoices of other types than E and P. A cancellation shows only at invoices that were "
    "created in this time."
)


@attrs.frozen(kw_only=True)
class CatchUpSummary:
    """
    What ``Receiver.catch_up`` has found of invoices that were created from ``since`` until ``until``.

    ``types`` are the types of events that it made; ``not_listed`` those that handlers wait for, and that no
    list can stand for. ``objects`` invoices on ``pages`` were looked at: ``handed`` events were stored for
    the handlers, ``known`` ones were not, because the store has seen their like. ``passed_over`` invoices
    name no usable ``uuid``; the log says which.

    What was handled before ``knows_from`` may be unknown to the store: it was pruned, or an earlier version
    stored it without saying which invoice it is about. So events of invoices that were created before then
    may have been handled twice. ``None``: it knows of no handled event.
    """

    since: datetime
    until: datetime
    types: tuple[str, ...]
    not_listed: tuple[str, ...]
    knows_from: datetime | None
    pages: int = 0
    objects: int = 0
    handed: int = 0
    known: int = 0
    passed_over: int = 0

    def explain(self) -> str:
        """Return in words what was found, and what cannot be caught up."""
        found = (
            f"Invoices created from {_shown(self.since)} until {_shown(self.until)}: {self.objects}, on "
            f"{self.pages} pages. Events handed over: {self.handed}; known: {self.known}."
        )
        lines = [found]
        if self.passed_over:
            lines.append(f"Invoices without a usable uuid: {self.passed_over}.")
        lines += _doubts(self)
        if self.types:
            lines.append(_NOT_SHOWN)
        if self.not_listed:
            lines.append(f"No list can stand for {', '.join(self.not_listed)}.")
        return "\n".join(lines)


class CatchUp:
    """
    Makes events from the lists of *client*, and stores in *store* what *deliveries* returns of each.

    *wanted* are the types that handlers get. *since* and *until* bound the time of creation, inclusive.
    *advance* is called after each page.
    """

    def __init__(
        self,
        store: Store,
        client: Client,
        deliveries: Callable[[Event], Sequence[Delivery]],
        *,
        wanted: Iterable[str],
        since: datetime | date | int,
        until: datetime | date | int | None,
        now: float,
        advance: Callable[[], object] = lambda: None,
    ) -> None:
        if not isinstance(store, CatchUpStore):
            raise ConfigurationError(
                f"catch_up: a {type(store).__name__} does not know which invoices events are about. Use a "
                "store in a file or in PostgreSQL, or make yours a CatchUpStore."
            )
        if not hasattr(client, "invoices"):
            raise ConfigurationError(
                f"client: {type(client).__name__} is not valid. Pass a Client of the events' team and mode."
            )
        self._store = store
        self._client = client
        self._deliveries = deliveries
        self._wanted = frozenset(wanted)
        self._since, self._until = _checked_times(since, until, now)
        self._advance = advance
        self._logged_at = 0.0

    async def run(self) -> CatchUpSummary:
        """Walk the lists, and return what was found; what was stored stays if this fails or is cancelled."""
        await self._store_missing_subjects()
        knows_from = await self._store.knows_from()
        types = tuple(kind for kind in LISTED if kind in self._wanted)
        summary = CatchUpSummary(
            since=self._since,
            until=self._until,
            types=types,
            not_listed=tuple(sorted(self._wanted - {*LISTED})),
            knows_from=_moment_of(knows_from),
        )
        if not types:
            return summary
        for doubt in _doubts(summary):
            _log.warning("Catching up: %s", doubt)
        self._logged_at = asyncio.get_running_loop().time()
        async for page in self._pages():
            summary = await self._store_unseen(page, summary)
            self._log_progress(summary)
            self._advance()
        _log.info("Caught up: %s", summary.explain())
        return summary

    async def _store_missing_subjects(self) -> None:
        """Store the subjects of events that an earlier version of the package has stored."""
        while True:
            named = await self._store.name_subjects(_OF_EARLIER)
            if named < _OF_EARLIER:
                return

    async def _pages(self) -> AsyncIterator[Page[Invoice]]:
        """Yield the pages of both lists of invoices."""
        invoices = self._client.invoices
        for walk in (invoices.egress, invoices.payment_complements):
            listed = walk(
                limit=_PAGE,
                created_after=self._since,
                created_before=self._until,
            )
            async for page in listed.by_page():
                yield page

    async def _store_unseen(
        self, page: Page[Invoice], summary: CatchUpSummary
    ) -> CatchUpSummary:
        """Store the events of *page* that the store has not seen; return the *summary* with them."""
        deliveries_of: dict[str, Sequence[Delivery]] = {}  # by the subject of the event
        passed_over = 0
        for at, invoice in enumerate(page):
            try:
                for subject in self._subjects_of(invoice, summary.types):
                    event = caught_up(subject, page.timestamp, invoice)
                    deliveries_of[subject] = self._deliveries(event)
            except (MalformedEventError, ValueError) as error:
                passed_over += 1
                _log.warning(
                    "Catching up: invoice %d of the page after %d invoices is passed over: %s",
                    at + 1,
                    summary.objects,
                    error,
                )
        stored: Sequence[bool] = []
        if deliveries_of:
            stored = await self._store.put_unseen([*deliveries_of.values()])
        handed = sum(stored)
        return attrs.evolve(
            summary,
            pages=summary.pages + 1,
            objects=summary.objects + len(page),
            handed=summary.handed + handed,
            known=summary.known + len(stored) - handed,
            passed_over=summary.passed_over + passed_over,
        )

    def _subjects_of(self, invoice: Invoice, types: Sequence[str]) -> Iterator[str]:
        """Yield what events of *invoice* are about; raises ``ValueError`` if it has no usable uuid."""
        is_canceled = getattr(invoice, "status", None) == "canceled"
        for kind in types:
            if kind == "invoice.canceled" and not is_canceled:
                continue
            subject = subject_of(kind, getattr(invoice, "uuid", None))
            if not subject:
                raise ValueError("its uuid is missing, or is no usable text")
            yield subject

    def _log_progress(self, summary: CatchUpSummary) -> None:
        """Log how far the walk has come, unless that was logged a short while ago."""
        now = asyncio.get_running_loop().time()
        if now < self._logged_at + _EVERY:
            return
        self._logged_at = now
        _log.info(
            "Catching up: %d pages, %d invoices, %d events handed over",
            summary.pages,
            summary.objects,
            summary.handed,
        )


def wanted_of(has_for: Callable[[str], bool]) -> list[str]:
    """Return the types for which there is a handler."""
    return [kind for kind in EVENT_TYPES if has_for(kind)]


def _checked_times(
    since: datetime | date | int,
    until: datetime | date | int | None,
    now: float,
) -> tuple[datetime, datetime]:
    """Return both times in UTC; *until* is by default a little before *now*, in s since the epoch."""
    problems: list[str] = []
    first = epoch_ms("since", since, problems)
    last = round((now - _MARGIN) * 1000)
    if_late = "since: is less than 5 minutes ago, and deliveries are still expected. Pass until"
    if until is not None:
        last = epoch_ms("until", until, problems)
        if_late = "since: is later than until"
    if not problems and first > last:
        problems.append(if_late)
    for name, time in (("since", first), ("until", last)):
        if time > _LAST:
            problems.append(f"{name}: is after the year 9999")
    if problems:
        raise InvalidRequestError(problems)
    return utc(first), utc(last)


def _doubts(summary: CatchUpSummary) -> list[str]:
    """Return in words what the store may not know, if that matters."""
    knows_from = summary.knows_from
    if knows_from is None:
        doubt = "The store has no handled event. If it has forgotten some, they are handed over again."
        return [doubt]
    if summary.since >= knows_from:
        return []
    doubt = (
        f"What was handled before {_shown(knows_from)} may be unknown to the store: events of invoices that "
        "were created before may be handled twice."
    )
    return [doubt]


def _shown(moment: datetime) -> str:
    return moment.isoformat(sep=" ", timespec="seconds")


def _moment_of(seconds: float | None) -> datetime | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC)
