"""Who may write to a lane of a shared store: every order of the steps of its owners, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import asynccontextmanager
from itertools import combinations

import pytest

from invsvc_async import JournalError
from invsvc_async.client import options_of
from invsvc_async.durable.entry import LostEntryError, State
from invsvc_async.durable.leases import LEASE, Leases
from invsvc_async.durable.store.members import Sign
from tests.durable.stores import counts, end, fill, lanes_of, numbers, opened, store_of
from tests.support.waiting import until

pytestmark = pytest.mark.one_python

STEPS = 6  # take, read, store, send, store, release: of a process that does one entry


@pytest.fixture
async def store(request, tmp_path):
    """Yield a shared store without lanes."""
    async with opened(
        store_of("PostgreSQL", tmp_path, request.node.nodeid, lanes=1)
    ) as made:
        await made.rows("DELETE FROM {s}lanes")
        yield made


class World:
    """One lane with entries, and a service that counts effects."""

    def __init__(self, store, lane, clock):
        self.store, self.lane, self.clock = store, lane, clock
        self.effects = []
        # attempts that somebody settles: by then, their time is over
        self.too_late = set()

    def send(self, key, attempt):
        """Reach the service, unless the time of this attempt is over: then provably nothing was sent."""
        if (key, attempt) in self.too_late:
            return False
        self.effects.append(key)
        return True


async def process(world, name, *, stops):
    """
    Do a lane as a dispatcher does, pausing before each step; what is lost to another ends it.

    It gives no sign of life, so another one may take the lane at any time.  Settling what another may have
    sent waits until such a send can run no more.  If the lane was released, it need not wait, and here it
    does not.  One that *stops* releases the lane when it is ended.
    """
    leases = Leases(world.store, world.clock)
    leases.until = float("inf")
    held = []
    try:
        yield
        held = await leases.take(1, credential=f"{world.lane}")
        yield
        for lane in held:
            for entry in await world.store.open_in({lane.number: 0}, (), 100):
                attempts = entry.intent.split()
                if not lane.has_ended:
                    world.too_late |= {(entry.key, attempt) for attempt in attempts}
                sent = entry.state is State.SENDING and entry.key in world.effects
                while not sent:
                    attempts.append(f"{name}-{len(attempts)}")
                    yield
                    entry.state, entry.intent = State.SENDING, " ".join(attempts)
                    await lane.put(entry)
                    yield
                    sent = world.send(entry.key, attempts[-1])
                yield
                await end(lane, entry, "applied")
        yield
    except LostEntryError:
        return
    finally:
        if stops:
            await leases.give_up(held)


async def play(store, clock, order, *, number, keys=("a",), stopping=()):
    """
    Run the steps of processes in *order*; one that is not named again was killed there.

    Those *stopping* end gracefully instead: they release the lane after their last step.  In the end, those
    that were only stopped go on.
    """
    await store.rows(
        "INSERT INTO {s}lanes (id, credential) VALUES ($1, $2)", number, f"{number}"
    )
    entries = await fill(
        store, *(f"{number} {key}" for key in keys), thing=f"thing {number}"
    )
    text = "UPDATE {s}entries SET lane = $1, intent = '' WHERE seq {any 2 bigint}"
    await store.rows(text, number, [entry.seq for entry in entries])
    world = World(store, number, clock)
    running = {
        name: process(world, name, stops=name in stopping)
        for name in sorted(set(order))
    }
    last = {
        name: max(i for i, each in enumerate(order) if each == name) for name in running
    }
    for i, name in enumerate(order):
        await anext(running[name], None)
        if name in stopping and i == last[name]:
            await running[name].aclose()
    async for _ in process(world, "last", stops=False):
        pass
    for each in running.values():
        async for _ in each:
            pass
    text = "SELECT key FROM {s}entries WHERE lane = $1 AND done_at IS NULL"
    return Counter(world.effects), await numbers(store, text, number)


async def check_all(store, client, orders, **settings):
    """Play every one of *orders*, several at once; return which ended with other than one effect a key."""
    keys, clock = settings.get("keys", ("a",)), options_of(client).core.clock
    wrong, at_once = [], asyncio.Semaphore(20)

    async def one(number, order):
        async with at_once:
            effects, is_open = await play(
                store, clock, order, number=number, **settings
            )
        if effects != {f"{number} {key}": 1 for key in keys} or is_open:
            wrong.append((order, effects, is_open))

    await asyncio.gather(
        *(one(number, order) for number, order in enumerate(orders, 1000))
    )
    return wrong


def orders_of_two():
    """Return all orders of up to six steps of A and four of B."""
    return sorted(
        "".join("A" if i in places else "B" for i in range(n + m))
        for n in range(STEPS + 1)
        for m in range(STEPS - 1)
        for places in combinations(range(n + m), n)
        if n + m
    )


@pytest.mark.untraced
async def test_every_order_of_two_owners(store, client):
    """Whatever two processes' steps, each cut off anywhere and the first waking up in the end: one effect."""
    orders = orders_of_two()
    assert len(orders) > 500
    assert await check_all(store, client, orders) == []


