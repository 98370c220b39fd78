"""Print: rich on a terminal, plain and stable elsewhere; never decide what is printed."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console

from invsvc_async.codec import envelope

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

__all__ = [
    "DONE",
    "FAILED",
    "UNKNOWN",
    "USAGE",
    "console",
    "emit_json",
    "fail",
    "note",
    "print_facts",
    "private",
    "progress",
    "table",
]

DONE, FAILED, USAGE, UNKNOWN = 0, 1, 2, 3
_WIDE = 10_000  # columns: what is not a terminal is never cut or folded


def console(*, stderr: bool = False) -> Console:
    """Make a console of the stream as it is now: colours on a terminal alone, and not under NO_COLOR."""
    stream = sys.stderr if stderr else sys.stdout
    there = stream.isatty()
    width = None if there else _WIDE
    return Console(file=stream, force_terminal=there, width=width, highlight=False, soft_wrap=not there)


def fail(message: str) -> None:
    """Say on stderr what went wrong, in one paragraph."""
    console(stderr=True).print(f"[bold red]invsvc:[/] {_plain(message)}", soft_wrap=True)


def private(path: str, flags: int) -> int:
    """Open a file for its owner alone, as an *opener* of ``open``: it holds bodies, and so personal data."""
    return os.open(path, flags, 0o600)


def note(message: str) -> None:
    """Say on stderr what the output itself does not."""
    console(stderr=True).print(_plain(message), style="dim", soft_wrap=True)


def emit_json(plain: Any) -> None:  # Any: JSON as Python values
    """Print one JSON value on a line of its own, decimals with their own digits."""
    sys.stdout.write(envelope.dumps(plain).decode() + "\n")


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """Print *rows*: a table on a terminal (numbers in columns *right*), lines with tabs elsewhere."""
    out = console()
    if not out.is_terminal:
        for row in (titles, *rows):
            sys.stdout.write("\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in row) + "\n")
        return
    from rich import box
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for number, title in enumerate(titles):
        shown.add_column(title, justify="right" if number in right else "left", overflow="fold")
    for row in rows:
        shown.add_row(*map(_plain, row))
    out.print(shown)


def print_facts(out: Console, facts: Iterable[tuple[str, str]]) -> None:
    """Print names and what stands for each, folded under itself on a terminal."""
    from rich.table import Table

    shown = Table.grid(padding=(0, 2))
    shown.add_column(style="cyan", no_wrap=True)
    shown.add_column()
    for name, words in facts:
        if out.is_terminal:
            shown.add_row(f"  {name}", _plain(words))
        else:
            out.print(f"  {name:<16} {words}", markup=False)
    if out.is_terminal:
        out.print(shown)


@contextmanager
def progress(words: str, total: int | None = None, *, shown: bool = True) -> Generator[Callable[[], None]]:
    """Show a bar on stderr, where that is a terminal; the function given moves it on by one."""
    err = console(stderr=True)
    if not (shown and err.is_terminal):
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(words, total=total)
        yield lambda: bar.advance(task)


def _plain(text: str) -> str:
    """Keep what looks like markup from being taken for it."""
    from rich.markup import escape

    return escape(text)
