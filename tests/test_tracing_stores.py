"""What OpenTelemetry is told of stores of writes: what waits in them, and keyed writes that had an outcome."""

from __future__ import annotations

import asyncio
import threading

import aiosqlite
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from invsvc_async import tracing
from invsvc_async.batch import Batch
from invsvc_async.durable.backlog import Backlogs
from invsvc_async.outbox import Outbox
from tests.batch.conftest import HOOK, client_of
from tests.support.database import database
from tests.support.database_proxy import database_proxy
from tests.support.inside import store_beneath
from tests.support.waiting import until, until_no

pytestmark = pytest.mark.one_python


class Collected:
    """The metrics of a client, which are collected in another thread, as exporters do."""

    def __init__(self, client):
        self.reader = InMemoryMetricReader()
        tracing.instrument(client, meter_provider=MeterProvider([self.reader]))

    async def now(self):
        """Return the values of a reading, by metric and store or verdict."""
        return await asyncio.to_thread(self.read)

    def read(self):
        """Return the same; called in the loop's thread, which can answer nothing meanwhile."""
        data = self.reader.get_metrics_data()
        metrics = data.resource_metrics[0].scope_metrics[0].metrics if data else []
        return {
            (
                metric.name.removeprefix("invsvc."),
                *_which(point.attributes),
            ): point.value
            for metric in metrics
            if metric.name.startswith("invsvc.")
            for point in metric.data.data_points
        }

    async def until(self, **wanted):
        """Read until the gauges of stores have these values; return the last reading."""
        wanted = {
            (f"store.{field}", store): value for field, (store, value) in wanted.items()
        }

        async def as_wanted():
            found = await self.now()
            return found if wanted.items() <= found.items() else None

        return await until(as_wanted)

    async def oldest(self, store):
        """Return the age in seconds of the oldest open write of *store*."""
        return (await self.now())["store.oldest", store]

    async def are_of_a_store(self):
        """Return whether there is any gauge of a store."""
        return any(name.startswith("store.") for name, *_ in await self.now())


def _which(attributes):
    return [
        attributes[name]
        for name in ("invsvc.store", "invsvc.verdict")
        if name in attributes
    ]


def create(client, key):
    return client.webhooks.create(**{**HOOK, "url": f"https://me.example/{key}"}).keyed(
        key
    )


@pytest.mark.parametrize("kind", ["SQLite", "PostgreSQL"])
async def test_what_waits_in_a_journal(service, tmp_path, request, kind):
    """An open write is counted, with its age, until it has its verdict; a reading has what the last one asked."""
    shared = kind == "PostgreSQL"
    journal = (
        database().at(journal=f"g{abs(hash(request.node.nodeid))}")
        if shared
        else tmp_path / "calls.db"
    )
    service.script("webhooks.create", "hang")
    async with client_of(service, journal=journal, on_secret=lambda *_: None) as client:
        collected = Collected(client)
        assert not any(name.startswith("store.") for name, *_ in collected.read())
        running = asyncio.create_task(create(client, "k").outcome())
        await service.arrived("webhooks.create")
        found = await collected.until(
            open=("journal", 1), lanes=("journal", 1), untold=("journal", 0)
        )
        at_least = found["store.oldest", "journal"] + 0.1

        async def is_older():
            return await collected.oldest("journal") >= at_least

        await until(is_older)
        running.cancel()
        assert (await create(client, "k").outcome()).applied
        empty = await collected.until(open=("journal", 0))
        assert empty["store.oldest", "journal"] == 0


async def test_replays_are_counted(service, tmp_path):
    """By verdict; they are no further writes."""
    async with client_of(
        service, journal=tmp_path / "calls.db", on_secret=lambda *_: None
    ) as client:
        collected = Collected(client)
        for _ in range(3):
            await create(client, "k")
        await asyncio.gather(*(create(client, "two") for _ in range(4)))
        found = await collected.now()
    assert found["writes", "applied"] == 2
    assert found["replays", "applied"] == 2 + 3


@pytest.mark.slow
async def test_what_waits_in_an_outbox_and_a_batch(service, tmp_path):
    """Each kind of store has values of its own."""
    app = tmp_path / "app.db"
    service.script("journeys.update", "hang")
    async with client_of(service) as client, Outbox.open(app, client) as outbox:
        collected = Collected(client)
        async with aiosqlite.connect(app) as connection:
            for name in ("one", "two"):
                await connection.execute("BEGIN")
                await outbox.enqueue(
                    connection, client.journeys.update("jrn_1", name=name)
                )
                await connection.commit()
        async with outbox.dispatching():
            await service.arrived("journeys.update")
            await collected.until(open=("outbox", 2))
            await collected.until(open=("outbox", 0), untold=("outbox", 2))
        batch_at = tmp_path / "batch.db"
        async with Batch.open(batch_at, client) as batch:
            service.script("journeys.update", "hang")
            run = batch.run(
                [
                    client.journeys.update("jrn_1", name=f"n{i}").keyed(str(i))
                    for i in range(3)
                ]
            )
            reading = asyncio.create_task(anext(run))
            await service.arrived("journeys.update")
            await collected.until(open=("batch", 3))
            assert (await reading).verdict
            async for _ in run:
                pass


async def test_no_connection_and_no_value_while_the_database_is_away(service):
    """A reading neither waits nor connects; what is not known any more is not told."""
    async with database_proxy() as proxy:
        mark = "&" if "?" in proxy.address else "?"
        journal = f"{proxy.address}{mark}journal=gauges{id(service)}&silence=60"
        async with client_of(
            service, journal=journal, on_secret=lambda *_: None
        ) as client:
            collected = Collected(client)
            await create(client, "k")
            await collected.until(open=("journal", 0))
            usual, store_beneath(client).patience = store_beneath(client).patience, 0.3
            proxy.cut()
            await until_no(collected.are_of_a_store)
            await proxy.open()
            store_beneath(client).patience = usual
            await collected.until(open=("journal", 0))


async def test_loop_that_is_closed(service):
    """A reading after the end of the client's loop is empty, and raises nothing."""

    class Store:
        async def rows(self, *_):
            return [(1, 1000)]

    class Leases:
        store, lanes = Store(), {}

    leases = Leases()
    loop = asyncio.new_event_loop()
    backlogs = Backlogs({leases: ("journal", loop)})
    ended = threading.Event()

    def run():
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        ended.set()

    threading.Thread(target=run).start()
    await asyncio.to_thread(ended.wait)
    backlogs.ask()
    assert backlogs.found() == {}
