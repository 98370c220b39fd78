"""The worker of ``examples/procrastinate_tasks.py``, with naive jobs beside; with a number it submits jobs."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from examples import procrastinate_tasks as example
from tests.engines.naive import create

app = example.app


@app.task(name="naive")
def naive(name: str) -> None:
    """Do the naive thing."""
    create(name)


async def give_again() -> None:
    """Do what the example does each minute, each second."""
    while True:
        await asyncio.sleep(1)
        with suppress(Exception):
            for job in await app.job_manager.get_stalled_jobs(
                seconds_since_heartbeat=2
            ):
                await app.job_manager.retry_job(job)


async def work() -> None:
    async with app.open_async():
        giving = asyncio.create_task(give_again())
        await app.run_worker_async(
            concurrency=4, update_heartbeat_interval=0.5, stalled_worker_timeout=2
        )
        giving.cancel()


async def submit(many: int) -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for number in range(many):
            await example.register.defer_async(url=f"https://k.example/order-{number}")
            await naive.defer_async(name=f"order-{number}")


if __name__ == "__main__":
    asyncio.run(submit(int(sys.argv[1])) if len(sys.argv) > 1 else work())
