"""Receive events on this machine: print, store, forward; never take one that nothing authenticates."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from invsvc_async.concurrency.event_loop import until_done

if TYPE_CHECKING:
    from invsvc_async.cli.commands.listen_app import Desk
    from invsvc_async.events import SharedHeader

__all__ = ["command"]


Secrets = Annotated[
    list[str] | None,
    typer.Option(envvar="INVSVC_WEBHOOK_SECRET", help="A webhook's secret, of signed events; repeatable."),
]
Header = Annotated[
    str | None,
    typer.Option(
        "--shared-header",
        envvar="INVSVC_SHARED_HEADER",
        metavar="NAME=VALUE",
        help="The secret header of resource events, as set in the dashboard.",
    ),
]
StoreFile = Annotated[
    Path | None,
    typer.Option(dir_okay=False, metavar="FILE", help="Add each event to this file, a line each."),
]
Replay = Annotated[
    Path | None,
    typer.Option(
        exists=True, dir_okay=False, metavar="FILE", help="Take the events of a --store file instead."
    ),
]
Forward = Annotated[
    str | None, typer.Option(metavar="URL", help="Send each event on; a failure is answered 500.")
]


def command(
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8765,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    secret: Secrets = None,
    header: Header = None,
    accept_unsigned: Annotated[
        bool, typer.Option("--accept-unsigned", help="Take what nothing authenticates.")
    ] = False,
    store: StoreFile = None,
    forward: Forward = None,
    replay: Replay = None,
    json_: Annotated[bool, typer.Option("--json", help="Print each event as one JSON object.")] = False,
) -> None:
    """
    Receive events: `invsvc listen --forward http://127.0.0.1:8000/events --store events.jsonl`.

    Events that are sent on are signed anew with the first secret and bear the shared header, so that an
    application verifies them as it will in earnest.  `--replay events.jsonl` sends stored ones again.

    Ctrl-C ends it.  Exits with 1 where a replayed event was not taken.
    """
    from invsvc_async.cli.commands.listen_app import Desk, replayed

    if replay is None and not (secret or header or accept_unsigned):
        raise typer.BadParameter(
            "nothing would authenticate an event: give --secret, --shared-header or --accept-unsigned"
        )
    desk = Desk(
        secrets=tuple(secret or ()),
        shared_header=_header(header),
        store=store,
        forward=forward,
        as_json=json_,
    )
    if replay is not None:
        failed = until_done(replayed(desk, replay))
        raise typer.Exit(1 if failed else 0)
    try:
        until_done(_listen(desk, host, port, accept_unsigned=accept_unsigned))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


async def _listen(desk: Desk, host: str, port: int, *, accept_unsigned: bool) -> None:
    from invsvc_async.cli.commands.listen_app import listening

    async with listening(desk, host=host, port=port, accept_unsigned=accept_unsigned) as url:
        sys.stderr.write(f"Listening on {url}; Ctrl-C ends it.\n")
        await asyncio.Event().wait()


def _header(text: str | None) -> SharedHeader | None:
    from invsvc_async.events import SharedHeader

    if text is None:
        return None
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter("give NAME=VALUE", param_hint="--shared-header")
    return SharedHeader(name, value)
