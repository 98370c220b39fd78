"""
The simulator as a server for other processes.

Its only output is one line of JSON, from which a program can read where to connect.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from typing import TYPE_CHECKING

from invsvc_async.simulator.faults import Faults
from invsvc_async.simulator.inspector import plan_text
from invsvc_async.simulator.service import Simulator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(
        prog="python -m invsvc_async.simulator", description="Serve the simulator."
    )
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--faults", default="none", help="for example rate=0.2,kinds=500+reset,reads=0.1,late=0.4"
    )
    parser.add_argument("--latency", type=float, default=0.0, help="seconds of work on each request")
    parser.add_argument("--at-once", type=int, default=None, help="requests worked on at once")
    parser.add_argument("--journey-reads", choices=("draft", "published", "off"), default="draft")
    parser.add_argument("--deliver", action="store_true", help="deliver events of its own writes")
    parser.add_argument("--admin", action="store_true", help="open /_simulator/")
    parser.add_argument("--inspect", action="store_true", help="serve a page that shows what arrives")
    chosen = parser.parse_args(arguments)
    try:
        service = Simulator(
            seed=chosen.seed, faults=Faults.parse(chosen.faults), latency=chosen.latency,
            at_once=chosen.at_once, journey_reads=chosen.journey_reads, deliver=chosen.deliver,
            host=chosen.host, port=chosen.port, admin=chosen.admin, inspect=chosen.inspect,
        )  # fmt: skip
    except ValueError as error:
        parser.error(str(error))
    asyncio.run(serve(service, announce=lambda line: print(line, flush=True)))  # noqa: T201 - its one line
