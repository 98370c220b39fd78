"""Tags of webhooks that are created under keys: by default there is one, and ``tag=False`` is honoured."""

from __future__ import annotations

import asyncio

import attrs
import pytest

from invsvc_async import Batch, CallOptions, Verdict
from invsvc_async.durable.key_runs import KeyRuns
from invsvc_async.reconcile.findings import is_unique
from tests.batch.conftest import HOOK, POLICY, client_of
from tests.durable.test_restored import SOON
from tests.durable.writing import create, cut_off, retry
from tests.support.gate import PATIENT, gate
from tests.support.inside import journal_of, store_beneath
from tests.support.waiting import cancel, until

pytestmark = pytest.mark.one_python


def descriptions(service):
    """Return the descriptions of what was created, in its order."""
    return [
        entry.body.get("description")
        for entry in service.ledger.effects("webhooks.create")
    ]


async def keys_are_stored(client, many):
    """Return whether the journal of *client* has so many keys."""
    return len(await store_beneath(client).entries("e.seq > $1", 0)) == many


@pytest.mark.parametrize(
    ("tag", "is_tagged"), [(None, True), (True, True), (False, False), ("mine", False)]
)
async def test_tag_of_a_keyed_create(service, address, tag, is_tagged):
    """Only False, or a text of the user's own, leaves the tag out."""
    async with client_of(service, journal=address) as client:
        await create(client, tag=tag, description="in")
        assert (await create(client, tag=tag, description="in").outcome()).replayed
    [description] = descriptions(service)
    assert is_unique(description.partition(" ")[2]) is is_tagged
    if tag is False:
        assert description == "in"


@pytest.mark.parametrize("tag", [None, False])
async def test_tag_of_a_create_that_is_not_keyed(service, tag):
    """There is none, unless the policy of the client asks for it; False is honoured there, too."""
    async with client_of(service) as client:
        await client.webhooks.create(**HOOK, tag=tag)
        await client.webhooks.create(**HOOK, tag=tag).with_policy(tag_creates=True)
    found = descriptions(service)
    assert found[0] is None
    assert (found[1] is None) is (tag is False)


@pytest.mark.parametrize("tag", [None, False])
async def test_tag_in_a_batch_and_in_a_line(service, tmp_path, tag):
    """False is honoured in a batch, and on the way there."""
    async with (
        client_of(service) as client,
        Batch.open(tmp_path / "run.db", client) as batch,
    ):
        line = client.webhooks.create(**HOOK, tag=tag).to_line()
        async for _ in batch.run([client.write_from(line)]):
            pass
    [description] = descriptions(service)
    assert (description is None) is (tag is False)


async def test_lost_answer_of_an_untagged_create(service, address):
    """The webhook is found by its content and time, and nothing is sent again."""
    service.script("webhooks.create", "apply, then hang")
    async with client_of(service, journal=address, timeout=SOON) as client:
        await client.webhooks.list()
        await cut_off(service, create(client, tag=False))
        outcome = await create(client, tag=False).outcome()
        assert (outcome.verdict, outcome.evidence.basis) == (
            Verdict.APPLIED,
            "match",
        ), outcome.explain()
    assert service.arrivals("webhooks.create") == 1


async def left_in_doubt(service, client):
    """Create a webhook, of which the list shows its tag, and one under the key "k", whose answer is lost."""
    await create(client, "other", url="https://other.example/in").outcome()
    service.script("webhooks.create", "apply, then hang")
    await cut_off(service, create(client))
    return next(
        hook for hook in await client.webhooks.list() if hook.url == HOOK["url"]
    )


