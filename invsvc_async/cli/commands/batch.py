"""``invsvc batch``: run, resume, prune, retry and report batches."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from invsvc_async.cli.commands.batch_watch import watch
from invsvc_async.cli.commands.batch_workers import workers
from invsvc_async.cli.options import (
    JournalArgument,
    JournalOption,
    Json,
    NoSecrets,
    Profile,
    SecretsFile,
    Team,
    check_outputs,
    check_secrets,
    existing_file,
    one_journal,
)
from invsvc_async.cli.output import DONE, FAILED, USAGE, console, counted, emit_json, fail, note
from invsvc_async.concurrency.event_loop import until_done
from invsvc_async.storage.private_file import create_private, errors_naming, write_private

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
    from typing import BinaryIO

    from invsvc_async.batch.entries import BatchEntries
    from invsvc_async.batch.file_check import Checked
    from invsvc_async.cli.commands.batch_run import BatchOptions

__all__ = ["app"]

Journal = Annotated[str, typer.Option(help="The journal: a file, or postgresql://…", metavar="FILE")]
Input = Annotated[
    Path,
    typer.Argument(
        help="One write per line, as JSON; - is stdin.",
        callback=existing_file,
    ),
]
Restored = Annotated[
    bool,
    typer.Option("--restored", help="The journal is an older copy: settle what may have been sent first."),
]
Moved = Annotated[
    bool, typer.Option("--moved", help="The journal is complete, although it is in another place.")
]


_CORRECT = "Correct these lines, or skip them with --skip-bad"
_FORM = 'The input must have one write per line: {"operation": …, "arguments": {…}, "key": …}'
_NAMED = 20  # bad lines that are shown; 2 if no line is good, as in a file of another format
_KEPT = {  # why prune has not emptied a write
    "open": "not finished",
    "unknown": "unknown, so their content is needed to settle them",
    "later_or_empty": "finished later than that, or empty already",
}


class _Group(TyperGroup):
    """Treats ``invsvc batch FILE …`` as ``invsvc batch run FILE …``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: newer typer brings its own click
        """Insert the command ``run`` if the first word is not a command."""
        if args and args[0] not in (*self.commands, "-h", "--help"):
            from invsvc_async.cli.arguments import did_you_mean

            if not Path(args[0]).exists() and (words := did_you_mean(args[0], self.commands)):
                ctx.fail(f"No such file or command {args[0]!r}. {words}")
            args = ["run", *args]
        return list(super().parse_args(ctx, args))


app: typer.Typer = typer.Typer(
    cls=_Group, add_completion=False, rich_markup_mode="markdown", no_args_is_help=True,
    help="Run the writes of a file, one per line. Safe to kill at any moment: nothing is lost or sent twice.",
)  # fmt: skip


