"""Run, resume, prune and report batches; never send anything of a file that is not well-formed."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path  # noqa: TC003 - typer reads the types
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from invsvc_async.cli.options import Json, Profile, Team  # noqa: TC001 - typer reads the types
from invsvc_async.cli.output import DONE, USAGE, console, emit_json, fail, note
from invsvc_async.concurrency.event_loop import until_done

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from typing import BinaryIO

    from invsvc_async.batch.file_check import Checked
    from invsvc_async.batch.journals.protocol import Entries
    from invsvc_async.cli.commands.batch_run import Asked

__all__ = ["app"]

Journal = Annotated[str, typer.Option(help="The journal: a file, or postgresql://…", metavar="FILE")]


class _Group(TyperGroup):
    """``invsvc batch FILE …`` is ``invsvc batch run FILE …``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: newer typer brings its own click
        """Put the command's name in where a file stands."""
        if args and args[0] not in (*self.commands, "--help"):
            args = ["run", *args]
        return list(super().parse_args(ctx, args))


app: typer.Typer = typer.Typer(
    cls=_Group, add_completion=False, rich_markup_mode="markdown", no_args_is_help=True,
    help="Write what a file holds, one write a line, so that a kill at any moment loses and repeats nothing.",
)  # fmt: skip


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="One write a line, as JSON.", exists=True, dir_okay=False)],
    *,
    journal: Journal,
    concurrency: Annotated[int, typer.Option(min=1, help="Writes that may be sending at once.")] = 200,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Sends a second, spread evenly.")] = None,
    tag: Annotated[bool, typer.Option(help="Tag the webhooks created, to find them for certain.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the file, and send nothing.")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad lines out, and say which.")] = False,
    secrets_to: Annotated[Path | None, typer.Option(help="Keep secrets of new webhooks here (0600).")] = None,
    same_mode: Annotated[
        bool, typer.Option("--same-mode", help="Another credential, but of the same team and data mode.")
    ] = False,
    json_: Json = False,
    profile: Profile = None,
    team: Team = None,
) -> None:
    """
    Start a batch, or resume it: `invsvc batch FILE.jsonl --journal run.db`.

    A line is {"operation": "webhooks.create", "arguments": {…}, "key": "row-17"}.  Nothing is sent unless
    the whole file is well-formed.  Run it again with the same file and journal after a kill, or to do what a
    longer file adds.

    Exits with 3 if the fate of any write is unknown, else 1 if any was not applied, else 0.
    """
    from invsvc_async.batch.file_check import rereadable
    from invsvc_async.cli.commands.batch_run import Asked

    asked = Asked(
        journal=journal, concurrency=concurrency, rate=rate, tag=tag, secrets_to=secrets_to,
        same_mode=same_mode,
    )  # fmt: skip
    # Before there is a loop: a pipe that gives nothing can be interrupted.
    with rereadable(file) as lines:
        running = _run(asked, file, lines, profile, team, dry_run=dry_run, skip_bad=skip_bad, as_json=json_)
        raise typer.Exit(until_done(running))


async def _run(
    asked: Asked, file: Path, lines: BinaryIO, profile: str | None, team: str | None, *, dry_run: bool,
    skip_bad: bool, as_json: bool,
) -> int:  # fmt: skip
    from invsvc_async.batch.file_check import check_file, good_writes
    from invsvc_async.cli.commands.batch_run import client_of, write

    async with client_of(profile, team, asked.concurrency) as client:
        checked = check_file(lines, client)
        for problem in checked.problems:
            fail(f"{file}: {problem}")
        if dry_run:
            if as_json:
                emit_json(_plain(checked))
            note(f"{checked.good:,} writes are well-formed, {checked.bad:,} lines are not; nothing was sent")
            return USAGE if checked.bad else DONE
        if checked.bad and not (skip_bad and checked.good):
            fail("nothing was sent: correct the lines above, or leave them out with --skip-bad")
            return USAGE
        if checked.creates_webhooks and asked.secrets_to is None:
            note("webhooks are created: their secrets are shown once, and lost without --secrets-to FILE")
        writes = good_writes(lines, client, checked.good)
        return await write(asked, client, writes, total=checked.good, as_json=as_json)


def _plain(checked: Checked) -> dict[str, Any]:  # Any: JSON as Python values
    problems = [{"line": each.number, "reason": each.reason} for each in checked.problems]
    return {"good": checked.good, "bad": checked.bad, "problems": problems}


