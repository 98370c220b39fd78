"""
Find the command that was asked for and turn how it ended into an exit code; never do its work.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer
import typer.main
from typer.core import TyperGroup

from invsvc_async._errors import ConfigurationError, InvalidRequestError, InvsvcError
from invsvc_async._version import __version__
from invsvc_async.cli.output import DONE, FAILED, USAGE, fail

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["run"]

# Each command is a module of ``commands`` with a function `command`, or an `app` of several; only the one
# asked for is imported.
COMMANDS = {
    "demo": "demo",
    "serve": "serve",
    "get": "get",
    "list": "list_",
    "write": "write",
    "batch": "batch",
    "settle": "settle",
    "explain": "explain",
    "listen": "listen",
    "export": "export",
    "doctor": "doctor",
    "conformance": "conformance",
}


@attrs.define
class Shell:
    """What holds for one run of the command line."""

    debug: bool = False


class Commands(TyperGroup):
    """The commands, each loaded when it is asked for (or shown in the help)."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - Any: newer typer brings its own click
        """List the names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - the same
        """Load one command; ``None`` for a name that there is not."""
        if cmd_name not in COMMANDS:
            return None
        room = import_module(f"invsvc_async.cli.commands.{COMMANDS[cmd_name]}")
        several: typer.Typer | None = getattr(room, "app", None)
        one = several or typer.Typer(add_completion=False, rich_markup_mode="markdown")
        if several is None:
            one.command(cmd_name)(room.command)
        found = _dressed(typer.main.get_command(one))
        found.name = cmd_name
        return found


def _dressed(command: Any) -> Any:  # Any: the same
    """Leave boxes and colours of help and complaints to a terminal."""
    if not sys.stdout.isatty():
        for each in (command, *getattr(command, "commands", {}).values()):
            each.rich_markup_mode = None
    return command


app: typer.Typer = typer.Typer(
    cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown"
)


def _show_version(asked: bool) -> None:  # noqa: FBT001 - typer's form
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _globals(
    ctx: typer.Context,
    *,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks, and log what the client does.")
    ] = False,
    version: Annotated[  # noqa: ARG001 - its callback acts
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """
    Know what became of every write to the invoicing, payments and integrations service.

    The service's address and credential come from INVSVC_BASE_URL and INVSVC_API_KEY (or
    INVSVC_OAUTH_TOKEN, INVSVC_PERSON_TOKEN), or from a profile of `invsvc.toml`.

    Exit codes: 0 done, 1 failed, 2 usage, 3 unknown, 130 interrupted.
    """
    ctx.obj.debug = debug
    if debug:
        import logging

        logging.basicConfig(level=logging.DEBUG)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and give its exit code; no traceback gets out, unless ``--debug`` asks for it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # one of latin-1 lacks some of the signs that are printed
            stream.reconfigure(errors="replace")
    shell = Shell()
    try:
        code = _code_of(arguments, shell)
        sys.stdout.flush()  # here, where a reader that has left can still be met
    except BrokenPipeError:  # `invsvc list … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if shell.debug:
            raise
        return _explained(error)
    return code


def _code_of(arguments: Sequence[str], shell: Shell) -> int:
    command = _dressed(typer.main.get_command(app))
    try:
        command(args=_debug_first(arguments), prog_name="invsvc", obj=shell)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else FAILED
    return DONE


def _debug_first(arguments: Sequence[str]) -> list[str]:
    """Take ``--debug`` wherever it stands: people add it to the end of what has failed."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    own = [each for each in arguments[:end] if each != "--debug"]
    return ["--debug"] * (len(own) < end) + own + list(arguments[end:])


def _explained(error: Exception) -> int:
    match error:
        case ExceptionGroup():  # of tasks side by side: the first says what went wrong
            return _explained(error.exceptions[0])
        case ConfigurationError() | InvalidRequestError():
            fail(str(error))
            return USAGE
        case InvsvcError():
            fail(str(error))
        case OSError(filename=str() | bytes() as name, strerror=str() as why):
            fail(f"{os.fsdecode(name)}: {why}")
        case OSError(strerror=str() as why):
            fail(why)
        case _:
            fail(f"{type(error).__name__}: {error} (invsvc --debug … shows where)")
    return FAILED
