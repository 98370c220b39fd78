"""Batches taken up again: what was in flight, what is kept, what is tried again, whose journal it is."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import attrs
import pytest

from invsvc_async import (
    Absent,
    ApiKey,
    Client,
    InvalidRequestError,
    Timeouts,
    TokenProvider,
    Verdict,
)
from invsvc_async.batch import Batch
from invsvc_async.simulator import Simulator
from tests.batch.conftest import HOOK, POLICY, client_of
from tests.batch.writing import (
    all_end,
    all_of,
    creates,
    looked_for,
    run_all,
    shelve,
    shelve_one,
    unlisted,
)
from tests.durable.stores import rows_in


@pytest.mark.parametrize("again", [0, 1])
async def test_write_in_flight_is_settled_before_it_is_sent(
    service, client, path, again
):
    """A create whose answer was never received is found by the next run, with its input or without, and not sent again."""
    service.script("webhooks.create", "apply, then hang")
    await shelve_one(service, client, path, *creates(client, 1), "webhooks.create")

    async with client_of(service) as other, Batch.open(path, other) as batch:
        [result] = await all_of(batch, creates(other, again))
    assert (result.verdict, result.secret_lost) == (Verdict.APPLIED, True)
    assert service.arrivals("webhooks.create") == 1


async def test_write_in_flight_that_a_client_with_longer_windows_sends_again(
    service, journal
):
    """They count for that send, whose effect comes within them."""
    short = {
        "reconcile": attrs.evolve(POLICY, settle_after_loss=0.3),
        "timeout": Timeouts(attempt=2.0),
    }
    long = {**short, "reconcile": attrs.evolve(POLICY, settle_after_loss=2.5)}
    hook = service.seed_webhook(description="before").id

    def renamed(client):
        return client.webhooks.update(hook, description="after").keyed("row")

    service.script("webhooks.update", "hang")
    async with client_of(service, **short) as client:
        await shelve_one(service, client, journal, renamed(client), "webhooks.update")
    service.script("webhooks.update", "late 1.5, then reset")
    async with client_of(service, **long) as client, Batch.open(journal, client) as b:
        [result] = await all_of(b, [renamed(client)])
    await asyncio.sleep(1.6)  # sleeps: until nothing can land any more
    assert result.verdict is Verdict.APPLIED
    assert len(service.ledger.effects("webhooks.update")) == 1


@pytest.mark.parametrize(
    ("step", "reader", "verdict"),
    [
        ("apply, then hang", looked_for, Verdict.APPLIED),
        ("hang", looked_for, Verdict.APPLIED),
        ("apply, then hang", None, Verdict.UNKNOWN),
    ],
)
async def test_write_in_flight_with_a_reader_of_its_own(
    service, client, path, step, reader, verdict
):
    """No journal can hold it. If the next input has it, it settles the write; otherwise that is not sent again."""
    await client.webhooks.list()  # shows the service's clock
    service.script("webhooks.create", step)
    write = unlisted(client) if reader else unlisted(client).with_policy(deadline=0.5)
    await shelve_one(service, client, path, write, "webhooks.create")

    async with (
        client_of(service) as other,
        Batch.open(path, other, concurrency=1) as batch,
    ):
        results = await all_of(batch, [*creates(other, 3), unlisted(other, reader)])
    assert {result.key: result.verdict for result in results}["own"] is verdict
    assert (
        Counter(entry.body["url"] for entry in service.ledger.effects())[
            "https://own.example/"
        ]
        == 1
    )
    assert (len(results), service.arrivals("webhooks.create")) == (
        4,
        5 if step == "hang" else 4,
    )


async def test_bodies_of_what_is_applied_are_not_kept(service, client, path):
    """
    The body of an applied write is gone from its entry; a refused one keeps it, because it may be retried.
    """
    hook = service.seed_webhook()
    async with Batch.open(path, client) as batch:
        writes = [
            client.webhooks.update(each, description="personal")
            for each in (hook.id, "wh_none")
        ]
        await all_of(batch, writes)
    rows = dict(rows_in(path, "verdict, intent"))
    assert rows["applied"] is None
    assert "personal" in rows["refused"]


async def test_results_are_kept(service, client, path):
    """The journal tells verdict, reason and evidence of each write after the run, in the input's order."""
    service.script("webhooks.create", "400", "apply, then reset")
    async with Batch.open(
        path, client, concurrency=1, on_secret=lambda *_: None
    ) as batch:
        live = {
            result.key: result for result in await all_of(batch, creates(client, 3))
        }
        kept = [result async for result in batch.results()]
        chosen = [
            [each.key async for each in batch.results(verdict=name)]
            for name in ("refused", "applied")
        ]
    assert kept == [live[f"row-{i}"] for i in range(3)]
    assert (kept[0].status, kept[1].basis, kept[2].basis) == (400, "tag", "answered")
    assert chosen == [["row-0"], ["row-1", "row-2"]]


