"""The error of a refused write, of which a batch stores little, and after pruning nothing."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from invsvc_async import Batch, InvsvcError, NotFoundError, Verdict


async def refused(path, client):
    """Run a batch of one write, which is refused."""
    async with Batch.open(path, client) as batch:
        write = client.journeys.update("jrn_nowhere", name="May").keyed("k")
        [result] = [each async for each in batch.run([write])]
    assert result.verdict is Verdict.REFUSED


async def test_error_has_the_status(client, path):
    """Type checkers are told that there is an error, and it has the class of its status."""
    await refused(path, client)
    async with Batch.open(path, client) as batch:
        outcome = await batch.get("k")
    assert isinstance(outcome.error, NotFoundError)
    assert outcome.error.code == "resource_not_found"
    with pytest.raises(NotFoundError):
        outcome.unwrap()


async def test_error_after_pruning(client, path):
    """It says that more is not known."""
    await refused(path, client)
    async with Batch.open(path, client) as batch:
        await batch.prune(done_before=datetime(2100, 1, 1, tzinfo=UTC))
        outcome = await batch.get("k")
    assert outcome.verdict is Verdict.REFUSED
    assert isinstance(outcome.error, InvsvcError)
