"""
Measure the time from the commit of an enqueued write to the first byte of its request.

    python -m benchmarks.bench_first_byte [WRITES]

For each database and driver of the application, one write after the other is enqueued and committed, while a
dispatcher in the same process sends.  The time begins when the driver's commit has returned, and ends when
the first byte reaches the server.  The exit status is 1 if a median is 20 ms or more.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invsvc_async import ApiKey, Client, Outbox
from invsvc_async.simulator import Simulator
from tests.outbox.conftest import CONNECTIONS, outbox_at
from tests.support.door import Door

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

_TARGET = 20.0  # ms


async def measured(
    place: str, connected: AbstractAsyncContextManager[Any], writes: int
) -> list[float]:
    """Return the times of *writes* writes, in ms."""
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(Simulator(seed=1))
        begun = asyncio.Queue[float]()

        async def note(piece: bytes) -> bool:
            if piece.startswith(b"PUT "):
                begun.put_nowait(time.perf_counter())
            return True

        door = Door(service, note)
        await door.open()
        stack.push_async_callback(door.shut)
        client = await stack.enter_async_context(
            Client(door.base_url, ApiKey(service.api_key))
        )
        outbox = await stack.enter_async_context(Outbox.open(place, client))
        connection, transaction = await stack.enter_async_context(connected)
        await stack.enter_async_context(outbox.dispatching())
        times = []
        for number in range(writes + 10):
            hook = service.seed_webhook().id
            async with transaction():
                await outbox.enqueue(
                    connection, client.webhooks.update(hook, description=str(number))
                )
            committed = time.perf_counter()
            times.append(1000 * (await begun.get() - committed))
            await asyncio.sleep(0.01)  # each write alone
        return times[10:]  # without those that connect


async def main(writes: int) -> int:
    """Measure all and print a table."""
    kept = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, connect) in enumerate(CONNECTIONS.items()):
            file = (
                str(Path(folder) / f"app{number}.db") if "aiosqlite" in name else None
            )
            times = await measured(
                file or outbox_at(f"first{number}"), connect(file), writes
            )
            database = "SQLite" if file else "PostgreSQL"
            median, p90 = (
                statistics.median(times),
                statistics.quantiles(times, n=10)[-1],
            )
            kept.append(median < _TARGET)
            print(
                f"{database:10}  {name:26}  median {median:6.1f} ms  p90 {p90:6.1f} ms",
                flush=True,
            )
    print(f"{sum(kept)} of {len(kept)} medians are below {_TARGET:g} ms")
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)))