async def test_pruned_entries_still_skip_their_input(service, client, path):
    """Pruning empties what is done of all but key, digest and verdict, so the same input is still skipped."""
    service.script("webhooks.create", "400")
    async with Batch.open(path, client) as batch:
        await all_of(batch, creates(client, 3))
        assert await batch.prune(done_before=datetime.now(UTC) - timedelta(days=1)) == 0
        assert await batch.prune(done_before=datetime.now(UTC) + timedelta(days=1)) == 3
        assert await all_of(batch, creates(client, 3)) == []
        assert (await batch.summary()).verdicts == {
            Verdict.APPLIED: 2,
            Verdict.REFUSED: 1,
        }


async def test_batch_of_another_place_is_refused(service, client, path):
    """A journal is not opened for another address, nor for another credential unless its mode is said to be the same."""
    await run_all(path, client, creates(client, 1))

    async with Simulator() as elsewhere, client_of(elsewhere) as other:
        with pytest.raises(InvalidRequestError, match="was begun at"):
            async with Batch.open(path, other):
                pass
    async with Client(service.base_url, ApiKey(service.test_key)) as other:
        with pytest.raises(
            InvalidRequestError, match=r"same_mode=True \(invsvc: --same-mode\)"
        ):
            async with Batch.open(path, other):
                pass
        async with Batch.open(path, other, same_mode=True) as batch:
            assert (await batch.summary()).done == 1


async def test_reader_that_comes_behind_many_writes_of_its_thing(service, client, path):
    """However many new writes stand before it, they wait for it and do not keep it out."""

    async def reader(_client, _intent):
        return Absent()

    def mapping(client, number):
        return client.sheets.save_mapping({"a": str(number)}, reader=reader).keyed(
            f"row-{number}"
        )

    service.script("sheets.save_mapping", "hang")
    await shelve_one(service, client, path, mapping(client, 0), "sheets.save_mapping")
    async with (
        asyncio.timeout(300),
        client_of(service) as other,
        Batch.open(path, other, concurrency=1) as batch,
    ):
        results = await all_of(
            batch, [mapping(other, number) for number in (*range(1, 200), 0)]
        )

    assert {result.verdict for result in results} == {Verdict.APPLIED}
    assert len(service.ledger.effects("sheets.save_mapping")) == 200


async def test_writes_of_a_team_of_their_own(service, path):
    """A client of one team takes up what was in flight for another: each entry names its own."""
    async with client_of(service, team="team_1") as client:
        write = client.webhooks.create(**HOOK, team="team_2").keyed("other")
        service.script("webhooks.create", "apply, then hang")
        await shelve_one(service, client, path, write, "webhooks.create")

        [result] = await run_all(path, client)
    assert result.verdict is Verdict.APPLIED
    assert len(service.ledger.effects("webhooks.create")) == 1


async def test_batch_of_a_token_that_changes(service, path):
    """What was never sent needs no word of whose it is; what is in doubt does, in words that say how."""
    hooks = [service.seed_webhook() for _ in range(2)]

    async def source():
        return service.api_key

    def client():
        return client_of(service, credential=TokenProvider(source, kind="api_key"))

    service.script("webhooks.delete", "hang")
    async with client() as first:
        writes = [first.webhooks.delete(hook.id).keyed(hook.id) for hook in hooks]
        await shelve_one(service, first, path, writes[0], "webhooks.delete")
        writes[1].close()
    async with client() as second, Batch.open(path, second) as batch:
        with pytest.raises(
            InvalidRequestError, match=r"same_mode=True \(invsvc: --same-mode\)"
        ):
            await all_of(batch)
    async with client() as third, Batch.open(path, third, same_mode=True) as batch:
        again = [third.webhooks.delete(hook.id).keyed(hook.id) for hook in hooks]
        assert {result.verdict for result in await all_of(batch, again)} == {
            Verdict.APPLIED
        }


