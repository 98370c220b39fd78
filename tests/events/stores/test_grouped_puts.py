"""Deliveries that wait together for one statement of PostgreSQL: each has its own result."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from invsvc_async import events
from invsvc_async.errors import JournalError
from invsvc_async.events import Delivery
from invsvc_async.events.stores import postgres
from tests.events.bodies import delivery

pytestmark = pytest.mark.one_python

_numbers = itertools.count()


@pytest.fixture
async def store(postgres: str):
    """Yield an open store whose table is new."""
    store = events.PostgresStore(postgres, table=f"grouped_{next(_numbers)}")
    await store.open()
    yield store
    await store.close()


async def transactions(store: events.PostgresStore) -> int:
    """Return how many transactions have stored what is in the table."""
    text = f"SELECT count(DISTINCT xmin::text) FROM {store._table}"
    return (await (await store._opened()).pool.fetch(text))[0][0]


@pytest.mark.parametrize(("most", "statements"), [(500, 1), (3, 3)])
async def test_puts_at_once(store: events.PostgresStore, monkeypatch, most: int, statements: int) -> None:
    """Each key is new once, each delivery without a key always; they share a few transactions."""
    monkeypatch.setattr(postgres, "_PUTS", most)
    keys = ["c", "a", None, "b", "a", "c", None, "d", "a"]

    found = await asyncio.gather(
        *(store.put(delivery(key, body=b"%d" % number)) for number, key in enumerate(keys))
    )

    assert found == [True, True, True, True, False, False, True, True, False]
    assert await transactions(store) == statements
    taken = await store.take(limit=9, lease=10)
    assert {entry.body for entry in taken} == {b"0", b"1", b"2", b"3", b"6", b"7"}


async def test_puts_in_order(store: events.PostgresStore) -> None:
    """What is due first came first, whatever the order of keys."""
    keys = ["z", "b", "y", "a"]

    await asyncio.gather(*(store.put(delivery(key)) for key in keys))

    assert [(await store.take(limit=1, lease=10))[0].key for _ in keys] == keys


async def test_put_that_completes_a_claim_among_others(store: events.PostgresStore) -> None:
    """A known claim gets its body, and is not new."""
    await store.claim(delivery("a", body=None), lease=10)

    found = await asyncio.gather(*(store.put(delivery(key, body=b"whole")) for key in ("b", "a")))

    assert found == [True, False]
    assert [event.body for event in await store.events()] == [b"whole", b"whole"]


async def test_puts_of_which_one_cannot_be_stored(store: events.PostgresStore) -> None:
    """It fails alone, whether the driver or the server refuses it."""
    for number, unfit in enumerate((
        delivery("no\0zero"),
        Delivery(key="unfit", type=object(), body=b""),  # type: ignore[arg-type]
        Delivery(key=1, type="", body=b""),  # type: ignore[arg-type]
    )):  # fmt: skip
        given = (delivery(f"a{number}"), unfit, delivery(f"b{number}"))
        found = await asyncio.gather(*(store.put(one) for one in given), return_exceptions=True)

        assert [isinstance(one, Exception) for one in found] == [False, True, False]
    assert (await store.counts())["open"] == 6


async def test_puts_that_are_cancelled(store: events.PostgresStore) -> None:
    """Nobody else waits longer or fails because of them; what was not yet sent is not stored."""
    running = [asyncio.create_task(store.put(delivery(key))) for key in ("a", "b", "c")]
    await asyncio.sleep(0)
    running[1].cancel()

    assert await running[0]
    assert await running[2]
    assert (await store.counts())["open"] == 2


async def test_puts_of_large_bodies(store: events.PostgresStore, monkeypatch) -> None:
    """A statement has a limited size, and one that is larger alone is stored too."""
    monkeypatch.setattr(postgres, "_BYTES", 20)
    sizes = [1, 20, 9, 9, 30]

    await asyncio.gather(*(store.put(delivery(f"d_{at}", body=b"x" * size)) for at, size in enumerate(sizes)))

    assert await transactions(store) == 4
    taken = await store.take(limit=9, lease=10)
    assert sorted(len(entry.body or b"") for entry in taken) == sorted(sizes)


class Away:
    """Stands for a pool whose database is away."""

    def __init__(self) -> None:
        self.asked = 0

    async def fetch(self, _statement: str, *_values: object) -> list[object]:
        self.asked += 1
        await asyncio.sleep(0)
        raise JournalError("away") from OSError()


async def test_puts_while_the_database_is_away() -> None:
    """All that wait fail with one attempt, which may take seconds."""
    pool = Away()
    puts = postgres.GroupedPuts(pool, events.PostgresStore("postgresql://")._dialect)  # type: ignore[arg-type]

    found = await asyncio.gather(*(puts.put(delivery(f"d_{n}")) for n in range(5)), return_exceptions=True)

    assert [type(one) for one in found] == [JournalError] * 5
    assert pool.asked == 1


async def test_puts_of_a_store_that_is_closed(store: events.PostgresStore) -> None:
    """They fail, or are stored; the next put opens the store again."""
    running = [asyncio.create_task(store.put(delivery(f"d_{n}"))) for n in range(50)]
    await asyncio.sleep(0)
    await store.close()

    found = await asyncio.gather(*running, return_exceptions=True)

    assert {type(one) for one in found} <= {bool, JournalError}
    assert await store.put(delivery("again"))
    stored = {event.key for event in await store.events(limit=99)}
    assert stored >= {f"d_{n}" for n, one in enumerate(found) if one is True}


async def test_puts_whose_event_loop_ends(store: events.PostgresStore) -> None:
    """Whoever waits is cancelled with the statement, as ``asyncio.run`` cancels all that is left."""
    running = asyncio.create_task(store.put(delivery("a")))
    await asyncio.sleep(0)
    (statement,) = (task for task in asyncio.all_tasks() if task.get_name() == "invsvc events put")
    await asyncio.sleep(0)
    statement.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert await store.put(delivery("b"))
