"""Stores in a database that was copied by ``CREATE DATABASE … TEMPLATE``, and renamed into the original's place."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from functools import partial

import pytest

from invsvc_async import JournalError, Outbox, Verdict
from invsvc_async.batch import Batch
from invsvc_async.durable.store.restored import wrong_with_place
from tests.batch.conftest import client_of
from tests.batch.test_restored import refused, run
from tests.batch.writing import creates, made_once
from tests.outbox.conftest import update, verdicts_of
from tests.support.database import connected, database
from tests.support.waiting import until, until_no

pytestmark = [pytest.mark.one_python, pytest.mark.slow]

REFUSED = "journal: it was restored from a copy, or moved, so it may lack keys"
LENGTH = len(REFUSED)
OTHER = "the database is another one than before"


@pytest.fixture
async def place(request):
    """Yield a database of its own, and functions that copy it and that put the copy in its place."""
    name = f"d{abs(hash(request.node.nodeid))}"
    copy, gone = f"{name}_copy", f"{name}_gone"

    async with database().fresh(name) as address, connected() as admin:

        async def make_copy():
            await admin.execute(f"CREATE DATABASE {copy} TEMPLATE {name}")

        async def replace():
            # As in a failover, the connections of those that live on are cut, and none is made meanwhile.
            await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            await until_no(partial(sessions, admin, name))
            await admin.execute(f"ALTER DATABASE {name} RENAME TO {gone}")
            await admin.execute(f"ALTER DATABASE {copy} RENAME TO {name}")

        yield address, make_copy, replace
        await admin.execute(f"DROP DATABASE IF EXISTS {gone} WITH (FORCE)")


async def sessions(admin, name):
    """End the sessions of a database, and return how many there were."""
    end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1"
    return await admin.fetchval(end, name)


def at(address, kind):
    """Return the address of a store of *kind* there."""
    return f"{address}{'&' if '?' in address else '?'}{kind}=store&silence=1"


async def enqueued(outbox, address, *writes):
    """Enqueue *writes* in one transaction there, and return their keys."""
    async with connected(address) as made, made.transaction():
        return [await outbox.enqueue(made, write) for write in writes]


async def keys(client, numbers):
    """Make a webhook under a key for each of *numbers*."""
    for number in numbers:
        yield (
            await client.webhooks.create(
                url=f"https://me.example/{number}", events=["invoice.created"]
            )
            .keyed(f"key-{number}")
            .outcome()
        )


async def told(client, number):
    """Return the verdict of a key's write, or the first words of the error."""
    try:
        [outcome] = [each async for each in keys(client, [number])]
    except JournalError as error:
        return str(error)[:LENGTH]
    return str(outcome.verdict)


async def test_keys_of_processes_that_live_on(service, place):
    """Each learns of the copy by itself, though the first to connect has noted it; and that it is complete."""
    address, make_copy, replace = place
    journal = at(address, "journal")
    async with client_of(service, journal=journal) as client:
        assert await told(client, 0) == "applied"
    await make_copy()
    async with (
        client_of(service, journal=journal) as one,
        client_of(service, journal=journal) as other,
    ):
        for client, number in ((one, 1), (other, 2)):
            assert await told(client, number) == "applied"
        await replace()
        for client in (one, other, one, other):
            assert [await told(client, number) for number in (0, 1, 2)] == [
                "applied",
                REFUSED,
                REFUSED,
            ]
        async with client_of(service, journal=f"{journal}&complete=true") as third:
            assert await told(third, 3) == "applied"
        for client, number in ((one, 4), (other, 5)):
            assert await told(client, number) == "applied"
    assert made_once(service) == 6


