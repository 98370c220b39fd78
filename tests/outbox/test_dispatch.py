"""Sending what is committed: in several processes, through kills, stops, restarts and deployments."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from urllib.parse import urlsplit

import attrs
import pytest

from invsvc_async import (
    ApiKey,
    ConfigurationError,
    JournalError,
    Outbox,
    ReconcilePolicy,
    Timeouts,
    Verdict,
)
from invsvc_async.batch import lane_reader
from invsvc_async.batch.dispatcher import Dispatcher
from invsvc_async.batch.entries import workers_of
from invsvc_async.batch.notices import BEAT
from invsvc_async.client import options_of
from invsvc_async.durable.entries import owner_of_lane
from invsvc_async.durable.entry import Entry, State
from invsvc_async.durable.leases import Leases
from invsvc_async.durable.results import Consumer
from invsvc_async.outbox import dispatch
from tests.batch.conftest import HOOK, POLICY, client_of
from tests.durable.test_sharing import said
from tests.durable.writing import cut_off
from tests.outbox.conftest import (
    changes,
    ended,
    enqueue,
    entries_of,
    update,
    verdict_of,
    verdicts_of,
    written,
)
from tests.soak.outboxes import run
from tests.support.database import failing_at_cancellation
from tests.support.database_proxy import database_proxy
from tests.support.gate import PATIENT, gate
from tests.support.inside import outbox_entries, store_beneath
from tests.support.waiting import until, until_no

LANES = 64
DEAD_OWNER = "UPDATE {s}lanes SET owner = 'another.1'"


@pytest.mark.untraced
async def test_processes_killed_and_stopped_under_faults():
    """Of three processes one is killed or stopped again and again: the tables and the ledger agree."""
    survived = await run(60, 3, 5, every=0.3)
    assert survived.wrong == []
    assert survived.kills + survived.stops > 0
    assert survived.verdicts.get(Verdict.UNKNOWN, 0) <= 4


async def test_lane_that_comes_back_from_another_dispatcher(
    service, address, queued, monkeypatch
):
    """What that one has left in doubt since is waited for, although this one knew of the thing before."""
    policy = ReconcilePolicy(settle_after_loss=4.0, clock_slack=0.0, clock_band=0.0)
    async with (
        client_of(service, reconcile=policy) as client,
        client_of(service, reconcile=policy) as its,
        Outbox.open(address, client) as outbox,
        Outbox.open(address, its) as second,
        outbox.dispatching(),
    ):
        [key] = await enqueue(outbox, client.sheets.save_mapping({"n": "known"}))
        await verdict_of(outbox, key)
        first = queued.dispatchers[-1]
        number = (await outbox_entries(outbox).entry(key)).lane
        share = first._share  # reaches: below
        divide = share.divide
        # reaches: a busy one does not look at once which lanes another one has released
        monkeypatch.setattr(share, "divide", not_now)
        await first.leases.give_up([first.leases.lanes[number]])
        # reaches: as it does for each lane that it gives up
        first._places.forget(number)
        async with second.dispatching():
            service.script("sheets.save_mapping", "late 2, then reset")
            [key] = await enqueue(second, its.sheets.save_mapping({"n": "older"}))
            assert (await verdict_of(outbox, key)).verdict is Verdict.UNKNOWN
            assert queued.dispatchers[-1] is not first
        # reaches: see above
        monkeypatch.setattr(share, "divide", divide)
        await store_beneath(outbox).notify(BEAT)
        [key] = await enqueue(outbox, client.sheets.save_mapping({"n": "newer"}))
        assert (await verdict_of(outbox, key)).applied
        assert queued.dispatchers[-1] is first
    sent = [each.body["fields"]["n"] for each in service.ledger.effects()]
    assert sent == ["known", "older", "newer"]


async def not_now(**_):
    """Divide no lanes."""


async def test_two_dispatchers_keep_the_order(service, client, outbox, address):
    """Two that share the lanes send the writes of each thing in their order, and each once."""
    hooks = [service.seed_webhook().id for _ in range(8)]
    async with (
        client_of(service) as other,
        Outbox.open(address, other) as second,
        outbox.dispatching(),
        second.dispatching(),
    ):
        for number in range(12):
            keys = await enqueue(
                outbox,
                *(update(client, service, f"{number:02}", hook) for hook in hooks),
            )
        await verdicts_of(outbox, keys)
    for hook in hooks:
        assert written(service.ledger.entries, hook) == [
            f"{number:02}" for number in range(12)
        ]


async def test_lane_lost_and_acquired_again(service, address):
    """What is committed then is not sent before older writes to its thing that are still under way."""
    hook, texts = service.seed_webhook().id, ("first", "second", "third")
    service.script("webhooks.update", "slow 1.0")
    async with (
        client_of(service, timeout=Timeouts(attempt=2.0)) as client,
        Outbox.open(address, client) as outbox,
        outbox.dispatching(),
    ):
        *earlier, third = changes(client, hook, *texts)
        keys = await enqueue(outbox, *earlier)
        await service.arrived("webhooks.update")
        await store_beneath(outbox).rows(DEAD_OWNER)
        await until_no(
            lambda: store_beneath(outbox).rows(
                "SELECT 1 FROM {s}lanes WHERE owner = 'another.1'"
            )
        )
        keys += await enqueue(outbox, third)
        assert await verdicts_of(outbox, keys) == [Verdict.APPLIED] * 3
    assert written(service.ledger.effects()) == list(texts)


async def test_lane_lost_beside_an_unsettled_write_of_the_same_key(service, address):
    """Another process settles the write of the outbox, not the single one of this client under the same key."""
    mine, other = service.seed_webhook().id, service.seed_webhook().id
    async with (
        client_of(service, timeout=Timeouts(attempt=2.0)) as client,
        Outbox.open(address, client) as outbox,
    ):
        service.script("webhooks.update", "hang", "slow 1.0")
        await cut_off(service, client.webhooks.update(mine, description="single"))
        before = [intent.identity for intent in client.unsettled]
        async with outbox.dispatching():
            write = client.webhooks.update(other, description="of the outbox").keyed(
                "order-17"
            )
            [key] = await enqueue(outbox, write)
            await service.arrived("webhooks.update", 2)
            await store_beneath(outbox).rows(DEAD_OWNER)
            assert (await verdict_of(outbox, key)).verdict is Verdict.APPLIED
        assert (len(before), [intent.identity for intent in client.unsettled]) == (
            1,
            before,
        )


async def test_process_that_sends_says_who_it_is(service, client, outbox):
    """Commands show, beside a write that waits, which host and process has it, and what it has done."""
    service.script("webhooks.update", "pass", "slow 2.0")

    async def shown():
        [worker] = await workers_of(outbox_entries(outbox))
        return worker if worker.done else None

    async with outbox.dispatching():
        await ended(outbox, update(client, service))
        [key] = await enqueue(outbox, update(client, service))
        worker = await until(shown)
        entries = outbox_entries(outbox)
        owner = await owner_of_lane(entries.store, (await entries.entry(key)).lane)
    assert (owner.host, owner.pid, owner.alive) == (
        socket.gethostname(),
        os.getpid(),
        True,
    )
    assert (worker.host, worker.pid, worker.lanes) == (
        socket.gethostname(),
        os.getpid(),
        LANES,
    )
    assert worker.rate > 0


async def test_write_for_another_team(service, client, address):
    """A client that acts on one team sends what was enqueued for another."""
    teams = service.teams
    async with (
        client_of(service, team=teams[0]) as mine,
        Outbox.open(address, mine) as outbox,
    ):
        hook = service.seed_webhook(team=teams[1]).id
        async with outbox.dispatching():
            assert await ended(
                outbox, *changes(mine.for_team(teams[1]), hook, "x")
            ) == [Verdict.APPLIED]


async def test_callback_outlives_a_database_that_fails(
    service, client, outbox, monkeypatch, caplog
):
    """If the verdicts cannot be read for a while, that is logged, and they are given later."""
    given, take, failures = asyncio.Event(), Consumer.take, iter([True])

    async def failing(*arguments):
        if next(failures, False):
            raise JournalError("it is away")
        return await take(*arguments)

    monkeypatch.setattr(Consumer, "take", failing)
    with caplog.at_level(logging.CRITICAL, "invsvc_async.outbox"):
        async with (
            outbox.dispatching(on_result=lambda _: given.set()),
            asyncio.timeout(300),
        ):
            await enqueue(outbox, update(client, service, "x"))
            await given.wait()


async def test_new_credential(service, client, outbox, address):
    """It has an outbox of its own. With ``same_mode`` a rotated key sends what the old one has left."""
    keys = await enqueue(outbox, update(client, service, "left"))
    async with (
        client_of(service, credential=ApiKey(service.issue_key())) as rotated,
        Outbox.open(address, rotated, same_mode=True) as continued,
        continued.dispatching(),
    ):
        assert await verdicts_of(continued, keys) == [Verdict.APPLIED]
    await enqueue(outbox, update(client, service, "not sent"))
    async with (
        client_of(service, credential=ApiKey(service.issue_key())) as another,
        Outbox.open(address, another) as other,
        other.dispatching(),
    ):
        await ended(other, update(another, service, "theirs").keyed("two"))
        assert [entry.key for entry in await entries_of(other)] == ["two"]
    assert written(service.ledger.entries) == ["left", "theirs"]


async def test_new_credential_where_several_have_an_outbox(
    service, client, outbox, connection, address
):
    """Which one it continues is not guessed: the writes of another team or mode would be sent with it."""
    [key] = await enqueue(outbox, update(client, service, "x"))
    async with (
        client_of(service, credential=ApiKey(service.test_key)) as test_mode,
        Outbox.open(address, test_mode) as other,
    ):
        await enqueue(other, test_mode.webhooks.create(**HOOK))
    async with client_of(service, credential=ApiKey(service.issue_key())) as rotated:
        with pytest.raises(JournalError, match="same_mode") as caught:
            async with (
                Outbox.open(address, rotated, same_mode=True) as continued,
                continued.dispatching(),
            ):
                await asyncio.sleep(0.3)  # sleeps: in which it would send
        assert service.ledger.effects("webhooks.create") == []
        schema = store_beneath(outbox).schema
        assert schema in str(caught.value)
        [advice] = re.findall("run: (INSERT INTO .*)", str(caught.value))
        await connection.execute(advice.replace("SCHEMA", schema))
        async with (
            Outbox.open(address, rotated, same_mode=True) as continued,
            continued.dispatching(),
        ):
            assert (await verdict_of(continued, key)).verdict is Verdict.APPLIED


async def test_reader_with_another_credential(service, client, outbox, address):
    """With ``same_mode`` it reads what there is; that says nothing of a sender without."""
    await enqueue(outbox, update(client, service, "left"))
    async with client_of(service, credential=ApiKey(service.issue_key())) as another:
        async with Outbox.open(address, another, same_mode=True, reading=True) as read:
            assert len(await entries_of(read)) == 1
        async with Outbox.open(address, another) as other:
            assert store_beneath(other).schema != store_beneath(outbox).schema


async def test_reader_that_may_not_write(service, client, outbox, address, connection):
    """A role that may only select reads an outbox; so it can be read on a standby."""
    await enqueue(outbox, update(client, service, "left"))
    schema, role = store_beneath(outbox).schema, f"r{abs(hash(address))}"
    await connection.execute(
        f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role}; "
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}"
    )
    user = urlsplit(address).username
    try:
        place = re.sub(f"//{user}:?@", f"//{role}@", address)
        async with Outbox.open(place, client, reading=True) as read:
            assert len(await entries_of(read)) == 1
    finally:
        await connection.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


async def test_absent_write_is_sent_until_it_is_applied(service, client, outbox):
    """A write that the service keeps failing without an effect is sent again, and holds back the next to its thing."""
    hook = service.seed_webhook().id
    service.script("webhooks.update", *["500"] * 3)
    async with outbox.dispatching():
        assert (
            await ended(outbox, *changes(client, hook, "first", "second"))
            == [Verdict.APPLIED] * 2
        )
    effects = written(service.ledger.effects("webhooks.update"))
    assert (effects, service.arrivals("webhooks.update")) == (["first", "second"], 5)


@pytest.mark.parametrize("policy", [{"resend": "never"}, {"max_resends": 0}])
async def test_absent_write_that_must_not_be_sent_again(
    service, client, outbox, policy
):
    """The policy of a write counts: it is then NOT_APPLIED after its only send."""
    service.script("webhooks.update", "500", "500")
    async with outbox.dispatching():
        assert await ended(outbox, update(client, service).with_policy(**policy)) == [
            Verdict.NOT_APPLIED
        ]
    assert service.arrivals("webhooks.update") == 1


@pytest.mark.parametrize("was_sent", [False, True])
async def test_process_with_longer_windows(service, address, was_sent):
    """They count for what it sends: it does not send beside what it sent itself, and lands within them."""
    short = attrs.evolve(POLICY, settle_after_loss=0.3)
    long = attrs.evolve(POLICY, settle_after_loss=2.5)
    soon = Timeouts(attempt=2.0)
    async with (
        client_of(service, reconcile=short, timeout=soon) as client,
        Outbox.open(address, client) as outbox,
    ):
        hook = service.seed_webhook(description="before").id
        [key] = await enqueue(outbox, *changes(client, hook, "after"))
        if was_sent:
            service.script("webhooks.update", "hang")
            async with outbox.dispatching(grace=0.0):
                await service.arrived("webhooks.update")
    service.script("webhooks.update", "late 1.5, then reset")
    async with (
        client_of(service, reconcile=long, timeout=soon) as client,
        Outbox.open(address, client) as outbox,
        outbox.dispatching(),
    ):
        assert (await verdict_of(outbox, key)).verdict is Verdict.APPLIED
    assert service.arrivals("webhooks.update") == 1 + was_sent
    await asyncio.sleep(1.6)  # sleeps: until nothing can land any more
    assert written(service.ledger.effects("webhooks.update")) == ["after"]


async def test_write_that_always_fails_without_an_effect(
    service, client, outbox, monkeypatch
):
    """It is given up after a number of rounds, and its verdict is NOT_APPLIED; others are sent."""
    monkeypatch.setattr(dispatch, "MOST_ROUNDS", 1)
    hook = service.seed_webhook().id
    service.script("webhooks.update", "500", "500")
    async with outbox.dispatching():
        verdicts = await ended(outbox, *changes(client, hook, "spoilt", "next"))
    assert verdicts == [Verdict.NOT_APPLIED, Verdict.APPLIED]
    assert written(service.ledger.effects()) == ["next"]


async def test_newer_write_in_flight_beyond_those_fetched_first(
    service, client, outbox, monkeypatch
):
    """A write that is done again is overtaken by what an earlier run has sent, however many are between them."""
    monkeypatch.setattr(lane_reader, "_AT_ONCE", 2)
    hook, others = (
        service.seed_webhook().id,
        [service.seed_webhook().id for _ in range(3)],
    )
    service.script("webhooks.update", "403", *["apply, then hang"] * 4)
    async with outbox.dispatching(grace=0.0):
        first, last = changes(client, hook, "old", "new")
        [old] = await enqueue(outbox, first)
        assert (await verdict_of(outbox, old)).verdict is Verdict.REFUSED
        *_, new = await enqueue(
            outbox, *(update(client, service, hook=other) for other in others), last
        )
        await service.arrived("webhooks.update", 5)
    assert await outbox.get(new) is None
    await outbox.retry(old)
    async with outbox.dispatching():
        assert await verdicts_of(outbox, [old, new]) == [
            Verdict.NOT_APPLIED,
            Verdict.APPLIED,
        ]
    assert written(service.ledger.effects(), hook) == ["new"]


@pytest.mark.silence(1)
async def test_process_with_a_longer_silence(client, outbox, address):
    """What it may rely on to send is not taken over by one with a shorter silence before its own is over."""
    async with Outbox.open(
        address.replace("silence=1", "silence=60"), client
    ) as patient:
        clock = options_of(client).core.clock
        one, other = (Leases(store_beneath(each), clock) for each in (patient, outbox))
        await one.beat()
        assert len(await one.take(LANES)) == LANES
        text = "UPDATE {s}members SET seen = seen - $2 WHERE name = $1"
        for seconds, many in ((50.0, 0), (20.0, LANES)):
            await store_beneath(outbox).rows(text, one.name, seconds)
            assert len(await other.take(LANES)) == many


@pytest.mark.parametrize(("asked_with", "is_alive"), [(2, False), (60, True)])
async def test_owner_that_is_quiet(client, outbox, address, asked_with, is_alive):
    """People are told by the same rule: the longer silence counts, of the owner or of the process that asks."""
    patient = address.replace("silence=60", f"silence={asked_with}")
    owner = Leases(store_beneath(outbox), options_of(client).core.clock)
    await owner.beat(said("host", 7, 1.5, 1))
    [lane] = await owner.take(1)
    text = "UPDATE {s}members SET seen = seen - 30, silence = 2 WHERE name = $1"
    await store_beneath(outbox).rows(text, owner.name)
    async with Outbox.open(patient, client) as other:
        found = await owner_of_lane(outbox_entries(other).store, lane.number)
    assert found.alive is is_alive


class Queued(list):
    """The keys of the writes that were queued, and the dispatcher of each."""

    def __init__(self):
        super().__init__()
        self.dispatchers = []


@pytest.fixture
def queued(monkeypatch):
    """Return a list that gets the key of each write that a dispatcher has read, and queues; and that one."""
    add, keys = Dispatcher._add, Queued()  # reaches: see below

    def noted(dispatcher, item):
        add(dispatcher, item)
        keys.append(item.entry.key)
        keys.dispatchers.append(dispatcher)

    # reaches: nothing tells what a dispatcher has read
    monkeypatch.setattr(Dispatcher, "_add", noted)
    return keys


async def test_key_of_a_dropped_write_is_used_again(service, address, queued):
    """A dispatcher that has the dropped write in its queue sends the new one under its key, once."""
    hook, texts = service.seed_webhook().id, ["before", "wrong", "right", "last"]
    async with (
        client_of(service, timeout=PATIENT) as client,
        Outbox.open(address, client) as outbox,
        outbox.dispatching(),
    ):
        before, wrong, right, last = changes(client, hook, *texts)
        with gate(service, "webhooks.update"):
            await enqueue(outbox, before, wrong.keyed("k"))
            await service.arrived("webhooks.update")
            await until(lambda: queued.count("k") >= 1)
            assert await outbox.drop("k")
            await enqueue(outbox, right.keyed("k"))
            await until(lambda: queued.count("k") >= 2)
        assert (await verdict_of(outbox, "k")).verdict is Verdict.APPLIED
        assert await ended(outbox, last) == [Verdict.APPLIED]
    assert written(service.ledger.entries) == ["before", "right", "last"]


async def test_key_of_a_dropped_create_is_used_again(
    service, address, queued, monkeypatch
):
    """The same for writes that wait for no other: those under both numbers start together, and one is sent."""
    # reaches: the list is not read beside those that are held
    monkeypatch.setattr("invsvc_async.writes.hanging.LEAST", 3600.0)
    async with (
        client_of(service, timeout=PATIENT) as client,
        Outbox.open(address, client, concurrency=4) as outbox,
        outbox.dispatching(),
    ):
        creates = [
            client.webhooks.create(**{**HOOK, "url": f"https://{at}.example"})
            for at in range(6)
        ]
        before, (wrong, right) = creates[:4], [each.keyed("k") for each in creates[4:]]
        with gate(service, "webhooks.create", many=4):
            await enqueue(outbox, *before, wrong)
            await service.arrived("webhooks.create", 4)
            await until(lambda: queued.count("k") >= 1)
            assert await outbox.drop("k")
            await enqueue(outbox, right)
            await until(lambda: queued.count("k") >= 2)
        assert (await verdict_of(outbox, "k")).verdict is Verdict.APPLIED
        # before the first write: none is settled
        assert service.arrivals("webhooks.list") == 1
    sent = [entry.body["url"] for entry in service.ledger.entries]
    assert sorted(sent) == [f"https://{at}.example" for at in (0, 1, 2, 3, 5)]


async def test_dispatching_twice_is_refused(outbox):
    """One outbox dispatches once."""
    async with outbox.dispatching():
        with pytest.raises(ConfigurationError, match="does so already"):
            async with outbox.dispatching():
                pass


@pytest.mark.parametrize("place", ["feed", "beat"])
async def test_dispatching_that_ends_as_its_database_fails(outbox, monkeypatch, place):
    """It ends, also if the database's error takes the place of the cancellation."""
    begun, failing = failing_at_cancellation()
    monkeypatch.setattr(Leases if place == "beat" else Dispatcher, place, failing)

    async def dispatch():
        async with outbox.dispatching(grace=0):
            await begun.wait()

    done, _ = await asyncio.wait([asyncio.create_task(dispatch())], timeout=300)
    assert done


