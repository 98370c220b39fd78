"""
Run a batch in a process that is there to be killed.

    python -m tests.batch.child BASE_URL API_KEY JOURNAL FILE CONCURRENCY [TRANSITION NUMBER]

FILE "-" is a worker, which waits for work.  With a transition it kills itself, the NUMBER-th time that it
comes there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from functools import partial, wraps

from invsvc_async import ApiKey, Client, ReconcilePolicy, Timeouts
from invsvc_async.batch import Batch
from invsvc_async.batch.item import Item, ItemOptions

TRANSITIONS = {  # name: (class, method, before it or after)
    "before it is stored": (Item, "sending", "before"),
    "stored and not sent": (Item, "sending", "after"),
    "answered": (ItemOptions, "_in_slot", "after"),
    "before it is done": (Item, "settled", "before"),
    "done": (Item, "settled", "after"),
}
# Late effects of the service land within 0.15 s: well inside the windows, on a busy machine too.
POLICY = ReconcilePolicy(settle_after_error=0.5, settle_after_loss=0.6, deadline=20.0)
ATTEMPT = 3.0  # s: an answer that is only slow, on a busy machine, is no lost answer


def die_at(transition: str, number: int) -> None:
    """Kill this process with SIGKILL, the *number*-th time that it comes to *transition*."""
    cls, name, when = TRANSITIONS[transition]
    original, left = getattr(cls, name), iter(range(number - 1, -1, -1))

    @wraps(original)
    async def dying(*arguments, **named):
        last = when == "before" and next(left, 1) == 0
        result = None if last else await original(*arguments, **named)
        if last or (when == "after" and next(left, 1) == 0):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(cls, name, dying)


async def main(url: str, key: str, journal: str, file: str, concurrency: str, *death: str) -> None:
    if death:
        die_at(death[0], int(death[1]))
    async with (
        Client(
            url, ApiKey(key), reconcile=POLICY, timeout=Timeouts(attempt=ATTEMPT), max_concurrency=64
        ) as client,
        Batch.open(
            journal, client, concurrency=int(concurrency), on_secret=lambda _key, _hook: None
        ) as batch,
    ):
        async for _ in batch.work() if file == "-" else batch.run(file):
            pass


if __name__ == "__main__":
    asyncio.run(partial(main, *sys.argv[1:])())
