"""
An order of Django's ORM and a write that belongs to it, in one transaction.

``INVSVC_BASE_URL=… INVSVC_API_KEY=… python examples/django_orders.py`` stores two, of
which one is rolled back.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import django
from django.conf import settings
from django.db import connection, models, transaction

from invsvc_async import Client, Outbox, Portal

if TYPE_CHECKING:
    from invsvc_async import Webhook

# In a project: settings.py, and postgresql://… for both.
DATABASE = "shop.db"
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": DATABASE}}
)
django.setup()


class Order(models.Model):  # type: ignore[misc]  # Django has no types
    """An order."""

    number = models.IntegerField(primary_key=True)

    class Meta:
        """Where it belongs."""

        app_label = "shop"

    def __str__(self) -> str:
        return f"order {self.number}"


def register(client: Client, outbox: Outbox, number: int, *, paid: bool = True) -> None:
    """Store an order and the webhook to be created: both are committed, or neither."""
    with transaction.atomic():
        Order.objects.create(number=number)
        url = f"https://me.example/orders/{number}"
        write = client.webhooks.create(url=url, events=["invoice.created"])
        outbox.enqueue_sync(connection, write.keyed(f"order-{number}"))
        if not paid:
            raise ValueError("not paid")


def keep_secret(key: str, webhook: Webhook) -> None:
    """Store the secret of a new webhook."""


def main() -> None:
    """Register two orders, and print the verdict of the one that was committed."""
    with connection.schema_editor() as editor:
        editor.create_model(Order)
    with Portal(Client.from_env) as portal:
        opened = Outbox.open(DATABASE, portal.client, on_secret=keep_secret)
        outbox = portal.enter(opened)
        portal.enter(outbox.dispatching())
        register(portal.client, outbox, 17)
        with suppress(ValueError):
            register(portal.client, outbox, 18, paid=False)
        print("order-17", portal.call(outbox.wait("order-17")).verdict)
        print("order-18", portal.call(outbox.get("order-18")))


if __name__ == "__main__":
    main()
