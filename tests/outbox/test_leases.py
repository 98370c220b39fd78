"""Lanes that a process has acquired, or gives up, while the database fails."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import JournalError, Outbox
from invsvc_async.client import options_of
from invsvc_async.durable.leases import Leases
from invsvc_async.storage import postgres_pool
from tests.support.database_proxy import database_proxy
from tests.support.waiting import cancel, until

LANES = 64

REFUSE = """
CREATE FUNCTION {s}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'not now'; END$$;
CREATE TRIGGER refuse BEFORE UPDATE ON {s}.lanes FOR EACH ROW WHEN (NEW.owner IS NULL)
    EXECUTE FUNCTION {s}.refuse();
"""


async def leases_of(outbox, client):
    """Return the leases of another process, which has given a sign of life."""
    made = Leases(outbox._store.store, options_of(client).session.clock)
    await made.beat()
    return made


async def test_release_that_fails_is_repeated(outbox, client):
    """The lanes stay those of the process, which would else keep others from them as long as it lives."""
    first, second = await leases_of(outbox, client), await leases_of(outbox, client)
    lanes = await first.take(LANES)
    refuse = REFUSE.format(s=outbox._store.store.schema)
    await outbox._store.store.ask(lambda connection: connection.execute(refuse))
    with pytest.raises(JournalError, match="refused a statement"):
        await first.give_up(lanes)
    await outbox._store.store.rows("DROP TRIGGER refuse ON {s}lanes")
    await first.beat()
    assert await second.take(LANES) == []
    await first.give_up([*first.lanes.values()])
    assert len(await second.take(LANES)) == LANES


async def test_lanes_whose_acquisition_was_not_answered(client, monkeypatch):
    """The next try acquires them too, and not as free ones: their entries would else stay unsent."""
    async with database_proxy() as proxy:
        address = proxy.journal("answer").replace("batch=", "outbox=").replace("silence=1", "silence=60")
        async with Outbox.open(address, client) as outbox:
            first, second = await leases_of(outbox, client), await leases_of(outbox, client)
            proxy.lose("lanes AS l SET owner", "COMMIT")
            with monkeypatch.context() as patched:
                patched.setattr(postgres_pool, "_PAUSE", 600.0)
                taking = asyncio.create_task(first.take(5))
                await until(lambda: proxy.lost)
                await cancel(taking)
            assert len(await second.take(LANES)) == LANES - 5
            lanes = await first.take(LANES)
            assert [lane.was_free for lane in lanes] == [False] * 5
            assert first.lanes == {lane.number: lane for lane in lanes}
            await first.beat()
            assert [lane.lost for lane in lanes] == [False] * 5