async def test_idle_dispatcher_whose_sign_of_life_is_refused(
    service, client, outbox, caplog
):
    """The log says that nothing is sent, and why, though there is nothing to send. It goes on by itself."""
    with caplog.at_level(logging.ERROR, "invsvc_async.outbox"):
        async with outbox.dispatching(), asyncio.timeout(300):
            assert await ended(outbox, update(client, service)) == [Verdict.APPLIED]
            await store_beneath(outbox).rows("ALTER TABLE {s}members RENAME TO moved")
            await until(lambda: "nothing is sent" in caplog.text)
            assert "refused a statement" in caplog.text
            await store_beneath(outbox).rows("ALTER TABLE {s}moved RENAME TO members")
            assert await ended(outbox, update(client, service)) == [Verdict.APPLIED]


async def test_idle_dispatcher_whose_database_goes_away(service, client, caplog):
    """The log says so, and it goes on by itself once the database is back."""
    async with database_proxy() as proxy:
        address = proxy.journal("away").replace("batch=", "outbox=")
        async with (
            Outbox.open(address, client) as outbox,
            outbox.dispatching(),
            asyncio.timeout(300),
        ):
            # from now on it has its lanes, and nothing to read
            await ended(outbox, update(client, service))
            usual, store_beneath(outbox).patience = store_beneath(outbox).patience, 0.1
            proxy.cut()
            # whichever notices first: a sign of life, or a read
            await until(lambda: "nothing is sent" in caplog.text.lower())
            await proxy.open()
            store_beneath(outbox).patience = usual
            # after the end of a dispatching, all statements are brief for a while
            await until(lambda: store_beneath(outbox).wait_of(usual) == usual)
            assert await ended(outbox, update(client, service)) == [Verdict.APPLIED]