async def test_every_order_in_which_owners_stop(store, client):
    """A process that stops gracefully after any step, and releases its lane: one effect, and nobody waits."""
    orders = [order for order in orders_of_two() if "BA" not in order]
    assert await check_all(store, client, orders, stopping="A") == []


@pytest.mark.untraced
async def test_orders_of_three_owners_of_two_entries(store, client):
    """With three owners and two entries of one thing, any order ends with one effect of each."""
    chance = random.Random(5)
    orders = [
        "".join(chance.choice("ABC") for _ in range(chance.randint(4, 22)))
        for _ in range(250)
    ]
    assert await check_all(store, client, orders, keys=("a", "b")) == []


# --- two at the same time


@asynccontextmanager
async def transaction(store):
    """Yield a connection with an open transaction, in the store's schema."""
    async with store.lent() as connection, connection.transaction():
        await connection.execute(f"SET LOCAL search_path = {store.schema}")
        yield connection


async def until_blocked(store):
    """Wait until some statement waits for a lock."""
    await until(
        lambda: store.rows(
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        )
    )


@pytest.fixture
async def lane(store, client):
    """Return the first lane, of a process that is silent from now on."""
    await store.rows("INSERT INTO {s}lanes (id) VALUES (1)")
    (lane,) = await lanes_of(store, options_of(client).core.clock)
    await store.rows("UPDATE {s}members SET seen = seen - 3600")
    return lane


async def test_store_that_waits_for_a_take_over(store, lane):
    """What is stored while another takes the lane over waits for that, and is refused."""
    (entry,) = await fill(store, "k")
    entry.state = State.SENDING
    async with transaction(store) as taking:
        await taking.execute("UPDATE lanes SET owner = 'new.1'")
        storing = lane.put(entry)
        await until_blocked(store)
        assert not storing.done()
    with pytest.raises(LostEntryError):
        await storing
    assert await numbers(store, "SELECT state FROM {s}entries") == [State.TO_DO]


async def test_end_that_is_stored_again_while_it_is_reopened(store, lane):
    """What is stored again, because a reply was lost, waits for that and is refused: it counts as to do."""
    (entry,) = await fill(store, "k")
    await end(lane, entry)
    before = await counts(store)
    async with transaction(store) as reopening:
        await reopening.execute(
            "UPDATE entries SET state = 0, verdict = NULL, outcome = NULL, done_at = NULL"
        )
        storing = lane.put(entry)
        await until_blocked(store)
    with pytest.raises(LostEntryError):
        await storing
    assert await counts(store) == before


async def test_take_over_while_the_owner_stores(store, lane, client):
    """Who looks for lanes then leaves it to its owner; once that has stored, it sees what was."""
    (entry,) = await fill(store, "k")
    clock = options_of(client).core.clock
    async with transaction(store) as storing:
        await storing.execute("SELECT 1 FROM lanes FOR SHARE")
        await storing.execute("UPDATE entries SET state = 1")
        assert await lanes_of(store, clock) == []
    (taken,) = await lanes_of(store, clock)
    assert not taken.has_ended
    (found,) = await store.open_in({taken.number: 0}, (), 9)
    assert (found.seq, found.state) == (entry.seq, State.SENDING)


