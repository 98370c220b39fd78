"""
Jobs of procrastinate whose writes have one effect, however often it runs them.

``INVSVC_BASE_URL=… INVSVC_API_KEY=… DATABASE=postgresql://… python -m
examples.procrastinate_tasks`` runs a worker.

The jobs, the queue and the keys are in one database.  The key of a write is the id of its job.
"""

from __future__ import annotations

import asyncio
import os

from procrastinate import App, JobContext, PsycopgConnector, RetryStrategy

from invsvc_async import (
    AmbiguousWriteError,
    Client,
    JournalError,
    TransportError,
    Webhook,
    WriteNotAppliedError,
)

DATABASE = os.environ["DATABASE"]
app = App(connector=PsycopgConnector(conninfo=DATABASE))
again = RetryStrategy(
    max_attempts=20,
    exponential_wait=2,
    retry_exceptions=(
        AmbiguousWriteError,
        JournalError,
        TransportError,
        WriteNotAppliedError,
    ),
)
client: Client  # of this worker


def keep_secret(key: str, webhook: Webhook) -> None:
    """Store the secret of a new webhook, before its verdict is stored."""


@app.task(pass_context=True, retry=again)
async def register(context: JobContext, url: str) -> str:
    """Create a webhook, and return its id."""
    write = client.webhooks.create(url=url, events=["invoice.created"])
    return (await write.keyed(f"job-{context.job.id}")).id


@app.periodic(cron="* * * * *")
@app.task(queueing_lock="again")
async def run_again(timestamp: int) -> None:
    """Give the jobs of workers that were killed to others."""
    del timestamp
    for job in await app.job_manager.get_stalled_jobs():
        await app.job_manager.retry_job(job)


async def main() -> None:
    """Run a worker."""
    global client
    journal = os.environ.get("INVSVC_JOURNAL", DATABASE)
    async with (
        Client.from_env(journal=journal, on_secret=keep_secret) as client,
        app.open_async(),
    ):
        await app.run_worker_async(concurrency=4, listen_notify=True)


if __name__ == "__main__":
    asyncio.run(main())
