"""What every store must do, held against all three; then what only a file or a server can suffer."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import signal
import sqlite3
import sys
import threading
import traceback
import warnings
from asyncio.subprocess import PIPE
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from invsvc_async import events
from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.events import Delivery, Standing
from invsvc_async.events.stores import Entry, HandlerStore, Store, open_store, sqlite
from invsvc_async.events.stores.sqlite import Upkeep
from invsvc_async.storage import sqlite_file
from tests.events.bodies import delivery, on_thread
from tests.support.database import connected
from tests.support.forks import forks, in_child
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.one_python


async def claimed(store: Store, given: Delivery, lease: float = 10.0) -> Entry:
    entry = await store.claim(given, lease=lease)
    assert isinstance(entry, Entry), entry
    return entry


async def test_store_is_a_store(kept) -> None:
    """Each kind keeps to the protocol, and opening or closing again is harmless."""
    assert isinstance(kept.store, HandlerStore)
    await kept.store.open()
    await kept.store.open()
    await kept.store.put(delivery())
    await kept.store.close()
    await kept.store.close()
    assert (await kept.store.counts())["open"] == 1


async def test_put_of_a_known_key(kept) -> None:
    """One key is kept once, before and after it was handled."""
    assert await kept.store.put(delivery())
    assert not await kept.store.put(delivery())
    (entry,) = await kept.store.take(limit=10, lease=10)
    assert not await kept.store.put(delivery())
    assert await kept.store.handled(entry)
    assert not await kept.store.put(delivery())
    assert await kept.store.counts() == {"open": 0, "handled": 1, "dead": 0}


async def test_take_in_order_and_within_the_limit(kept) -> None:
    """Events are handed out oldest first, whole, and each once."""
    for number in range(5):
        await kept.store.put(Delivery(key=f"d_{number}", type="t", body=b"%d" % number))
        await kept.pass_time(1)

    first = await kept.store.take(limit=3, lease=10)
    rest = await kept.store.take(limit=3, lease=10)

    assert [entry.body for entry in first] == [b"0", b"1", b"2"]
    assert [entry.body for entry in rest] == [b"3", b"4"]
    assert await kept.store.take(limit=3, lease=10) == []
    assert {entry.attempts for entry in first} == {1}
    assert len({(entry.id, entry.token) for entry in first}) == 3


async def test_lease_that_ran_out(kept) -> None:
    """The event of a holder that died is handed out anew, and the dead holder's word counts no more."""
    await kept.store.put(delivery())
    (dead,) = await kept.store.take(limit=1, lease=10)
    await kept.pass_time(9)
    assert await kept.store.take(limit=1, lease=10) == []
    await kept.pass_time(2)

    (alive,) = await kept.store.take(limit=1, lease=10)

    assert alive.attempts == 2
    assert not await kept.store.handled(dead)
    assert not await kept.store.release(dead, delay=0)
    assert not await kept.store.bury(dead, reason="x")
    assert await kept.store.handled(alive)
    assert not await kept.store.handled(alive)


async def test_lease_that_ran_out_and_nobody_took(kept) -> None:
    """A late holder loses nothing while no other worker has leased the event."""
    entry = await claimed(kept.store, delivery())
    await kept.pass_time(60)

    assert await kept.store.handled(entry)


@pytest.mark.parametrize("body", [None, b"{}"])
async def test_claim_while_it_is_held(kept, body: bytes | None) -> None:
    """A second claim waits: for the sender if the store has no body, for a worker if it has."""
    await claimed(kept.store, delivery(body=body))

    again = await kept.store.claim(delivery(body=body), lease=10)

    assert again is (Standing.BUSY if body is None else Standing.STORED)


async def test_claim_of_a_handled_event(kept) -> None:
    """A handled event is not given again."""
    entry = await claimed(kept.store, delivery(body=None))
    await kept.store.handled(entry)
    await kept.pass_time(3600)

    assert await kept.store.claim(delivery(body=None), lease=10) is Standing.HANDLED


