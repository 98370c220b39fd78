"""A database whose clock is set back: what it has to be handled is handled as soon as without that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from invsvc_async import events
from invsvc_async.events.stores import postgres as of_postgres
from tests.events.bodies import delivery
from tests.support.database import connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.one_python

HOURS = 7200


@pytest.fixture
async def store(own_postgres: str, monkeypatch) -> AsyncIterator[events.PostgresStore]:
    """Yield a store of this test, which looks for times of before the clock was set back each time."""
    monkeypatch.setattr(of_postgres, "_CORRECT_EVERY", 0.0)
    store = events.PostgresStore(own_postgres)
    await store.open()
    yield store
    await store.close()


async def set_back(address: str) -> None:
    """Let all times be as if the clock had been set back since."""
    async with connected(address) as owner:
        await owner.execute(
            f"UPDATE invsvc_delivery SET due = due + {HOURS} WHERE due < 'Infinity'"
        )


async def test_event_that_nobody_has_had(store, own_postgres) -> None:
    """It is due at once."""
    await store.put(delivery())
    await set_back(own_postgres)
    assert len(await store.take(limit=1, lease=10)) == 1


async def test_event_of_a_process_that_died(store, own_postgres) -> None:
    """Its lease ends as one that begins now, and not before."""
    await store.put(delivery())
    (entry,) = await store.take(limit=1, lease=10)
    await set_back(own_postgres)
    assert await store.take(limit=1, lease=10) == []
    async with connected(own_postgres) as owner:
        text = "SELECT due - extract(epoch FROM clock_timestamp()) FROM invsvc_delivery"
        assert 0 < await owner.fetchval(text) <= 10
    assert await store.handled(entry)  # it was only slow


async def test_lease_of_another_handler(store, own_postgres) -> None:
    """It may be longer, so only those of one's own are corrected."""
    await store.put(events.Delivery(key="a", type="t", body=b"{}", handler="slow"))
    await store.take(limit=1, lease=3600, handlers=["slow"])
    assert await store.take(limit=1, lease=10, handlers=["fast"]) == []
    async with connected(own_postgres) as owner:
        text = "SELECT due - extract(epoch FROM clock_timestamp()) FROM invsvc_delivery"
        assert await owner.fetchval(text) > 3000


@pytest.mark.parametrize("is_set_back", [False, True])
async def test_lease_of_a_process_with_a_longer_timeout(
    store, own_postgres, is_set_back
) -> None:
    """It lasts as long as that process has asked for, also as a worker with a shorter timeout looks."""
    await store.put(delivery())
    (entry,) = await store.take(limit=1, lease=3600)
    if is_set_back:
        await set_back(own_postgres)
    assert await store.take(limit=1, lease=10) == []
    async with connected(own_postgres) as owner:
        text = "SELECT due - extract(epoch FROM clock_timestamp()) FROM invsvc_delivery"
        assert 3000 < await owner.fetchval(text) <= 3600
    assert await store.handled(entry)


async def test_lease_that_an_earlier_version_gave(store, own_postgres) -> None:
    """Its length is not known, so it is that of a lease of this process."""
    await store.put(delivery())
    await store.take(limit=1, lease=10)
    async with connected(own_postgres) as owner:
        await owner.execute("UPDATE invsvc_delivery SET token = '0123456789abcdef'")
    await set_back(own_postgres)
    assert await store.take(limit=1, lease=20) == []
    async with connected(own_postgres) as owner:
        text = "SELECT due - extract(epoch FROM clock_timestamp()) FROM invsvc_delivery"
        assert 10 < await owner.fetchval(text) <= 20


async def test_event_that_waits_for_its_retry(store) -> None:
    """It waits as long as it was to."""
    await store.put(delivery())
    (entry,) = await store.take(limit=1, lease=10)
    assert await store.release(entry, delay=3600)
    assert await store.take(limit=1, lease=10) == []
