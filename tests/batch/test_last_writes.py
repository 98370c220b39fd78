"""What the writes of a batch leave for the later ones of the same thing: after a restart, and elsewhere."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import attrs
import msgspec
import pytest

from invsvc_async import ConfigurationError, TokenProvider, Verdict
from invsvc_async.batch import Batch
from invsvc_async.client import options_of
from invsvc_async.durable.last_writes import MOST_LARGE, learn, left_by
from invsvc_async.durable.store.states import Left, last_writes
from invsvc_async.errors import JournalError
from invsvc_async.reconcile.differences import LEFT_OUT, digest_of
from invsvc_async.writes.register import WriteRegister
from tests.batch.conftest import HOOK, POLICY, client_of
from tests.batch.writing import all_of, run_all, shelve, shelve_one

pytestmark = pytest.mark.one_python


@asynccontextmanager
async def opened(service, journal, **settings):
    """Open the batch with a client of its own, as a process that has just begun would."""
    async with (
        client_of(service, **settings) as client,
        Batch.open(journal, client, tag=False) as batch,
    ):
        yield client, batch


async def rows(batch):
    """Return what the journal stores of each thing."""
    found = await batch.entries.store.rows("SELECT thing, state, stamp FROM {s}states")
    return {thing: {"state": state, "stamp": stamp} for thing, state, stamp in found}


async def state_of(batch, thing):
    """Return the state that the journal stores of *thing*, or None."""
    text = (await rows(batch))[thing]["state"]
    return None if text is None else msgspec.json.decode(text)


def renames(client, journey, *names):
    """Make one update of *journey* for each name, keyed by it."""
    return [client.journeys.update(journey.id, name=name).keyed(name) for name in names]


def describes(client, hook_id, *texts):
    """Make one update of a webhook for each text, keyed by it."""
    return [
        client.webhooks.update(hook_id, description=text).keyed(text) for text in texts
    ]


def done_by(service, operation="journeys.update"):
    """List the names that took effect, in their order."""
    fields = {"journeys.update": "name", "webhooks.update": "description"}
    return [
        entry.body[fields[operation]] for entry in service.ledger.effects(operation)
    ]


# --- order


async def test_refused_writes_of_one_thing_are_sent_again_in_their_order(
    service, journal
):
    """A later write that had no effect has overtaken nothing: both are sent again, the older one first."""
    journey = service.seed_journey()
    service.script("journeys.update", "403", "403")
    async with opened(service, journal) as (client, batch):
        await all_of(batch, renames(client, journey, "k1", "k2"))
        assert await batch.retry(verdict=Verdict.REFUSED) == 2
    async with opened(service, journal) as (_, batch):
        again = await all_of(batch)
    assert [(result.key, result.verdict) for result in again] == [
        ("k1", "applied"),
        ("k2", "applied"),
    ]
    assert done_by(service) == ["k1", "k2"]


async def test_refused_creates_of_one_address_are_sent_again(service, journal):
    """Creates do not replace each other, so a later one of the same URL has overtaken nothing."""
    service.script("webhooks.create", "403")
    async with opened(service, journal) as (client, batch):
        await all_of(
            batch, [client.webhooks.create(**HOOK).keyed(key) for key in ("k1", "k2")]
        )
    async with opened(service, journal) as (_, batch):
        await batch.retry(verdict=Verdict.REFUSED)
        [again] = await all_of(batch)
    assert (again.key, again.verdict) == ("k1", Verdict.APPLIED)


async def test_unknown_write_that_was_overtaken_is_not_sent(service, journal):
    """Settled in another process after a later write of its thing, it is no stranger's victim, nor sent."""
    hook = service.seed_webhook(description="before")
    service.script("webhooks.update", "reset")
    service.script("webhooks.get", "pass", "403")
    async with opened(service, journal) as (client, batch):
        first = await all_of(batch, describes(client, hook.id, "k1", "k2"))
    async with opened(service, journal) as (_, batch):
        assert await batch.retry(verdict=Verdict.UNKNOWN) == 1
        [again] = await all_of(batch)
    assert {result.key: result.verdict for result in first} == {
        "k1": "unknown",
        "k2": "applied",
    }
    assert (again.key, again.verdict) == ("k1", Verdict.UNKNOWN)
    assert "a later write of this program" in again.message
    assert done_by(service, "webhooks.update") == ["k2"]


