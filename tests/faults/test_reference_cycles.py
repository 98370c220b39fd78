"""What is done with is freed at once: memory that waits for the garbage collector slows every other call."""

from __future__ import annotations

import gc
from weakref import ref

import pytest

from tests.faults.conftest import client_of

pytestmark = [pytest.mark.every_python, pytest.mark.no_secret_scan]


@pytest.fixture
def without_collector():
    """Free nothing that is held by a cycle."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
async def test_write_that_is_applied_is_freed_with_its_last_holder(client):
    """A write and its run hold no cycle, so they go when the caller lets go."""
    webhook = await client.webhooks.create(
        url="https://me.example/in", events=["invoice.created"]
    )
    write = client.webhooks.update(webhook, description="changed")
    await write
    run = ref(write._driver)

    del write

    assert run() is None


@pytest.mark.usefixtures("without_collector")
async def test_page_that_was_walked_is_freed_before_the_next_arrives(service):
    """While a walk waits for the next page, nothing of the last but its last item is alive."""
    first, alive = [], []

    def look(_report):
        alive.append(sum(item() is not None for item in first))

    async with client_of(service, on_attempt=look) as client:
        async for invoice in client.invoices.egress(limit=5):
            if len(alive) == 2:
                break
            first.append(ref(invoice))

    assert alive == [0, 1]
