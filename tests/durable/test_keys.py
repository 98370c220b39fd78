"""Keyed writes that are awaited: one effect and one final verdict, in a file and in a shared database."""

from __future__ import annotations

import asyncio
import shutil
import signal
from contextlib import suppress
from decimal import Decimal
from math import inf, nan

import pytest

from invsvc_async import (
    ApiKey,
    Applied,
    Client,
    ConfigurationError,
    InvalidRequestError,
    JournalError,
    KeyConflictError,
    PermissionDeniedError,
    SecretLostError,
    TokenProvider,
    ValidationFailedError,
    Verdict,
)
from invsvc_async.client import options_of
from invsvc_async.durable import keyed_run, run_ends
from invsvc_async.durable.entries import JournalEntries
from invsvc_async.durable.store import claims as in_store
from invsvc_async.durable.store.restored import NOT_RESTORED
from tests.batch.conftest import HOOK, client_of
from tests.durable.child import process
from tests.durable.stores import go_to_another_timeline
from tests.durable.test_restored import SOON, put_back
from tests.durable.writing import create, cut_off, rename, retry
from tests.support.children import until_stopped
from tests.support.database import connected
from tests.support.database_proxy import database_proxy
from tests.support.gate import gate
from tests.support.inside import journal_of, store_beneath
from tests.support.waiting import cancel, forever, until


def named(address, query):
    """Return *address* with more settings."""
    return f"{address}{'&' if '?' in str(address) else '?'}{query}"


# --- one process


async def test_write_that_was_applied_is_replayed(service, address):
    """Again, and in the next process: the same webhook, no request, and no secret."""
    async with client_of(service, journal=address) as client:
        first = await create(client).outcome()
        again = await create(client).outcome()
    async with client_of(service, journal=address) as client:
        later = await create(client).outcome()
        assert service.arrivals() == service.arrivals(
            "webhooks.create"
        ) + service.arrivals("webhooks.list")
        reads = service.arrivals("webhooks.list")
        assert (await create(client)).id == first.value.id
        assert service.arrivals("webhooks.list") == reads
        assert (await client.outcome_of("k")).replayed

    assert (first.replayed, first.secret, first.value.secret is None) == (
        False,
        "returned",
        False,
    )
    for outcome in (again, later):
        assert (outcome.verdict, outcome.replayed, outcome.secret) == (
            Verdict.APPLIED,
            True,
            "not stored",
        )
        assert (outcome.value.id, outcome.value.secret) == (first.value.id, None)
        assert outcome.intent.identity == first.intent.identity
    assert service.arrivals("webhooks.create") == 1


@pytest.mark.parametrize(
    "changes", [{"url": "https://me.example/other"}, {"description": "more"}]
)
async def test_another_write_under_a_key(service, address, changes):
    """Nothing is sent, and the error names what differs."""
    async with client_of(service, journal=address) as client:
        await create(client)
        with pytest.raises(
            KeyConflictError, match=f"another body.{next(iter(changes))}"
        ) as failure:
            await create(client, **changes)
        with pytest.raises(
            KeyConflictError,
            match=r"another body.events, body.name, body.url, operation, thing",
        ):
            await rename(client, "x", "k")
        assert isinstance(failure.value, InvalidRequestError)
        same = client.webhooks.create(**{**HOOK, **changes}).keyed(
            "k", match="operation"
        )
        assert (await same.outcome()).replayed
        with pytest.raises(KeyConflictError, match="another operation, thing"):
            await client.journeys.update("jrn_1", name="x").keyed(
                "k", match="operation"
            )
    assert (
        service.arrivals("webhooks.create"),
        service.arrivals("journeys.update"),
    ) == (1, 0)


@pytest.mark.parametrize(
    ("first", "again", "is_same"),
    [
        (Decimal("0.10"), Decimal("0.1"), True),
        (Decimal("0.10"), 0.1, True),
        (Decimal("1.00"), 1, True),
        (Decimal("1E+2"), 100, True),
        (Decimal("-0.0"), 0, True),
        (
            {"lines": [{"amount": Decimal("2.50")}]},
            {"lines": [{"amount": Decimal("2.5")}]},
            True,
        ),
        (Decimal("0.1"), Decimal("0.1" + "0" * 40 + "1"), False),
        (10**40, 10**40 + 1, False),
        (Decimal("0.1"), "0.1", False),
        (1, True, False),
        (0, None, False),
    ],
)
async def test_numbers_of_equal_value_are_the_same_request(
    service, tmp_path, first, again, is_same
):
    """The digits with which an amount is written make no other write of it; its value and type do."""

    def write(client, amount):
        body = {**HOOK, "amount": amount}
        return client.write("POST", "/webhooks", json=body).keyed("k")

    async with client_of(service, journal=tmp_path / "calls.db") as client:
        assert (await write(client, first).outcome()).applied
        if is_same:
            assert (await write(client, again).outcome()).replayed
        else:
            with pytest.raises(KeyConflictError, match=r"another body\.amount"):
                await write(client, again)
    assert service.arrivals("webhooks.create") == 1


