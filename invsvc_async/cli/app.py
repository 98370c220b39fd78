"""The ``invsvc`` application: finds the command and turns its result into an exit code."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperArgument, TyperCommand, TyperGroup

from invsvc_async._version import __version__
from invsvc_async.cli.output import Exit, as_json, discard_output, fail, note
from invsvc_async.errors import ConfigurationError, InvalidRequestError, InvsvcError
from invsvc_async.storage.private_file import errors_naming

# The first sentence of each command's help.  The list of commands imports none of them.
COMMANDS = {
    "demo": "Run the same writes under faults through an ordinary client and through this one",
    "serve": "Run the embedded service",
    "get": "Read one item",
    "list": "List items",
    "write": "Send one write",
    "batch": "Run the writes of a file, one per line",
    "outbox": "Send the writes that applications have committed to an outbox, and look after them",
    "journal": "Show, retry or delete the writes in the journal of a client, `Client(journal=…)`",
    "console": "Look at a store on pages, and change it",
    "settle": "Find out whether a write was applied",
    "resume": "Complete an interrupted write",
    "explain": "Explain how a verdict was reached, and check that the current rules still reach it",
    "verify": "Check a receipt offline",
    "listen": "Receive events",
    "events": "Show, handle again or drop the events in a receiver's store, which may be in use meanwhile",
    "trigger": "Send events",
    "export": "Export invoices",
    "reconcile": "Compare your own rows with the service",
    "audit": "Find duplicates that exist already",
    "mcp": "Serve the operations as tools for agents, over the Model Context Protocol",
    "doctor": "Check what the specification leaves open in a deployment, with reads only, "
    "and print matching settings, or store them",
    "conformance": "Judge a client in any language",
}
_MODULES = {  # of those that are not in a module with their name
    "demo": "conformance",
    "journal": "stores",
    **dict.fromkeys(("get", "list", "export"), "read"),
    **dict.fromkeys(("settle", "resume", "explain"), "write"),
}
_FUNCTIONS = {"list": "list_"}  # of those that are not the function with their name
_DEBUG = "Show tracebacks, and log decisions about writes. INVSVC_LOG=debug also logs requests."
_SHORT = ("get", "write", "settle", "resume")  # make a few requests
_HELP = SimpleNamespace(help_option_names=["-h", "--help"])


class Commands(TyperGroup):
    """A group of commands that imports a command when it is used.  The help imports none."""

    _lists_only = False

    # Any: newer typer brings its own click
    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, for which a command's name and summary suffice."""
        self._lists_only = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._lists_only = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load a command; return ``None`` if the name is unknown."""
        if cmd_name not in COMMANDS:
            return None
        if self._lists_only:
            return TyperCommand(cmd_name, short_help=COMMANDS[cmd_name])
        module = import_module(
            f"invsvc_async.cli.commands.{_MODULES.get(cmd_name, cmd_name)}"
        )
        group = getattr(module, _FUNCTIONS.get(cmd_name, cmd_name))
        if not isinstance(group, typer.Typer):
            # the help needs none of what it imports
            from invsvc_async.cli.options import CommandGroup

            command, group = group, CommandGroup()
            group.add(command, short=cmd_name in _SHORT)
        found = _for_people(typer.main.get_command(group))
        found.name = cmd_name
        if not found.help:
            found.help = f"{COMMANDS[cmd_name]}."
        for each in (found, *getattr(found, "commands", {}).values()):
            # click cuts a text that it shortens itself
            words = " ".join((each.help or "").split())
            each.short_help = re.split(r"[.:;](?=\s|$)", words, maxsplit=1)[0]
        return found

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # Any: the same
        """Find the command; suggest a similar name for an unknown one."""
        if args and not ctx.resilient_parsing:
            _check_known(ctx, args[0])
        return super().resolve_command(ctx, args)


def _check_known(ctx: Any, word: str) -> None:  # Any: the same
    """Fail if *word* is neither a command nor an option."""
    if word.startswith("-"):
        return
    if word in COMMANDS:
        return
    from invsvc_async.resources.by_name import did_you_mean

    ctx.fail(f"No such command {word!r}. {did_you_mean(word, COMMANDS)}".rstrip())


def _for_people(command: Any) -> Any:  # Any: the same
    """
    Show help and usage errors with boxes and colours on a terminal only.

    Beside arguments and flags they show no types of Python; options name their values.  Texts and flags are
    taken as they are: to convert them, newer typer would import pydantic, in a sixth of the time of a read.
    """
    for each in (command, *getattr(command, "commands", {}).values()):
        if sys.stdout.isatty():
            each.format_help = partial(_readably, each.format_help)
            each.get_usage = partial(_readably, each.get_usage)  # begins an error
        else:
            each.rich_markup_mode = None
        for parameter in (*each.params, each.get_help_option(_HELP)):
            _take_as_given(parameter)
            if isinstance(parameter, TyperArgument) or parameter.is_flag:
                # older typer does not ask for it
                parameter.display_type_rich = lambda *_, **__: ""
    return command


def _readably(format_text: Callable[..., Any], *given: Any) -> Any:  # Any: the same
    """Call *format_text*: no text is dim or blue, no code on black, so that all terminals show it."""
    from rich.default_styles import DEFAULT_STYLES
    from rich.style import Style
    from typer import rich_utils

    rich_utils.STYLE_HELPTEXT = ""
    rich_utils.STYLE_OPTION_DEFAULT = rich_utils.STYLE_OPTION_ENVVAR = ""
    rich_utils.STYLE_ERRORS_SUGGESTION = ""
    rich_utils.RICH_HELP = rich_utils.RICH_HELP.replace("[blue]", "[cyan]")
    rich_utils.STYLE_REQUIRED_LONG = "red"
    DEFAULT_STYLES["markdown.code"] = Style(bold=True, color="cyan")
    return format_text(*given)


def _take_as_given(parameter: Any) -> None:  # Any: the same
    """Leave texts and flags of *parameter* unconverted."""
    described = getattr(parameter, "type_descriptor", None)  # older typer has none
    if described is None or described.annotation not in (bool, str, list[str]):
        return
    takes_many = parameter.multiple or parameter.nargs == -1
    if_absent = () if takes_many else None

    def coerce(value: object, **_: object) -> object:
        if value is None:
            return if_absent
        return value

    parameter.get_runtime_param = partial(SimpleNamespace, coerce=coerce)


_SETTINGS: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    "context_settings": vars(_HELP),
}
app: typer.Typer = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    **_SETTINGS,
)


def _show_version(asked: bool) -> None:  # noqa: FBT001 - typer's signature
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _globals(
    *,
    debug: Annotated[bool, typer.Option("--debug", help=_DEBUG)] = False,
    version: Annotated[  # noqa: ARG001 - handled by its callback
        bool,
        typer.Option(
            "--version",
            help="Show the version.",
            callback=_show_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """
    Write to the invoicing, payments and integrations service, and find out what happened to every write.

    The service's address and credential come from INVSVC_BASE_URL and INVSVC_API_KEY (or
    INVSVC_OAUTH_TOKEN, INVSVC_PERSON_TOKEN), or from a profile in `invsvc.toml`.

    Exit codes: 0 success, 1 failure, 2 usage error, 3 unknown result, 4 overtaken writes and
    5 incomplete input of a batch, 130 interrupted.
    """
    if debug:
        import logging

        logging.basicConfig(level=logging.DEBUG)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code.  Tracebacks are shown only with ``--debug``."""
    _prepare_standard_streams()
    end = arguments.index("--") if "--" in arguments else len(arguments)
    words = [each for each in arguments[:end] if each != "--debug"]
    # anywhere: people append it to a failed command
    is_debug = len(words) < end
    if is_debug:
        words.insert(0, "--debug")
    restored = as_json.set("--json" in arguments[:end])
    try:
        with warnings.catch_warnings():
            warnings.showwarning = partial(_show_warning, warnings.showwarning)
            code = _code_of([*words, *arguments[end:]])
        with errors_naming("stdout"):
            sys.stdout.flush()  # while errors can still be handled
    except BrokenPipeError:  # `invsvc list … | head`
        discard_output()
        return Exit.FAILED
    except Exception as error:
        if is_debug:
            raise
        return _report(error)
    finally:
        as_json.reset(restored)
    return code