async def test_client_that_is_closed_too_early(service, address, caplog):
    """What is committed stays open, for the next process, and the log says why."""
    async with (
        client_of(service) as client,
        Outbox.open(address, client) as outbox,
        outbox.dispatching(),
    ):
        await client.aclose()
        keys = await enqueue(outbox, *(update(client, service, "x") for _ in range(3)))
        await until(lambda: "closed" in caplog.text)
        assert {entry.verdict for entry in await entries_of(outbox)} == {None}
    async with (
        client_of(service) as client,
        Outbox.open(address, client) as outbox,
        outbox.dispatching(),
    ):
        assert await verdicts_of(outbox, keys) == [Verdict.APPLIED] * 3


_ROWS_READ = """
SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = $1 AND relname = 'entries'
"""
_COPIES = """
INSERT INTO {s}entries (seq, place, key, lane, digest, state, operation, common, intent)
SELECT seq + n, seq + n, key || '-' || n, 1 + n % 64, digest, 0, operation, common, intent
FROM {s}entries, generate_series(1, $1::int) AS n
"""


@pytest.mark.slow
async def test_backlog_is_read_once(service, client, address, connection):
    """A fetch reads about what it returns, however much waits in each lane; nothing is sent twice or left out."""
    many, sent = 64 * 100, 400
    async with Outbox.open(address, client, concurrency=20) as outbox:
        [key] = await enqueue(outbox, client.webhooks.create(**HOOK))
        schema = store_beneath(outbox).schema
        await store_beneath(outbox).rows(_COPIES, many)
        await store_beneath(outbox).rows("ANALYZE {s}entries")
    before = await connection.fetchval(_ROWS_READ, schema)
    async with (
        Outbox.open(address, client, concurrency=20) as outbox,
        outbox.dispatching(),
    ):
        await verdict_of(outbox, key)
        await service.arrived("webhooks.create", sent)
    read = await connection.fetchval(_ROWS_READ, schema) - before
    done = await connection.fetchval(
        f"SELECT count(*) FROM {schema}.entries WHERE state = 2"
    )
    assert done == service.arrivals("webhooks.create")
    assert read < 40 * done