async def test_unknown_write_that_this_client_left_open(service, journal):
    """What another worker has sent since is known from the journal, whatever this client remembers."""
    journey = service.seed_journey()
    service.script("journeys.update", "reset")
    service.script("journeys.get", "pass", "403")
    async with client_of(service) as first:
        [unknown] = await run_all(journal, first, renames(first, journey, "k1"))
        async with opened(service, journal) as (client, batch):
            [newer] = await all_of(batch, renames(client, journey, "k2"))
        async with Batch.open(journal, first) as batch:
            await batch.retry(verdict=Verdict.UNKNOWN)
            [again] = await all_of(batch)
    assert (unknown.verdict, newer.verdict) == ("unknown", "applied")
    assert again.verdict in (Verdict.UNKNOWN, Verdict.NOT_APPLIED)
    assert done_by(service) == ["k2"]


async def test_write_overtaken_by_one_in_flight(service, journal):
    """A later write that may have been sent, and is not done, has overtaken it, too."""
    journey = service.seed_journey()
    service.script("journeys.update", "403", "apply, then hang")
    async with opened(service, journal) as (client, batch):
        await shelve(
            service, batch, renames(client, journey, "k1", "k2"), "journeys.update", 2
        )
        assert await batch.retry(verdict=Verdict.REFUSED) == 1
    async with opened(service, journal) as (_, batch):
        results = {result.key: result.verdict for result in await all_of(batch)}
    assert results == {"k1": Verdict.NOT_APPLIED, "k2": Verdict.APPLIED}
    assert done_by(service) == ["k2"]


async def test_write_done_anew_after_it_was_superseded(service, journal):
    """The verdict of before is not given again for a write that was sent anew and cut off."""
    journey = service.seed_journey()
    service.script("journeys.update", "reset", "apply, then hang")
    policy = attrs.evolve(POLICY, settle_after_loss=2.0)
    async with (
        client_of(service, reconcile=policy) as client,
        Batch.open(journal, client) as batch,
    ):
        running = asyncio.create_task(all_of(batch, renames(client, journey, "k1")))
        await service.arrived("journeys.get", 2)  # one before the write, one after it
        await asyncio.sleep(0.3)  # sleeps: more than the slack between clocks
        service.change_journey(journey.id, name="a stranger's")
        [first] = await running
        assert first.verdict is Verdict.SUPERSEDED
        assert await batch.retry(verdict=Verdict.SUPERSEDED) == 1
        await shelve(service, batch, (), "journeys.update", 2)
        [again] = await all_of(batch)
    assert again.verdict is Verdict.APPLIED


async def test_write_that_the_user_has_settled(service, journal):
    """A verdict that this client knows by now is stored and given, though nothing is read or sent for it."""
    journey = service.seed_journey()
    service.script("journeys.update", "apply, then reset")
    service.script("journeys.get", "pass", "403")
    async with opened(service, journal) as (client, batch):
        [first] = await all_of(batch, renames(client, journey, "k1"))
        [intent] = client.unsettled
        assert (await client.settle(intent)).applied
        await batch.retry(verdict=Verdict.UNKNOWN)
        [again] = await all_of(batch)
        assert (await batch.summary()).verdicts == {Verdict.APPLIED: 1}
    assert (first.verdict, again.verdict) == (Verdict.UNKNOWN, Verdict.APPLIED)


# --- the state that a write left is the baseline of the next one


BLIND = ("503", "503", "503")  # the reads before the write tell nothing