@app.command()
def run(  # noqa: PLR0913 - each is an option of its own
    file: Input,
    *,
    journal: Journal,
    concurrency: Annotated[int, typer.Option(min=1, help="Maximum writes in flight.")] = 200,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Sends per second, evenly spaced.")] = None,
    tag: Annotated[bool, typer.Option(help="Tag new webhooks, so that they can be identified.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the file without sending.")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip invalid lines and list them.")] = False,
    secrets_to: SecretsFile = None,
    no_secrets: NoSecrets = False,
    same_mode: Annotated[
        bool, typer.Option("--same-mode", help="The credential is new, but has the same team and data mode.")
    ] = False,
    stop_after: Annotated[
        str | None,
        typer.Option(help="Stop after so many writes, or such a share (0.05), that were not applied."),
    ] = None,
    restored: Restored = False,
    moved: Moved = False,
    json_: Json = False,
    profile: Profile = None,
    team: Team = None,
) -> None:
    """
    Start or resume a batch: `invsvc batch FILE.jsonl --journal run.db`.

    A line is {"operation": "webhooks.create", "arguments": {…}, "key": "row-17"}.  Nothing is sent unless
    all lines are valid, and if lines create webhooks, --secrets-to or --no-secrets says what becomes of their
    secrets.  After a kill, or to run lines added to the file, repeat the command with the same
    file and journal.

    Exits with 3 if the result of a write is unknown, 1 if a write was not applied, 4 if that is only because
    newer writes to the same resources were sent, and 0 otherwise.  5 means that nothing is wrong, except that
    an input of the batch was not read to its end: run that input again, or use `invsvc batch close`.  It
    also means that invalid lines were skipped.
    """
    from invsvc_async.batch.file_check import rereadable
    from invsvc_async.cli.commands.batch_run import BatchOptions

    check_outputs({"--secrets-to": secrets_to}, input=file, journal=journal)
    options = BatchOptions(
        journal=journal, concurrency=concurrency, rate=rate, tag=tag, secrets_to=secrets_to,
        no_secrets=no_secrets, same_mode=same_mode, stop_after=_limit(stop_after),
        restored=restored, moved=moved,
    )  # fmt: skip
    # Outside the event loop, so that Ctrl-C interrupts reading from a silent pipe.
    with rereadable(file) as lines:
        running = _run(options, file, lines, profile, team, dry_run=dry_run, skip_bad=skip_bad, as_json=json_)
        raise typer.Exit(until_done(running))


def _limit(text: str | None) -> float | None:
    """Parse ``--stop-after``: a whole number of writes, or a share."""
    try:
        return None if text is None else int(text) if text.isdecimal() else float(text)
    except ValueError:
        raise typer.BadParameter("--stop-after: must be a number of writes, or a share below 1") from None


async def _run(
    options: BatchOptions, file: Path, lines: BinaryIO, profile: str | None, team: str | None, *,
    dry_run: bool, skip_bad: bool, as_json: bool,
) -> int:  # fmt: skip
    from invsvc_async.batch.file_check import FileWrites, check_file
    from invsvc_async.batch.places import checkpoint_at, is_shared
    from invsvc_async.cli.commands.batch_run import client_of, write

    async with client_of(profile, team, options.concurrency) as client:
        writes = FileWrites(lines, client, name=str(file), skips_bad=skip_bad)
        checked = check_file(writes, None if dry_run else await checkpoint_at(options.journal))
        most = None if skip_bad and writes.total else _NAMED if writes.total else 2
        for problem in checked.problems[:most]:
            fail(f"{file}: {problem}")
        if most is not None and checked.bad > most:
            fail(f"{file}: and {checked.bad - most:,} more lines")
        if dry_run:
            if as_json:
                emit_json(_plain(checked))
            valid, invalid = counted(writes.total, "valid write"), counted(checked.bad, "invalid line")
            note(f"{valid}, {invalid}; nothing was sent")
            return USAGE if checked.bad else DONE
        if checked.bad and not (skip_bad and writes.total):
            fail(f"nothing was sent. {_CORRECT if writes.total else _FORM}")
            return USAGE
        # A run on a shared journal also sends what other runs put into it.
        may_create = checked.creates_webhooks or is_shared(options.journal)
        check_secrets(options.secrets_to, no_secrets=options.no_secrets, may_create=may_create)
        return await write(options, client, writes, total=writes.total, bad=writes.bad, as_json=as_json)


def _plain(checked: Checked) -> dict[str, Any]:  # Any: JSON values
    problems = [{"line": each.number, "reason": each.reason} for each in checked.problems]
    return {"good": checked.good, "bad": checked.bad, "problems": problems}


@app.command()
def prune(
    journal: JournalArgument = None,
    *,
    journal_: JournalOption = None,
    done_before: Annotated[
        datetime, typer.Option(help="Time of completion, in UTC; or use --days.")
    ] = datetime.max,  # noqa: DTZ901 - means "not given"
    days: Annotated[
        int | None, typer.Option(min=0, max=100_000, help="Completed at least this many days ago.")
    ] = None,
    json_: Json = False,
) -> None:
    """
    Delete bodies, evidence and stories of finished writes.

    Keys and verdicts stay, so that the same input is still skipped.  Open and unknown writes are kept whole.
    """
    if (done_before == datetime.max) == (days is None):  # noqa: DTZ901 - means "not given"
        raise typer.BadParameter("use either --done-before or --days")
    before = done_before.replace(tzinfo=UTC) if days is None else datetime.now(UTC) - timedelta(days=days)
    emptied, kept = until_done(_prune(one_journal(journal, journal_), before))
    if json_:
        emit_json({"emptied": emptied, "kept": kept})
        return
    console().print(f"{counted(emptied, 'write')} emptied")
    for why, count in kept.items():
        if count:
            console().print(f"  {count:,} left as they are: {_KEPT[why]}")


@app.command()
def close(journal: JournalArgument = None, *, journal_: JournalOption = None, json_: Json = False) -> None:
    """Mark incomplete inputs as complete with what was read of them: nothing more will come."""
    closed = until_done(_close(one_journal(journal, journal_)))
    if json_:
        emit_json({"closed": closed})
    else:
        console().print(f"{counted(closed, 'incomplete input')} closed")


async def _close(journal: str) -> int:
    async with _opened(journal) as entries:
        return await entries.close_inputs()


async def _prune(journal: str, before: datetime) -> tuple[int, dict[str, int]]:
    """Return how many writes were emptied, and how many were not, by the reason."""
    async with _opened(journal) as entries:
        emptied = await entries.prune(round(before.timestamp() * 1000))
        summary = await entries.summary()
    left = summary.to_do + summary.sending
    others = max(summary.total - left - summary.unknown - emptied, 0)
    return emptied, {"open": left, "unknown": summary.unknown, "later_or_empty": others}


@app.command()
def retry(
    journal: JournalArgument = None,
    *,
    journal_: JournalOption = None,
    verdict: Annotated[
        list[str] | None, typer.Option(help="unknown, not-applied, refused or superseded; repeatable.")
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="All that are not applied, refused or unknown.")
    ] = False,
    key: Annotated[list[str] | None, typer.Option(help="Only the write with this key; repeatable.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Send them even over newer writes to the same resource.")
    ] = False,
    json_: Json = False,
) -> None:
    """
    Schedule finished writes for the next run, by verdict or key; unknown ones are settled first.

    A write is not sent over a newer one to the same resource, unless with --force.  Exits with 1 if none of
    the keys was scheduled.
    """
    from invsvc_async.batch.batch import reopened

    if not (verdict or failed or key):
        raise typer.BadParameter("use --verdict, --failed or --key")
    reopening = reopened(verdict or (), failed=failed, keys=key or None, force=force)
    count = until_done(_reopen(one_journal(journal, journal_), reopening))
    if json_:
        emit_json({"to_do": count})
    else:
        then = "run the batch" if count else "no write that has ended is chosen"
        console().print(f"{counted(count, 'write')} scheduled: {then}")
    if (left := len({*(key or ())}) - count) > 0:
        note(
            f"{counted(left, 'key')} not scheduled: not in the journal, applied, open, or of another verdict"
        )
    raise typer.Exit(FAILED if key and not count else DONE)


