"""Single writes through a kill: what `Client(journal=…)` stores, and what `recover` makes of it."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing

import attrs
import pytest
from msgspec.structs import replace

from invsvc_async import JournalError, Verdict
from invsvc_async.concurrency.clock import SystemClock
from invsvc_async.durable.journal import ClientJournal
from invsvc_async.durable.store import sqlite as sqlite_store
from invsvc_async.reconcile.history import Attempt
from tests.batch.conftest import HOOK, client_of
from tests.durable.stores import (
    fill,
    lanes_of,
    numbers,
    opened,
    rows_in,
    spoil,
    store_of,
)
from tests.durable.writing import cut_off
from tests.faults.conftest import SHORT
from tests.support.children import counted_elsewhere
from tests.support.gate import PATIENT, gate
from tests.support.inside import store_beneath
from tests.support.waiting import cancel, until


async def kept(path) -> list:
    journal = ClientJournal(path)
    await journal.open()
    try:
        return [intent async for intent in journal.open_intents()]
    finally:
        await journal.aclose()


async def test_write_of_known_verdict_leaves_nothing(service, tmp_path):
    """Once the application has its verdict, a write is removed from the journal."""
    path = tmp_path / "journal.db"
    async with client_of(service, journal=path) as client:
        await client.webhooks.create(**HOOK)
        refused = await client.webhooks.delete("wh_none").outcome()
        settled = await client.settle(refused.intent)

    assert (refused.verdict, settled.applied) == (Verdict.REFUSED, False)
    assert await kept(path) == []
    assert rows_in(path) == []


async def test_verdict_whose_storing_is_cancelled_reaches_the_next_awaiter(
    service, tmp_path
):
    """A second awaiter of the write gets it, and nothing is left in the journal."""
    path = tmp_path / "journal.db"
    stored, go_on = asyncio.Event(), asyncio.Event()

    class Slow(ClientJournal):
        async def settled(self, outcome):
            await super().settled(outcome)
            stored.set()
            await go_on.wait()

    async with client_of(service, journal=Slow(path)) as client:
        write = client.webhooks.update(service.seed_webhook().id, description="new")
        first, second = (
            asyncio.create_task(write.outcome()),
            asyncio.create_task(write.outcome()),
        )
        await stored.wait()
        first.cancel()
        go_on.set()
        await asyncio.wait([first, second])

    assert first.cancelled()
    assert second.result().verdict is Verdict.APPLIED
    assert service.arrivals("webhooks.update") == 1
    assert rows_in(path) == []


async def test_write_is_stored_before_its_first_byte(service, tmp_path):
    """When a request arrives, its intent is in the file, with the send."""
    path = tmp_path / "journal.db"
    service.script("webhooks.create", "slow 0.2")
    async with client_of(service, journal=path) as client:
        write = asyncio.create_task(client.webhooks.create(**HOOK).outcome())
        await service.arrived("webhooks.create")
        stored = rows_in(path, "intent")
        await write

    assert len(stored) == 1
    assert '"sent":[{' in stored[0][0]


async def test_write_is_not_sent_later_than_its_file_says(service, tmp_path):
    """A machine that wakes between the two sends nothing then: a kill would leave a send that seems over."""
    stored = []

    class AsleepOnce(ClientJournal, SystemClock):
        slept = 0.0

        def now(self):
            return super().now() + self.slept

        async def sending(self, intent):
            stored.append(self.now())
            await super().sending(intent)
            self.slept = 3600.0  # which the event loop's clock may not count

    journal = AsleepOnce(tmp_path / "journal.db")
    async with client_of(service, journal=journal, clock=journal) as client:
        outcome = await client.webhooks.create(**HOOK, tag=True).outcome()

    attempts = [event for event in outcome.history if isinstance(event, Attempt)]
    assert [attempt.end for attempt in attempts] == ["not sent", "answered"]
    assert stored[1] <= attempts[1].started <= stored[1] + attempts[1].timeout
    assert (outcome.verdict, service.arrivals("webhooks.create")) == (
        Verdict.APPLIED,
        1,
    )


async def test_write_cancelled_before_its_first_byte_is_withdrawn(service, tmp_path):
    """A write that was cancelled while it waited for a connection leaves nothing behind."""
    path = tmp_path / "journal.db"
    alone = {"max_concurrency": 1, "timeout": PATIENT}
    async with client_of(service, journal=path, **alone) as client:
        with gate(service, "webhooks.create"):
            create = client.webhooks.create(**HOOK, tag=True)
            first = asyncio.create_task(create.outcome())
            await service.arrived("webhooks.create")
            hook = service.seed_webhook()
            second = asyncio.create_task(client.webhooks.delete(hook.id).outcome())
            await until(lambda: ("webhooks.delete",) in rows_in(path, "operation"))
            await cancel(second)
        await first

    assert (second.cancelled(), await kept(path)) == (True, [])
    assert service.arrivals("webhooks.delete") == 0


class Halting(ClientJournal):
    """A journal that stops in the middle of its open intents, until it is asked to go on."""

    def __init__(self, path):
        super().__init__(path)
        self.halted, self.goes_on = asyncio.Event(), asyncio.Event()

    async def open_intents(self):
        async for intent in super().open_intents():
            yield intent
            self.halted.set()
            await self.goes_on.wait()


async def test_write_that_is_cancelled_while_it_looks_for_what_is_open(
    service, tmp_path
):
    """The next write looks again: it waits for all that the process before it left, not for a part."""
    path, hooks = tmp_path / "journal.db", [service.seed_webhook() for _ in range(2)]
    policy = attrs.evolve(SHORT, clock_slack=0.0, clock_band=0.0)
    service.script("webhooks.update", "hang", "hang")
    async with client_of(service, journal=path, reconcile=policy) as before:
        for hook in hooks:
            await cut_off(service, before.webhooks.update(hook.id, description="old"))
    journal, loop = Halting(path), asyncio.get_running_loop()
    async with client_of(service, journal=journal, reconcile=policy) as after:
        cut = asyncio.create_task(
            after.webhooks.update(
                service.seed_webhook().id, description="cut"
            ).outcome()
        )
        await journal.halted.wait()
        await cancel(cut)
        journal.goes_on.set()
        begun = loop.time()
        await after.webhooks.update(hooks[1].id, description="new")

    assert loop.time() - begun >= policy.settle_after_loss
    assert service.arrivals("webhooks.update") == 3


async def test_open_write_that_cannot_be_read_stops_each_write(service, tmp_path):
    """What it may still do is not known, so not only the first write after it is refused."""
    path = tmp_path / "journal.db"
    service.script("webhooks.delete", "hang", "hang")
    async with client_of(service, journal=path) as before:
        for _ in range(2):
            await cut_off(service, before.webhooks.delete(service.seed_webhook().id))
    spoil(
        path,
        "UPDATE entries SET intent = NULL WHERE seq = (SELECT max(seq) FROM entries)",
    )
    async with client_of(service, journal=path) as after:
        for _ in range(2):
            with pytest.raises(JournalError, match="cannot be read"):
                await after.webhooks.delete(service.seed_webhook().id)

    assert service.arrivals("webhooks.delete") == 2


async def test_recovery_that_is_cut_off_loses_no_verdict(service, tmp_path):
    """The verdict that it found is in the file, and the next recovery returns it with the other one."""
    path, hooks = tmp_path / "journal.db", [service.seed_webhook() for _ in range(2)]
    service.script("webhooks.delete", "apply, then hang", "apply, then hang")
    async with client_of(service, journal=path) as client:
        for hook in hooks:
            await cut_off(service, client.webhooks.delete(hook.id))
    assert len(await kept(path)) == 2

    service.script("webhooks.get", "pass", "hang")
    async with client_of(service, journal=path) as client:
        recovering = asyncio.create_task(client.recover())
        await service.arrived("webhooks.get", 2)
        await until(lambda: rows_in(path, "verdict IS NULL").count((1,)) == 1)
        await cancel(recovering)
    assert len(await kept(path)) == 1
    async with client_of(service, journal=path) as client:
        assert [outcome.verdict for outcome in await client.recover()] == [
            Verdict.APPLIED
        ] * 2
    assert await kept(path) == []


async def test_database_of_the_application_is_left_alone(tmp_path):
    """It is refused, nothing is left beside it, and its own connection still keeps others from its log."""
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as own:
        own.execute("PRAGMA journal_mode = WAL")
        own.execute("CREATE TABLE mine (n)")
        with pytest.raises(JournalError, match="another program's database"):
            await ClientJournal(path).open()
        for number in range(2):
            assert await counted_elsewhere(path, "mine") == number
            own.execute("INSERT INTO mine VALUES (1)")
    assert [found.name for found in tmp_path.iterdir()] == ["app.db"]


async def test_disk_that_is_full_stops_the_write(service, tmp_path):
    """A write that cannot be stored is not sent, and says so; with room again the next one is."""
    path = tmp_path / "journal.db"
    async with client_of(service, journal=path) as client:
        entries = store_beneath(client)
        await entries.ask(
            lambda connection: connection.execute(
                "PRAGMA max_page_count = 1"
            ).fetchone()
        )
        with pytest.raises(JournalError, match="the disk is full, so nothing"):
            await client.webhooks.create(**HOOK, description="x" * 100_000).outcome()
        assert service.arrivals("webhooks.create") == 0

        await entries.ask(
            lambda connection: connection.execute(
                "PRAGMA max_page_count = 1000000"
            ).fetchone()
        )
        await client.webhooks.create(**HOOK)
    assert service.arrivals("webhooks.create") == 1


@pytest.mark.parametrize(
    "how", ["deleted", "replaced", "link removed", "link changed", "folder changed"]
)
async def test_file_that_is_deleted_in_use(service, tmp_path, monkeypatch, how):
    """What would be stored in it would be lost by a kill, or not be found, so nothing is sent any more."""
    monkeypatch.setattr("invsvc_async.storage.sqlite_file._LOOK_EVERY", 0.0)
    hook = service.seed_webhook().id
    folder, link = tmp_path / "first", tmp_path / "current"
    folder.mkdir()
    path = file = folder / "journal.db"
    if how.startswith("link"):
        path = link
        link.symlink_to(file)
    elif how == "folder changed":
        path = link / "journal.db"
        link.symlink_to(folder, target_is_directory=True)
    async with client_of(service, journal=path) as client:
        await client.webhooks.update(hook, description="before")
        match how:
            case "deleted" | "replaced":
                moved = file.rename(tmp_path / "moved.db")
                if how == "replaced":
                    file.write_bytes(moved.read_bytes())
            case _:
                link.unlink()
                if how != "link removed":
                    link.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(JournalError, match="deleted or replaced while it was open"):
            await client.webhooks.update(hook, description="after")

    assert (
        len(service.ledger.effects("webhooks.update"))
        == service.arrivals("webhooks.update")
        == 1
    )


async def test_thread_that_dies_fails_who_waits(service, tmp_path):
    """If the writer's thread dies, pending and later requests fail, and nothing is sent."""
    async with client_of(service, journal=tmp_path / "journal.db") as client:
        entries = store_beneath(client)

        def die(connection):
            raise SystemExit("the end")

        with pytest.raises(JournalError, match="SystemExit"):
            await entries.ask(die)
        with pytest.raises(JournalError, match="SystemExit"):
            await client.webhooks.create(**HOOK).outcome()
    assert service.arrivals("webhooks.create") == 0


