"""Writes that are forced to the end of the order, and those that are reopened aside: when they are sent."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from invsvc_async import Outbox, Verdict
from invsvc_async.durable.entries import reopen_all
from invsvc_async.durable.store import due
from tests.outbox.conftest import (
    changes,
    ended,
    enqueue,
    transaction_of,
    update,
    verdict_of,
    verdicts_of,
    written,
)
from tests.support.inside import outbox_entries, store_beneath
from tests.support.waiting import cancel, until

LATER = timedelta(days=1)


async def forced(outbox, *keys):
    return await outbox_entries(outbox).do_again(keys, at_end=True)


@pytest.mark.parametrize("named", [True, False], ids=["by key", "by verdict"])
async def test_after_what_was_committed_before(service, client, place, named):
    """A write that nobody has taken up yet comes before one that is forced after its commit."""
    hook = service.seed_webhook().id
    older, newer = changes(client, hook, "older", "newer")
    service.script("webhooks.update", "403")
    async with Outbox.open(place, client) as outbox:
        async with outbox.dispatching():
            [key] = await enqueue(outbox, older)
            assert (await verdict_of(outbox, key)).verdict is Verdict.REFUSED
        [last] = await enqueue(outbox, newer)
        if named:
            assert await forced(outbox, key) == [key]
        else:
            entries = outbox_entries(outbox)
            assert await reopen_all(entries, [Verdict.REFUSED], at_end=True) == 1
        async with outbox.dispatching():
            await verdicts_of(outbox, [key, last])
    assert written(service.ledger.effects(), hook) == ["newer", "older"]


async def test_what_a_retry_takes_up_is_told(service, client, tmp_path):
    """The dispatcher hears of rows that it has not taken up itself, also if nothing was reopened."""
    async with Outbox.open(tmp_path / "app.db", client) as outbox:
        woken = asyncio.Event()
        hearing = asyncio.create_task(
            store_beneath(outbox).listen(lambda *_: woken.set())
        )
        await enqueue(outbox, update(client, service))
        assert await forced(outbox, "gone") == []
        async with asyncio.timeout(30):
            await woken.wait()
        await cancel(hearing)


@pytest.mark.parametrize("named", [True, False], ids=["by key", "by verdict"])
async def test_several_keep_their_order(service, client, place, named):
    """The order is that of their places, which earlier forced retries have changed, not that of their numbers."""
    hook = service.seed_webhook().id
    many = 5
    service.script("webhooks.update", *["403"] * (2 * many - 1))
    writes = [
        each.keyed(f"key-{number}")
        for number, each in enumerate(changes(client, hook, *map(str, range(many))))
    ]
    async with Outbox.open(place, client) as outbox:
        async with outbox.dispatching():
            assert {*await ended(outbox, *writes)} == {Verdict.REFUSED}
            for number in reversed(range(many - 1)):
                key = f"key-{number}"
                assert await forced(outbox, key) == [key]
                assert (await verdict_of(outbox, key)).verdict is Verdict.REFUSED
        if named:
            await forced(outbox, *(f"key-{number}" for number in range(many)))
        else:
            entries = outbox_entries(outbox)
            assert await reopen_all(entries, [Verdict.REFUSED], at_end=True) == many
        async with outbox.dispatching():
            await verdicts_of(outbox, [f"key-{number}" for number in range(many)])
    assert written(service.ledger.effects(), hook) == ["4", "3", "2", "1", "0"]


@pytest.mark.slow
async def test_many_keep_their_order(service, client, place):
    """More than one transaction reopens."""
    hook = service.seed_webhook().id
    many = 210
    service.script("webhooks.update", *["403"] * (many + 1))
    texts = [*map(str, range(many))]
    writes = [
        each.keyed(text)
        for text, each in zip(texts, changes(client, hook, *texts), strict=True)
    ]
    async with Outbox.open(place, client) as outbox:
        async with outbox.dispatching():
            await ended(outbox, *writes)
            await forced(outbox, "0")
            await verdict_of(outbox, "0")
        entries = outbox_entries(outbox)
        assert await reopen_all(entries, [Verdict.REFUSED], at_end=True) == many
        async with outbox.dispatching():
            await verdicts_of(outbox, texts)
    assert written(service.ledger.effects(), hook) == [*texts[1:], "0"]


# --- reopened aside


async def aside(outbox):
    entries = outbox_entries(outbox)
    return [each.key for each in await due.first(entries.store, entries.lanes, 99)]


async def test_found_undone_while_it_was_aside(service, client, place):
    """What it waited behind was dropped meanwhile: it is sent once it is retried, and later writes after it."""

    def mapping(uid):
        return client.sheets.save_mapping({"uid": uid}).keyed(uid)

    service.script("sheets.save_mapping", "reset")
    async with Outbox.open(place, client) as outbox, outbox.dispatching():
        assert await ended(outbox, mapping("first")) == [Verdict.UNKNOWN]
        async with transaction_of(outbox) as made:
            when = datetime.now(UTC) + LATER
            await outbox.enqueue(made, mapping("waits"), not_before=when)
        await until(lambda: _is_aside(outbox, "waits"))
        assert await forced(outbox, "first") == ["first"]
        await until(lambda: _is_aside(outbox, "first"))
        found = await outbox.resolve("first", applied=False, because="I looked")
        assert found.verdict is Verdict.NOT_APPLIED
        assert await outbox.drop("waits")
        assert await outbox.retry("first") == ["first"]
        await enqueue(outbox, mapping("last"))
        verdicts = await verdicts_of(outbox, ["first", "last"])
    assert verdicts == [Verdict.APPLIED] * 2
    sent = [each.body["fields"]["uid"] for each in service.ledger.effects()]
    assert sent == ["first", "last"]


async def test_reopened_aside_behind_one_that_still_waits(service, client, place):
    """It is aside again, behind the write that waits."""

    def mapping(uid):
        return client.sheets.save_mapping({"uid": uid}).keyed(uid)

    service.script("sheets.save_mapping", "reset")
    async with Outbox.open(place, client) as outbox, outbox.dispatching():
        assert await ended(outbox, mapping("first")) == [Verdict.UNKNOWN]
        async with transaction_of(outbox) as made:
            when = datetime.now(UTC) + LATER
            await outbox.enqueue(made, mapping("waits"), not_before=when)
        await until(lambda: _is_aside(outbox, "waits"))
        await forced(outbox, "first")
        await until(lambda: _is_aside(outbox, "first"))
        await outbox.resolve("first", applied=False, because="I looked")
        assert await outbox.retry("first") == ["first"]
        await until(lambda: _is_aside(outbox, "first"))
        assert await outbox.get("first") is None
        assert await outbox.drop("waits")
        assert await verdicts_of(outbox, ["first"]) == [Verdict.APPLIED]


async def _is_aside(outbox, key):
    return key in await aside(outbox)