async def test_claim_after_a_release(kept) -> None:
    """An event that was given back can be claimed at once, and the first holder's word counts no more."""
    entry = await claimed(kept.store, delivery(body=None))
    assert await kept.store.release(entry, delay=0)

    again = await claimed(kept.store, delivery(body=None))

    assert again.token != entry.token
    assert not await kept.store.handled(entry)
    assert not await kept.store.release(entry, delay=0)
    assert await kept.store.handled(again)


async def test_claim_without_a_body(kept) -> None:
    """A worker does not get events that the sender sends again."""
    await claimed(kept.store, delivery(body=None))
    await kept.pass_time(3600)

    assert await kept.store.take(limit=10, lease=10) == []
    assert await kept.store.put(delivery()) is False
    (entry,) = await kept.store.take(limit=10, lease=10)
    assert entry.body == b"{}"


async def test_claim_that_its_sender_gives_up(kept) -> None:
    """What was given back without a body, or died with its holder, does not stay for ever."""
    given_back = await claimed(kept.store, delivery("failed", body=None))
    await claimed(kept.store, delivery("died", body=None))
    await claimed(kept.store, delivery("whole"))

    assert await kept.store.release(given_back, delay=60)
    assert (await kept.store.counts())["open"] == 2
    await kept.pass_time(3600)
    assert await kept.store.prune(older_than=1800) == 0

    assert (await kept.store.counts())["open"] == 1
    assert [entry.key for entry in await kept.store.take(limit=9, lease=10)] == [
        "whole"
    ]


async def test_claim_without_a_body_that_became_whole(kept) -> None:
    """A body that came while a claim was held is not forgotten with it."""
    entry = await claimed(kept.store, delivery(body=None))
    await kept.store.put(delivery())

    assert await kept.store.release(entry, delay=0)

    (again,) = await kept.store.take(limit=9, lease=10)
    assert (again.body, again.attempts) == (b"{}", 2)


async def test_claim_without_a_key(kept) -> None:
    """Each claim without a key is an event of its own."""
    first = await claimed(kept.store, delivery(None))
    second = await claimed(kept.store, delivery(None))

    assert first.id != second.id


async def test_release_with_a_delay(kept) -> None:
    """An event that was given back waits for its delay."""
    entry = await claimed(kept.store, delivery())
    await kept.store.release(entry, delay=30)
    await kept.pass_time(29)
    assert await kept.store.take(limit=1, lease=10) == []
    assert await kept.store.claim(delivery(), lease=10) is Standing.STORED
    await kept.pass_time(2)

    (again,) = await kept.store.take(limit=1, lease=10)

    assert again.attempts == 2


async def test_dead_letters(kept) -> None:
    """A dead letter is listed whole, is no duplicate's way in, and can be revived once."""
    await kept.store.put(delivery())
    (entry,) = await kept.store.take(limit=1, lease=10)
    assert await kept.store.bury(entry, reason="why")
    assert await kept.store.bury(
        Delivery(key=None, type="", body=b"\xff"), reason="unreadable"
    )

    letters = await kept.store.events(state="dead")

    assert [
        (found.key, found.type, found.body, found.reason, found.attempts)
        for found in letters
    ] == [
        ("d_1", "invoice.created", b"{}", "why", 1),
        (None, "", b"\xff", "unreadable", 0),
    ]
    assert len(await kept.store.events(state="dead", limit=1)) == 1
    assert letters[0].received_at > 900_000
    assert not await kept.store.put(delivery())
    assert await kept.store.claim(delivery(), lease=10) is Standing.HANDLED
    assert await kept.store.revive(letters[0])
    assert not await kept.store.revive(letters[0])
    (again,) = await kept.store.take(limit=10, lease=10)
    assert (again.key, again.attempts) == ("d_1", 1)
    assert await kept.store.counts() == {"open": 1, "handled": 0, "dead": 1}


async def test_prune(kept) -> None:
    """Only what was handled long ago is forgotten, and then is new again."""
    for key in ("old", "open", "dead", "new"):
        entry = await claimed(kept.store, delivery(key))
        if key == "dead":
            await kept.store.bury(entry, reason="x")
        elif key != "open":
            await kept.store.handled(entry)
        if key == "dead":
            await kept.pass_time(3600)

    assert await kept.store.prune(older_than=1800) == 1
    assert await kept.store.counts() == {"open": 1, "handled": 1, "dead": 1}
    assert await kept.store.put(delivery("old"))