async def test_heir_of_a_silent_process_that_is_gone(store, lane, clock):
    """Its lane is free, but the process before it may still have a request under way; in an hour it has not."""
    await store.rows("UPDATE {s}lanes SET owner = 'silent.1'")
    for seconds, has_ended in ((0, False), (0, False), (3500, False), (3700, True)):
        await store.rows(
            "UPDATE {s}facts SET value = CAST(CAST(value AS float8) - {arg 1 float8} AS text) "
            "WHERE name = 'silent'",
            seconds,
        )
        heir = Leases(store, clock)
        await heir.beat()
        (taken,) = await heir.take(1)
        assert taken.has_ended is has_ended
        await heir.give_up([taken])


async def test_two_that_take_over(store, lane, client):
    """One of them gets the lane, and the other none."""
    clock = options_of(client).core.clock
    found = await asyncio.gather(*(lanes_of(store, clock) for _ in range(4)))
    assert sorted(map(len, found)) == [0, 0, 0, 1]
    assert lane.token not in await numbers(store, "SELECT owner FROM {s}lanes")


REFUSE = """
CREATE FUNCTION {s}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'not now'; END$$;
CREATE TRIGGER refuse BEFORE UPDATE ON {s}.lanes FOR EACH ROW WHEN (NEW.owner IS NULL)
    EXECUTE FUNCTION {s}.refuse();
"""


async def test_release_that_fails_is_repeated(store, client):
    """The lanes stay those of the process, which would else keep others from them as long as it lives."""
    await store.rows("INSERT INTO {s}lanes (id) VALUES (1), (2)")
    first, second = (Leases(store, options_of(client).core.clock) for _ in range(2))
    for leases in (first, second):
        await leases.beat()
    lanes = await first.take(2)
    await store.ask(
        lambda connection: connection.execute(REFUSE.format(s=store.schema))
    )
    with pytest.raises(JournalError, match="refused a statement"):
        await first.give_up(lanes)
    await store.rows("DROP TRIGGER refuse ON {s}lanes")
    await first.beat()
    assert await second.take(2) == []
    await first.give_up([*first.lanes.values()])
    assert len(await second.take(2)) == 2


# --- in time


class Clock:
    """A clock that stands still."""

    def __init__(self):
        self.time = 1000.0

    def now(self):
        return self.time

    async def sleep(self, _seconds):
        await asyncio.sleep(
            0.001
        )  # sleeps: so that it is asked again soon, not at once


@pytest.fixture
def clock():
    return Clock()


async def test_process_that_was_stopped(store, lane, clock):
    """It sends nothing once its lease is over, and learns from its next sign of life that its lane is lost."""
    await store.rows("UPDATE {s}lanes SET owner = NULL")
    stopped, other = Leases(store, clock), Leases(store, clock)
    await stopped.beat()
    (mine,) = await stopped.take(1)
    assert mine.until == clock.now() + LEASE * store.silence
    await asyncio.wait_for(mine.hold(), 30)
    clock.time += store.silence
    holding = asyncio.create_task(mine.hold())
    await asyncio.sleep(0)
    assert not holding.done()
    await store.rows("UPDATE {s}members SET seen = seen - 3600")
    await other.beat()
    (theirs,) = await other.take(1)
    assert (theirs.number, theirs.has_ended) == (mine.number, False)
    await stopped.beat()
    with pytest.raises(LostEntryError):
        await asyncio.wait_for(holding, 30)
    assert stopped.lanes == {}


async def test_process_whose_signs_of_life_were_late(store, lane, clock):
    """What waits goes on after the next one, if nobody has taken the lane."""
    await store.rows("UPDATE {s}lanes SET owner = NULL")
    leases = Leases(store, clock, gives=True)
    await leases.beat()
    (mine,) = await leases.take(1)
    before = leases.taker
    clock.time += store.silence
    holding = asyncio.create_task(mine.hold())
    await leases.beat()
    await asyncio.wait_for(holding, 30)
    assert leases.taker != before  # others may have taken what it gave before


async def test_members(store, lane, clock):
    """Those that send count, and those that are hungry; one that has ended, or is silent, does not."""
    one, two, looks_on = (Leases(store, clock) for _ in range(3))
    hungry, looking = Sign(hungry=True), Sign(sends=False)
    assert await one.beat(hungry) == 1
    assert await looks_on.beat(looking) == 1
    assert (await two.beat(), two.hungry) == (2, 1)
    assert (await one.beat(hungry), one.hungry) == (2, 0)  # of others
    await one.end()
    assert (await two.beat(), two.hungry) == (1, 0)
    await store.rows("UPDATE {s}members SET seen = seen - 200000")
    await looks_on.forget_the_dead()
    # whose lane nobody has taken yet
    assert await numbers(store, "SELECT count(*) FROM {s}members") == [1]


