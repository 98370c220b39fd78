"""Who has the secret of a new webhook: what outcomes, results, journals, reports and JSON say of it."""

from __future__ import annotations

import asyncio
import json
from math import inf
from types import SimpleNamespace

import pytest

from invsvc_async import Batch, Intent, Outbox, Outcome, SecretLostError, Verdict
from invsvc_async.batch.item import discard_secret
from invsvc_async.batch.reports.not_applied import plain_result
from invsvc_async.batch.reports.summary import report_of
from invsvc_async.cli.commands.report import plain
from invsvc_async.client import options_of
from invsvc_async.durable.entry import Entry, State
from invsvc_async.durable.intents import Commons
from invsvc_async.models import Webhook
from invsvc_async.outbox.dispatch import OutboxItem
from invsvc_async.reconcile.history import Evidence
from tests.batch.conftest import HOOK, client_of
from tests.batch.writing import all_of, creates, run_all
from tests.outbox.conftest import enqueue, outbox_at, verdict_of
from tests.support.inside import store_beneath
from tests.support.waiting import cancel, forever

pytestmark = pytest.mark.one_python

LOST = "apply, then reset"


class Kept(dict):
    """The secrets that were delivered, by key."""

    def take(self, key, webhook):
        """Be an ``on_secret``."""
        self[key] = webhook.secret


async def test_single_write(service, client):
    """The caller has it, or nobody; other writes have none. An outcome that is read back says who had it."""
    service.script("webhooks.create", "pass", LOST)
    returned = await client.webhooks.create(**HOOK).outcome()
    lost = await client.webhooks.create(
        **{**HOOK, "url": "https://me.example/2"}
    ).outcome()
    update = await client.webhooks.update(returned.value, description="x").outcome()
    said = [(each.secret, each.secret_lost) for each in (returned, lost, update)]
    assert said == [("returned", False), ("lost", True), (None, False)]

    text, other = returned.to_json(), lost.to_json()
    again, still = Outcome.from_json(text), Outcome.from_json(other)
    assert (json.loads(text)["secret"], json.loads(text)["secret_lost"]) == (
        "not stored",
        False,
    )
    assert (again.secret, again.unwrap().id, again.unwrap().secret) == (
        "not stored",
        returned.value.id,
        None,
    )
    assert (still.secret, Outcome.from_json(still.to_json()).secret_lost) == (
        "lost",
        True,
    )
    with pytest.raises(SecretLostError):
        still.unwrap()


async def test_settled_after_its_answer(service, client):
    """Whoever got the answer had the secret; whoever lost it had not."""
    service.script("webhooks.create", "pass", LOST)
    for url, says in (
        ("https://me.example/1", "not stored"),
        ("https://me.example/2", "lost"),
    ):
        outcome = await client.webhooks.create(**{**HOOK, "url": url}).outcome()
        settled = await client.settle(Intent.from_json(outcome.intent.to_json()))
        assert (settled.verdict, settled.secret) == (outcome.verdict, says)


async def test_settled_after_its_answer_was_not_passed_on(service):
    """Nobody has it."""
    taking = asyncio.Event()

    async def take(_key, _hook):
        taking.set()
        await forever()

    async with client_of(service, on_secret=take) as client:
        running = asyncio.create_task(client.webhooks.create(**HOOK).outcome())
        await taking.wait()
        await cancel(running)
        [intent] = client.unsettled
        settled = await client.settle(Intent.from_json(intent.to_json()))
    assert (settled.verdict, settled.secret) == (Verdict.APPLIED, "lost")


async def test_batch_whose_callback_takes_them(service, client, path):
    """Its results, its journal, its report and its JSON say the same, now and later."""
    kept = Kept()
    service.script("webhooks.create", "pass", LOST)
    live = await run_all(path, client, creates(client, 4), on_secret=kept.take)
    said = {each.key: each.secret for each in live}
    async with Batch.open(path, client) as batch:
        later = {each.key: each async for each in batch.results()}
        report = await report_of(batch.entries, "run.db")
        assert (await batch.summary()).secrets_lost == 1

    [lost] = [key for key, says in said.items() if says == "lost"]
    assert (
        {key for key, says in said.items() if says == "delivered"}
        == kept.keys()
        == said.keys() - {lost}
    )
    assert {key: each.secret for key, each in later.items()} == said
    assert {plain_result(each)["secret"] for each in later.values()} == {
        "lost",
        "delivered",
    }
    told = plain(report)
    assert (told["secrets_lost"], [each["key"] for each in told["lost_secrets"]]) == (
        1,
        [lost],
    )


