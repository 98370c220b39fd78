"""The journal under kills, a damaged page, a folder that cannot be written, and a second process."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sqlite3
from contextlib import contextmanager

import pytest

from invsvc_async import JournalError, Outbox, Verdict
from invsvc_async.batch import Batch
from invsvc_async.batch.reports.summary import report_of
from invsvc_async.events.stores import Delivery
from invsvc_async.events.stores.sqlite import SqliteStore
from tests.batch.conftest import HOOK, client_of
from tests.batch.writing import opened
from tests.durable.child import process
from tests.durable.stores import spoil
from tests.soak.kills import journals
from tests.support.power_cut import cut_power
from tests.support.waiting import cancel

pytestmark = pytest.mark.untraced

PAGE = 4096  # bytes
NOBODY = 65534


async def test_journal_that_is_killed(tmp_path):
    """Killed three times under faults, each write that arrived has one effect at most and a true verdict."""
    survived = await journals(3, tmp_path, seed_of=5)

    assert survived.wrong == []
    # each process got as far as the service before its kill
    assert survived.writes > survived.kills == 3


def rotten(whole, trials):
    """Return copies of a file, each with a few bits flipped in one of its pages, or with a page of zeros or ones."""
    chance = random.Random(1)
    for page in range(len(whole) // PAGE):
        at = slice(page * PAGE, (page + 1) * PAGE)
        for trial in range(trials):
            content = bytearray(whole)
            if trial < 2:
                content[at] = (b"\0", b"\xff")[trial] * PAGE
            else:
                for _ in range(8):
                    content[at.start + chance.randrange(PAGE)] ^= 1 << chance.randrange(
                        8
                    )
            yield page, bytes(content)


def settled(path):
    """Fold what is beside the file at *path* into it, and give the whole."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return path.read_bytes()


async def run(path, client, hooks):
    """Update each of *hooks*, in the batch whose journal is at *path*."""
    writes = [
        client.webhooks.update(hook.id, description="d").keyed(f"row-{hook.id}")
        for hook in hooks
    ]
    try:
        async with Batch.open(path, client) as batch:
            return [result async for result in batch.run(writes)]
    finally:
        for write in writes:
            write.close()


async def test_batch_with_a_damaged_page(service, tmp_path):
    """Damage raises JournalError with the path, or changes nothing: no finished write is sent again."""
    hooks = [service.seed_webhook() for _ in range(60)]
    told = []
    async with client_of(service) as client:
        await run(tmp_path / "run.db", client, hooks)
        cut_power(tmp_path / "run.db")
        for number, (page, content) in enumerate(
            rotten(settled(tmp_path / "run.db"), 8)
        ):
            path = tmp_path / f"{number}.db"
            path.write_bytes(content)
            [found] = await asyncio.gather(
                run(path, client, hooks), return_exceptions=True
            )
            told += [page] if isinstance(found, JournalError) else []
            assert not isinstance(found, JournalError) or str(path) in str(found)
            if isinstance(found, JournalError) and "is damaged" in str(found):
                # the error must not make the user repeat writes
                assert "older copy" in str(found)
            assert "livemode" not in str(found)  # nothing of a body
            assert service.arrivals("webhooks.update") == 60, (
                f"page {page}: sent again, and {found!r}"
            )

    assert len(told) > 20


async def results(path, client, _hooks):
    """Read the results in the journal at *path*."""
    async with Batch.open(path, client) as batch:
        return [result async for result in batch.results()]


async def report(path, _client, _hooks):
    """Sum up the journal at *path*, as ``invsvc batch report`` does."""
    async with opened(path, reading=True) as entries:
        return await report_of(entries, "run")


