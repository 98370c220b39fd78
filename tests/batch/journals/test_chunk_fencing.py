"""Who may write to a chunk of a shared batch: every order of the steps of its owners, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from itertools import combinations

import pytest

from invsvc_async.batch.journals.chunk_fencing import _STORE
from invsvc_async.batch.journals.postgres import PostgresBatch
from invsvc_async.durable.entry import Entry, LostLaneError, State
from tests.support.database import database

pytestmark = pytest.mark.one_python

STEPS = 6  # take, read, store, send, store, close: of a worker that does one entry


@pytest.fixture
async def entries():
    """Yield an open journal without entries."""
    opened = PostgresBatch(database().journal("ownership"))
    await opened.open()
    for table in ("entries", "chunks"):
        await opened.fetch(f"DELETE FROM {table}")  # noqa: S608 - our own text
    yield opened
    await opened.aclose()


class World:
    """One chunk, and a service that counts effects."""

    def __init__(self, entries, chunk):
        self.entries, self.chunk = entries, chunk
        self.effects = []
        self.too_late = set()  # attempts that somebody settles: by then, their time is over

    def send(self, key, attempt):
        """Reach the service, unless the time of this attempt is over: then provably nothing was sent."""
        if (key, attempt) in self.too_late:
            return False
        self.effects.append(key)
        return True


async def worker(world, token):
    """
    Do a chunk as a worker does, pausing before each step; what is lost to another ends it.

    Settling what another may have sent waits until such a send can run no more; where nobody held the chunk,
    it need not wait, and here it does not.
    """
    store, chunk = world.entries, world.chunk
    yield
    done, free = await store.take(chunk, token)
    yield
    found = [] if done else await store.of_chunk(chunk)
    try:
        for entry in found:
            attempts = (entry.intent or "").split()
            if not free:
                world.too_late |= {(entry.key, attempt) for attempt in attempts}
            sent = entry.state is State.SENDING and entry.key in world.effects
            while not sent:
                attempts.append(f"{token}-{len(attempts)}")
                yield
                await store.put(sending(entry, attempts), chunk, token)
                yield
                sent = world.send(entry.key, attempts[-1])
            yield
            await store.put(ended(entry), chunk, token)
        yield
        await store.close_chunk(chunk, token)
    except LostLaneError:
        return


def sending(entry, attempts):
    return Entry(key=entry.key, state=State.SENDING, operation="x", intent=" ".join(attempts))


def ended(entry):
    return Entry(key=entry.key, state=State.DONE, operation="x", verdict="applied", done_at=1)


async def play(entries, order, *, number, keys=("a",), released=()):
    """
    Run the steps of workers in *order*; a worker that is not named again was killed there.

    Those in *released* are stopped gracefully instead: they give the chunk back after their last step.
    """
    await entries.hand_out(
        [
            (Entry(key=f"{number} {key}", content=b"", state=State.TO_DO, operation="x"), f"thing {number}")
            for key in keys
        ]
    )
    [row] = await entries.fetch("SELECT chunk FROM entries WHERE key = $1", f"{number} {keys[0]}")
    world = World(entries, row["chunk"])
    running = {name: worker(world, f"{number}-{name}") for name in sorted(set(order))}
    last = {name: max(i for i, each in enumerate(order) if each == name) for name in running}
    for i, name in enumerate(order):
        await anext(running[name], None)
        if name in released and i == last[name]:
            await entries.release([f"{number}-{name}"])
    async for _ in worker(world, f"{number}-last"):
        pass
    for each in running.values():  # who was only stopped wakes up
        if not released:
            async for _ in each:
                pass
        await each.aclose()
    return Counter(world.effects), await open_of(entries, world.chunk)


async def open_of(entries, chunk):
    [row] = await entries.fetch("SELECT done FROM chunks WHERE id = $1", chunk)
    return not row["done"]


async def check_all(entries, orders, **settings):
    """Play every one of *orders*, several at once, and say which ended with other than one effect a key."""
    keys = settings.get("keys", ("a",))
    wrong, at_once = [], asyncio.Semaphore(20)

    async def one(number, order):
        async with at_once:
            effects, is_open = await play(entries, order, number=number, **settings)
        if effects != {f"{number} {key}": 1 for key in keys} or is_open:
            wrong.append((order, effects, is_open))

    await asyncio.gather(*(one(number, order) for number, order in enumerate(orders)))
    return wrong


def orders_of(first, second):
    """Return all orders of *first* steps of A and *second* of B."""
    for places in combinations(range(first + second), first):
        yield "".join("A" if i in places else "B" for i in range(first + second))


async def test_every_order_of_two_owners(entries):
    """Whatever two workers' steps, each cut off anywhere and the first waking up in the end: one effect."""
    orders = {order for n in range(STEPS + 1) for m in range(STEPS - 1) for order in orders_of(n, m) if order}
    assert len(orders) > 500
    assert await check_all(entries, sorted(orders)) == []


async def test_every_order_where_owners_give_back(entries):
    """A worker that stops gracefully after any step, and releases the chunk: one effect, and no worker waits."""
    orders = {order for n in range(STEPS + 1) for m in range(STEPS - 1) for order in orders_of(n, m) if order}
    assert (
        await check_all(entries, [each for each in sorted(orders) if gives_back_once(each)], released="A")
        == []
    )


