"""The outbox in a file of SQLite: the application's transactions, one process that sends, and kills."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import sys
import threading
from contextlib import closing

import aiosqlite
import pytest

from invsvc_async import (
    ApiKey,
    Client,
    InvalidRequestError,
    JournalError,
    Outbox,
    Verdict,
)
from invsvc_async.simulator import Simulator
from tests.batch.conftest import client_of
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
from tests.support.inside import outbox_entries
from tests.support.waiting import cancel, until, until_no

PROGRAM = """
import asyncio, sys
import aiosqlite
from invsvc_async import ApiKey, Client, Outbox, ReconcilePolicy, Timeouts
POLICY = ReconcilePolicy(settle_after_error=0.1, settle_after_loss=0.2, deadline=30.0)
async def main(url, key, path, *hooks):
    client = Client(url, ApiKey(key), reconcile=POLICY, timeout=Timeouts(attempt=2.0))
    async with client, Outbox.open(path, client) as outbox, aiosqlite.connect(path) as connection:
        async with outbox.dispatching():
            for number, hook in enumerate(hooks):
                await connection.execute("INSERT INTO orders VALUES (?)", (f"order-{number}",))
                await outbox.enqueue(connection, client.webhooks.update(hook, description="x").keyed(f"order-{number}"))
                await (connection.rollback() if number % 3 == 2 else connection.commit())
            await asyncio.sleep(60)
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def path(tmp_path):
    """Return the file of an application."""
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        connection.execute("CREATE TABLE orders (key TEXT PRIMARY KEY)")
        # a name that a journal has too
        connection.execute("CREATE TABLE entries (mine TEXT)")
    return tmp_path / "app.db"


@pytest.fixture
async def outbox(path, client):
    async with Outbox.open(path, client) as opened:
        yield opened


@pytest.fixture
async def connection(path):
    async with aiosqlite.connect(path) as made:
        yield made


async def test_closing_that_is_cancelled(path, client):
    """Both files are closed all the same, so that the outbox can be opened again."""
    begun, may_end = threading.Event(), threading.Event()
    outbox = await Outbox.open(path, client).__aenter__()
    outbox_entries(outbox).file.table.act(lambda _: begun.set() or may_end.wait(30))
    await asyncio.to_thread(begun.wait, 30)
    leaving = asyncio.create_task(outbox.__aexit__(None, None, None))
    await asyncio.sleep(0)
    await cancel(leaving)
    assert leaving.cancelled()
    may_end.set()
    async with Outbox.open(path, client) as again:
        assert await entries_of(again) == []


@pytest.mark.parametrize("times", [2, 3])
async def test_dispatching_that_is_cancelled_again_and_again(
    service, client, path, times
):
    """The file is closed, for its next owner, only once nothing is in flight."""
    service.script("webhooks.update", "hang")

    async def use():
        async with Outbox.open(path, client) as outbox, outbox.dispatching(grace=600):
            await enqueue(outbox, update(client, service))
            await asyncio.Event().wait()

    using = asyncio.create_task(use())
    await service.arrived("webhooks.update", 1)
    for _ in range(times):
        using.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
    await asyncio.wait([using], timeout=300)
    assert using.cancelled()
    names = {task.get_coro().__qualname__ for task in asyncio.all_tasks()}
    assert not [
        name
        for name in names
        if name.startswith(("Engine", "Feeding", "Dispatcher", "Outbox"))
    ]


