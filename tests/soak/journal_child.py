"""
Write through a client with a journal, in a process that is there to be killed.

    python -m tests.soak.journal_child BASE_URL API_KEY JOURNAL TOLD FIRST COUNT

Recovers what was left, and writes meanwhile.  Each verdict is written to TOLD once an ``await`` of this program has returned it,
as any application would note it: key, verdict with its reason, and whether it came live, was found out after a kill, or was
kept by the journal.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING

from invsvc_async import ApiKey, Client, ReconcilePolicy, Timeouts
from tests.soak.reasons import plain_of
from tests.support.naming import named

if TYPE_CHECKING:
    from invsvc_async import Outcome

# No effect of the service comes later than these windows: what did, could rightly happen twice.
POLICY = ReconcilePolicy(settle_after_error=0.5, settle_after_loss=0.6, deadline=20.0)
AT_ONCE = 24


async def main(
    url: str, key: str, journal: str, told: str, first: str, count: str
) -> None:
    file = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def tell(outcome: Outcome[object], how: str) -> None:
        key = outcome.started_as.key
        os.write(file, json.dumps([key, plain_of(outcome), how]).encode() + b"\n")

    numbers = iter(range(int(first), int(first) + int(count)))
    async with Client(
        url,
        ApiKey(key),
        journal=journal,
        timeout=Timeouts(attempt=1.0),
        reconcile=POLICY,
    ) as client:

        async def recover() -> None:
            for outcome in await client.recover():
                tell(outcome, "found out" if outcome.history else "kept")

        async def work() -> None:
            for number in numbers:
                name = f"row-{number}"
                write = named(
                    client.webhooks.update(f"wh_{number}", description=name), name
                )
                tell(await write.outcome(), "live")

        async with asyncio.TaskGroup() as group:
            # meanwhile: it may need longer than there is until the kill
            group.create_task(recover())
            for _ in range(AT_ONCE):
                group.create_task(work())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
