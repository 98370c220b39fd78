"""Keys of writes that are dropped or pruned in a file: no other write gets one while its write may still be sent."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sqlite3
import sys
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from functools import partial

import aiosqlite
import pytest

from invsvc_async import JournalError, KeyConflictError, Outbox, Verdict
from invsvc_async.durable.store.statements import entry_sql
from tests.outbox.conftest import (
    changes,
    ended,
    enqueue,
    entries_of,
    transaction_of,
    update,
    verdict_of,
    verdicts_of,
    written,
)
from tests.support.inside import outbox_entries, store_beneath
from tests.support.waiting import until

KEY = "order-17"
LATER = timedelta(days=1)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app.db"


@pytest.fixture
async def outbox(path, client):
    async with Outbox.open(path, client) as opened:
        yield opened


@asynccontextmanager
async def application_writes(outbox, act):
    """Begin to *act* on *outbox* while a transaction of the application has the file; yield the task."""
    async with aiosqlite.connect(
        outbox_entries(outbox).file.path, isolation_level=None
    ) as made:
        await made.execute("BEGIN IMMEDIATE")
        acting = asyncio.create_task(act)
        for _ in range(10):  # as long as it asks the store, which answers in turn
            await store_beneath(outbox).rows("SELECT 1")
        yield acting
        await made.execute("COMMIT")


async def test_drop_of_a_write_that_is_sent_at_that_moment(service, client, outbox):
    """It says no, and the key stays that of the write."""
    await enqueue(outbox, update(client, service, "first").keyed(KEY))
    await outbox_entries(outbox).move()
    service.script("webhooks.update", "slow 0.5")
    async with application_writes(outbox, outbox.drop(KEY)) as dropping:
        sending = outbox.dispatching()
        await sending.__aenter__()
        await service.arrived("webhooks.update", 1)
    assert not await dropping
    with pytest.raises(KeyConflictError):
        await enqueue(outbox, update(client, service, "second").keyed(KEY))
    assert (await verdict_of(outbox, KEY)).verdict is Verdict.APPLIED
    await sending.__aexit__(None, None, None)
    assert written(service.ledger.effects()) == ["first"]


async def test_prune_of_a_write_that_is_retried_at_that_moment(service, client, outbox):
    """The write stays, and so does its key."""
    service.script("webhooks.update", "403")
    async with outbox.dispatching():
        first = update(client, service, "first").keyed(KEY)
        assert await ended(outbox, first) == [Verdict.REFUSED]
    pruning = outbox.prune(older_than=0, unacknowledged=True)
    async with application_writes(outbox, pruning) as pruned:
        assert await outbox.retry(KEY) == [KEY]
    assert await pruned == 0
    with pytest.raises(KeyConflictError):
        await enqueue(outbox, update(client, service, "second").keyed(KEY))
    async with outbox.dispatching():
        assert await verdicts_of(outbox, [KEY]) == [Verdict.APPLIED]
    assert written(service.ledger.effects()) == ["first"]


# --- kills between the two files

PROGRAM = """
import asyncio, os, signal, sys
from invsvc_async import ApiKey, Client, Outbox
from invsvc_async.durable.store.statements import entry_sql
from invsvc_async.outbox.application_file import ApplicationFile
do = ApplicationFile.do  # reaches: kills come between two commits
async def dying(self, statement):
    is_last = statement[0] == entry_sql.DELETE_MOVED_ROWS
    if is_last and point == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    found = await do(self, statement)
    if is_last:
        os.kill(os.getpid(), signal.SIGKILL)
    return found
ApplicationFile.do = dying
async def main(url, key, path, act):
    async with Client(url, ApiKey(key)) as client, Outbox.open(path, client) as outbox:
        if act == "drop":
            await outbox.drop("order-17")
        else:
            await outbox.prune(older_than=0, unacknowledged=True)
*given, point = sys.argv[1:]
asyncio.run(main(*given))
"""


async def killed(service, path, act, point):
    """Run *act* in a process that is killed *before* or *after* the deletion of the row is committed."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, service.base_url, service.api_key, str(path), act, point,
    )  # fmt: skip
    assert await child.wait() == -9


