"""The guards of the entries of keys, each alone: what one process believes, and another has changed meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from invsvc_async import JournalError, ReconcilePolicy, Timeouts, Verdict
from invsvc_async.durable import journal, key_claims, run_ends
from invsvc_async.durable.entries import JournalEntries
from invsvc_async.durable.entry import Entry, LostEntryError, State
from invsvc_async.durable.keyed_run import KeyedRun
from invsvc_async.durable.run_ends import RunEnds
from invsvc_async.durable.store import claims as in_store
from invsvc_async.durable.store.claims import Abandoned, Held, Taken, release
from invsvc_async.durable.store.conditions import ENDED, FREED, WaitsFor
from invsvc_async.durable.store.lanes import release_lanes
from invsvc_async.durable.store.order import (
    Turn,
    WritesBeside,
    ahead_of,
    unknown_beside,
)
from invsvc_async.durable.store.restored import mark_restored
from invsvc_async.durable.store.statements import key_sql
from invsvc_async.durable.store.states import Left
from invsvc_async.storage.postgres_pool import in_transaction
from tests.batch.conftest import client_of
from tests.durable.test_restored import SOON
from tests.durable.writing import create, cut_off, rename
from tests.support.database import database
from tests.support.gate import PATIENT, gate
from tests.support.inside import journal_of, store_beneath
from tests.support.waiting import cancel, until


@pytest.fixture
def shared(request):
    """Return the address of a shared journal, in which nobody counts as dead here."""
    return database().at(journal=f"c{abs(hash(request.node.nodeid))}", silence=600)


def claims_of(client):
    return journal_of(client).keys.claims


def runs_of(client):
    """Return the names of the keys that have runs now."""
    return journal_of(client).keys._runs._runs


def rows_of(client, text, *values):
    return store_beneath(client).rows(text, *values)


def move(client, found, lane):
    """Move an entry to another lane."""
    return rows_of(
        client, "UPDATE {s}entries SET lane = $2 WHERE seq = $1", found.entry.seq, lane
    )


@asynccontextmanager
async def two(service, address, **settings):
    """Make two clients with one journal, as if they were in two processes."""
    settings["journal"] = address
    async with (
        client_of(service, **settings) as one,
        client_of(service, **settings) as other,
    ):
        await create(one, "first", url="https://me.example/first")
        await create(other, "second", url="https://me.example/second")
        yield one, other


@asynccontextmanager
async def under_way(service, client, key="k"):
    """Send a write, which is not answered while the block runs; yield its entry as it is found."""
    before = service.arrivals("webhooks.create")
    service.script("webhooks.create", "apply, then hang")
    running = asyncio.create_task(create(client, key).outcome())
    await service.arrived("webhooks.create", before + 1)
    [name] = [each for each in runs_of(client) if each.endswith(f" {key}")]
    try:
        yield await claims_of(client).look(name)
    finally:
        await cancel(running)


async def owner(client, token, lane):
    """Set the owner of a lane, as another process would that takes it."""
    await rows_of(client, "UPDATE {s}lanes SET owner = $1 WHERE id = $2", token, lane)


async def test_entry_of_a_living_process_is_not_taken(service, shared):
    """Also if it was believed dead a moment before."""
    async with two(service, shared) as (one, other), under_way(service, one) as found:
        lane = await journal_of(other).life.own_lane()
        assert isinstance(found, Held)
        assert await claims_of(other).take(found.entry, lane) is None
        assert (
            await claims_of(other).look(found.entry.key)
        ).entry.lane == found.entry.lane


@pytest.mark.parametrize(("left", "is_gone"), [(FREED, False), (ENDED, True)])
async def test_entry_that_nobody_has_is_taken_once(service, shared, left, is_gone):
    """Of two that saw it there, one gets it; it knows whether the last sender is done with it."""
    async with two(service, shared) as (one, other), under_way(service, one) as found:
        await move(one, found, left)
        free = await claims_of(one).look(found.entry.key)
        assert free == Abandoned(free.entry, sent=True)
        lanes = [await journal_of(each).life.own_lane() for each in (one, other)]
        claims = [claims_of(each) for each in (one, other)]
        taken = [
            await claims[1].take(free.entry, lanes[1]),
            await claims[0].take(free.entry, lanes[0]),
        ]
        assert taken == [Taken(is_gone), None]
        # a try whose reply was lost
        assert await claims[1].take(free.entry, lanes[1]) == Taken(is_gone)


async def test_last_sender_that_fell_silent_is_not_gone(service, shared):
    """It may wake up with bytes on their way: whoever takes its entry waits out its windows."""
    async with two(service, shared) as (one, other), under_way(service, one) as found:
        await owner(other, "dead.1", found.entry.lane)
        claims = claims_of(other)
        silent = await claims.look(found.entry.key)
        assert silent == Abandoned(silent.entry, sent=True)
        taken = await claims.take(silent.entry, await journal_of(other).life.own_lane())
        assert taken == Taken(is_gone=False)


async def test_sender_that_fell_silent_is_not_gone_because_its_heir_is(service, shared):
    """The heir has provably ended, but a request of the process before it may still be on its way."""
    async with (
        two(service, shared) as (one, heir),
        client_of(service, journal=shared) as third,
        under_way(service, one) as found,
    ):
        await owner(heir, "dead.1", found.entry.lane)
        silent = await claims_of(heir).look(found.entry.key)
        lane = await journal_of(heir).life.own_lane()
        assert await claims_of(heir).take(silent.entry, lane) == Taken(is_gone=False)
        # as a worker of its machine does that sees that the heir was killed
        await release_lanes(store_beneath(heir), [lane.token])

        left = await claims_of(third).look(found.entry.key)
        assert left == Abandoned(left.entry, sent=True)
        lane = await journal_of(third).life.own_lane()
        assert await claims_of(third).take(left.entry, lane) == Taken(is_gone=False)


async def test_process_that_lost_its_lane_takes_and_claims_nothing(service, shared):
    """Another one took it for dead: what it does is rejected in the statement itself."""
    async with two(service, shared) as (one, other), under_way(service, one) as found:
        lane, claims = await journal_of(other).life.own_lane(), claims_of(other)
        await move(one, found, FREED)
        free = await claims.look(found.entry.key)
        await owner(one, "thief.1", lane.number)
        with pytest.raises(LostEntryError):
            await claims.take(free.entry, lane)
        sends = service.arrivals("webhooks.create")
        new = await create(other, "new", url="https://me.example/new").outcome()
        assert new.applied  # in a lane of its own
        assert service.arrivals("webhooks.create") == sends + 1
        rows = await rows_of(
            one, "SELECT key FROM {s}entries WHERE lane = $1", lane.number
        )
        assert not any(key.endswith(" new") for (key,) in rows)
        claims.ends.end_run(found.entry.key, lane)
        await claims.ends.until_stored(found.entry.key)
        await owner(one, lane.token, lane.number)


async def test_zombie_releases_nothing_that_another_has(service, shared):
    """Its lane has another owner, who has not moved the entry yet."""
    async with two(service, shared) as (one, other), under_way(service, one) as found:
        mine = await journal_of(one).life.own_lane()
        await owner(other, "thief.1", mine.number)
        claims_of(one).ends.end_run(found.entry.key, mine)
        await claims_of(one).ends.until_stored(found.entry.key)
        assert (await claims_of(other).look(found.entry.key)).entry.lane == mine.number
        await owner(other, mine.token, mine.number)


async def test_zombie_notes_no_body_for_what_another_has(service, shared):
    """Its lane has another owner, who has not moved the entry yet, and sends what the entry has."""
    async with two(service, shared) as (one, other), under_way(service, one) as found:
        mine = await journal_of(one).life.own_lane()
        await owner(other, "thief.1", mine.number)
        await rows_of(other, f"UPDATE {{s}}entries SET state = {State.TO_DO:d}")
        anew = replace(found.entry, digest="another body")
        with pytest.raises(LostEntryError):
            await in_store.note_anew(store_beneath(one), anew, mine, is_moved=False)
        seen = await claims_of(other).look(found.entry.key)
        assert seen.entry.digest == found.entry.digest
        await owner(other, mine.token, mine.number)


async def test_what_may_have_been_sent_is_not_noted_as_another_write(service, shared):
    """Nor is a write under a key that was forgotten: nothing is sent for it."""
    async with two(service, shared) as (one, other), under_way(service, one) as found:
        store = store_beneath(one)
        mine = await journal_of(one).life.own_lane()
        anew = replace(found.entry, digest="another body", thing="/webhooks/wh_1")
        with pytest.raises(LostEntryError):
            await in_store.note_anew(store, anew, mine, is_moved=True)
        assert (await claims_of(other).look(found.entry.key)).entry == found.entry
        with pytest.raises(LostEntryError):
            await in_store.note_anew(store, replace(anew, seq=0), mine, is_moved=True)


async def test_verdict_is_reopened_once(service, shared):
    """Of two runs that saw a refusal, one does it anew; a verdict that came since is not touched."""
    service.script("journeys.update", "400")
    async with two(service, shared) as (one, other):
        assert (await rename(one, "x", "k").outcome()).verdict is Verdict.REFUSED
        claims = claims_of(one)
        [(name,)] = await rows_of(
            one, "SELECT key FROM {s}entries WHERE key LIKE '% k'"
        )
        seen = await claims.look(name)
        lanes = [await journal_of(each).life.own_lane() for each in (one, other)]
        assert await claims.reopen(seen.entry, State.TO_DO, lanes[0])
        assert not await claims.reopen(seen.entry, State.TO_DO, lanes[1])
        claims.ends.end_run(name, lanes[0])
        await claims.ends.until_stored(name)
        assert (await rename(other, "x", "k").outcome()).applied
        assert not await claims.reopen(seen.entry, State.TO_DO, lanes[0])
    assert len(service.ledger.effects("journeys.update")) == 1


async def test_write_that_may_have_been_sent_is_not_forgotten(service, shared):
    """Its key would be free for a second send."""
    async with two(service, shared) as (one, other):
        async with under_way(service, one):
            with pytest.raises(
                JournalError, match=r"no verdict, because it is being done"
            ):
                await other.forget("k")
        assert (await create(other).outcome()).applied
        assert await other.forget("k")


async def test_write_that_was_cancelled_is_taken_by_another_process_at_once(
    service, shared
):
    """Its own lives on, for longer than this test: it has released the write."""
    async with two(service, shared) as (one, other):
        async with under_way(service, one):
            pass
        async with asyncio.timeout(300):
            outcome = await create(other).outcome()
    assert (outcome.verdict, outcome.secret) == (Verdict.APPLIED, "lost")
    assert len(service.ledger.effects("webhooks.create")) == 3


async def test_waiter_returns_a_refusal_and_does_not_send(service, shared):
    """The verdict for which another process has waited is its own, whatever it is."""
    async with two(service, shared, timeout=PATIENT) as (one, other):
        writes = [
            each.journeys.update("jrn_none", name="x").keyed("k")
            for each in (one, other)
        ]
        with gate(service, "journeys.update"):
            running = asyncio.create_task(writes[0].outcome())
            await service.arrived("journeys.update")
            waiting = asyncio.create_task(writes[1].outcome())
            await until(lambda: bool(claims_of(other).waits._waiting))
        first, second = await running, await waiting
    assert (first.verdict, second.verdict, second.replayed) == (
        Verdict.REFUSED,
        Verdict.REFUSED,
        True,
    )
    assert service.arrivals("journeys.update") == 1


async def test_superseded_write_is_not_done_again(service, shared):
    """Somebody else has changed the journey since: to send it again would undo that."""
    service.script("journeys.update", "apply, then hang")
    async with two(service, shared) as (one, other), client_of(service) as stranger:
        await one.journeys.get("jrn_1")
        running = asyncio.create_task(rename(one, "ours", "k").outcome())
        await service.arrived("journeys.update")
        await asyncio.sleep(0.5)  # sleeps: server times beyond the slack
        await stranger.journeys.update("jrn_1", name="theirs")
        await cancel(running)
        settled = await rename(other, "ours", "k").outcome()
        again = await rename(one, "ours", "k").outcome()
        assert (await one.journeys.get("jrn_1")).name == "theirs"
    assert settled.verdict is Verdict.SUPERSEDED
    assert (again.verdict, again.replayed) == (Verdict.SUPERSEDED, True)
    assert service.arrivals("journeys.update") == 2


async def test_a_thousand_racers_take_few_statements_and_connections(service, shared):
    """One sends; the others of its process share its run, and those of another one wait for a notification."""
    async with two(service, shared) as (one, other):
        service.script("webhooks.create", "slow 2")
        statements = 0
        for client in (one, other):
            store = store_beneath(client)
            fetch = store.fetch

            async def counted(*asked, fetch=fetch):
                nonlocal statements
                statements += 1
                return await fetch(*asked)

            store.fetch = counted
        racing = asyncio.gather(
            *(create(client).outcome() for client in (one, other) for _ in range(500))
        )
        waits = [claims_of(client).waits for client in (one, other)]
        await until(lambda: any(each._waiting for each in waits) or racing.done())
        has_waited = any(each._waiting for each in waits)
        outcomes = await racing
        connections = [
            store_beneath(client)._pool.get_size() for client in (one, other)
        ]
    assert {outcome.verdict for outcome in outcomes} == {Verdict.APPLIED}
    assert sum(not outcome.replayed for outcome in outcomes) == 1
    assert {outcome.secret for outcome in outcomes} == {"returned", "not stored"}
    assert service.arrivals("webhooks.create") == 3
    assert has_waited
    assert statements < 40, statements
    assert max(connections) <= 6


class Claimant:
    """A run of *client* that claims *name*, for a write to one thing."""

    secret_by = None
    thing = "/journeys/jrn_1"
    note_claimed = KeyedRun.note_claimed

    def __init__(self, client, name):
        self.client, self.name, self.seq, self.is_next = client, name, 0, True
        self.place = 0
        self.passed = []
        self.intent = "{}"

    async def claim(self):
        """Claim the key as of a write that is being sent; return whether it is next, and what is stored."""
        self.lane = await journal_of(self.client).life.own_lane()
        await journal_of(self.client).keys.claims.claim(self, self.entry(State.SENDING))
        [entry] = await store_beneath(self.client).entries("e.seq = $1", self.seq)
        assert entry.state is (State.SENDING if self.is_next else State.TO_DO)
        return bool(self.is_next)

    def entry(self, state, **done):
        return Entry(
            seq=self.seq, place=self.place, key=self.name, state=state, thing=self.thing, digest="{}",
            intent=self.intent, operation="journeys.update", **done,
        )  # fmt: skip

    async def begin(self, waits_for=WaitsFor.EARLIER):
        """Look at the other writes, and try to begin its send; return what came of it."""
        await self.look(waits_for)
        return await self.begin_as_found()

    async def look(self, waits_for=WaitsFor.EARLIER):
        """Find the other writes to its thing."""
        self.waits_for, store = waits_for, store_beneath(self.client)
        ahead = await ahead_of(
            store, self.thing, self.place, 0, self.seq, self.waits_for
        )
        unknown = await unknown_beside(store, self.thing, self.seq)
        self.beside = WritesBeside(ahead.last, unknown, self.passed)

    async def begin_as_found(self):
        """Try to begin its send, by what it has found; return what came of it."""
        return await journal_of(self.client).keys.claims.begin(
            self, self.entry(State.SENDING)
        )

    async def reopen(self, state):
        """Open its entry again, which is done."""
        store = store_beneath(self.client)
        [seen] = await store.entries("e.seq = $1", self.seq)
        claims = journal_of(self.client).keys.claims
        assert await claims.reopen(seen, state, self.lane)

    async def go_to(self, thing):
        """Do it anew, to another thing."""
        await self.reopen(State.TO_DO)
        self.thing = thing
        self.place = await journal_of(self.client).keys.claims.note_anew(
            self, self.entry(State.TO_DO), is_moved=True
        )

    async def move(self, lane):
        """Move its entry to another lane."""
        text = "UPDATE {s}entries SET lane = $2 WHERE seq = $1"
        await rows_of(self.client, text, self.seq, lane)

    async def end(self, verdict, at=1):
        """Store its verdict, of the time *at* (ms), and what it left."""
        left = (
            Left(self.thing, None, "{}", 1)
            if verdict in ("applied", "unknown")
            else None
        )
        await self.lane.put(
            self.entry(State.DONE, verdict=verdict, outcome="{}", done_at=at), left
        )


@asynccontextmanager
async def order(service, address):
    """Yield what claims a key in a journal, all of them for the same thing."""
    async with client_of(service, journal=address) as client:
        yield lambda name: Claimant(client, name)


async def test_write_is_next_after_those_that_its_process_has_applied(service, address):
    """Then it is stored as one that is being sent, at once."""
    async with order(service, address) as claimant:
        for name in "abc":
            run = claimant(name)
            assert await run.claim()
            await run.end("applied")


@pytest.mark.parametrize("verdict", ["unknown", None])
async def test_write_is_not_next_in_order_after_one_in_doubt(service, address, verdict):
    """Nor while that one is open: it may take effect later, or not be known here."""
    async with order(service, address) as claimant:
        first, second = claimant("a"), claimant("b")
        assert await first.claim()
        if verdict is not None:
            await first.end(verdict)
        assert not await second.claim()


async def test_order_of_claims_at_once(service, address):
    """Of several that are claimed together, the first one is next."""
    async with order(service, address) as claimant:
        runs = [claimant(name) for name in "abcde"]
        assert [
            await each for each in [asyncio.create_task(run.claim()) for run in runs]
        ] == [True] + 4 * [False]
        assert [run.seq for run in runs] == sorted(run.seq for run in runs)


async def test_order_after_a_write_of_another_process(service, shared):
    """What it left is not known here; nor is what follows a refusal, which may be done anew."""
    async with order(service, shared) as claimant, order(service, shared) as of_another:
        first = of_another("a")
        assert await first.claim()
        await first.end("applied")
        second = claimant("b")
        assert not await second.claim()
        await second.end("refused")
        third = claimant("c")
        assert not await third.claim()
        await third.end("applied")
        assert await claimant("d").claim()


async def test_order_after_a_write_that_was_made_the_newest(service, shared):
    """It is open again, and comes after those that were applied since."""
    async with order(service, shared) as claimant:
        first, second = claimant("a"), claimant("b")
        await first.claim()
        await first.end("refused")
        await second.claim()
        await second.end("applied")
        store = store_beneath(first.client)
        script = partial(JournalEntries._reopen, ["a"], ["refused"], {}, at_end=True)
        assert [each.key for each in await store.run(script)] == ["a"]
        assert not await claimant("c").claim()


class Paused:
    """A connection that waits before its first statement with *mark*; ``reached`` is set then."""

    def __init__(self, connection, mark):
        self._connection, self._mark = connection, mark
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._connection, name)

    async def fetch(self, text, *values):
        if self._mark in text:
            self.reached.set()
            await self.go_on.wait()
        return await self._connection.fetch(text, *values)


async def test_claim_amid_a_retry_as_the_newest(service, shared):
    """It is next only if its place is before that of the write that is reopened."""
    async with order(service, shared) as claimant:
        first, second, third = claimant("a"), claimant("b"), claimant("c")
        await first.claim()
        await first.end("refused")
        await second.claim()
        await second.end("applied")
        store = store_beneath(first.client)
        reopening = JournalEntries._reopen(["a"], ["refused"], {}, at_end=True)
        async with asyncio.timeout(60), store.lent() as connection:
            paused = Paused(connection, "newest = NULL")
            running = asyncio.create_task(
                in_transaction(
                    connection, lambda _: store._dialect.run(paused, reopening)
                )
            )
            await paused.reached.wait()
            assert await third.claim()
            paused.go_on.set()
            await running
        rows = await rows_of(
            first.client,
            "SELECT seq FROM {s}entries WHERE key {any 1 text} ORDER BY place",
            ["a", "b", "c"],
        )
        assert [seq for (seq,) in rows] == [second.seq, third.seq, first.seq]


OTHER = "/journeys/jrn_2"


async def refused_elsewhere(claimant, name):
    """Return a run whose write to another thing was refused."""
    run = claimant(name)
    run.thing = OTHER
    assert await run.claim()
    await run.end("refused")
    return run


async def test_write_that_is_done_anew_to_another_thing_comes_last(service, address):
    """Those that are there may be sent already; and newer ones have not overtaken what was never before them."""
    async with order(service, address) as claimant:
        first = await refused_elsewhere(claimant, "a")
        second, third = claimant("b"), claimant("c")
        assert await second.claim()
        await second.end("applied")
        assert await third.claim()
        await first.go_to(third.thing)
        assert await first.begin() is Turn.WAITS
        await third.end("applied")
        fourth = claimant("d")
        assert not await fourth.claim()
        assert await fourth.begin() is Turn.WAITS
        assert await first.begin() is Turn.BEGUN
        await first.end("applied")
        assert await fourth.begin() is Turn.BEGUN


async def test_write_that_is_done_anew_to_a_thing_of_which_nothing_is_known(
    service, address
):
    """The first claim for that thing waits for it."""
    async with order(service, address) as claimant:
        first, second = await refused_elsewhere(claimant, "a"), claimant("b")
        await first.go_to(second.thing)
        assert not await second.claim()
        assert await second.begin() is Turn.WAITS
        assert await first.begin() is Turn.BEGUN


async def test_thing_that_a_write_has_left(service, address):
    """That it was applied to another thing says nothing of the one before."""
    async with order(service, address) as claimant:
        first, second = claimant("a"), claimant("b")
        assert await first.claim()
        await first.end("unknown")
        await first.reopen(State.SENDING)
        await first.end("not applied")
        await first.go_to(OTHER)
        assert await first.begin() is Turn.BEGUN
        await first.end("applied")
        assert not await second.claim()
        assert await second.begin() is Turn.BEGUN


async def test_claim_amid_a_write_that_is_done_anew_to_its_thing(service, shared):
    """It is next only if its place is before that of the other one, which then waits for it."""
    async with order(service, shared) as claimant:
        first = await refused_elsewhere(claimant, "a")
        second, third = claimant("b"), claimant("c")
        assert await second.claim()
        await second.end("applied")
        await first.reopen(State.TO_DO)
        first.thing = third.thing
        store = store_beneath(first.client)
        noting = in_store._note_anew(  # reaches: a script, to be held amid it
            first.entry(State.TO_DO), first.lane, [], is_moved=True
        )
        async with asyncio.timeout(60), store.lent() as connection:
            paused = Paused(connection, "newest = NULL")
            running = asyncio.create_task(
                in_transaction(connection, lambda _: store._dialect.run(paused, noting))
            )
            await paused.reached.wait()
            assert await third.claim()
            paused.go_on.set()
            first.place = await running
        assert first.place > third.place
        assert await first.begin() is Turn.WAITS


@pytest.mark.parametrize("thing", ["/journeys/jrn_1", None])
async def test_write_is_not_next_where_keys_may_be_missing(service, shared, thing):
    """Nothing is stored as being sent: if the process is killed now, no other one may go on with it."""
    async with order(service, shared) as claimant:
        first, second = claimant("a"), claimant("b")
        assert await first.claim()
        await first.end("applied")
        await store_beneath(first.client).run(mark_restored)
        second.thing = thing
        assert not await second.claim()


async def test_turn_of_a_write_beside_an_earlier_one(service, address):
    """It waits while a living process has that one, or it may have been sent and was not passed over."""
    async with order(service, address) as claimant:
        first, second = claimant("a"), claimant("b")
        assert await first.claim()
        assert not await second.claim()
        assert await second.begin() is Turn.WAITS
        await first.move(FREED)
        assert await second.begin() is Turn.WAITS  # it may have been sent
        second.passed = ["{}"]
        assert await second.begin() is Turn.BEGUN
        assert await second.begin() is Turn.BEGUN  # a try whose reply was lost


async def test_turn_of_a_write_beside_an_earlier_one_that_is_sent_again(
    service, address
):
    """The earlier one was passed over, and perhaps sent once more since then: each send stores another intent."""
    async with order(service, address) as claimant:
        first, second = claimant("a"), claimant("b")
        assert await first.claim()
        assert not await second.claim()
        second.passed = ["{}"]
        await second.look()
        first.intent = '{"sent": []}'
        await first.lane.put(first.entry(State.SENDING))
        await first.move(FREED)
        assert await second.begin_as_found() is Turn.WAITS
        second.passed = [first.intent]
        assert await second.begin() is Turn.BEGUN


@pytest.mark.parametrize("ends", ["unknown", "applied"])
async def test_turn_of_a_write_beside_an_earlier_one_that_has_ended_since(
    service, address, ends
):
    """The run looks once more: the earlier write may still have an effect, or has changed the thing."""
    async with order(service, address) as claimant:
        before, first, second = (claimant(name) for name in "abc")
        assert await before.claim()
        assert not await first.claim()
        assert not await second.claim()
        await before.end("unknown")
        await first.end("unknown" if ends == "unknown" else "refused")
        await second.look()
        await first.reopen(State.SENDING)
        await first.end(ends, at=2)
        assert await second.begin_as_found() is Turn.WAITS
        assert await second.begin() is Turn.BEGUN


async def test_turn_of_a_write_beside_an_earlier_one_that_waits(service, address):
    """It is passed over if nobody living has it."""
    async with order(service, address) as claimant:
        first, second, third = (claimant(name) for name in "abc")
        assert await first.claim()
        assert not await second.claim()
        assert not await third.claim()
        await first.end("applied")
        assert await third.begin() is Turn.WAITS
        await second.move(ENDED)
        assert await third.begin() is Turn.BEGUN


@pytest.mark.parametrize(
    ("later", "turn"),
    [
        ("waits", "BEGUN"), ("waits, and nobody has it", "BEGUN"), ("is sent", "OVERTAKEN"),
        ("is sent, and nobody has it", "OVERTAKEN"), ("applied", "OVERTAKEN"), ("unknown", "OVERTAKEN"),
        ("refused", "BEGUN"), ("not applied", "BEGUN"),
    ],
)  # fmt: skip
async def test_turn_of_a_write_beside_a_later_one(service, address, later, turn):
    """Only one that was sent overtakes it: not one that waits too, and none without an effect."""
    async with order(service, address) as claimant:
        first, second, third = (claimant(name) for name in "abc")
        assert await first.claim()
        assert not await second.claim()
        assert not await third.claim()
        await first.end("applied")
        await second.move(FREED)
        if not later.startswith("waits"):
            assert await third.begin() is Turn.BEGUN
        if later.endswith("nobody has it"):
            await third.move(FREED)
        if later in ("applied", "unknown", "refused", "not applied"):
            await third.end(later)
        await second.move(second.lane.number)
        assert await second.begin() is Turn[turn]


@pytest.mark.parametrize("what", ["entry", "lane"])
async def test_turn_of_a_write_that_another_process_has(service, shared, what):
    """Nothing is stored for it, and the lane is looked at again."""
    async with order(service, shared) as claimant:
        first, second = claimant("a"), claimant("b")
        assert await first.claim()
        assert not await second.claim()
        await first.end("applied")
        if what == "entry":
            await second.move(FREED)
        else:
            await owner(second.client, "thief.1", second.lane.number)
        with pytest.raises(LostEntryError):
            await second.begin()
        assert second.lane.doubtful
        [entry] = await store_beneath(second.client).entries("e.seq = $1", second.seq)
        assert entry.state is State.TO_DO


async def test_turn_of_a_create_beside_a_later_one(service, address):
    """None overtakes it, but one that is sent may be mistaken for it."""
    async with order(service, address) as claimant:
        first, second, third = (claimant(name) for name in "abc")
        assert await first.claim()
        assert not await second.claim()
        assert not await third.claim()
        await first.end("refused")
        await second.move(FREED)
        assert await third.begin(WaitsFor.EARLIER_AND_SENT) is Turn.BEGUN
        await second.move(second.lane.number)
        assert await second.begin(WaitsFor.EARLIER_AND_SENT) is Turn.WAITS
        await third.end("applied")
        assert await second.begin(WaitsFor.EARLIER_AND_SENT) is Turn.BEGUN


async def test_key_that_another_process_claims_at_the_same_moment(service, shared):
    """The statement began before that one was committed: it inserts nothing, and the key is looked at again."""
    async with order(service, shared) as claimant, order(service, shared) as of_another:
        run, other = claimant("k"), of_another("k")
        run.thing = None
        lane = await journal_of(other.client).life.own_lane()
        run.lane = await journal_of(run.client).life.own_lane()
        store = store_beneath(run.client)
        async with store.lent() as connection, connection.transaction():
            await store._dialect.run(connection, _inserting("k", lane.number))
            claiming = asyncio.create_task(
                journal_of(run.client).keys.claims.claim(run, run.entry(State.SENDING))
            )
            await asyncio.sleep(0.3)  # sleeps: it waits for this transaction
            assert not claiming.done()
        found = await claiming
    assert found == Held(found.entry, lane.token)
    assert (found.entry.lane, run.seq) == (lane.number, 0)


def _inserting(key, lane):
    text = "INSERT INTO {s}entries (place, key, lane, digest, operation, state) VALUES (0, $1, $2, '', 'x', 1)"
    yield text, (key, lane)


def away(*_):
    raise JournalError("the database is away")


def fails_after(method, *given):
    """Return *method*, which fails after it was done, once: its reply is lost, and the database stays away."""
    left = [away]

    async def failing(*args):
        result = await method(*args)
        if not given or any(each in repr(args) for each in given):
            (left.pop() if left else id)(result)
        return result

    return failing


async def test_entry_is_released_once_the_database_is_back(
    service, shared, monkeypatch
):
    """It was away when the run was cancelled: this process has the entry, and would have it until it ends."""
    monkeypatch.setattr(run_ends, "_AGAIN", 0.05)
    async with two(service, shared, timeout=SOON) as (one, other):
        store, fails = store_beneath(one), 4
        rows = store.rows

        async def failing(text, *values):
            nonlocal fails
            if text == key_sql.RELEASE and fails:
                fails -= 1
                away()
            return await rows(text, *values)

        monkeypatch.setattr(store, "rows", failing)
        await cut_off_before_its_answer(service, one)
        async with asyncio.timeout(300):
            assert (await create(other).outcome()).applied
    assert len(service.ledger.effects("webhooks.create")) == 3


async def cut_off_before_its_answer(service, client):
    """Cancel a write that is applied."""
    async with under_way(service, client):
        pass


async def test_entry_whose_claim_was_not_answered_is_released(
    service, shared, monkeypatch
):
    """The run has failed, and nobody is left who would release what it may have."""
    async with two(service, shared, timeout=SOON) as (one, other):
        monkeypatch.setattr(in_store, "claim", fails_after(in_store.claim))
        with pytest.raises(JournalError, match="is away"):
            await create(one)
        async with asyncio.timeout(300):
            assert (await create(other).outcome()).applied
    assert service.arrivals("webhooks.create") == 3


@pytest.mark.parametrize("when", ["before", "after"])
async def test_entry_of_a_run_that_is_cancelled_around_its_claim_is_released(
    service, shared, monkeypatch, when
):
    """Before the claim is answered, or when it was, and the run has not gone on yet."""
    async with two(service, shared, timeout=SOON) as (one, other):
        claim = in_store.claim

        async def cancelling(*given):
            if when == "before":
                running.cancel()
                await asyncio.sleep(0)
            made = await claim(*given)
            asyncio.get_running_loop().call_soon(running.cancel)
            return made

        monkeypatch.setattr(in_store, "claim", cancelling)
        running = asyncio.create_task(create(one).outcome())
        await asyncio.wait([running])
        assert running.cancelled()
        async with asyncio.timeout(300):
            assert (await create(other).outcome()).applied
    assert service.arrivals("webhooks.create") == 3


async def test_entry_that_was_taken_without_an_answer_is_released(
    service, shared, monkeypatch
):
    """The run that took it failed, because the database stayed away then."""
    async with two(service, shared, timeout=SOON) as (one, other):
        await cut_off_before_its_answer(service, one)
        store = store_beneath(one)
        await store.idle()
        monkeypatch.setattr(store, "run", fails_after(store.run, "_take"))
        with pytest.raises(JournalError, match="is away"):
            await create(one)
        async with asyncio.timeout(300):
            assert (await create(other).outcome()).applied
    assert len(service.ledger.effects("webhooks.create")) == 3


async def test_entry_that_was_reopened_without_an_answer_is_released(
    service, shared, monkeypatch
):
    """The run that did the write anew failed, because the database stayed away then."""
    service.script("journeys.update", "400")
    async with two(service, shared, timeout=SOON) as (one, other):
        assert (await rename(one, "x", "k").outcome()).verdict is Verdict.REFUSED
        store = store_beneath(one)
        monkeypatch.setattr(store, "run", fails_after(store.run, "_reopen_seen"))
        with pytest.raises(JournalError, match="is away"):
            await rename(one, "x", "k")
        async with asyncio.timeout(300):
            assert (await rename(other, "x", "k").outcome()).applied
    assert len(service.ledger.effects("journeys.update")) == 1


async def test_next_run_does_not_wait_for_ever_for_the_end_of_an_earlier_one(
    service, shared, monkeypatch
):
    """A journal that can be read, and not written, as after a switch to a replica, is an error."""
    monkeypatch.setattr(run_ends, "_TO_LEAVE", 0.2)
    async with two(service, shared) as (one, _):
        store = store_beneath(one)
        rows = store.rows

        async def failing(text, *values):
            return away() if text == key_sql.RELEASE else await rows(text, *values)

        monkeypatch.setattr(store, "rows", failing)
        await cut_off_before_its_answer(service, one)
        sends = service.arrivals("webhooks.create")
        with pytest.raises(
            JournalError, match="could not store yet how its last run ended"
        ):
            await create(one)
        monkeypatch.undo()
    assert service.arrivals("webhooks.create") == sends


@pytest.mark.parametrize("step", ["take_lanes", "_move_entries"])
@pytest.mark.parametrize("is_done", [True, False])
async def test_entries_of_a_dead_process_whose_recovery_failed(
    service, shared, monkeypatch, step, is_done
):
    """The one that recovers has their lane, and moves them: others would wait for it, because it lives."""
    monkeypatch.setattr(journal, "_AGAIN", 0.05)
    third = client_of(service, journal=shared)
    async with (
        two(service, shared, timeout=SOON) as (one, other),
        third,
        under_way(service, third) as found,
    ):
        await owner(other, "dead.1", found.entry.lane)
        store, fails = store_beneath(one), [away]
        run = store.run

        async def failing(script):
            if fails and step in repr(script):
                if is_done:
                    await run(script)
                fails.pop()()
            return await run(script)

        monkeypatch.setattr(store, "run", failing)
        with pytest.raises(JournalError, match="is away"):
            await one.recover()
        async with asyncio.timeout(300):
            assert (await create(other).outcome()).applied
    assert service.arrivals("webhooks.create") == 3


async def test_recover_after_another_process_took_this_one_for_dead(service, shared):
    """It goes on in a new lane."""
    async with two(service, shared) as (one, other):
        lane = await journal_of(one).life.own_lane()
        await owner(other, "thief.1", lane.number)
        assert await one.recover() == []
        assert (await journal_of(one).life.own_lane()).number != lane.number


@pytest.mark.parametrize("moves", ["take", "reopen"])
async def test_entry_whose_move_is_done_after_its_run_was_cancelled_is_released(
    service, shared, monkeypatch, moves
):
    """The database may have the statement by then, and carry it out after the next one."""
    service.script("journeys.update", "400" if moves == "reopen" else "hang")
    async with two(service, shared, timeout=SOON) as (one, other):
        if moves == "reopen":
            assert (await rename(one, "x", "k").outcome()).verdict is Verdict.REFUSED
        else:
            await cut_off(service, rename(one, "x", "k"))
        store, moving = store_beneath(one), asyncio.Event()
        run = store.run

        async def late(act, *given):
            moving.set()
            await asyncio.sleep(
                0.3
            )  # sleeps: it is late by more than the cancellation takes
            return await act(*given)

        def of(act, mark):
            def called(*given):
                if mark in repr(given):
                    return asyncio.shield(asyncio.ensure_future(late(act, *given)))
                return act(*given)

            async def awaited(*given):
                return await called(*given)

            return awaited

        script = "_take" if moves == "take" else "_reopen_seen"
        monkeypatch.setattr(store, "run", of(run, script))
        running = asyncio.create_task(rename(one, "x", "k").outcome())
        await moving.wait()
        await cancel(running)
        await asyncio.sleep(0.5)  # sleeps: until what was late has come
        async with asyncio.timeout(300):
            assert (await rename(other, "x", "k").outcome()).applied
    assert len(service.ledger.effects("journeys.update")) == 1


async def test_key_that_runs_again_while_its_cancelled_claim_is_answered(
    service, shared, monkeypatch
):
    """The next run waits until the entry is released: it is sent once, and not freed while it is."""
    claimed, answered = asyncio.Event(), asyncio.Event()

    async def claim_slowly(*given):
        found = await in_store.claim(*given)
        claimed.set()
        await answered.wait()
        return found

    async def release_late(*given, **how):
        await asyncio.sleep(0.4)  # sleeps: for a run that does not wait for it
        await release(*given, **how)

    async with asyncio.timeout(60), two(service, shared) as (one, other):
        await rename(other, "zero", "k0")  # so that a key of the thing is claimed first
        before = service.arrivals("journeys.update")
        claims = SimpleNamespace(**{**vars(in_store), "claim": claim_slowly})
        # reaches: the reply of one statement is late, and so is the next statement
        monkeypatch.setattr(key_claims, "in_store", claims)
        # reaches: the same
        monkeypatch.setattr(run_ends, "release", release_late)
        first = asyncio.create_task(rename(one, "A", "k1").outcome())
        await claimed.wait()
        behind = asyncio.create_task(rename(one, "B", "k2").outcome())
        await asyncio.sleep(0.1)  # sleeps: it asks for its claim
        await cancel(first)
        service.script("journeys.update", "slow 1.5")
        again = asyncio.create_task(rename(one, "A", "k1").outcome())
        await asyncio.sleep(0.1)  # sleeps: it looks at the entry
        answered.set()
        await service.arrived("journeys.update", before + 1)
        await asyncio.sleep(0.5)  # sleeps: for a release that comes late
        [name] = [each for each in runs_of(one) if each.endswith(" k1")]
        while_sent = await claims_of(other).look(name)
        beside = asyncio.create_task(rename(other, "A", "k1").outcome())
        outcomes = await asyncio.gather(again, beside, behind)
    assert not isinstance(while_sent, Abandoned)
    assert [outcome.verdict for outcome in outcomes] == [Verdict.APPLIED] * 3
    names = [each.body["name"] for each in service.ledger.effects("journeys.update")]
    assert names == ["zero", "A", "B"]


async def test_refusal_that_a_process_remembers_of_before_it_lost_the_key(
    service, shared, monkeypatch
):
    """What another process has sent since is settled, although the refusal was definite, and not stored over."""
    stored = []
    end_run = RunEnds.end_run

    def noted(ends, name, lane, entry=None, *given, **how):
        stored.append(None if entry is None else entry.state)
        end_run(ends, name, lane, entry, *given, **how)

    # reaches: what is stored late might be stored over what the other process has stored
    monkeypatch.setattr(RunEnds, "end_run", noted)
    policy = ReconcilePolicy(
        settle_after_error=0.2, settle_after_loss=1.0, clock_slack=0.0, clock_band=0.0
    )
    settings = {"timeout": Timeouts(attempt=15.0), "reconcile": policy}
    async with asyncio.timeout(60), two(service, shared, **settings) as (one, other):
        for client in (one, other):
            await client.journeys.get("jrn_1")
        service.script("journeys.update", "reset", "422", "apply, then hang")
        before = service.arrivals("journeys.update")
        with gate(service, "journeys.update", first=2) as held:
            running = asyncio.create_task(rename(one, "A", "k").outcome())
            await until(lambda: held.held)
            [name] = runs_of(one)
            await move(one, await claims_of(one).look(name), ENDED)
            beside = asyncio.create_task(rename(other, "A", "k").outcome())
            await service.arrived("journeys.update", before + 3)
            await cancel(beside)
        outcome = await running
    assert outcome.verdict is Verdict.APPLIED, outcome.explain()
    assert len(service.ledger.effects("journeys.update")) == 1
    assert State.TO_DO not in stored


async def test_write_without_a_key_after_one_of_a_silent_process(service, shared):
    """That one may still be sending, so its attempt is waited for, too, and not the settle window alone."""
    policy = ReconcilePolicy(
        settle_after_error=0.2, settle_after_loss=0.5, clock_slack=0.0, clock_band=0.0
    )
    settings = {"timeout": Timeouts(attempt=8.0), "reconcile": policy}
    async with (
        asyncio.timeout(120),
        two(service, shared, **settings) as (one, _),
        client_of(service, journal=shared, **settings) as late,
    ):
        for client in (one, late):
            await client.journeys.get("jrn_1")
        with gate(service, "journeys.update") as held:
            older = asyncio.create_task(rename(one, "older", "k").outcome())
            await until(lambda: held.held)
            await rows_of(one, "UPDATE {s}members SET seen = seen - 6000")
            newer = asyncio.create_task(
                late.journeys.update("jrn_1", name="newer").outcome()
            )
            await asyncio.sleep(2.0)  # sleeps: for one that waits for the window alone
        outcomes = await asyncio.gather(older, newer)
    assert [each.verdict for each in outcomes] == [Verdict.APPLIED] * 2
    effects = service.ledger.effects("journeys.update")
    effects.sort(key=lambda entry: entry.applied_at)
    assert [each.body["name"] for each in effects] == ["older", "newer"]