async def test_takes_at_the_same_time(kept) -> None:
    """Many workers do not get the same event."""
    for number in range(60):
        await kept.store.put(delivery(f"d_{number}"))

    found = await asyncio.gather(
        *(kept.store.take(limit=5, lease=60) for _ in range(20))
    )

    keys = [entry.key for entries in found for entry in entries]
    assert sorted(keys) == sorted(f"d_{number}" for number in range(60))


async def test_memory_that_is_full() -> None:
    """Handled events are deleted to make room, oldest first; waiting ones are not."""
    store = events.MemoryStore(capacity=3)
    for key in ("a", "b"):
        await store.handled(await claimed(store, delivery(key)))
    await store.put(delivery("waits"))

    assert await store.put(delivery("c"))
    assert await store.claim(delivery("b"), lease=1) is Standing.HANDLED
    assert await store.put(delivery("a"))
    with pytest.raises(JournalError, match="3 events wait"):
        await store.put(delivery("e"))


async def test_memory_of_claims_that_all_fail() -> None:
    """Events that are released again and again do not fill the store."""
    store = events.MemoryStore(capacity=3)

    for number in range(10):
        assert await store.release(
            await claimed(store, delivery(f"d_{number}", body=None)), delay=0
        )

    assert await store.put(delivery())


@pytest.mark.parametrize("step", [1e6, -1e6])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_lease_while_the_calendar_is_set(
    tmp_path, kind: str, step: float
) -> None:
    """Setting the wall clock neither ends nor prolongs a lease."""
    calendar, steady = [1_000_000.0], [500.0]
    clocks: Any = {"clock": lambda: calendar[0], "steady": lambda: steady[0]}
    made = events.SqliteStore(tmp_path / "events.db", **clocks)
    store: Store = events.MemoryStore(**clocks) if kind == "memory" else made
    await store.put(delivery())
    await claimed(store, delivery("claimed", body=None))
    (entry,) = await store.take(limit=1, lease=10)

    calendar[0] += step

    assert await store.take(limit=1, lease=10) == []
    assert await store.claim(delivery("claimed", body=None), lease=10) is Standing.BUSY
    steady[0] += 11
    (again,) = await store.take(limit=1, lease=10)
    assert (again.id, again.attempts) == (entry.id, 2)
    await claimed(store, delivery("claimed", body=None))
    await store.close()


async def test_sqlite_lease_of_before_the_machine_was_started_anew(
    tmp_path, monkeypatch
) -> None:
    """The steady clock then begins anew: what was held is free at once, and nothing waits for old times."""
    steady = [900_000.0]
    before = events.SqliteStore(tmp_path / "events.db", steady=lambda: steady[0])
    await before.put(delivery())
    await before.take(limit=1, lease=3600)
    await claimed(before, delivery("claimed", body=None), lease=3600)
    await before.close()
    # opened again in the same run of the machine
    assert await before.take(limit=9, lease=10) == []
    await before.close()

    monkeypatch.setattr(sqlite_file, "boot", lambda: "the next run of the machine")
    steady[0] = 30.0
    after = events.SqliteStore(tmp_path / "events.db", steady=lambda: steady[0])

    (entry,) = await after.take(limit=9, lease=10)
    assert (entry.key, entry.attempts) == ("d_1", 2)
    await claimed(after, delivery("claimed", body=None))
    assert await after.take(limit=9, lease=10) == []
    await after.close()


