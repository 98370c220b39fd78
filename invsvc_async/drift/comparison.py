"""The comparison: rows, also of files, are stored, a list is read, and what differs is read once more."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Iterable,
    Mapping,
)
from contextlib import aclosing, closing, suppress
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import attrs

from invsvc_async import models
from invsvc_async.client import Client, options_of
from invsvc_async.codec import unstructure
from invsvc_async.concurrency.async_iterable import OnlyAsync
from invsvc_async.drift.columns import RowColumns, at, moment, words_of
from invsvc_async.drift.row_files import rows_of_file
from invsvc_async.drift.table import Difference, FieldDifference, Kind, Table
from invsvc_async.errors import (
    FilterNotHonouredError,
    InvalidRequestError,
    NotFoundError,
    ValidationFailedError,
)
from invsvc_async.export.files import Form, text_of
from invsvc_async.export.walk import format_of
from invsvc_async.resources.by_name import called
from invsvc_async.storage.sqlite_file import in_words

if TYPE_CHECKING:
    from datetime import date, tzinfo

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.models import Invoice, Webhook

Rows: TypeAlias = "Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]] | str | Path"  # Any: cells

LISTS = ("invoices.egress", "invoices.payment_complements", "webhooks.list")
_LARGEST = 100  # items of a page
_STEP = 128  # rows that are stored before other tasks may run
_NAMED = 20  # bad rows in an error
_READINGS = 5  # of the service, if what differs changes from one to the next


class TimeWindow(NamedTuple):
    """The times from *first* until before *end*, both in epoch ms; ``None`` is no bound."""

    first: Any  # epoch ms, or None
    end: Any  # the same

    def contains(self, created: object) -> bool:
        """Return whether a time is in the window; an unknown one counts as inside."""
        if not isinstance(created, (int, Decimal)):
            return True
        if self.first is not None and created < self.first:
            return False
        return self.end is None or created < self.end


@attrs.define(eq=False, kw_only=True)
class Comparison(OnlyAsync):
    """
    The differences between *rows* and a list of the service: ``async for difference in comparison``.

    *what* is ``invoices.egress``, ``invoices.payment_complements`` or ``webhooks.list``.  *rows* are mappings
    of columns to values, or a file (``-`` is standard input): CSV, JSON lines or Parquet, by its extension or
    *form*.  They are read first, and kept in a temporary file, so memory stays bounded.

    A row belongs to the item that has exactly its ``uuid`` or ``id`` as key; *ignore_case* is for both.  A
    column is compared if it has the name of a field with a simple value, such as ``total`` or
    ``client.tax_id``.  *fields* has other columns by field, and ``None`` for a field not to compare.
    Numbers are compared exactly, by value: 10.0 is 10.00.  Times without an offset are in *zone*.  A null is
    an absent field; in CSV, an empty cell is either that or an empty text.

    *created_from* (inclusive) and *created_to* (exclusive) select items, and rows that have ``created_at``.
    What is yielded was shown by two readings of the service, one after the other.  ``counts`` has how many
    there are of each kind, and ``rows_read``, ``rows_outside`` (the window) and ``items_read`` what was
    compared.  ``complete`` is false if there may be others: the list of webhooks has no second page, or
    things kept changing.  *on_read* is called for each row and item.

    Raises:
        InvalidRequestError: An argument or a row is wrong; the message names line and column.
        ConfigurationError: The format is unknown, or Parquet needs its extra.
        JournalError: The temporary file cannot be written.
        PagingError, ServiceError, TransportError, DeadlineExceededError: As of any read.

    Spec: Resources, Response envelopes.
    """

    client: Client = attrs.field(kw_only=False)
    what: str = attrs.field(kw_only=False)
    rows: Rows = attrs.field(kw_only=False)
    fields: Mapping[str, str | None] = attrs.field(factory=dict[str, "str | None"])
    created_from: date | int | str | None = None
    created_to: date | int | str | None = None
    zone: tzinfo | None = None
    ignore_case: bool = False
    form: Form | None = None
    delimiter: str = ","
    on_read: Callable[[], object] | None = None
    counts: Counter[Kind] = attrs.field(factory=Counter[Kind], init=False)
    rows_read: int = attrs.field(default=0, init=False)
    rows_outside: int = attrs.field(default=0, init=False)
    items_read: int = attrs.field(default=0, init=False)
    complete: bool = attrs.field(default=True, init=False)
    _model: type[Invoice | Webhook] = attrs.field(init=False)
    _columns: RowColumns = attrs.field(init=False)
    _window: TimeWindow = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        if self.what not in LISTS:
            raise InvalidRequestError(
                f"what: {self.what!r} is unknown. Use one of {', '.join(LISTS)}"
            )
        if len(self.delimiter) != 1:
            raise InvalidRequestError(
                f"delimiter: {self.delimiter!r} is not one character"
            )
        if isinstance(self.rows, (str, Path)):
            self.form = format_of(Path(self.rows), self.form)
        self._model = models.Invoice
        key = "uuid"
        if self.what == "webhooks.list":
            self._model = models.Webhook
            key = "id"
        self._columns = RowColumns(
            self._model, key, self.fields, self.zone, self.form == "csv"
        )
        self._window = TimeWindow(
            first=self._moment("created_from"), end=self._moment("created_to")
        )

    @property
    def columns(self) -> dict[str, str | None]:
        """The columns of the rows read so far, each with the field that it is compared with."""
        return {
            column: None if field is None else field[0]
            for column, field in self._columns.found.items()
        }

    def _moment(self, name: str) -> Any:  # Any: epoch ms, or None
        given = getattr(self, name)
        if given is None:
            return None
        try:
            return moment(given, self.zone)
        except ValueError as error:
            raise InvalidRequestError(f"{name}: {given!r} {error}") from None

    async def __aiter__(self) -> AsyncGenerator[Difference, None]:
        self.counts = Counter()
        self.rows_read = 0
        self.rows_outside = 0
        self.items_read = 0
        try:
            with closing(Table(ignore_case=self.ignore_case)) as table:
                await self._store(table)
                await self._read(table)
                for difference in table.differences(self._model):
                    self.counts[difference.kind] += 1
                    yield difference
        except sqlite3.Error as error:
            raise in_words("(temporary file of the rows)", error) from error

    async def _store(self, table: Table) -> None:
        problems: list[str] = []
        async with aclosing(self._numbered()) as rows:
            async for line, row in rows:
                try:
                    key, cells = self._columns.read(row)
                    inside = self._window.contains(cells.get("created_at"))
                    table.add(key, line, cells, inside=inside)
                    self.rows_outside += not inside
                except ValueError as error:
                    problems.append(f"line {line}: {words_of(error)}")
                    if len(problems) == _NAMED:
                        break
                self._count("rows_read")
                if self.rows_read % _STEP == 0:
                    await asyncio.sleep(0)
        if problems:
            raise InvalidRequestError(
                problems, hint="Nothing was compared. Correct the rows."
            )
        self._columns.check()

    async def _numbered(self) -> AsyncGenerator[tuple[int, object], None]:
        if isinstance(self.rows, AsyncIterable):
            number = 0
            async for row in self.rows:
                number += 1
                yield number, row
            return
        if isinstance(self.rows, (str, Path)):
            found = rows_of_file(str(self.rows), self.form, self.delimiter)
        else:
            found = enumerate(self.rows, 1)
        for each in found:
            yield each

    def _count(self, name: str) -> None:
        setattr(self, name, getattr(self, name) + 1)
        if self.on_read is not None:
            self.on_read()

    async def _read(self, table: Table) -> None:
        """Read the list, and then what is in doubt again, until nothing is."""
        service = ListReadings(
            client=self.client,
            what=self.what,
            columns=self._columns,
            window=self._window,
            table=table,
            on_item=partial(self._count, "items_read"),
        )
        is_full = await service.read_list(1, *self._window)
        keys, span = table.end(1, whole=True)
        for reading in range(2, _READINGS + 1):
            if not keys:
                break
            has_all = await service.read_again(reading, keys, span)
            if is_full and self.ignore_case:
                has_all = False  # beyond a full list, only exact ids could be read
            keys, span = table.end(reading, whole=has_all)
        self.complete = not is_full and not keys


@attrs.frozen(kw_only=True)
class ListReadings:
    """
    The readings of the service, which compare what they are shown with the rows in *table*.

    The first one shows the whole list, and later ones what is in doubt: whatever may have changed while the
    list was read.  *on_item* is called for each item of the first.
    """

    client: Client
    what: str
    columns: RowColumns
    window: TimeWindow
    table: Table
    on_item: Callable[[], object]

    async def read_again(
        self,
        reading: int,
        keys: list[str],
        span: tuple[int, int] | None,
    ) -> bool:
        """Read what is in doubt; return whether what the table did not meet does not exist."""
        if self.what == "webhooks.list":
            await self._read_webhooks(reading, keys)
            return True
        if reading > 2 or span is None:
            await self.read_list(reading, *self.window)
            return True
        # The span is a guess to read less: the service need not accept it.
        with suppress(
            FilterNotHonouredError, InvalidRequestError, ValidationFailedError
        ):
            await self.read_list(reading, *span)
        return False

    async def read_list(
        self,
        reading: int,
        after: int | None,
        before: int | None,
    ) -> bool:
        """Read the items created in a time span; return whether the list may have more."""
        if self.what == "webhooks.list":
            hooks = await self.client.webhooks.list(limit=_LARGEST)
            for hook in hooks:
                self._take(reading, hook)
            return hooks.is_full
        limit = _LARGEST if options_of(self.client).names.limit else None
        asked = {"limit": limit, "created_after": after, "created_before": before}
        given = {name: value for name, value in asked.items() if value is not None}
        async with aclosing(
            aiter(called(self.client, self.what, given, prefetch=True))
        ) as items:
            async for item in items:
                self._take(reading, item)
        return False

    async def _read_webhooks(self, reading: int, ids: Iterable[str]) -> None:
        """Read webhooks by their ids; the table does not meet those that the service does not have."""
        for each in ids:
            try:
                self._take(reading, await self.client.webhooks.get(each))
            except (
                NotFoundError,
                InvalidRequestError,
            ) as error:  # the latter: it cannot be an id
                # a gateway's 404 proves nothing
                if not getattr(error, "own_envelope", True):
                    raise

    def _take(self, reading: int, item: Invoice | Webhook) -> None:
        """Compare an item with its row, if it is in doubt."""
        plain = unstructure(item)
        created = at(plain, "created_at")
        key = text_of(at(plain, self.columns.key))
        times, cells, shown = self.table.find(key)
        if reading == 1:
            self.on_item()
        is_in_doubt = reading == 1 or shown == 1
        if not is_in_doubt:
            return
        if not self.window.contains(created):
            return
        kind, fields = self._difference(times, cells, plain)
        text = None
        # the first reading shows nothing for certain: the file need not have its items
        if kind is not None and reading > 1:
            text = item.to_json()
        self.table.meet(key, created, reading, kind, fields, text)

    def _difference(
        self,
        times: int,
        cells: Wire,
        item: Wire,
    ) -> tuple[Kind | None, list[FieldDifference]]:
        """Return how *item* differs from the *cells* of its row; *times* is how many rows have the key."""
        if not times:
            return Kind.NOT_IN_ROWS, []
        if times > 1:  # that is a difference of its own
            return None, []
        fields = self.columns.differing(cells, item)
        if fields:
            return Kind.DIFFERENT, fields
        return None, []