async def test_opening_that_is_given_up(path, client):
    """It leaves no thread behind that has the application's file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as application:
        application.execute("BEGIN IMMEDIATE")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await Outbox.open(path, client).__aenter__()
    name = f"invsvc outbox {path}"
    await until_no(
        lambda: [each for each in threading.enumerate() if each.name == name]
    )


async def test_application_file_that_is_replaced(service, client, outbox, path, caplog):
    """Its dispatcher would see nothing that is enqueued from now on: that is an error in the log, again and again."""
    copied = shutil.copy(path, path.with_name("restored.db"))
    async with outbox.dispatching():
        await ended(outbox, update(client, service))
        shutil.move(copied, path)
        await until(lambda: "deleted or replaced" in caplog.text)
    with pytest.raises(
        JournalError, match=r"app\.db: the file was emptied, deleted or replaced"
    ):
        await outbox.get("order-1")


async def test_link_to_the_application_file_that_is_changed(client, path, monkeypatch):
    """The application writes to another file from now on, which this outbox does not see: the same error."""
    # reaches: it looks once a second
    monkeypatch.setattr("invsvc_async.storage.sqlite_file._LOOK_EVERY", 0.0)
    link = path.with_name("current.db")
    link.symlink_to(path)
    async with Outbox.open(link, client) as outbox:
        assert await outbox.get("order-1") is None
        link.unlink()
        link.symlink_to(path.with_name("restored.db"))
        with pytest.raises(JournalError, match="deleted or replaced"):
            await outbox.get("order-1")


@pytest.mark.untraced
async def test_killed_process_leaves_nothing_out(service, client, path):
    """Killed while it sends, it leaves the rest to the next one: each committed write is applied once, no other."""
    hooks = [service.seed_webhook().id for _ in range(30)]
    service.script("webhooks.update", "pass", "apply, then hang")
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        service.base_url,
        service.api_key,
        str(path),
        *hooks,
    )
    await service.arrived("webhooks.update", 6)
    child.kill()
    await child.wait()
    async with aiosqlite.connect(path) as connection:
        orders = {
            key async for (key,) in await connection.execute("SELECT key FROM orders")
        }
    async with Outbox.open(path, client) as outbox, outbox.dispatching():
        assert {*await verdicts_of(outbox, orders)} == {Verdict.APPLIED}
    effects = sorted(
        entry.path_id for entry in service.ledger.effects("webhooks.update")
    )
    assert effects == sorted(hooks[int(key.partition("-")[2])] for key in orders)


async def test_another_credential_is_refused(service, client, path):
    """It may have another data mode; with ``same_mode`` the caller says that it has not."""
    async with Outbox.open(path, client):
        pass
    async with client_of(service, credential=ApiKey(service.issue_key())) as rotated:
        with pytest.raises(
            InvalidRequestError, match=r"same_mode=True \(invsvc: --same-mode\)"
        ):
            async with Outbox.open(path, rotated):
                pass
        async with Outbox.open(path, rotated, same_mode=True):
            pass


async def test_write_in_doubt_of_another_mode(service, client, path):
    """One that is done again because it is UNKNOWN stays so where nothing shows that it belongs there."""
    service.script("webhooks.update", "apply, then reset")
    service.script("webhooks.get", "pass", "403")
    async with Outbox.open(path, client) as outbox:
        [key] = await enqueue(outbox, update(client, service))
        async with outbox.dispatching():
            assert (await verdict_of(outbox, key)).verdict is Verdict.UNKNOWN
        assert await outbox.retry(key) == [key]
    other = ApiKey(service.issue_key())
    async with client_of(service, credential=other) as later:
        for same_mode, verdict in ((False, Verdict.UNKNOWN), (True, Verdict.APPLIED)):
            async with Outbox.open(path, later, same_mode=True) as outbox:
                outbox._sending.same_mode = same_mode
                assert await outbox.retry(key) == ([key] if same_mode else [])
                async with outbox.dispatching():
                    assert (await verdict_of(outbox, key)).verdict is verdict
    assert service.arrivals("webhooks.update") == 1


async def test_row_that_was_moved_before_a_kill(
    service, client, outbox, connection, path
):
    """Moved, and not marked so before the process was killed, it is not sent once more."""
    hook = service.seed_webhook().id
    [key] = await enqueue(outbox, update(client, service, hook=hook))
    [(intent,)] = await connection.execute_fetchall("SELECT intent FROM invsvc_outbox")
    async with outbox.dispatching():
        await verdict_of(outbox, key)
        await connection.execute(
            "UPDATE invsvc_outbox SET moved = 0, intent = ?", (intent,)
        )
        await connection.commit()
        await ended(outbox, update(client, service))
        assert (await outbox.get(key)).verdict is Verdict.APPLIED
    assert [entry.path_id for entry in service.ledger.entries].count(hook) == 1
    assert (
        await connection.execute_fetchall("SELECT moved, intent FROM invsvc_outbox")
        == [(1, "")] * 2
    )


async def reuse_key(service, client, outbox, connection):
    """End a write, delete its row alone, as 0.1.0 did before a kill, and enqueue another write under its key."""
    service.script("webhooks.update", "403")
    async with outbox.dispatching():
        assert await ended(
            outbox, update(client, service, "wrong").keyed("order-17")
        ) == [Verdict.REFUSED]
    await connection.execute("DELETE FROM invsvc_outbox")
    await connection.commit()
    await enqueue(outbox, update(client, service, "right").keyed("order-17"))


async def test_kill_while_a_write_is_dropped(service, client, outbox, connection):
    """Its row was deleted, and its verdict not yet: another write under its key is sent all the same."""
    await reuse_key(service, client, outbox, connection)
    async with outbox.dispatching():
        await service.arrived("webhooks.update", 2)
        assert (await verdict_of(outbox, "order-17")).verdict is Verdict.APPLIED
    assert written(service.ledger.effects()) == ["right"]


async def test_prune_after_a_kill_while_a_write_was_pruned(
    service, client, outbox, connection
):
    """Its row was deleted, and its verdict not yet: another write under its key is not deleted with it."""
    await reuse_key(service, client, outbox, connection)
    assert await outbox.prune(older_than=0, unacknowledged=True) == 1
    assert await connection.execute_fetchall("SELECT key FROM invsvc_outbox") == [
        ("order-17",)
    ]
    async with outbox.dispatching():
        assert (await verdict_of(outbox, "order-17")).verdict is Verdict.APPLIED
    assert written(service.ledger.effects()) == ["right"]


async def test_prune_after_a_kill_while_a_write_was_taken_up(
    service, client, outbox, connection
):
    """The journal has its verdict, and its row does not say so: it is deleted from both, and not sent again."""
    [key] = await enqueue(outbox, update(client, service))
    ((intent,),) = await connection.execute_fetchall("SELECT intent FROM invsvc_outbox")
    async with outbox.dispatching():
        await verdict_of(outbox, key)
    await connection.execute(
        "UPDATE invsvc_outbox SET moved = 0, intent = ?", (intent,)
    )
    await connection.commit()
    assert await outbox.prune(older_than=0, unacknowledged=True) == 1
    assert await connection.execute_fetchall("SELECT key FROM invsvc_outbox") == []


async def test_drop_after_a_kill_while_a_write_was_taken_up(
    service, client, outbox, connection
):
    """The journal has the write, and its row does not say so: it is deleted from both, and not sent."""
    [key] = await enqueue(outbox, update(client, service))
    ((intent,),) = await connection.execute_fetchall("SELECT intent FROM invsvc_outbox")
    await outbox_entries(outbox).move()
    await connection.execute(
        "UPDATE invsvc_outbox SET moved = 0, intent = ?", (intent,)
    )
    await connection.commit()
    assert await outbox.drop(key)
    assert await connection.execute_fetchall("SELECT key FROM invsvc_outbox") == []
    assert await entries_of(outbox) == []
    async with outbox.dispatching():
        assert await ended(outbox, update(client, service, "other")) == [
            Verdict.APPLIED
        ]
    assert written(service.ledger.entries) == ["other"]


async def test_reading_beside_the_process_that_sends(
    service, client, outbox, connection, path
):
    """What another process has is read, and nothing else is possible; without the outbox there is nothing to read."""
    [done] = await enqueue(outbox, update(client, service))
    async with (
        client_of(service) as other,
        Outbox.open(path, other, reading=True) as reader,
    ):
        assert [entry.key for entry in await entries_of(reader, state="open")] == [done]
        async with outbox.dispatching():
            await verdict_of(outbox, done)
        assert (await reader.get(done)).verdict is Verdict.APPLIED
        assert [entry.verdict for entry in await entries_of(reader)] == ["applied"]
        acts = (
            reader.retry(done),
            reader.drop(done),
            reader.prune(older_than=0),
            anext(reader.results()),
        )
        for act in acts:
            with pytest.raises(JournalError, match="opened with reading=True"):
                await act
        await connection.execute("BEGIN")
        with pytest.raises(JournalError, match="opened with reading=True"):
            await reader.enqueue(connection, update(other, service))
        with pytest.raises(JournalError, match="opened with reading=True"):
            reader.enqueue_sync(connection, update(other, service))
        await connection.rollback()
        with pytest.raises(JournalError, match="in use by this process itself"):
            async with Outbox.open(path, other):
                pass
    with closing(sqlite3.connect(path.with_name("empty.db"))) as empty:
        empty.execute("CREATE TABLE orders (key TEXT)")
    with pytest.raises(JournalError, match=r"it has no writes for .*\. Check the path"):
        async with Outbox.open(path.with_name("empty.db"), client, reading=True):
            pass
    async with (
        Simulator() as elsewhere,
        Client(elsewhere.base_url, ApiKey(elsewhere.api_key)) as stranger,
    ):
        with pytest.raises(JournalError, match="but for another address"):
            async with Outbox.open(path, stranger, reading=True):
                pass


async def test_write_beside_the_outbox_while_one_is_sent_again(service, client, outbox):
    """One that is proven absent is not sent over a newer write of the same client to its thing; its verdict says so."""
    hook = service.seed_webhook().id
    service.script("webhooks.update", "reset", "reset")
    async with outbox.dispatching():
        [key] = await enqueue(outbox, update(client, service, "older", hook))
        await service.arrived("webhooks.update", 1)
        newer = await update(client, service, "newer", hook).outcome()
        older = await verdict_of(outbox, key)
    assert (newer.verdict, older.verdict) == (Verdict.APPLIED, Verdict.NOT_APPLIED)
    assert older.evidence.cause == "overtaken"
    assert written(service.ledger.effects("webhooks.update")) == ["newer"]


async def test_refused_write_beside_the_outbox_while_one_is_sent_again(
    service, client, outbox
):
    """A newer write that did nothing has overtaken nothing: what was committed is sent."""
    first, older, *newer = changes(
        client, service.seed_webhook().id, "first", "older", "newer", "newest"
    )
    await first
    service.script("webhooks.update", "reset", "reset", "403", "422")
    async with outbox.dispatching():
        keys = await enqueue(outbox, older)
        await service.arrived("webhooks.update", 2)
        refused = await asyncio.gather(*(write.outcome() for write in newer))
        assert [each.verdict for each in refused] == [Verdict.REFUSED] * 2
        assert await verdicts_of(outbox, keys) == [Verdict.APPLIED]
    assert written(service.ledger.effects()) == ["first", "older"]