async def test_another_body_that_is_done_anew(service, address):
    """Nothing of the first one happened, so the key is that of the body that was sent."""
    service.script("journeys.update", "403")
    async with client_of(service, journal=address) as client:
        assert (await rename(client, "first", "k").outcome()).verdict is Verdict.REFUSED
        other = client.journeys.update("jrn_1", name="other")
        assert (await other.keyed("k", match="operation").outcome()).applied
        with pytest.raises(KeyConflictError, match=r"another body\.name"):
            await rename(client, "first", "k")
        assert (await rename(client, "other", "k").outcome()).replayed
    assert service.arrivals("journeys.update") == 2


async def test_another_body_whose_run_is_killed_before_it_is_sent(
    service, address, monkeypatch
):
    """The key has that write, so the first one is not sent any more, and never has the verdict of that one."""
    service.script("journeys.update", "403")
    async with client_of(service, journal=address) as client:
        first = (await rename(client, "first", "k").outcome()).intent
    async with client_of(service, journal=address) as client:
        other = client.journeys.update("jrn_1", name="other")
        service.script("journeys.get", "hang")  # before the first send of a client
        before = service.arrivals("journeys.get")
        running = asyncio.create_task(other.keyed("k", match="operation").outcome())
        await service.arrived("journeys.get", before + 1)
        with monkeypatch.context() as patches:
            killed = keyed_run.KeyedRun  # which stores nothing then
            patches.setattr(killed, "let_go", lambda *_: None)  # reaches: as if killed
            await cancel(running)
    async with client_of(service, journal=address) as client:
        with pytest.raises(
            ConfigurationError, match="does not have the write of this intent"
        ):
            await client.resume(first, same_mode=True)
        outcome = await rename(client, "other", "k").outcome()
        assert (outcome.applied, outcome.replayed) == (True, False)
    names = [each.body["name"] for each in service.ledger.effects("journeys.update")]
    assert names == ["other"]


async def test_racers_in_one_process(service, address):
    """One send; the others get its outcome, whatever it is."""
    async with client_of(service, journal=address) as client:
        outcomes = await asyncio.gather(*(create(client).outcome() for _ in range(100)))
        service.script("webhooks.create", "400")
        other = {"key": "r", "url": "https://r.example/"}
        refused = await asyncio.gather(
            *(create(client, **other).outcome() for _ in range(50))
        )
    assert sorted(outcome.replayed for outcome in outcomes) == [False] + [True] * 99
    assert len({outcome.value.id for outcome in outcomes}) == 1
    assert sorted(outcome.secret for outcome in outcomes) == ["not stored"] * 99 + [
        "returned"
    ]
    assert sum(outcome.value.secret is not None for outcome in outcomes) == 1
    assert {outcome.verdict for outcome in refused} == {Verdict.REFUSED}
    assert service.arrivals("webhooks.create") == 2


async def test_refused_write_is_done_anew(service, address):
    """Nothing happened, so the next run sends it."""
    service.script("webhooks.create", "400", "403")
    async with client_of(service, journal=address) as client:
        with pytest.raises(ValidationFailedError):
            await create(client)
        assert (await client.outcome_of("k")).verdict is Verdict.REFUSED
    async with client_of(service, journal=address) as client:
        with pytest.raises(PermissionDeniedError):
            await create(client)
        assert (await create(client).outcome()).applied
    assert len(service.ledger.effects("webhooks.create")) == 1


async def test_write_in_doubt_that_was_cancelled_is_settled_by_the_next_run(
    service, address
):
    """It was applied, and its answer awaited: the next run finds it and sends nothing."""
    service.script("webhooks.create", "apply, then hang")
    async with client_of(service, journal=address) as client:
        first = asyncio.create_task(create(client).outcome())
        second = asyncio.create_task(create(client).outcome())
        await service.arrived("webhooks.create")
        first.cancel()
        outcome = await second
        assert first.cancelled()
    assert (outcome.verdict, outcome.replayed, outcome.secret) == (
        Verdict.APPLIED,
        False,
        "lost",
    )
    assert service.arrivals("webhooks.create") == 1


async def test_cancelling_one_that_waits_leaves_the_run(service, address):
    """The others get their verdict."""
    service.script("webhooks.create", "slow 0.2")
    async with client_of(service, journal=address) as client:
        first = asyncio.create_task(create(client).outcome())
        await service.arrived("webhooks.create")
        others = [asyncio.create_task(create(client).outcome()) for _ in range(2)]
        await asyncio.sleep(0.05)  # sleeps: so that both wait; nothing tells
        others[0].cancel()
        assert (await first).applied
        assert (await others[1]).replayed
    assert service.arrivals("webhooks.create") == 1


