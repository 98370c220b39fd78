"""Waiting for a verdict: in the process that sends and in others, and a write that is enqueued and awaited at once."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import (
    DeadlineExceededError,
    JournalError,
    KeyConflictError,
    Outbox,
    PermissionDeniedError,
    SecretLostError,
    Verdict,
)
from invsvc_async.concurrency.deadline import set_within
from invsvc_async.outbox import changes
from tests.batch.conftest import HOOK, client_of
from tests.outbox.conftest import enqueue, entries_of, update, written
from tests.support.inside import outbox_entries, store_beneath
from tests.support.waiting import cancel, until


@pytest.fixture
async def outbox(place, client):
    async with Outbox.open(place, client) as opened:
        yield opened


# --- send


async def test_key_again(service, client, outbox):
    """An applied write gives its outcome again; one that was refused is done anew; another write is refused."""
    hook = service.seed_webhook().id
    service.script("webhooks.update", "403")

    def send(text, key):
        return asyncio.wait_for(
            outbox.send(update(client, service, text, hook).keyed(key)), 60
        )

    async with outbox.dispatching():
        with pytest.raises(PermissionDeniedError):
            await send("first", "a")
        for _ in range(2):
            assert (await send("first", "a")).description == "first"
        with pytest.raises(KeyConflictError, match="another write under the key 'a'"):
            await send("second", "a")
    assert service.arrivals("webhooks.update") == 2
    assert written(service.ledger.effects()) == ["first"]


async def test_key_that_two_send_at_once(service, client, outbox):
    """Both get the verdict of the one write."""
    hook = service.seed_webhook().id
    async with outbox.dispatching():
        writes = [update(client, service, "x", hook).keyed("a") for _ in range(2)]
        both = await asyncio.wait_for(
            asyncio.gather(*(outbox.send(write) for write in writes)), 60
        )
    assert [each.description for each in both] == ["x", "x"]
    assert service.arrivals("webhooks.update") == 1


async def test_secret_of_a_sent_create(service, client, place, outbox):
    """Nobody had it: that is raised as awaiting the create would; or ``on_secret`` had it, and it is returned."""
    async with outbox.dispatching():
        with pytest.raises(SecretLostError):
            await asyncio.wait_for(outbox.send(client.webhooks.create(**HOOK)), 60)
        kept = await asyncio.wait_for(
            outbox.send(client.webhooks.create(**HOOK, on_lost_secret="keep")), 60
        )
        assert kept.secret is None
    await outbox.__aexit__(None, None, None)
    secrets = {}

    def keep(key, hook):
        secrets[key] = hook.secret

    async with Outbox.open(place, client, on_secret=keep) as other, other.dispatching():
        hook = await asyncio.wait_for(
            other.send(client.webhooks.create(**HOOK).keyed("a")), 60
        )
    assert hook.secret is None
    assert secrets["a"]


async def test_call_that_is_cancelled(service, client, outbox):
    """The write is sent all the same, and another call with its key gets the outcome."""
    hook = service.seed_webhook().id
    waiting = asyncio.create_task(
        outbox.send(update(client, service, "x", hook).keyed("a"))
    )
    await until(lambda: outbox_entries(outbox).entry("a"))
    await cancel(waiting)
    assert waiting.cancelled()
    async with outbox.dispatching():
        await asyncio.wait_for(
            outbox.send(update(client, service, "x", hook).keyed("a")), 60
        )
    assert service.arrivals("webhooks.update") == 1


async def test_write_that_is_deleted_before_its_verdict_is_seen(
    service, client, outbox, monkeypatch
):
    """Whether it was dropped unsent, or pruned once it was done: the call ends, and says so."""
    sending = asyncio.create_task(outbox.send(update(client, service).keyed("dropped")))
    await until(lambda: outbox_entries(outbox).entry("dropped"))
    assert await outbox.drop("dropped")
    with pytest.raises(JournalError, match="'dropped' was deleted"):
        await asyncio.wait_for(sending, 300)
    assert service.arrivals("webhooks.update") == 0

    looks, look = asyncio.Event(), outbox_entries(outbox).entry

    async def late(key):
        await looks.wait()
        return await look(key)

    monkeypatch.setattr(outbox_entries(outbox), "entry", late)
    async with outbox.dispatching():
        sending = asyncio.create_task(
            outbox.send(update(client, service).keyed("pruned"))
        )
        await service.arrived("webhooks.update")
        await until(lambda: outbox.prune(older_than=0, unacknowledged=True))
        looks.set()
        with pytest.raises(JournalError, match="'pruned' was deleted"):
            await asyncio.wait_for(sending, 300)


@pytest.mark.parametrize("place", ["SQLite"], indirect=True)
async def test_row_that_is_moved_while_it_is_looked_for(
    service, client, outbox, monkeypatch
):
    """It is found all the same."""
    [key] = await enqueue(outbox, update(client, service))
    store, look = store_beneath(outbox), store_beneath(outbox).entries

    async def found(*values):
        monkeypatch.setattr(store, "entries", look)
        entries = await look(*values)
        await outbox_entries(outbox).move()
        return entries

    monkeypatch.setattr(store, "entries", found)
    assert await outbox_entries(outbox).entry(key) is not None


# --- wait


async def test_nobody_dispatches(service, client, outbox):
    """After the time that was given, the error says what to check. The write stays."""
    with pytest.raises(
        DeadlineExceededError,
        match=r"no verdict within 0\.05 s\. .*dispatches this outbox",
    ):
        await outbox.wait("a", timeout=0.05)
    sending = asyncio.create_task(outbox.send(update(client, service, "x").keyed("a")))
    await until(lambda: entries_of(outbox))
    await cancel(sending)
    assert await outbox.get("a") is None
    async with outbox.dispatching():
        assert (await outbox.wait("a", timeout=300)).verdict is Verdict.APPLIED
    assert (await outbox.wait("a", timeout=300)).value.description == "x"


async def test_outbox_that_is_closed_meanwhile(client, place):
    """Who waits is told; and a closed one is not waited for."""
    async with Outbox.open(place, client) as outbox:
        waiting = asyncio.create_task(outbox.wait("a"))
        await asyncio.sleep(0.1)  # sleeps: so that it waits; nothing tells
    with pytest.raises(JournalError, match="not open"):
        await asyncio.wait_for(waiting, 60)
    with pytest.raises(JournalError, match="not open"):
        await asyncio.wait_for(outbox.wait("a"), 60)


@pytest.mark.parametrize("is_told", [True, False])
async def test_verdict_that_another_process_has_stored(
    service, client, address, monkeypatch, is_told
):
    """A notification wakes those that wait for it; without one, they look now and then."""
    monkeypatch.setattr(changes, "_POLL", 600.0 if is_told else 0.2)
    async with (
        client_of(service) as other,
        Outbox.open(address, other) as here,
        Outbox.open(address, client) as there,
        there.dispatching(),
    ):
        if not is_told:
            # reaches: a notice that is lost
            monkeypatch.setattr(there._changes, "tell_others", asyncio.Event().wait)
        looking = here.wait("a"), here.wait("b"), anext(results := here.results())
        waiting = asyncio.gather(*looking)
        await asyncio.sleep(0.2)  # sleeps: so that all three wait; nothing tells
        await enqueue(
            there, *(update(client, service).keyed(key) for key in ("a", "b"))
        )
        one, two, result = await asyncio.wait_for(waiting, 60)
        await results.aclose()
    assert [one.verdict, two.verdict, result.verdict] == [Verdict.APPLIED] * 3
    assert (result.applied, result.outcome.value.description) == (True, "mine")


async def test_verdicts_wake_no_dispatcher(service, client, address):
    """What is told of verdicts costs those that send no look for writes."""
    slow = address.replace("silence=60", "silence=14400")  # a poll each hour
    reads, read = [], asyncio.Event()
    async with Outbox.open(slow, client) as outbox, outbox.dispatching():
        await enqueue(outbox, update(client, service).keyed("a"))
        await outbox.wait("a", timeout=300)
        store = store_beneath(outbox)
        real = store.open_in

        async def noted(places, *more):
            reads.append([*places])
            read.set() if 7 in places else None
            return await real(places, *more)

        store.open_in = noted
        # At first, what the dispatcher does after its start may come, too.
        for _ in range(2):
            reads.clear()
            read.clear()
            while not read.is_set():
                await store.notify("verdicts", "7")
                await set_within(read, 0.2)
    assert [lanes for lanes in reads if len(lanes) > 1] == []


async def test_many_wait_at_once(service, client, outbox, monkeypatch):
    """Each is woken, whoever else looks meanwhile."""
    monkeypatch.setattr(changes, "_POLL", 600.0)
    async with outbox.dispatching():
        sent = [
            outbox.send(update(client, service, str(number))) for number in range(30)
        ]
        hooks = await asyncio.wait_for(asyncio.gather(*sent), 60)
    assert [hook.description for hook in hooks] == [str(number) for number in range(30)]
    assert service.arrivals("webhooks.update") == 30


async def test_process_that_only_reads(service, client, place, outbox):
    """It may wait, too."""
    async with client_of(service) as other, outbox.dispatching():
        await asyncio.wait_for(outbox.send(update(client, service).keyed("a")), 60)
        async with Outbox.open(place, other, reading=True) as reader:
            waiting = asyncio.create_task(reader.wait("b", timeout=300))
            assert (await reader.wait("a", timeout=300)).verdict is Verdict.APPLIED
            await asyncio.wait_for(outbox.send(update(client, service).keyed("b")), 60)
            assert (await waiting).verdict is Verdict.APPLIED
            with pytest.raises(JournalError, match="reading=True"):
                await reader.send(update(other, service))
