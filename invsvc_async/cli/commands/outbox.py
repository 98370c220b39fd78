"""``invsvc outbox``: send what applications have committed, and look after it."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from invsvc_async.cli.commands.report import report
from invsvc_async.cli.commands.stores import OUTBOX, Place, attach
from invsvc_async.cli.commands.upkeep import drop, prune, retry
from invsvc_async.cli.commands.views import list_, show
from invsvc_async.cli.options import (
    Json,
    Moved,
    NoSecrets,
    Profile,
    Rate,
    Restored,
    SameCredential,
    SecretsFile,
    Team,
    check_outputs,
    check_secrets,
    client_of,
    handled,
    stop_signals,
)
from invsvc_async.cli.output import emit_json, note
from invsvc_async.concurrency.event_loop import until_done

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["app"]

app: typer.Typer = typer.Typer(
    add_completion=False, rich_markup_mode="markdown", no_args_is_help=True,
    help="Send the writes that applications have committed to an outbox, and look after them.",
)  # fmt: skip


@app.command()
def work(
    place: Place,
    *,
    concurrency: Annotated[int, typer.Option(min=1, help="Maximum writes in flight.")] = 100,
    rate: Rate = None,
    secrets_to: SecretsFile = None,
    no_secrets: NoSecrets = False,
    same_mode: SameCredential = False,
    restored: Restored = False,
    moved: Moved = False,
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


attach(app, OUTBOX, list_, show, report, retry, drop, prune)
