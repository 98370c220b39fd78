"""An intent that somebody looks at while its write waits for another one to the same thing."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from invsvc_async.writes.write import Write


class KeptIntents:
    """A journal that keeps the intents it is given before sends."""

    def __init__(self):
        self.intents = []

    async def sending(self, intent):
        self.intents.append(intent)

    async def settled(self, outcome):
        """Ignore the verdict."""

    def shelved(self, intent, *, sent):
        """Ignore what was cancelled."""

    def heard(self, identity):
        """Ignore who has the verdict."""


def in_journal(write, journal):
    """Return the same write, whose intent is stored in *journal*."""
    spec = write._spec  # reaches: what is stored, without a journal's file
    write.close()
    return Write(replace(spec, options=replace(spec.options, journal=journal)))


async def test_what_is_stored_has_the_baseline_of_the_turn(service, client):
    """The look makes the intent early, but what is stored before the send knows what the other write left."""
    service.seed_journey(id="jrn_1", name="first")
    await client.journeys.get("jrn_1")
    service.script("journeys.update", "slow 0.2")
    journal = KeptIntents()
    second = in_journal(client.journeys.update("jrn_1", name="third"), journal)
    async with asyncio.TaskGroup() as group:
        group.create_task(client.journeys.update("jrn_1", name="second").outcome())
        await service.arrived("journeys.update", 1)
        waiting = group.create_task(second.outcome())
        await asyncio.sleep(0)
        seen = second.intent

    assert seen.baseline is None
    [stored] = journal.intents
    assert stored.identity == seen.identity
    assert stored.baseline["name"] == "second"
    assert stored.bounds is not None
    assert waiting.result().applied