# --- the database's clock


async def set_back(store, seconds=3600):
    """Let all signs of life be as if the database's clock had been set back since."""
    await store.rows(
        "UPDATE {s}members SET seen = seen + {arg 1 float8}", float(seconds)
    )


@pytest.mark.parametrize("seconds", [45, 3600, 7200])
async def test_clock_that_is_set_back_after_a_process_died(store, lane, clock, seconds):
    """Its lane is taken once its sign has been the same for as long as silence may last, not hours later."""
    # it gave a sign just now
    await store.rows("UPDATE {s}members SET seen = seen + 3600")
    await set_back(store, seconds + store.silence)
    other = Leases(store, clock)
    await other.beat()
    assert other.living == 2
    clock.time += store.silence - 1
    await other.beat()
    assert await other.take(1) == []
    clock.time += 1
    assert await other.beat() == 1
    (taken,) = await other.take(1)
    assert (taken.number, taken.has_ended) == (lane.number, False)
    assert await numbers(store, "SELECT owner FROM {s}lanes") == [taken.token]


async def test_clock_that_is_set_back_while_a_process_lives(store, lane, clock):
    """It changes its sign, so nobody takes its lane, however often the clock is set back."""
    await store.rows("UPDATE {s}lanes SET owner = NULL")
    living, other = Leases(store, clock), Leases(store, clock)
    await living.beat()
    (mine,) = await living.take(1)
    for _ in range(8):
        await set_back(store)
        await other.beat()
        clock.time += store.silence / 2
        await living.beat()
        await other.beat()
        assert await other.take(1) == []
    assert mine.until > clock.now()
    assert [*living.lanes.values()] == [mine]


async def test_clock_that_is_set_ahead_after_a_sign_of_life(store, lane, clock):
    """A process that seems silent by it takes the lanes of others, and none of its own, which it has already."""
    await store.rows("UPDATE {s}lanes SET owner = NULL")
    leases = Leases(store, clock)
    await leases.beat()
    (mine,) = await leases.take(1)
    await set_back(store, -3600)
    assert await leases.take(1) == []
    await leases.beat()
    assert not mine.lost
    assert await numbers(store, "SELECT owner FROM {s}lanes") == [mine.token]


async def test_sign_of_life_that_is_given_when_it_is_about_to_count_as_old(
    store, lane, clock
):
    """What counts is whether it is the same when it is made old, not when it was looked at."""
    await store.rows("UPDATE {s}lanes SET owner = NULL")
    living, other = Leases(store, clock), Leases(store, clock)
    await living.beat()
    (mine,) = await living.take(1)
    await set_back(store)
    await other.beat()
    clock.time += store.silence
    await set_back(store, 1.0)  # as a sign given later, by the clock of before
    await other.beat()
    assert await other.take(1) == []
    clock.time += store.silence - 1
    await other.beat()
    assert await other.take(1) == []
    assert not mine.lost


async def test_silence_of_the_process_that_gave_the_sign(store, lane, clock):
    """If that is longer than one's own, it counts."""
    await set_back(store, 3 * 3600)
    await store.rows(
        "UPDATE {s}members SET silence = {arg 1 float8}", 4 * store.silence
    )
    other = Leases(store, clock)
    await other.beat()
    clock.time += 3 * store.silence
    await other.beat()
    assert await other.take(1) == []
    clock.time += store.silence
    await other.beat()
    assert len(await other.take(1)) == 1


async def test_clock_that_is_set_forward(store, lane, clock):
    """A process that lives loses its lane as one that was silent does: what it stores then is refused."""
    await store.rows("UPDATE {s}lanes SET owner = NULL")
    (entry,) = await fill(store, "k")
    living, other = Leases(store, clock), Leases(store, clock)
    await living.beat()
    (mine,) = await living.take(1)
    await set_back(store, -3600)
    await other.beat()
    (taken,) = await other.take(1)
    assert not taken.has_ended  # so what may have been sent is waited for
    entry.state = State.SENDING
    with pytest.raises(LostEntryError):
        await mine.put(entry)
    await living.beat()
    assert mine.lost
