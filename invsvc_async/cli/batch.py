"""Run, resume, prune and report batches; never send anything of a file that is not well-formed."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path  # noqa: TC003 - typer reads the types
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer
from typer.core import TyperGroup

from invsvc_async.cli.options import Json, Profile, Team  # noqa: TC001 - typer reads the types
from invsvc_async.cli.output import DONE, FAILED, UNKNOWN, USAGE, console, emit_json, fail, note, print_facts

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator

    from invsvc_async.batch import Batch, Progress, Summary
    from invsvc_async.batch.check import Checked
    from invsvc_async.batch.journal import Entries
    from invsvc_async.client import Client

__all__ = ["app"]

INTERRUPTED = 130  # as shells count SIGINT
GRACE = 10.0  # s that writes in flight get when the batch is interrupted
_STOP = (signal.SIGINT, signal.SIGTERM)
_NO_SIGNALS = (NotImplementedError, ValueError, RuntimeError)  # Windows, or not the main thread

Journal = Annotated[str, typer.Option(help="The journal: a file, or postgresql://…", metavar="FILE")]


class _Group(TyperGroup):
    """``invsvc batch FILE …`` is ``invsvc batch run FILE …``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: newer typer brings its own click
        """Put the command's name in where a file stands."""
        if args and args[0] not in (*self.commands, "--help"):
            args = ["run", *args]
        return list(super().parse_args(ctx, args))


app = typer.Typer(
    cls=_Group, add_completion=False, rich_markup_mode="markdown", no_args_is_help=True,
    help="Write what a file holds, one write a line, so that a kill at any moment loses and repeats nothing.",
)  # fmt: skip


@attrs.frozen(kw_only=True)
class _Asked:
    """The options of one run."""

    file: Path
    journal: str
    concurrency: int
    rate: float | None
    tag: bool
    skip_bad: bool
    secrets_to: Path | None
    same_mode: bool
    as_json: bool


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
    asked = _Asked(
        file=file, journal=journal, concurrency=concurrency, rate=rate, tag=tag, skip_bad=skip_bad,
        secrets_to=secrets_to, same_mode=same_mode, as_json=json_,
    )  # fmt: skip
    raise typer.Exit(asyncio.run(_run(asked, profile, team, dry_run=dry_run)))


async def _run(asked: _Asked, profile: str | None, team: str | None, *, dry_run: bool) -> int:
    from invsvc_async.batch.check import check_file

    async with _client(profile, team, asked.concurrency) as client:
        checked = check_file(asked.file, client)
        for problem in checked.problems:
            fail(f"{asked.file}: {problem}")
        if dry_run:
            note(f"{checked.good:,} writes are well-formed, {checked.bad:,} lines are not; nothing was sent")
            return USAGE if checked.bad else DONE
        if checked.bad and not (asked.skip_bad and checked.good):
            fail("nothing was sent: correct the lines above, or leave them out with --skip-bad")
            return USAGE
        return await _write(asked, client, checked)