async def _reopen(journal: str, reopening: Callable[[BatchEntries], Awaitable[int]]) -> int:
    async with _opened(journal) as entries:
        return await reopening(entries)


app.command()(watch)
app.command()(workers)


@app.command()
def worker(
    journal: JournalArgument = None,
    *,
    journal_: JournalOption = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Maximum writes in flight in this worker.")] = 200,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Sends per second of all workers together.")
    ] = None,
    secrets_to: SecretsFile = None,
    no_secrets: NoSecrets = False,
    same_mode: Annotated[
        bool,
        typer.Option("--same-mode", help="The credential is new, but has the same team and data mode."),
    ] = False,
    restored: Restored = False,
    moved: Moved = False,
    json_: Json = False,
    profile: Profile = None,
    team: Team = None,
) -> None:
    """
    Process a batch shared by several machines, until interrupted.  Workers can join and leave at any time.
    """
    from invsvc_async.cli.commands.batch_run import BatchOptions

    check_secrets(secrets_to, no_secrets=no_secrets, may_create=True)
    options = BatchOptions(
        journal=one_journal(journal, journal_), concurrency=concurrency, rate=rate, secrets_to=secrets_to,
        no_secrets=no_secrets, same_mode=same_mode, restored=restored, moved=moved,
    )  # fmt: skip
    raise typer.Exit(until_done(_work(options, profile, team, as_json=json_)))


