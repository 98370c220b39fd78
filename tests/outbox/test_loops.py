"""An outbox in another event loop than the one that opened it: of a thread, or of a forked process."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import ConfigurationError, Outbox, Verdict
from tests.batch.conftest import client_of
from tests.outbox.conftest import enqueue, entries_of, update, verdict_of


async def test_outbox_in_another_event_loop(service, client, place):
    """Every use is refused in words, and costs the loop that has it nothing."""
    async with Outbox.open(place, client) as outbox, outbox.dispatching():

        async def first_result():
            await anext(outbox.results())

        async def dispatch():
            async with outbox.dispatching():
                pass

        uses = (
            lambda: outbox.enqueue(object(), update(client, service)),
            lambda: outbox.get("a"),
            lambda: outbox.wait("a"),
            lambda: outbox.send(update(client, service)),
            lambda: outbox.retry("a"),
            lambda: outbox.drop("a"),
            lambda: outbox.prune(older_than=0.0),
            first_result,
            dispatch,
            lambda: outbox.__aexit__(None, None, None),
        )

        async def use_all():
            for use in uses:
                with pytest.raises(
                    ConfigurationError, match="event loop that opened it"
                ):
                    await use()

        await asyncio.to_thread(asyncio.run, use_all())
        [key] = await enqueue(outbox, update(client, service))
        assert (await verdict_of(outbox, key)).verdict is Verdict.APPLIED


async def test_outbox_that_is_open_already(client, place):
    """It is not opened again, so that nothing is left open once it is closed."""
    outbox = Outbox.open(place, client)
    for _ in range(2):
        async with outbox:
            with pytest.raises(ConfigurationError, match="open already"):
                await outbox.__aenter__()
            assert await entries_of(outbox) == []


async def test_client_of_another_event_loop(service, tmp_path):
    """Dispatching is refused at once, because nothing could be sent."""
    client = client_of(service)
    await client.webhooks.list()

    async def dispatch():
        async with Outbox.open(tmp_path / "app.db", client) as outbox:
            with pytest.raises(
                ConfigurationError, match="event loop that used it first"
            ):
                async with outbox.dispatching():
                    pass

    await asyncio.to_thread(asyncio.run, dispatch())
    await client.aclose()
