"""
Airflow tasks whose writes have one effect, however often Airflow runs them, until they are cleared.

``INVSVC_BASE_URL``, ``INVSVC_API_KEY`` and ``INVSVC_JOURNAL=postgresql://…`` are set for the workers.

The key of a write has the ids of DAG, run and task, and what the data call it; not the
number of the try, nor the index of a mapped task, which changes with the list. A retry
goes on with the write. A task that is cleared starts over.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from airflow.sdk import task

from invsvc_async import Client
from invsvc_async.engines.airflow import InvsvcHook

if TYPE_CHECKING:
    from invsvc_async import Webhook


def keep_secret(key: str, webhook: Webhook) -> None:
    """Store the secret of a new webhook, before its verdict is stored."""


def make_client() -> Client:
    """Make the client of a task, which has a process of its own."""
    return Client.from_env(on_secret=keep_secret)


@task(retries=20, retry_delay=timedelta(seconds=30))
def register(url: str) -> str:
    """Create a webhook, and return its id; mapped: ``register.expand(url=urls)``."""
    with InvsvcHook(client=make_client) as invsvc:
        write = invsvc.client.webhooks.create(url=url, events=["invoice.created"])
        return invsvc.send(write, key=url).id
