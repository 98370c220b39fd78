"""``invsvc write``: send one write and print its outcome; store the intent if it stays open."""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer

from invsvc_async.api.operations import BY_NAME, Kind
from invsvc_async.cli.arguments import complete_argument, complete_operation
from invsvc_async.cli.options import (
    Calling,
    SecretsTo,
    Story,
    Yes,
    check_outputs,
    confirm,
    handled,
    interruptible,
    unhandled,
)
from invsvc_async.cli.output import note
from invsvc_async.concurrency.event_loop import until_done

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from invsvc_async.cli.waiting import WaitingForWrite
    from invsvc_async.client import Client
    from invsvc_async.errors import JournalError
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.writes.write import Write

__all__ = ["command", "finish"]

What = Annotated[
    str | None,
    typer.Argument(
        metavar="WHAT",
        help="A write, such as webhooks.create.",
        autocompletion=complete_operation(Kind.WRITE),
    ),
]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ID | NAME=VALUE",
        help="Its id and arguments; NAME:=JSON for JSON values.",
        autocompletion=complete_argument,
    ),
]
File = Annotated[
    typer.FileBinaryRead | None,
    typer.Option(metavar="FILE", help='One write: {"operation", "arguments"}; - is stdin.'),
]


def command(
    what: What = None,
    words: Words = None,
    *,
    file: File = None,
    secrets_to: SecretsTo = Path("invsvc-secrets.jsonl"),
    yes: Yes = False,
    story: Story = None,
    calling: Calling,
) -> None:
    """
    Send one write: `invsvc write webhooks.create url=https://me.example/in events=invoice.created`.

    Prints the verdict and the story.  Exits with 0 if the write was applied, 3 if the result is unknown,
    and 1 otherwise; also with 1 if a webhook's secret could not be stored.  Asks before a delete on a
    terminal.

    If the result stays open, or on Ctrl-C and SIGTERM, the intent is stored in a file for `invsvc settle`.
    A kill (SIGKILL) leaves no file: use `invsvc batch` with a file of one line if that may happen.
    """
    if (what is None) == (file is None):
        raise typer.BadParameter("give either an operation with arguments, or --file")

    with interruptible():  # the pipe may give nothing
        content = None if file is None else file.read()
    check_outputs({"--secrets-to": secrets_to, "--story": story}, input=None if file is None else file.name)

    def make(client: Client) -> Write[Any]:
        write = (
            _from_words(client, what or "", words or []) if content is None else _from_file(client, content)
        )
        if not yes:
            confirm_delete(write)
        return write

    finish(make, calling, secrets_to, story)


def finish(
    make: Callable[[Client], Write[Any]], calling: Calling, secrets_to: Path, story: Path | None
) -> None:
    """Send the write that *make* returns, print its outcome, and end the command with the exit code."""
    from invsvc_async.cli.outcome_output import exit_code_of, print_outcome

    show = partial(print_outcome, as_json=calling.json_, story=story)
    try:
        outcome, lost = until_done(_send(make, calling, secrets_to, show), short=True)
    except asyncio.CancelledError:  # a signal that ends processes interrupts it as Ctrl-C does
        raise KeyboardInterrupt from None
    if lost is not None:
        raise lost
    raise typer.Exit(exit_code_of(outcome))


def confirm_delete(write: Write[Any]) -> None:
    """Ask on a terminal before a delete; a "no" ends the command."""
    intent = write.intent
    if BY_NAME[intent.operation].method != "DELETE":
        return
    things = " ".join(intent.path.values())
    team = f" of team {intent.scope.team}" if intent.scope.team else ""
    try:
        confirm(f"{intent.operation} {things}{team}: delete it?")
    except typer.Abort:
        write.close()
        raise


async def _send(
    make: Callable[[Client], Write[Any]],
    calling: Calling,
    secrets_to: Path,
    show: Callable[[Outcome[Any]], None],
) -> tuple[Outcome[Any], JournalError | None]:
    """
    Send the write that *make* returns, and *show* its outcome.

    Also return the error if its secret could not be stored.
    """
    from invsvc_async.cli.outcome_output import store_unsettled
    from invsvc_async.cli.waiting import WaitingForWrite

    waiting, task = WaitingForWrite(), asyncio.current_task()
    assert task is not None
    async with calling.client(on_decision=waiting.on_decision) as client:
        write = make(client)
        known: list[Outcome[Any]] = []
        # So that its intent is stored, or its verdict shown.  The latter is sent when a terminal is closed.
        with handled(unhandled("SIGTERM", "SIGHUP"), task.cancel):
            try:
                outcome, lost = await _sent(write, client, waiting, secrets_to, known)
            except asyncio.CancelledError:
                for each in known:  # interrupted later, for example while the secret was stored
                    note(f"interrupted; {each.intent.operation}: {each.verdict}: {each.message}")
                if not (known or client.unsettled):
                    note("interrupted; no write is in flight")
                raise
            finally:
                write.close()
                store_unsettled(client, calling.profile)
            show(outcome)
        return outcome, lost


async def _sent(
    write: Write[Any], client: Client, waiting: WaitingForWrite, secrets_to: Path, known: list[Outcome[Any]]
) -> tuple[Outcome[Any], JournalError | None]:
    """Send *write*, append its outcome to *known* as soon as there is one, and store its secret."""
    from invsvc_async.cli.secrets_file import SecretsFile
    from invsvc_async.errors import JournalError

    may_have_secret = write.intent.operation == "webhooks.create"
    # Opened before the write is sent.
    async with SecretsFile(secrets_to) if may_have_secret else nullcontext() as secrets:
        with waiting.shown(client):
            outcome = await write.outcome()
        known.append(outcome)
        if secrets is not None and getattr(outcome.value, "secret", None) is not None:
            try:
                await secrets.take(outcome.intent.key, outcome.value)
            except JournalError as error:
                return attrs.evolve(outcome, secret="lost"), error
            outcome = attrs.evolve(outcome, secret="delivered")
            note(f"its secret, which is returned only once, is in {secrets_to}, readable only by you")
    return outcome, None


def _from_words(client: Client, what: str, words: Sequence[str]) -> Write[Any]:
    from invsvc_async.cli.arguments import arguments_of, operation_of
    from invsvc_async.resources.by_name import as_write

    operation = operation_of(what, Kind.WRITE)
    return as_write(client, operation.name, arguments_of(operation, words))


def _from_file(client: Client, content: bytes) -> Write[Any]:
    from invsvc_async.errors import InvalidRequestError

    lines = [line for line in content.removeprefix(BOM_UTF8).splitlines() if line.strip()]
    if len(lines) != 1:
        several = f"{len(lines)} writes. Use `invsvc batch` for several" if lines else "it has no write"
        raise InvalidRequestError(f"--file: {several}")
    return client.write_from(lines[0])
