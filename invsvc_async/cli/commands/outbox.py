"""``invsvc outbox``: send what applications have committed, and look after it."""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path  # noqa: TC003 - typer reads the types
from typing import TYPE_CHECKING, Annotated, Any

import typer

from invsvc_async.cli.options import (
    Json,
    NoSecrets,
    Profile,
    SecretsFile,
    Team,
    Yes,
    check_outputs,
    check_secrets,
    client_of,
    confirm,
    handled,
    stop_signals,
)
from invsvc_async.cli.output import DONE, FAILED, console, emit_json, fail, note, print_facts, table
from invsvc_async.concurrency.event_loop import until_done
from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from invsvc_async.durable.entry import Entry
    from invsvc_async.outbox import Outbox

__all__ = ["app"]

Place = Annotated[str, typer.Argument(help="The outbox: postgresql://…, or the application's file.")]
SameMode = Annotated[
    bool, typer.Option("--same-mode", help="The credential is new, but has the same team and data mode.")
]

app: typer.Typer = typer.Typer(
    add_completion=False, rich_markup_mode="markdown", no_args_is_help=True,
    help="Send the writes that applications have committed to an outbox, and look after them.",
)  # fmt: skip


@app.command()
def work(
    place: Place,
    *,
    concurrency: Annotated[int, typer.Option(min=1, help="Maximum writes in flight.")] = 100,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Sends per second, evenly spaced.")] = None,
    secrets_to: SecretsFile = None,
    no_secrets: NoSecrets = False,
    same_mode: SameMode = False,
    restored: Annotated[
        bool,
        typer.Option("--restored", help="It is an older copy: settle what may have been sent first."),
    ] = False,
    moved: Annotated[
        bool, typer.Option("--moved", help="It is complete, although it is in another place.")
    ] = False,
    json_: Json = False,
    profile: Profile = None,
    team: Team = None,
) -> None:
    """
    Send what is committed, until interrupted.

    Several may run at once on PostgreSQL.  The verdicts stay for the application, which takes them with
    `outbox.results()`.  With --json it prints a line when it begins to send, and one when it stops.
    """
    check_outputs({"--secrets-to": secrets_to}, outbox=place)
    check_secrets(secrets_to, no_secrets=no_secrets, may_create=True)
    settings = {"rate": rate, "same_mode": same_mode, "restored": restored, "moved": moved}
    until_done(_work(place, concurrency, secrets_to, profile, team, settings, as_json=json_))


async def _work(
    place: str, concurrency: int, secrets_to: Path | None, profile: str | None, team: str | None,
    settings: dict[str, Any], *, as_json: bool,
) -> None:  # fmt: skip
    from invsvc_async.cli.commands.batch_run import secret_sink
    from invsvc_async.outbox import Outbox
    from invsvc_async.storage.address import is_postgres

    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(client_of(profile, team, max_concurrency=concurrency))
        take = await secret_sink(stack, secrets_to)
        creates = is_postgres(place)  # the application has created a file; a misspelt path is not a new one
        opened = Outbox.open(
            place, client, concurrency=concurrency, on_secret=take, create=creates, **settings
        )
        outbox = await stack.enter_async_context(opened)
        stopped, working = asyncio.Event(), asyncio.current_task()

        def stop() -> None:
            if stopped.is_set() and working is not None:
                working.cancel()  # what is in flight is settled by the next process
            stopped.set()

        try:
            with handled(stop_signals(), stop):
                async with outbox.dispatching():
                    _tell("sending", "sending what is committed; press Ctrl-C to leave", as_json=as_json)
                    await stopped.wait()
                    words = "stopping: writes in flight have 10 s to finish; press Ctrl-C again to stop now"
                    _tell("stopping", words, as_json=as_json)
        except asyncio.CancelledError:
            if not stopped.is_set():
                raise


def _tell(state: str, words: str, *, as_json: bool) -> None:
    if as_json:
        emit_json({"state": state})
        sys.stdout.flush()
    else:
        note(words)


@asynccontextmanager
async def _opened(
    place: str, profile: str | None, team: str | None, *, same_mode: bool, reading: bool = False
) -> AsyncGenerator[Outbox]:
    """Open the outbox, which must exist; with *reading*, also while another process has it."""
    from invsvc_async.outbox import Outbox

    async with (
        client_of(profile, team) as client,
        Outbox.open(place, client, same_mode=same_mode, create=False, reading=reading) as outbox,
    ):
        yield outbox