def _prepare_standard_streams() -> None:
    """
    Replace closed streams (``<&-``) by the null device, before a journal or socket gets their numbers.

    The others replace characters that they lack, and write line ends as they are: Windows would change them,
    also within cells of CSV.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            null = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - open until the end
            setattr(sys, name, null)
        elif mode == "w" and isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace", newline="\n")


def _show_warning(
    show: Callable[..., object],
    message: object,
    category: object,
    *place: object,
) -> None:
    """Print a warning about an argument as a note; those for developers as Python does."""
    if category is UserWarning:
        note(str(message))
    else:
        show(message, category, *place)


def _code_of(words: list[str]) -> int:
    command = _for_people(typer.main.get_command(app))
    try:
        code = command(
            args=words,
            prog_name="invsvc",
            standalone_mode=not as_json.get(),
        )
    except SystemExit as ended:
        if isinstance(ended.code, int):
            return ended.code
        return Exit.FAILED
    except typer.Abort as error:  # the answer to a question was no, with --json
        fail("aborted", error)
        return Exit.FAILED
    except Exception as error:
        if (message := getattr(error, "format_message", None)) is None:
            raise
        fail(message(), error)  # a usage error, with --json
        return Exit.USAGE
    if isinstance(code, int):
        return code
    return Exit.DONE


def _report(error: Exception) -> int:
    # from a task group; the first error is shown
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    words = str(error)
    match error:
        case InvsvcError():
            pass
        case FileNotFoundError(filename=str() | bytes() as name, strerror=str() as why):
            words = f"{os.fsdecode(name)}: {why}. Correct the path, or make its folder."
        case OSError(filename=str() | bytes() as name, strerror=str() as why):
            words = f"{os.fsdecode(name)}: {why}"
        case OSError(strerror=str() as why):
            words = why
        case _:
            words = (
                f"{type(error).__name__}: {error} (run with --debug for the traceback)"
            )
    fail(words, error)
    if isinstance(error, ConfigurationError | InvalidRequestError):
        return Exit.USAGE
    return Exit.FAILED
