"""The progress of a command: bars on stderr if it is a terminal, or else, of a batch, lines on stdout."""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING

from invsvc_async.cli.output import age, as_json, console, is_terminal, say

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from invsvc_async.batch import Progress

__all__ = ["batch_bar", "progress"]

_EVERY = 10.0  # s between lines of progress


@contextmanager
def progress(words: str, total: int | None = None, *, shown: bool = True) -> Generator[Callable[[], None]]:
    """Show a progress bar on stderr if it is a terminal; yields the function that advances it."""
    if not (shown and is_terminal(sys.stderr)):
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(words, total=total)
        yield lambda: bar.advance(task)


@contextmanager
def batch_bar(total: int, *, shown: bool) -> Generator[Callable[[Progress], None]]:
    """Show the progress as a bar if stderr is a terminal, and as lines if stdout is none; not as JSON."""
    shown, err, said = shown and not as_json.get(), console(stderr=True), monotonic()

    def print_line(progress: Progress) -> None:
        nonlocal said
        if shown and not is_terminal(sys.stdout) and monotonic() >= said + _EVERY:
            said = monotonic()
            with suppress(OSError):  # reported at the end
                say(f"{_whole(progress, total)}; {_this_run(progress)}")
                sys.stdout.flush()

    if not (shown and err.is_terminal):
        yield print_line
        return
    from rich.console import Group
    from rich.live import Live
    from rich.progress import BarColumn, Progress as Bar, TextColumn
    from rich.text import Text

    bar = Bar(BarColumn(bar_width=24), TextColumn("{task.description}"), console=err)
    words, task = Text(style="dim"), bar.add_task("", total=total)
    with Live(Group(bar, words), console=err):

        def show(progress: Progress) -> None:
            """Update the bar. The journal, and other workers, may have writes that the file does not."""
            print_line(progress)
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
    probe = "" if progress.next_probe is None else f", next probe in {progress.next_probe:.0f} s"
    parts = [
        f"this run: {progress.done:,}, {progress.rate:,.0f}/s",
        ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(progress.verdicts.items())),
        f"{progress.skipped:,} were done before" if progress.skipped else "",
        f"{progress.settling:,} settling" if progress.settling else "",
        f"limited by {progress.limited_by}" if progress.limited_by and progress.paused is None else "",
        "" if progress.paused is None else f"paused: {progress.paused}{probe}",
    ]
    return "; ".join(filter(None, parts))
