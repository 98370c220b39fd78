"""Finished writes that are deleted or done again, and what later processes know of them, in both databases."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import InvalidRequestError, Outbox, Verdict
from tests.batch.conftest import HOOK, client_of
from tests.outbox.conftest import enqueue, entries_of, finished, update, verdict_of, verdicts_of, written
from tests.outbox.test_results import taken


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
    hooks = [service.seed_webhook().id for _ in range(5)]
    names = ("first", "unknown", "second", "unheard", "last")
    writes = [
        client.webhooks.update(hook, description=name).keyed(name)
        for hook, name in zip(hooks, names, strict=True)
    ]
    await finished(outbox, writes[0])
    await finished(outbox, writes[1])
    await finished(outbox, *writes[2:])
    assert (await outbox.get("unknown")).verdict is Verdict.UNKNOWN
    assert (await taken(outbox, 4))[:3] == ["first", "unknown", "second"]  # the fourth is not acknowledged
    [waiting] = await enqueue(outbox, client.webhooks.update(hooks[0], description="open"))
    assert await outbox.prune(older_than=3600) == 0
    assert await outbox.prune(older_than=0) == 2
    assert await keys_in(outbox) == ["unknown", "unheard", "last", waiting]
    assert await outbox.get("first") is None
    assert await taken(outbox, 2) == ["unheard", "last"]
    assert await outbox.prune(older_than=0, unacknowledged=True) >= 1
    assert "unheard" not in await keys_in(outbox)


async def test_prune_in_many_slices(service, client, outbox, monkeypatch):
    """However many slices it takes, each finished write is deleted once; the next write to its thing is sent."""
    monkeypatch.setattr("invsvc_async.durable.entries._AT_ONCE", 2)
    hooks = [service.seed_webhook().id for _ in range(3)]
    writes = [client.webhooks.update(hook, description=str(number)) for number in (1, 2) for hook in hooks]
    await finished(outbox, *writes)
    await outbox.prune(older_than=0, unacknowledged=True)
    assert await keys_in(outbox) == []
    later = [client.webhooks.update(hook, description="later") for hook in hooks]
    for key in await finished(outbox, *later):
        assert (await outbox.get(key)).verdict is Verdict.APPLIED


async def test_prune_leaves_no_body(service, client, outbox):
    """What a write contained is in no table."""
    texts = ["Jane Doe", "last"]
    hooks = [service.seed_webhook().id for _ in texts]
    writes = [client.webhooks.update(hook, description=text) for hook, text in zip(hooks, texts, strict=True)]
    await finished(outbox, *writes)
    state = "SELECT count(*) FROM {s}states WHERE state IS NOT NULL"
    assert await number(outbox, state) == 2
    await outbox.prune(older_than=0, unacknowledged=True)
    assert await number(outbox, state) == 0
    assert await number(outbox, "SELECT count(*) FROM {s}entries WHERE outcome LIKE '%Jane%'") == 0


async def number(outbox, text):
    return (await outbox._store.store.rows(text))[0][0]


@pytest.mark.parametrize("remove", ["prune", "drop"])
async def test_key_of_a_deleted_write_is_new(service, client, outbox, remove):
    """The same write under it is sent once more, also where numbers are given again."""
    hook = service.seed_webhook().id
    texts = ["one", "two", "three"]
    for text in texts:
        await finished(outbox, client.webhooks.update(hook, description=text).keyed(text))
    if remove == "prune":
        await outbox.prune(older_than=0, unacknowledged=True)
    else:
        assert [await outbox.drop(key) for key in reversed(texts)] == [True] * 3
    await finished(outbox, client.webhooks.update(hook, description="one").keyed("one"))
    assert (await outbox.get("one")).verdict is Verdict.APPLIED
    assert written(service.ledger.effects()) == [*texts, "one"]


async def test_unknown_write_is_settled_before_it_is_done_again(service, client, outbox):
    """Asked for again, it is read first; it was applied, so it is not sent."""
    service.script("webhooks.update", "apply, then reset")
    service.script("webhooks.get", "pass", "403")
    write = update(client, service, "x")
    [key] = await finished(outbox, write)
    assert (await outbox.get(key)).verdict is Verdict.UNKNOWN
    assert await outbox.retry(key) == [key]
    assert not await outbox.drop(key)  # it may have been sent, and has no verdict now
    async with outbox.dispatching():
        assert (await verdict_of(outbox, key)).verdict is Verdict.APPLIED
    assert service.arrivals("webhooks.update") == 1


async def test_write_waits_for_an_unknown_one_of_an_earlier_process(service, place, client):
    """While the service may still commit an older write to its thing, the next one is not sent."""
    service.script("webhooks.update", "late 1.0, then reset")
    service.script("webhooks.get", "pass", "403")
    hook = service.seed_webhook().id
    for text in ("first", "second"):
        async with client_of(service) as made, Outbox.open(place, made) as outbox:
            write = made.webhooks.update(hook, description=text).with_policy(settle_after_loss=2.0)
            await finished(outbox, write)
    effects = sorted(service.ledger.effects("webhooks.update"), key=lambda entry: entry.applied_at)
    assert [entry.body["description"] for entry in effects] == ["first", "second"]


async def test_prune_refuses_a_time_to_come(outbox):
    """An age is not negative, nor NaN."""
    for age in (-1, float("nan")):
        with pytest.raises(InvalidRequestError, match="older_than"):
            await outbox.prune(older_than=age)


async def test_retry_while_a_newer_write_to_the_same_thing_is_sent(service, client, place):
    """The retried one waits for it, and not for a later poll; it is then overtaken, and the newer one keeps its effect."""
    hook, slow = (
        service.seed_webhook().id,
        str(place).replace("silence=1", "silence=240"),
    )  # a poll each minute
    service.script("webhooks.update", "403", "slow 0.5")
    async with Outbox.open(slow, client) as outbox, outbox.dispatching():
        [older] = await enqueue(outbox, client.webhooks.update(hook, description="older"))
        assert (await verdict_of(outbox, older)).verdict is Verdict.REFUSED
        [newer] = await enqueue(outbox, client.webhooks.update(hook, description="newer"))
        await service.arrived("webhooks.update", 2)
        assert await outbox.retry(older) == [older]
        if slow == str(place):
            await enqueue(outbox, update(client, service))  # so that the dispatcher looks meanwhile
        assert await outbox.get(newer) is None
        assert (await verdict_of(outbox, older, 30)).verdict is Verdict.NOT_APPLIED
        assert (await outbox.get(newer)).verdict is Verdict.APPLIED
    assert written(service.ledger.effects(), hook) == ["newer"]


async def test_retry_after_the_newer_write_was_dropped(service, client, outbox):
    """What is dropped of a write that was applied is its record: an older one is not sent over it, newer ones are."""
    hook = service.seed_webhook().id
    service.script("webhooks.update", "403")
    older, newer, newest = (client.webhooks.update(hook, description=text) for text in ("1", "2", "3"))
    async with outbox.dispatching():
        [old] = await enqueue(outbox, older)
        assert (await verdict_of(outbox, old)).verdict is Verdict.REFUSED
        [gone] = await enqueue(outbox, newer)
        assert (await verdict_of(outbox, gone)).verdict is Verdict.APPLIED
        assert await outbox.drop(gone)
        assert await outbox.retry(old) == [old]
        assert (await verdict_of(outbox, old)).verdict is Verdict.NOT_APPLIED
        assert await verdicts_of(outbox, await enqueue(outbox, newest)) == [Verdict.APPLIED]
    assert written(service.ledger.effects()) == ["2", "3"]


async def test_dropped_write_is_not_sent(service, client, outbox):
    """What is dropped before a dispatcher begins is gone; an unknown key is not found."""
    hook = service.seed_webhook().id
    [gone, kept] = await enqueue(
        outbox, *(client.webhooks.update(hook, description=text) for text in ("dropped", "kept"))
    )
    assert await outbox.drop(gone)
    assert not await outbox.drop(gone)
    async with outbox.dispatching():
        await verdict_of(outbox, kept)
    assert written(service.ledger.entries) == ["kept"]


async def test_next_one_acknowledges_the_one_before(service, client, outbox):
    """What was acknowledged is not given again; the last one is, because nobody has asked for another."""
    hooks = [service.seed_webhook().id for _ in range(3)]
    keys = await finished(outbox, *(client.webhooks.update(hook, description="x") for hook in hooks))
    assert await taken(outbox, 2) == keys[:2]
    assert await taken(outbox, 2) == keys[1:]
    assert await taken(outbox, 1) == keys[2:]


async def test_callback_that_retries_its_write_gets_the_new_verdict(service, client, outbox):
    """What it acknowledges is the refusal, not the verdict of the write that is sent again."""
    service.script("webhooks.update", "403")
    await enqueue(outbox, update(client, service, "x"))
    verdicts, both = [], asyncio.Event()

    async def retrying(result):
        verdicts.append(result.verdict)
        await outbox.retry(result.key)
        both.set() if result.applied else None

    async with outbox.dispatching(on_result=retrying), asyncio.timeout(60):
        await both.wait()
    assert verdicts == [Verdict.REFUSED, Verdict.APPLIED]
    assert service.arrivals("webhooks.update") == 2


async def test_secrets_are_passed_on_and_not_stored(service, place, client, tmp_path):
    """The secret of a new webhook goes to ``on_secret``; no table or file has it, and the create is tagged."""
    secrets = {}
    async with Outbox.open(
        place, client, on_secret=lambda key, hook: secrets.update({key: hook.secret})
    ) as outbox:
        [key] = await finished(outbox, client.webhooks.create(**HOOK))
        assert (await outbox.get(key)).value.secret is None
        stored = [str(row).encode() for row in await outbox._store.store.rows("SELECT * FROM {s}entries")]
    stored += [file.read_bytes() for file in tmp_path.iterdir()]
    assert all(secrets[key].encode() not in each for each in stored)
    assert "[iv-" in service.ledger.entries[0].body["description"]
