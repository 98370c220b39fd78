"""Batches in PostgreSQL whose database does what it is asked, and whose reply to that is lost."""

from __future__ import annotations

import pytest

from invsvc_async import Verdict
from invsvc_async.batch import Batch
from invsvc_async.batch.journals.postgres import PostgresBatch
from tests.batch.writing import all_of, creates
from tests.support.database_proxy import database_proxy


@pytest.fixture
async def proxy():
    """Yield a proxy of the database that can lose replies."""
    async with database_proxy() as made:
        yield made


@pytest.fixture
def journal(request, proxy):
    """Return the address of this test's journal, through the proxy."""
    return proxy.journal(f"l{abs(hash(request.node.name))}")


@pytest.fixture
async def entries(journal):
    """Yield the open journal."""
    opened = PostgresBatch(journal)
    await opened.open()
    yield opened
    await opened.aclose()


def keyless(client, n):
    return [
        client.webhooks.create(url=f"https://me.example/{i}", events=["invoice.created"]) for i in range(n)
    ]


@pytest.mark.parametrize("make", [keyless, creates])
async def test_reply_about_what_is_done_that_is_lost(service, client, proxy, journal, make):
    """Run again, an input whose look into the journal is repeated is skipped all the same, keyed or keyless."""
    async with Batch.open(journal, client) as batch:
        first = await all_of(batch, make(client, 3))
    async with Batch.open(journal, client) as batch:
        proxy.lose(first[1].key)
        assert await all_of(batch, make(client, 3)) == []
    assert (proxy.lost, service.arrivals("webhooks.create")) == (1, 3)


@pytest.mark.parametrize(("before", "free"), [("old.1", False), (None, True)])
async def test_reply_about_a_take_over_that_is_lost(proxy, entries, before, free):
    """A worker that repeats a takeover learns about the previous owner, not about itself."""
    [row] = await entries.fetch("INSERT INTO chunks (owner) VALUES ($1) RETURNING id", before)
    proxy.lose("UPDATE chunks SET owner", "new.1")
    assert await entries.take(row["id"], "new.1") == (False, free)
    assert proxy.lost == 1


async def test_reply_about_writes_to_do_again_that_is_lost(client, proxy, journal):
    """The number of reopened entries is right, though a reply is lost and the statement repeated."""
    async with Batch.open(journal, client) as batch:
        await all_of(batch, [client.webhooks.update("wh_none", description=str(n)) for n in range(3)])
        proxy.lose("UPDATE entries e SET seq", "COMMIT")
        assert await batch.retry(verdict=Verdict.REFUSED) == 3
        assert proxy.lost == 1
        assert len(await all_of(batch)) == 3
