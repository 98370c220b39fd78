"""Batches in PostgreSQL whose database does what it is asked, and whose reply to that is lost."""

from __future__ import annotations

import pytest

from invsvc_async.batch.postgres import PostgresBatch
from tests.batch.lossy import lossy


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


@pytest.mark.parametrize(("before", "free"), [("old.1", False), (None, True)])
async def test_reply_about_a_take_over_that_is_lost(way, entries, before, free):
    """Who takes a chunk over and asks again is told of the owner before it, not of itself."""
    [row] = await entries.fetch("INSERT INTO chunks (owner) VALUES ($1) RETURNING id", before)
    way.lose("UPDATE chunks SET owner", "COMMIT")
    assert await entries.take(row["id"], "new.1") == (False, free)
    assert way.lost == 1