async def test_new_entries_while_older_ones_are_read(outbox, monkeypatch):
    """What lies between them is read, too."""
    run, calls = (
        Dispatcher(outbox._sending, outbox_entries(outbox), dispatch.OutboxItem),
        [],
    )
    run.leases.lanes[1] = None

    async def open_in(places, _held, each):
        calls.append(places)
        run.news.read_again([1], 900)
        first = places[1] + 1
        return [
            Entry(
                seq=seq,
                place=seq,
                key=str(seq),
                lane=1,
                state=State.TO_DO,
                operation="webhooks.create",
            )
            for seq in range(first, first + each)
        ]

    monkeypatch.setattr(store_beneath(outbox), "open_in", open_in)
    for _ in range(2):
        await run._reader.read([1])
    assert calls == [{1: 0}, {1: lane_reader._AT_ONCE}]


async def test_commit_below_what_was_read(service, client, address, connection):
    """A transaction that commits after those with higher numbers is found by its notification, not by a later poll."""
    slow = address.replace("silence=60", "silence=240")  # a poll each minute
    async with Outbox.open(slow, client) as outbox, outbox.dispatching():
        async with connection.transaction():
            late = await outbox.enqueue(connection, client.webhooks.create(**HOOK))
            await ended(outbox, *(client.webhooks.create(**HOOK) for _ in range(130)))
        assert (await verdict_of(outbox, late, 30)).verdict is Verdict.APPLIED
