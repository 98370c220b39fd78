"""
Activities of Temporal whose writes have one effect, however often Temporal runs them.

``Worker(temporal, task_queue="invoicing", activities=[Invoicing(client).register])``, where ``client``
is a ``Client.from_env(on_secret=keep_secret)`` whose journal, ``INVSVC_JOURNAL=postgresql://…``, the
workers share.

The key of a write is the id of the workflow and the id of the activity, without the attempt.  If a workflow
continues as new, or its id is used again, add what tells its runs apart: their activities have the same ids.
This was run under ``temporalio.testing.ActivityEnvironment``, which has no server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from temporalio import activity

if TYPE_CHECKING:
    from invsvc_async import Client, Webhook


def keep_secret(key: str, webhook: Webhook) -> None:
    """Store the secret of a new webhook, before its verdict is stored."""


class Invoicing:
    """Activities of one worker, with its client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn
    async def register(self, url: str) -> str:
        """Create a webhook, and return its id."""
        info = activity.info()
        write = self._client.webhooks.create(url=url, events=["invoice.created"])
        return (await write.keyed(f"{info.workflow_id}/{info.activity_id}")).id