async def test_unknown_one_is_settled_again_and_forgotten(service, address):
    """Without a reader it stays UNKNOWN; a run that passes one settles it; a forgotten key is a new write."""
    service.script("webhooks.create", "apply, then 500")

    async def found(client, intent):
        hooks = await client.webhooks.list()
        return Applied(next(hook for hook in hooks if hook.url == intent.body["url"]))

    def write(client, reader=None):
        return client.write("POST", "/webhooks", json=HOOK, reader=reader).keyed("k")

    async with client_of(service, journal=address) as client:
        verdicts = [(await write(client).outcome()).verdict for _ in range(2)]
        assert await client.prune(older_than=-1) == 0
        settled = await write(client, found).outcome()
        assert (verdicts, settled.verdict) == ([Verdict.UNKNOWN] * 2, Verdict.APPLIED)
        assert (await client.outcome_of("k")).verdict is Verdict.APPLIED
        assert service.arrivals("webhooks.create") == 1

        assert await client.forget("k")
        assert await client.outcome_of("k") is None
        assert not await client.forget("k")
        assert not (await write(client).outcome()).replayed
    assert service.arrivals("webhooks.create") == 2


@pytest.mark.parametrize("then", ["run", "forget"])
async def test_unknown_one_that_people_retry_is_settled_first(service, address, then):
    """It may have had an effect: it is not sent before that is known, and its key is not forgotten."""
    service.script("webhooks.create", "apply, then 500")
    async with client_of(service, journal=address) as client:
        write = client.write("POST", "/webhooks", json=HOOK).keyed("k")
        assert (await write.outcome()).verdict is Verdict.UNKNOWN
    await retry(client, address, "k")
    async with client_of(service, journal=address) as client:
        if then == "forget":
            with pytest.raises(JournalError, match="may have been sent"):
                await client.forget("k")
        again = client.write("POST", "/webhooks", json=HOOK).keyed("k")
        assert (await again.outcome()).verdict is Verdict.UNKNOWN
    assert service.arrivals("webhooks.create") == 1


async def test_retry_of_many_keys(service, address):
    """They may be more than one statement can have, and keys that there are not are no harm."""
    service.script("webhooks.create", "400", "400")
    async with client_of(service, journal=address) as client:
        for key in "ab":
            outcome = await create(client, key, url=f"https://{key}.example/").outcome()
            assert outcome.verdict is Verdict.REFUSED
    entries = JournalEntries(str(address), options_of(client).core)
    await entries.open()
    names = [await entries.named(key) for key in "ba"]
    assert await entries.do_again([*names, *map(str, range(300))]) == sorted(names)
    await entries.aclose()


async def test_unknown_one_that_proves_absent_is_sent(service, address):
    """A new run settles it again, within its own deadline, and sends on proof alone."""
    service.script("webhooks.create", "500")
    async with client_of(service, journal=address) as client:
        short = await create(client).with_policy(deadline=0.05).outcome()
        assert service.arrivals("webhooks.create") == 1
        outcome = await create(client).outcome()
    assert (short.verdict, outcome.verdict) == (Verdict.UNKNOWN, Verdict.APPLIED)
    assert (outcome.replayed, len(service.ledger.effects("webhooks.create"))) == (
        False,
        1,
    )


async def test_a_write_that_is_done_anew_does_not_undo_a_newer_one(service, address):
    """The newer one to its thing was applied: it is not sent, and told as overtaken."""
    service.script("journeys.update", "400")
    async with client_of(service, journal=address) as client:
        assert (await rename(client, "old", "a").outcome()).verdict is Verdict.REFUSED
        assert (await rename(client, "new", "b").outcome()).applied
        again = await rename(client, "old", "a").outcome()
    assert (again.verdict, again.evidence.cause) == (Verdict.NOT_APPLIED, "overtaken")
    assert service.arrivals("journeys.update") == 2


async def test_a_write_that_is_done_anew_does_not_undo_one_that_is_open(
    service, shared
):
    """That one, of another process, may have been applied already."""
    service.script("journeys.update", "400", "slow 1.5")
    async with (
        client_of(service, journal=shared) as one,
        client_of(service, journal=shared) as other,
    ):
        assert (await rename(one, "older", "a").outcome()).verdict is Verdict.REFUSED
        newer = asyncio.create_task(rename(other, "newer", "b").outcome())
        await service.arrived("journeys.update", 2)
        again = await rename(one, "older", "a").outcome()
        assert again.verdict is Verdict.NOT_APPLIED, again.explain()
        assert (await newer).applied
    assert service.arrivals("journeys.update") == 2


async def test_secret_is_delivered_before_the_verdict(service, address):
    """``on_secret`` has it, so replays say that, and no warning is logged."""
    got = []

    async def keep(key, webhook):
        got.append((key, webhook.secret, await client.outcome_of("k")))

    async with client_of(service, journal=address, on_secret=keep) as client:
        first = await create(client).outcome()
        again = await create(client).outcome()
    assert got == [("k", first.value.secret, None)]
    assert (first.secret, again.secret, again.value.secret) == (
        "delivered",
        "delivered",
        None,
    )


