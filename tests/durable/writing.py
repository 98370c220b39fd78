"""Writes under keys, and writes that are cut off."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from invsvc_async.client import options_of
from invsvc_async.durable.entries import JournalEntries
from invsvc_async.durable.key_claims import Claims
from tests.batch.conftest import HOOK
from tests.support.waiting import cancel

if TYPE_CHECKING:
    from invsvc_async import Write
    from invsvc_async.simulator import Simulator

__all__ = ["create", "cut_off", "held_at_begin", "rename", "retry"]


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


def held_at_begin(monkeypatch, key):
    """Hold the run of *key* when it is about to begin its send; return what tells that, and what lets it go on."""
    begin, is_about_to, may_go = Claims.begin, asyncio.Event(), asyncio.Event()

    async def held(claims, run, entry):
        if run.name.endswith(key):
            is_about_to.set()
            await may_go.wait()
        return await begin(claims, run, entry)

    # reaches: nothing else holds it there
    monkeypatch.setattr(Claims, "begin", held)
    return is_about_to, may_go


async def retry(client, address, *keys):
    """Mark writes as to be done again, as people do."""
    entries = JournalEntries(str(address), options_of(client).core)
    await entries.open()
    names = [await entries.named(key) for key in keys]
    assert await entries.do_again(names) == sorted(names)
    await entries.aclose()
