"""
The progress of a command, shown on stderr: bars, and spinners during waits.

If stderr is no terminal, there is a line every ten seconds instead, but not with ``--json``. Lines of a batch
are on stdout, if stdout is no terminal.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import (
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import attrs

from invsvc_async.cli.output import age, as_json, console, is_terminal, note, say
from invsvc_async.cli.visible_text import visible
from invsvc_async.errors import InvsvcError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping

    from rich.text import Text

    from invsvc_async.batch import Progress, Summary
    from invsvc_async.cli.store_options import StoreOptions
    from invsvc_async.client import Client
    from invsvc_async.durable.entries import Entries
    from invsvc_async.reconcile.enums import Verdict
    from invsvc_async.transport.client_core import DecisionReport

_EVERY = 10.0  # s between lines of progress
_LOOK_EVERY = 1.0  # s between looks at a store, on a terminal
_MOST_NOT_DUE = 10_000  # writes whose time has not come that are counted
_SILENCE = 1.0  # s before the spinner appears
_DOUBT = "the answer is ambiguous: reading the state (Ctrl-C stores the intent for `invsvc settle`)"
_STEPS = {
    "read": "reading the state",
    "wait": "waiting for late effects before the next read",
}


@contextmanager
def progress(
    words: str,
    total: int | None = None,
    *,
    shown: bool = True,
) -> Generator[Callable[[], None]]:
    """Show a progress bar, or lines without a terminal; yield the function that advances it."""
    if not shown:
        yield lambda: None
        return
    if not is_terminal(sys.stderr):
        yield _SpokenSteps(words, total).advance
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(words, total=total)
        yield lambda: bar.advance(task)


class _SpokenSteps:
    """Counts steps, and says now and then how many there were."""

    def __init__(self, words: str, total: int | None) -> None:
        self._words = words
        self._of = "" if total is None else f" of {total:,}"
        self._done = 0
        self._said = monotonic()

    def advance(self) -> None:
        """Count a step."""
        self._done += 1
        if as_json.get():
            return
        if monotonic() < self._said + _EVERY:
            return
        self._said = monotonic()
        note(f"{self._words}: {self._done:,}{self._of}")


@contextmanager
def batch_bar(total: int, *, shown: bool) -> Generator[Callable[[Progress], None]]:
    """Show the progress as a bar if stderr is a terminal, and as lines if stdout is none; not as JSON."""
    shown = shown and not as_json.get()
    prints_lines = shown and not is_terminal(sys.stdout)
    err = console(stderr=True)
    said = monotonic()

    def print_line(progress: Progress) -> None:
        nonlocal said
        if prints_lines and monotonic() >= said + _EVERY:
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
    words = Text()
    task = bar.add_task("", total=total)
    with Live(Group(bar, words), console=err):

        def show(progress: Progress) -> None:
            """Update the bar. The journal, and other workers, may have writes that the file does not."""
            print_line(progress)
            done = progress.done + progress.skipped
            whole = _whole(progress, total)
            bar.update(
                task,
                completed=done,
                total=max(total, done),
                description=whole,
            )
            words.plain = _this_run(progress)

        yield show


def _whole(progress: Progress, total: int) -> str:
    """
    Return how much of the batch is done, and the time that the rest takes at the rate of this run.

    What is settled takes as long as its windows, whatever the rate is, so no time is told for that.
    """
    done = progress.done + progress.skipped
    words = f"{done:,} of {max(total, done):,}"
    left = total - done
    if left <= 0:
        return words
    if not progress.rate or progress.paused is not None:
        return words
    to_send = left - progress.settling
    if to_send <= 0:
        return f"{words}, only lost answers are left"
    words += f", about {age(max(1, to_send / progress.rate))} left"
    if progress.settling:
        words += ", longer for lost answers"
    return words


def _this_run(progress: Progress) -> str:
    parts = [f"this run: {progress.done:,}, {progress.rate:,.0f}/s"]
    if progress.verdicts:
        parts.append(_verdicts_in(progress.verdicts))
    if progress.skipped:
        parts.append(f"{progress.skipped:,} were done before")
    if progress.settling:
        parts.append(f"{progress.settling:,} settling")
    if progress.paused is not None:
        parts.append(_paused(progress))
    elif progress.limited_by:
        parts.append(f"limited by the {progress.limited_by}")
    return "; ".join(parts)


def _verdicts_in(verdicts: Mapping[Verdict, int]) -> str:
    return ", ".join(
        f"{count:,} {verdict}" for verdict, count in sorted(verdicts.items())
    )


def _paused(progress: Progress) -> str:
    words = f"paused: {progress.paused}"
    if progress.next_probe is None:
        return words
    return f"{words}, next probe in {progress.next_probe:.0f} s"


# --- stores from which a command sends until it is interrupted


class _Amounts(NamedTuple):
    """
    How many writes of a store are in which state; the open ones include those that are *not_due*.

    While rows of the application's file are moved into the store, some are in both for a moment: then no more
    are open than counted.
    """

    summary: Summary
    not_due: int
    is_moving: bool

    @property
    def open(self) -> int:
        """How many have no verdict."""
        return self.summary.to_do + self.summary.sending

    @property
    def is_busy(self) -> bool:
        """Whether there is something to send now, or to wait for."""
        return self.open > self.not_due

    def __str__(self) -> str:
        words = f"{self.open:,} open"
        if self.is_moving:
            words = f"at most {words}"
        waiting = "or more not due" if self.not_due >= _MOST_NOT_DUE else "not due"
        parts = {"sending": self.summary.sending, waiting: self.not_due}
        if told := [f"{count:,} {name}" for name, count in parts.items() if count]:
            words += f" ({', '.join(told)})"
        if self.summary.verdicts:
            words += f"; {_verdicts_in(self.summary.verdicts)}"
        return words


async def _amounts_of(entries: Entries) -> _Amounts:
    from invsvc_async.batch.entries import summary_of
    from invsvc_async.durable.entries import not_due

    before = await entries.waiting()
    summary = await summary_of(entries)
    after = await entries.waiting()
    moved = max(before - after, 0)  # some perhaps after the store was counted
    return _Amounts(
        summary=attrs.evolve(summary, to_do=summary.to_do + moved),
        not_due=(await not_due(entries, _MOST_NOT_DUE)).many,
        is_moving=max(before, after) > 0,
    )


@asynccontextmanager
async def store_progress(at: StoreOptions) -> AsyncGenerator[None]:
    """
    Show how many writes of a store are open and done, while the block sends them.

    The counts are read beside the block, so they are of what is stored. Nothing is shown with ``--json``, or
    while the database is away; the log says why that is.
    """
    if as_json.get():
        yield
        return
    telling = asyncio.create_task(_tell_of_store(at))
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.wait([telling])


async def _tell_of_store(at: StoreOptions) -> None:
    tell = _show_amounts if is_terminal(sys.stderr) else _say_amounts
    while True:
        with suppress(InvsvcError):
            async with at.opened(reading=True) as entries:
                await tell(entries, at.kind.name)
        await asyncio.sleep(_EVERY)


async def _show_amounts(entries: Entries, name: str) -> None:
    """Show the amounts below all else that is printed, until cancelled."""
    with console(stderr=True).status("", spinner_style="none") as status:
        while True:
            status.update(f"{name}: {await _amounts_of(entries)}")
            await asyncio.sleep(_LOOK_EVERY)


async def _say_amounts(entries: Entries, name: str) -> None:
    """Print the amounts every ten seconds, unless there is nothing to do and nothing has changed."""
    said = await _amounts_of(entries)
    while True:
        await asyncio.sleep(_EVERY)
        now = await _amounts_of(entries)
        if now.is_busy or now != said:
            note(f"{name}: {now}")
        said = now


# --- spinners


class Waiting:
    """What is waited for, with the limit in seconds; rich renders it several times per second."""

    def __init__(self, words: str = "", seconds: float = 0.0) -> None:
        self.set(words, seconds)

    def set(self, words: str, seconds: float) -> None:
        """Replace the words; *seconds* is the limit from now on."""
        self._words = visible(words)
        self._until = monotonic() + seconds

    def __rich__(self) -> Text:
        from rich.text import Text  # imported if there is a terminal

        left = max(0.0, self._until - monotonic())
        return Text(f"{self._words} (at most {left:.0f} s)")

    @contextmanager
    def spinning(self, *, shown: bool = True) -> Generator[None]:
        """
        Show it from the first silent second to the end of the block, or in lines without a terminal.

        Needs a running event loop.
        """
        if not shown:
            yield
            return
        if not is_terminal(sys.stderr):
            with self._told():
                yield
            return
        status = console(stderr=True).status(self, spinner_style="none")
        timer = asyncio.get_running_loop().call_later(_SILENCE, status.start)
        try:
            yield
        finally:
            timer.cancel()
            status.stop()

    @contextmanager
    def _told(self) -> Generator[None]:
        """Print every ten seconds what the command is waiting for."""
        telling = asyncio.create_task(self._tell())
        try:
            yield
        finally:
            telling.cancel()

    async def _tell(self) -> None:
        while not as_json.get():
            await asyncio.sleep(_EVERY)
            left = max(0.0, self._until - monotonic())
            note(f"{self._words} (at most {left:.0f} s)")


def waiting_for_read(
    client: Client,
    what: str,
    *,
    shown: bool = True,
) -> AbstractContextManager[None]:
    """Show that a read, with its retries, has not been answered yet."""
    from invsvc_async.client import options_of

    limit = options_of(client).timeouts.call
    return Waiting(f"waiting for the answer to {what}", limit).spinning(shown=shown)


class WaitingForWrite(Waiting):
    """Shows what a write waits for.  `on_decision` is a hook of `Client`."""

    _attempt = _deadline = 0.0  # s
    _sent = False
    _settled_by: float | None = None  # the end of settling

    def shown(self, client: Client) -> AbstractContextManager[None]:
        """Show the spinner until the write ends."""
        from invsvc_async.client import options_of

        options = options_of(client)
        self._attempt = options.timeouts.attempt
        self._deadline = options.reconcile.deadline
        self.set("waiting for other writes to the same resource", self._deadline)
        return self.spinning()

    def on_decision(self, report: DecisionReport) -> None:
        """Replace the words by those of the write's next step."""
        if report.decision == "send":
            self.set(f"waiting for the answer to {report.operation}", self._attempt)
            self._sent = True
            return
        if self._sent and self._settled_by is None:
            self._settled_by = monotonic() + self._deadline
            if is_terminal(sys.stderr) and report.decision in _STEPS:
                note(_DOUBT)
        if report.decision in _STEPS:
            if self._sent:
                lead = f"{report.operation}: no clear answer"
            else:
                lead = report.operation
            if self._settled_by is None:
                left = self._deadline
            else:
                left = self._settled_by - monotonic()
            self.set(f"{lead}; {_STEPS[report.decision]}", left)