@pytest.mark.parametrize("fails", ["raises", "is cancelled"])
async def test_secret_that_on_secret_did_not_take(service, address, fails):
    """It is lost, and the next run says so: nobody got it."""
    taking = asyncio.Event()

    async def take(_key, _hook):
        taking.set()
        if fails == "raises":
            raise OSError("the vault is away")
        await forever()

    async with client_of(service, journal=address, on_secret=take) as client:
        running = asyncio.create_task(create(client).outcome())
        await taking.wait()
        await cancel(running)
        again = await create(client).outcome()
        with pytest.raises(SecretLostError):
            await create(client)
    assert (again.verdict, again.secret) == (Verdict.APPLIED, "lost")
    assert service.arrivals("webhooks.create") == 1


async def test_without_on_secret_one_warning(service, address, caplog):
    """It names the setting, once for each client."""
    async with client_of(service, journal=address) as client:
        for i in range(3):
            await create(client, f"k{i}", url=f"https://me.example/{i}")
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "on_secret"
    ]


async def test_prune_and_forget(service, address):
    """Old keys are deleted, UNKNOWN ones are not; the next write under a deleted one is new."""
    async with client_of(service, journal=address) as client:
        await create(client)
        await rename(client, "x", "j")
        assert await client.prune(older_than=60) == 0
        assert await client.prune(older_than=-1) == 2
        assert (await create(client).outcome()).replayed is False
    assert service.arrivals("webhooks.create") == 2


async def test_key_of_a_write_without_a_journal(service):
    """The error names the setting, and nothing is sent."""
    async with client_of(service) as client:
        with pytest.raises(
            ConfigurationError, match=r"webhooks\.create: the key 'k' .* journal="
        ):
            await create(client)
        with pytest.raises(
            ConfigurationError, match="outcome_of: this client has no journal"
        ):
            await client.outcome_of("k")
    assert service.arrivals() == 0


async def test_key_of_a_resumed_write(service, tmp_path):
    """It is that of its intent: another one would not be stored, and the same write could be sent under it."""
    service.script("webhooks.create", "reset", "reset")
    async with client_of(service, journal=tmp_path / "first.db") as client:
        await cut_off(service, client.webhooks.create(**HOOK))
        await cut_off(service, create(client, "k"))
        without, keyed = client.unsettled
        with pytest.raises(InvalidRequestError, match="has the key of the intent"):
            client.resume(keyed).keyed("order-17")
        assert (await client.resume(keyed).keyed("k").outcome()).applied
    async with client_of(service, journal=tmp_path / "second.db") as client:
        with pytest.raises(InvalidRequestError, match="has the key of the intent"):
            client.resume(without, same_mode=True).keyed("order-17")
        assert await client.outcome_of("order-17") is None
    assert len(service.ledger.effects("webhooks.create")) == 1


@pytest.mark.parametrize("key", ["", "x" * 201, "a\nb", "a\0", 7])
async def test_bad_keys(service, client, key):
    """They are refused when given."""
    with pytest.raises(InvalidRequestError, match="key: must have 1 to 200 printable"):
        client.webhooks.create(**HOOK).keyed(key)


async def test_write_ended_by_the_clients_close(service, address):
    """It is UNKNOWN at once, and the next process finds out."""
    service.script("webhooks.create", "apply, then hang")
    async with client_of(service, journal=address) as client:
        running = asyncio.create_task(create(client).outcome())
        await service.arrived("webhooks.create")
    assert (await running).verdict is Verdict.UNKNOWN
    async with client_of(service, journal=address) as client:
        assert (await create(client).outcome()).applied
    assert service.arrivals("webhooks.create") == 1


async def test_resume_of_a_keyed_intent(service, address):
    """The journal that has its key settles it, or returns its verdict; another one does not send it."""
    service.script("webhooks.create", "apply, then hang")
    async with client_of(service, journal=address) as client:
        await cut_off(service, create(client))
        [intent] = client.unsettled
        assert (await client.resume(intent).outcome()).applied
        assert (await client.resume(intent).outcome()).replayed
        await client.forget("k")
        with pytest.raises(
            ConfigurationError, match="does not have the write of this intent"
        ):
            await client.resume(intent)
    assert service.arrivals("webhooks.create") == 1


async def test_resume_of_a_keyed_intent_beside_a_run_of_its_key(service, address):
    """It waits for that run, and returns its outcome."""
    service.script("webhooks.create", "apply, then hang")
    async with client_of(service, journal=address) as client:
        await cut_off(service, create(client))
        [intent] = client.unsettled
        run, resumed = await asyncio.gather(
            create(client).outcome(), client.resume(intent).outcome()
        )
        assert (run.verdict, resumed.verdict, resumed.replayed) == (
            Verdict.APPLIED,
            Verdict.APPLIED,
            True,
        )
    assert service.arrivals("webhooks.create") == 1


async def test_resume_beside_a_run_that_does_the_write_anew(service, address):
    """The key has another intent by then: that is the error, and no other input under the key."""
    service.script("webhooks.create", "400", "slow 0.5")
    async with client_of(service, journal=address) as client:
        intent = (await create(client).outcome()).intent
        running = asyncio.create_task(create(client).outcome())
        await service.arrived("webhooks.create", 2)
        with pytest.raises(
            ConfigurationError, match="does not have the write of this intent"
        ):
            await client.resume(intent)
        assert (await running).applied
    assert service.arrivals("webhooks.create") == 2