@pytest.mark.parametrize(
    "taken_in", [False, True], ids=["new", "taken in by a run that ended"]
)
async def test_baseline_after_a_restart(service, journal, taken_in):
    """An update in doubt is compared with what the one before it left, in another process that knows the service's clock."""
    hook = service.seed_webhook(description="before")
    async with opened(service, journal) as (client, batch):
        await all_of(batch, describes(client, hook.id, "k1"))
        if taken_in:
            service.script("webhooks.update", "403")
            await all_of(batch, describes(client, hook.id, "k2"))
            await batch.retry(verdict=Verdict.REFUSED)
    service.script("webhooks.update", "reset")
    async with opened(service, journal) as (client, batch):
        await client.webhooks.list()  # shows the clock
        [second] = await all_of(
            batch, () if taken_in else describes(client, hook.id, "k2")
        )
    assert (second.verdict, second.resends) == (Verdict.APPLIED, 1)
    assert done_by(service, "webhooks.update") == ["k1", "k2"]


async def test_webhook_that_was_deleted(service, journal):
    """An update in doubt of what an earlier run has deleted is told as not applied, where reads do not lag."""
    hook = service.seed_webhook()
    async with opened(service, journal) as (client, batch):
        await all_of(batch, [client.webhooks.delete(hook.id).keyed("k1")])
        assert await state_of(batch, f"/webhooks/{hook.id}") == {}
    service.script("webhooks.update", "reset")
    service.script("webhooks.get", *BLIND)
    async with opened(service, journal) as (client, batch):
        [update] = describes(client, hook.id, "k2")
        [second] = await all_of(batch, [update.with_policy(reads_lag=0.0)])
    assert second.verdict is Verdict.NOT_APPLIED


async def test_state_of_a_webhook_after_a_write_in_doubt(service, journal):
    """Whether it was changed cannot be seen later, so nothing of it is kept; the order of writes is."""
    hook = service.seed_webhook(description="before")
    async with opened(service, journal) as (client, batch):
        await all_of(batch, describes(client, hook.id, "k1"))
        assert (await state_of(batch, f"/webhooks/{hook.id}"))["description"] == "k1"
        service.script("webhooks.update", "apply, then reset")
        service.script("webhooks.get", "403", "403", "403", "403")
        [second] = await all_of(batch, describes(client, hook.id, "k2"))
        assert second.verdict is Verdict.UNKNOWN
        assert await state_of(batch, f"/webhooks/{hook.id}") is None


async def test_what_is_kept_of_a_state(service, journal):
    """What updates change, with status and time; no secret, and of a graph of more than 4 KiB a digest."""
    small, large = service.seed_journey(), service.seed_journey()
    hook = service.seed_webhook(secret="whsec_never")
    node = {
        "id": "n",
        "type": "t",
        "position": {"x": 0, "y": 0},
        "data": {"config": {}},
    }
    graphs = {}
    for journey, size in ((small, 10), (large, MOST_LARGE)):
        config = {**node, "data": {"config": {"text": "x" * size}}}
        graphs[journey.id] = {"nodes": [config], "edges": []}
    async with opened(service, journal) as (client, batch):
        writes = [
            client.journeys.update(each.id, graph=graphs[each.id])
            for each in (small, large)
        ]
        results = await all_of(batch, [*writes, *describes(client, hook.id, "k1")])
        assert {result.verdict for result in results} == {Verdict.APPLIED}
        kept = {
            each.id: await state_of(batch, f"/journeys/{each.id}")
            for each in (small, large)
        }
        told = await rows(batch)
    shown = service.book().journeys.items
    assert kept[small.id]["graph"]["nodes"][0]["data"] == {"config": {"text": "x" * 10}}
    assert "graph" not in kept[large.id]
    digest = digest_of(shown[large.id]["graph"])
    assert kept[large.id][LEFT_OUT] == {"graph": digest}
    assert LEFT_OUT not in kept[small.id]
    for each in (small, large):
        assert kept[each.id]["status"] == "draft"
        assert kept[each.id]["last_updated"] == shown[each.id]["last_updated"]
    assert "whsec" not in str(told)
    assert all(row["stamp"] > 10**12 for row in told.values())


