"""``invsvc batch``: run batches, and look after them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from invsvc_async.cli.commands.report import report
from invsvc_async.cli.commands.stores import (
    BATCH,
    At,
    Kind,
    Place,
    attach,
    drop,
    list_,
    prune,
    retry,
    show,
    workers,
)
from invsvc_async.cli.option_groups import expanded, group_of
from invsvc_async.cli.options import Port, check_outputs, existing_file, handled, interruptible
from invsvc_async.cli.output import DONE, USAGE, counted, emit_json, fail, note
from invsvc_async.cli.sending import BatchSending
from invsvc_async.concurrency.event_loop import until_done
from invsvc_async.storage.address import is_postgres

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import BinaryIO

    from invsvc_async.batch.file_check import FileWrites

__all__ = ["PAGE", "app", "watch"]

Journal = Annotated[str, typer.Option(help="The journal: a file, or postgresql://…", metavar="FILE")]
Input = Annotated[
    Path,
    typer.Argument(
        help="One write per line, as JSON, or a table; - is stdin.", metavar="FILE", callback=existing_file
    ),
]

Operation = Annotated[
    str | None, typer.Option(metavar="NAME", help="The input is a CSV table; each row is such a write.")
]
Maps = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="ARGUMENT=COLUMN", help="Of a table: one argument; repeatable."),
]
KeyColumn = Annotated[str | None, typer.Option("--key", metavar="COLUMN", help="Of a table: the keys.")]

_CORRECT = "Correct these lines, or skip them with --skip-bad"
_FORM = (
    'The input must have one write per line: {"operation": …, "arguments": {…}, "key": …}. '
    "Of a table, --operation says what its rows are"
)
PAGE = ("invsvc_async.cli", "batch_watch.html")
_NAMED = 20  # bad lines that are shown; 2 if no line is good, as in a file of another format


class _Group(TyperGroup):
    """Treats ``invsvc batch FILE …`` as ``invsvc batch run FILE …``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: newer typer brings its own click
        """Insert the command ``run`` if the first word is not a command."""
        if args and args[0] not in (*self.commands, "-h", "--help"):
            from invsvc_async.resources.by_name import did_you_mean

            if not Path(args[0]).exists() and (words := did_you_mean(args[0], self.commands)):
                ctx.fail(f"No such file or command {args[0]!r}. {words}")
            args = ["run", *args]
        return list(super().parse_args(ctx, args))


app: typer.Typer = group_of(
    "Run the writes of a file, one per line. Safe to kill at any moment: nothing is lost or sent twice."
    "\n\nBegin or resume one with `invsvc batch FILE.jsonl --journal run.db`. A line of the file is "
    '{"operation": "webhooks.create", "arguments": {…}, "key": "row-17"}. A file can be a table in CSV, too: '
    "see `invsvc batch run --help`.",
    _Group,
)


@app.command()
@expanded
def run(
    file: Input,
    *,
    journal: Journal,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the file, and show its first writes.")
    ] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip invalid lines and list them.")] = False,
    operation: Operation = None,
    map_: Maps = None,
    key: KeyColumn = None,
    options: BatchSending,
) -> None:
    """
    Start or resume a batch: `invsvc batch writes.jsonl --journal run.db --dry-run`.

    A line is {"operation": "webhooks.create", "arguments": {…}, "key": "row-17"}.  Of a table in CSV each row
    is a write of the --operation: `invsvc batch orders.csv --journal run.db --operation webhooks.update
    --map webhook=hook_id --map description=note --key order_id`.  An empty cell leaves its argument out; with
    ARGUMENT:=COLUMN cells are JSON, such as null.

    Nothing is sent unless all lines are valid, and if lines create webhooks, --secrets-to or --no-secrets
    says what becomes of their secrets.  After a kill, or to run lines added to the file, repeat the command
    with the same file and journal.

    Exits with 3 if the result of a write is unknown, 1 if a write was not applied, 4 if that is only because
    newer writes to the same resources were sent, and 0 otherwise.  5 means that nothing is wrong, except that
    another process has not read its input to its end yet, or that invalid lines were skipped.
    """
    from invsvc_async.batch.file_check import rereadable

    check_outputs({"--secrets-to": options.secrets_to}, input=file, journal=journal)
    if operation is None and (map_ or key is not None):
        raise typer.BadParameter("--map and --key need --operation, which says that the input is a table")

    with interruptible():  # a pipe may give nothing
        opened = rereadable(file)
    with opened as lines:
        table = None if operation is None else (operation, map_ or (), key)
        running = _run(journal, options, file, lines, table, dry_run=dry_run, skip_bad=skip_bad)
        raise typer.Exit(until_done(running))


