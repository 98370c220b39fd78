"""``invsvc export``: export a list to a file, resumably."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from invsvc_async.cli.options import EscapeFormulas, Profile, Team, client_of, number
from invsvc_async.cli.output import emit_json, note, progress
from invsvc_async.concurrency.event_loop import until_done

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.api.operations import Operation
    from invsvc_async.client import Client
    from invsvc_async.export import Exported
    from invsvc_async.models import Invoice
    from invsvc_async.reads.pages import Pages

__all__ = ["command"]

_SHORT = {"invoices": "invoices.egress"}

What = Annotated[
    str,
    typer.Argument(
        metavar="WHAT", help="invoices (that is, invoices.egress), or invoices.payment_complements."
    ),
]
Filters = Annotated[list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Filters: status=valid.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", dir_okay=False, metavar="FILE", help="The file; its extension selects the format."
    ),
]


def command(
    what: What,
    words: Filters = None,
    *,
    format_: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help="jsonl, csv or parquet.")
    ] = None,
    output: Output = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted export.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start over.")] = False,
    precision: Annotated[int, number(int, "Digits of Parquet's decimals.")] = 38,
    scale: Annotated[int, number(int, "Digits after the decimal point.")] = 12,
    escape_formulas: EscapeFormulas = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
    profile: Profile = None,
    team: Team = None,
) -> None:
    """
    Export invoices: `invsvc export invoices status=valid -o valid.parquet`.

    Uses constant memory.  After Ctrl-C, an error or a kill, repeat the command with --resume, which leaves a
    finished file as it is and exits with 0.  A decimal
    that does not fit its column is an error; numbers are never rounded.
    """
    from invsvc_async.api.operations import Kind
    from invsvc_async.cli.arguments import arguments_of, operation_of

    operation = operation_of(_SHORT.get(what, what), Kind.READ, many=True, short="list")
    if operation.result != "Invoice":
        raise typer.BadParameter(
            "only invoices and invoices.payment_complements can be exported", param_hint="WHAT"
        )
    if str(output) == "-":
        raise typer.BadParameter(
            "an export writes a file, so that it can be resumed; for a pipe, use invsvc list --jsonl",
            param_hint="--output",
        )
    path = output or Path(f"{what}.{format_ or 'jsonl'}")
    arguments = arguments_of(operation, words or [])
    if resume and not overwrite and _is_finished(path, json_=json_):
        return
    settings = {
        "format": format_, "resume": resume, "overwrite": overwrite, "precision": precision, "scale": scale,
        "escape_formulas": escape_formulas,
    }  # fmt: skip
    try:
        done = until_done(_export(operation, arguments, path, settings, profile, team))
    except KeyboardInterrupt:
        note(f"stopped: repeat the command with --resume (progress is in {path}.resume)")
        raise
    _print_result(done, json_=json_)


def _is_finished(path: Path, *, json_: bool) -> bool:
    """Return whether there is nothing to resume, and say so."""
    from invsvc_async.export.walk import is_finished

    if not is_finished(path):
        return False
    note(f"{path}: exists, and is not an interrupted export, so that nothing was read. Use --overwrite")
    if json_:
        emit_json({"path": str(path), "rows": None, "resumed": False})
    return True


async def _export(
    operation: Operation, arguments: dict[str, Any], path: Path, settings: dict[str, Any],
    profile: str | None, team: str | None,
) -> Exported:  # fmt: skip
    from invsvc_async import export

    async with client_of(profile, team) as client:
        pages = _pages(client, operation.name, arguments)
        with progress(operation.name) as advance:
            return await export.invoices(pages, path, **settings, on_page=_on_page(advance))


def _pages(client: Client, operation: str, arguments: dict[str, Any]) -> Pages[Invoice]:
    """Return the list, in the largest pages if the deployment has a parameter for their size."""
    from invsvc_async.errors import InvalidRequestError
    from invsvc_async.resources.by_name import called

    pages: Pages[Invoice]
    try:
        pages = called(client, operation, {"limit": 100, **arguments}, prefetch=True)
    except InvalidRequestError:  # its name is switched off, or another argument is wrong
        pages = called(client, operation, arguments, prefetch=True)
    return pages


def _on_page(advance: Callable[[], None]) -> Callable[[int], None]:
    def on_page(_rows: int) -> None:
        advance()

    return on_page


def _print_result(done: Exported, *, json_: bool) -> None:
    if json_:
        emit_json({"path": str(done.path), "rows": done.rows, "resumed": done.resumed})
    else:
        typer.echo(f"{done.path}\t{done.rows} rows")
