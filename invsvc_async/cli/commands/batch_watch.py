"""``invsvc batch watch``: a page that shows a batch while it runs, or after its end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
import webbrowser
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from invsvc_async.cli.commands.stores import At, Kind
from invsvc_async.cli.options import Port, handled
from invsvc_async.cli.output import emit_json
from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from invsvc_async.batch.reports.live import Watch

__all__ = ["watch", "watching"]

_PAGE = ("invsvc_async.cli", "batch_watch.html")
_EVERY = 1.0  # s between readings of the journal, however many pages are open
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
    try:
        async with watching(at.place, port) as (name, address):
            if at.json_:
                emit_json({"watch_url": address, "data_url": f"{address}data"})
            else:
                typer.echo(f"Watching {name}; press Ctrl-C to stop.\n  watch_url   {address}")
                typer.echo(f"  data_url    {address}data (what the page reads, as JSON)")
            sys.stdout.flush()
            if open_ and not at.json_ and _has_screen():
                await asyncio.to_thread(webbrowser.open, address)
            await _interrupted()
    except OSError as error:
        raise typer.BadParameter(f"--port: {error.strerror or error}. Use another one, or 0.") from error


@asynccontextmanager
async def watching(journal: str, port: int = 0) -> AsyncGenerator[tuple[str, str]]:
    """
    Serve the page of a batch; yields the journal's name and the page's address.

    Raises:
        JournalError: The journal cannot be read.
        OSError: The port is taken.

    """
    from invsvc_async.batch.reports.live import Watch
    from invsvc_async.simulator.loopback_page import serving_page

    async with Watch(journal) as watch, serving_page(_PAGE, Readings(watch).data, port=port) as address:
        yield watch.name, address


def _has_screen() -> bool:
    """Return whether a browser would open a window; one for terminals would take over this one."""
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.platform in {"darwin", "win32"} or bool(display)


async def _interrupted() -> None:
    """Wait for a signal to stop."""
    stopped = asyncio.Event()
    with handled(_STOP, stopped.set):
        await stopped.wait()


class Readings:
    """The state of a batch as JSON, read at most once a second."""

    def __init__(self, watch: Watch) -> None:
        self.name: str = watch.name
        self._watch = watch
        self._reading = asyncio.Lock()
        self._read_at = 0.0
        self._latest: dict[str, Any] = {}  # Any: JSON values

    async def data(self, _query: Mapping[str, str]) -> Any:  # Any: JSON values
        """Return the latest state, or ``problem`` if the journal cannot be read now."""
        async with self._reading:
            if not self._latest or time.monotonic() - self._read_at >= _EVERY:
                try:
                    self._latest = await self._watch.read()
                except JournalError as error:
                    self._latest = {"name": self.name, "problem": str(error)}
                self._read_at = time.monotonic()
        return self._latest
