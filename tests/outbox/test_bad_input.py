"""What cannot work, in both databases, and what the errors say."""

from __future__ import annotations

import logging
import sqlite3
import time
from contextlib import AsyncExitStack, closing

import aiosqlite
import psycopg
import pytest

from invsvc_async import (
    ConfigurationError,
    InvalidRequestError,
    JournalError,
    Outbox,
    ReconcilePolicy,
    Timeouts,
    Verdict,
)
from invsvc_async.client import options_of
from invsvc_async.durable.entry import Entry, State
from invsvc_async.durable.store.statements.schema_sql import (
    APPLICATION_TABLES,
    ROWS_VERSION,
)
from invsvc_async.durable.unknown_writes import UnknownWrites
from invsvc_async.simulator import Simulator
from invsvc_async.storage.address import is_postgres
from tests.batch.conftest import HOOK, client_of
from tests.outbox.conftest import (
    changes,
    ended,
    enqueue,
    entries_of,
    finished,
    spoil,
    update,
    verdict_of,
    written,
)
from tests.support.database import connected, database
from tests.support.inside import outbox_entries, store_beneath


async def test_outbox_that_is_not_open(service, client, place, connection):
    """Neither before nor after it was open is anything enqueued, sent or read."""
    outbox = Outbox.open(place, client)
    for _ in range(2):
        async with connection.transaction():
            with pytest.raises(JournalError, match="not open"):
                await outbox.enqueue(connection, update(client, service))
        with pytest.raises(JournalError, match="not open"):
            async with outbox.dispatching():
                pass
        with pytest.raises(JournalError, match="not open"):
            await outbox.get("order-1")
        async with outbox:
            pass


@pytest.mark.parametrize(
    "place",
    ["", ":memory:", "mysql://me:hunter2@db/shop", "postgres://db/shop?outbox=A"],
)
def test_places_that_cannot_be(client, place):
    """A path or address of nothing that can be shared is refused, without a password in the words."""
    with pytest.raises(ConfigurationError, match="outbox") as caught:
        Outbox.open(place, client)
    assert "hunter2" not in str(caught.value)


async def test_pipeline_of_psycopg(service, client, outbox):
    """Whether it is in a transaction is known only after its earlier statements; then the write is inserted."""
    async with (
        await psycopg.AsyncConnection.connect(database().address) as connection,
        connection.transaction(),
        connection.pipeline() as pipeline,
    ):
        await connection.execute("SELECT 1")
        with pytest.raises(InvalidRequestError, match="waits for earlier statements"):
            await outbox.enqueue(connection, update(client, service))
        await pipeline.sync()
        key = await outbox.enqueue(connection, update(client, service))
    assert (await outbox_entries(outbox).entry(key)).key == key


async def test_database_that_two_services_share(service, client, place):
    """Two base URLs have an outbox each in one database, though the keys are the same."""
    async with (
        Simulator(seed=9) as elsewhere,
        client_of(elsewhere) as there,
        Outbox.open(place, client) as ours, Outbox.open(place, there) as theirs,
    ):  # fmt: skip
        await enqueue(ours, update(client, service, "ours").keyed("one"))
        await enqueue(theirs, update(there, elsewhere, "theirs").keyed("one"))
        assert [entry.key for entry in await entries_of(ours, state="open")] == ["one"]
        async with theirs.dispatching():
            assert (await verdict_of(theirs, "one")).value.description == "theirs"
        assert await ours.get("one") is None
    assert service.arrivals("webhooks.update") == 0


async def test_connection_to_a_database_without_the_outbox(
    service, client, place, tmp_path
):
    """The driver's error comes as it is, with a note that says which database is needed."""
    async with Outbox.open(place, client) as outbox, AsyncExitStack() as opened:
        if is_postgres(str(place)):
            elsewhere = await opened.enter_async_context(database().fresh("elsewhere"))
            connection = await opened.enter_async_context(connected(elsewhere))
            await opened.enter_async_context(connection.transaction())
        else:
            elsewhere = tmp_path / "elsewhere.db"
            connection = await opened.enter_async_context(aiosqlite.connect(elsewhere))
            await connection.execute("BEGIN")
        with pytest.raises(Exception, match=r"no such table|does not exist") as raised:
            await outbox.enqueue(connection, update(client, service))
    assert "does not have this outbox" in raised.value.__notes__[0]