async def test_memory_under_a_long_load() -> None:
    """However many events pass, no part of the store grows beyond its bound."""
    store = events.MemoryStore(capacity=50)
    for number in range(2000):
        await store.handled(await claimed(store, delivery(f"d_{number}")))

    parts = vars(store._records).values()
    sizes = [len(part) for part in parts if hasattr(part, "__len__")]
    assert max(sizes) <= 200


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_many_that_make_one_store_at_once(
    tmp_path, postgres: str, kind: str
) -> None:
    """They share its file or table, and each event is given once."""
    stores: list[Any] = [
        events.SqliteStore(tmp_path / "events.db")
        if kind == "sqlite"
        else events.PostgresStore(postgres, table="many")
        for _ in range(8)
    ]

    found = await asyncio.gather(
        *(store.claim(delivery(body=None), lease=60) for store in stores)
    )

    assert Counter(type(one) for one in found) == {Entry: 1, Standing: 7}
    await asyncio.gather(*(store.close() for store in stores))


async def _touch(path) -> None:
    store = events.SqliteStore(path)
    await store.open()
    await store.close()


def _with(statement: str, *, made: bool = True) -> Callable[[Path], None]:
    """Return what makes a file, of a store or of nobody, and runs *statement* in it."""

    def spoil(path: Path) -> None:
        if made:
            asyncio.run(_touch(path))
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(statement)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_with("CREATE TABLE theirs (a)", made=False), "a file of their own"),
        (
            _with("UPDATE facts SET value = 99 WHERE name = 'schema'"),
            "its tables have version 99",
        ),
        (_with("DROP TABLE facts"), "its tables have no version"),
        (
            lambda path: path.write_bytes(
                b"not a database, but long enough to be looked at" * 10
            ),
            "not a SQLite database",
        ),
        (lambda path: path.mkdir(), "it is a folder"),
        (lambda path: path.symlink_to(path.parent / "no" / "such"), "cannot be opened"),
    ],
)
def test_sqlite_file_that_cannot_be_used(tmp_path, spoil, words: str) -> None:
    """Each raises JournalError when the store is opened, and the file is unchanged."""
    path = tmp_path / "events.db"
    spoil(path)
    before = path.read_bytes() if path.is_file() else None

    with pytest.raises(JournalError, match=words):
        asyncio.run(_touch(path))

    assert (path.read_bytes() if path.is_file() else None) == before


async def test_sqlite_file_that_another_holds(tmp_path) -> None:
    """A file that is locked too long raises JournalError, and works again afterwards."""
    store = events.SqliteStore(tmp_path / "events.db", wait=0.05)
    await store.open()
    other = sqlite3.connect(tmp_path / "events.db")
    other.execute("BEGIN EXCLUSIVE")

    with pytest.raises(JournalError, match="another connection"):
        await store.put(delivery())

    other.rollback()
    other.close()
    assert await store.put(delivery())
    await store.close()


RECOVERING = """
import fcntl, sys
with open(sys.argv[1], "r+b") as index:
    fcntl.lockf(index, fcntl.LOCK_EX, 3, 120)  # to write, copy and recover the log
    index.write(bytes(96))  # its header, as a killed process may leave it
    index.flush()
    print(flush=True)
    sys.stdin.readline()
"""


@pytest.mark.untraced
@pytest.mark.skipif(
    sys.platform != "linux", reason="it locks the file as SQLite does there"
)
async def test_sqlite_log_that_another_recovers(tmp_path) -> None:
    """After a kill, the next process recovers the log: a delivery waits for it, as for any lock."""
    store = events.SqliteStore(tmp_path / "events.db", wait=60)
    await store.put(delivery())
    other = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        RECOVERING,
        str(tmp_path / "events.db-shm"),
        stdin=PIPE,
        stdout=PIPE,
    )
    assert other.stdin is not None
    assert other.stdout is not None
    await other.stdout.readline()
    putting = asyncio.create_task(store.put(delivery("new")))
    await asyncio.wait({putting}, timeout=0.05)
    other.stdin.write(b"\n")

    assert await putting
    await other.communicate()
    await store.close()


async def test_sqlite_file_that_another_makes_at_this_moment(tmp_path) -> None:
    """Opening waits for a process that locks the new file, and raises JournalError if that takes too long."""
    path = tmp_path / "events.db"
    other = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    impatient = events.SqliteStore(path, wait=0.05)
    with pytest.raises(JournalError, match="another connection"):
        await impatient.open()
    patient = events.SqliteStore(path)
    opening = asyncio.create_task(patient.open())
    await asyncio.sleep(0.05)  # sleeps: so that it meets the lock; nothing tells
    other.execute("COMMIT")
    other.close()

    await opening

    assert await patient.put(delivery())
    assert "events.db" in repr(patient)
    await patient.close()
    await impatient.close()


