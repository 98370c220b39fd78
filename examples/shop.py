"""
What the example applications share: customers with a webhook each, and the events of the service.

The environment has ``INVSVC_BASE_URL``, ``INVSVC_API_KEY``, ``EVENTS_KEY`` (the value of
the shared header, as set in the dashboard) and ``DATABASE_URL``, a PostgreSQL database
with the tables of ``tables.sql``.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy import update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from invsvc_async import Client, Outbox, ReconcilePolicy, enc_hook
from invsvc_async.events import InboxPolicy, Receiver, ResourceEvent, SharedHeader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from invsvc_async import Journey, Outcome, Webhook
    from invsvc_async.batch import Result

# Web callers should not wait 90 s for a verdict. With 45 s or less, no write whose answer
# was lost could be sent again: it is proven absent after 15 s, and a second one needs 30 s.
POLICY = ReconcilePolicy(deadline=50.0)
# If a process dies, another one handles its events 15 s later.
HANDLING = InboxPolicy(timeout=10.0)


class Base(DeclarativeBase):
    """The tables of the application."""


class Customer(Base):
    """A customer, with the verdict and the secret of its webhook."""

    __tablename__ = "customers"
    name: Mapped[str] = mapped_column(primary_key=True)
    verdict: Mapped[str | None]
    secret: Mapped[str | None]


class Handled(Base):
    """An event that was handled. Those of version v1 and v1.1 have no key, and may be here twice."""

    __tablename__ = "events"
    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str | None] = mapped_column(unique=True)
    body: Mapped[str]


def shown(outcome: Outcome[Journey]) -> bytes:
    """Return what callers see of *outcome*, as JSON with all digits."""
    return msgspec.json.encode(outcome, enc_hook=enc_hook)


class Shop:
    """The client, the outbox and the receiver of one process, and the connections to its database."""

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
        url = self._database.replace("postgresql:", "postgresql+asyncpg:", 1)
        self.engine = create_async_engine(url, pool_size=5, max_overflow=0)
        async with (
            Client.from_env(
                journal=self._database, reconcile=POLICY, on_secret=self._keep_secret
            ) as self.client,
            Outbox.open(
                self._database, self.client, on_secret=self._keep_secret
            ) as self.outbox,
            self.receiver,
            self.client.recovering(),  # writes of a process that died
            self.outbox.dispatching(on_result=self._keep_verdict),
        ):
            yield
        await self.engine.dispose()

    async def register(self, name: str) -> None:
        """Store a customer, and the webhook to be created: both are committed, or neither."""
        async with AsyncSession(self.engine) as session, session.begin():
            session.add(Customer(name=name))
            url = f"https://me.example/customers/{name}"
            write = self.client.webhooks.create(url=url, events=["invoice.created"])
            await self.outbox.enqueue(session, write.keyed(name))

    async def _keep_secret(self, name: str, hook: Webhook) -> None:
        await self._note(name, secret=hook.secret)

    async def _keep_verdict(self, result: Result) -> None:
        if result.secret_lost:
            # Another webhook, whose secret _keep_secret gets. If this raises, it comes again.
            await self.client.webhooks.replace_lost(result)
        await self._note(result.key, verdict=result.verdict)

    async def _note(self, name: str, **values: str | None) -> None:
        async with self.engine.begin() as connection:
            changed = update(Customer).where(Customer.name == name).values(values)
            await connection.execute(changed)

    async def _on_invoice(self, event: ResourceEvent) -> None:
        row = {"key": event.dedupe_key, "body": event.to_json()}
        async with self.engine.begin() as connection:  # the event may come again
            await connection.execute(
                insert(Handled).values(row).on_conflict_do_nothing()
            )
