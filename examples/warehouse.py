"""
Load invoices, payment complements, webhooks and users into a warehouse, with dlt.

With this package and ``dlt[duckdb]`` installed:
``INVSVC_BASE_URL=… INVSVC_API_KEY=… python warehouse.py invoices.duckdb``

Run it as often as you like.  It may be killed at any moment: each load is committed
with the place where the next one begins, and rows are merged by their key.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import dlt

from invsvc_async import Client, FieldError, NotFoundError, Portal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dlt.extract import DltResource
    from dlt.sources import DltSource

    from invsvc_async import Invoice, Pages, User, Webhook

FIRST = datetime(2020, 1, 1, tzinfo=UTC)  # load what was created since
LOOKBACK = timedelta(days=30)  # what changes later than that is not seen
PAGES = 50  # of 100 invoices: one load, and so what a kill costs at most

LOG = logging.getLogger("warehouse")
# The tables: columns, and their types in dlt
INVOICE = {
    "uuid": "text", "status": "text", "invoice_type": "text", "created_at": "timestamp",
    "date": "timestamp", "series": "text", "folio_number": "bigint", "idempotency_key": "text",
    "currency": "text", "exchange_rate": "decimal", "total": "decimal", "subtotal": "decimal",
    "discount": "decimal", "taxes": "decimal", "withholding_taxes": "decimal", "use": "text",
    "payment_form": "text", "payment_method": "text", "livemode": "bool", "owner": "text",
    "team": "text",
}  # fmt: skip
WEBHOOK = {
    "id": "text", "url": "text", "status": "text", "description": "text", "owner": "text",
    "created_at": "timestamp", "events": "json",
}  # fmt: skip
USER = {
    "id": "text", "email": "text", "first_name": "text", "last_name": "text", "phone": "text",
    "company_role": "text", "created_at": "timestamp", "teams": "json",
}  # fmt: skip
PRECISION, SCALE = 38, 12  # of decimals; a number that does not fit is an error
Row = dict[str, Any]


def hints(columns: dict[str, str]) -> dict[str, Any]:
    """Return *columns* in the form of dlt."""
    exact = {"precision": PRECISION, "scale": SCALE}
    return {
        name: {"data_type": kind, **(exact if kind == "decimal" else {})}
        for name, kind in columns.items()
    }


def row(item: Invoice | Webhook | User, columns: dict[str, str]) -> Row:
    """Return the columns of *item*; one that is absent or malformed is null."""
    found: Row = {}
    for name, kind in columns.items():
        try:
            value = getattr(item, name)
        except FieldError as error:
            LOG.warning("%s: %s", name, error)
            value = None
        if kind == "decimal" and value is not None:
            check(value, f"{name} of {item}")
        found[name] = list(value) if isinstance(value, tuple) else value
    return found


def check(value: Decimal, what: str) -> None:
    """Raise an error if the warehouse would round *value*."""
    scaled = value.scaleb(SCALE, Context(prec=1000))
    if scaled != scaled.to_integral_value() or abs(scaled) >= 10**PRECISION:
        raise ValueError(f"{what}: {value} does not fit decimal({PRECISION}, {SCALE})")


def of_invoice(item: Invoice) -> Row:
    """Return a row, which also has the invoice as the service sent it, with all digits."""
    return {**row(item, INVOICE), "raw": item.to_json()}


def walk(
    portal: Portal, listed: Callable[..., Pages[Invoice]], run: str
) -> Iterator[list[Row]]:
    """
    Yield the next pages of a list, oldest first, and store how far the list was read.

    Once it was read to its end, a run begins LOOKBACK before that.  *run* is done when it
    has walked from there to the end by itself: so it has seen what had changed before it.
    """
    state = dlt.current.resource_state()
    first = round(FIRST.timestamp() * 1000)
    begin = state.get("next", first)
    if state.get("ended", True):
        state["run"] = run  # which begins this walk
        begin = max(first, begin - round(LOOKBACK.total_seconds() * 1000))
    last, ended, count = begin, True, 0
    pages = listed(limit=100, order_by="timestamp", order="asc", created_after=begin)
    for page in portal.iterate(pages.by_page()):
        times = [round(item.created_at.timestamp() * 1000) for item in page]
        if [last, *times] != sorted([last, *times]):
            raise RuntimeError("the list is not in the order of created_at")
        yield [of_invoice(item) for item in page]
        last, count = times[-1] if times else last, count + 1
        if count >= PAGES and last > begin and pages.token_after(page):
            ended = False
            break
    state.update(next=last, ended=ended)
    state["done"] = ended and state["run"] == run


def webhooks(portal: Portal) -> Iterator[list[Row]]:
    """Yield the webhooks.  Their list has no cursor, and shows at most 100."""
    hooks = portal.call(portal.client.webhooks.list(limit=100))
    if hooks.is_full:
        LOG.warning("webhooks: there may be more than the 100 that the service lists")
    yield [row(hook, WEBHOOK) for hook in hooks]


def users(rows: list[Row], portal: Portal, known: set[str]) -> Iterator[Row]:
    """Yield the owners of *rows* that are not *known* yet: users have no list."""
    for owner in {each["owner"] for each in rows if each["owner"]} - known:
        known.add(owner)
        try:
            yield row(portal.call(portal.client.users.get(owner)), USER)
        except NotFoundError:
            LOG.warning("user %s: does not exist any more", owner)


@dlt.source(name="invsvc", max_table_nesting=0)
def invsvc(portal: Portal, run: str, known: set[str]) -> Iterator[DltResource]:
    """Return what is loaded.  *known* has the users that this *run* has loaded."""
    client = portal.client
    invoice: dict[str, Any] = {"primary_key": "uuid", "columns": hints(INVOICE)}
    user: dict[str, Any] = {"primary_key": "id", "columns": hints(USER)}
    listed = [
        dlt.resource(walk, name="invoices", write_disposition="merge", **invoice)(
            portal, client.invoices.egress, run
        ),
        dlt.resource(
            walk, name="payment_complements", write_disposition="merge", **invoice
        )(portal, client.invoices.payment_complements, run),
        dlt.resource(
            webhooks, primary_key="id", columns=hints(WEBHOOK), write_disposition="replace"
        )(portal),
    ]  # fmt: skip
    for each in listed:
        yield each
        yield each | dlt.transformer(
            users, name=f"{each.name}_owners", table_name="users", write_disposition="merge", **user
        )(portal, known)  # fmt: skip


def load(portal: Portal, pipeline: dlt.Pipeline) -> None:
    """Load until there is nothing new."""
    run, known = uuid4().hex, set[str]()
    source: DltSource = invsvc(portal, run, known)
    while source.selected_resources:
        print(pipeline.run(source))
        states = pipeline.state["sources"]["invsvc"]["resources"]
        more = [name for name, state in states.items() if not state["done"]]
        owners = [f"{name}_owners" for name in more]
        source = invsvc(portal, run, known).with_resources(*more, *owners)


def main(file: str) -> None:
    """Load into the DuckDB *file*.  The folder beside it has dlt's state of it, and of no other file."""
    place = Path(file).resolve()
    pipeline = dlt.pipeline(
        "invsvc", pipelines_dir=f"{place}.dlt",
        destination=dlt.destinations.duckdb(str(place)), dataset_name="invsvc",
    )  # fmt: skip
    with Portal(Client.from_env) as portal:
        load(portal, pipeline)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("file: is missing. Pass the one of DuckDB, such as invoices.duckdb.")
    main(sys.argv[1])
