"""Options that commands share, and how a command gets them."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from copy import copy
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args
from urllib.parse import urlsplit

import attrs
import typer
from typer.core import TyperCommand
from typer.models import OptionInfo

from invsvc_async.cli.output import as_json, note
from invsvc_async.cli.signals import interruptible
from invsvc_async.concurrency.event_loop import until_done

if TYPE_CHECKING:
    from typing import Unpack

    from invsvc_async.client import Client, ClientSettings
    from invsvc_async.profiles import Profile as TakenProfile
    from invsvc_async.transport.client_core import ClientCore

C = TypeVar("C", bound=Callable[..., Coroutine[Any, Any, int | None] | int | None])
_INFINITE = float("inf")
_LAST = ("json_", "profile", "team")  # in the help
# of `SendingOptions`, not of what is opened
_OWN = ("profile", "team", "secrets_to", "no_secrets")


class CommandGroup(typer.Typer):
    """A group of commands."""

    def __init__(
        self,
        of_commands: type[TyperCommand] = TyperCommand,
        **settings: Any,  # Any: those of typer
    ) -> None:
        self._of_commands = of_commands
        settings = {"add_completion": False, "no_args_is_help": True, **settings}
        super().__init__(rich_markup_mode="markdown", **settings)

    def add(
        self,
        command: C,
        *,
        words: str | None = None,
        lacks: str = "",
        short: bool = False,
        **bound: object,
    ) -> C:
        """
        Add *command*, with the fields of its parameters that are attrs classes, and with ``--json``.

        What it returns is the exit code. If it is a coroutine function, it is run to its end; a *short* one
        makes a few requests. It has none of the options that it *lacks*, which are names with spaces between
        them, and *bound* are arguments and fields that are not given by the user. *words* replace its help.
        """
        signature = inspect.signature(command, eval_str=True)
        own = [_JSON, *signature.parameters.values()]
        groups = {
            each.name: each.annotation for each in own if attrs.has(each.annotation)
        }

        @wraps(command)
        def call(*, json_: bool, **given: Any) -> None:  # Any: as the options
            as_json.set(json_)
            given |= bound
            for name, group in groups.items():
                names = {field.name for field in attrs.fields(group)} & {*given}
                given[name] = group(**{each: given.pop(each) for each in names})
            code = command(**given)
            try:
                if isinstance(code, Coroutine):
                    code = until_done(code, short=short)
            except (
                asyncio.CancelledError
            ):  # a signal that ends processes interrupts it as Ctrl-C does
                raise KeyboardInterrupt from None
            if code:
                raise typer.Exit(code)

        left_out = {*lacks.split(), *bound}
        options: list[inspect.Parameter] = []
        for asked in own:
            options += _options_of(asked, left_out)
        options.sort(key=lambda each: each.name in _LAST)
        call.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]
        name = command.__name__.rstrip("_").replace("_", "-")
        self.command(name, cls=self._of_commands, help=words)(call)
        return command


def _options_of(
    parameter: inspect.Parameter, lacks: set[str]
) -> Iterator[inspect.Parameter]:
    """
    Yield the parameters for the fields of *parameter*, or itself, but none with the names in *lacks*.

    Options are named as they are; typer itself would give each flag another one that unsets it.
    """
    fields = [parameter]
    if attrs.has(parameter.annotation):
        fields = []
        for each in attrs.fields(attrs.resolve_types(parameter.annotation)):
            default = parameter.empty if each.default is attrs.NOTHING else each.default
            fields.append(
                parameter.replace(
                    name=each.name,
                    annotation=each.type,
                    default=default,
                )
            )
    for field in fields:
        if field.name in lacks:
            continue
        kind, described = get_args(field.annotation)
        # it has no name of its own
        if isinstance(described, OptionInfo) and described.default is ...:
            described = copy(described)  # typer keeps the first name in its default
            described.default = f"--{field.name.rstrip('_').replace('_', '-')}"
        yield field.replace(
            kind=field.KEYWORD_ONLY, annotation=Annotated[kind, described]
        )


def option(
    help_: str,
    metavar: str | None = None,
    *,
    names: Sequence[str] = (),
    **settings: Any,
) -> Any:
    """Return an option, which has the name of its parameter if *names* are not given."""
    return typer.Option(*names, help=help_, metavar=metavar, **settings)


def argument(help_: str, metavar: str | None = None, **settings: Any) -> Any:
    """Return an argument."""
    return typer.Argument(help=help_, metavar=metavar, **settings)


def misuse(words: str, option: str | None = None) -> typer.BadParameter:
    """Return the error that says what is wrong with the value of *option*, or with the options."""
    return typer.BadParameter(words, param_hint=option)


def number(
    kind: type[float],
    help_: str,
    metavar: str = "N",
    *,
    least: float = -_INFINITE,
    most: float = _INFINITE,
) -> Any:  # Any: as typer.Option
    """Return an option that takes a number from *least* to *most*; the help names it *metavar*."""
    parser = number_parser(kind, least=least, most=most)
    return typer.Option(
        help=help_,
        metavar=metavar,
        parser=parser,
    )


def number_parser(
    kind: type[float],
    *,
    least: float = -_INFINITE,
    most: float = _INFINITE,
) -> Callable[[str], float]:
    """Return a function that parses a number from *least* to *most*, and refuses any other text."""

    def parse(text: str) -> float:
        try:
            found = kind(text)
        except (ValueError, OverflowError):
            wanted = "a whole number" if kind is int else "a number"
            raise misuse(f"must be {wanted}, not {text!r}") from None
        if not least <= found <= most:
            upper = f" and at most {most:,}" if most < _INFINITE else ""
            raise misuse(f"must be at least {least:,}{upper}, not {text}")
        return found

    return parse


_PORT = "A port of this machine; 0 selects a free one."
Port = Annotated[
    int,
    number(
        int,
        _PORT,
        least=0,
        most=65_535,
        metavar="PORT",
    ),
]
Profile = Annotated[str | None, option("A profile in invsvc.toml.", "NAME")]
Concurrency = Annotated[
    int, number(int, "Maximum writes in flight in this process.", least=1)
]
InsecureHttp = Annotated[
    bool, option("Send events over plain HTTP to another machine.")
]
Yes = Annotated[bool, option("Do not ask before a delete.", names=("--yes", "-y"))]
Json = Annotated[
    bool, option("Print the result as JSON, and errors as JSON on stderr.")
]
_JSON = inspect.Parameter(
    "json_", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json
)
EscapeFormulas = Annotated[
    bool, option("In CSV, put ' before text that a spreadsheet would run.")
]


def _tell_of_file(taken: TakenProfile) -> None:
    """Print, once, which settings a file in the current directory has: the file may be a stranger's."""
    from invsvc_async.profiles import words_of

    if os.environ.get("INVSVC_CONFIG"):
        return
    if str(taken) in _TOLD:
        return
    _TOLD.add(str(taken))
    # The log has a warning of the same words, which Python prints if nobody has set a handler.
    logging.getLogger("invsvc_async.settings").addHandler(logging.NullHandler())
    note(words_of(taken))


