"""
What the example applications share: customers with a webhook each, and the events of the service.

The environment has ``INVSVC_BASE_URL``, ``INVSVC_API_KEY``, ``EVENTS_KEY`` (the value of the shared header,
as set in the dashboard) and ``DATABASE_URL``, a PostgreSQL database with the tables of ``tables.sql``.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg

from invsvc_async import Client, Outbox, ReconcilePolicy, Verdict
from invsvc_async.events import InboxPolicy, Receiver, ResourceEvent, SharedHeader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from invsvc_async import Webhook
    from invsvc_async.batch import Result

STATUS = {Verdict.APPLIED: 200, Verdict.UNKNOWN: 202}  # otherwise 409
# Web callers should not wait 90 s for a verdict. With 45 s or less, no write whose answer
# was lost could be sent again: it is proven absent after 15 s, and a second one needs 30 s.
POLICY = ReconcilePolicy(deadline=50.0)
# If a process dies, another one handles its events 15 s later.
HANDLING = InboxPolicy(timeout=10.0)


class Shop:
    """The client, the outbox and the receiver of one process, and the pool of its database."""

    def __init__(self) -> None:
        self._database = os.environ["DATABASE_URL"]
        header = SharedHeader("X-Events-Key", os.environ["EVENTS_KEY"])
        self.receiver = Receiver(
            secrets=(),
            shared_header=header,
            mode="inbox",
            store=self._database,
            inbox=HANDLING,
        )
        self.receiver.on("invoice.created")(self._on_invoice)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Open everything, and close it when the application stops."""
        async with (
            asyncpg.create_pool(self._database, min_size=1, max_size=5) as self.pool,
            Client.from_env(journal=self._database, reconcile=POLICY) as self.client,
            Outbox.open(
                self._database, self.client, on_secret=self._keep_secret
            ) as self.outbox,
            self.receiver,
            self.client.recovering(),  # writes of a process that died
            self.outbox.dispatching(on_result=self._keep_verdict),
        ):
            yield

    async def register(self, name: str) -> None:
        """Store a customer, and the webhook to be created: both are committed, or neither."""
        async with self.pool.acquire() as connection, connection.transaction():
            await connection.execute("INSERT INTO customers VALUES ($1)", name)
            url = f"https://me.example/customers/{name}"
            write = self.client.webhooks.create(url=url, events=["invoice.created"])
            await self.outbox.enqueue(connection, write.keyed(name))

    async def _keep_secret(self, name: str, hook: Webhook) -> None:
        await self.pool.execute(
            "UPDATE customers SET secret = $2 WHERE name = $1", name, hook.secret
        )

    async def _keep_verdict(self, result: Result) -> None:
        # The answer with the secret was lost: delete result.thing, and enqueue another create.
        verdict = "secret lost" if result.secret_lost else result.verdict
        text = "UPDATE customers SET verdict = $2 WHERE name = $1"
        await self.pool.execute(text, result.key, verdict)

    async def _on_invoice(self, event: ResourceEvent) -> None:
        text = "INSERT INTO events VALUES ($1, $2) ON CONFLICT DO NOTHING"  # the event may come again
        await self.pool.execute(text, event.dedupe_key, event.to_json())
