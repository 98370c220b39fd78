"""
The simulator as a server for other processes.

Its only output is one line of JSON, from which a program can read where to connect.
"""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING

from invsvc_async.simulator.inspector import plan_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.simulator.service import Simulator

STOP = (signal.SIGINT, signal.SIGTERM)


async def serve(service: Simulator, *, announce: Callable[[str], None] = print) -> None:
    """Run *service* until SIGINT or SIGTERM.  `announce` is called with its address and keys as JSON."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in STOP:
        loop.add_signal_handler(number, stopped.set)
    try:
        async with service:
            announce(json.dumps(about(service)))
            await stopped.wait()
    finally:
        for number in STOP:
            loop.remove_signal_handler(number)


def about(service: Simulator) -> dict[str, str | list[str]]:
    """Return what a client needs (base URL, credentials, teams), the fault plan, and enabled pages."""
    return {
        "base_url": service.base_url,
        "api_key": service.api_key,
        "test_key": service.test_key,
        "oauth_token": service.oauth_token,
        "person_token": service.person_token,
        "teams": service.teams,
        "faults": plan_text(service.faults),
        **service.pages,
    }