async def test_digest_of_a_large_graph(service, journal):
    """It shows after a restart that the graph is as before, so a lost update is sent again."""
    journey = service.seed_journey(name="before")
    node = {
        "id": "n",
        "type": "t",
        "position": {"x": 0, "y": 0.5},
        "data": {"config": {"text": "x" * MOST_LARGE}},
    }
    graph = {"nodes": [node], "edges": []}
    async with opened(service, journal) as (client, batch):
        await all_of(batch, [client.journeys.update(journey.id, graph=graph)])
        assert "graph" not in await state_of(batch, f"/journeys/{journey.id}")
    async with opened(service, journal) as (client, batch):
        await client.webhooks.list()  # by which the service's clock is known
        service.script("journeys.update", "reset")
        update = client.journeys.update(journey.id, name="mine", graph=graph)
        [second] = await all_of(batch, [update])
        assert (second.verdict, second.resends) == (Verdict.APPLIED, 1)


async def test_state_of_long_ago(service, journal):
    """A webhook may have been changed by anybody since: the read before the write says more than the journal."""
    hook, journey = service.seed_webhook(description="before"), service.seed_journey()
    async with opened(service, journal) as (client, batch):
        await all_of(
            batch, [*describes(client, hook.id, "k1"), *renames(client, journey, "k2")]
        )
        await batch.entries.store.rows("UPDATE {s}states SET stamp = stamp - 3600000")
    async with opened(service, journal) as (client, batch):
        await client.webhooks.list()  # by which the service's clock is known
        service.change_webhook(hook.id, description="a stranger's")
        service.script("webhooks.update", "reset")
        [second] = await all_of(batch, describes(client, hook.id, "k3"))
        await all_of(batch, renames(client, journey, "k4"))
    assert (second.verdict, second.resends) == (Verdict.APPLIED, 1)
    # the clock was not known then; a journey shows its version
    assert service.arrivals("journeys.get") == 1


async def test_state_of_another_worker(service, client, shared):
    """Where another worker has written since, its answer counts, and not what this client remembers."""
    hook = service.seed_webhook(description="before")
    async with Batch.open(shared, client, tag=False) as mine:
        await all_of(mine, describes(client, hook.id, "k1"))
        await asyncio.sleep(0.01)  # sleeps: the service's time is in ms
        async with opened(service, shared) as (other, theirs):
            await all_of(theirs, describes(other, hook.id, "k2"))
        service.script("webhooks.update", "reset")
        [third] = await all_of(mine, describes(client, hook.id, "k3"))
    assert (third.verdict, third.resends) == (Verdict.APPLIED, 1)


def outcome_of(client, write, value=None):
    """Make the outcome of a write, as far as it is looked at."""
    intent = write.intent
    write.close()
    evidence = SimpleNamespace(basis="answered")
    return SimpleNamespace(
        started_as=intent, verdict=Verdict.APPLIED, value=value, evidence=evidence
    )


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        (
            {"url": "u", "events": [], "status": "active", "owner": "usr_1"},
            {"url": "u", "events": [], "status": "active"},
        ),
        ({}, {}),
        ({"url": "u", "events": []}, None),  # an answer need not show the webhook whole
        ({"url": "\ud800", "events": [], "status": "active"}, None),  # no text in UTF-8
    ],
)
def test_states_that_can_be_compared(client, state, kept):
    """What a webhook is compared by is kept; of one that was not shown whole, or has no text, nothing."""
    thing, own = "/webhooks/wh_1", WriteRegister(is_of_one_mode=True)
    own.learn_state(None, thing, state, 1.0, 2.0, stamp=5)
    left = left_by(
        thing,
        outcome_of(client, client.webhooks.update("wh_1", status="inactive")),
        own,
    )
    assert left.thing == thing
    assert (None if left.state is None else msgspec.json.decode(left.state)) == kept


def test_state_with_a_number_that_no_parser_accepts(client):
    """What is kept of an answer is read again without the member that has it; a damaged state is refused."""
    thing, own = "/journeys/jrn_1", WriteRegister(is_of_one_mode=True)
    graph = b'{"nodes":[],"edges":[],"news":[1E999999999999999999999]}'
    journey = b'{"id":"jrn_1","name":"x","last_updated":5,"graph":%s}' % graph
    own.learn_state(None, thing, msgspec.Raw(journey), 1.0, 2.0, stamp=5)
    left = left_by(
        thing, outcome_of(client, client.journeys.update("jrn_1", name="x")), own
    )
    writes = options_of(client).core.writes

    learn(options_of(client), [Left(thing, state=left.state, stamp=5)])

    assert b"999" in left.state.encode()
    assert writes.last_state(None, thing).state == {
        "id": "jrn_1",
        "name": "x",
        "last_updated": 5,
    }
    with pytest.raises(JournalError):
        learn(options_of(client), [Left(thing, state=left.state[:-5], stamp=6)])