async def test_file_that_the_application_keeps_locked(
    service, client, tmp_path, caplog, monkeypatch
):
    """It is logged that nothing is sent, and why; once the transaction has ended, dispatching goes on by itself."""
    from invsvc_async.outbox import application_file, pauses

    monkeypatch.setattr(application_file, "_PATIENCE", 0.05)
    monkeypatch.setattr(pauses, "_PAUSES", (0.05,))
    path = tmp_path / "app.db"
    async with (
        Outbox.open(path, client) as outbox,
        aiosqlite.connect(path) as connection,
    ):
        [key] = await enqueue(outbox, update(client, service))
        await connection.execute("BEGIN IMMEDIATE")
        async with outbox.dispatching():
            while "using the file" not in caplog.text:
                await connection.execute("SELECT 1")
            await connection.rollback()
            assert (await verdict_of(outbox, key)).verdict is Verdict.APPLIED
    assert "End its transaction" in caplog.text
    assert service.arrivals("webhooks.update") == 1


async def test_file_that_cannot_be_the_applications(client, tmp_path):
    """One that is no database, and stays as it is, or whose table is of another version, is refused in words."""
    text, other, newer = (
        tmp_path / f"{name}.db" for name in ("text", "other", "newer")
    )
    text.write_text("no database" * 100)
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE invsvc_outbox (seq, base_url, moved)")
    with closing(sqlite3.connect(newer)) as connection:
        connection.executescript(
            APPLICATION_TABLES.replace(f"DEFAULT {ROWS_VERSION}", "DEFAULT 99")
        )
    for path, words in (
        (text, "not a SQLite database"),
        (other, "of another version"),
        (newer, "of another version"),
    ):
        with pytest.raises(JournalError, match=words):
            async with Outbox.open(path, client):
                pass
    assert text.read_text() == "no database" * 100


TOMORROWS = "{", '{"of_tomorrow":1,'
SPOILT = [("webhooks.update", "webhooks.gone"), TOMORROWS]


@pytest.mark.parametrize("spoilt", SPOILT, ids=["operation", "policy"])
async def test_payload_that_no_longer_fits(service, client, place, caplog, spoilt):
    """A write of code that is gone is NOT_APPLIED in words, holds nothing up, and is sent once the code fits again."""
    hook = service.seed_webhook().id
    with caplog.at_level(logging.CRITICAL, "invsvc_async.outbox"):
        async with Outbox.open(place, client) as outbox:
            first, second = changes(client, hook, "first", "second")
            [key] = await enqueue(outbox, first)
            await spoil(outbox, *spoilt)
            async with outbox.dispatching():
                outcome = await verdict_of(outbox, key)
                [other] = await enqueue(outbox, second)
                await verdict_of(outbox, other)
                assert (outcome.verdict, outcome.applied) == (
                    Verdict.NOT_APPLIED,
                    False,
                )
                assert "was not sent" in outcome.message
                assert "outbox retry" in outcome.message
                assert "Keep the file" not in outcome.message
                await spoil(outbox, *reversed(spoilt))
                assert await outbox.drop(other)
                assert await outbox.retry(key) == [key]
                await verdict_of(outbox, key)
    assert "second" in written(service.ledger.entries)


async def test_write_in_doubt_that_no_longer_fits(service, client, place, caplog):
    """One that is done again because it is UNKNOWN stays so, and is settled, not sent, once the code fits again."""
    service.script("webhooks.create", "apply, then reset")
    service.script("webhooks.list", "pass", "403")
    await client.webhooks.list()
    with caplog.at_level(logging.CRITICAL, "invsvc_async.outbox"):
        async with Outbox.open(place, client) as outbox:
            [key] = await finished(outbox, client.webhooks.create(**HOOK))
            assert (await outbox.get(key)).verdict is Verdict.UNKNOWN
            change = "webhooks.create", "webhooks.gone"
            for names, verdict in (
                (change, Verdict.UNKNOWN),
                (change[::-1], Verdict.APPLIED),
            ):
                await spoil(outbox, *names)
                assert await outbox.retry(key) == [key]
                async with outbox.dispatching():
                    assert (await verdict_of(outbox, key)).verdict is verdict
    assert service.arrivals("webhooks.create") == 1


