"""``invsvc export``: export a list to a file, resumably."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from invsvc_async.api.operations import Kind
from invsvc_async.cli.arguments import arguments_of, operation_of
from invsvc_async.cli.options import Calling, EscapeFormulas, argument, number, option
from invsvc_async.cli.output import emit_json, note, progress
from invsvc_async.errors import InvalidRequestError
from invsvc_async.resources.by_name import called

if TYPE_CHECKING:
    from invsvc_async.client import Client
    from invsvc_async.codec.exact_json import WireObject

__all__ = ["command"]

_SHORT = {"invoices": "invoices.egress"}


What = Annotated[
    str, argument("invoices (that is, invoices.egress), or invoices.payment_complements.", "WHAT")
]
Filters = Annotated[list[str] | None, argument("Filters: status=valid.", "NAME=VALUE")]
Output = Annotated[
    Path | None,
    option("The file; its extension selects the format.", "FILE", names=("--output", "-o"), dir_okay=False),
]


async def command(
    what: What,
    words: Filters = None,
    *,
    format_: Annotated[str | None, option("jsonl, csv or parquet.", "FORMAT")] = None,
    output: Output = None,
    resume: Annotated[bool, option("Resume an interrupted export.")] = False,
    overwrite: Annotated[bool, option("Start over.")] = False,
    precision: Annotated[int, number(int, "Digits of Parquet's decimals.")] = 38,
    scale: Annotated[int, number(int, "Digits after the decimal point.")] = 12,
    escape_formulas: EscapeFormulas = False,
    calling: Calling,
) -> None:
    """
    Export invoices: `invsvc export invoices status=valid -o valid.parquet`.

    Uses constant memory.  After Ctrl-C, an error or a kill, repeat the command with --resume, which leaves a
    finished file as it is and exits with 0.  A decimal
    that does not fit its column is an error; numbers are never rounded.
    """
    from invsvc_async import export
    from invsvc_async.export.walk import is_finished

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
    if resume and not overwrite and is_finished(path):
        note(f"{path}: exists, and is not an interrupted export, so that nothing was read. Use --overwrite")
        if calling.json_:
            emit_json({"path": str(path), "rows": None, "resumed": False})
        return
    settings: dict[str, Any] = {
        "format": format_, "resume": resume, "overwrite": overwrite, "precision": precision, "scale": scale,
        "escape_formulas": escape_formulas,
    }  # fmt: skip
    try:
        async with calling.client() as client:
            pages = _pages(client, operation.name, arguments)
            with progress(operation.name) as advance:
                done = await export.invoices(pages, path, **settings, on_page=lambda _rows: advance())
    except asyncio.CancelledError:
        note(f"stopped: repeat the command with --resume (progress is in {path}.resume)")
        raise
    if calling.json_:
        emit_json({"path": str(done.path), "rows": done.rows, "resumed": done.resumed})
    else:
        typer.echo(f"{done.path}\t{done.rows} rows")


def _pages(client: Client, operation: str, arguments: WireObject) -> Any:  # Any: of invoices
    try:
        return called(client, operation, {"limit": 100, **arguments}, prefetch=True)
    except InvalidRequestError:  # the parameter's name is switched off, or another argument is wrong
        return called(client, operation, arguments, prefetch=True)
