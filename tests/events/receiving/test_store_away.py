"""A receiver whose database is away as it starts opens all the same, and goes on once the database is back."""

from __future__ import annotations

from typing import Any

import pytest

from invsvc_async import events
from invsvc_async.errors import JournalError
from tests.events.bodies import signed_body, v2
from tests.events.receiving.test_receiver import Service, eventually
from tests.support.database_proxy import database_proxy

pytestmark = pytest.mark.one_python


@pytest.fixture
async def proxy():
    """Yield a proxy to which nobody can connect yet."""
    async with database_proxy() as made:
        made.cut()
        yield made


@pytest.mark.parametrize("mode", ["inline", "inbox"])
async def test_database_that_is_away_at_the_start(
    mode: Any, proxy, request, caplog
) -> None:
    """Deliveries are answered 503 and it is not healthy; once the database is back, both are well."""
    store = events.PostgresStore(proxy.address, table=f"away_{mode}")
    service = Service(mode=mode, store=store)
    async with service.receiver as receiver:
        assert "starts without its store" in caplog.text
        assert (await service.deliver(v2("invoice.created"), shared=True)).status == 503
        assert (
            await service.deliver(signed_body("sat.invoice.synced"), signed=True)
        ).status == 503
        assert not (await receiver.health()).ok

        await proxy.open()

        assert (await service.deliver(v2("invoice.created"), shared=True)).status == 200
        await eventually(lambda: service.seen)
        assert (await receiver.health()).ok


async def test_application_whose_database_is_away_at_the_start(proxy) -> None:
    """The ASGI application starts, so that a server does not end for it."""
    receiver = events.Receiver(
        secrets=["s"],
        mode="inbox",
        store=events.PostgresStore(proxy.address, table="away_asgi"),
    )
    sent = []
    steps = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive():
        return next(steps)

    async def send(message):
        sent.append(message["type"])

    await receiver.asgi_app({"type": "lifespan"}, receive, send)

    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_store_that_waiting_does_not_mend(tmp_path) -> None:
    """A store that cannot be used at all still ends the start."""
    with pytest.raises(JournalError):
        async with Service(mode="inbox", store=str(tmp_path)).receiver:
            pass
