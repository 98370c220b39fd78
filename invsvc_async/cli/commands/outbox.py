"""``invsvc outbox``: send the writes that applications have committed.  The views are in ``stores``."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from textwrap import dedent
from typing import Annotated, Any

import typer

from invsvc_async.cli.commands.stores import attach
from invsvc_async.cli.files import check_outputs
from invsvc_async.cli.options import (
    Calling,
    CommandGroup,
    Concurrency,
    Profile,
    SendingOptions,
    names_service,
    number,
    option,
)
from invsvc_async.cli.output import as_json, emitted, note
from invsvc_async.cli.progress import store_progress
from invsvc_async.cli.signals import handled, stop_signals
from invsvc_async.cli.store_options import OUTBOX, Place, StoreOptions
from invsvc_async.errors import ConfigurationError
from invsvc_async.storage.address import is_postgres

outbox: CommandGroup = CommandGroup()


async def work(
    place: Place,
    *,
    concurrency: Concurrency = 100,
    sending: SendingOptions,
) -> None:
    """
    Send what is committed, until interrupted: `invsvc outbox work outbox.db --no-secrets`.

    Several may run at once on PostgreSQL.  The verdicts stay for the application, which takes them with
    `outbox.results()`.  It tells how many writes of the outbox are open and done; with --json it prints only
    a line when it begins to send, and one when it stops.
    """
    check_outputs({"--secrets-to": sending.secrets_to}, outbox=place)
    sending.check_secrets(may_create=True)
    from invsvc_async.outbox import Outbox

    stopped = asyncio.Event()
    working = asyncio.current_task()

    def stop() -> None:
        if stopped.is_set() and working is not None:
            working.cancel()  # what is in flight is settled by the next process
        stopped.set()

    def tell(state: str, words: str) -> None:
        if emitted({"state": state}):
            sys.stdout.flush()
        else:
            note(words)

    # The application has created a file; a misspelt path is not a new one.
    settings: dict[str, Any] = {
        "concurrency": concurrency,
        "create": is_postgres(place),
        **sending.settings,
    }
    at = StoreOptions(
        place=place,
        kind=OUTBOX,
        profile=sending.profile,
    )
    async with sending.client_for(concurrency) as client, AsyncExitStack() as stack:
        take = await sending.secret_sink(stack)
        outbox = await stack.enter_async_context(
            Outbox.open(place, client, on_secret=take, **settings)
        )
        try:
            with handled(stop_signals(), stop):
                async with store_progress(at), outbox.dispatching():
                    words = (
                        "sending what is committed; `invsvc outbox watch` shows more"
                    )
                    tell("sending", f"{words}; press Ctrl-C to leave")
                    await stopped.wait()
                    words = "stopping: writes in flight have 10 s to finish; press Ctrl-C again to stop now"
                    tell("stopping", words)
        except asyncio.CancelledError:
            if not stopped.is_set():
                raise
        if not as_json.get():
            note("stopped: the next process sends or settles what is open")


outbox.add(work, lacks="team")  # each write has its own


@outbox.add
def schema(
    place: Place,
    *,
    role: Annotated[
        str | None, option("Grant it what applications need.", "ROLE")
    ] = None,
    from_: Annotated[
        int | None,
        number(int, "Bring tables of this version up to date instead.", "N", least=1),
    ] = None,
    profile: Profile = None,
) -> None:
    """
    Print the SQL that creates an outbox in PostgreSQL, for applications that may not create tables.

    It is that of the base URL and credential of the environment or profile; without any, that of the first
    application that opens it.  Nothing is connected to:
    `invsvc outbox schema postgresql://db/shop --role shop | psql postgresql://admin@db/shop`.

    With --from, it prints the SQL for tables that an earlier version of the package made, whose number is in
    the error that refuses them.  Stop the processes that send before you run it.
    """
    if not is_postgres(place):
        raise ConfigurationError(
            f"outbox: {place} is a file. Its tables are made when it is first opened."
        )
    from invsvc_async.durable.store.opening import store_at
    from invsvc_async.durable.store.postgres import PostgresStore

    store = store_at(place, "outbox")
    assert isinstance(store, PostgresStore)
    schemas = store.schemas
    core = Calling(profile=profile).core if names_service(profile) else None
    if from_ is None:
        texts = schemas.definition(core)
    else:
        texts = schemas.upgrade_of(core, from_)
    statements = [dedent(each).strip() for each in texts]
    name = schemas.of_client(core)
    if role is not None:
        to = '"{}"'.format(role.replace('"', '""'))
        statements += [
            f"GRANT USAGE ON SCHEMA {name} TO {to}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {name} TO {to}",
            f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {name} TO {to}",
        ]
    if not emitted({"statements": statements}):
        typer.echo(
            "\n".join(["BEGIN;", *(f"{each};" for each in statements), "COMMIT;"])
        )


attach(outbox, OUTBOX)