def verdicts_wait(monkeypatch):
    """Return an event; runs store their verdicts once it is set."""
    waits, settled = asyncio.Event(), keyed_run.KeyedRun.settled

    async def settled_when_awaited(run, outcome):
        await waits.wait()
        await settled(run, outcome)

    monkeypatch.setattr(keyed_run.KeyedRun, "settled", settled_when_awaited)
    return waits


async def test_resume_while_another_process_does_the_write_anew(
    service, shared, monkeypatch
):
    """It waited for a run that was refused, and the key has another intent since."""
    service.script("webhooks.create", "400")
    waits = verdicts_wait(monkeypatch)
    async with (
        client_of(service, journal=shared) as one,
        client_of(service, journal=shared) as other,
    ):
        running = asyncio.create_task(create(one).outcome())
        await service.arrived("webhooks.create")
        keys, waiting = (journal_of(each).keys for each in (one, other))
        [name] = keys._runs._runs
        intent = await keys._stored.intent_in((await keys.claims.look(name)).entry)

        async def until_done_anew(_found):
            waits.set()
            assert (await running).verdict is Verdict.REFUSED
            assert (await create(one).outcome()).applied

        monkeypatch.setattr(waiting.claims.waits, "wait", until_done_anew)
        with pytest.raises(
            ConfigurationError, match="does not have the write of this intent"
        ):
            await other.resume(intent)
    assert len(service.ledger.effects("webhooks.create")) == 1


@pytest.mark.parametrize("given", [nan, inf, -inf, 1e30, "x", None])
async def test_prune_of_no_number_of_seconds(service, address, given):
    """It is refused in words."""
    async with client_of(service, journal=address) as client:
        with pytest.raises(
            InvalidRequestError, match="older_than: must be a number of seconds"
        ):
            await client.prune(older_than=given)


async def test_settle_beside_writes_of_another_process_to_the_same_thing(
    service, shared
):
    """They are of the same program, and nobody has superseded the write; its key has another write by now."""
    journey = service.seed_journey().id
    service.script("journeys.update", "hang")
    settings = {"journal": shared, "timeout": SOON}
    async with (
        client_of(service, **settings) as one,
        client_of(service, **settings) as other,
    ):
        await cut_off(service, one.journeys.update(journey, name="x").keyed("k"))
        assert [outcome.verdict for outcome in await other.recover()] == [
            Verdict.NOT_APPLIED
        ]
        assert await other.forget("k")
        for key, name in (("k", "z"), ("k2", "y")):
            assert (
                await other.journeys.update(journey, name=name).keyed(key).outcome()
            ).applied
        [intent] = one.unsettled
        assert (await one.settle(intent)).verdict is Verdict.UNKNOWN


# --- namespaces


async def test_teams_have_keys_of_their_own(service, address):
    """The same key of two teams is two writes."""
    async with client_of(service, journal=address) as client:
        await create(client)
        try:
            other = await create(client.for_team("team_2")).outcome()
        except KeyConflictError:
            pytest.fail("two teams share a key")
        assert other.replayed is False


async def test_credential_that_is_not_the_same(service, address):
    """It is refused in words, and never opens an empty namespace; a name or the word of a person lets it in."""
    other = ApiKey(service.issue_key())
    async with client_of(service, journal=address) as client:
        await create(client)
    async with client_of(service, journal=address, credential=other) as client:
        with pytest.raises(
            ConfigurationError,
            match=r"made with another credential.*same_mode=true.*namespace=NAME",
        ):
            await create(client)
    async with client_of(
        service, journal=named(address, "same_mode=true"), credential=other
    ) as client:
        assert (await create(client).outcome()).replayed
    async with client_of(service, journal=address, credential=other) as client:
        assert (await create(client).outcome()).replayed  # that was noted
    async with client_of(
        service, journal=named(address, "namespace=billing"), credential=other
    ) as client:
        assert not (await create(client).outcome()).replayed
    assert service.arrivals("webhooks.create") == 2


async def test_provider_of_tokens_needs_a_name(service, address):
    """It does not show its team and mode."""

    async def token():
        return service.api_key

    provider = TokenProvider(token, kind="api_key")
    async with client_of(service, journal=address, credential=provider) as client:
        with pytest.raises(ConfigurationError, match=r"journal='…\?namespace=NAME'"):
            await create(client)
    for _ in range(2):
        async with client_of(
            service, journal=named(address, "namespace=billing"), credential=provider
        ) as client:
            await create(client)
    assert service.arrivals("webhooks.create") == 1


async def test_recover_leaves_writes_of_another_credential(service, address):
    """It may be of another data mode, in which nothing shows them."""
    service.script("webhooks.create", "apply, then hang")
    async with client_of(service, journal=named(address, "namespace=live")) as client:
        await cut_off(service, create(client))
    other = ApiKey(service.issue_key(livemode=False))
    async with client_of(
        service, journal=named(address, "namespace=test"), credential=other
    ) as client:
        assert await client.recover() == []
    async with client_of(service, journal=named(address, "namespace=live")) as client:
        assert (await create(client).outcome()).applied
    assert service.arrivals("webhooks.create") == 1