@pytest.mark.parametrize("shown", [b"", b"[]", b'{"id":"\\xff"}'])
def test_answers_that_show_no_journey(client, shown):
    """An answer that cannot be taken apart leaves no state, though its model could be read."""
    thing, own = "/journeys/jrn_1", WriteRegister(is_of_one_mode=True)
    outcome = outcome_of(client, client.journeys.update("jrn_1", name="x"))
    own.learn_state(
        None, thing, msgspec.Raw(shown.replace(rb"\xff", b"\xff")), 1.0, 2.0, stamp=5
    )
    assert left_by(thing, outcome, own) == Left(thing)
    own.learn_state(None, thing, {"id": "jrn_1", "name": "x"}, 3.0, 4.0, stamp=5)
    assert left_by(thing, outcome, own) == Left(
        thing, None, '{"id":"jrn_1","name":"x"}', 5
    )


async def test_state_without_a_mode_of_its_own(service, journal):
    """A person's data mode may change from one call to the next, so no state is kept, nor taken."""
    hook = service.seed_webhook(description="before")

    async def source():
        return service.person_token

    provider = TokenProvider(source, kind="person_token")
    async with opened(service, journal, credential=provider) as (client, batch):
        [first] = await all_of(batch, describes(client, hook.id, "k1"))
        assert first.verdict is Verdict.APPLIED
        assert await state_of(batch, f"/webhooks/{hook.id}") is None
        assert (
            options_of(client).core.writes.last_state(None, f"/webhooks/{hook.id}")
            is None
        )


async def test_states_are_pruned(service, journal):
    """Pruning empties states as it does entries; which write was the last of its thing is kept."""
    journey = service.seed_journey()
    service.script("journeys.update", "403")
    async with opened(service, journal) as (client, batch):
        await all_of(batch, renames(client, journey, "k1", "k2"))
        await batch.retry(verdict=Verdict.REFUSED)
        await batch.prune(done_before=datetime.now(UTC) - timedelta(days=1))
        assert (await state_of(batch, f"/journeys/{journey.id}"))["name"] == "k2"
        assert await batch.prune(done_before=datetime.now(UTC) + timedelta(days=1)) == 1
        assert await state_of(batch, f"/journeys/{journey.id}") is None
    async with opened(service, journal) as (_, batch):
        [again] = await all_of(batch)
    assert (again.verdict, done_by(service)) == (Verdict.NOT_APPLIED, ["k2"])


async def test_states_are_looked_for_only_where_there_are_any(
    service, client, path, monkeypatch
):
    """A first run on a file asks the journal nothing more for its writes."""
    hooks = [service.seed_webhook() for _ in range(3)]
    asked = []
    async with Batch.open(path, client) as batch:

        async def noting(store, things):
            asked.append(sorted(things))
            return await last_writes(store, things)

        monkeypatch.setattr("invsvc_async.batch.earlier_writes.last_writes", noting)
        await all_of(
            batch, [client.webhooks.update(hook.id, description="a") for hook in hooks]
        )
        assert asked == []
        await all_of(
            batch, [client.webhooks.update(hook.id, description="b") for hook in hooks]
        )
        assert asked == [sorted(f"/webhooks/{hook.id}" for hook in hooks)]


# --- claims


@pytest.mark.parametrize("answer", ["pass", "apply, then reset"])
async def test_claim_of_an_earlier_create(service, journal, answer):
    """What an untagged create has made is known to a later one of its URL; for certain, if an answer said so."""
    service.script("webhooks.create", answer)
    async with opened(service, journal) as (client, batch):
        [made] = await all_of(batch, [client.webhooks.create(**HOOK).keyed("a")])
    async with opened(service, journal) as (client, batch):
        await all_of(batch, [client.webhooks.create(**HOOK).keyed("b")])
        assert options_of(client).core.writes.claims[made.thing] == (
            "a",
            answer == "pass",
        )


