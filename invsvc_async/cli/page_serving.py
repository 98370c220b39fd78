"""Serving a page to people at this machine, until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from invsvc_async.cli.options import misuse
from invsvc_async.cli.output import tell_at_once
from invsvc_async.cli.signals import stopping

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.simulator.loopback_page import Data, Page

_SCREENS: Final = ("DISPLAY", "WAYLAND_DISPLAY")  # variables of the environment


def has_screen() -> bool:
    """Return whether a browser would have a window of its own."""
    return sys.platform in {"darwin", "win32"} or any(map(os.environ.get, _SCREENS))


async def serve_page(
    page: Page,
    data: Data,
    *,
    port: int,
    open_: bool,
    addresses: Callable[[str], dict[str, str]],
    words: Callable[[str], str],
    **more: Any,  # Any: those of `serving_page`
) -> None:
    """
    Serve *page* until the command is told to stop; with *open_*, open it if there is a screen.

    Its address is printed in *words*, or with ``--json`` as the *addresses* made of it.
    """
    import webbrowser

    from invsvc_async.simulator.loopback_page import serving_page

    try:
        async with serving_page(page, data, port=port, **more) as address:
            is_json = tell_at_once(addresses(address), words(address))
            # a browser for terminals would take over this one
            if open_ and has_screen() and not is_json:
                await asyncio.to_thread(webbrowser.open, address)
            with stopping() as stopped:
                await stopped.wait()
    except OSError as error:
        raise misuse(
            f"--port: {error.strerror or error}. Use another one, or 0."
        ) from error
