"""
One process that dispatches an outbox, and stops itself in the middle of three writes.

    python -m tests.outbox.stopped BASE_URL API_KEY ADDRESS

The keys of the writes name the points.  Once all three are there, the process stops (SIGSTOP).  Continued, it
dispatches until the write "last" is done, lets its own end, and exits.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from invsvc_async import ApiKey, Client, Outbox, ReconcilePolicy
from invsvc_async.outbox import dispatch
from invsvc_async.outbox.dispatch import OutboxItem
from invsvc_async.simulator.ledger import SENDER
from tests.support.waiting import until

POINTS = ("before the journal", "before the socket", "before the verdict")
POLICY = ReconcilePolicy(settle_after_error=0.1, settle_after_loss=0.2, deadline=30.0)


class Points:
    """Where the process stops, once."""

    def __init__(self) -> None:
        self.missing = set(POINTS)
        self.over = asyncio.Event()

    async def meet(self, point: str) -> None:
        self.missing.discard(point)
        if not self.missing and not self.over.is_set():
            os.kill(os.getpid(), signal.SIGSTOP)
            self.over.set()
        await self.over.wait()


class Slow:
    """The lane of an item, whose first put comes after the process was stopped."""

    def __init__(self, lane, points) -> None:
        self.lane, self.points = lane, points

    def __getattr__(self, name):
        return getattr(self.lane, name)

    def put(self, entry, left=None):
        return asyncio.ensure_future(self._later(entry, left))

    async def _later(self, entry, left):
        await self.points.meet("before the journal")
        await self.lane.put(entry, left)


async def main(url, key, address):
    points = Points()

    class Stopping(OutboxItem, kw_only=True, eq=False):
        async def sending(self, intent):
            if self.entry.key == "before the journal" and not points.over.is_set():
                self.lane = Slow(self.lane, points)
            await super().sending(intent)
            if self.entry.key == "before the socket":
                await points.meet(self.entry.key)

        async def settled(self, outcome):
            if self.entry.key == "before the verdict":
                await points.meet(self.entry.key)
            await super().settled(outcome)

    dispatch.OutboxItem = Stopping
    client = Client(url, ApiKey(key), reconcile=POLICY, headers={SENDER: "stopped"})
    async with (
        client,
        Outbox.open(address, client) as outbox,
        outbox.dispatching(grace=60.0),
    ):
        await points.over.wait()
        await until(lambda: outbox.get("last"), every=0.05)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