async def test_id_that_postgresql_cannot_store(service, journal, monkeypatch):
    """A null character in the id of a new webhook fails neither that create nor those stored with it."""
    real = service._state.new_id
    # reaches: no real id has a character that PostgreSQL cannot store
    monkeypatch.setattr(service._state, "new_id", lambda prefix: f"{real(prefix)}\0")
    async with opened(service, journal) as (client, batch):
        writes = [
            client.webhooks.create(**{**HOOK, "url": f"https://{number}.example"})
            for number in (1, 2)
        ]
        assert [result.applied for result in await all_of(batch, writes)] == [
            True,
            True,
        ]


async def test_claims_of_other_workers(service, client, shared):
    """A worker learns what another's creates of a URL have made when it takes up one of the same URL."""
    async with (
        client_of(service) as other,
        Batch.open(shared, client, tag=False) as mine,
    ):
        async with Batch.open(shared, other, tag=False) as theirs:
            [made] = await all_of(theirs, [other.webhooks.create(**HOOK).keyed("a")])
        assert made.thing not in options_of(client).core.writes.claims
        await all_of(mine, [client.webhooks.create(**HOOK).keyed("b")])
        assert options_of(client).core.writes.claims[made.thing] == ("a", True)


# --- lines


@pytest.mark.parametrize("long_ago", [False, True])
async def test_window_of_an_earlier_write_is_waited_for(service, journal, long_ago):
    """
    What one process left unknown may still land: the next one sends nothing newer to its thing before that.

    By the service's clock, which one read shows, one of long ago is known to be over.
    """
    hook = service.seed_webhook(description="before")
    policy = attrs.evolve(
        POLICY, settle_after_loss=60.0 if long_ago else 1.5, deadline=0.2
    )
    service.script("webhooks.update", "reset" if long_ago else "late 1.2, then reset")
    service.script("webhooks.get", "pass", "403", "403", "403", "403")
    async with opened(service, journal, reconcile=policy) as (client, batch):
        [first] = await all_of(batch, describes(client, hook.id, "k1"))
    service.clock.offset += 3600 * long_ago
    async with (
        asyncio.timeout(300),
        opened(service, journal, reconcile=policy) as (client, batch),
    ):
        [second] = await all_of(batch, describes(client, hook.id, "k2"))
    assert (first.verdict, second.verdict) == (Verdict.UNKNOWN, Verdict.APPLIED)
    assert done_by(service, "webhooks.update") == (["k2"] if long_ago else ["k1", "k2"])


async def test_write_that_waits_for_its_line_holds_no_place(service, client, path):
    """While the window of a live write to the same thing is open, others are sent from the one place."""
    hooks = [service.seed_webhook() for _ in range(4)]
    service.script("webhooks.update", "reset")
    service.script("webhooks.get", "pass", "403", "403", "403")
    policy = attrs.evolve(POLICY, settle_after_loss=1.0, deadline=0.1)
    live = client.webhooks.update(hooks[0].id, description="live").with_policy(policy)
    assert (await live.outcome()).verdict is Verdict.UNKNOWN
    writes = [write for hook in hooks for write in describes(client, hook.id, hook.id)]
    results = await run_all(path, client, writes, concurrency=1)
    assert {result.verdict for result in results} == {Verdict.APPLIED}
    assert results[-1].key == hooks[0].id
    assert done_by(service, "webhooks.update")[-1] == hooks[0].id