CHANGES = {
    "description": {"description": "orders of May"},
    "all but the URL": {
        "description": "orders of May",
        "events": ["payment.created"],
        "status": "inactive",
    },
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("by", ["a keyed update", "an update", "somebody else"])
async def test_create_in_doubt_whose_tag_is_edited_away(service, address, by, changes):
    """Its webhook may still be its own, though another one shows that tags are kept: nothing is sent again."""
    async with client_of(service, journal=address, timeout=SOON) as client:
        hook = await left_in_doubt(service, client)
        match by:
            case "a keyed update":
                await client.webhooks.update(hook, **changes).keyed("change")
            case "an update":
                await client.webhooks.update(hook, **changes)
            case _:
                service.change_webhook(hook.id, **changes)
        outcome = await create(client).outcome()
    async with client_of(service, journal=address, timeout=SOON) as client:
        again = await create(client).outcome()
    for each in (outcome, again):
        assert (each.verdict, each.evidence.cause) == (
            Verdict.UNKNOWN,
            "candidates",
        ), each.explain()
        assert [item["id"] for item in each.evidence.candidates] == [hook.id]
    assert [
        entry.target
        for entry in service.ledger.effects("webhooks.create")
        if entry.body["url"] == HOOK["url"]
    ] == [hook.id]


async def test_create_in_doubt_that_gets_the_description_of_another(service, address):
    """Its webhook may still be its own, though it has the tag of the other one: nothing is sent again."""
    async with client_of(service, journal=address, timeout=SOON) as client:
        hook = await left_in_doubt(service, client)
        [other] = [each for each in await client.webhooks.list() if each.id != hook.id]
        service.change_webhook(hook.id, description=other.description)
        outcome = await create(client).outcome()
    assert (outcome.verdict, outcome.evidence.cause) == (
        Verdict.UNKNOWN,
        "candidates",
    ), outcome.explain()
    assert [item["id"] for item in outcome.evidence.candidates] == [hook.id]
    assert service.arrivals("webhooks.create") == 2


async def test_two_creates_in_doubt_whose_webhooks_get_one_description(
    service, address
):
    """The one whose tag both have is applied; that says nothing of which is its own, so the other is not sent."""
    async with client_of(service, journal=address, timeout=SOON) as client:
        hook = await left_in_doubt(service, client)
        service.script("webhooks.create", "apply, then hang")
        await cut_off(service, create(client, "second"))
        [second] = [
            each
            for each in await client.webhooks.list()
            if each.url == HOOK["url"] and each.id != hook.id
        ]
        service.change_webhook(hook.id, description=second.description)
        applied = await create(client, "second").outcome()
        outcome = await create(client).outcome()
    assert applied.applied, applied.explain()
    assert outcome.verdict is Verdict.UNKNOWN, outcome.explain()
    assert service.arrivals("webhooks.create") == 3


@pytest.mark.parametrize(
    "changes",
    [{"url": "https://third.example/in"}, {"created_at": 1_700_000_000_000}],
    ids=["another URL", "made before"],
)
async def test_create_in_doubt_beside_what_gets_the_description_of_another(
    service, address, changes
):
    """What has another URL, or was made before, is not its own, whatever tag it has."""
    async with client_of(service, journal=address, timeout=SOON) as client:
        other = await create(client, "other", url="https://other.example/in")
        service.script("webhooks.create", "hang")
        await cut_off(service, create(client))
        service.seed_webhook(
            **{
                "url": HOOK["url"],
                "description": other.description,
                "created_at": service.clock.now_ms(),
                **changes,
            }
        )
        outcome = await create(client).outcome()
    assert outcome.applied, outcome.explain()
    made = [entry.target for entry in service.ledger.effects("webhooks.create")]
    assert made[1:] == [outcome.value.id]


async def test_create_in_doubt_beside_another_url_of_the_host(service, address):
    """What somebody else makes there without a tag is no candidate, because the service keeps tags."""
    async with client_of(service, journal=address, timeout=SOON) as client:
        await create(client, "other", url="https://other.example/in").outcome()
        service.script("webhooks.create", "hang")
        await cut_off(service, create(client))
        service.seed_webhook(
            url="https://me.example/theirs", created_at=service.clock.now_ms()
        )
        outcome = await create(client).outcome()
    assert outcome.applied, outcome.explain()
    made = [entry.target for entry in service.ledger.effects("webhooks.create")]
    assert made[1:] == [outcome.value.id]


COPIES = {
    "of another URL": {"url": "https://second.example/in", "tag": False},
    "of another URL, tagged": {"url": "https://second.example/in"},
    "of the same URL": {"tag": False},
    "of the same URL, tagged": {},
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
async def test_copy_of_a_webhook_whose_create_is_in_doubt(service, address, copied):
    """A webhook that was made with the description of the first one, tag included, is not taken for it."""
    async with client_of(service, journal=address, timeout=SOON) as client:
        hook = await left_in_doubt(service, client)
        copy = await create(client, "copy", description=hook.description, **copied)
        outcome = await create(client).outcome()
    made = [entry.target for entry in service.ledger.effects("webhooks.create")]
    assert made[1:] == [hook.id, copy.id]
    assert outcome.applied, outcome.explain()
    assert (outcome.value.id, outcome.evidence.duplicates) == (hook.id, ())


@pytest.mark.parametrize(
    "copied", [name for name in COPIES if name != "of the same URL"]
)
async def test_copy_that_another_process_finds(service, address, copied):
    """It knows no answers.  The copy has another URL, or a tag of its own: else nothing would tell them apart."""
    async with client_of(service, journal=address, timeout=SOON) as client:
        hook = await left_in_doubt(service, client)
        await create(client, "copy", description=hook.description, **COPIES[copied])
    async with client_of(service, journal=address, timeout=SOON) as client:
        outcome = await create(client).outcome()
    assert service.arrivals("webhooks.create") == 3
    assert outcome.applied, outcome.explain()
    assert (outcome.value.id, outcome.evidence.duplicates) == (hook.id, ())


async def outcomes_of(*writes):
    """Run *writes* at the same time, and return their outcomes, which do not wait for each other for ever."""
    async with asyncio.timeout(300):
        return await asyncio.gather(*(write.outcome() for write in writes))


def sent_by(who):
    """Return options by which the ledger knows which key made a webhook."""
    return CallOptions(headers={"X-Write-Id": who})


def makers(service):
    """Return for each key that made webhooks, their ids."""
    made = {}
    for entry in service.ledger.effects("webhooks.create"):
        made.setdefault(entry.sender, []).append(entry.target)
    return made


async def test_resumed_untagged_create_waits_for_another_one(service, address):
    """The webhook of the other one, which looks like its own, is not taken for it."""

    def made(client, key):
        return create(client, key, tag=False, options=sent_by(key))

    async with client_of(service, journal=address, timeout=SOON) as client:
        await client.webhooks.list()
        service.script("webhooks.create", "hang")
        await cut_off(service, made(client, "a"))
        [intent] = client.unsettled
        assert (await client.settle(intent)).verdict is Verdict.NOT_APPLIED
        service.script("webhooks.create", "apply, then hang", "reset")
        other = asyncio.create_task(made(client, "b").outcome())
        await service.arrived("webhooks.create", 2)
        outcomes = await asyncio.gather(client.resume(intent).outcome(), other)
    assert [each.verdict for each in outcomes] == [Verdict.APPLIED] * 2, [
        each.explain() for each in outcomes
    ]
    ids = [each.value.id for each in outcomes]
    assert makers(service) == {"a": [ids[0]], "b": [ids[1]]}


def done_anew(client, key, **changes):
    """Return an untagged create that is done anew, perhaps with another URL than before."""
    write = client.webhooks.create(
        **{**HOOK, "tag": False, "options": sent_by(key), **changes}
    )
    return write.keyed(key, match="operation")


ANEW = {"another tag": {"tag": None}, "another URL": {"url": "https://me.example/typo"}}


@pytest.mark.parametrize("before", ANEW)
async def test_create_that_is_done_anew_beside_another_one(service, shared, before):
    """They wait for each other in the line of the URL that it has now."""
    async with (
        client_of(service, journal=shared, timeout=SOON) as one,
        client_of(service, journal=shared, timeout=SOON) as other,
    ):
        for client in (one, other):
            await client.webhooks.list()
        service.script("webhooks.create", "400", "apply, then hang", "reset")
        refused = await done_anew(one, "a", **ANEW[before]).outcome()
        assert refused.verdict is Verdict.REFUSED
        again = asyncio.create_task(done_anew(one, "a").outcome())
        await service.arrived("webhooks.create", 2)
        beside = done_anew(other, "b").outcome()
        outcomes = await asyncio.gather(again, beside)
    assert [each.verdict for each in outcomes] == [Verdict.APPLIED] * 2, [
        each.explain() for each in outcomes
    ]
    ids = [each.value.id for each in outcomes]
    assert makers(service) == {"a": [ids[0]], "b": [ids[1]]}


@pytest.mark.parametrize("before", ANEW)
async def test_create_that_is_done_anew_and_left_in_doubt(service, address, before):
    """The next process finds it under the URL that it has now, and does not take its webhook for another's."""
    late = attrs.evolve(POLICY, settle_after_loss=2.0, reads_lag=1.0)
    settings = {"journal": address, "timeout": SOON, "reconcile": late}
    async with client_of(service, **settings) as client:
        await client.webhooks.list()
        service.script("webhooks.create", "400", "late 1, then hang", "reset")
        await done_anew(client, "a", **ANEW[before]).outcome()
        await cut_off(service, done_anew(client, "a"))
    async with client_of(service, **settings) as client:
        await client.webhooks.list()
        outcomes = [await done_anew(client, key).outcome() for key in ("b", "a")]
    assert [each.verdict for each in outcomes] == [Verdict.APPLIED] * 2, [
        each.explain() for each in outcomes
    ]
    ids = [each.value.id for each in outcomes]
    assert makers(service) == {"a": [ids[1]], "b": [ids[0]]}


@pytest.mark.parametrize(
    "now", [{"tag": None}, {"url": "https://me.example/other"}], ids=str
)
async def test_create_in_doubt_that_is_run_as_another_one(service, shared, now):
    """What may have been sent is settled as what it was, in the line of its URL, and sent again as that."""
    async with (
        client_of(service, journal=shared, timeout=SOON) as one,
        client_of(service, journal=shared, timeout=SOON) as other,
    ):
        for client in (one, other):
            await client.webhooks.list()
        service.script("webhooks.create", "reset", "apply, then slow 0.6")
        doubtful = done_anew(one, "a").with_policy(deadline=0.05)
        assert (await doubtful.outcome()).verdict is Verdict.UNKNOWN
        beside = asyncio.create_task(done_anew(other, "b").outcome())
        await service.arrived("webhooks.create", 2)
        outcomes = await outcomes_of(done_anew(one, "a", **now))
        outcomes.append(await beside)
    assert [each.verdict for each in outcomes] == [Verdict.APPLIED] * 2, [
        each.explain() for each in outcomes
    ]
    assert {each.value.url for each in outcomes} == {HOOK["url"]}
    assert descriptions(service) == [None, None]
    ids = [each.value.id for each in outcomes]
    assert makers(service) == {"a": [ids[0]], "b": [ids[1]]}


@pytest.mark.parametrize("is_tagged", [False, True])
async def test_resumed_untagged_create_stays_untagged(service, address, is_tagged):
    """Its intent says what is sent, so ``tagged`` changes nothing, and it does not get a line of its own."""
    async with client_of(service, journal=address, timeout=SOON) as client:
        service.script("webhooks.create", "hang")
        await cut_off(service, create(client, "a", tag=False, description="in"))
        [intent] = client.unsettled
        assert (await client.settle(intent)).verdict is Verdict.NOT_APPLIED
        [before] = await store_beneath(client).entries("true")
        resumed = client.resume(intent)
        if is_tagged:
            resumed = resumed.tagged()
        assert (await resumed.outcome()).applied
        [entry] = await store_beneath(client).entries("true")
    assert descriptions(service) == ["in"]
    assert entry.thing == before.thing is not None


@pytest.mark.parametrize("processes", [1, 2])
async def test_unknown_untagged_creates_that_are_resumed_at_once(
    service, shared, address, processes
):
    """As those that are run again: the second one waits for the first one."""
    place = address if processes == 1 else shared
    async with (
        client_of(service, journal=place, timeout=SOON) as one,
        client_of(service, journal=shared, timeout=SOON) as other,
    ):
        clients = (one, one) if processes == 1 else (one, other)
        resumed = []
        for client, key in zip(clients, "ab", strict=True):
            service.script("webhooks.create", "reset")
            doubtful = create(one, key, tag=False, description=key)
            outcome = await doubtful.with_policy(deadline=0.05).outcome()
            policy = attrs.evolve(outcome.intent.policy, deadline=30.0)
            resumed.append(client.resume(attrs.evolve(outcome.intent, policy=policy)))
        outcomes = await outcomes_of(*resumed)
    assert {each.verdict for each in outcomes} == {Verdict.APPLIED}, [
        each.explain() for each in outcomes
    ]
    assert sorted(descriptions(service)) == ["a", "b"]


@pytest.mark.parametrize("processes", [1, 2])
async def test_unknown_untagged_creates_that_are_run_again_at_once(
    service, shared, address, processes
):
    """One of them is open at a time, because one that may have been sent is waited for by all others."""
    place = address if processes == 1 else shared
    async with (
        client_of(service, journal=place, timeout=SOON) as one,
        client_of(service, journal=shared, timeout=SOON) as other,
    ):
        clients = (one, one) if processes == 1 else (one, other)
        for key in "ab":
            service.script("webhooks.create", "reset")
            doubtful = create(one, key, tag=False, description=key)
            outcome = await doubtful.with_policy(deadline=0.05).outcome()
            assert outcome.verdict is Verdict.UNKNOWN, outcome.explain()
        again = (
            create(client, key, tag=False, description=key)
            for client, key in zip(clients, "ab", strict=True)
        )
        outcomes = await outcomes_of(*again)
    assert {each.verdict for each in outcomes} == {Verdict.APPLIED}, [
        each.explain() for each in outcomes
    ]
    assert sorted(descriptions(service)) == ["a", "b"]


async def leave_marked(service, address, keys):
    """Leave untagged creates under *keys* in doubt, as a client does that gives up, and mark them to be done again."""
    async with client_of(service, journal=address, timeout=SOON) as client:
        for key in keys:
            service.script("webhooks.create", "reset")
            doubtful = create(client, key, tag=False, description=key)
            assert not (await doubtful.with_policy(deadline=0.05).outcome()).applied
    await retry(client, address, *keys)


async def test_untagged_creates_in_doubt_that_are_to_be_done_again(service, address):
    """Marked by people, all of them may have been sent, and no run has them."""
    await leave_marked(service, address, "abc")
    async with client_of(service, journal=address, timeout=SOON) as client:
        again = [create(client, key, tag=False, description=key) for key in "bac"]
        outcomes = await outcomes_of(*again)
    assert {each.verdict for each in outcomes} == {Verdict.APPLIED}, [
        each.explain() for each in outcomes
    ]
    assert sorted(descriptions(service)) == ["a", "b", "c"]


async def test_run_that_waits_for_a_create_that_another_run_settles(
    service, address, monkeypatch
):
    """The run looks again once the create is settled, although a run of the create has begun meanwhile."""

    def made(client, key):
        return create(client, key, tag=False, description=key)

    waited_for, until_end = [], KeyRuns.until_end

    async def noted(self, name):
        waited_for.append(name)
        await until_end(self, name)

    # reaches: nothing else tells that a run waits for another one
    monkeypatch.setattr(KeyRuns, "until_end", noted)
    await leave_marked(service, address, "abc")
    async with client_of(service, journal=address, timeout=PATIENT) as client:
        with gate(service, "webhooks.list") as reads:
            runs = [asyncio.create_task(made(client, "b").outcome())]
            await until(lambda: reads.held)  # it settles a
            runs += [asyncio.create_task(made(client, key).outcome()) for key in "ac"]
            await until(lambda: waited_for)  # c waits for a
        async with asyncio.timeout(300):
            outcomes = await asyncio.gather(*runs)
    assert {each.verdict for each in outcomes} == {Verdict.APPLIED}, [
        each.explain() for each in outcomes
    ]
    assert sorted(descriptions(service)) == ["a", "b", "c"]


async def test_untagged_creates_that_another_process_settles_one_after_the_other(
    service, shared
):
    """The runs of this process wait for that one alone, not for each other."""

    def runs(client):
        writes = [create(client, key, tag=False, description=key) for key in "ab"]
        return [asyncio.create_task(write.outcome()) for write in writes]

    await leave_marked(service, shared, "ab")
    async with (
        asyncio.timeout(300),
        client_of(service, journal=shared, timeout=PATIENT) as one,
        client_of(service, journal=shared, timeout=PATIENT) as other,
    ):
        with gate(service, "webhooks.list", many=99) as reads:
            first = runs(one)
            await until(lambda: reads.held)  # it settles one of them
            beside = runs(other)
            await until(lambda: len(journal_of(other).keys.claims.waits._waiting) == 2)
            await cancel(*first)
            again = runs(one)
            await until(lambda: reads.held > 1)
        outcomes = await asyncio.gather(*beside, *again)
    assert {each.verdict for each in outcomes} == {Verdict.APPLIED}, [
        each.explain() for each in outcomes
    ]
    assert sorted(descriptions(service)) == ["a", "b"]


async def test_untagged_create_is_settled_beside_another_one(service, shared):
    """It waits for the answer to that, whose webhook looks like its own."""
    async with (
        client_of(service, journal=shared, timeout=SOON) as one,
        client_of(service, journal=shared) as other,
    ):
        service.script("webhooks.create", "reset", "apply, then slow 1")
        doubtful = create(one, "a", tag=False).with_policy(deadline=0.05)
        intent = (await doubtful.outcome()).intent
        policy = attrs.evolve(intent.policy, deadline=30.0)
        intent = attrs.evolve(intent, policy=policy)
        sending = asyncio.create_task(create(other, "b", tag=False).outcome())
        await service.arrived("webhooks.create", 2)
        outcomes = await asyncio.gather(one.settle(intent), sending)
    assert [each.verdict for each in outcomes] == [
        Verdict.NOT_APPLIED,
        Verdict.APPLIED,
    ], [each.explain() for each in outcomes]


async def test_untagged_create_in_doubt_beside_an_earlier_one_that_was_not_sent(
    service, address
):
    """The earlier one waits, also if it was claimed first; the later one does not wait for it."""

    def made(key):
        return create(client, key, tag=False, description=key)

    async with client_of(service, journal=address) as client:
        service.script("webhooks.create", "apply, then hang")
        first = asyncio.create_task(made("a").outcome())
        await service.arrived("webhooks.create")
        waiting = asyncio.create_task(made("b").outcome())
        await until(lambda: keys_are_stored(client, 2))
        for task in (waiting, first):
            task.cancel()
            await asyncio.wait([task])
        assert (await made("a").outcome()).verdict is Verdict.APPLIED
        service.script("webhooks.create", "apply, then hang")
        later = asyncio.create_task(made("c").outcome())  # which passes b over
        await service.arrived("webhooks.create", 2)
        later.cancel()
        await asyncio.wait([later])
        outcomes = await outcomes_of(made("b"), made("c"))
    assert {each.verdict for each in outcomes} == {Verdict.APPLIED}, [
        each.explain() for each in outcomes
    ]
    assert sorted(descriptions(service)) == ["a", "b", "c"]


async def test_equal_untagged_creates_of_two_processes(service, shared):
    """One waits for the other, and knows which webhook is that one's."""
    service.script("webhooks.create", "apply, then hang")
    async with (
        client_of(service, journal=shared, timeout=SOON) as one,
        client_of(service, journal=shared, timeout=SOON) as other,
    ):
        await other.webhooks.list()
        first = asyncio.create_task(create(one, "a", tag=False).outcome())
        await service.arrived("webhooks.create")
        service.script("webhooks.create", "apply, then 500")
        outcomes = [await create(other, "b", tag=False).outcome(), await first]
    assert {outcome.verdict for outcome in outcomes} == {Verdict.APPLIED}, [
        o.explain() for o in outcomes
    ]
    assert outcomes[0].value.id != outcomes[1].value.id
    assert all(outcome.evidence.duplicates == () for outcome in outcomes)
    assert len(service.ledger.effects("webhooks.create")) == 2
