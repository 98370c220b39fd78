"""Terminal output: rich on a terminal, plain and stable elsewhere."""

from __future__ import annotations

import codecs
import os
import re
import sys
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from enum import IntEnum
from functools import lru_cache
from io import TextIOWrapper
from typing import TYPE_CHECKING, Final, TextIO

from invsvc_async.cli.visible_text import HIDDEN, visible

# rich, and the codec, are imported when they are used: `invsvc --help` needs neither.
if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from rich.console import Console

    from invsvc_async.codec.exact_json import Wire

_HANGING = 4  # columns
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))
_WIDE = 10_000  # columns: output to a file or pipe is not wrapped
# in JSON, if an error has them
_ERROR_FACTS = ("operation", "status", "code", "request_id", "resume_token")
_NOT_ASCII: Final = re.compile(f"{HIDDEN.pattern}|[^\\x00-\\x7f]")

# --json: the result, and errors
as_json: ContextVar[bool] = ContextVar("as_json", default=False)


class Exit(IntEnum):
    """The exit codes of all commands."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNKNOWN = 3
    OVERTAKEN = 4
    INCOMPLETE = 5
    INTERRUPTED = 130  # that of shells for SIGINT


def console(*, stderr: bool = False) -> Console:
    """
    Return a console for the current stream; colours only on a terminal, and not if NO_COLOR is set.

    stderr has one console, so that notes are printed above a bar or spinner, not into it.
    """
    if stderr:
        return _shared(_own(sys.stderr))
    return _console_of(_own(sys.stdout))


def _console_of(stream: TextIO) -> Console:
    from invsvc_async.cli.terminal_table import EscapingConsole

    on_terminal = stream.isatty()
    width = None if on_terminal else _WIDE
    return EscapingConsole(
        file=stream,
        force_terminal=on_terminal,
        width=width,
        soft_wrap=not on_terminal,
    )


_shared = lru_cache(maxsize=1)(_console_of)  # rich knows of a bar by its console


def is_terminal(stream: TextIO) -> bool:
    """Return whether ``console`` would show colours on this stream."""
    return _own(stream).isatty()


def _own(stream: TextIO) -> TextIO:
    """Return the process's own stream, which rich replaces while it shows a bar."""
    own: TextIO = getattr(stream, "rich_proxied_file", stream)
    return own


def counted(number: int, noun: str) -> str:
    """Return *number* with *noun*, which is given in the singular: ``1 write``, ``2,000 writes``."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}s"


def age(seconds: float | None) -> str:
    """Return a time in words; empty if it is not known."""
    if seconds is None:
        return ""
    whole = round(seconds)
    for size, unit in _UNITS:
        if whole >= 2 * size:
            return f"{whole // size} {unit}"
    return f"{whole} s"


def fail(message: str, error: Exception | None = None) -> None:
    """Print an error to stderr, if it can be: a line of text, or with ``--json`` of JSON with facts of it."""
    message = told(message, error)
    with suppress(OSError):
        if as_json.get():
            facts = _facts_of(error, message)
            sys.stderr.write(_json_line({"error": facts}, sys.stderr))
        else:
            _print_words("invsvc:", f" {message}", "bold red")


def _facts_of(error: Exception | None, message: str) -> dict[str, object]:
    """Return what programs get of an *error*, with its *message*."""
    if error is None:
        return {"type": "Error", "message": message}
    facts: dict[str, object] = {"type": type(error).__name__, "message": message}
    for name in _ERROR_FACTS:
        fact = getattr(error, name, None)
        if fact is not None:
            facts[name] = fact
    return facts


_ADVICE_FOR_PROGRAMS = re.compile(r" Look at \.raw(, [^.]*)?\.")


def told(message: str, error: Exception | None) -> str:
    """Return *message* of *error* with the beginning of ``raw``, at which only a program can look."""
    raw: bytes = getattr(error, "raw", None) or b""
    begin = f" It begins with {raw[:60].decode(errors='replace')!r}." if raw else ""
    return _ADVICE_FOR_PROGRAMS.sub(lambda _: begin, message)


def note(message: str) -> None:
    """Print a note to stderr; if that cannot be written to, it is dropped, and the command goes on."""
    with suppress(OSError):
        _print_words(message, "", "")


@contextmanager
def reporting(result: str) -> Generator[None]:
    """
    Print the result of something that was done.

    If stdout cannot be written to, *result* is reported on stderr instead, and the exit code stays: it is
    that of the result. A reader that has left (``| head -1``) is not told more.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
    except OSError as error:
        discard_output()
        fail(
            f"stdout: cannot be written to ({error.strerror or error}). {result}", error
        )