def gives_back_once(order):
    """Return whether A has made its last step before B makes its first."""
    return "BA" not in order


async def test_orders_of_three_owners_of_two_entries(entries):
    """With three owners and two entries of one thing, any order ends with one effect of each."""
    chance = random.Random(5)  # noqa: S311 - moments, not secrets
    orders = ["".join(chance.choice("ABC") for _ in range(chance.randint(4, 22))) for _ in range(250)]
    assert await check_all(entries, orders, keys=("a", "b")) == []


async def chunk_with(entries, key):
    await entries.hand_out([(Entry(key=key, content=b"", state=State.TO_DO, operation="x"), None)])
    [row] = await entries.fetch("SELECT chunk FROM entries WHERE key = $1", key)
    return row["chunk"]


async def test_store_that_waits_for_a_take_over(entries):
    """What is stored while another takes the chunk over waits for that, and is refused."""
    chunk = await chunk_with(entries, "k")
    await entries.take(chunk, "old")
    async with entries.lent() as taking, taking.transaction():
        await taking.execute("SELECT 1 FROM chunks WHERE id = $1 FOR UPDATE", chunk)
        await taking.execute("UPDATE chunks SET owner = 'new' WHERE id = $1", chunk)
        storing = entries.put(
            sending(Entry(key="k", state=State.TO_DO, operation="x"), ["old"]), chunk, "old"
        )
        await until_blocked(entries)
        assert not storing.done()
    with pytest.raises(LostLaneError):
        await storing
    assert [entry.state for entry in await entries.of_chunk(chunk)] == [State.TO_DO]


async def test_take_over_that_waits_for_another(entries):
    """Who takes a chunk over while another does waits for that, and learns that it had an owner."""
    chunk = await chunk_with(entries, "k")
    async with entries.lent() as first, first.transaction():
        await first.execute("UPDATE chunks SET owner = 'first' WHERE id = $1", chunk)
        taking = asyncio.create_task(entries.take(chunk, "second"))
        await until_blocked(entries)
        assert not taking.done()
    assert await taking == (False, False)
    assert await entries.owned(["first", "second"]) == ({"second"}, 1)


async def test_chunk_that_gets_an_entry_while_it_is_closed(entries):
    """Who closes a chunk waits for those who add to it, and sees what they added: it stays open."""
    chunk = await chunk_with(entries, "k")
    await entries.take(chunk, "mine")
    [entry] = await entries.of_chunk(chunk)
    await entries.put(ended(entry), chunk, "mine")
    async with entries.lent() as adding, adding.transaction():
        await adding.execute("SELECT 1 FROM chunks WHERE id = $1 FOR SHARE", chunk)
        closing = asyncio.create_task(entries.close_chunk(chunk, "mine"))
        await until_blocked(entries)
        more = (
            "INSERT INTO entries (key, chunk, content, state, run, operation) VALUES ('l', $1, '', 0, 1, 'x')"
        )
        await adding.execute(more, chunk)
    assert not await closing
    assert await open_of(entries, chunk)


async def test_take_over_that_waits_for_a_store(entries):
    """Who takes a chunk over while its owner stores waits for that, and sees what was stored."""
    chunk = await chunk_with(entries, "k")
    await entries.take(chunk, "old")
    columns = [["k"], [chunk], ["old"], [1], [None], [None], ["old"], [None], [None], [None], [0], 1]
    async with entries.lent() as storing, storing.transaction():
        assert len(await storing.fetch(_STORE, *columns)) == 1
        taking = asyncio.create_task(entries.take(chunk, "new"))
        await until_blocked(entries)
        assert not taking.done()
    assert await taking == (False, False)
    assert [entry.state for entry in await entries.of_chunk(chunk)] == [State.SENDING]


async def test_entry_of_another_number_is_not_stored(entries):
    """Two entries of one key, of which the journal has one: that one is stored, and the other changes nothing."""
    chunk = await chunk_with(entries, "k")
    await entries.take(chunk, "mine")
    [there] = await entries.of_chunk(chunk)
    for number in (there.seq + 1, there.seq):
        entry = sending(there, [str(number)])
        entry.seq = number
        storing = entries.put(entry, chunk, "mine")
        if number != there.seq:
            with pytest.raises(LostLaneError):
                await storing
            assert [each.state for each in await entries.of_chunk(chunk)] == [State.TO_DO]
    await storing
    assert [each.intent for each in await entries.of_chunk(chunk)] == [str(there.seq)]


async def test_entries_of_one_key_stored_together(entries):
    """What has the key of another entry is not taken for it, also in the same statement."""
    chunk = await chunk_with(entries, "k")
    await entries.take(chunk, "mine")
    [there] = await entries.of_chunk(chunk)
    given = [sending(there, ["gone"]), sending(there, ["there"])]
    given[0].seq, given[1].seq = there.seq - 1, there.seq
    found = await asyncio.gather(
        *(entries.put(each, chunk, "mine") for each in given), return_exceptions=True
    )
    assert [type(each) for each in found] == [LostLaneError, type(None)]
    assert [each.intent for each in await entries.of_chunk(chunk)] == ["there"]


async def until_blocked(entries):
    """Wait until some statement waits for a lock."""
    async with asyncio.timeout(30):
        while not await entries.fetch("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
