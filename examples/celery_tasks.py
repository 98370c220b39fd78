"""
Celery tasks whose writes have one effect, however often Celery runs them.

With this package and its extra ``postgres``, ``celery[redis]``, and Redis running (``BROKER``):
``INVSVC_BASE_URL=… INVSVC_API_KEY=… INVSVC_JOURNAL=postgresql://… celery -A celery_tasks worker``.
Submitted twice, ``register.apply_async(("https://me.example/17",), task_id="order-17")`` has one effect.

The key of a write is the id of its task, which is the same in each run of the task.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from celery import Celery, signals

from invsvc_async import (
    AmbiguousWriteError,
    Client,
    JournalError,
    Portal,
    TransportError,
    WriteNotAppliedError,
)

if TYPE_CHECKING:
    from celery import Task

    from invsvc_async import Webhook

app = Celery("invoicing", broker=os.environ.get("BROKER", "redis://127.0.0.1:6379/0"))
# A task whose worker is killed is run again.
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
)
AGAIN = (AmbiguousWriteError, JournalError, TransportError, WriteNotAppliedError)


def keep_secret(key: str, webhook: Webhook) -> None:
    """Store the secret of a new webhook, before its verdict is stored."""


# Of this process: it is entered after the fork.
portal = Portal(lambda: Client.from_env(on_secret=keep_secret))


@signals.worker_process_init.connect
def start(**_: object) -> None:
    """Open the client: after the fork, once in each worker process."""
    portal.__enter__()


@signals.worker_process_shutdown.connect
def stop(**_: object) -> None:
    """Close the client."""
    portal.__exit__(None, None, None)


@app.task(bind=True, autoretry_for=AGAIN, retry_backoff=True, max_retries=20)
def register(task: Task, url: str) -> str:
    """Create a webhook, and return its id."""
    write = portal.client.webhooks.create(url=url, events=["invoice.created"])
    return portal.call(write.keyed(task.request.id)).id
