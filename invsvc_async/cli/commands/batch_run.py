"""Execution of ``invsvc batch run`` and ``invsvc batch worker``."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING

from invsvc_async.cli.options import handled, stop_signals
from invsvc_async.cli.output import (
    DONE,
    FAILED,
    INCOMPLETE,
    OVERTAKEN,
    UNKNOWN,
    age,
    console,
    emit_json,
    fail,
    is_terminal,
    note,
    print_facts,
    reporting,
)
from invsvc_async.errors import BatchStoppedError
from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from invsvc_async.batch import Batch, Progress, Summary
    from invsvc_async.batch.reports.not_applied import Group
    from invsvc_async.cli.sending import BatchSending
    from invsvc_async.client import Client
    from invsvc_async.writes.write import AnyWrite

__all__ = ["run"]

INTERRUPTED = 130  # the exit code of shells for SIGINT
_EVERY = 10.0  # s between lines of progress
GRACE = 10.0  # s for writes in flight to finish after an interrupt


async def run(
    journal: str, options: BatchSending, client: Client, writes: Iterable[AnyWrite] | None = None, *,
    total: int = 0, bad: int = 0, may_create: bool = True,
) -> int:  # fmt: skip
    """
    Run the unfinished writes of *writes* (*total* in all) and of the journal; return the exit code.

    *bad* lines of the input are not valid, and were skipped. *may_create* is whether the others
    create webhooks. Without *writes*, work on a shared batch until interrupted.
    """
    from invsvc_async.batch import Batch
    from invsvc_async.batch.entries import name_of
    from invsvc_async.batch.reports.not_applied import groups_of

    lasting, failure = writes is None, None
    async with AsyncExitStack() as stack:
        show = stack.enter_context(_bar(total, shown=not (lasting or options.json_)))
        take = await options.secret_sink(stack)  # its file is closed after the batch
        opening = Batch.open(journal, client, on_secret=take, on_progress=show, **options.settings)
        batch = await stack.enter_async_context(opening)
        if not batch.entries.is_shared:  # what an earlier run has left, this one would do
            may_create = may_create or await batch.entries.has_secrets()
            options.check_secrets(may_create=may_create)
        stopped = stack.enter_context(_signals(batch))
        results = batch.work() if writes is None else batch.run(writes)
        if lasting:
            note("waiting for work; press Ctrl-C to leave")
        try:
            async for result in results:
                if lasting and result.applied is not True:
                    note(f"{result.key}: {result.verdict}: {result.message}")
        except BatchStoppedError as error:
            failure = error
        summary, progress = await batch.summary(), batch.progress
        groups = [] if lasting else await groups_of(batch.entries, name_of(journal))
    discarded = options.no_secrets and may_create and not lasting
    _print_summary(summary, progress, groups, bad=bad, discarded=discarded, as_json=options.json_)
    if failure is not None:
        fail(str(failure))
        return FAILED
    if lasting:
        return DONE
    if stopped:
        note("interrupted: run the same command again to resume; writes in flight are settled first")
        return INTERRUPTED
    return _exit_code_of(summary, bad)


def _exit_code_of(summary: Summary, bad: int) -> int:
    """Return the exit code of a finished batch, of whose input *bad* lines were skipped."""
    if summary.unknown:
        return UNKNOWN
    missing = summary.total - summary.verdicts.get(Verdict.APPLIED, 0)
    if missing != summary.overtaken:
        return FAILED
    if summary.open_inputs or bad:
        return INCOMPLETE
    return OVERTAKEN if missing else DONE


@contextmanager
def _signals(batch: Batch) -> Generator[list[asyncio.Task[None]]]:
    """Stop the batch gracefully on the first signal, at once on the second; yields the stop tasks."""
    stops: list[asyncio.Task[None]] = []

    def stop() -> None:
        grace = 0.0 if stops else GRACE
        if grace:
            note(f"stopping: writes in flight have {grace:g} s to finish; press Ctrl-C again to stop now")
        stops.append(asyncio.create_task(batch.stop(grace)))

    with handled(stop_signals(), stop):
        yield stops


@contextmanager
def _bar(total: int, *, shown: bool) -> Generator[Callable[[Progress], None]]:
    """
    Show the progress of the whole batch, and of this run.

    A terminal has a bar on stderr. A file or pipe that gets the result has a line now and then, too.
    """
    err, said = console(stderr=True), monotonic()

    def say(progress: Progress) -> None:
        nonlocal said
        if shown and not is_terminal(sys.stdout) and monotonic() >= said + _EVERY:
            said = monotonic()
            with suppress(OSError):  # reported at the end
                sys.stdout.write(f"{_whole(progress, total)}; {_this_run(progress)}\n")
                sys.stdout.flush()

    if not (shown and err.is_terminal):
        yield say
        return
    from rich.console import Group
    from rich.live import Live
    from rich.progress import BarColumn, Progress as Bar, TextColumn
    from rich.text import Text

    bar, words = (
        Bar(BarColumn(bar_width=24), TextColumn("{task.description}"), console=err),
        Text(style="dim"),
    )
    task = bar.add_task("", total=total)
    with Live(Group(bar, words), console=err):

        def show(progress: Progress) -> None:
            """Update the bar. The journal, and other workers, may have writes that the file does not."""
            say(progress)
            done, whole = progress.done + progress.skipped, _whole(progress, total)
            bar.update(task, completed=done, total=max(total, done), description=whole)
            words.plain = _this_run(progress)

        yield show


def _whole(progress: Progress, total: int) -> str:
    """Return how much of the batch is done, and the time that the rest takes at the rate of this run."""
    done = progress.done + progress.skipped
    words, left = f"{done:,} of {max(total, done):,}", total - done
    if left > 0 and progress.rate and progress.paused is None:
        words += f", about {age(left / progress.rate)} left"
    return words


def _this_run(progress: Progress) -> str:
    """Return what this run has done, and what limits it."""
    words = f"this run: {progress.done:,}, {progress.rate:,.0f}/s"
    if progress.verdicts:
        counts = (f"{count:,} {verdict}" for verdict, count in sorted(progress.verdicts.items()))
        words += f"; {', '.join(counts)}"
    if progress.skipped:
        words += f"; {progress.skipped:,} were done before"
    if progress.settling:
        words += f"; {progress.settling:,} settling"
    if progress.paused is not None:
        probe = "" if progress.next_probe is None else f", next probe in {progress.next_probe:.0f} s"
        return f"{words}; paused: {progress.paused}{probe}"
    return f"{words}; limited by {progress.limited_by}" if progress.limited_by else words


def _print_summary(
    summary: Summary,
    progress: Progress | None,
    groups: list[Group],
    *,
    bad: int = 0,
    discarded: bool = False,
    as_json: bool,
) -> None:
    from invsvc_async.cli.commands.report import counts_of, plain_groups, show_groups

    with reporting("The run has ended. `invsvc batch report` shows its result."):
        if as_json:
            done, skipped = (progress.done, progress.skipped) if progress else (0, 0)
            this_run = {"done_now": done, "skipped": skipped, "bad": bad}
            emit_json(counts_of(summary) | this_run | {"not_applied": plain_groups(groups)})
            return
        facts = _facts(summary, progress, bad)
        facts += [("secrets", "of new webhooks were thrown away, as --no-secrets says")] if discarded else []
        print_facts(console(), facts)
        show_groups(groups)


def _facts(summary: Summary, progress: Progress | None, bad: int) -> list[tuple[str, str]]:
    from invsvc_async.cli.commands.report import INPUT_INCOMPLETE

    facts = [(str(verdict), f"{count:,}") for verdict, count in sorted(summary.verdicts.items())]
    facts += [("left", f"{left:,}")] if (left := summary.to_do + summary.sending) else []
    if summary.secrets_lost:
        facts.append(("secrets lost", f"{summary.secrets_lost:,}; `invsvc batch report` names them"))
    if summary.overtaken:
        facts.append(("overtaken", f"{summary.overtaken:,} of those not applied, by newer writes"))
    if summary.open_inputs:
        facts.append(INPUT_INCOMPLETE)
    if bad:
        facts.append(("skipped lines", f"{bad:,}, which are not valid"))
    if progress is not None:
        now = f"{progress.done:,} in {progress.seconds:.1f} s, {progress.rate:,.0f} per second"
        facts.append(("this run", f"{now}; {progress.skipped:,} already done"))
    return facts