async def test_sqlite_store_that_is_closed_under_load(
    store: events.SqliteStore,
) -> None:
    """What was asked for before the end is done before the end."""
    puts = [
        asyncio.create_task(store.put(delivery(f"d_{number}"))) for number in range(600)
    ]
    await asyncio.sleep(0)

    await store.close()

    assert all([await task for task in puts])
    assert (await store.counts())["open"] == 600


def test_sqlite_loop_that_ended_first(tmp_path) -> None:
    """A loop that is gone before its work is done breaks nothing."""
    store = events.SqliteStore(tmp_path / "events.db")

    async def leave() -> None:
        task = asyncio.create_task(store.put(delivery()))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(leave())

    async def come_back() -> int:
        found = (await store.counts())["open"]
        await store.close()
        return found

    assert asyncio.run(come_back()) == 1


async def test_sqlite_two_loops_at_once(store: events.SqliteStore) -> None:
    """A second event loop in another thread may use the store too, and close it for itself."""
    assert await store.put(delivery("here"))

    async def elsewhere() -> list[bool]:
        found = [await store.put(delivery(key)) for key in ("here", "there")]
        await store.close()
        return found

    assert await asyncio.to_thread(asyncio.run, elsewhere()) == [False, True]
    assert (await store.counts())["open"] == 2


async def test_sqlite_page_that_is_damaged(store: events.SqliteStore, tmp_path) -> None:
    """A damaged page raises JournalError."""
    path = tmp_path / "events.db"
    for number in range(50):
        await store.put(delivery(f"d_{number}", body=b"x" * 2000))
    await store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))

    with pytest.raises(JournalError, match="damaged"):
        await store.take(limit=50, lease=10)


async def test_postgres_connection_that_breaks(postgres: str) -> None:
    """A connection that the server ends costs one piece of work at most."""
    store = events.PostgresStore(postgres, table="breaking", connections=1)
    await store.put(delivery("a"))
    [[number]] = await (await store._database.opened()).pool.fetch(
        "SELECT pg_backend_pid()"
    )
    async with connected() as other:
        await other.execute("SELECT pg_terminate_backend($1)", number)

    try:
        await store.put(delivery("b"))
    except JournalError:
        assert await store.put(delivery("b"))

    assert (await store.counts())["open"] == 2
    await store.close()


async def test_postgres_that_has_no_connection_left(own_postgres: str) -> None:
    """Deliveries wait for the connections that there are: one that is refused may not be sent again."""
    async with connected(own_postgres) as owner:
        await owner.execute(
            "CREATE ROLE few LOGIN CONNECTION LIMIT 2; GRANT ALL ON SCHEMA public TO few"
        )
        dsn = own_postgres.replace(f"//{urlsplit(own_postgres).username}:@", "//few@")
        store = events.PostgresStore(dsn, table="few")
        (await store._database.opened()).pool.patience = 60.0  # on a busy machine, too

        claims = await asyncio.gather(
            *(store.claim(delivery(str(number)), lease=60) for number in range(30)),
            return_exceptions=True,
        )

        assert {type(claim) for claim in claims} == {Entry}
        await store.close()
        await owner.execute("DROP OWNED BY few; DROP ROLE few")


async def test_postgres_store_that_is_closed_in_use(postgres: str) -> None:
    """Closing waits for a connection in use no longer than a statement may take."""
    store = events.PostgresStore(postgres, table="closing")
    await store.open()
    pool = (await store._database.opened()).pool
    is_closed = asyncio.Event()

    async def act(connection) -> None:
        pool.patience = 0.2
        await store.close()
        is_closed.set()
        await connection.fetch("SELECT 1")

    async with asyncio.timeout(300):
        with pytest.raises(JournalError):
            await pool.ask(act)

    assert is_closed.is_set()
    assert (await store.counts())["open"] == 0
    await store.close()