async def test_batch_of_a_client_that_has_a_callback_too(service, tmp_path):
    """The secrets of the batch go to its own."""
    of_client, of_batch = Kept(), Kept()
    async with client_of(service, on_secret=of_client.take) as client:
        live = await run_all(
            tmp_path / "run.db", client, creates(client, 2), on_secret=of_batch.take
        )
    assert ({each.key for each in live}, of_client) == (of_batch.keys(), {})


async def test_batch_without_a_callback(client, journal):
    """The result has it; the journal says that somebody had it, or that nobody did."""
    async with Batch.open(journal, client) as batch:
        [live] = await all_of(batch, creates(client, 1))
        async for _unheard in batch.run(creates(client, 2)):
            break  # the second one is given again, and its secret is gone
    assert (live.secret, live.outcome.value.secret is not None) == ("returned", True)

    async with Batch.open(journal, client) as batch:
        [again] = await all_of(batch, ())
    assert (again.secret, again.secret_lost) == ("lost", True)
    async with Batch.open(journal, client) as batch:
        assert await all_of(batch, ()) == []
        stored = [each.secret async for each in batch.results()]
        assert (await batch.summary()).secrets_lost == 1
        report = plain(await report_of(batch.entries, "run.db"))
    assert stored == ["not stored", "lost"]
    assert [each["key"] for each in report["lost_secrets"]] == [again.key]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("takes", [True, False])
async def test_outbox(service, client, tmp_path, kind, takes):
    """What ``on_secret`` has had is not lost, whatever is asked; without it nobody had it. No store has it."""
    kept = Kept()
    path = (
        tmp_path / "app.db"
        if kind == "sqlite"
        else outbox_at(f"secrets{takes}".lower(), silence=1)
    )
    service.script("webhooks.create", "pass", LOST)
    async with Outbox.open(
        path, client, concurrency=1, on_secret=kept.take if takes else None
    ) as outbox:
        keys = await enqueue(outbox, *creates(client, 2))
        async with outbox.dispatching():
            found = [await verdict_of(outbox, key) for key in keys]
            given = outbox.results()
            results = [await anext(given) for _ in keys]
            await given.aclose()
        stored = [
            str(row).encode()
            for row in await store_beneath(outbox).rows("SELECT * FROM {s}entries")
        ]
    stored += [file.read_bytes() for file in tmp_path.iterdir()]

    expected = ["delivered", "lost"] if takes else ["lost", "lost"]
    assert (
        [each.secret for each in found] == [each.secret for each in results] == expected
    )
    assert [each.secret_lost for each in found] == [says == "lost" for says in expected]
    assert [*kept] == keys[:1] * takes
    assert not [
        text for text in stored for secret in kept.values() if secret.encode() in text
    ]
    assert "[iv-" in service.ledger.entries[0].body["description"]
    if takes:
        assert found[0].unwrap().id
        assert found[0].value.secret is None


async def test_batch_without_a_place_for_secrets(client, journal, caplog):
    """One warning says so, before the first create is sent."""
    async with Batch.open(journal, client) as batch:
        for many in (3, 6):
            await all_of(batch, creates(client, many))
        assert (await batch.summary()).secrets_lost == 0  # the results have them
    words = [
        record.message for record in caplog.records if "on_secret" in record.message
    ]
    assert len(words) == 1
    assert "Their secrets are shown only once" in words[0]


@pytest.mark.parametrize(
    ("takes", "said"),
    [(None, "lost"), (Kept.take, "delivered"), (discard_secret, "not stored")],
    ids=["nobody", "on_secret", "discarded"],
)
async def test_secret_that_another_run_of_the_client_returned(client, takes, said):
    """An outbox has it in no result: it is lost, unless it is passed on, as that of its own run is."""
    kept = Kept()
    hook = kept.take if takes is Kept.take else takes
    write = client.webhooks.create(**HOOK)
    engine = SimpleNamespace(
        sending=SimpleNamespace(on_secret=hook, core=options_of(client).core),
        breaker=SimpleNamespace(holds_back=lambda *_: False),
    )
    store = SimpleNamespace(commons=Commons(), silence=inf, is_shared=False)
    lane = SimpleNamespace(
        leases=SimpleNamespace(store=store, taker=None), put=lambda *_: None
    )
    entry = Entry(key="k", state=State.SENDING, operation="webhooks.create")
    item = OutboxItem(entry=entry, intent=write.intent, lane=lane, engine=engine)
    await item.settled(
        Outcome(
            verdict=Verdict.APPLIED,
            message="",
            value=Webhook(id="wh_1", secret="s"),
            evidence=Evidence(basis="answered"),
            secret="returned",
            started_as=write.intent,
        )
    )
    write.close()
    stored, *_ = item.finished
    assert json.loads(stored.outcome)["had"] == said
    assert [*kept] == ["k"] * (takes is Kept.take)
