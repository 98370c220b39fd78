"""The hook around calls: one for each call of the caller's, whatever it takes on the wire."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import NotFoundError
from invsvc_async.client import options_of

pytestmark = pytest.mark.every_python


class Around:
    """Keep which operations began, and how each ended."""

    def __init__(self):
        self.begun, self.ended = [], []

    async def __call__(self, request, running, _begun):
        self.begun.append(request.operation.name)
        try:
            made = await running
        except BaseException as error:
            self.ended.append(type(error).__name__)
            raise
        self.ended.append("made")
        return made


@pytest.fixture
def around(client):
    """Wrap the calls of *client* in a hook."""
    options_of(client).core.on_call = Around()
    return options_of(client).core.on_call


async def test_read_that_is_repeated_is_one_call(service, client, around):
    """The hook sees one beginning and one end, though two requests were sent."""
    service.script("webhooks.list", "500", "pass")
    listed = await client.webhooks.list()

    assert len(listed.items) == 0
    assert (around.begun, around.ended) == (["webhooks.list"], ["made"])
    assert service.arrivals("webhooks.list") == 2


async def test_read_that_fails_ends_as_it_does(client, around):
    """The caller's error goes through the hook."""
    with pytest.raises(NotFoundError):
        await client.webhooks.get("wh_none")

    assert around.ended == ["NotFoundError"]


async def test_write_in_doubt_is_one_call(service, client, around):
    """The reads that settle a write are part of its call, and no calls of the caller's."""
    service.script("webhooks.create", "apply, then reset")
    await client.webhooks.create(
        url="https://me.example/in", events=["invoice.created"], on_lost_secret="keep"
    )

    assert (around.begun, around.ended) == (["webhooks.create"], ["made"])


async def test_write_cancelled_on_the_wire_ends_as_cancelled(service, client, around):
    """A cancellation reaches the hook too."""
    service.script("webhooks.create", "hang")
    running = asyncio.create_task(
        client.webhooks.create(url="https://me.example/in", events=["invoice.created"])
    )
    async with asyncio.timeout(300):
        while not service.arrivals("webhooks.create"):  # noqa: ASYNC110 - the ledger tells nobody
            await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert around.ended == ["CancelledError"]