async def _work(options: BatchOptions, profile: str | None, team: str | None, *, as_json: bool) -> int:
    from invsvc_async.cli.commands.batch_run import client_of, work

    async with client_of(profile, team, options.concurrency) as client:
        return await work(options, client, as_json=as_json)


@app.command()
def report(
    journal: JournalArgument = None,
    *,
    journal_: JournalOption = None,
    html: Annotated[Path | None, typer.Option(help="Write an HTML page here.")] = None,
    jsonl: Annotated[
        Path | None, typer.Option(help="Write each outcome as a line of JSON here; - is stdout.")
    ] = None,
    failed: Annotated[
        Path | None,
        typer.Option(help="Write the writes that are not applied here, as lines of input; - is stdout."),
    ] = None,
    json_: Json = False,
) -> None:
    """
    Report on a batch: verdicts, durations, and what to do about each write that is not applied.

    The number of requests is without those that a killed run sent for writes which it did not finish.

    The lines of `--failed` can be edited, and run with another journal.  A line whose write may be applied,
    or would overwrite a newer one, has a member "check" that says so.  It is not valid until that is deleted.
    """
    place = one_journal(journal, journal_)
    check_outputs({"--html": html, "--jsonl": jsonl, "--failed": failed}, journal=place)
    until_done(_report(place, html, jsonl, failed, as_json=json_))


async def _report(
    journal: str, html: Path | None, jsonl: Path | None, failed: Path | None, *, as_json: bool
) -> None:
    from invsvc_async.batch.places import name_of
    from invsvc_async.batch.reports.html import page_of
    from invsvc_async.batch.reports.summary import report_of, results_of
    from invsvc_async.cli.commands.batch_report import line_of, plain, show

    async with _opened(journal, reading=True) as entries:
        if jsonl is not None:
            with _file(jsonl) as file:
                async for result in results_of(entries):
                    file.write(line_of(result))
        if failed is not None:
            await _write_failed(entries, failed)
        if (jsonl or failed) is not None and html is None and not as_json:
            return
        found = await report_of(entries, name_of(journal))
    if html is not None:
        write_private(html, page_of(found))
        note(f"wrote {html}")
    if as_json:
        emit_json(plain(found))
    elif html is None:
        show(found)


async def _write_failed(entries: BatchEntries, path: Path) -> None:
    """Write the writes that are not applied to *path*, and note what the file lacks."""
    from invsvc_async.batch.reports.not_applied import failed_writes
    from invsvc_async.cli.commands.batch_report import failed_line_of, note_missing

    count = checks = 0
    missing: dict[str, str] = {}
    with _file(path) as file:
        async for write in failed_writes(entries):
            if write.missing is not None:
                missing[write.key] = write.missing
            if write.line is not None:
                file.write(failed_line_of(write))
                count, checks = count + 1, checks + (write.check is not None)
    note(f"not applied: {counted(count, 'write')}, {checks:,} of them to check before a run")
    note_missing(missing)


@contextmanager
def _file(path: Path) -> Generator[BinaryIO]:
    if str(path) == "-":
        with errors_naming("stdout"):
            yield sys.stdout.buffer
    else:
        with errors_naming(path), create_private(path) as file:
            yield file


@asynccontextmanager
async def _opened(journal: str, *, reading: bool = False) -> AsyncGenerator[BatchEntries]:
    from invsvc_async.batch.places import entries_of

    entries = entries_of(journal, create=False, reading=reading)
    await entries.open()
    try:
        yield entries
    finally:
        await entries.aclose()
