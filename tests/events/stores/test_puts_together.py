"""Deliveries that wait together for one statement of PostgreSQL, or one commit of a file: each has its own result."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from invsvc_async import events
from invsvc_async.errors import JournalError
from invsvc_async.events import Delivery, HandlerStore, Standing
from invsvc_async.events.stores import postgres as in_postgres, sqlite as in_sqlite
from invsvc_async.storage.dialect import slices
from tests.events.bodies import delivery, on_thread

pytestmark = pytest.mark.one_python

_numbers = itertools.count()


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request, tmp_path):
    """Yield an open store of each kind, whose file or table is new."""
    if request.param == "sqlite":
        store = events.SqliteStore(tmp_path / "events.db")
    else:
        address = request.getfixturevalue("postgres")
        store = events.PostgresStore(address, table=f"together_{next(_numbers)}")
    await store.open()
    yield store
    await store.close()


only_sqlite = pytest.mark.parametrize("store", ["sqlite"], indirect=True)
only_postgres = pytest.mark.parametrize("store", ["postgres"], indirect=True)


async def transactions(store: events.PostgresStore) -> int:
    """Return how many transactions have stored what is in the table."""
    text = f"SELECT count(DISTINCT xmin::text) FROM {store._table}"
    return (await (await store._database.opened()).pool.fetch(text))[0][0]


@pytest.mark.parametrize("most", [1, 3, 256])
async def test_puts_at_once(store: HandlerStore, monkeypatch, most: int) -> None:
    """
    Each key is new once, each delivery without a key always, however many share a statement.

    What is due first came first, whatever the order of keys.
    """
    monkeypatch.setattr(in_sqlite, "MOST", most)
    monkeypatch.setattr(in_postgres, "_PUTS", most)
    await store.put(delivery("known"))
    keys = ["c", "a", None, "b", "a", "c", "known", None, "d", "a"]

    found = await asyncio.gather(
        *(
            store.put(delivery(key, body=b"%d" % number))
            for number, key in enumerate(keys)
        )
    )

    assert found == [True, True, True, True, False, False, False, True, True, False]
    taken = [
        entry.body for _ in range(9) for entry in await store.take(limit=1, lease=10)
    ]
    assert taken == [b"{}", b"0", b"1", b"2", b"3", b"7", b"8"]


@only_sqlite
@pytest.mark.parametrize("most", [1, 3, 256])
async def test_many_puts_share_a_commit(
    store: events.SqliteStore, monkeypatch, most: int
) -> None:
    """They need few statements, and are due in the order in which they came."""
    sizes: list[int] = []
    begun: list[str] = []

    def noted(items, most):
        found = [*slices(items, most)]
        sizes.extend(map(len, found))
        return found

    monkeypatch.setattr(in_sqlite, "MOST", most)
    monkeypatch.setattr(in_sqlite, "slices", noted)
    await on_thread(store, lambda db: db.set_trace_callback(begun.append))

    found = await asyncio.gather(
        *(store.put(delivery(f"d_{number}")) for number in range(300))
    )

    assert all(found)
    whole, rest = divmod(300, most)
    commits = begun.count("BEGIN IMMEDIATE")
    assert commits <= 2  # the end of what was asked for before may come in between
    assert sum(sizes) == 300
    assert len(sizes) <= whole + bool(rest) + commits - 1
    assert [entry.key for entry in await store.take(limit=300, lease=10)] == [
        f"d_{n}" for n in range(300)
    ]


@only_postgres
@pytest.mark.parametrize(("most", "statements"), [(500, 1), (3, 3)])
async def test_puts_share_a_transaction(
    store: events.PostgresStore, monkeypatch, most: int, statements: int
) -> None:
    """As many as a statement may hold; a key that is given again comes with the next one, and adds nothing."""
    monkeypatch.setattr(in_postgres, "_PUTS", most)
    keys = ["c", "a", None, "b", "a", "c", None, "d", "a"]
    await asyncio.gather(*(store.put(delivery(key)) for key in keys))
    assert await transactions(store) == statements


async def test_puts_that_are_all_known(store: HandlerStore) -> None:
    """None of them is new, whatever was added last, and to whichever table."""
    keys = ["a", "b", "c"]
    await asyncio.gather(*(store.put(delivery(key)) for key in keys))
    [first] = await store.take(limit=1, lease=10)
    await store.handled(first, body=b"kept")  # adds a row to another table

    assert (
        await asyncio.gather(*(store.put(delivery(key)) for key in keys)) == [False] * 3
    )
    assert await store.counts() == {"open": 2, "handled": 1, "dead": 0}


async def test_put_that_completes_a_claim_among_others(store: HandlerStore) -> None:
    """A known claim gets its body, and is not new."""
    await store.claim(delivery("a", body=None), lease=10)

    found = await asyncio.gather(
        *(store.put(delivery(key, body=b"whole")) for key in ("b", "a", "c"))
    )

    assert found == [True, False, True]
    assert [event.body for event in await store.events()] == [b"whole"] * 3


@only_sqlite
async def test_puts_between_other_requests(store: events.SqliteStore) -> None:
    """All are done in the order in which they were made."""
    first, claim, second, taken = await asyncio.gather(
        store.put(delivery("a")),
        store.claim(delivery("b", body=None), lease=10),
        store.put(delivery("b")),
        store.take(limit=9, lease=10),
    )

    assert first
    assert not isinstance(claim, Standing)
    assert not second
    assert [entry.key for entry in taken] == ["a"]


UNFIT = {  # the driver refuses it, or the database
    events.SqliteStore: (
        Delivery(key="unfit", type=None, body=b""),  # type: ignore[arg-type]
        Delivery(key="unfit", type=object(), body=b""),  # type: ignore[arg-type]
        Delivery(key="unfit", type="", body="text"),  # type: ignore[arg-type]
    ),
    events.PostgresStore: (
        delivery("no\0zero"),
        Delivery(key="unfit", type=object(), body=b""),  # type: ignore[arg-type]
        Delivery(key=1, type="", body=b""),  # type: ignore[arg-type]
    ),
}


async def test_puts_of_which_one_cannot_be_stored(store: HandlerStore) -> None:
    """It fails alone."""
    for number, unfit in enumerate(UNFIT[type(store)]):
        given = (delivery(f"a{number}"), unfit, delivery(f"b{number}"))
        found = await asyncio.gather(
            *(store.put(one) for one in given), return_exceptions=True
        )

        assert [isinstance(one, Exception) for one in found] == [False, True, False]
    assert (await store.counts())["open"] == 6


async def test_puts_that_are_cancelled(store: HandlerStore) -> None:
    """Nobody else waits longer or fails because of them; what was not yet sent to a server is not stored."""
    running = [asyncio.create_task(store.put(delivery(key))) for key in ("a", "b", "c")]
    await asyncio.sleep(0)
    running[1].cancel()

    assert await running[0]
    assert await running[2]
    assert running[1].cancelled()
    keys = {event.key for event in await store.events()}
    assert keys == {"a", "c"} | (
        keys & {"b"} if isinstance(store, events.SqliteStore) else set()
    )


@only_postgres
async def test_puts_of_large_bodies(store: events.PostgresStore, monkeypatch) -> None:
    """A statement has a limited size, and one that is larger alone is stored too."""
    monkeypatch.setattr(in_postgres, "_BYTES", 20)
    sizes = [1, 20, 9, 9, 30]

    await asyncio.gather(
        *(
            store.put(delivery(f"d_{at}", body=b"x" * size))
            for at, size in enumerate(sizes)
        )
    )

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
    puts = in_postgres.GroupedPuts(
        pool, events.PostgresStore("postgresql://")._database._table.dialect
    )  # type: ignore[arg-type]

    found = await asyncio.gather(
        *(puts.put(delivery(f"d_{n}")) for n in range(5)), return_exceptions=True
    )

    assert [type(one) for one in found] == [JournalError] * 5
    assert pool.asked == 1


@only_postgres
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


@only_postgres
async def test_puts_whose_event_loop_ends(store: events.PostgresStore) -> None:
    """Whoever waits is cancelled with the statement, as ``asyncio.run`` cancels all that is left."""
    running = asyncio.create_task(store.put(delivery("a")))
    await asyncio.sleep(0)
    (statement,) = (
        task for task in asyncio.all_tasks() if task.get_name() == "invsvc events put"
    )
    await asyncio.sleep(0)
    statement.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert await store.put(delivery("b"))
