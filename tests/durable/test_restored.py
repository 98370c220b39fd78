"""Journals that were put back from an older copy: what they have as open may have been sent since."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing

import pytest

from invsvc_async import Verdict
from invsvc_async.durable.journal import ClientJournal
from tests.batch.conftest import client_of


class Copied(ClientJournal):
    """Copies itself right before the first send, as a backup might."""

    def __init__(self, path, copy):
        super().__init__(path)
        self._copy = copy

    async def sending(self, intent):
        await super().sending(intent)
        if not self._copy.exists():
            with closing(sqlite3.connect(self._copy)) as copy:
                await self._store.ask(lambda _: None)
                with closing(sqlite3.connect(self._store.path)) as own:
                    own.backup(copy)


@pytest.fixture
async def restored(service, tmp_path):
    """Make a write, undo it by another, and put back the copy from before; return the path of the journal."""
    path, copy = tmp_path / "journal.db", tmp_path / "copy.db"
    async with client_of(service, journal=Copied(path, copy)) as client:
        hook = await client.webhooks.get(service.seed_webhook(description="old").id)
        await client.webhooks.update(hook, description="new")
        await client.webhooks.update(hook, description="old")
    for file in tmp_path.glob("journal.db-*"):
        file.unlink()
    copy.replace(path)
    return path


@pytest.mark.parametrize("beside", ["is there", "is missing"])
async def test_older_copy_tells_nothing_false(service, restored, caplog, beside):
    """A write that was applied, and undone after the copy was made, is UNKNOWN; the log says why, once."""
    if beside == "is missing":
        restored.with_name("journal.db.epoch").unlink()
    for _ in range(2):
        with caplog.at_level(logging.ERROR, "invsvc_async.writes"):
            async with client_of(service, journal=restored) as client:
                [outcome] = await client.recover()
        assert outcome.verdict is Verdict.UNKNOWN
        assert len(outcome.intent.sent) == 2
    [told] = caplog.messages
    words = (
        "it is an older copy, which lacks the last send"
        if beside == "is there"
        else "journal.db.epoch is missing or empty"
    )
    assert words in told
    assert "settled as if they had been sent again" in told
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
