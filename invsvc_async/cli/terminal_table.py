"""The console, and tables on it: ids, times and numbers stay whole, and the widest columns give way."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, Literal, NamedTuple

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from invsvc_async.cli.visible_text import visible
from invsvc_async.codec.exact_json import Wire, loads
from invsvc_async.errors import UnreadableResponseError

_WHOLE = re.compile(r"[^\s,/\[{]*")  # an id, a time, a number, a token
_NARROWEST = 12
# columns that a text gets at least; longer words, such as URLs, are broken
_LONG_WORD = 16
_GAP = 2  # columns between two columns of a table
# Verdicts, and the states of writes and events, as on the pages.
STYLES: Final = {
    "applied": "green",
    "handled": "green",
    "not applied": "yellow",
    "refused": "yellow",
    "superseded": "magenta",
    "unknown": "red",
    "dead": "red",
}
_STATES: Final = {"state", "verdict"}  # columns and fields that have such a word


class EscapingConsole(Console):
    """A console that shows control characters instead of obeying them: texts come from the service."""

    def __init__(self, **options: Any) -> None:  # Any: as in rich
        # ":id:" is a part of some keys
        super().__init__(highlight=False, emoji=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:  # Any: the same
        """Print as rich does, with control characters as escape sequences of Python."""
        super().print(*map(_shown, objects), **options)

    def on_broken_pipe(self) -> None:
        """Raise the error again: rich would end the process with 1, whatever the result is."""
        raise  # noqa: PLE0704 - it is called while the error is handled


def _shown(each: object) -> object:
    if isinstance(each, str):
        return visible(each)
    return each


def print_table(
    out: Console,
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int],
    wide: bool,
    enough: int = 0,
) -> list[str]:
    """
    Print *rows* as a table without the columns that are empty; return the titles that did not fit.

    Columns of ids, times and numbers are never wrapped; the other ones are, from the widest on.  If that is
    not enough, the last ones are left out.  If the first *enough* columns do not fit, by default half of
    them, each row is printed as one line for each field.  *wide* rows have all columns, and may be longer
    than the terminal's.
    """
    columns = _columns(titles, rows, right)
    widths = [each.width for each in columns]
    if wide:
        out.width = max(out.width, _width_of(widths))
    fitting = _fitting(columns, out.width)
    least = enough or len(columns) / 2
    if fitting < least:
        _print_rows_as_fields(out, columns)
        return []
    shown_columns = columns[:fitting]
    while not wide and _width_of(widths[:fitting]) > out.width:
        widths[_widest(shown_columns, widths)] -= 1
    shown = Table(
        box=box.SIMPLE_HEAD,
        header_style="bold",
        padding=(0, _GAP - 1, 0, 0),
    )
    for each, width in zip(shown_columns, widths[:fitting], strict=True):
        shown.add_column(
            each.title,
            justify=each.side,
            overflow="fold",
            width=width,
        )
    for row in zip(*(each.cells for each in shown_columns), strict=True):
        shown.add_row(*_styled(shown_columns, row))
    out.print(shown, soft_wrap=wide)
    return [each.title for each in columns[fitting:]]


def _styled(columns: Sequence[_Column], row: Sequence[str]) -> list[Text]:
    """Return the cells of *row*; verdicts and states have their colours."""
    return [
        Text(text, _style_of(each.title, text))
        for each, text in zip(columns, row, strict=True)
    ]


def _style_of(title: str, text: str) -> str:
    """Return the style of a word in a column or field of verdicts or states, or none."""
    if title in _STATES:
        return STYLES.get(text, "")
    return ""


class _Column(NamedTuple):
    """A column that is not empty. Widths are in places of the terminal."""

    title: str
    cells: list[str]
    side: Literal["left", "right"]
    width: int  # in which nothing is wrapped
    least: int  # below which the column is left out


def _columns(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[int],
) -> list[_Column]:
    """Return the columns that are not empty; those whose numbers are in *right* are aligned there."""
    columns: list[_Column] = []
    for number, title in enumerate(titles):
        texts = [row[number] for row in rows]
        is_empty = bool(rows) and not any(texts)
        if not is_empty:
            columns.append(_column(title, texts, is_right=number in right))
    return columns


def _print_rows_as_fields(out: Console, columns: Sequence[_Column]) -> None:
    titles = [each.title for each in columns]
    for row in zip(*(each.cells for each in columns), strict=True):
        fields = zip(titles, row, strict=True)
        print_fields(out, [(title, cell) for title, cell in fields if cell])
        out.print()


def _column(
    title: str,
    texts: Sequence[str],
    *,
    is_right: bool,
) -> _Column:
    cells = [_readable(text) for text in texts]
    lines = [line for cell in cells for line in cell.split("\n")]
    width = max(cell_len(title), *map(cell_len, lines), 0)
    is_whole = all(map(_WHOLE.fullmatch, cells))
    if is_whole:
        least = width
    else:
        longest = max(map(cell_len, " ".join(cells).split()), default=0)
        least = min(width, max(_NARROWEST, cell_len(title), min(_LONG_WORD, longest)))
    return _Column(
        title=title,
        cells=cells,
        side="right" if is_right else "left",
        width=width,
        least=least,
    )


def _width_of(widths: Sequence[int]) -> int:
    """Return the width of a table with columns of these *widths*."""
    return sum(widths) + _GAP * len(widths) + 2


def _fitting(columns: Sequence[_Column], width: int) -> int:
    """Return how many of the first columns fit into *width*, if they give way."""
    fitting = len(columns)
    while _width_of([each.least for each in columns[:fitting]]) > width:
        fitting -= 1
    return fitting


def _widest(columns: Sequence[_Column], widths: Sequence[int]) -> int:
    """Return the number of the widest column that can still give way."""
    numbers = range(len(columns))
    return max(
        numbers, key=lambda each: (widths[each] > columns[each].least, widths[each])
    )


def print_fields(out: Console, fields: Sequence[tuple[str, str]]) -> None:
    """
    Print names with their values, aligned.

    Texts are wrapped at spaces.  A value without spaces is printed whole, so that it can be copied.
    """
    indent = max((cell_len(name) for name, _ in fields), default=0) + 2 * _GAP
    width = out.width - indent
    for name, value in fields:
        label = Text(f"  {name}".ljust(indent), style="cyan")
        lines = _readable(value).split("\n")
        for part in chain.from_iterable(wrapped(line, width) for line in lines):
            needs_own_line = width < cell_len(part) <= out.width
            if needs_own_line:
                if label.plain.strip():
                    out.print(label)
                label = Text(" " * min(2 * _GAP, out.width - cell_len(part)))
            words = Text(part, _style_of(name, part))
            out.print(Text.assemble(label, words), soft_wrap=True)
            label = Text(" " * indent)


def wrapped(line: str, width: int) -> list[str]:
    """Return *line* in parts of at most *width* columns, all indented as it is; words are not broken."""
    text = line.lstrip(" ")
    indent = line[: len(line) - len(text)]
    room = width - len(indent)
    if cell_len(line) <= width:
        return [line]
    if room < _NARROWEST:
        return [line]
    parts = [""]
    for word in text.split(" "):
        if not parts[-1]:
            parts[-1] = word
            continue
        longer = f"{parts[-1]} {word}"
        if cell_len(longer) > room:
            parts.append(word)
        else:
            parts[-1] = longer
    return [indent + part for part in parts]


def _readable(cell: str) -> str:
    """Return JSON for people, unless it is nested: an array of texts with commas, an object in lines."""
    if not cell.startswith(("{", '["')):
        return cell
    try:
        found = loads(cell.encode())
    except UnreadableResponseError:
        return cell
    if isinstance(found, list):
        return _readable_list(found, cell)
    is_nested = any(isinstance(each, (dict, list)) for each in found.values())
    if not found or is_nested:
        return cell
    return "\n".join(f"{name}: {_text_of(each)}" for name, each in found.items())


def _text_of(value: Wire) -> str:
    if value is None:
        return ""
    return str(value)


def _readable_list(found: list[Wire], cell: str) -> str:
    if not all(isinstance(each, str) for each in found):
        return cell
    return ", ".join(found)
