"""
Write through a client with an outbox, in a process that is there to be killed.

    python -m tests.hardening.outbox_child BASE_URL API_KEY JOURNAL TOLD FIRST COUNT

Takes up what was left first.  Each verdict is a line of TOLD before the outbox knows of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING

from invsvc_async import ApiKey, Client, ReconcilePolicy, Timeouts

if TYPE_CHECKING:
    from invsvc_async.session import DecisionReport

# No effect of the service comes later than these windows: what did, could rightly happen twice.
POLICY = ReconcilePolicy(settle_after_error=0.5, settle_after_loss=0.6, deadline=20.0)
AT_ONCE = 24


async def main(url: str, key: str, journal: str, told: str, first: str, count: str) -> None:
    file = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(report: DecisionReport) -> None:
        if report.decision == "done":
            os.write(file, json.dumps([report.key, report.verdict]).encode() + b"\n")

    numbers = iter(range(int(first), int(first) + int(count)))
    async with Client(
        url, ApiKey(key), journal=journal, timeout=Timeouts(attempt=1.0), reconcile=POLICY, on_decision=note
    ) as client:
        await client.recover()

        async def work() -> None:
            for number in numbers:
                name = f"row-{number}"
                await client.webhooks.update(f"wh_{number}", description=name).keyed(name).outcome()

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(work())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