@pytest.mark.parametrize("same", ["same_mode=true", "namespace=billing", "the call"])
async def test_recover_settles_writes_of_a_credential_of_the_same_mode(
    service, address, same
):
    """A person has said that it is: in the address of the journal, or in the call."""
    service.script("webhooks.create", "apply, then hang")
    query = "same_mode=true" if same == "the call" else same
    async with client_of(service, journal=named(address, query)) as client:
        await cut_off(service, create(client))
    other = ApiKey(service.issue_key())
    journal = address if same == "the call" else named(address, query)
    async with client_of(service, journal=journal, credential=other) as client:
        [outcome] = await client.recover(same_mode=same == "the call")
    assert outcome.applied


async def test_write_after_one_of_another_credential_to_what_may_be_the_same_thing(
    service, shared
):
    """It is sent once that one can have no effect any more, and leaves it to its own client."""
    service.script("journeys.update", "apply, then hang")
    other = ApiKey(service.issue_key(livemode=False))
    async with (
        client_of(service, journal=named(shared, "namespace=live")) as live,
        client_of(
            service, journal=named(shared, "namespace=test"), credential=other
        ) as test,
    ):
        await cut_off(service, rename(live, "x", "k"))
        assert (await rename(test, "y", "k").outcome()).applied
        assert await live.outcome_of("k") is None
        assert (await rename(live, "x", "k").outcome()).verdict in (
            Verdict.APPLIED,
            Verdict.UNKNOWN,
        )


@pytest.mark.parametrize(
    "query",
    ["namespace=", "namespace=a%20b", "namespace=" + "x" * 65, "same_mode=maybe"],
)
async def test_bad_names(service, tmp_path, query):
    """They are refused when the client is made."""
    with pytest.raises(
        ConfigurationError, match=r"journal: (namespace|same_mode) is invalid"
    ):
        Client(
            service.base_url,
            ApiKey(service.api_key),
            journal=f"{tmp_path / 'calls.db'}?{query}",
        )


# --- several processes


@pytest.mark.parametrize(
    "knows", [False, True], ids=["reads first", "would send at once"]
)
async def test_writes_to_one_thing_keep_their_order_in_two_clients(
    service, shared, knows
):
    """The second waits until the first is settled, and none is blamed on a stranger."""
    service.script("journeys.update", "late 0.1, then 500")
    async with (
        client_of(service, journal=shared) as one,
        client_of(service, journal=shared) as other,
    ):
        if knows:
            await other.journeys.get("jrn_1")
        first = asyncio.create_task(rename(one, "first", "a").outcome())
        await service.arrived("journeys.update")
        second = await rename(other, "second", "b").outcome()
        assert (await first).verdict in (Verdict.APPLIED, Verdict.NOT_APPLIED)
        assert second.applied
        assert (await one.journeys.get("jrn_1")).name == "second"


async def test_write_after_one_of_another_client_is_sent_at_once(service, shared):
    """It waits for that one and is sent; nobody has to find out by reads what became of it."""
    hook = service.seed_webhook()["id"]
    async with (
        client_of(service, journal=shared) as one,
        client_of(service, journal=shared) as other,
    ):
        for number in range(12):
            client = other if number % 2 else one
            outcome = (
                await client.webhooks.update(hook, status="inactive")
                .keyed(f"{number}")
                .outcome()
            )
            assert (outcome.attempts, outcome.evidence.basis) == (1, "answered"), (
                outcome.explain()
            )
    assert service.arrivals("webhooks.update") == 12


@pytest.mark.parametrize("settles", [True, False])
async def test_what_another_client_has_settled(service, shared, settles):
    """Its verdict is stored, what was written after that is not somebody else's, and it is not open."""
    service.script("journeys.update", "apply, then hang")
    async with (
        client_of(service, journal=shared) as one,
        client_of(service, journal=shared) as other,
    ):
        await cut_off(service, rename(one, "first", "a"))
        [intent] = one.unsettled
        assert (await rename(other, "second", "b").outcome()).applied
        assert (
            await one.settle(intent)
            if settles
            else await rename(one, "first", "a").outcome()
        ).applied
        assert one.unsettled == ()


@pytest.mark.untraced
@pytest.mark.silence(1)
@pytest.mark.one_python
@pytest.mark.parametrize("where", ["before the verdict", "after the verdict"])
async def test_killed_process(service, shared, where):
    """Its write is settled, or its verdict returned, once; and nobody has its secret."""
    async with client_of(service, journal=shared) as client:
        async with process(
            service, shared, "webhooks.create", f"SIGKILL {where}", **HOOK, key="k"
        ) as child:
            await child.wait()
        outcome = await create(client).outcome()
        with pytest.raises(SecretLostError):
            await create(client)
    assert (outcome.verdict, outcome.secret) == (Verdict.APPLIED, "lost")
    assert service.arrivals("webhooks.create") == 1