@app.command()
def prune(
    *,
    journal: Journal,
    done_before: Annotated[
        datetime, typer.Option(help="A time, in UTC; or a number of --days.")
    ] = datetime.max,  # noqa: DTZ901 - it stands for none
    days: Annotated[int | None, typer.Option(min=0, help="Done so many days ago, or earlier.")] = None,
    json_: Json = False,
) -> None:
    """
    Empty what is done of bodies, evidence and stories; keys and verdicts stay, so that the input is still
    skipped.
    """
    if (done_before == datetime.max) == (days is None):  # noqa: DTZ901 - it stands for none
        raise typer.BadParameter("give --done-before or --days")
    before = done_before.replace(tzinfo=UTC) if days is None else datetime.now(UTC) - timedelta(days=days)
    emptied = until_done(_prune(journal, before))
    if json_:
        emit_json({"emptied": emptied})
    else:
        console().print(f"{emptied:,} entries emptied")


async def _prune(journal: str, before: datetime) -> int:
    async with _opened(journal) as entries:
        return await entries.prune(round(before.timestamp() * 1000))


@app.command()
def retry(
    *,
    journal: Journal,
    verdict: Annotated[str, typer.Option(help="unknown, 'not applied', refused or superseded.")],
    json_: Json = False,
) -> None:
    """
    Make the writes of a verdict to do again, for the next run; unknown ones are settled first.
    """
    from invsvc_async.batch.batch import reopened

    count = until_done(_reopen(journal, reopened(verdict)))
    if json_:
        emit_json({"to_do": count})
    else:
        console().print(f"{count:,} writes are to do again: run the batch")


async def _reopen(journal: str, reopening: Callable[[Entries], Awaitable[int]]) -> int:
    async with _opened(journal) as entries:
        return await reopening(entries)


@app.command()
def worker(
    *,
    journal: Annotated[str, typer.Option(help="postgresql://…", metavar="ADDRESS")],
    concurrency: Annotated[int, typer.Option(min=1, help="Writes that may be sending at once, here.")] = 200,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Sends a second, of all workers.")] = None,
    secrets_to: Annotated[Path | None, typer.Option(help="Keep secrets of new webhooks here (0600).")] = None,
    same_mode: Annotated[
        bool, typer.Option("--same-mode", help="Another credential, same team and mode.")
    ] = False,
    json_: Json = False,
    profile: Profile = None,
    team: Team = None,
) -> None:
    """
    Work on a batch that machines share, until interrupted; join and leave at any time.
    """
    from invsvc_async.cli.commands.batch_run import Asked

    asked = Asked(
        journal=journal, concurrency=concurrency, rate=rate, secrets_to=secrets_to, same_mode=same_mode
    )
    raise typer.Exit(until_done(_work(asked, profile, team, as_json=json_)))


async def _work(asked: Asked, profile: str | None, team: str | None, *, as_json: bool) -> int:
    from invsvc_async.cli.commands.batch_run import client_of, work

    async with client_of(profile, team, asked.concurrency) as client:
        return await work(asked, client, as_json=as_json)


@app.command()
def report(
    journal: Annotated[str, typer.Argument(help="The journal: a file, or postgresql://…")],
    *,
    html: Annotated[Path | None, typer.Option(help="Write one page of HTML here.")] = None,
    jsonl: Annotated[
        Path | None, typer.Option(help="Write each outcome as a line of JSON here; - is stdout.")
    ] = None,
    json_: Json = False,
) -> None:
    """
    Tell how a batch went: verdicts, what it took, and what to do about each unknown write.
    """
    until_done(_report(journal, html, jsonl, as_json=json_))


async def _report(journal: str, html: Path | None, jsonl: Path | None, *, as_json: bool) -> None:
    from invsvc_async.batch.journals.open import name_of
    from invsvc_async.batch.reports.html import page_of
    from invsvc_async.batch.reports.summary import report_of, results_of
    from invsvc_async.cli.commands.batch_report import line_of, plain, show

    async with _opened(journal, reading=True) as entries:
        if jsonl is not None:
            with nullcontext(sys.stdout.buffer) if str(jsonl) == "-" else jsonl.open("wb") as file:
                async for result in results_of(entries):
                    file.write(line_of(result))
            if html is None and not as_json:
                return
        found = await report_of(entries, name_of(journal))
    if html is not None:
        html.write_text(page_of(found), encoding="utf-8")  # noqa: ASYNC240 - the same
        note(f"wrote {html}")
    if as_json:
        emit_json(plain(found))
    elif html is None:
        show(found)


@asynccontextmanager
async def _opened(journal: str, *, reading: bool = False) -> AsyncGenerator[Entries]:
    from invsvc_async.batch.journals.open import entries_of

    entries = entries_of(journal, create=False, reading=reading)
    await entries.open()
    try:
        yield entries
    finally:
        await entries.aclose()
