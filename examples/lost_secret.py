"""
Create a webhook whose secret is needed, also if answers are lost.

The secret is shown once. If the answer with it is lost, the webhook is deleted, and created under another
key: the old one would replay a webhook whose secret nobody has. The number of the key is found again after a
kill, because the keys before it have verdicts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async import SecretLostError

if TYPE_CHECKING:
    from invsvc_async import Client, Webhook


async def create_with_secret(client: Client, key: str, url: str) -> Webhook:
    """Return a new webhook whose secret ``on_secret`` of the client has had."""
    number = 0
    while True:
        create = client.webhooks.create(url=url, events=["invoice.created"])
        try:
            return await create.keyed(f"{key}-{number}")
        except SecretLostError as lost:
            delete = client.webhooks.delete(lost.webhook)
            await delete.keyed(f"{key}-{number}-deleted")
            number += 1
