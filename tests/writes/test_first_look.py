"""The first writes of a client, which wait until one of them has looked at the journal."""

import asyncio

from invsvc_async.client import options_of
from invsvc_async.durable.journal import ClientJournal
from tests.batch.conftest import client_of


async def test_write_that_begins_as_the_look_ends(service, tmp_path, monkeypatch):
    """It passes none to the same thing that was begun before it, and still waits for its turn to go on."""
    looked = asyncio.Event()

    async def open_intents(_journal):
        await looked.wait()
        for nothing in ():
            yield nothing

    # reaches: when the look ends, between two steps of the loop
    monkeypatch.setattr(ClientJournal, "open_intents", open_intents)
    others = [service.seed_journey(status="draft").id for _ in range(9)]
    journey = service.seed_journey(status="draft").id

    async with client_of(service, journal=tmp_path / "calls.db") as client:

        async def renamed(journey, name):
            await client.journeys.update(journey, name=name)

        async with asyncio.TaskGroup() as group:
            for other in others:
                group.create_task(renamed(other, "other"))
            group.create_task(renamed(journey, "first"))
            await asyncio.sleep(0.01)  # sleeps: until all of them wait
            looked.set()
            open_writes = options_of(client).core.writes.open_writes
            while open_writes.leftovers is None:  # noqa: ASYNC110 - each step counts
                await asyncio.sleep(0)
            group.create_task(renamed(journey, "second"))

    sent = [
        entry.body["name"]
        for entry in service.ledger.effects("journeys.update")
        if entry.target == journey
    ]
    assert sent == ["first", "second"]
