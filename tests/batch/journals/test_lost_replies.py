"""Batches in PostgreSQL whose database does what it is asked, and whose reply to that is lost."""

from __future__ import annotations

import pytest

from invsvc_async import Verdict
from invsvc_async.batch import Batch
from invsvc_async.batch.journals.postgres import PostgresBatch
from tests.batch.journals.lossy import lossy
from tests.batch.writing import all_of, creates


@pytest.fixture
async def way():
    """Give a way to the database on which replies can be lost."""
    async with lossy() as made:
        yield made


@pytest.fixture
def journal(request, way):
    """Give the address of a journal of the test's own, by that way."""
    return way.journal(f"l{abs(hash(request.node.name))}")


@pytest.fixture
async def entries(journal):
    """Give it open."""
    opened = PostgresBatch(journal)
    await opened.open()
    yield opened
    await opened.aclose()


def keyless(client, n):
    return [
        client.webhooks.create(url=f"https://me.example/{i}", events=["invoice.created"]) for i in range(n)
    ]


@pytest.mark.parametrize("make", [keyless, creates])
async def test_reply_about_what_is_done_that_is_lost(service, client, way, journal, make):
    """Run again, an input whose look into the journal is repeated is skipped all the same, keyed or keyless."""
    async with Batch.open(journal, client) as batch:
        first = await all_of(batch, make(client, 3))
    async with Batch.open(journal, client) as batch:
        way.lose(first[1].key)
        assert await all_of(batch, make(client, 3)) == []
    assert (way.lost, service.arrivals("webhooks.create")) == (1, 3)


@pytest.mark.parametrize(("before", "free"), [("old.1", False), (None, True)])
async def test_reply_about_a_take_over_that_is_lost(way, entries, before, free):
    """Who takes a chunk over and asks again is told of the owner before it, not of itself."""
    [row] = await entries.fetch("INSERT INTO chunks (owner) VALUES ($1) RETURNING id", before)
    way.lose("UPDATE chunks SET owner", "COMMIT")
    assert await entries.take(row["id"], "new.1") == (False, free)
    assert way.lost == 1


async def test_reply_about_writes_to_do_again_that_is_lost(client, way, journal):
    """How many are to do again is told right, though the reply to that is lost and the question repeated."""
    async with Batch.open(journal, client) as batch:
        await all_of(batch, [client.webhooks.update("wh_none", description=str(n)) for n in range(3)])
        way.lose("UPDATE entries e SET state = 0", "COMMIT")
        assert await batch.retry(verdict=Verdict.REFUSED) == 3
        assert way.lost == 1
        assert len(await all_of(batch)) == 3
