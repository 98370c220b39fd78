"""Journals that were put back from an older copy: what they have as open may have been sent since."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing

import pytest

from invsvc_async import Timeouts, Verdict
from invsvc_async.durable.journal import ClientJournal
from invsvc_async.durable.keyed_run import KeyedRun
from invsvc_async.durable.store.restored import marked
from tests.batch.conftest import client_of
from tests.durable.stores import copy_tables, go_to_another_timeline, put_tables_back
from tests.durable.test_shared_journal import recovered
from tests.support.inside import store_beneath

pytestmark = pytest.mark.one_python

SOON = Timeouts(attempt=1.0)  # s after which a send is over


class Copied(ClientJournal):
    """Copies itself right before the first send, as a backup might."""

    copy = None

    async def sending(self, intent):
        until = await super().sending(intent)
        self.copy = self.copy or await self._copied()
        return until

    async def _copied(self):
        if not hasattr(self._store, "path"):
            await copy_tables(self._store, "entries", "lanes")
            return "tables"
        await self._store.ask(lambda _: None)
        path = self._store.path.with_name("copy.db")
        with (
            closing(sqlite3.connect(path)) as copy,
            closing(sqlite3.connect(self._store.path)) as own,
        ):
            own.backup(copy)
        return path


async def put_back(service, place, copy):
    """Put the copy back as a restore does; of a database, on another timeline."""
    if copy != "tables":
        for file in place.parent.glob(f"{place.name}-*"):
            file.unlink()
        copy.replace(place)
        return
    async with client_of(service, journal=place) as admin:
        await put_tables_back(store_beneath(admin), "entries", "lanes")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "journal.db"


@pytest.fixture
async def restored(service, request):
    """Make a write, undo it by another, and put back the copy from before; return the place of the journal."""
    place = request.getfixturevalue(getattr(request, "param", "file"))
    async with client_of(
        service, journal=(journal := Copied(place)), timeout=SOON
    ) as client:
        hook = await client.webhooks.get(service.seed_webhook(description="old").id)
        await client.webhooks.update(hook, description="new")
        await client.webhooks.update(hook, description="old")
    await put_back(service, place, journal.copy)
    return place


@pytest.mark.parametrize(
    ("restored", "words"),
    [
        ("file", "it is an older copy, which lacks the last send"),
        ("file", "journal.db.epoch is missing or empty"),
        ("shared", "the server was restored from a backup"),
    ],
    indirect=["restored"],
)
async def test_older_copy_tells_nothing_false(service, restored, caplog, words):
    """A write that was applied, and undone after the copy was made, is UNKNOWN; the log says why, once."""
    if "missing" in words:
        restored.with_name("journal.db.epoch").unlink()
    with caplog.at_level(logging.ERROR, "invsvc_async.writes"):
        for _ in range(2):
            async with client_of(service, journal=restored) as client:
                [outcome] = await recovered(client)
            assert outcome.verdict is Verdict.UNKNOWN
            assert len(outcome.intent.sent) == 2
    [told] = [
        each.getMessage() for each in caplog.records if each.levelno == logging.ERROR
    ]
    assert words in told
    assert "settled as if they had been sent again" in told
    assert service.arrivals("webhooks.update") == 2


@pytest.mark.parametrize("place", ["file", "shared"])
async def test_keyed_write_of_an_older_copy_tells_nothing_false(
    service, request, monkeypatch, place
):
    """The same of one under a key, which is settled without a run of it."""
    place, sending = request.getfixturevalue(place), KeyedRun.sending

    async def copied(run, intent):
        until = await sending(run, intent)
        journal.copy = journal.copy or await journal._copied()
        return until

    monkeypatch.setattr(KeyedRun, "sending", copied)
    async with client_of(
        service, journal=(journal := Copied(place)), timeout=SOON
    ) as client:
        hook = await client.webhooks.get(service.seed_webhook(description="old").id)
        await client.webhooks.update(hook, description="new").keyed("a")
        await client.webhooks.update(hook, description="old").keyed("b")
    await put_back(service, place, journal.copy)
    async with client_of(service, journal=place) as client:
        [outcome] = await recovered(client)
    assert outcome.verdict is Verdict.UNKNOWN, outcome.explain()
    assert service.arrivals("webhooks.update") == 2


async def test_journal_that_is_deleted(service, restored, caplog):
    """A new one in its place works, and the log says that sends were made of which it does not know."""
    for file in restored.parent.glob("journal.db*"):
        if file.suffix != ".epoch":
            file.unlink()
    with caplog.at_level(logging.ERROR, "invsvc_async.writes"):
        async with client_of(service, journal=restored) as client:
            assert await client.recover() == []
            await client.webhooks.update(service.seed_webhook().id, description="x")
    [told] = caplog.messages
    assert "counts 2 sends of a journal that was here" in told


async def test_server_that_is_another_one_meanwhile(service, shared, caplog):
    """A process that is connected finds it by its next connection; it writes on, and the log says why, once."""
    async with client_of(service, journal=shared) as client:
        entries = store_beneath(client)
        entries._place["timeline"] = "00000077"  # of the server before
        await go_to_another_timeline(entries)
        with caplog.at_level(logging.ERROR, "invsvc_async.writes"):
            await entries._pool.expire_connections()
            assert await client.webhooks.update(
                service.seed_webhook().id, description="x"
            )
            await entries._pool.expire_connections()
            assert await client.recover() == []
        [told] = caplog.messages
        assert "a replica was promoted" in told
        mark = await entries.run(marked)
        assert (mark.through, mark.is_open) == (0, True)  # nothing was open