async def test_keys(service, place, caplog):
    """Those that the copy lacks are not written again, and the log says why; those that it has are replayed."""
    address, make_copy, replace = place
    async with client_of(service, journal=at(address, "journal")) as client:
        assert [each.verdict async for each in keys(client, range(4))] == [
            Verdict.APPLIED
        ] * 4
    await make_copy()
    async with client_of(service, journal=at(address, "journal")) as client:
        assert [each.verdict async for each in keys(client, range(4, 8))] == [
            Verdict.APPLIED
        ] * 4
    await replace()
    with caplog.at_level(logging.ERROR, "invsvc_async.writes"):
        async with client_of(service, journal=at(address, "journal")) as client:
            assert [each.replayed async for each in keys(client, range(4))] == [
                True
            ] * 4
            with pytest.raises(JournalError, match=r"may lack keys.*complete=true"):
                await anext(keys(client, range(4, 8)))
    assert OTHER in caplog.text
    assert made_once(service) == service.arrivals("webhooks.create") == 8


async def test_batch(service, client, place):
    """It is refused in words; once told, what the copy lacks is settled before it is sent."""
    address, make_copy, replace = place
    journal = at(address, "batch")
    await run(journal, client, creates(client, 4))
    await make_copy()
    await run(journal, client, creates(client, 10))
    await replace()
    words = await refused(journal, client, OTHER, creates(client, 10))
    assert "--restored" in words
    assert service.arrivals("webhooks.create") == 10
    results = await run(journal, client, creates(client, 10), restored=True)
    assert {each.verdict for each in results.values()} == {Verdict.APPLIED}
    assert made_once(service) == 10


async def test_outbox(service, client, place, caplog):
    """Nothing of what the copy has as open is sent, and the log says why; once told, it is settled first."""
    address, make_copy, replace = place
    hook, path = service.seed_webhook().id, at(address, "outbox")
    async with Outbox.open(path, client) as outbox:
        async with outbox.dispatching():  # which notes the place
            [key] = await enqueued(
                outbox, address, update(client, service, "before", hook)
            )
            assert await verdicts_of(outbox, [key]) == [Verdict.APPLIED]
        updates = [
            update(client, service, f"text {number}", hook) for number in range(3)
        ]
        waiting = await enqueued(outbox, address, *updates)
    await make_copy()
    async with Outbox.open(path, client) as outbox, outbox.dispatching():
        assert await verdicts_of(outbox, waiting) == [Verdict.APPLIED] * 3
    await replace()
    assert service.arrivals("webhooks.update") == 4
    with caplog.at_level(logging.ERROR, "invsvc_async.outbox"):
        async with Outbox.open(path, client) as outbox, outbox.dispatching():
            await until(lambda: OTHER in caplog.text)
    assert service.arrivals("webhooks.update") == 4
    async with Outbox.open(path, client, restored=True) as outbox, outbox.dispatching():
        verdicts = await verdicts_of(outbox, waiting)
    assert verdicts[-1] is Verdict.APPLIED
    assert service.arrivals("webhooks.update") == 4


async def test_store_of_the_first_version(service, client, place):
    """It noted no database: it opens as before, notes it then, and a copy that is made later is recognised."""
    address, make_copy, replace = place
    journal = at(address, "batch")
    await run(journal, client, creates(client, 2))

    @asynccontextmanager
    async def facts():
        async with connected(address) as owner:
            await owner.execute("SET search_path = invoicing_batch_store")
            yield owner

    async with facts() as owner:
        await owner.execute("DELETE FROM facts WHERE name = 'place database'")
    async with Batch.open(journal, client):
        pass
    async with facts() as owner:
        assert (
            await owner.fetchval(
                "SELECT count(*) FROM facts WHERE name = 'place database'"
            )
            == 1
        )
    await make_copy()
    await run(journal, client, creates(client, 3))
    await replace()
    await refused(journal, client, OTHER, creates(client, 3))
    assert service.arrivals("webhooks.create") == 3


def test_what_only_one_place_names():
    """It is not compared."""
    known = {"timeline": "00000001", "entries": "7"}
    assert wrong_with_place(known, {**known, "database": "5"}) is None
    assert wrong_with_place({**known, "database": "5"}, known) is None
    assert OTHER in (
        wrong_with_place({**known, "database": "5"}, {**known, "database": "6"}) or ""
    )
