"""``invsvc list``: list items as a table, JSON or CSV, one page or all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer

from invsvc_async.api.schema import Kind
from invsvc_async.cli.arguments import complete_argument, complete_operation
from invsvc_async.cli.options import EscapeFormulas, Json, Profile, Team, client_of
from invsvc_async.concurrency.event_loop import until_done

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from invsvc_async.api.operations import Operation
    from invsvc_async.cli.list_output import Form, Sink
    from invsvc_async.client import Client
    from invsvc_async.reads.pages import Pages

__all__ = ["command"]

# Columns that fit a terminal.  --columns selects others; JSON and CSV have all fields.
COLUMNS: dict[str, tuple[str, ...]] = {
    "Invoice": ("uuid", "created_at", "total", "currency", "status", "client.legal_name"),
    "Webhook": ("id", "url", "events", "status", "description", "created_at"),
    "RetentionFile": ("filename", "type"),
}

What = Annotated[
    str,
    typer.Argument(
        metavar="WHAT",
        help="invoices.egress, invoices.payment_complements, webhooks, retentions.files.",
        autocompletion=complete_operation(Kind.READ, many=True),
    ),
]
Filters = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME=VALUE",
        help="Filters: status=valid created_after=2026-05-01 metadata.order=A-1.",
        autocompletion=complete_argument,
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns", "--fields", help="Comma-separated columns: uuid,client.email.", metavar="NAMES"
    ),
]
Wide = Annotated[
    bool, typer.Option("--wide", help="Do not wrap columns, even if rows are longer than the terminal.")
]


def command(
    what: What,
    words: Filters = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="Read all pages.")] = False,
    fields: Columns = None,
    wide: Wide = False,
    json_: Json = False,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Print one JSON object per line, as items arrive.")
    ] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, as items arrive.")] = False,
    escape_formulas: EscapeFormulas = False,
    resume: Annotated[str | None, typer.Option(metavar="TOKEN", help="Resume an interrupted list.")] = None,
    profile: Profile = None,
    team: Team = None,
) -> None:
    """
    List items: `invsvc list invoices.egress status=valid --all --csv`, `invsvc list webhooks limit=100`.

    Without --all it prints the first page; a note on stderr shows how to continue.
    """
    from invsvc_async.cli.arguments import arguments_of, operation_of
    from invsvc_async.cli.list_output import Sink

    if json_ + jsonl + csv > 1:
        raise typer.BadParameter("use only one of --json, --jsonl and --csv")
    if escape_formulas and not csv:
        raise typer.BadParameter("use it with --csv only", param_hint="--escape-formulas")
    operation = operation_of(what, Kind.READ, many=True, short="list")
    if resume is not None and all(row.name != "cursor" for row in operation.parameters):
        raise typer.BadParameter("this list has no pages", param_hint="--resume")
    query = _Query(operation, arguments_of(operation, words or []), every=all_, resume=resume)
    form: Form = "json" if json_ else "jsonl" if jsonl else "csv" if csv else "table"
    sink = Sink(form, _columns(fields, form, operation.result), escape_formulas, wide)
    notes: list[str] = []  # printed after the items
    complete = False
    try:
        until_done(_list(query, sink, notes, profile, team))
        complete = True
    finally:
        if complete or sink.taken:  # after a failure, items before the resume token are printed
            sink.end()
        _print_notes(notes)


def _columns(fields: str | None, form: Form, result: str) -> tuple[str, ...]:
    from invsvc_async import models
    from invsvc_async.cli.formatting import fields_of

    known = fields_of(getattr(models, result))
    if fields is None:
        return COLUMNS[result] if form == "table" else known
    asked = tuple(name.strip() for name in fields.split(","))
    if unknown := [name for name in asked if name.partition(".")[0] not in known]:
        raise typer.BadParameter(
            f"{', '.join(unknown)}: unknown. {result} has {', '.join(known)}", param_hint="--columns"
        )
    return asked


@attrs.frozen
class _Query:
    operation: Operation
    arguments: dict[str, Any]
    every: bool
    resume: str | None


async def _list(query: _Query, sink: Sink, notes: list[str], profile: str | None, team: str | None) -> None:
    from invsvc_async.cli.output import progress
    from invsvc_async.cli.waiting import waiting_for_read
    from invsvc_async.errors import InvsvcError

    broken = 0
    try:
        async with client_of(profile, team) as client:
            with (
                progress(query.operation.name, shown=query.every) as advance,
                waiting_for_read(client, query.operation.name, shown=not query.every),
            ):
                async for item in _items(client, query, notes.append):
                    sink.take(item)
                    advance()
                    broken += len(item.problems)
    except InvsvcError as error:
        if token := getattr(error, "resume_token", None):
            notes.append(f"continue with --resume {token}")
        raise
    finally:
        if broken:
            notes.append(f"{broken} malformed fields are shown as '!'; --json has them as received")


def _print_notes(notes: Iterable[str]) -> None:
    from invsvc_async.cli.output import note

    for text in notes:
        note(text)


async def _items(client: Client, query: _Query, add_note: Callable[[str], None]) -> AsyncGenerator[Any]:
    from invsvc_async.resources.by_name import called

    arguments = query.arguments
    if query.every:
        arguments = _largest(query.operation) | arguments
    found = called(client, query.operation.name, arguments)
    if hasattr(found, "by_page"):
        async for item in _walk(found, query, add_note):
            yield item
        return
    items = await found
    for item in items:
        yield item
    if getattr(items, "is_full", False):
        add_note("the list reached its limit and may be incomplete; the maximum is limit=100")


def _largest(operation: Operation) -> dict[str, int]:
    """Return the largest limit of a list without pages; a parameter whose name is assumed is left out."""
    named = {each.name: each for each in operation.parameters if not each.assumed}
    limit = named.get("limit")
    if limit is None or limit.maximum is None or "cursor" in named:
        return {}
    return {"limit": limit.maximum}


async def _walk(pages: Pages[Any], query: _Query, add_note: Callable[[str], None]) -> AsyncGenerator[Any]:
    walked = pages if query.resume is None else pages.resume(query.resume)
    async for page in walked.by_page():
        for item in page:
            yield item
        if not query.every:
            if token := walked.token_after(page):
                add_note(f"there are more: use --all, or --resume {token}")
            return
