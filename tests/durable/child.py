"""
Make one write through a client with a journal, in a process that is there to be killed or stopped.

    python -m tests.durable.child BASE_URL API_KEY JOURNAL OPERATION ARGUMENTS [SIGNAL PLACE]

ARGUMENTS are JSON; a key among them is that of the write.  The process sends the SIGNAL to itself the first time that it
comes to the PLACE.  It prints the outcome, or the journal's error.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from invsvc_async import ApiKey, Client, JournalError, ReconcilePolicy, Timeouts
from invsvc_async.durable.journal import ClientJournal
from invsvc_async.durable.keyed_run import KeyedRun
from invsvc_async.resources.by_name import as_write
from tests.support.children import gone_after, started

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator
    from pathlib import Path

    from invsvc_async.simulator import Simulator

POLICY = ReconcilePolicy(settle_after_error=0.1, settle_after_loss=0.2, deadline=30.0)
PLACES = {  # a method, and whether it is before it or after it
    "before the socket": ("sending", False),
    "before the verdict": ("settled", True),
    "after the verdict": ("settled", False),
}


@asynccontextmanager
async def process(
    service: Simulator,
    journal: Path | str,
    operation: str,
    at: str = "",
    **arguments: object,
) -> AsyncIterator[Process]:
    """Run such a process until the block ends; *at* is a signal and a place."""
    rest = json.dumps(arguments), *at.split(" ", 1)
    child = await started(
        "tests.durable.child",
        service.base_url,
        service.api_key,
        journal,
        operation,
        *rest,
    )
    async with gone_after(child):
        yield child


def signal_at(kind: type, number: int, place: str) -> None:
    """Send the signal *number* at *place* in the writes of *kind*."""
    name, is_before = PLACES[place]
    real, left = getattr(kind, name), [number]

    async def noted(*arguments: object) -> object:
        if is_before and left:
            os.kill(os.getpid(), left.pop())
        result = await real(*arguments)
        if left:
            os.kill(os.getpid(), left.pop())
        return result

    setattr(kind, name, noted)


async def main(
    url: str,
    key: str,
    journal: str,
    operation: str,
    given: str,
    which: str = "",
    at: str = "",
) -> int:
    arguments = json.loads(given)
    key_of_write = arguments.pop("key", None)
    if at:
        signal_at(
            ClientJournal if key_of_write is None else KeyedRun,
            signal.Signals[which],
            at,
        )
    times = {"reconcile": POLICY, "timeout": Timeouts(attempt=4.0)}
    async with Client(url, ApiKey(key), journal=journal, **times) as client:
        write = as_write(client, operation, arguments)
        try:
            outcome = await (
                write if key_of_write is None else write.keyed(key_of_write)
            ).outcome()
        except JournalError as error:
            print(error)  # noqa: T201 - read by the test
            return 1
    print(outcome.verdict, outcome.replayed, outcome.secret)  # noqa: T201 - the same
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
