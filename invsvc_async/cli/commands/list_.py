"""List things, a page or all of them, as a table, JSON or CSV; never write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer

from invsvc_async.cli.options import Json, Profile, Team, client_of
from invsvc_async.concurrency.event_loop import until_done

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from invsvc_async.api.operations import Operation
    from invsvc_async.cli.list_output import Form, Sink
    from invsvc_async.client import Client
    from invsvc_async.reads.pages import Pages

__all__ = ["command"]

# What a terminal has room for; --fields asks for others, and CSV has every field.
COLUMNS: dict[str, tuple[str, ...]] = {
    "Invoice": ("uuid", "created_at", "client.legal_name", "total", "currency", "status"),
    "Webhook": ("id", "url", "events", "status", "description", "created_at"),
    "RetentionFile": ("filename", "type"),
}


def command(
    what: Annotated[
        str, typer.Argument(help="invoices.egress, invoices.payment_complements, webhooks, retentions.files.")
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE",
            help="Filters: status=valid created_after=2026-05-01 metadata.order=A-1.",
        ),
    ] = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="Walk every page.")] = False,
    fields: Annotated[str | None, typer.Option(help="Columns, with commas: uuid,client.email.")] = None,
    json_: Json = False,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Print one JSON object a line, as they come.")
    ] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, as they come.")] = False,
    resume: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Go on where a list had stopped.")
    ] = None,
    profile: Profile = None,
    team: Team = None,
) -> None:
    """
    List things: `invsvc list invoices.egress status=valid --all --csv`, `invsvc list webhooks limit=100`.

    Without --all it prints the first page, and says on stderr how to go on.
    """
    from invsvc_async.api.operations import Kind
    from invsvc_async.cli.arguments import arguments_of, operation_of
    from invsvc_async.cli.list_output import Sink

    if json_ + jsonl + csv > 1:
        raise typer.BadParameter("choose one of --json, --jsonl and --csv")
    operation = operation_of(what, Kind.READ, many=True, short="list")
    if resume is not None and all(row.name != "cursor" for row in operation.parameters):
        raise typer.BadParameter("this list comes whole, not in pages", param_hint="--resume")
    asked = _Asked(operation, arguments_of(operation, words or []), every=all_, resume=resume)
    form: Form = "json" if json_ else "jsonl" if jsonl else "csv" if csv else "table"
    sink = Sink(form, _columns(fields, form, operation.result))
    whole = False
    try:
        until_done(_list(asked, sink, profile, team))
        whole = True
    finally:
        if whole or sink.taken:  # what came before a failure is printed: the resume token stands behind it
            sink.end()


def _columns(fields: str | None, form: Form, result: str) -> tuple[str, ...]:
    from invsvc_async import models
    from invsvc_async.cli.formatting import fields_of

    known = fields_of(getattr(models, result))
    if fields is None:
        return COLUMNS[result] if form == "table" else known
    asked = tuple(name.strip() for name in fields.split(","))
    if strange := [name for name in asked if name.partition(".")[0] not in known]:
        raise typer.BadParameter(
            f"{', '.join(strange)}: {result} has {', '.join(known)}", param_hint="--fields"
        )
    return asked


@attrs.frozen
class _Asked:
    operation: Operation
    arguments: dict[str, Any]
    every: bool
    resume: str | None


async def _list(asked: _Asked, sink: Sink, profile: str | None, team: str | None) -> None:
    from invsvc_async._errors import InvsvcError
    from invsvc_async.cli.output import note, progress

    notes: list[str] = []  # said when the bar is gone
    broken = 0
    try:
        async with client_of(profile, team) as client:
            with progress(asked.operation.name, shown=asked.every) as advance:
                async for item in _items(client, asked, notes.append):
                    sink.take(item)
                    advance()
                    broken += len(item.problems)
    except InvsvcError as error:
        if token := getattr(error, "resume_token", None):
            notes.append(f"go on with --resume {token}")
        raise
    finally:
        if broken:
            notes.append(
                f"{broken} fields broke their types and are shown as '!'; --json has them as they came"
            )
        for words in notes:
            note(words)


async def _items(client: Client, asked: _Asked, say: Callable[[str], None]) -> AsyncGenerator[Any]:
    from invsvc_async.cli.arguments import called

    found = called(client, asked.operation, asked.arguments)
    if hasattr(found, "by_page"):
        async for item in _walk(found, asked, say):
            yield item
        return
    items = await found
    for item in items:
        yield item
    if getattr(items, "is_full", False):
        say("the list is as long as was asked for, so more may be missing; limit=100 is the most")


async def _walk(pages: Pages[Any], asked: _Asked, say: Callable[[str], None]) -> AsyncGenerator[Any]:
    walked = pages if asked.resume is None else pages.resume(asked.resume)
    async for page in walked.by_page():
        for item in page:
            yield item
        if not asked.every:
            if token := walked.token_after(page):
                say(f"there is more: --all, or --resume {token}")
            return
