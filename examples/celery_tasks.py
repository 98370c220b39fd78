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

from celery import Celery

from invsvc_async import Client
from invsvc_async.engines.celery import KeyedTask

if TYPE_CHECKING:
    from invsvc_async import Webhook

app = Celery("invoicing", broker=os.environ.get("BROKER", "redis://127.0.0.1:6379/0"))
app.conf.worker_prefetch_multiplier = 1


def keep_secret(key: str, webhook: Webhook) -> None:
    """Store the secret of a new webhook, before its verdict is stored."""


class OurTask(KeyedTask):
    """A task whose client hands over secrets."""

    abstract = True

    @staticmethod
    def make_client() -> Client:
        """Make the client of a worker process, after the fork."""
        return Client.from_env(on_secret=keep_secret)


@app.task(base=OurTask, bind=True, name="register")
def register(task: OurTask, url: str) -> str:
    """Create a webhook, and return its id."""
    write = task.client.webhooks.create(url=url, events=["invoice.created"])
    return task.send(write).id