def discard_output() -> None:
    """Redirect stdout to the null device, to discard its buffer: writing to stdout fails by now."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_words(styled: str, rest: str, style: str) -> None:
    """Print a message to stderr, wrapped at spaces only: a token longer than a line stays whole."""
    from rich.text import Text

    from invsvc_async.cli.terminal_table import wrapped

    out = console(stderr=True)
    lines = visible(styled + rest).split("\n")
    if out.is_terminal:
        lines = [part for line in lines for part in wrapped(line, out.width)]
    text = Text("\n".join(lines))
    text.stylize(style, 0, len(visible(styled)))
    out.print(text, soft_wrap=True)


def emit_json(plain: Wire) -> None:
    """Print one JSON value on one line; decimals keep their digits, control characters are escaped."""
    sys.stdout.write(_json_line(plain, sys.stdout))


def emitted(*plain: Wire) -> bool:
    """Print each *plain* value if the command has ``--json``, and return whether it has."""
    if not as_json.get():
        return False
    for each in plain:
        emit_json(each)
    return True


def _json_line(plain: object, stream: TextIO) -> str:
    from invsvc_async.codec.exact_json import dumps

    text = dumps(plain).decode()
    hidden = HIDDEN if _is_utf_8(stream) else _NOT_ASCII
    return hidden.sub(_escaped, text) + "\n"


def _escaped(found: re.Match[str]) -> str:
    """Return the escape of a character in JSON: two for one beyond the first 65,536."""
    units = found[0].encode("utf-16-be", "surrogatepass").hex(" ", 2)
    return "".join(f"\\u{unit}" for unit in units.split())


def _is_utf_8(stream: TextIO) -> bool:
    """Return whether *stream* has all characters. One without an encoding is a string in memory."""
    encoding: str | None = getattr(stream, "encoding", None)
    if encoding is None:
        return True
    return codecs.lookup(encoding).name == "utf-8"


def write_csv(row: str) -> None:
    """Print a row of CSV; in a file or pipe it is UTF-8, where Windows would choose an older encoding."""
    out = sys.stdout
    if isinstance(out, TextIOWrapper) and not (out.isatty() or _is_utf_8(out)):
        out.reconfigure(encoding="utf-8", errors="replace")
    out.write(row)


def table(
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[int] = (),
    wide: bool = False,
    enough: int = 0,
) -> None:
    """
    Print *rows*: a table on a terminal, which *wide* ones may exceed, or else tab-separated lines.

    The first *enough* columns make a table; by default half of them do.
    """
    if is_terminal(sys.stdout):
        from invsvc_async.cli.terminal_table import print_table

        told = [[*map(visible, row)] for row in rows]
        if left_out := print_table(
            console(),
            titles,
            told,
            right=right,
            wide=wide,
            enough=enough,
        ):
            note(f"a wider terminal shows {', '.join(left_out)}, too")
        return
    for row in (titles, *rows):
        cells = (visible(cell.replace("\t", " ").replace("\n", " ")) for cell in row)
        sys.stdout.write("\t".join(cells) + "\n")


def say(words: str) -> None:
    """Print lines of text, which are not wrapped."""
    sys.stdout.write(visible(words) + "\n")


def say_wrapped(words: str) -> None:
    """Print lines of text; on a terminal they break between words."""
    if is_terminal(sys.stdout):
        print_hanging(words, hanging=0)
    else:
        say(words)


def tell(plain: Wire, words: str) -> bool:
    """Print what was done: *plain* with ``--json``, or else *words*; return whether there is ``--json``."""
    if not (is_json := emitted(plain)):
        say(words)
    return is_json


def tell_at_once(plain: Wire, words: str) -> bool:
    """Print as :func:`tell`, and flush: the command goes on, and a pipe would get it only at the end."""
    is_json = tell(plain, words)
    sys.stdout.flush()
    return is_json


def print_hanging(
    text: str,
    *,
    style: str = "",
    hanging: int = _HANGING,
) -> None:
    """Print lines with their indents; what does not fit goes on below, indented by *hanging* more."""
    from rich.text import Text

    from invsvc_async.cli.terminal_table import wrapped

    out = console()
    for line in visible(text).split("\n"):
        words = line.lstrip(" ")
        indent = len(line) - len(words)
        for part in wrapped(words, out.width - indent - hanging):
            out.print(Text(" " * indent + part, style=style), soft_wrap=True)
            indent = len(line) - len(words) + hanging


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names with their texts, aligned; what is not a text is left out."""
    told = [
        (visible(name), visible(text))
        for name, text in facts.items()
        if isinstance(text, str)
    ]
    if is_terminal(sys.stdout):
        from invsvc_async.cli.terminal_table import print_fields

        print_fields(console(), told)
        return
    for name, words in told:
        say(f"  {name:<16} {words}")