_TOLD: set[str] = set()  # files and profiles of which this process has told


def names_service(profile: str | None) -> bool:
    """Return whether the option *profile*, the environment or a file says which service is meant."""
    from invsvc_async.profiles import FILE

    if profile is not None:
        return True
    named = ("INVSVC_BASE_URL", "INVSVC_PROFILE", "INVSVC_CONFIG")
    if any(map(os.environ.get, named)):
        return True
    return Path(FILE).exists()


@attrs.frozen(kw_only=True)
class Calling:
    """The options of commands that call the service."""

    profile: Profile = None
    team: Annotated[str | None, option("Act on this team (Connect).", "ID")] = None

    def client(self, **settings: Unpack[ClientSettings]) -> Client:
        """Create the client of these options and the environment. Only *settings* give it a journal."""
        from invsvc_async.client import Client, arguments_with
        from invsvc_async.profiles import profile_of

        if (taken := profile_of(os.environ, self.profile)) is not None:
            _tell_of_file(taken)
        given: ClientSettings = {"journal": None, **settings}
        client = Client(**arguments_with(taken, given))
        if self.team is None:
            return client
        return client.for_team(self.team)

    @property
    def core(self) -> ClientCore:
        """The core of a client that is never opened: the address, the credential and the clock."""
        from invsvc_async.client import options_of

        return options_of(self.client()).core