async def test_file_that_another_program_locks(tmp_path, monkeypatch):
    """A file that another program has locked is refused after a short wait."""
    monkeypatch.setattr(sqlite_store, "_PATIENCE", 0.05)
    path = tmp_path / "journal.db"
    assert await kept(path) == []
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(JournalError, match="another connection is using the file"):
        await ClientJournal(path).open()
    other.close()
    assert await kept(path) == []


@pytest.mark.parametrize("ends", ["unknown", "cancelled"])
async def test_intent_of_elsewhere_is_not_kept(service, tmp_path, ends):
    """
    Settling is no send: what another process sent is not in this journal, which would know no other sends of it.

    Recovered as a write of this journal, it would be told as never sent.
    """
    hook, other = service.seed_webhook(description="before"), service.seed_webhook()
    async with client_of(service) as elsewhere:
        write = elsewhere.webhooks.update(hook.id, description="mine")
        carried = write.intent
        assert (await write.outcome()).verdict is Verdict.APPLIED
    async with client_of(service, journal=tmp_path / "journal.db") as client:
        await client.webhooks.update(other.id, description="opens the journal")
        before = service.arrivals("webhooks.get")
        service.script(
            "webhooks.get", *{"unknown": ("403", "403"), "cancelled": ("hang",)}[ends]
        )
        settling = asyncio.create_task(client.settle(carried))
        if ends == "cancelled":
            await service.arrived("webhooks.get", before + 1)
            settling.cancel()
        await asyncio.wait([settling])
        assert [intent.key for intent in client.unsettled] == [carried.key]
    assert await kept(tmp_path / "journal.db") == []
    async with client_of(service, journal=tmp_path / "journal.db") as client:
        assert await client.recover() == []


async def test_store_that_is_opened_again_on_an_older_copy(tmp_path):
    """It stores what entries have in common once more, because the copy does not have it."""
    store, copy = store_of("SQLite", tmp_path, "", lanes=1), tmp_path / "copy.db"
    async with opened(store):
        await fill(store, "a")
    shutil.copy(store.path, copy)
    for _ in range(2):
        async with opened(store):
            [lane] = await lanes_of(store, SystemClock())
            store.commons.texts[7] = "{}"
            [entry] = await store.entries("e.key = $1", "a")
            await lane.put(replace(entry, common=7))
            assert await numbers(store, "SELECT number FROM {s}commons") == [7]
        shutil.copy(copy, store.path)