async def test_progress_counts_each_write_once(service, client, journal):
    """What an earlier run left, and this run has finished before its input contains it, is counted once."""
    service.script("webhooks.create", "hang")
    await shelve_one(service, client, journal, *creates(client, 1), "webhooks.create")

    async with client_of(service) as other, Batch.open(journal, other) as batch:

        async def source():
            yield other.webhooks.create(**HOOK).keyed("before")
            await all_end(batch, 2)
            for write in creates(other, 3):
                yield write

        assert len(await all_of(batch, source())) == 4
        assert (batch.progress.done, batch.progress.skipped) == (4, 0)
        assert await all_of(batch, creates(other, 3)) == []
        assert (batch.progress.done, batch.progress.skipped) == (0, 3)


async def test_outcome_of_one_write(service, client, journal):
    """Its verdict is told by its key, later too; of one that is open or not there, nothing is."""
    service.script("webhooks.create", "pass", "403", "apply, then reset", "hang")
    service.script("webhooks.list", "pass", "403")
    async with Batch.open(journal, client, concurrency=1) as batch:
        await shelve(service, batch, creates(client, 4), "webhooks.create", 4)
    async with client_of(service) as other, Batch.open(journal, other) as batch:
        applied, refused, unknown, *none = [
            await batch.get(f"row-{number}") for number in range(5)
        ]
        assert none == [None, None]
        assert [each.verdict for each in (applied, refused, unknown)] == [
            "applied",
            "refused",
            "unknown",
        ]
        assert (applied.evidence.basis, applied.secret, applied.replayed) == (
            "answered",
            "not stored",
            True,
        )
        assert (await other.settle(unknown.intent)).applied
    assert service.arrivals("webhooks.create") == 4


async def test_retry_of_a_text_that_json_of_the_database_cannot_hold(
    service, client, journal
):
    """A body with a null character, which PostgreSQL's JSON does not take, is to do again like any other."""
    service.script("sheets.save_mapping", "400")
    async with Batch.open(journal, client) as batch:
        [first] = await all_of(batch, [client.sheets.save_mapping({"a": "x\x00y"})])
        assert await batch.retry(verdict=first.verdict) == 1
        [second] = await all_of(batch)
    assert [first.verdict, second.verdict] == [Verdict.REFUSED, Verdict.APPLIED]
    assert service.ledger.effects()[0].body == {"fields": {"a": "x\x00y"}}


def update_of_its_own(client, number):
    """Update a webhook that there is not."""
    return client.webhooks.update(f"wh_{number}", description="x")


def untagged_create(client, number):
    """Create a webhook that another create of its URL may be taken for."""
    url = f"https://me.example/{number}"
    return client.webhooks.create(url=url, events=["invoice.created"], tag=False)


@pytest.mark.parametrize("write", [update_of_its_own, untagged_create])
async def test_refused_writes_of_three_teams_are_tried_again(
    service, client, path, write
):
    """Those whose turn it is change more things than one statement may name in a file."""
    views = [client.for_team(f"team_{number}") for number in (1, 2, 3)]
    writes = [write(views[number // 200], number) for number in range(600)]
    service.script(writes[0].intent.operation, *["400"] * len(writes))
    async with Batch.open(path, client, on_secret=lambda *_: None) as batch:
        await all_of(batch, writes)
        assert await batch.retry(failed=True) == len(writes)
        again = await all_of(batch)
    refused = {update_of_its_own: len(writes), untagged_create: 0}
    verdicts = Counter(result.verdict for result in again)
    assert verdicts[Verdict.REFUSED] == refused[write]
    assert len(again) == len(writes)