@attrs.frozen
class SendingOptions(Calling):
    """The options of commands that send stored writes."""

    rate: Annotated[
        float | None, number(float, "Sends per second, evenly spaced.", least=0.001)
    ] = None
    per_team: Annotated[
        int | None,
        number(int, "Maximum writes of one team in flight in this process.", least=1),
    ] = None
    secrets_to: Annotated[
        Path | None, option("Write webhook secrets here (mode 0600).", "FILE")
    ] = None
    no_secrets: Annotated[bool, option("Throw the secrets of new webhooks away.")] = (
        False
    )
    same_mode: Annotated[
        bool, option("The credential is new, but has the same team and data mode.")
    ] = False
    restored: Annotated[
        bool,
        option("The journal is an older copy: settle first what may have been sent."),
    ] = False
    moved: Annotated[
        bool, option("The journal is complete, although it was moved.")
    ] = False

    @property
    def settings(self) -> dict[str, Any]:  # Any: as the parameters
        """Those that are arguments of ``Batch.open`` and ``Outbox.open``, too."""
        return attrs.asdict(self, filter=lambda field, _: field.name not in _OWN)

    def check_secrets(self, *, may_create: bool) -> None:
        """Check, before anything is sent, that secrets of new webhooks have a place, or are not wanted."""
        if self.secrets_to is not None and self.no_secrets:
            raise misuse("use either --secrets-to or --no-secrets")
        if may_create and self.lacks_place_for_secrets:
            raise misuse(
                "nothing was sent. Writes may create webhooks, whose secrets are returned only once. Use "
                "--secrets-to FILE to store them, or --no-secrets to throw them away."
            )

    @property
    def lacks_place_for_secrets(self) -> bool:
        """Whether nothing says what becomes of the secrets of new webhooks."""
        return self.secrets_to is None and not self.no_secrets

    def client_for(self, concurrency: int) -> Client:
        """Return a client whose limit leaves room for settling reads beside the writes."""
        return self.client(max_concurrency=concurrency + max(10, concurrency // 4))

    # Any: a Webhook
    async def secret_sink(self, stack: AsyncExitStack) -> Callable[[str, Any], Any]:
        """Return the callback that receives the secrets of new webhooks."""
        # checked before: there are none, or they are not wanted
        if self.secrets_to is None:
            from invsvc_async.batch.item import discard_secret

            return discard_secret
        from invsvc_async.cli.secrets_file import SecretsFile

        return (await stack.enter_async_context(SecretsFile(self.secrets_to))).take


def confirm(question: str) -> None:
    """Ask before a delete if stdin and stderr are a terminal; a "no" ends the command."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        with interruptible(signal.default_int_handler):
            typer.confirm(question, abort=True, err=True)


def check_url(url: str, option: str, *, insecure: bool) -> None:
    """Check that events and their secrets can be sent to *url*, the value of *option*."""
    if not _is_http(url):
        raise misuse("must be an http(s) URL", option)
    if is_insecure(url) and not insecure:
        raise misuse(
            "is plain HTTP to another machine. Use https, or --allow-insecure-http",
            option,
        )


def _is_http(url: str) -> bool:
    """Return whether *url* is an address of HTTP or HTTPS."""
    with suppress(ValueError):  # whose text may be a part of a password
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            return False
        if not parts.hostname:
            return False
        return parts.port != 0
    return False


def is_insecure(url: str) -> bool:
    """Return whether a valid *url* is plain HTTP to another machine."""
    from invsvc_async.client import LOOPBACK

    parts = urlsplit(url)
    if parts.scheme != "http":
        return False
    return not re.fullmatch(LOOPBACK, parts.hostname or "")


def _fault_plan(text: str) -> str:
    from invsvc_async.simulator import Faults

    try:
        Faults.parse(text)
    except ValueError as error:
        raise misuse(str(error)) from error
    return text


FAULTS = "rate=0.25,reads=0.1,late=0.5,hang=2"
_PLAN = "A fault plan, such as rate=0.2,kinds=500+reset."
_STORES = "How it stores what it is sent, such as words=nfc+trimmed,partly=0.1."


def _stores_plan(text: str) -> str:
    from invsvc_async.simulator import Stores

    try:
        Stores.parse(text)
    except ValueError as error:
        raise misuse(str(error)) from error
    return text


StoresPlan = Annotated[str, option(_STORES, "PLAN", callback=_stores_plan)]
FaultPlan = Annotated[str, option(_PLAN, "PLAN", callback=_fault_plan)]