@app.command("list")
def list_(
    place: Place,
    *,
    state: Annotated[
        str | None, typer.Option(help="open, untold, applied, not-applied, refused, superseded or unknown.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
    same_mode: SameMode = False,
    json_: Json = False,
    profile: Profile = None,
    team: Team = None,
) -> None:
    """
    List writes, the oldest first.

    Works beside an application that has the file.  A write without a verdict is open.  It is untold while
    nobody has acknowledged its verdict: `on_result` has not had it yet, or has raised the error shown.
    """
    if state is not None:
        state = re.sub("[-_]", " ", state)
    if state not in (None, "open", "untold", *Verdict):
        raise typer.BadParameter(f"--state: must be open, untold, or one of {', '.join(Verdict)}")

    async def listed() -> list[dict[str, Any]]:  # Any: JSON values
        async with _opened(place, profile, team, same_mode=same_mode, reading=True) as outbox:
            errors = await outbox.untold()
            return [_plain(entry, errors) for entry in await outbox.entries(state=state, limit=limit)]

    found = until_done(listed())
    if json_:
        emit_json(found)
    else:
        rows = [(each["key"], each["operation"], each["state"], _untold(each)) for each in found]
        table(("key", "operation", "state", ""), rows)


@app.command()
def show(
    place: Place,
    key: Annotated[str, typer.Argument(help="The key of the write.")],
    *,
    same_mode: SameMode = False,
    json_: Json = False,
    profile: Profile = None,
    team: Team = None,
) -> None:
    """
    Show the verdict of one write.  Works beside an application that has the file.

    Exits with 0 if it is applied, 3 if the result is unknown, and 1 otherwise, also while it is open.
    """
    until_done(_show(place, key, profile, team, same_mode=same_mode, as_json=json_))


async def _show(
    place: str, key: str, profile: str | None, team: str | None, *, same_mode: bool, as_json: bool
) -> None:
    from invsvc_async.cli.outcome_output import exit_code_of

    async with _opened(place, profile, team, same_mode=same_mode, reading=True) as outbox:
        entry, outcome, errors = await outbox.entry(key), await outbox.get(key), await outbox.untold()
    if entry is None:
        fail(f"{key}: the outbox has no write under this key")
        raise typer.Exit(FAILED)
    plain = _plain(entry, errors)
    if outcome is not None:
        plain |= {"message": outcome.message, "error": None if outcome.error is None else str(outcome.error)}
    if as_json:
        emit_json(plain)
    else:
        print_facts(console(), [(name, str(value)) for name, value in plain.items() if value is not None])
    raise typer.Exit(FAILED if outcome is None else exit_code_of(outcome))


@app.command()
def retry(
    place: Place,
    keys: Annotated[list[str], typer.Argument(help="The keys of the writes.")],
    *,
    same_mode: SameMode = False,
    json_: Json = False,
    profile: Profile = None,
    team: Team = None,
) -> None:
    """
    Mark writes as to be done again, unless they are applied or open.  Unknown ones are settled first.

    Exits with 1 if none of them was marked.
    """

    async def marked() -> list[str]:
        async with _opened(place, profile, team, same_mode=same_mode) as outbox:
            return await outbox.retry(*keys)

    found = until_done(marked())
    for key in keys:
        if key not in found:
            fail(f"{key}: not marked: there is no such write, or it is applied or open")
    if json_:
        emit_json(found)
    else:
        note(f"{len(found):,} to be done again")
    raise typer.Exit(DONE if found else FAILED)


@app.command()
def drop(
    place: Place,
    key: Annotated[str, typer.Argument(help="The key of the write.")],
    *,
    same_mode: SameMode = False,
    yes: Yes = False,
    json_: Json = False,
    profile: Profile = None,
    team: Team = None,
) -> None:
    """
    Delete a write that was not sent yet, so that it is not sent, or one that has a verdict.

    Asks before on a terminal.  Exits with 1 if there is none, or if it may have been sent and has no verdict
    yet.
    """
    if not yes:
        confirm(f"outbox drop: delete {key}?")

    async def dropped() -> bool:
        async with _opened(place, profile, team, same_mode=same_mode) as outbox:
            return await outbox.drop(key)

    gone = until_done(dropped())
    if json_:
        emit_json({"key": key, "dropped": gone})
    if gone:
        if not json_:
            note(f"{key}: dropped")
        raise typer.Exit(DONE)
    fail(f"{key}: not dropped: there is no such write, or it may have been sent and has no verdict yet")
    raise typer.Exit(FAILED)


@app.command()
def prune(
    place: Place,
    *,
    days: Annotated[
        float, typer.Option(min=0, max=100_000, help="Delete what has had its verdict for so long.")
    ],
    unacknowledged: Annotated[
        bool, typer.Option("--unacknowledged", help="Also verdicts that nobody has acknowledged.")
    ] = False,
    same_mode: SameMode = False,
    json_: Json = False,
    profile: Profile = None,
    team: Team = None,
) -> None:
    """
    Delete finished writes.  Unknown ones and unacknowledged verdicts stay.

    A write under the key of a deleted one is sent as a new one.
    """

    async def pruned() -> int:
        async with _opened(place, profile, team, same_mode=same_mode) as outbox:
            return await outbox.prune(older_than=days * 86_400, unacknowledged=unacknowledged)

    count = until_done(pruned())
    if json_:
        emit_json({"deleted": count})
    else:
        note(f"{count:,} writes deleted")


def _plain(entry: Entry, errors: Mapping[str, str]) -> dict[str, Any]:  # Any: JSON values
    """Return *entry* as JSON values; *errors* are those of ``on_result``, by key."""
    plain = {"key": entry.key, "operation": entry.operation, "state": entry.verdict or "open"}
    if entry.verdict is None:
        return plain
    error = {} if entry.heard or entry.key not in errors else {"last_error": errors[entry.key]}
    return plain | {"told": entry.heard} | error


def _untold(plain: Mapping[str, Any]) -> str:  # Any: JSON values
    if plain.get("told", True):
        return ""
    return f"untold: {plain['last_error']}" if "last_error" in plain else "untold"
