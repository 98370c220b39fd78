"""Deliveries that wait together for one commit of a SQLite file: each has its own result."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import events
from invsvc_async.events import Delivery
from invsvc_async.events.stores import Standing, sqlite
from invsvc_async.storage.dialect import slices
from tests.events.bodies import delivery, on_thread

pytestmark = pytest.mark.one_python


@pytest.fixture
async def store(tmp_path):
    """Yield an open store whose file is new."""
    store = events.SqliteStore(tmp_path / "events.db")
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def sizes(monkeypatch) -> list[int]:
    """Return a list to which the number of deliveries of each statement is added from now on."""
    sizes: list[int] = []

    def noted(items, most):
        found = [*slices(items, most)]
        sizes.extend(map(len, found))
        return found

    monkeypatch.setattr(sqlite, "slices", noted)
    return sizes


@pytest.mark.parametrize("most", [1, 3, 256])
async def test_puts_at_once(store: events.SqliteStore, sizes: list[int], monkeypatch, most: int) -> None:
    """Each key is new once, each delivery without a key always; they share a commit."""
    monkeypatch.setattr(sqlite, "MOST", most)
    await store.put(delivery("known"))
    keys = ["c", "a", None, "b", "a", "c", "known", None, "d", "a"]
    begun: list[str] = []
    await on_thread(store, lambda db: db.set_trace_callback(begun.append))
    sizes.clear()

    found = await asyncio.gather(
        *(store.put(delivery(key, body=b"%d" % number)) for number, key in enumerate(keys))
    )

    assert found == [True, True, True, True, False, False, False, True, True, False]
    assert begun.count("BEGIN IMMEDIATE") == 1
    assert len(sizes) == -(-len(keys) // most)
    taken = await store.take(limit=9, lease=10)
    assert [entry.body for entry in taken] == [b"{}", b"0", b"1", b"2", b"3", b"7", b"8"]


async def test_puts_that_are_all_known(store: events.SqliteStore) -> None:
    """None of them is new, whatever was added last, and to whichever table."""
    keys = ["a", "b", "c"]
    await asyncio.gather(*(store.put(delivery(key)) for key in keys))
    [first] = await store.take(limit=1, lease=10)
    await store.handled(first, body=b"kept")  # adds a row to another table

    assert await asyncio.gather(*(store.put(delivery(key)) for key in keys)) == [False] * 3
    assert await store.counts() == {"open": 2, "handled": 1, "dead": 0}


async def test_put_that_completes_a_claim_among_others(store: events.SqliteStore) -> None:
    """A known claim gets its body, and is not new."""
    await store.claim(delivery("a", body=None), lease=10)

    found = await asyncio.gather(*(store.put(delivery(key, body=b"whole")) for key in ("b", "a", "c")))

    assert found == [True, False, True]
    assert [event.body for event in await store.events()] == [b"whole"] * 3


async def test_put_beside_the_claim_of_another_handler(store: events.SqliteStore) -> None:
    """A delivery for another handler is stored as its copy, and its event is not new."""
    await store.claim(delivery("a", body=None, handler="one"), lease=10)

    found = await asyncio.gather(*(store.put(delivery(key, handler="two")) for key in ("b", "a")))

    assert found == [True, False]
    assert sorted((event.key, event.handler) for event in await store.events()) == [
        ("a", "one"), ("a", "two"), ("b", "two"),
    ]  # fmt: skip


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


async def test_puts_of_which_one_cannot_be_stored(store: events.SqliteStore) -> None:
    """It fails alone."""
    for number, unfit in enumerate((
        Delivery(key="unfit", type=None, body=b""),  # type: ignore[arg-type]
        Delivery(key="unfit", type=object(), body=b""),  # type: ignore[arg-type]
        Delivery(key="unfit", type="", body="text"),  # type: ignore[arg-type]
    )):  # fmt: skip
        given = (delivery(f"a{number}"), unfit, delivery(f"b{number}"))
        found = await asyncio.gather(*(store.put(one) for one in given), return_exceptions=True)

        assert [isinstance(one, Exception) for one in found] == [False, True, False]
    assert (await store.counts())["open"] == 6


async def test_many_puts_at_once(store: events.SqliteStore, sizes: list[int]) -> None:
    """They need few statements, and are due in the order in which they came."""
    found = await asyncio.gather(*(store.put(delivery(f"d_{number}")) for number in range(300)))

    assert all(found)
    assert sizes == [256, 44]
    assert [entry.key for entry in await store.take(limit=300, lease=10)] == [f"d_{n}" for n in range(300)]