@pytest.mark.parametrize(
    ("column", "values", "readers"),
    [
        ("common", ("'x'", "-1", "3.5"), [run]),
        ("intent", ("''", "'{}'", "x'80ff'"), [run]),
        ("state", ("1.5", "'x'"), [run]),
        ("operation", ("x'00'",), [results, report]),
        ("verdict", ("NULL", "''", "'other'", "3.5", "x'80ff'"), [results]),
        (
            "outcome",
            ("'x'", "'[]'", "'null'", "99", "x'80ff'", "1e400"),
            [results, report],
        ),
        ("done_at", ("''", "'x'", "3.5", "x'80ff'", "1e400"), [results, report]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_batch_with_a_damaged_row(service, tmp_path, column, values, readers):
    """A column with an invalid value raises JournalError with the journal or the key, and no other exception."""
    [hook] = hooks = [service.seed_webhook()]
    path = tmp_path / "run.db"
    async with client_of(service) as client:
        service.script("webhooks.update", "hang" if run in readers else "pass")
        service.script("webhooks.get", "pass", *["500"] * 99)
        running = asyncio.create_task(run(path, client, hooks))
        if run in readers:  # the write is left in the journal as sent
            await service.arrived("webhooks.update")
            await cancel(running)
        else:
            await running
        for value, read in itertools.product(values, readers):
            spoil(path, f"UPDATE entries SET {column} = {value}")
            with pytest.raises(
                JournalError, match=rf"entry 'row-{hook.id}' |run\.db"
            ) as found:
                await read(path, client, hooks)
            assert "estore" not in str(found.value)  # an older copy would repeat writes


async def test_store_of_events_with_a_damaged_page(tmp_path):
    """Flipped bits raise JournalError or change nothing: no event is handled again."""
    deliveries = [
        Delivery(key=f"key-{n}", type="invoice.created", body=b"{}") for n in range(60)
    ]
    store = SqliteStore(tmp_path / "whole.db")
    for delivery in deliveries:
        await store.bury(delivery, reason="tried")
    await store.close()
    told = []
    for number, (page, content) in enumerate(
        rotten(settled(tmp_path / "whole.db"), 20)
    ):
        path = tmp_path / f"{number}.db"
        path.write_bytes(content)
        store = SqliteStore(path)
        found = await asyncio.gather(
            *map(store.put, deliveries), return_exceptions=True
        )
        await store.close()
        told += [page] if any(isinstance(each, JournalError) for each in found) else []
        assert True not in found, f"page {page}: taken anew"

    assert len(told) > 20


@contextmanager
def without_root():
    """Drop root's permission to write anywhere, if the tests run as root."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(was)


async def test_folder_that_cannot_be_written(service, tmp_path):
    """The error contains the path, and comes before anything is sent."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    # imports what it needs
    async with client_of(service, journal=tmp_path / "open.db") as client:
        await client.webhooks.create(**HOOK)
    client = client_of(service, journal=folder / "journal.db")
    with without_root(), pytest.raises(JournalError, match=r"closed/journal\.db"):
        await client.webhooks.create(**HOOK).outcome()
    await client.aclose()

    assert service.arrivals("webhooks.create") == 1


@pytest.mark.parametrize("held", [True, False], ids=["in use", "free"])
async def test_file_with_two_hard_links(service, tmp_path, held):
    """A file with two names has no owner, because SQLite's log belongs to one name. Nothing is sent."""
    other = tmp_path / "other" / "run.db"
    other.parent.mkdir()
    async with (
        client_of(service) as client,
        Batch.open(tmp_path / "run.db", client) as batch,
    ):
        if not held:
            await batch.entries.aclose()
        other.hardlink_to(tmp_path / "run.db")
        with pytest.raises(JournalError, match="another name" if held else "2 names"):
            await run(other, client, [service.seed_webhook()])
        with pytest.raises(JournalError, match="2 names"):
            await report(other, client, [])
    assert service.arrivals("webhooks.update") == 0


USES = {
    "journal": lambda service, path: client_of(service, journal=path),
    "batch": lambda service, path: Batch.open(path, client_of(service)),
    "outbox": lambda service, path: Outbox.open(path, client_of(service)),
}


@pytest.mark.parametrize("use", USES)
async def test_second_owner_is_told_who_has_the_file(service, tmp_path, use):
    """It is refused in words that say that it is this process, also under the name of a link; and has the file after the first."""
    path, link = tmp_path / "app.db", tmp_path / "link.db"
    link.symlink_to(path)
    async with USES[use](service, path):
        # which has a journal beside its own file
        for name in (path,) if use == "outbox" else (path, link):
            with pytest.raises(
                JournalError, match=rf"in use by this process itself \({os.getpid()}\)"
            ):
                async with USES[use](service, name):
                    pass
    async with USES[use](service, path):
        pass


@pytest.mark.parametrize("moves", [False, True])
async def test_journal_in_use_by_another_process(service, tmp_path, moves):
    """It is refused in words that name the process, under a new name too; and can be opened once that one is gone."""
    path, place = (
        tmp_path / "journal.db",
        tmp_path / ("moved.db" if moves else "journal.db"),
    )
    service.script("webhooks.delete", "hang")
    async with process(service, path, "webhooks.delete", webhook="wh_1") as first:
        await service.arrived("webhooks.delete")
        if moves:
            path.rename(place)
        second, words = (
            client_of(service, journal=place),
            "under another name" if moves else first.pid,
        )
        with pytest.raises(JournalError, match=f"in use by .*{words}"):
            await second.webhooks.create(**HOOK).outcome()
        await second.aclose()
    assert service.arrivals("webhooks.create") == 0
    if not moves:
        async with client_of(service, journal=path) as third:
            assert (
                await third.webhooks.create(**HOOK).outcome()
            ).verdict is Verdict.APPLIED
