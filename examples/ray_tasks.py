"""
Ray tasks whose writes have one effect, however often Ray runs them.

``INVSVC_BASE_URL=… INVSVC_API_KEY=… INVSVC_JOURNAL=postgresql://… ray start --head``

The key of a write comes from an argument: a task that Ray runs again has the same arguments.
"""

from __future__ import annotations

from functools import cache

import ray

from invsvc_async import Client, Portal, Webhook
from invsvc_async.engines.again import RUN_AGAIN, overtaken_is_final


def keep_secret(key: str, webhook: Webhook) -> None:
    """Store the secret of a new webhook, before its verdict is stored."""


@cache
def portal() -> Portal:
    """Return the portal of this worker process, which is opened when it is first used."""
    return Portal(lambda: Client.from_env(on_secret=keep_secret)).__enter__()


# Ray runs it again if its worker is killed, and after these errors; not if a newer write was sent.
@ray.remote(max_retries=20, retry_exceptions=[*RUN_AGAIN])
def register(order: str, url: str) -> str:
    """Create a webhook, and return its id: ``ray.get(register.remote(order, url))``."""
    here = portal()
    write = here.client.webhooks.create(url=url, events=["invoice.created"])
    with overtaken_is_final():
        return here.call(write.keyed(f"register-{order}")).id
