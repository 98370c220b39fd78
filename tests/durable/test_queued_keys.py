"""Keyed writes to one thing that waited for each other when their process ended: none is lost, and reasons are true."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from operator import attrgetter

import pytest

from invsvc_async import Timeouts, Verdict
from invsvc_async.durable.run_ends import RunEnds
from tests.batch.conftest import client_of
from tests.durable.child import process
from tests.durable.queue_child import are_claimed, claim_each, queue, update
from tests.durable.writing import held_at_begin
from tests.support.waiting import cancel, until

pytestmark = pytest.mark.silence(1)

KEYS = ("k1", "k2", "k3", "k4", "k5")
WAYS = ("in order", "reversed", "at once", "at once, reversed", "recovered, in order")
TEXT = {"journeys": "name", "webhooks": "description"}


def impatient_client(service, address):
    """Make a client that counts an attempt as lost soon: what a cancelled one has sent is waited for as long."""
    return client_of(service, journal=address, timeout=Timeouts(attempt=6.0))


def thing_of(service, kind):
    return (service.seed_journey() if kind == "journeys" else service.seed_webhook()).id


def written(service, kind):
    """Return the keys of the effects in the ledger, in their order."""
    effects = sorted(
        service.ledger.effects(f"{kind}.update"), key=attrgetter("applied_at")
    )
    return [entry.body[TEXT[kind]] for entry in effects]


@pytest.fixture
def claimed(monkeypatch):
    """Let each write claim its key before it waits for earlier ones."""
    # reaches: one that could be sent as soon as its turn comes would claim its key as it is sent
    monkeypatch.setattr("invsvc_async.durable.key_steps._is_sent_at_once", claim_each)


async def until_claimed(client, running):
    """Wait until all writes that are *running* have claimed their keys, and none of them has ended."""

    async def are_all():
        return running[0].done() or await are_claimed(client, len(running))

    await until(are_all)
    assert not running[0].done(), running[0].result().explain()


async def run_again(client, kind, thing, how, keys=KEYS):
    """Run the writes of *keys* in one of the ways; return the outcomes by key."""
    if how.startswith("recovered"):
        await client.recover()
    chosen = [*reversed(keys)] if how.endswith("reversed") else keys
    if how.startswith("at once"):
        running = [
            asyncio.create_task(update(client, kind, thing, key).outcome())
            for key in chosen
        ]
        found = [await each for each in running]
    else:
        found = [await update(client, kind, thing, key).outcome() for key in chosen]
    return dict(zip(chosen, found, strict=True))


def judge(service, kind, outcomes, how):
    """Each write took effect once, in order, unless a newer one was sent before; the reason is true."""
    effects = written(service, kind)
    assert effects == sorted({*effects}), effects
    for key, outcome in outcomes.items():
        if key in effects:
            assert outcome.verdict is Verdict.APPLIED, outcome.explain()
        else:
            assert how == "reversed", (key, outcome.explain())
            assert (outcome.verdict, outcome.evidence.cause) == (
                Verdict.NOT_APPLIED,
                "overtaken",
            )
            assert any(
                entry.body[TEXT[kind]] > key
                for entry in service.ledger.effects(f"{kind}.update")
            )
    assert effects[-1] == max(outcomes)


@pytest.mark.usefixtures("claimed")
async def test_keys_have_entries_while_they_wait(service, address):
    """What waits for the first write is in the journal before that one ends."""
    thing = thing_of(service, "webhooks")
    service.script("webhooks.update", "hang")
    async with client_of(
        service, journal=address, timeout=Timeouts(attempt=60.0)
    ) as client:
        running = [
            asyncio.create_task(update(client, "webhooks", thing, key).outcome())
            for key in KEYS
        ]
        await until_claimed(client, running)
        await cancel(*running)


@pytest.mark.slow
@pytest.mark.usefixtures("claimed")
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("kind", TEXT)
async def test_queue_that_was_cancelled(service, address, kind, how):
    """The next process sends what waited."""
    thing = thing_of(service, kind)
    service.script(f"{kind}.update", "apply, then hang")
    async with impatient_client(service, address) as client:
        running = [
            asyncio.create_task(update(client, kind, thing, key).outcome())
            for key in KEYS
        ]
        await service.arrived(f"{kind}.update")
        await until_claimed(client, running)
        await cancel(*running)
    async with impatient_client(service, address) as client:
        judge(service, kind, await run_again(client, kind, thing, how), how)


@pytest.mark.untraced
@pytest.mark.one_python
@pytest.mark.parametrize(
    ("kind", "how", "sent", "fate"),
    [
        ("journeys", "in order", "SIGTERM", "apply, then hang"),
        ("webhooks", "at once, reversed", "SIGTERM", "hang"),
        ("journeys", "at once, reversed", "SIGKILL", "hang"),
        ("webhooks", "recovered, in order", "SIGKILL", "hang"),
        ("webhooks", "in order", "SIGKILL", "apply, then hang"),
        ("journeys", "reversed", "SIGKILL", "apply, then hang"),
    ],
)
async def test_queue_of_a_process_that_was_ended(
    service, address, kind, how, sent, fate
):
    """The same, if it was stopped or killed, while its first write had taken effect, or not."""
    thing = thing_of(service, kind)
    service.script(f"{kind}.update", fate)
    async with queue(service, address, kind, thing, KEYS) as child:
        await service.arrived(f"{kind}.update")
        assert len(written(service, kind)) <= 1, "the queue has been sent"
        child.send_signal(signal.Signals[sent])
        await child.wait()
    async with impatient_client(service, address) as client:
        judge(service, kind, await run_again(client, kind, thing, how), how)


@pytest.mark.untraced
@pytest.mark.one_python
@pytest.mark.parametrize("kind", TEXT)
async def test_write_whose_process_was_killed_before_it_was_sent(
    service, address, kind
):
    """Nothing later was sent to its thing, so a read that shows the state before it is proof enough to send it."""
    thing = thing_of(service, kind)
    arguments = {kind.removesuffix("s"): thing, TEXT[kind]: "k1", "key": "k1"}
    async with process(
        service, address, f"{kind}.update", "SIGKILL before the socket", **arguments
    ) as child:
        assert await child.wait() == -signal.SIGKILL
    assert written(service, kind) == []
    async with impatient_client(service, address) as client:
        outcome = await update(client, kind, thing, "k1").outcome()
    assert outcome.verdict is Verdict.APPLIED, outcome.explain()
    assert written(service, kind) == ["k1"]


async def test_start_order_is_the_order_of_the_claims(service, address):
    """Many keys of many things start together, in a new process that has to look up what their names are."""
    things = [thing_of(service, "webhooks") for _ in range(20)]
    async with impatient_client(service, address) as client:
        running = [
            asyncio.create_task(
                update(client, "webhooks", thing, f"{number}-{key}").outcome()
            )
            for key in KEYS
            for number, thing in enumerate(things)
        ]
        verdicts = {(await each).verdict for each in running}
    assert verdicts == {Verdict.APPLIED}
    effects = written(service, "webhooks")
    out_of_order = [
        number
        for number in range(len(things))
        if [each for each in effects if each.startswith(f"{number}-")]
        != [f"{number}-{key}" for key in KEYS]
    ]
    assert out_of_order == []


async def test_second_run_of_a_key_whose_first_run_is_cancelled(
    service, address, monkeypatch
):
    """It claims the key after the earlier starts for the thing, which the first run waited for."""
    thing = thing_of(service, "webhooks")
    may_go_on = asyncio.Event()
    until_stored = RunEnds.until_stored

    async def until_late(ends, name):
        if name.endswith("k0"):
            await may_go_on.wait()
        return await until_stored(ends, name)

    async with impatient_client(service, address) as client:
        await client.outcome_of("none")
        # reaches: a start that takes long before it claims
        monkeypatch.setattr(RunEnds, "until_stored", until_late)
        earlier, first, second = [
            asyncio.create_task(update(client, "webhooks", thing, key).outcome())
            for key in ("k0", "k1", "k1")
        ]
        await asyncio.sleep(0.2)  # sleeps: both have started
        await cancel(first)
        await asyncio.sleep(
            0.2
        )  # sleeps: the second run does not claim the key meanwhile
        may_go_on.set()
        assert (await earlier).applied
        assert (await second).applied
    assert written(service, "webhooks") == ["k0", "k1"]


@asynccontextmanager
async def waiting(service, address, thing, *keys):
    """Yield two clients in whose journal the writes of *keys* wait: their runs were cancelled before a byte was sent."""
    service.script("journeys.update", "apply, then hang")
    async with (
        impatient_client(service, address) as one,
        impatient_client(service, address) as other,
    ):
        running = [
            asyncio.create_task(update(one, "journeys", thing, key).outcome())
            for key in ("first", *keys)
        ]
        await service.arrived("journeys.update")
        await until_claimed(one, running)
        await cancel(*reversed(running))
        assert (await update(one, "journeys", thing, "first").outcome()).applied
        yield one, other


@pytest.mark.usefixtures("claimed")
async def test_later_write_that_begins_a_moment_before_an_earlier_one(
    service, shared, monkeypatch
):
    """It waits for a moment in which runs of earlier ones may begin, so that none is overtaken."""
    # on a slow machine, too
    monkeypatch.setattr("invsvc_async.durable.key_queue._MOMENT", 300.0)
    thing = thing_of(service, "journeys")
    async with waiting(service, shared, thing, "k1", "k2") as (one, other):
        later = asyncio.create_task(update(one, "journeys", thing, "k2").outcome())
        # sleeps: until what was cancelled can have no effect; it would be sent then if it did not wait
        await asyncio.sleep(3.0)
        assert (await update(other, "journeys", thing, "k1").outcome()).applied
        assert (await later).applied
    assert written(service, "journeys") == ["first", "k1", "k2"]


@pytest.mark.usefixtures("claimed")
async def test_earlier_write_that_is_run_just_before_a_later_one_is_sent(
    service, shared, monkeypatch
):
    """The later one has passed it over, and is about to be sent: it sees then that it has to wait."""
    thing = thing_of(service, "journeys")
    async with waiting(service, shared, thing, "k1", "k2") as (one, other):
        is_about_to, may_go = held_at_begin(monkeypatch, "k2")
        later = asyncio.create_task(update(one, "journeys", thing, "k2").outcome())
        await until(lambda: is_about_to.is_set() or later.done())
        assert not later.done(), later.result().explain()
        service.script("journeys.update", "slow 1")
        earlier = asyncio.create_task(update(other, "journeys", thing, "k1").outcome())
        await service.arrived("journeys.update", 2)
        may_go.set()
        assert (await earlier).applied, earlier.result().explain()
        assert (await later).applied
    assert written(service, "journeys") == ["first", "k1", "k2"]
    [_, first, second] = service.ledger.find("journeys.update")
    assert second.received_at > first.ended_at


@pytest.mark.usefixtures("claimed")
async def test_write_that_is_run_alone_overtakes_those_that_nobody_runs(
    service, address
):
    """It does not wait for them; they are told so, and the newer write was sent indeed."""
    thing = thing_of(service, "journeys")
    async with impatient_client(service, address) as client:
        service.script("journeys.update", "apply, then hang")
        running = [
            asyncio.create_task(update(client, "journeys", thing, key).outcome())
            for key in KEYS
        ]
        await until_claimed(client, running)
        await cancel(*running)
        assert (await update(client, "journeys", thing, "k5").outcome()).applied
        outcomes = await run_again(client, "journeys", thing, "at once")
    judge(service, "journeys", outcomes, "reversed")
