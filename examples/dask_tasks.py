"""
Dask tasks whose writes have one effect, however often Dask runs them.

``INVSVC_BASE_URL=… INVSVC_API_KEY=… INVSVC_JOURNAL=postgresql://… dask worker ADDRESS``

The key of a write comes from the data: Dask may run a task again on another worker, or compute it twice.
"""

from __future__ import annotations

from functools import cache

from invsvc_async import Client, Portal, Webhook


def keep_secret(key: str, webhook: Webhook) -> None:
    """Store the secret of a new webhook, before its verdict is stored."""


@cache
def portal() -> Portal:
    """Return the portal of this worker process, which is opened when it is first used."""
    return Portal(lambda: Client.from_env(on_secret=keep_secret)).__enter__()


def register(order: str, url: str) -> str:
    """Create a webhook, and return its id: ``cluster.submit(register, order, url, retries=20)``."""
    here = portal()
    write = here.client.webhooks.create(url=url, events=["invoice.created"])
    return here.call(write.keyed(f"register-{order}")).id