def test_postgres_loop_that_ended_first(postgres: str) -> None:
    """A store that was not closed can be used in the next event loop, and by several at once."""
    store = events.PostgresStore(postgres, table="loops")

    async def here(key: str) -> bool:
        return await store.put(delivery(key))

    async def both() -> list[bool]:
        found = [
            await here("c"),
            await asyncio.to_thread(asyncio.run, here("d")),
            await here("d"),
        ]
        await store.close()
        return found

    with warnings.catch_warnings():
        # of connections whose loop was closed
        warnings.simplefilter("ignore", ResourceWarning)
        found = [asyncio.run(here(key)) for key in ("a", "a", "b")]
        assert asyncio.run(both()) == [True, True, False]
        gc.collect()
    assert found == [True, False, True]


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ("'invsvc_async events, schema 99'", "its tables have version 99"),
        ("'invsvc_async events, version 1'", "its tables have no version"),
        ("'theirs'", "another program"),
        ("NULL", "another program"),
    ],
)
async def test_postgres_table_of_another_version(
    postgres: str, mark: str, words: str
) -> None:
    """A table of a newer version, or of another program, is not changed."""
    store = events.PostgresStore(postgres, table="other")
    await store.open()
    await (await store._database.opened()).pool.fetch(
        f"COMMENT ON TABLE other IS {mark}"
    )
    await store.close()

    with pytest.raises(JournalError, match=words):
        await store.put(delivery())

    async with connected() as other:
        await other.execute("DROP TABLE other")


async def test_postgres_without_its_driver(monkeypatch) -> None:
    """The extra that is missing is named."""
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    monkeypatch.delitem(
        sys.modules, "invsvc_async.storage.postgres_pool", raising=False
    )

    with pytest.raises(ConfigurationError, match="its extra 'postgres'"):
        await events.PostgresStore("postgresql://h/d").open()


@pytest.mark.parametrize("name", ["", "a b", "x;drop table y", "Ä", "1a", "a" * 49])
def test_postgres_table_of_a_bad_name(name: str) -> None:
    """A name that would need quoting is refused."""
    with pytest.raises(ConfigurationError):
        events.PostgresStore("postgresql://", table=name)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("postgresql://h/d", "PostgresStore"),
        ("postgres://h/d", "PostgresStore"),
        ("var/x.db", "SqliteStore"),
    ],
)
def test_store_by_its_address(address: str, kind: str) -> None:
    """The address tells the kind."""
    assert type(open_store(address)).__name__ == kind


async def test_sqlite_clocks_are_read_under_the_lock(tmp_path) -> None:
    """No clock is read while another process could still write what it is compared with."""
    path = tmp_path / "events.db"
    other = sqlite3.connect(
        path, timeout=0, isolation_level=None, check_same_thread=False
    )
    unlocked: list[str] = []

    def clock() -> float:
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return 1000.0
        other.execute("ROLLBACK")
        unlocked.append("".join(traceback.format_stack(limit=3)))
        return 1000.0

    store = events.SqliteStore(path, clock=clock, steady=clock)
    await store.open()
    await store.put(delivery("a"))
    (entry,) = await store.take(limit=1, lease=10)
    await store.release(entry, delay=0)
    await store.handled(await claimed(store, delivery("b")))
    await store.bury(delivery("c"), reason="x")
    await store.revive((await store.events(state="dead"))[0])
    await store.prune(older_than=10)
    await store.close()
    other.close()

    assert unlocked == []


async def test_postgres_lease_that_waits_for_a_lock(postgres: str) -> None:
    """A claim that waited for a locked row has its whole lease, from when it got the row."""
    store = events.PostgresStore(postgres, table="waited")
    await claimed(store, delivery(body=None), lease=0)
    async with connected() as other, connected() as watch:
        await other.execute("BEGIN; SELECT id FROM waited FOR UPDATE")
        claiming = asyncio.create_task(store.claim(delivery(body=None), lease=60))
        await until(
            lambda: watch.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")
        )
        unlocked = await watch.fetchval("SELECT date_part('epoch', clock_timestamp())")
        await other.execute("ROLLBACK")

        assert isinstance(await claiming, Entry)
        assert await watch.fetchval("SELECT due - 60 >= $1 FROM waited", unlocked)
    await store.close()


