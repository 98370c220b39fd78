"""Deliveries whose store has lost the database's reply: they are stored, and the receiver cannot know."""

from __future__ import annotations

import itertools

import pytest

from invsvc_async import events
from tests.events.bodies import signed_body, v2
from tests.events.receiving.test_receiver import Service, eventually
from tests.support.database_proxy import database_proxy

pytestmark = pytest.mark.one_python

_numbers = itertools.count()


@pytest.mark.parametrize(
    ("kind", "make", "how"),
    [("invoice.created", v2, "shared"), ("sat.invoice.synced", signed_body, "signed")],
)
async def test_delivery_whose_reply_of_the_database_is_lost(
    kind: str, make, how: str
) -> None:
    """
    The first answer is 503, the one to the copy is 200 as a duplicate, and the handler runs once.

    It also runs once if no copy comes, as of events that are sent only once.
    """
    body = make(kind)
    async with database_proxy() as proxy:
        store = events.PostgresStore(proxy.address, table=f"lost_{next(_numbers)}")
        service = Service(mode="inbox", store=store)
        await service.receiver.store.open()
        # the statement is prepared, then executed with this
        proxy.lose("INSERT INTO", kind)
        first = await service.deliver(body, **{how: True})
        assert (first.status, first.outcome, proxy.lost) == (503, "unavailable", 1)

        async with service.receiver:
            await eventually(lambda: service.seen)
            again = await service.deliver(body, **{how: True})
            found = service.receiver.stats()
        counts = await service.receiver.store.counts()  # once the worker has ended
        await service.receiver.store.close()

    assert (again.status, again.outcome) == (200, "duplicate")
    assert (len(service.seen), counts) == (1, {"open": 0, "handled": 1, "dead": 0})
    assert found.answers == {(503, "unavailable"): 1, (200, "duplicate"): 1}
    assert found.calls == 1
