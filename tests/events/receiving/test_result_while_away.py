"""A result that cannot be stored at once, because the database is away as the handler ends."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import events
from tests.events.bodies import HEADER, SECRET, encoded, headers_of, signed_body, v2
from tests.support.database_proxy import database_proxy
from tests.support.waiting import until

pytestmark = pytest.mark.one_python


@pytest.mark.parametrize("fails", [False, True], ids=["handled", "failed"])
async def test_database_that_is_away_as_a_handler_ends(fails: bool) -> None:
    """The result is stored once the database is back, and not only once the lease has ended."""
    begun: list[str] = []
    ended = asyncio.Event()
    async with database_proxy() as proxy:
        table = f"away_at_the_end_{fails}".lower()
        receiver = events.Receiver(
            secrets=(), shared_header=HEADER, mode="inbox",
            store=events.PostgresStore(proxy.address, table=table),
            inbox=events.InboxPolicy(initial=0.001),
        )  # fmt: skip

        @receiver.on("*")
        async def handle(event: events.Event) -> None:
            begun.append(str(event.id))
            if len(begun) == 1:
                proxy.cut()
                ended.set()
                if fails:
                    raise ValueError

        async with receiver:
            raw = encoded(v2("invoice.created"))
            assert (
                await receiver.receive(raw, headers_of(raw, shared=True))
            ).status == 200
            await ended.wait()
            # sleeps: so that the result meets a database that is away
            await asyncio.sleep(0.1)
            await proxy.open()

            async def handled() -> bool:
                return dict(await receiver.store.counts())["handled"] == 1

            await until(handled)
    assert begun == ["dlv_1"] * (2 if fails else 1)


async def test_inline_result_while_the_database_is_away() -> None:
    """A signed event, which was answered, is stored as handled, so that no worker handles it again."""
    async with database_proxy() as proxy:
        store = events.PostgresStore(proxy.address, table="away_at_the_end_inline")
        receiver = events.Receiver(secrets=[SECRET], store=store)

        @receiver.on("*")
        async def handle(_: events.Event) -> None:
            proxy.cut()

        async with receiver:
            raw = encoded(signed_body("sat.invoice.synced"))
            receipt = await receiver.receive(raw, headers_of(raw, signed=True))
            assert (receipt.status, receipt.outcome) == (200, "handled")
            await proxy.open()

            async def handled() -> bool:
                return dict(await receiver.store.counts())["handled"] == 1

            await until(handled)