@pytest.fixture
def slices_of_three(monkeypatch) -> None:
    """Let no transaction delete more than three rows."""
    for name in ("_FIRST_ROWS", "_LEAST_ROWS", "_MOST_ROWS"):
        # reaches: a bound of rows, or it would need thousands
        monkeypatch.setattr(f"invsvc_async.events.stores.scripts.{name}", 3)


@pytest.mark.usefixtures("slices_of_three")
async def test_prune_of_more_than_a_slice(kept) -> None:
    """All that is old is deleted, however many slices it takes, and deliveries get in between."""
    for number in range(20):
        entry = await claimed(kept.store, delivery(f"d_{number}"))
        await kept.store.handled(entry)
        await claimed(kept.store, delivery(f"abandoned_{number}", body=None))
    await kept.pass_time(3600)
    pruning = asyncio.create_task(kept.store.prune(older_than=1800))
    statements = [
        asyncio.create_task(kept.store.put(delivery(f"new_{number}")))
        for number in range(3)
    ]

    assert await asyncio.gather(*statements) == [True] * 3
    assert await pruning == 20
    assert await kept.store.counts() == {"open": 3, "handled": 0, "dead": 0}


@pytest.mark.usefixtures("slices_of_three")
async def test_sqlite_prune_holds_the_lock_for_a_slice_only(tmp_path) -> None:
    """No transaction of prune deletes more than a slice."""
    store = events.SqliteStore(tmp_path / "events.db", clock=lambda: 0.0)
    for number in range(10):
        await store.handled(await claimed(store, delivery(f"d_{number}")))
    changes: list[int] = []

    def count(db: sqlite3.Connection) -> int:
        changes.append(db.total_changes)
        return 0

    pruning = asyncio.create_task(store.prune(older_than=-1))
    while not pruning.done():
        await on_thread(store, count)
    await store.close()

    assert await pruning == 10
    assert max(after - before for before, after in itertools.pairwise(changes)) <= 3


@pytest.mark.parametrize("small", [0, 1 << 20])
async def test_sqlite_index_that_is_damaged(
    store: events.SqliteStore, tmp_path, monkeypatch, small: int
) -> None:
    """Damage is found: at once in a small file, beside the deliveries in a large one."""
    monkeypatch.setattr("invsvc_async.events.stores.sqlite._SMALL", small)
    await store.put(delivery())
    await store.close()
    db = sqlite3.connect(tmp_path / "events.db")
    db.execute("PRAGMA writable_schema = ON")
    db.execute(
        "UPDATE sqlite_master SET sql = replace(sql, \"state = 'dead'\", \"state = 'open'\")"
    )
    db.execute(
        "UPDATE facts SET value = 'in an earlier run of the machine' WHERE name = 'checked'"
    )
    db.commit()
    db.close()

    with pytest.raises(JournalError, match="damaged"):
        await store.open()
        while not small:  # a slow machine may find it later
            await store.open()
    with pytest.raises(JournalError, match="damaged"):
        await store.put(delivery("new"))


@pytest.mark.skipif(
    os.name == "nt", reason="a file that is open cannot be deleted there"
)
@pytest.mark.parametrize("how", ["deleted", "replaced", "emptied"])
async def test_sqlite_file_that_is_deleted_in_use(
    store: events.SqliteStore, tmp_path, monkeypatch, how: str
) -> None:
    """What would be stored in it would be lost: each call says so, and no other file is made."""
    monkeypatch.setattr("invsvc_async.storage.sqlite_file._LOOK_EVERY", 0.0)
    path, copy = tmp_path / "events.db", tmp_path / "copy.db"
    await store.put(delivery())
    if how == "emptied":
        os.truncate(path, 0)
    else:
        with (
            closing(sqlite3.connect(path)) as db,
            closing(sqlite3.connect(copy)) as other,
        ):
            db.backup(other)
        for found in tmp_path.glob("events.db*"):
            found.unlink()
    if how == "replaced":
        copy.rename(path)

    for call in (
        store.put(delivery("new")),
        store.backlog(),
        store.take(limit=1, lease=1),
    ):
        with pytest.raises(JournalError, match="emptied, deleted or replaced"):
            await call
    assert path.exists() == (how != "deleted")
    await store.close()
    if how != "emptied":
        assert (await store.counts())["open"] == (how == "replaced")


