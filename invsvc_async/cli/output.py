"""Terminal output: rich on a terminal, plain and stable elsewhere."""

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
    "OVERTAKEN",
    "UNKNOWN",
    "USAGE",
    "console",
    "emit_json",
    "fail",
    "note",
    "open_private",
    "print_facts",
    "progress",
    "table",
]

DONE, FAILED, USAGE, UNKNOWN, OVERTAKEN = 0, 1, 2, 3, 4
_WIDE = 10_000  # columns: output to a file or pipe is not wrapped


def console(*, stderr: bool = False) -> Console:
    """Return a console for the current stream; colours only on a terminal, and not if NO_COLOR is set."""
    stream = sys.stderr if stderr else sys.stdout
    on_terminal = stream.isatty()
    width = None if on_terminal else _WIDE
    return Console(
        file=stream, force_terminal=on_terminal, width=width, highlight=False, soft_wrap=not on_terminal
    )


def fail(message: str) -> None:
    """Print an error to stderr."""
    console(stderr=True).print(f"[bold red]invsvc:[/] {_plain(message)}", soft_wrap=True)


def open_private(path: str, flags: int) -> int:
    """Open a file with mode 0600, as *opener* of ``open``: its content may be personal data."""
    return os.open(path, flags, 0o600)


def note(message: str) -> None:
    """Print a note to stderr."""
    console(stderr=True).print(_plain(message), style="dim", soft_wrap=True)


def emit_json(plain: Any) -> None:  # Any: JSON values
    """Print one JSON value on one line; decimals keep their digits."""
    sys.stdout.write(envelope.dumps(plain).decode() + "\n")


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """Print *rows*: a table on a terminal (columns *right* right-aligned), tab-separated lines elsewhere."""
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
    """Print names with their values, aligned."""
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
    """Show a progress bar on stderr if it is a terminal; yields the function that advances it."""
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
    """Escape rich markup."""
    from rich.markup import escape

    return escape(text)
