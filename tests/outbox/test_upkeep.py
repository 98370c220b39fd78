"""Finished writes that are deleted or done again, and what later processes know of them, in both databases."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import InvalidRequestError, JournalError, Outbox, Verdict
from tests.batch.conftest import client_of
from tests.outbox.conftest import (
    changes,
    ended,
    enqueue,
    entries_of,
    finished,
    update,
    verdict_of,
    verdicts_of,
    written,
)
from tests.outbox.test_results import taken
from tests.support.gate import PATIENT, gate
from tests.support.inside import outbox_entries, store_beneath
from tests.support.waiting import until

pytestmark = pytest.mark.one_python


@pytest.fixture
async def outbox(place, client):
    async with Outbox.open(place, client) as opened:
        yield opened


async def keys_in(outbox):
    return [entry.key for entry in await entries_of(outbox)]


async def test_prune_deletes_what_is_finished_and_acknowledged(service, client, outbox):
    """What is open, UNKNOWN, younger, or was not acknowledged stays, and is done as before."""
    service.script("webhooks.update", "pass", "apply, then reset")
    service.script("webhooks.get", "pass", "pass", "403")
    names = ("first", "unknown", "second", "unheard", "last")
    first, unknown, *rest = (update(client, service).keyed(name) for name in names)
    for writes in ([first], [unknown], rest):
        await finished(outbox, *writes)
    assert (await outbox.get("unknown")).verdict is Verdict.UNKNOWN
    # the fourth is not acknowledged
    assert (await taken(outbox, 4))[:3] == ["first", "unknown", "second"]
    [waiting] = await enqueue(outbox, update(client, service))
    assert await outbox.prune(older_than=3600) == 0
    assert await outbox.prune(older_than=0) == 2
    assert await keys_in(outbox) == ["unknown", "unheard", "last", waiting]
    assert await outbox.get("first") is None
    assert await taken(outbox, 2) == ["unheard", "last"]
    assert await outbox.prune(older_than=0, unacknowledged=True) >= 1
    assert "unheard" not in await keys_in(outbox)


@pytest.mark.parametrize("remove", ["prune", "drop"])
async def test_key_of_a_deleted_write_is_new(service, client, outbox, remove):
    """The same write under it is sent once more, also where numbers are given again."""
    hook = service.seed_webhook().id
    texts = ["one", "two", "three"]
    for text in texts:
        await finished(outbox, update(client, service, text, hook).keyed(text))
    if remove == "prune":
        await outbox.prune(older_than=0, unacknowledged=True)
    else:
        assert [await outbox.drop(key) for key in reversed(texts)] == [True] * 3
    await finished(outbox, update(client, service, "one", hook).keyed("one"))
    assert (await outbox.get("one")).verdict is Verdict.APPLIED
    assert written(service.ledger.effects()) == [*texts, "one"]


async def test_unknown_write_is_settled_before_it_is_done_again(
    service, client, outbox
):
    """Asked for again, it is read first; it was applied, so it is not sent."""
    service.script("webhooks.update", "apply, then reset")
    service.script("webhooks.get", "pass", "403")
    [key] = await finished(outbox, update(client, service))
    assert (await outbox.get(key)).verdict is Verdict.UNKNOWN
    assert await outbox.retry(key) == [key]
    assert not await outbox.drop(key)  # it may have been sent, and has no verdict now
    async with outbox.dispatching():
        assert (await verdict_of(outbox, key)).verdict is Verdict.APPLIED
    assert service.arrivals("webhooks.update") == 1


async def test_prune_refuses_a_time_to_come(outbox):
    """An age is not negative, nor NaN."""
    for age in (-1, float("nan")):
        with pytest.raises(InvalidRequestError, match="older_than"):
            await outbox.prune(older_than=age)


async def test_retry_while_a_newer_write_to_the_same_thing_is_sent(
    service, place, monkeypatch
):
    """The retried one waits for it, and not for a later poll; it is then overtaken, and the newer one keeps its effect."""
    # reaches: no poll comes within this test
    monkeypatch.setattr("invsvc_async.durable.leases._LONGEST", 3600.0)
    hook = service.seed_webhook().id
    slow = str(place).replace("silence=60", "silence=14400")
    service.script("webhooks.update", "403")
    async with (
        client_of(service, timeout=PATIENT) as client,
        Outbox.open(slow, client) as outbox,
        outbox.dispatching(),
    ):
        [older] = await enqueue(outbox, update(client, service, "older", hook))
        assert (await verdict_of(outbox, older)).verdict is Verdict.REFUSED
        with gate(service, "webhooks.update"):
            [newer] = await enqueue(outbox, update(client, service, "newer", hook))
            await service.arrived("webhooks.update", 2)
            assert await outbox.retry(older) == [older]
            if slow == str(place):
                # so that the dispatcher looks meanwhile
                await enqueue(outbox, update(client, service))
            assert await outbox.get(newer) is None
        assert (await verdict_of(outbox, older)).verdict is Verdict.NOT_APPLIED
        assert (await outbox.get(newer)).verdict is Verdict.APPLIED
    assert written(service.ledger.effects(), hook) == ["newer"]


@pytest.fixture
async def open_transaction(service, client, address, connection):
    """Yield an outbox in PostgreSQL, a refused write, and a transaction with a newer one to the same thing."""
    hook = service.seed_webhook().id
    service.script("webhooks.update", "403")
    async with Outbox.open(address, client) as outbox:
        async with outbox.dispatching():
            [older] = await enqueue(outbox, update(client, service, "older", hook))
            assert (await verdict_of(outbox, older)).verdict is Verdict.REFUSED
        transaction = connection.transaction()
        await transaction.start()
        write = update(client, service, "newer", hook)
        newer = await outbox.enqueue(connection, write)
        yield outbox, older, newer, transaction, hook


async def test_forced_retry_and_a_transaction_that_is_open(
    service, open_transaction, connection
):
    """The retried write comes after all that are numbered, so it waits for the commit of the newer one."""
    outbox, older, newer, transaction, hook = open_transaction
    retrying = asyncio.create_task(
        outbox_entries(outbox).do_again([older], at_end=True)
    )

    async def waits():
        return retrying.done() or await connection.fetchval(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        )

    await until(waits)
    assert not retrying.done()
    await transaction.commit()
    assert await retrying == [older]
    async with outbox.dispatching():
        verdicts = await verdicts_of(outbox, [newer, older])
    assert verdicts == [Verdict.APPLIED, Verdict.APPLIED]
    assert written(service.ledger.effects(), hook) == ["newer", "older"]


async def test_forced_retry_and_a_transaction_that_does_not_end(open_transaction):
    """It does not wait for ever, and changes nothing."""
    outbox, older, _, transaction, _ = open_transaction
    usual, store_beneath(outbox).patience = store_beneath(outbox).patience, 0.5
    with pytest.raises(JournalError, match=r"Another transaction .* application"):
        await outbox_entries(outbox).do_again([older], at_end=True)
    store_beneath(outbox).patience = usual
    await transaction.rollback()
    assert (await outbox.get(older)).verdict is Verdict.REFUSED
    assert await outbox_entries(outbox).do_again([older], at_end=True) == [older]


async def test_retry_after_the_newer_write_was_dropped(service, client, outbox):
    """What is dropped of a write that was applied is its record: an older one is not sent over it, newer ones are."""
    hook = service.seed_webhook().id
    service.script("webhooks.update", "403")
    older, newer, newest = changes(client, hook, "1", "2", "3")
    async with outbox.dispatching():
        [old] = await enqueue(outbox, older)
        assert (await verdict_of(outbox, old)).verdict is Verdict.REFUSED
        [gone] = await enqueue(outbox, newer)
        assert (await verdict_of(outbox, gone)).verdict is Verdict.APPLIED
        assert await outbox.drop(gone)
        assert await outbox.retry(old) == [old]
        assert (await verdict_of(outbox, old)).verdict is Verdict.NOT_APPLIED
        assert await ended(outbox, newest) == [Verdict.APPLIED]
    assert written(service.ledger.effects()) == ["2", "3"]


async def test_dropped_write_is_not_sent(service, client, outbox):
    """What is dropped before a dispatcher begins is gone; an unknown key is not found."""
    hook = service.seed_webhook().id
    gone, kept = await enqueue(outbox, *changes(client, hook, "dropped", "kept"))
    assert await outbox.drop(gone)
    assert not await outbox.drop(gone)
    async with outbox.dispatching():
        await verdict_of(outbox, kept)
    assert written(service.ledger.entries) == ["kept"]


async def test_next_one_acknowledges_the_one_before(service, client, outbox):
    """What was acknowledged is not given again; the last one is, because nobody has asked for another."""
    keys = await finished(outbox, *(update(client, service) for _ in range(3)))
    assert await taken(outbox, 2) == keys[:2]
    assert await taken(outbox, 2) == keys[1:]
    assert await taken(outbox, 1) == keys[2:]


async def test_callback_that_retries_its_write_gets_the_new_verdict(
    service, client, outbox
):
    """What it acknowledges is the refusal, not the verdict of the write that is sent again."""
    service.script("webhooks.update", "403")
    await enqueue(outbox, update(client, service))
    verdicts, both = [], asyncio.Event()

    async def retrying(result):
        verdicts.append(result.verdict)
        await outbox.retry(result.key)
        both.set() if result.applied else None

    async with outbox.dispatching(on_result=retrying), asyncio.timeout(300):
        await both.wait()
    assert verdicts == [Verdict.REFUSED, Verdict.APPLIED]
    assert service.arrivals("webhooks.update") == 2