@pytest.mark.untraced
@pytest.mark.silence(1)
@pytest.mark.one_python
@pytest.mark.parametrize("where", ["before the socket", "before the verdict"])
async def test_stopped_process_that_wakes_up(service, shared, where):
    """Another one takes its write over meanwhile; it gets that one's verdict, and sends nothing."""
    async with (
        client_of(service, journal=shared) as client,
        process(
            service, shared, "webhooks.create", f"SIGSTOP {where}", **HOOK, key="k"
        ) as child,
    ):
        await until_stopped(child)
        outcome = await create(client).outcome()
        child.send_signal(signal.SIGCONT)
        out, _ = await child.communicate()
    assert outcome.verdict is Verdict.APPLIED
    assert out.decode().split()[:2] == ["applied", "True"]
    assert len(service.ledger.effects("webhooks.create")) == 1


@pytest.mark.untraced
@pytest.mark.silence(1)
async def test_recover_settles_what_a_killed_process_left(service, shared):
    """Without a run of its key, too; a later run returns the verdict."""
    service.script("webhooks.create", "apply, then hang")
    async with client_of(service, journal=shared) as client:
        async with process(service, shared, "webhooks.create", **HOOK, key="k"):
            await service.arrived("webhooks.create")
        outcomes = await until(client.recover)  # it dies by silence
        assert [(each.verdict, each.intent.key) for each in outcomes] == [
            (Verdict.APPLIED, "k")
        ]
        assert (await create(client).outcome()).replayed
        assert await client.recover() == []
    assert service.arrivals("webhooks.create") == 1


@pytest.mark.parametrize("when", ["before the claim", "between claim and send"])
async def test_database_that_is_away(service, request, when):
    """Nothing is sent, because that has to be stored before; the error says that the journal is away."""
    async with database_proxy() as proxy:
        journal = (
            proxy.address + f"&journal=away{abs(hash(request.node.nodeid))}&silence=60"
        )
        async with client_of(service, journal=journal) as client:
            assert await client.outcome_of("k") is None  # it is open
            if when == "before the claim":
                await create(client, "first", url="https://me.example/first")
                store_beneath(client).patience = 0.5
                proxy.cut()
                write = create(client)
            else:
                with gate(service, "journeys.get"):
                    write = asyncio.create_task(rename(client, "x", "k").outcome())
                    await service.arrived("journeys.get")
                    store_beneath(client).patience = 0.5
                    proxy.cut()
            with pytest.raises(JournalError, match="is away"):
                await write
            await proxy.open()
    creates = int(when == "before the claim")
    assert (
        service.arrivals("webhooks.create"),
        service.arrivals("journeys.update"),
    ) == (creates, 0)


async def test_verdict_that_the_database_gets_late(service, request, monkeypatch):
    """The next run waits for it, and returns it: it would be taken for the verdict of what that run sends."""
    service.script("webhooks.create", "400", "slow 0.9")
    store_late = run_ends.RunEnds._store_end

    async def while_the_next_is_sent(*arguments, **how):
        with suppress(TimeoutError):  # the next one waits for it, and is not sent
            await until(lambda: service.arrivals("webhooks.create") == 2, within=1.0)
        return await store_late(*arguments, **how)

    monkeypatch.setattr(run_ends.RunEnds, "_store_end", while_the_next_is_sent)
    async with database_proxy() as proxy:
        journal = (
            proxy.address + f"&journal=late{abs(hash(request.node.nodeid))}&silence=60"
        )
        usual = []

        def cut(report):
            if report.operation == "webhooks.create" and not usual:
                usual.append(store_beneath(client).patience)
                store_beneath(client).patience = 0.5
                proxy.cut()

        async with client_of(service, journal=journal, on_attempt=cut) as client:
            assert await client.outcome_of("k") is None  # it is open
            with pytest.raises(JournalError, match="could not be stored"):
                await create(client)
            await proxy.open()
            [store_beneath(client).patience] = usual
            again = await create(client).outcome()
        async with client_of(service, journal=journal) as client:
            assert (await create(client).outcome()).applied
    assert (again.verdict, again.replayed) == (Verdict.REFUSED, True)
    assert len(service.ledger.effects("webhooks.create")) == 1


async def test_recover_leaves_what_it_cannot_read(service, shared, caplog):
    """It is named, and the others are settled."""
    service.script("webhooks.create", "apply, then hang", "apply, then hang")
    async with client_of(service, journal=shared) as client:
        for key in "ab":
            await cut_off(service, create(client, key, url=f"https://{key}.example/"))
        store = store_beneath(client)
        await store.idle()
        text = "UPDATE {s}entries SET intent = replace(intent, $1, $2) WHERE seq = (SELECT min(seq) FROM {s}entries)"
        await store.rows(text, "{", '{"of_tomorrow":1,')
    async with client_of(service, journal=shared) as client:
        assert [outcome.intent.key for outcome in await client.recover()] == ["b"]
    assert "left in the journal" in caplog.text