@pytest.mark.parametrize("small", [-1, 1 << 20])
async def test_thread_that_starts_after_the_file_was_deleted(
    tmp_path, monkeypatch, small
):
    """It makes no other file, which a receiver that starts later would take for the store."""
    monkeypatch.setattr("invsvc_async.events.stores.sqlite._SMALL", small)
    path = tmp_path / "events.db"
    store = events.SqliteStore(path)
    await store.open()
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("SELECT * FROM facts").fetchall()
        monkeypatch.setattr(sqlite, "opened_as", lambda _: path.unlink() or "anew")
        thread = Upkeep(str(path), "events.db")
        thread.start(db)
        await thread.stop()
    assert not path.exists()


async def test_sqlite_file_of_a_process_that_changes_its_folder(
    tmp_path, monkeypatch
) -> None:
    """It stays the same file, by whatever name it was opened."""
    monkeypatch.setattr("invsvc_async.storage.sqlite_file._LOOK_EVERY", 0.0)
    monkeypatch.chdir(tmp_path)
    store = events.SqliteStore("events.db")
    await store.put(delivery())
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")

    assert not await store.put(delivery())
    assert (await store.counts())["open"] == 1
    assert not list((tmp_path / "other").iterdir())
    await store.close()


async def test_sqlite_check_that_cannot_be_completed(
    store: events.SqliteStore, tmp_path, monkeypatch, caplog
) -> None:
    """It says nothing of the file: deliveries are stored, and the check is repeated."""
    checks: list[str] = []
    completed = threading.Event()

    def check(_: sqlite3.Connection, name: str, _stops: object = None) -> None:
        checks.append(name)
        if len(checks) == 1:
            sqlite3.connect(tmp_path / "no" / "events.db")
        completed.set()

    monkeypatch.setattr("invsvc_async.events.stores.sqlite.check_file", check)
    monkeypatch.setattr("invsvc_async.events.stores.sqlite._SMALL", 0)
    monkeypatch.setattr("invsvc_async.events.stores.sqlite._AGAIN", 0.01)
    await store.open()
    assert await asyncio.to_thread(completed.wait, 30)

    assert await store.put(delivery())
    assert len(checks) == 2
    assert "the file cannot be opened" in caplog.text


async def test_sqlite_opening_does_not_wait_for_the_check(
    tmp_path, monkeypatch
) -> None:
    """Deliveries are stored while the file is checked, and closing ends the check."""
    checking, let_go = threading.Event(), threading.Event()

    def check(db: sqlite3.Connection, name: str, _stops: object = None) -> None:
        checking.set()
        let_go.wait()
        db.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
        )

    monkeypatch.setattr("invsvc_async.events.stores.sqlite.check_file", check)
    monkeypatch.setattr("invsvc_async.events.stores.sqlite._SMALL", 0)
    store = events.SqliteStore(tmp_path / "events.db")
    await store.open()

    assert await store.put(delivery())
    assert await asyncio.to_thread(checking.wait, 30)
    let_go.set()
    await store.close()
    assert not [
        thread for thread in threading.enumerate() if "upkeep of" in thread.name
    ]


@forks
def test_store_in_a_process_that_was_forked_while_another_was_created(tmp_path):
    """A thread of the parent that has the lock on creating files is not in the child."""

    async def opened() -> None:
        store = events.SqliteStore(str(tmp_path / "events.db"))
        await store.open()
        await store.close()

    def open_it() -> str:
        signal.alarm(30)  # ends the child
        asyncio.run(opened())
        return "opened"

    with sqlite._creating:  # reaches: as another thread, within one call of the system
        assert in_child(open_it) == "opened"
