"""A commit that outlasts its connection, as one that waits for a standby: what comes next waits until it has ended."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from invsvc_async import JournalError, Verdict
from invsvc_async.batch import Batch
from invsvc_async.outbox import Outbox
from tests.batch.conftest import client_of
from tests.batch.writing import all_of, creates
from tests.durable.writing import rename
from tests.support.database import connected, database
from tests.support.inside import store_beneath
from tests.support.slow_commits import slow_commits
from tests.support.waiting import cancel, until

pytestmark = pytest.mark.one_python

_SENT = '"sent":['  # in the intent of a write that is about to be sent
_ANSWERED = '"answered"'  # in the outcome of one that was answered
_WITHIN = 300.0  # s in which a run ends, if it ends


@pytest.fixture
async def proxy():
    async with slow_commits() as running:
        yield running


@asynccontextmanager
async def let_go_later(proxy):
    """Let the held commit end once the next try has begun, or has been held up."""

    async def later():
        await until(lambda: proxy.held)
        await asyncio.sleep(0.7)  # sleeps: the next try comes 0.2 s after the cut
        await proxy.let_go()

    letting = asyncio.create_task(later())
    try:
        async with asyncio.timeout(_WITHIN):
            yield
        assert proxy.held
    finally:
        await cancel(letting)


def at(proxy, kind, request, silence=30):
    """Return the address of a store of the test's own, through *proxy*."""
    name = f"s{abs(hash(request.node.nodeid))}"
    return f"{proxy.address}&{kind}={name}&silence={silence}"


async def test_lanes_that_were_taken(proxy, service, client, request):
    """They are of the process that took them, which sends what is in them."""
    proxy.hold("SET owner = given.token")
    async with (
        let_go_later(proxy),
        Batch.open(at(proxy, "batch", request), client, tag=False) as batch,
    ):
        results = await all_of(batch, creates(client, 4))
    assert [result.verdict for result in results] == [Verdict.APPLIED] * 4
    assert len(service.ledger.effects("webhooks.create")) == 4


async def test_verdicts_that_were_taken(proxy, service, client, request):
    """They are given by the process that took them."""
    address = at(proxy, "outbox", request)
    kept = {"on_secret": lambda *_: None}
    async with Outbox.open(address, client, **kept) as sender, sender.dispatching():
        for write in creates(client, 3):
            await sender.send(write)
    proxy.hold("SET taker = $1")
    given = []
    async with (
        let_go_later(proxy),
        Outbox.open(address, client, **kept) as giver,
    ):
        async for result in giver.results():
            given.append(result.key)
            if len(given) == 3:
                break
    assert sorted(given) == ["row-0", "row-1", "row-2"]


async def test_write_that_is_about_to_be_sent(proxy, service, client, request):
    """It is sent, before a later one to the same thing."""
    proxy.hold(_SENT, commit=_SENT)
    journey = service.seed_journey()
    names = ["first", "second", "third"]
    writes = [
        client.journeys.update(journey.id, name=each).keyed(each) for each in names
    ]
    async with (
        let_go_later(proxy),
        Batch.open(at(proxy, "batch", request), client) as batch,
    ):
        results = await all_of(batch, writes)
    assert [result.verdict for result in results] == [Verdict.APPLIED] * 3
    assert [each.body["name"] for each in service.ledger.effects()] == names


async def test_end_of_a_batch_write(proxy, service, client, request):
    """Its result is given by the run that sent it."""
    proxy.hold(_ANSWERED, commit=_ANSWERED)
    async with (
        let_go_later(proxy),
        Batch.open(at(proxy, "batch", request), client, tag=False) as batch,
    ):
        results = await all_of(batch, creates(client, 4))
    assert [result.verdict for result in results] == [Verdict.APPLIED] * 4


async def test_secret_of_a_keyed_create(proxy, service, request):
    """The run that has the answer returns it."""
    proxy.hold(_ANSWERED, commit=_ANSWERED)
    async with (
        let_go_later(proxy),
        client_of(service, journal=at(proxy, "journal", request)) as client,
    ):
        [create] = creates(client, 1)
        outcome = await create.outcome()
    assert (outcome.verdict, outcome.secret) == (Verdict.APPLIED, "returned")


@pytest.mark.parametrize(
    "cuts",
    [
        pytest.param(True, id="cut"),
        # it takes the 10 s for which a write waits for a reply
        pytest.param(False, id="no reply", marks=pytest.mark.slow),
    ],
)
async def test_claim_that_outlasts_its_run(proxy, service, request, cuts):
    """The run ends with an error; what was claimed is released, so that another process runs the key."""
    address = at(proxy, "journal", request, silence=600)
    async with (
        asyncio.timeout(_WITHIN),
        client_of(service, journal=address) as one,
        client_of(service, journal=address) as other,
    ):
        assert await one.outcome_of("k1") is None  # it is open
        await rename(other, "zero", "k0")  # so that a key of the thing is claimed first
        proxy.hold(" k1", commit=" k1", cuts=cuts)
        running = asyncio.create_task(rename(one, "A", "k1").outcome())
        await until(lambda: proxy.held)
        usual, store_beneath(one).patience = store_beneath(one).patience, 1.0
        with pytest.raises(JournalError):
            await running
        store_beneath(one).patience = usual
        await asyncio.sleep(0.7)  # sleeps: the release comes at once
        await proxy.let_go()
        outcome = await rename(other, "A", "k1").outcome()
    assert outcome.verdict is Verdict.APPLIED
    assert [each.body["name"] for each in service.ledger.effects()] == ["zero", "A"]


async def test_read_that_goes_on(service, client, request):
    """A read of a lost connection, which changes nothing, is not waited for."""
    address = database().at(batch=f"s{abs(hash(request.node.nodeid))}")
    async with Batch.open(address, client) as batch:
        store = batch.entries.store
        reading = asyncio.create_task(store.rows("SELECT 1 FROM pg_sleep(300)"))
        async with connected() as admin:
            pid = await until(
                lambda: admin.fetchval(
                    "SELECT pid FROM pg_stat_activity WHERE query = 'SELECT 1 FROM pg_sleep(300)'"
                )
            )
            await cancel(reading)
            async with asyncio.timeout(_WITHIN):
                assert await batch.summary()
            assert await admin.fetchval("SELECT pg_terminate_backend($1)", pid)
