"""
Airflow tasks whose writes have one effect, however often Airflow runs them.

``INVSVC_BASE_URL``, ``INVSVC_API_KEY`` and ``INVSVC_JOURNAL=postgresql://…`` are set for the workers.

The key of a write tells the task of the run, without the number of the try.  A task that is cleared runs
again with its key: what was applied is not done again.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import get_current_context, task

from invsvc_async import Client, Portal, Webhook


def keep_secret(key: str, webhook: Webhook) -> None:
    """Store the secret of a new webhook, before its verdict is stored."""


@task(retries=20, retry_delay=timedelta(seconds=30))
def register(url: str) -> str:
    """Create a webhook, and return its id; mapped: ``register.expand(url=urls)``."""
    here = get_current_context()["ti"]
    key = f"{here.dag_id}/{here.run_id}/{here.task_id}/{here.map_index}"
    # A task has a process of its own.
    with Portal(lambda: Client.from_env(on_secret=keep_secret)) as portal:
        write = portal.client.webhooks.create(url=url, events=["invoice.created"])
        return portal.call(write.keyed(key)).id
