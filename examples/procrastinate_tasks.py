"""
Jobs of procrastinate whose writes have one effect, however often it runs them.

``PYTHONPATH=. INVSVC_BASE_URL=… INVSVC_API_KEY=… INVSVC_JOURNAL=postgresql://…
procrastinate --app=procrastinate_tasks.app schema --apply`` makes its tables, once;
``worker`` in the place of ``schema --apply`` runs a worker.
``await register.defer_async(url="https://me.example/17")`` submits a job.

The jobs, the queue and the keys are in one database. The key of a write is the id of
its job. Tasks have names, because the name of a module is another one where it is the
program.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from procrastinate import App, PsycopgConnector

from invsvc_async import Client
from invsvc_async.engines.procrastinate import AGAIN, KeyedJobs

if TYPE_CHECKING:
    from procrastinate import JobContext

    from invsvc_async import Webhook

DATABASE = os.environ.get("DATABASE") or os.environ["INVSVC_JOURNAL"]
app = App(connector=PsycopgConnector(conninfo=DATABASE))


def keep_secret(key: str, webhook: Webhook) -> None:
    """Store the secret of a new webhook, before its verdict is stored."""


def make_client() -> Client:
    """Make the client of a worker process."""
    journal = os.environ.get("INVSVC_JOURNAL", DATABASE)
    return Client.from_env(journal=journal, on_secret=keep_secret)


# Jobs of workers that were killed run again, once a minute.
keyed = KeyedJobs(app, make_client)


@app.task(name="register", pass_context=True, retry=AGAIN)
async def register(context: JobContext, url: str) -> str:
    """Create a webhook, and return its id."""
    write = keyed.client.webhooks.create(url=url, events=["invoice.created"])
    return (await keyed.send(context, write)).id


if __name__ == "__main__":
    app.run_worker(concurrency=4)
