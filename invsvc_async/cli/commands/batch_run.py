"""
Run a batch, or a worker of one, and tell how it goes and ends; never decide what is a good line.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.cli.output import DONE, FAILED, UNKNOWN, console, emit_json, note, print_facts
from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from pathlib import Path

    from invsvc_async.batch import Batch, Progress, Summary
    from invsvc_async.client import Client
    from invsvc_async.writes.write import Write

__all__ = ["Asked", "client_of", "work", "write"]

INTERRUPTED = 130  # as shells count SIGINT
GRACE = 10.0  # s that writes in flight get when the batch is interrupted
_STOP = (signal.SIGINT, signal.SIGTERM)
_NO_SIGNALS = (NotImplementedError, ValueError, RuntimeError)  # Windows, or not the main thread


@attrs.frozen(kw_only=True)
class Asked:
    """What was asked for on the command line, of a run or of a worker."""

    journal: str
    concurrency: int
    rate: float | None
    tag: bool = True
    secrets_to: Path | None
    same_mode: bool


def client_of(profile: str | None, team: str | None, concurrency: int) -> Client:
    """Make a client whose settling reads have places beside all the batch's writes."""
    from invsvc_async.client import Client

    client = Client.from_env(profile=profile, max_concurrency=concurrency + max(10, concurrency // 4))
    return client if team is None else client.for_team(team)


async def write(
    asked: Asked, client: Client, writes: Iterable[Write[Any]], *, total: int, as_json: bool
) -> int:  # Any: of any operation
    """Write what is not done of *writes*, *total* of them, and of the journal; gives the exit code."""
    async with AsyncExitStack() as stack:
        show = stack.enter_context(_bar(total, shown=not as_json))
        batch = await _opened(stack, asked, client, on_progress=show)
        stopped = stack.enter_context(_signals(batch))
        async for _ in batch.run(writes):
            pass
        summary, progress = await batch.summary(), batch.progress
    _tell(summary, progress, as_json=as_json)
    if stopped:
        note("interrupted: run the same command again to resume; what was in flight is settled first")
        return INTERRUPTED
    return _code_of(summary)


async def work(asked: Asked, client: Client, *, as_json: bool) -> int:
    """Work on a shared batch until interrupted; say what was not applied, and how the whole stands."""
    async with AsyncExitStack() as stack:
        batch = await _opened(stack, asked, client)
        stack.enter_context(_signals(batch))
        note("waiting for work; interrupt to leave")
        async for result in batch.work():
            if result.applied is not True:
                note(f"{result.key}: {result.verdict}: {result.message}")
        summary, progress = await batch.summary(), batch.progress
    _tell(summary, progress, as_json=as_json)
    return DONE


async def _opened(
    stack: AsyncExitStack,
    asked: Asked,
    client: Client,
    *,
    on_progress: Callable[[Progress], None] | None = None,
) -> Batch:
    """Open the batch; the secrets' file outlives it."""
    from invsvc_async.batch import Batch

    take = await _taker(stack, asked.secrets_to)
    batch = Batch.open(
        asked.journal, client, concurrency=asked.concurrency, rate=asked.rate, tag=asked.tag,
        on_secret=take, on_progress=on_progress, same_mode=asked.same_mode,
    )  # fmt: skip
    return await stack.enter_async_context(batch)


async def _taker(stack: AsyncExitStack, secrets_to: Path | None) -> Callable[[str, Any], Any]:
    """Give what takes the secrets of new webhooks."""
    if secrets_to is None:
        return _ignore
    from invsvc_async.batch.secrets_file import SecretsFile

    return (await stack.enter_async_context(SecretsFile(secrets_to))).take


def _ignore(_key: str, _webhook: object) -> None:
    """Let a secret go; the command has said so."""


def _code_of(summary: Summary) -> int:
    """Tell the exit code of a batch that ended."""
    if summary.unknown:
        return UNKNOWN
    return DONE if summary.verdicts.get(Verdict.APPLIED, 0) == summary.total else FAILED


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
        from invsvc_async.cli.commands.batch_report import counts_of

        done, skipped = (progress.done, progress.skipped) if progress else (0, 0)
        emit_json(counts_of(summary) | {"done_now": done, "skipped": skipped})
        return
    facts = [(str(verdict), f"{count:,}") for verdict, count in sorted(summary.verdicts.items())]
    facts += [("left", f"{left:,}")] if (left := summary.to_do + summary.sending) else []
    facts += [("secrets lost", f"{summary.secrets_lost:,}")] if summary.secrets_lost else []
    if progress is not None:
        now = f"{progress.done:,} in {progress.seconds:.1f} s, {progress.rate:,.0f} a second"
        facts.append(("this run", f"{now}; {progress.skipped:,} were done before"))
    print_facts(console(), facts)
