"""Writes under keys, and writes that are cut off."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from invsvc_async.client import options_of
from invsvc_async.durable.entries import JournalEntries
from tests.batch.conftest import HOOK
from tests.support.waiting import cancel

if TYPE_CHECKING:
    from invsvc_async import Write
    from invsvc_async.simulator import Simulator

__all__ = ["create", "cut_off", "rename", "retry"]


async def cut_off(service: Simulator, write: Write[Any]) -> None:
    """Await *write*, and cancel that once its request has arrived."""
    operation = write.intent.operation
    number, running = (
        service.arrivals(operation) + 1,
        asyncio.create_task(write.outcome()),
    )
    await service.arrived(operation, number)
    await cancel(running)


def create(client, key="k", **changes):
    return client.webhooks.create(**{**HOOK, **changes}).keyed(key)


def rename(client, name, key):
    return client.journeys.update("jrn_1", name=name).keyed(key)


async def retry(client, address, *keys):
    """Mark writes as to be done again, as people do."""
    entries = JournalEntries(str(address), options_of(client).core)
    await entries.open()
    names = [await entries.named(key) for key in keys]
    assert await entries.do_again(names) == sorted(names)
    await entries.aclose()
