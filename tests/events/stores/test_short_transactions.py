"""Work in slices: how large they become, and that deliveries go first."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading

import pytest

from invsvc_async import events
from invsvc_async.events.stores import sqlite
from invsvc_async.events.stores.scripts import in_slices
from invsvc_async.events.stores.sqlite import Upkeep, changes_until_next
from invsvc_async.storage.sqlite_writer import Writer
from tests.events.bodies import delivery, on_thread
from tests.support.waiting import until

pytestmark = pytest.mark.one_python


async def sliced(total: int, cost: float) -> tuple[int, list[int], float]:
    """Work on *total* rows of *cost* seconds each; return the rows, the slices, the time."""
    slices, now = list[int](), asyncio.get_running_loop().time
    left = total

    async def work(rows: int) -> int:
        nonlocal left
        changed = min(rows, left)
        left -= changed
        slices.append(rows)
        await asyncio.sleep(changed * cost)  # sleeps: in virtual time, or of no time
        return changed

    started = now()
    return await in_slices(work, seconds=0.1), slices, now() - started


@pytest.mark.loop_time
async def test_slices_on_a_slow_disk() -> None:
    """They shrink until each takes its time, down to a few rows, and half of the time is left to others."""
    done, slices, took = await sliced(80, 0.125)

    assert done == 80
    assert slices == [20, 10, 10, 10, 10, 10, 10, 10]
    assert took > 1.9 * 80 * 0.125
    assert (await sliced(60, 0.006))[1] == [20, 16, 16, 16]


@pytest.mark.loop_time
async def test_slices_on_a_fast_disk() -> None:
    """They grow step by step up to their time, or the most rows."""
    done, slices, _ = await sliced(20_000, 0.0)

    assert done == 20_000
    assert slices[:8] == [20, 40, 80, 160, 320, 640, 1280, 2000]
    assert max((await sliced(5_000, 0.001))[1]) <= 120


@pytest.mark.loop_time
async def test_slices_of_nothing() -> None:
    """It is looked once."""
    assert (await sliced(0, 1.0))[:2] == (0, [20])


async def test_deliveries_that_wait_go_before_a_slice(tmp_path) -> None:
    """A delivery that comes while another is being stored does not share its transaction with a prune."""
    now = 0.0
    store = events.SqliteStore(tmp_path / "events.db", steady=lambda: now)
    await asyncio.gather(
        *(
            store.claim(delivery(f"d_{number}", body=None), lease=1)
            for number in range(5)
        )
    )
    now = 100.0
    entered, let_go = threading.Event(), threading.Event()

    def block(_: sqlite3.Connection) -> None:
        entered.set()
        let_go.wait()

    def claims(db: sqlite3.Connection) -> int:
        found: int = db.execute("SELECT count(*) FROM delivery").fetchone()[0]
        return found

    busy = asyncio.create_task(on_thread(store, block))
    await asyncio.to_thread(entered.wait, 30)
    pruning = asyncio.create_task(store.prune(older_than=1))
    await asyncio.sleep(0)
    looking = asyncio.create_task(on_thread(store, claims))
    await asyncio.sleep(0)
    let_go.set()
    await busy

    assert await looking == 5
    await pruning
    assert await on_thread(store, claims) == 0
    await store.close()


async def test_prune_under_endless_load(tmp_path, monkeypatch) -> None:
    """It waits only for some time: a store that is never idle is pruned too."""
    monkeypatch.setattr("invsvc_async.events.stores.sqlite._PATIENCE", 2)
    store = events.SqliteStore(tmp_path / "events.db", clock=lambda: 0.0)
    await store.put(delivery("old"))
    await store.handled((await store.take(limit=1, lease=10))[0])
    # reaches: a writer that is never idle
    monkeypatch.setattr(Writer, "is_idle", property(lambda _: False))

    async with asyncio.timeout(300):
        assert await store.prune(older_than=-1) == 1
    await store.close()


async def test_log_is_copied_beside_deliveries(tmp_path) -> None:
    """After some hundred changes the file has them, and no commit had to copy them."""
    path = tmp_path / "events.db"
    store = events.SqliteStore(path)
    await store.open()
    before = path.stat().st_size
    [pages] = await on_thread(
        store, lambda db: db.execute("PRAGMA wal_autocheckpoint").fetchone()
    )

    await asyncio.gather(*(store.put(delivery(f"d_{number}")) for number in range(300)))

    assert pages == 8_000
    await until(lambda: path.stat().st_size != before)
    await store.close()
    assert not [
        thread for thread in threading.enumerate() if "upkeep of" in thread.name
    ]


@pytest.mark.parametrize(
    ("changes", "pages", "wanted"),
    [
        (250, 1_000, 250),
        (250, 500, 500),
        (250, 0, 500),
        (3_000, 10, 4_000),
        (4_000, 2_000, 2_000),
        (500, 8_000, 250),
    ],
)
def test_changes_until_the_log_is_copied(changes: int, pages: int, wanted: int) -> None:
    """As many as make a log of 1,000 pages: fewer commits of many changes have fewer pages."""
    assert changes_until_next(changes, pages) == wanted


async def test_log_that_cannot_be_copied(tmp_path, caplog, monkeypatch) -> None:
    """That is said, and stops nobody: commits copy it from the limit on."""
    store = events.SqliteStore(tmp_path / "events.db")
    await store.open()
    await store.close()
    db = sqlite3.connect(tmp_path / "events.db")
    monkeypatch.setattr(
        sqlite,
        "connect_again",
        lambda _: sqlite3.connect(tmp_path / "none" / "events.db"),
    )
    upkeep = Upkeep(str(tmp_path / "events.db"), "store")
    with caplog.at_level(logging.WARNING, "invsvc_async.events"):
        upkeep.start(db)
        await until(lambda: caplog.text)

    await upkeep.stop()
    assert "upkeep of store: the file cannot be opened" in caplog.text
    db.close()