async def test_updates_of_journeys_with_faults_between(service, path):
    """Three updates of each journey, one right after the other, some in doubt: no sibling is a stranger."""
    journeys = [service.seed_journey() for _ in range(99)]
    plan = ["pass"] * 300
    for number in range(7, 300, 20):  # 5 of 100
        plan[number] = "apply, then 503" if number % 40 == 7 else "503"
    service.script("journeys.update", *plan)
    async with client_of(service) as client, Batch.open(path, client) as batch:
        writes = (
            client.journeys.update(
                journeys[number // 3 % 99].id, name=f"row {number}"
            ).keyed(f"row {number}")
            for number in range(300)
        )
        results = {result.key: result for result in await all_of(batch, writes)}
    # Where a slow machine leaves no time to send one again, NOT_APPLIED is true; nothing else is.
    assert {result.verdict for result in results.values()} <= {
        Verdict.APPLIED,
        Verdict.NOT_APPLIED,
    }
    effects = [
        entry.body["name"] for entry in service.ledger.effects("journeys.update")
    ]
    assert sorted(effects) == sorted(
        key for key, result in results.items() if result.applied
    )
    assert len(effects) >= 285  # those that were not lost
    for journey in journeys:
        own = [
            e.body["name"]
            for e in service.ledger.effects("journeys.update")
            if e.path_id == journey.id
        ]
        assert own == sorted(own, key=lambda name: int(name.split()[1]))


# --- in another process


# --- beside other features of the same client


LOST = {
    "webhooks.update": lambda client, hook, _: client.webhooks.update(
        hook.id, description="k1"
    ),
    "webhooks.delete": lambda client, hook, _: client.webhooks.delete(hook.id),
    "journeys.update": lambda client, _, journey: client.journeys.update(
        journey.id, name="k1"
    ),
}


@pytest.mark.parametrize("operation", LOST)
async def test_write_settled_before_a_newer_one_beside_the_batch(
    service, client, path, operation
):
    """Its client has settled it and then written the same thing: it is not sent over that, and blames nobody."""
    hook, journey = (
        service.seed_webhook(description="before"),
        service.seed_journey(status="draft"),
    )
    service.script(operation, "hang")
    lost = LOST[operation](client, hook, journey).keyed("k1")
    await shelve_one(service, client, path, lost, operation)
    [intent] = client.unsettled
    assert (await client.settle(intent)).verdict is Verdict.NOT_APPLIED
    for text in ("newer", "before"):
        if operation == "journeys.update":
            await client.journeys.update(journey.id, name=text)
        else:
            await client.webhooks.update(hook.id, description=text)
    await asyncio.sleep(0.3)  # sleeps: more than the slack between clocks
    [again] = await run_all(path, client)
    assert again.verdict in (Verdict.NOT_APPLIED, Verdict.UNKNOWN)
    # of the same operation
    newer = [] if operation == "webhooks.delete" else [True, True]
    assert [entry.applied for entry in service.ledger.find(operation)] == [
        False,
        *newer,
    ]


async def test_journey_that_its_client_has_written_before_it_resumes_the_batch(
    service, path
):
    """What the process before sent last is older than what this client has sent itself, which is no stranger."""
    journey = service.seed_journey(status="draft")
    service.script("journeys.update", "hang")
    async with client_of(service) as first:
        lost = first.journeys.update(journey.id, name="k1").keyed("k1")
        await shelve_one(service, first, path, lost, "journeys.update")
    service.clock.offset += 60
    async with client_of(service) as client:
        await client.journeys.update(journey.id, name="newer")
        [again] = await run_all(path, client)
    assert again.verdict is Verdict.UNKNOWN
    assert "later write of this program" in again.message
    assert done_by(service) == ["newer"]


async def test_write_that_the_journal_of_its_client_has_too(service, tmp_path, path):
    """Once its batch has sent it, that journal says no more of it: it would not know what came after."""
    hook = service.seed_webhook(description="before")
    service.script("webhooks.update", "hang")
    own = tmp_path / "journal.db"
    async with client_of(service, journal=own) as client:
        lost = client.webhooks.update(hook.id, description="k1").keyed("k1")
        await shelve_one(service, client, path, lost, "webhooks.update")
        [intent] = client.unsettled
        with pytest.raises(ConfigurationError, match=r"webhooks\.update: "):
            await client.resume(intent)
        running = asyncio.create_task(client.settle(intent))
        service.script("webhooks.get", "403", "403")
        assert (await running).verdict is Verdict.UNKNOWN
        async with Batch.open(path, client) as batch:
            while (await all_of(batch))[-1].verdict is not Verdict.APPLIED:
                await batch.retry(verdict=Verdict.UNKNOWN)
        await client.webhooks.update(hook.id, description="before")
    async with client_of(service, journal=own) as client:
        assert await client.recover() == []