async def _run(
    journal: str,
    options: BatchSending,
    file: Path,
    lines: BinaryIO,
    table: tuple[str, Sequence[str], str | None] | None,
    *,
    dry_run: bool,
    skip_bad: bool,
) -> int:
    from invsvc_async.batch.entries import checkpoint_at
    from invsvc_async.batch.file_check import FileWrites, read_lines
    from invsvc_async.cli.commands import batch_run
    from invsvc_async.cli.table_input import Table

    async with options.client(options.concurrency) as client:
        rows = None if table is None else Table(lines, client, *table)
        read, form = (read_lines, b"") if rows is None else (rows.lines, rows.form)
        writes = FileWrites(lines, client, name=str(file), skips_bad=skip_bad, read=read, form=form)
        for _ in writes.check(None if dry_run else await checkpoint_at(journal)):
            pass
        _name_problems(file, writes, skip_bad=skip_bad)
        if dry_run:
            names = ("operation", "arguments", "key")
            first = [{name: getattr(each, name) for name in names} for each in writes.first]
            problems = [{"line": each.number, "reason": each.reason} for each in writes.problems]
            found = {"good": writes.good, "bad": writes.bad, "problems": problems, "first": first}
            for each in [found] if options.json_ else first:
                emit_json(each)
            valid, invalid = counted(writes.good, "valid write"), counted(writes.bad, "invalid line")
            note(f"{valid}, {invalid}; nothing was sent")
            return USAGE if writes.bad else DONE
        if writes.bad and not (skip_bad and writes.good):
            fail(f"nothing was sent. {_CORRECT if writes.good else _FORM}")
            return USAGE
        # A run on a shared journal also sends what other runs put into it.
        may_create = writes.has_secrets or is_postgres(str(journal))
        options.check_secrets(may_create=may_create)
        return await batch_run.run(
            journal, options, client, writes, total=writes.good, bad=writes.bad, may_create=may_create
        )


def _name_problems(file: Path, writes: FileWrites, *, skip_bad: bool) -> None:
    """Print the first bad lines, or all that are skipped."""
    most = len(writes.problems) if skip_bad and writes.good else _NAMED if writes.good else 2
    for problem in writes.problems[:most]:
        fail(f"{file}: {problem}")
    if not (skip_bad and writes.good) and writes.bad > most:
        fail(f"{file}: and {writes.bad - most:,} more lines")


def worker(place: Place, *, options: BatchSending) -> None:
    """
    Process a batch shared by several machines, until interrupted:
    `invsvc batch worker "postgresql://db.example/orders" --secrets-to secrets.jsonl`.

    Workers can join and leave at any time.  They share the --rate.
    """
    from invsvc_async.cli.commands import batch_run

    async def work() -> int:
        async with options.client(options.concurrency) as client:
            return await batch_run.run(place, options, client)

    options.check_secrets(may_create=True)
    raise typer.Exit(until_done(work()))


async def watch(
    kind: Kind,
    at: At,
    *,
    port: Port = 0,
    open_: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser, or only print its address.")
    ] = True,
) -> None:
    """
    Watch a batch on a page: `invsvc batch watch run.db`.  Stop with Ctrl-C.

    The page shows progress, rate, pauses, workers and failures.
    It only reads, so it can run beside the batch, and after its end.  The page answers only to this machine.
    """
    del kind
    import webbrowser

    from invsvc_async.batch.reports.live import Watch
    from invsvc_async.simulator.loopback_page import serving_page

    try:
        async with Watch(at.place) as batch, serving_page(PAGE, batch.data, port=port) as address:
            if at.json_:
                emit_json({"watch_url": address, "data_url": f"{address}data"})
            else:
                typer.echo(f"Watching {batch.name}; press Ctrl-C to stop.\n  watch_url   {address}")
                typer.echo(f"  data_url    {address}data (what the page reads, as JSON)")
            sys.stdout.flush()
            if open_ and not at.json_ and _has_screen():
                await asyncio.to_thread(webbrowser.open, address)
            await _interrupted()
    except OSError as error:
        raise typer.BadParameter(f"--port: {error.strerror or error}. Use another one, or 0.") from error


def _has_screen() -> bool:
    """Return whether a browser would open a window; one for terminals would take over this one."""
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.platform in {"darwin", "win32"} or bool(display)


async def _interrupted() -> None:
    """Wait for a signal to stop."""
    stopped = asyncio.Event()
    with handled((signal.SIGINT, signal.SIGTERM), stopped.set):
        await stopped.wait()


app.command()(expanded(worker, lacks=("tag", "stop_after")))
attach(app, BATCH, list_, show, report, watch, workers, retry, drop, prune)