def enqueued_by_another(path, client, write):
    """Enqueue *write* as a process does that sends nothing."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("BEGIN")
        Outbox.open(path, client).enqueue_sync(connection, write)


@pytest.mark.untraced
@pytest.mark.parametrize("again", [True, False], ids=["enqueued again", "alone"])
@pytest.mark.parametrize("point", ["before", "after"])
async def test_kill_while_an_open_write_is_dropped(service, client, path, point, again):
    """The write is there or is not; one that is enqueued again is not lost, and none is sent twice or out of turn."""
    hook = service.seed_webhook().id
    first, second = changes(client, hook, "first", "second")
    async with Outbox.open(path, client) as outbox:
        await enqueue(outbox, first.keyed(KEY), second)
        await outbox_entries(outbox).move()
    await killed(service, path, "drop", point)
    if again:
        enqueued_by_another(
            path, client, update(client, service, "first", hook).keyed(KEY)
        )
    async with Outbox.open(path, client) as outbox, outbox.dispatching():
        await until(lambda: _all_done(outbox))
        await ended(outbox, update(client, service, "other"))
    effects = written(service.ledger.effects(), hook)
    expected = {
        ("before", True): ["first", "second"],  # the row was still there
        ("before", False): ["first", "second"],  # nobody was told that it is dropped
        ("after", True): ["second", "first"],
        ("after", False): ["second"],
    }
    assert effects == expected[point, again]
    assert written(service.ledger.effects()) == [*effects, "other"]


async def _all_done(outbox):
    entries = await entries_of(outbox)
    return all(entry.verdict for entry in entries)


@pytest.mark.untraced
@pytest.mark.parametrize("point", ["before", "after"])
async def test_kill_while_a_write_is_dropped_whose_key_another_gets(
    service, client, path, point
):
    """Either the first one keeps its key, or it is not sent."""
    async with Outbox.open(path, client) as outbox:
        await enqueue(outbox, update(client, service, "first").keyed(KEY))
        await outbox_entries(outbox).move()
    await killed(service, path, "drop", point)
    other = update(client, service, "second").keyed(KEY)
    if point == "before":
        with pytest.raises(KeyConflictError):
            enqueued_by_another(path, client, other)
    else:
        enqueued_by_another(path, client, other)
    async with Outbox.open(path, client) as outbox, outbox.dispatching():
        assert await verdicts_of(outbox, [KEY]) == [Verdict.APPLIED]
        await ended(outbox, update(client, service, "other"))
    kept = "first" if point == "before" else "second"
    assert written(service.ledger.effects()) == [kept, "other"]


@pytest.mark.untraced
@pytest.mark.parametrize("act", ["drop", "prune"])
@pytest.mark.parametrize("point", ["before", "after"])
async def test_kill_while_a_write_with_a_verdict_is_deleted(
    service, client, path, act, point
):
    """Its key is free once the outbox was opened again, and what has the key then is sent once."""
    service.script("webhooks.update", "403")
    async with Outbox.open(path, client) as outbox, outbox.dispatching():
        first = update(client, service, "first").keyed(KEY)
        assert await ended(outbox, first) == [Verdict.REFUSED]
    await killed(service, path, act, point)
    if point == "after":  # before, the same is refused
        enqueued_by_another(path, client, update(client, service, "second").keyed(KEY))
    async with Outbox.open(path, client) as outbox, outbox.dispatching():
        if point == "before":
            assert await outbox.get(KEY) is None
            await enqueue(outbox, update(client, service, "second").keyed(KEY))
        assert await verdicts_of(outbox, [KEY]) == [Verdict.APPLIED]
    async with Outbox.open(path, client) as outbox, outbox.dispatching():
        await ended(outbox, update(client, service, "other"))
        assert (await outbox.get(KEY)).verdict is Verdict.APPLIED
    assert written(service.ledger.effects()) == ["second", "other"]


@pytest.mark.untraced
async def test_copy_from_amid_a_prune(service, client, path, tmp_path):
    """What has the key since may have been sent, which the copy does not know: it is not free once more."""
    service.script("webhooks.update", "403")
    async with Outbox.open(path, client) as outbox, outbox.dispatching():
        first = update(client, service, "first").keyed(KEY)
        assert await ended(outbox, first) == [Verdict.REFUSED]
    await killed(service, path, "prune", "before")
    [beside] = tmp_path.glob("*.epoch")
    journal = beside.with_suffix("")
    kept = {
        each: shutil.copy(each, tmp_path / f"kept{number}")
        for number, each in enumerate(tmp_path.glob(f"{journal.name}*"))
        if each != beside
    }
    second = partial(update, client, service, "second", service.seed_webhook().id)
    async with Outbox.open(path, client) as outbox, outbox.dispatching():
        assert await ended(outbox, second().keyed(KEY)) == [Verdict.APPLIED]
    for each in tmp_path.glob(f"{journal.name}-*"):
        each.unlink()
    for each, copy in kept.items():
        shutil.copy(copy, each)
    with pytest.raises(JournalError, match="restored"):
        async with Outbox.open(path, client):
            pass
    async with (
        Outbox.open(path, client, restored=True) as outbox,
        outbox.dispatching(),
    ):
        assert await ended(outbox, second().keyed(KEY)) == [Verdict.UNKNOWN]
    assert written(service.ledger.effects()) == ["second"]


async def test_note_that_an_earlier_version_has_passed_over(service, client, path):
    """What it has moved since has its key."""
    async with Outbox.open(path, client) as outbox, outbox.dispatching():
        first = update(client, service, "first").keyed(KEY)
        assert await ended(outbox, first) == [Verdict.APPLIED]
        note = json.dumps({KEY: None})
        await store_beneath(outbox).rows(
            "INSERT INTO {s}facts VALUES ($1, $2)", "freed keys", note
        )
    async with Outbox.open(path, client) as outbox:
        with pytest.raises(KeyConflictError):
            await enqueue(outbox, update(client, service, "second").keyed(KEY))


async def test_dropped_while_the_file_refuses(service, client, outbox, path):
    """The row could not be deleted: the write is as it was, with its time, and is sent in its turn."""
    hook = service.seed_webhook().id
    first, second = changes(client, hook, "first", "second")
    async with aiosqlite.connect(path, isolation_level=None) as made:
        await made.execute("BEGIN")
        await outbox.enqueue(
            made, first.keyed(KEY), not_before=datetime.now(UTC) + LATER
        )
        await outbox.enqueue(made, second)
        await made.execute("COMMIT")
        await outbox_entries(outbox).move()
        before = await store_beneath(outbox).rows("SELECT * FROM {s}entries")
        await made.execute(
            "CREATE TRIGGER no BEFORE DELETE ON invsvc_outbox BEGIN SELECT raise(ABORT, 'not now'); END"
        )
        with pytest.raises(JournalError, match="not now"):
            await outbox.drop(KEY)
        assert not (await outbox_entries(outbox).move()).many
        after = await store_beneath(outbox).rows("SELECT * FROM {s}entries")
        assert sorted(after) == sorted(before)
        await made.execute("DROP TRIGGER no")
        assert await outbox.drop(KEY)
        async with outbox.dispatching():
            await service.arrived("webhooks.update", 1)
    assert written(service.ledger.effects()) == ["second"]


# --- rows of other writes under keys that entries have


async def left_by_an_earlier_version(service, client, outbox):
    """Delete the row of a write alone, and enqueue another one under its key."""
    await outbox_entries(outbox).file.table.act(
        lambda own: (
            own.execute("DELETE FROM invsvc_outbox WHERE key = ?", (KEY,)).rowcount
        )
    )
    hook = service.seed_webhook().id
    await enqueue(outbox, update(client, service, "second", hook).keyed(KEY))
    return hook


async def test_row_that_has_to_wait_holds_back_its_thing_only(service, client, outbox):
    """The write that has its key is open: later writes to the thing of the row wait with it, and no others do."""
    async with transaction_of(outbox) as made:
        first = update(client, service, "first").keyed(KEY)
        await outbox.enqueue(made, first, not_before=datetime.now(UTC) + LATER)
    await outbox_entries(outbox).move()
    hook = await left_by_an_earlier_version(service, client, outbox)
    behind = changes(client, hook, *map(str, range(140)))  # more than one read
    waiting = await enqueue(outbox, *behind)
    async with outbox.dispatching():
        assert await ended(outbox, update(client, service, "other")) == [
            Verdict.APPLIED
        ]
        assert written(service.ledger.effects()) == ["other"]
        assert await outbox.drop(KEY)
        assert {*await verdicts_of(outbox, [KEY, *waiting])} == {Verdict.APPLIED}
    assert written(service.ledger.effects(), hook) == ["second", *map(str, range(140))]


async def test_verdict_that_nobody_has_had_is_not_replaced(service, client, outbox):
    """Another write under the key waits until the verdict is acknowledged; both verdicts are given."""
    first = asyncio.Event()
    async with outbox.dispatching(on_result=lambda _: first.set()):
        await ended(outbox, update(client, service, "earlier"))
        await first.wait()
    service.script("webhooks.update", "403")
    async with outbox.dispatching():
        await ended(outbox, update(client, service, "first").keyed(KEY))
        await left_by_an_earlier_version(service, client, outbox)
        await ended(outbox, update(client, service, "other"))
        assert written(service.ledger.effects()) == ["earlier", "other"]
    told = []

    async def hear(result):
        told.append((result.key, str(result.verdict)))

    async with outbox.dispatching(on_result=hear):
        await until(lambda: len(told) == 3)
    assert [verdict for key, verdict in told if key == KEY] == ["refused", "applied"]
    assert written(service.ledger.effects()) == ["earlier", "other", "second"]


async def test_columns_that_are_put_back(outbox):
    """All that an open entry has: the others are those of a verdict."""
    store = store_beneath(outbox)
    rows = await store.rows("SELECT name FROM pragma_table_info('entries')")
    columns = {name for (name,) in rows}
    [kept] = re.findall("SELECT key, (.*) FROM", entry_sql.TO_PUT_BACK)
    assert columns - {"key", *kept.split(", ")} == {"verdict", "outcome", "done_at"}