def _client(profile: str | None, team: str | None, concurrency: int) -> Client:
    """Make a client whose settling reads have places beside all the batch's writes."""
    from invsvc_async.client import Client

    client = Client.from_env(profile=profile, max_concurrency=concurrency + max(10, concurrency // 4))
    return client if team is None else client.for_team(team)


async def _write(asked: _Asked, client: Client, checked: Checked) -> int:
    from invsvc_async.batch import Batch
    from invsvc_async.batch.check import good_writes

    if checked.creates_webhooks and asked.secrets_to is None:
        note("webhooks are created: their secrets are shown once, and lost without --secrets-to FILE")
    async with AsyncExitStack() as stack:
        take = await _taker(stack, asked.secrets_to)
        show = stack.enter_context(_bar(checked.good, shown=not asked.as_json))
        batch = Batch.open(
            asked.journal, client, concurrency=asked.concurrency, rate=asked.rate, tag=asked.tag,
            on_secret=take, on_progress=show, same_mode=asked.same_mode,
        )  # fmt: skip
        await stack.enter_async_context(batch)
        stopped = stack.enter_context(_signals(batch))
        async for _ in batch.run(good_writes(asked.file, client)):
            pass
        summary, progress = await batch.summary(), batch.progress
    _tell(summary, progress, as_json=asked.as_json)
    if stopped:
        note("interrupted: run the same command again to resume; what was in flight is settled first")
        return INTERRUPTED
    return code_of(summary)


async def _taker(stack: AsyncExitStack, secrets_to: Path | None) -> Callable[[str, Any], Any]:
    """Give what takes the secrets of new webhooks."""
    if secrets_to is None:
        return _ignore
    from invsvc_async.batch.secrets import SecretsFile

    return (await stack.enter_async_context(SecretsFile(secrets_to))).take


def _ignore(_key: str, _webhook: object) -> None:
    """Let a secret go; the command has said so."""


def code_of(summary: Summary) -> int:
    """Tell the exit code of a batch that ended."""
    if summary.unknown:
        return UNKNOWN
    return DONE if summary.verdicts.get(_applied(), 0) == summary.total else FAILED


def _applied() -> Any:  # Any: a Verdict, imported on use
    from invsvc_async.reconcile.evidence import Verdict

    return Verdict.APPLIED


@contextmanager
def _signals(batch: Batch) -> Generator[list[asyncio.Task[None]]]:
    """Let the first signal stop the batch gracefully, the second one at once; gives the stops."""
    loop, stops = asyncio.get_running_loop(), list[asyncio.Task[None]]()

    def stop() -> None:
        grace = 0.0 if stops else GRACE
        if grace:
            note(f"stopping: writes in flight get {grace:g} s to end; interrupt again to shelve them now")
        stops.append(asyncio.create_task(batch.stop(grace)))

    with suppress(*_NO_SIGNALS):
        for number in _STOP:
            loop.add_signal_handler(number, stop)
    try:
        yield stops
    finally:
        with suppress(*_NO_SIGNALS):
            for number in _STOP:
                loop.remove_signal_handler(number)


@contextmanager
def _bar(total: int, *, shown: bool) -> Generator[Callable[[Progress], None]]:
    """Show a bar on stderr, where that is a terminal: how far, how fast, which verdicts, when it ends."""
    err = console(stderr=True)
    if not (shown and err.is_terminal):
        yield lambda _progress: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("{task.fields[words]}"), TextColumn("ETA"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Bar(*columns, console=err) as bar:
        task = bar.add_task("", total=total, words="")
        yield lambda progress: bar.update(
            task, completed=progress.done + progress.skipped, words=_words(progress)
        )


def _words(progress: Progress) -> str:
    verdicts = "  ".join(f"{count:,} {verdict}" for verdict, count in sorted(progress.verdicts.items()))
    settling = f"  {progress.settling:,} settling" if progress.settling else ""
    return f"{progress.rate:,.0f}/s  {verdicts}{settling}"


def _tell(summary: Summary, progress: Progress | None, *, as_json: bool) -> None:
    if as_json:
        emit_json(
            {
                "total": summary.total,
                "to_do": summary.to_do,
                "sending": summary.sending,
                "verdicts": {str(verdict): count for verdict, count in summary.verdicts.items()},
                "secrets_lost": summary.secrets_lost,
                "done_now": progress.done if progress else 0,
                "skipped": progress.skipped if progress else 0,
            }
        )
        return
    facts = [(str(verdict), f"{count:,}") for verdict, count in sorted(summary.verdicts.items())]
    facts += [("left", f"{left:,}")] if (left := summary.to_do + summary.sending) else []
    facts += [("secrets lost", f"{summary.secrets_lost:,}")] if summary.secrets_lost else []
    if progress is not None:
        now = f"{progress.done:,} in {progress.seconds:.1f} s, {progress.rate:,.0f} a second"
        facts.append(("this run", f"{now}; {progress.skipped:,} were done before"))
    print_facts(console(), facts)


@app.command()
def prune(
    *,
    journal: Journal,
    done_before: Annotated[
        datetime, typer.Option(help="A time, in UTC; or a number of --days.")
    ] = datetime.max,  # noqa: DTZ901 - it stands for none
    days: Annotated[int | None, typer.Option(min=0, help="Done so many days ago, or earlier.")] = None,
) -> None:
    """
    Empty what is done of bodies, evidence and stories; keys and verdicts stay, so that the input is still
    skipped.
    """
    if (done_before == datetime.max) == (days is None):  # noqa: DTZ901 - it stands for none
        raise typer.BadParameter("give --done-before or --days")
    before = done_before.replace(tzinfo=UTC) if days is None else datetime.now(UTC) - timedelta(days=days)
    console().print(f"{asyncio.run(_prune(journal, before)):,} entries emptied")


async def _prune(journal: str, before: datetime) -> int:
    async with _opened(journal) as entries:
        return await entries.prune(round(before.timestamp() * 1000))


@app.command()
def retry(
    *,
    journal: Journal,
    verdict: Annotated[str, typer.Option(help="unknown, 'not applied', refused or superseded.")],
) -> None:
    """
    Make the writes of a verdict to do again, for the next run; unknown ones are settled first.
    """
    from invsvc_async.batch.batch import reopened

    count = asyncio.run(_reopen(journal, reopened(verdict)))
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
    profile: Profile = None,
    team: Team = None,
) -> None:
    """
    Work on a batch that machines share, until interrupted; join and leave at any time.
    """
    raise typer.Exit(
        asyncio.run(_work(journal, concurrency, rate, secrets_to, profile, team, same_mode=same_mode))
    )


async def _work(
    journal: str, concurrency: int, rate: float | None, secrets_to: Path | None, profile: str | None,
    team: str | None, *, same_mode: bool,
) -> int:  # fmt: skip
    from invsvc_async.batch import Batch

    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(_client(profile, team, concurrency))
        take = await _taker(stack, secrets_to)
        batch = Batch.open(
            journal, client, concurrency=concurrency, rate=rate, on_secret=take,
            same_mode=same_mode,
        )  # fmt: skip
        await stack.enter_async_context(batch)
        stack.enter_context(_signals(batch))
        note("waiting for work; interrupt to leave")
        async for result in batch.work():
            if result.applied is not True:
                note(f"{result.key}: {result.verdict}: {result.message}")
    return DONE


@app.command()
def report(
    journal: Annotated[str, typer.Argument(help="The journal: a file, or postgresql://…")],
    *,
    html: Annotated[Path | None, typer.Option(help="Write one page of HTML here.")] = None,
    jsonl: Annotated[
        Path | None, typer.Option(help="Write each outcome as a line of JSON here; - is stdout.")
    ] = None,
) -> None:
    """
    Tell how a batch went: verdicts, what it took, and what to do about each unknown write.
    """
    asyncio.run(_report(journal, html, jsonl))


async def _report(journal: str, html: Path | None, jsonl: Path | None) -> None:
    from invsvc_async.batch.page import page_of
    from invsvc_async.batch.report import report_of, results_of
    from invsvc_async.cli.batchreport import line_of, show

    async with _opened(journal, reading=True) as entries:
        if jsonl is not None:
            with nullcontext(sys.stdout.buffer) if str(jsonl) == "-" else jsonl.open("wb") as file:
                async for result in results_of(entries):
                    file.write(line_of(result))
            return
        found = await report_of(entries, journal.rpartition("@")[2])
    if html is not None:
        html.write_text(page_of(found), encoding="utf-8")  # noqa: ASYNC240 - the same
        note(f"wrote {html}")
    else:
        show(found)


@asynccontextmanager
async def _opened(journal: str, *, reading: bool = False) -> AsyncGenerator[Entries]:
    from invsvc_async.batch.places import entries_of

    entries = entries_of(journal, create=False, reading=reading)
    await entries.open()
    try:
        yield entries
    finally:
        await entries.aclose()
