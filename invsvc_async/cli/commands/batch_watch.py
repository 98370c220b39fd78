"""``invsvc batch watch``: a page that shows a batch while it runs, or after its end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import webbrowser
from typing import Annotated

import typer

from invsvc_async.cli.commands.stores import At, Kind
from invsvc_async.cli.options import Port, handled
from invsvc_async.cli.output import emit_json

__all__ = ["PAGE", "watch"]

PAGE = ("invsvc_async.cli", "batch_watch.html")
_STOP = (signal.SIGINT, signal.SIGTERM)


async def watch(
    kind: Kind,
    at: At,
    *,
    port: Port = 0,
    open_: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser, or only print its address.")
    ] = True,
) -> None:
    """
    Watch a batch on a page: `invsvc batch watch run.db`.  Stop with Ctrl-C.

    The page shows progress, rate, pauses, workers and failures.
    It only reads, so it can run beside the batch, and after its end.  The page answers only to this machine.
    """
    del kind
    from invsvc_async.batch.reports.live import Watch
    from invsvc_async.simulator.loopback_page import serving_page

    try:
        async with Watch(at.place) as batch, serving_page(PAGE, batch.data, port=port) as address:
            if at.json_:
                emit_json({"watch_url": address, "data_url": f"{address}data"})
            else:
                typer.echo(f"Watching {batch.name}; press Ctrl-C to stop.\n  watch_url   {address}")
                typer.echo(f"  data_url    {address}data (what the page reads, as JSON)")
            sys.stdout.flush()
            if open_ and not at.json_ and _has_screen():
                await asyncio.to_thread(webbrowser.open, address)
            await _interrupted()
    except OSError as error:
        raise typer.BadParameter(f"--port: {error.strerror or error}. Use another one, or 0.") from error


def _has_screen() -> bool:
    """Return whether a browser would open a window; one for terminals would take over this one."""
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.platform in {"darwin", "win32"} or bool(display)


async def _interrupted() -> None:
    """Wait for a signal to stop."""
    stopped = asyncio.Event()
    with handled(_STOP, stopped.set):
        await stopped.wait()