async def test_key_that_is_pruned_while_it_is_awaited(service, shared, monkeypatch):
    """The one that waited does not send it again."""
    waits, forgotten = verdicts_wait(monkeypatch), asyncio.Event()
    async with (
        client_of(service, journal=shared) as one,
        client_of(service, journal=shared) as other,
    ):
        running = asyncio.create_task(create(one).outcome())
        await service.arrived("webhooks.create")
        look = in_store.look

        async def late(*given):
            waits.set()
            await forgotten.wait()
            return await look(*given)

        monkeypatch.setattr(in_store, "look", late)
        waiting = asyncio.create_task(create(other).outcome())
        assert (await running).applied
        assert await one.forget("k")
        forgotten.set()
        with pytest.raises(
            JournalError, match="forgotten while its verdict was awaited"
        ):
            await waiting
    assert service.arrivals("webhooks.create") == 1


async def test_journal_that_was_put_back_from_a_copy(service, tmp_path):
    """What the copy does not have may have been sent since: it is not sent until a person has looked."""
    path, copy = tmp_path / "calls.db", tmp_path / "copy"
    async with client_of(service, journal=path) as client:
        await create(client, "before", url="https://b.example/")
    shutil.copy(path, copy)
    async with client_of(service, journal=path) as client:
        await create(client, "after", url="https://a.example/")
    await put_back(service, path, copy)

    for _ in range(2):
        async with client_of(service, journal=path) as client:
            assert (
                await create(client, "before", url="https://b.example/").outcome()
            ).replayed
            with pytest.raises(JournalError, match=r"may lack keys.*complete=true"):
                await create(client, "after", url="https://a.example/")
    assert service.arrivals("webhooks.create") == 2
    async with client_of(service, journal=f"{path}?complete=true") as client:
        assert (await create(client, "new", url="https://n.example/").outcome()).applied
    async with client_of(service, journal=path) as client:
        assert (
            await create(client, "newer", url="https://n.example/2").outcome()
        ).applied


async def test_two_at_once_in_a_journal_that_was_put_back_from_a_copy(
    service, tmp_path
):
    """The second one does not rely on a look that the first one has only begun."""
    path, copy = tmp_path / "calls.db", tmp_path / "copy"
    async with client_of(service, journal=path) as client:
        await create(client, "before", url="https://b.example/")
    shutil.copy(path, copy)
    async with client_of(service, journal=path) as client:
        await asyncio.gather(
            *(create(client, key, url=f"https://{key}.example/") for key in "ab")
        )
    await put_back(service, path, copy)

    async with client_of(service, journal=path) as client:
        # with the service's clock, nothing is read before a create
        await client.webhooks.list()
        again = [create(client, key, url=f"https://{key}.example/") for key in "ab"]
        found = await asyncio.gather(*again, return_exceptions=True)
    assert [type(each) for each in found] == [JournalError, JournalError]
    assert service.arrivals("webhooks.create") == 3


@pytest.mark.parametrize("retried", [False, True])
async def test_refused_write_in_a_journal_that_was_put_back_from_a_copy(
    service, tmp_path, retried
):
    """It may have been done anew since the copy was made: it is not sent once more, whatever reads show."""
    path, copy = tmp_path / "calls.db", tmp_path / "copy"
    service.script("webhooks.create", "400")
    async with client_of(service, journal=path, timeout=SOON) as client:
        assert (await create(client).outcome()).verdict is Verdict.REFUSED
    if retried:
        await retry(client, path, "k")
    shutil.copy(path, copy)
    async with client_of(service, journal=path) as client:
        assert (await create(client).outcome()).applied
    await put_back(service, path, copy)
    async with client_of(service, journal=f"{path}?complete=true") as client:
        again = await create(client).outcome()
    assert (again.verdict, service.arrivals("webhooks.create")) == (Verdict.UNKNOWN, 2)


@pytest.mark.parametrize("knows", ["the clock", "nothing"])
async def test_database_that_is_put_back_under_a_client(service, shared, knows):
    """The next write is not sent: the copy may lack its key. Those that it has are replayed."""
    journal = shared  # no sign of life finds it before
    async with client_of(service, journal=journal) as client:
        await create(client, "before", url="https://b.example/")
        journal = journal_of(client)
        store = store_beneath(journal)
        await asyncio.sleep(0)  # what was told of the first one begins, and may connect
        await until(lambda: not journal.keys.claims.ends._tasks)
        # as of the last connection
        assert await journal.keys.doubts.mark() == NOT_RESTORED
        store._place["timeline"] = "00000077"
        await go_to_another_timeline(store)
        async with connected() as owner:
            await owner.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name LIKE 'invsvc journal %'"
            )
        if knows == "nothing":
            options_of(client).core.server_clock.__init__()
        for _ in range(2):
            with pytest.raises(JournalError, match=r"may lack keys.*complete=true"):
                await create(client, "after", url="https://a.example/")
            assert (
                await create(client, "before", url="https://b.example/").outcome()
            ).replayed
    assert service.arrivals("webhooks.create") == 1