async def test_writes_after_one_in_flight_that_no_longer_fits(service, place, caplog):
    """
    What an earlier deployment may have sent and this one cannot read is UNKNOWN, and nothing is sent for it.

    Later writes are sent, those to its own thing once it can no longer take effect, also after a restart.
    """
    policy = ReconcilePolicy(
        settle_after_error=0.1, settle_after_loss=0.2, clock_slack=0.0, clock_band=0.0
    )
    hook = service.seed_webhook().id
    service.script("webhooks.update", "apply, then hang")
    async with (
        client_of(service, reconcile=policy, timeout=Timeouts(attempt=0.5)) as client,
        Outbox.open(place, client) as outbox,
    ):
        first, *later = changes(client, hook, "unfit", "late", "later")
        [unfit] = await enqueue(outbox, first)
        async with outbox.dispatching(grace=0.0):
            await service.arrived("webhooks.update")
        await spoil(outbox, *TOMORROWS)
        async with outbox.dispatching():
            outcome = await verdict_of(outbox, unfit)
            assert outcome.verdict is Verdict.UNKNOWN
            assert "may have been sent, and cannot be settled" in outcome.message
            assert unfit in caplog.text
            assert service.arrivals("webhooks.update") == 1
        for write in later:
            async with outbox.dispatching():
                assert (
                    await ended(outbox, write, update(client, service))
                    == [Verdict.APPLIED] * 2
                )
                assert (
                    time.time() * 1000
                    >= (await outbox_entries(outbox).entry(unfit)).done_at + 700
                )
    assert written(service.ledger.entries, hook) == ["unfit", "late", "later"]


async def test_older_write_that_is_retried_before_one_that_no_longer_fits(
    service, place
):
    """What may have been sent has overtaken it, although nothing can settle that."""
    policy = ReconcilePolicy(
        settle_after_error=0.1, settle_after_loss=0.2, clock_slack=0.0, clock_band=0.0
    )
    hook = service.seed_webhook().id
    service.script("webhooks.update", "409", "apply, then hang")
    async with (
        client_of(service, reconcile=policy, timeout=Timeouts(attempt=0.5)) as client,
        Outbox.open(place, client) as outbox,
    ):
        older, newer = await enqueue(outbox, *changes(client, hook, "older", "newer"))
        async with outbox.dispatching(grace=0.0):
            await service.arrived("webhooks.update", 2)
        text = "UPDATE {s}entries SET intent = replace(intent, $1, $2) WHERE key = $3"
        await store_beneath(outbox).rows(text, *TOMORROWS, newer)
        assert await outbox.retry(older) == [older]
        async with outbox.dispatching():
            outcomes = [await verdict_of(outbox, key) for key in (older, newer)]
    assert [each.verdict for each in outcomes] == [
        Verdict.NOT_APPLIED,
        Verdict.UNKNOWN,
    ]
    assert outcomes[0].evidence.cause == "overtaken"
    assert written(service.ledger.effects(), hook) == ["newer"]


async def test_many_that_no_longer_fit_and_a_clock_that_was_ahead(service, outbox):
    """They are waited for together: one after the other, all other writes would wait for an hour."""
    waits = []

    class Clock:
        def now(self):
            return 100.0

        async def sleep(self, seconds):
            waits.append(seconds)

    async def unreadable(_entry):
        raise JournalError("of another version")

    unknown_writes = UnknownWrites(store_beneath(outbox), unreadable)
    ahead = round(time.time() * 1000) + 3_600_000
    unknown = [
        Entry(
            seq=number, key=f"order-{number}", thing=f"webhook wh_{number}", state=State.DONE, done_at=ahead,
            operation="webhooks.update", verdict="unknown", common=1, intent="{}",
        )
        for number in (1, 2, 3)
    ]  # fmt: skip
    async with client_of(service, clock=Clock()) as client:
        await unknown_writes.close_lines(unknown, options_of(client))
    assert len(waits) == 1
    assert waits[0] < 60
