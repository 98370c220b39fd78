"""
Activities of Temporal whose writes have one effect, however often Temporal runs them.

``Worker(temporal, task_queue="invoicing", activities=[register], plugins=[invsvc])``,
with ``INVSVC_BASE_URL``, ``INVSVC_API_KEY`` and ``INVSVC_JOURNAL=postgresql://…`` set,
and ``workflow.execute_activity(register, url, retry_policy=AGAIN, …)`` in a workflow.

The key of a write is made of the ids of the workflow, its run and the activity, without
the attempt: a new run of the workflow starts over, unless ``send`` has a ``key``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from temporalio import activity

from invsvc_async import Client
from invsvc_async.engines.temporal import AGAIN, InvsvcPlugin

if TYPE_CHECKING:
    from invsvc_async import Webhook

__all__ = ["AGAIN", "invsvc", "register"]


def keep_secret(key: str, webhook: Webhook) -> None:
    """Store the secret of a new webhook, before its verdict is stored."""


def make_client() -> Client:
    """Make the client of a worker process."""
    return Client.from_env(on_secret=keep_secret)


invsvc = InvsvcPlugin(make_client)


@activity.defn
async def register(url: str) -> str:
    """Create a webhook, and return its id."""
    write = invsvc.client.webhooks.create(url=url, events=["invoice.created"])
    return (await invsvc.send(write)).id
