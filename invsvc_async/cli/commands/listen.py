"""``invsvc listen``: receive events on this machine; print, store and forward them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from invsvc_async.cli.options import InsecureHttp, Port, check_outputs, check_url, existing_file
from invsvc_async.concurrency.event_loop import until_done

if TYPE_CHECKING:
    from invsvc_async.cli.commands.listen_app import Listener
    from invsvc_async.events import SharedHeader

__all__ = ["command"]


Secrets = Annotated[
    list[str] | None,
    typer.Option(
        envvar="INVSVC_WEBHOOK_SECRET",
        metavar="SECRET",
        help="A webhook's secret, for signed events; repeatable.",
    ),
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
    typer.Option(dir_okay=False, metavar="FILE", help="Append each event to this file, one per line."),
]
Replay = Annotated[
    Path | None,
    typer.Option(
        callback=existing_file,
        metavar="FILE",
        help="Process the events of a --store file instead; - is standard input.",
    ),
]
Forward = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Forward each event to this URL; if that fails, the answer is 500."),
]


def command(
    *,
    port: Port = 8765,
    host: Annotated[str, typer.Option(help="Address to listen on.", metavar="ADDRESS")] = "127.0.0.1",
    secret: Secrets = None,
    header: Header = None,
    accept_unsigned: Annotated[
        bool, typer.Option("--accept-unsigned", help="Accept events that nothing authenticates.")
    ] = False,
    store: StoreFile = None,
    forward: Forward = None,
    insecure: InsecureHttp = False,
    replay: Replay = None,
    json_: Annotated[
        bool, typer.Option("--json", "--print-json", help="Print each event as one JSON object.")
    ] = False,
) -> None:
    """
    Receive events: `invsvc listen --forward http://127.0.0.1:8000/events --store events.jsonl`.

    Forwarded events are signed again with the first secret and have the shared header, so that the
    application verifies them as in production.  `--replay events.jsonl` forwards stored events again, and
    those that --print-json has printed.

    Stop it with Ctrl-C.  Exits with 1 if a replayed event was not accepted.
    """
    from invsvc_async.cli.commands.listen_app import Listener, lines_of, replayed

    if replay is None and not (secret or header or accept_unsigned):
        raise typer.BadParameter(
            "nothing authenticates events. Use --secret, --shared-header or --accept-unsigned"
        )
    if forward is not None:
        check_url(forward, "--forward", insecure=insecure)
    check_outputs({"--store": store})  # `invsvc events` has a --store that is a database
    listener = Listener(
        secrets=tuple(secret or ()),
        shared_header=_header(header),
        store=store,
        forward=forward,
        as_json=json_,
    )
    if replay is not None:
        lines = lines_of(replay)  # outside the event loop, so that Ctrl-C ends reading from a silent pipe
        failed = until_done(replayed(listener, replay, lines))
        raise typer.Exit(1 if failed else 0)
    try:
        until_done(_listen(listener, host, port, accept_unsigned=accept_unsigned))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


async def _listen(listener: Listener, host: str, port: int, *, accept_unsigned: bool) -> None:
    from invsvc_async.cli.commands.listen_app import listening

    async with listening(listener, host=host, port=port, accept_unsigned=accept_unsigned) as url:
        sys.stderr.write(f"Listening on {url}; press Ctrl-C to stop.\n")
        await asyncio.Event().wait()


def _header(text: str | None) -> SharedHeader | None:
    from invsvc_async.events import SharedHeader

    if text is None:
        return None
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter("must be NAME=VALUE", param_hint="--shared-header")
    return SharedHeader(name, value)
