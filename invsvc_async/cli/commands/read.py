"""``invsvc get``, ``list`` and ``export``: read items, and print them or write them to a file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import attrs

from invsvc_async.api.operations import CLIENT_REQUEST, OperationKind
from invsvc_async.cli.arguments import (
    arguments_of,
    complete_argument,
    complete_operation,
    operation_of,
    operations_of,
)
from invsvc_async.cli.options import (
    Calling,
    EscapeFormulas,
    argument,
    misuse,
    number,
    option,
)
from invsvc_async.cli.output import as_json, emitted, note, tell
from invsvc_async.cli.progress import progress, waiting_for_read
from invsvc_async.errors import InvsvcError
from invsvc_async.resources.by_name import called

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from invsvc_async.api.operations import Operation
    from invsvc_async.cli.formatting import Form, Sink
    from invsvc_async.codec.exact_json import WireObject

# Columns that fit a terminal.  --columns selects others; JSON and CSV have all fields.
COLUMNS: dict[str, tuple[str, ...]] = {
    "Invoice": (
        "uuid",
        "created_at",
        "total",
        "currency",
        "status",
        "client.legal_name",
    ),
    "Webhook": ("id", "url", "events", "status", "description", "created_at"),
    "RetentionFile": ("filename", "type"),
}

_NAMES = (
    name.removesuffix(".list") for name in operations_of(OperationKind.READ, many=True)
)
_LISTS = f"{', '.join(_NAMES)}."
What = Annotated[
    str,
    argument(
        _LISTS, "WHAT", autocompletion=complete_operation(OperationKind.READ, many=True)
    ),
]
_FILTERS = "Filters: status=valid created_after=2026-05-01 metadata.order=A-1."
Filters = Annotated[
    list[str] | None, argument(_FILTERS, "NAME=VALUE", autocompletion=complete_argument)
]
_ITEM = "A read, such as webhooks.get (or webhooks), or a path like /users/usr_1."
_WORDS = "Its id and other arguments."
_FIELDS = "Comma-separated columns: uuid,client.email."


async def get(
    what: Annotated[
        str,
        argument(
            _ITEM,
            "WHAT",
            autocompletion=complete_operation(OperationKind.READ, many=False),
        ),
    ],
    words: Annotated[
        list[str] | None,
        argument(_WORDS, "ID | NAME=VALUE", autocompletion=complete_argument),
    ] = None,
    *,
    calling: Calling,
) -> None:
    """
    Read one item: `invsvc get webhooks wh_1`, `invsvc get payments.link plink_1`, `invsvc get /users/usr_1`.
    """
    async with calling.client() as client:
        if what.startswith("/"):
            params = arguments_of(CLIENT_REQUEST, words or [])
            with waiting_for_read(client, what):
                found = (await client.request("GET", what, params=params)).data
        else:
            operation = operation_of(what, OperationKind.READ, many=False)
            reading = called(
                client, operation.name, arguments_of(operation, words or [])
            )
            with waiting_for_read(client, operation.name):
                found = await reading
    from invsvc_async.codec import unstructure

    if not emitted(unstructure(found)):
        from invsvc_async.cli.formatting import show

        show(found)


async def list_(
    what: What,
    words: Filters = None,
    *,
    all_: Annotated[bool, option("Read all pages.")] = False,
    fields: Annotated[
        str | None, option(_FIELDS, "NAMES", names=("--columns", "--fields"))
    ] = None,
    wide: Annotated[
        bool, option("Do not wrap columns, even if rows are longer than the terminal.")
    ] = False,
    jsonl: Annotated[
        bool, option("Print one JSON object per line, as items arrive.")
    ] = False,
    csv: Annotated[bool, option("Print CSV, as items arrive.")] = False,
    escape_formulas: EscapeFormulas = False,
    resume: Annotated[
        str | None, option("Resume an interrupted list.", "TOKEN")
    ] = None,
    calling: Calling,
) -> None:
    """
    List items: `invsvc list invoices.egress status=valid --all --csv`, `invsvc list webhooks limit=100`.

    Without --all it prints the first page; a note on stderr shows how to continue.
    """
    from invsvc_async.cli.formatting import Sink

    form = _form(jsonl=jsonl, csv=csv)
    if escape_formulas and not csv:
        raise misuse("use it with --csv only", "--escape-formulas")
    operation = operation_of(what, OperationKind.READ, many=True)
    if resume is not None and all(row.name != "cursor" for row in operation.parameters):
        raise misuse("this list has no pages", "--resume")
    sink = Sink(form, _columns(fields, form, operation.result), escape_formulas, wide)
    arguments = arguments_of(operation, words or [])
    if all_:
        arguments = _largest_limit(operation) | arguments
    await _print_list(
        operation.name, arguments, sink, calling, every=all_, resume=resume
    )


def _form(*, jsonl: bool, csv: bool) -> Form:
    """Return the form of the output: as the option says that was used, or else a table."""
    if as_json.get() + jsonl + csv > 1:
        raise misuse("use only one of --json, --jsonl and --csv")
    if as_json.get():
        return "json"
    if jsonl:
        return "jsonl"
    if csv:
        return "csv"
    return "table"


def _largest_limit(operation: Operation) -> dict[str, int]:
    """Return the largest limit of a list without pages; a parameter whose name is assumed is left out."""
    named = {
        each.name: each.maximum for each in operation.parameters if not each.assumed
    }
    limit = named.get("limit")
    if limit is None or "cursor" in named:
        return {}
    return {"limit": limit}


async def _print_list(
    operation: str,
    arguments: WireObject,
    sink: Sink,
    calling: Calling,
    *,
    every: bool,
    resume: str | None,
) -> None:
    """Print the items of a list, also those before an error, and then how to continue."""
    notes: list[str] = []
    broken = 0
    complete = False
    try:
        async with calling.client() as client:
            found = called(client, operation, arguments)
            waiting = waiting_for_read(client, operation, shown=not every)
            with progress(operation, shown=every) as advance, waiting:
                async for item in _items(
                    found, notes.append, every=every, resume=resume
                ):
                    sink.take(item)
                    advance()
                    broken += len(item.problems)
        complete = True
    except InvsvcError as error:
        if token := getattr(error, "resume_token", None):
            notes.append(f"continue with --resume {token}")
        raise
    finally:
        if broken:
            notes.append(
                f"{broken} malformed fields are shown as '!'; --json has them as received"
            )
        if complete or sink.taken:
            sink.end()
        for text in notes:
            note(text)


def _columns(
    fields: str | None,
    form: Form,
    result: str,
) -> tuple[str, ...]:
    from invsvc_async import models
    from invsvc_async.models.common import wire_names

    known = tuple(wire_names(getattr(models, result)))
    if fields is None:
        if form == "table":
            return COLUMNS[result]
        return known
    asked = tuple(name.strip() for name in fields.split(","))
    if unknown := [name for name in asked if name.partition(".")[0] not in known]:
        raise misuse(
            f"{', '.join(unknown)}: unknown. {result} has {', '.join(known)}",
            "--columns",
        )
    return asked


async def _items(
    found: Any,
    tell: Callable[[str], None],
    *,
    every: bool,
    resume: str | None,
) -> AsyncGenerator[Any]:  # Any: a list of models, or its pages
    if not hasattr(found, "by_page"):
        items = await found
        for item in items:
            yield item
        if getattr(items, "is_full", False):
            tell(
                "the list reached its limit and may be incomplete; the maximum is limit=100"
            )
        return
    pages = found if resume is None else found.resume(resume)
    async for page in pages.by_page():
        for item in page:
            yield item
        if every:
            continue
        token = pages.token_after(page)
        if token:
            tell(f"there are more: use --all, or --resume {token}")
        return


_WHAT = "invoices (that is, invoices.egress), or invoices.payment_complements."
_FILE = "The file; its extension selects the format."


@attrs.frozen
class _ExportOptions:
    resume: Annotated[bool, option("Resume an interrupted export.")] = False
    overwrite: Annotated[bool, option("Start over.")] = False
    precision: Annotated[int, number(int, "Digits of Parquet's decimals.")] = 38
    scale: Annotated[int, number(int, "Digits after the decimal point.")] = 12
    escape_formulas: EscapeFormulas = False


async def export(
    what: Annotated[str, argument(_WHAT, "WHAT")],
    words: Annotated[
        list[str] | None, argument("Filters: status=valid.", "NAME=VALUE")
    ] = None,
    *,
    format_: Annotated[str | None, option("jsonl, csv or parquet.", "FORMAT")] = None,
    output: Annotated[
        Path | None, option(_FILE, "FILE", names=("--output", "-o"), dir_okay=False)
    ] = None,
    how: _ExportOptions,
    calling: Calling,
) -> None:
    """
    Export invoices: `invsvc export invoices status=valid -o valid.parquet`.

    Uses constant memory.  After Ctrl-C, an error or a kill, repeat the command with --resume, which leaves a
    finished file as it is and exits with 0.  A decimal
    that does not fit its column is an error; numbers are never rounded.
    """
    from invsvc_async.client import options_of
    from invsvc_async.export import invoices
    from invsvc_async.export.walk import is_finished

    operation = _exported(what)
    if str(output) == "-":
        wrong = "an export writes a file, so that it can be resumed; for a pipe, use invsvc list --jsonl"
        raise misuse(wrong, "--output")
    path = output or Path(f"{what}.{format_ or 'jsonl'}")
    arguments = arguments_of(operation, words or [])
    if how.resume and not how.overwrite and is_finished(path):
        note(
            f"{path}: exists, and is not an interrupted export, so that nothing was read. Use --overwrite"
        )
        emitted({"path": str(path), "rows": None, "resumed": False})
        return
    settings: dict[str, Any] = {"format": format_, **attrs.asdict(how)}
    try:
        async with calling.client() as client:
            # its name may be switched off
            limit = {"limit": 100} if options_of(client).names.limit else {}
            pages = called(client, operation.name, limit | arguments, prefetch=True)
            with progress(operation.name) as advance:
                done = await invoices(
                    pages, path, **settings, on_page=lambda _rows: advance()
                )
    except asyncio.CancelledError:
        note(
            f"stopped: repeat the command with --resume (progress is in {path}.resume)"
        )
        raise
    plain = {"path": str(done.path), "rows": done.rows, "resumed": done.resumed}
    tell(plain, f"{done.path}\t{done.rows} rows")


def _exported(what: str) -> Operation:
    """Return the list of invoices with this name."""
    name = "invoices.egress" if what == "invoices" else what
    operation = operation_of(name, OperationKind.READ, many=True)
    if operation.result != "Invoice":
        raise misuse(
            "only invoices and invoices.payment_complements can be exported", "WHAT"
        )
    return operation
