"""Outboxes whose database was put back from an older copy, or copied: nothing is sent twice."""

from __future__ import annotations

import asyncio
import logging
import shutil
from datetime import UTC, datetime, timedelta

import aiosqlite
import pytest

from invsvc_async import InvalidRequestError, JournalError, Outbox, Verdict
from invsvc_async.batch.read_places import ReadPlaces
from invsvc_async.durable.entry import Entry, State
from invsvc_async.durable.records import verdict_of_unfit
from invsvc_async.durable.store import due
from tests.batch.conftest import HOOK, client_of
from tests.durable.stores import copy_tables, go_to_another_timeline, put_tables_back
from tests.outbox.conftest import (
    changes,
    ended,
    enqueue,
    entries_of,
    spoil,
    transaction_of,
    update,
    verdicts_of,
    written,
)
from tests.support.database import TABLES_MADE_ANEW
from tests.support.inside import outbox_entries, store_beneath
from tests.support.waiting import until, until_no

pytestmark = pytest.mark.one_python

OF_BEFORE = ("entries", "unheard", "states", "facts")
CUT_OFF = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND application_name LIKE 'invsvc%'
"""


async def sent(outbox, keys):
    """Send until each of *keys* has a verdict; give these."""
    async with outbox.dispatching():
        return await verdicts_of(outbox, keys)


async def put_back(outbox, act):
    """Copy the tables of the outbox, *act*, and put the copy back."""
    await copy_tables(store_beneath(outbox), *OF_BEFORE)
    await act()
    await put_tables_back(store_beneath(outbox), *OF_BEFORE)


async def test_database_restored_from_a_backup(
    service, client, outbox, address, caplog
):
    """Nothing is sent and the words say why; once told, what the backup has as open is settled before it is sent."""
    await sent(outbox, await enqueue(outbox, client.webhooks.create(**HOOK)))
    hook = service.seed_webhook().id
    keys = await enqueue(
        outbox, client.webhooks.create(**HOOK), update(client, service, "sent", hook)
    )
    await put_back(outbox, lambda: sent(outbox, keys))
    requests = service.arrivals()
    with caplog.at_level(logging.ERROR, "invsvc_async.outbox"):
        async with outbox.dispatching(), asyncio.timeout(300):
            await until(lambda: "restored from a backup" in caplog.text)
            # What comes now cannot have been sent.
            [late] = await enqueue(outbox, update(client, service, "late", hook))
    assert "with --restored (restored=True)" in caplog.text
    assert service.arrivals() == requests
    async with Outbox.open(address, client, restored=True) as told:
        assert await sent(told, [*keys, late]) == [Verdict.APPLIED] * 3
        more = await enqueue(outbox, update(client, service, "more", hook))
        # told once: this one is not in doubt
        assert await sent(told, more) == [Verdict.APPLIED]
        assert '"is_open":false' in await outbox_entries(told).facts.get("restored")
    assert await sent(outbox, await enqueue(outbox, client.webhooks.create(**HOOK)))
    effects = [(entry.operation, entry.path_id) for entry in service.ledger.effects()]
    assert sorted(effects, key=str) == sorted(
        [("webhooks.create", None)] * 3 + [("webhooks.update", hook)] * 3, key=str
    )


async def test_complete_database_in_another_place(service, client, outbox, address):
    """With ``moved`` what is open is sent without a doubt."""
    await sent(outbox, [])
    keys = await enqueue(outbox, update(client, service))
    await put_back(outbox, lambda: asyncio.sleep(0))
    async with Outbox.open(address, client, moved=True) as told:
        assert await sent(told, keys) == [Verdict.APPLIED]


async def test_people_are_refused_until_it_is_said_what_the_database_is(
    service, client, outbox, address
):
    """What was sent since the copy is not known: nothing is dropped as not sent, and no finding is stored."""
    await sent(outbox, await enqueue(outbox, client.webhooks.create(**HOOK)))
    write = client.webhooks.create(**HOOK).keyed("order-17")
    keys = await enqueue(outbox, write)
    await put_back(outbox, lambda: sent(outbox, keys))
    async with Outbox.open(address, client) as other:
        with pytest.raises(JournalError, match=r"restored from a backup.*--restored"):
            await other.drop("order-17")
        with pytest.raises(JournalError, match=r"restored from a backup.*--restored"):
            await other.resolve("order-17", applied=False, because="not in the list")
        # They may go on with what cannot have been sent.
        assert await enqueue(other, update(client, service, "late"))
        assert not await other.retry("order-17")
    async with Outbox.open(address, client, restored=True) as told:
        # That says it, even if nothing is dispatched.
        assert not await told.drop("order-17")
        assert await sent(told, keys) == [Verdict.APPLIED]
        assert await told.drop("order-17")
    assert len(service.ledger.effects("webhooks.create")) == 2


async def test_finding_of_a_person_does_not_tell_when_the_copy_was_made(
    service, client, tmp_path
):
    """It may be of a time when nobody knew that this is a copy."""
    path = tmp_path / "app.db"
    service.script("teams.create", "500")
    async with Outbox.open(path, client) as outbox:
        keys = await enqueue(
            outbox, client.teams.create(legal_name="t").keyed("unknown")
        )
        assert await sent(outbox, keys) == [Verdict.UNKNOWN]
        done_at = (await entries_of(outbox))[0].done_at
        keys = await enqueue(outbox, client.teams.create(legal_name="u").keyed("found"))
        service.script("teams.create", "500")
        assert await sent(outbox, keys) == [Verdict.UNKNOWN]
        await outbox.resolve("found", applied=True, because="seen in the dashboard")
    async with Outbox.open(path, client, restored=True) as outbox:
        noted = await outbox_entries(outbox).facts.get("restored")
    assert f'"since":{done_at},' in noted


async def fill(path, client, *writes):
    """Enqueue writes in the outbox in the file at *path*, and return their keys."""
    async with Outbox.open(path, client) as outbox:
        return await enqueue(outbox, *writes)


@pytest.fixture
async def path(tmp_path, client):
    """Return the path of an application's file, whose outbox was used."""
    async with Outbox.open(tmp_path / "app.db", client) as outbox:
        await sent(outbox, [])
    return tmp_path / "app.db"


@pytest.mark.parametrize(
    "lost", ["the journal too", "only the journal", "only the application's file"]
)
async def test_files_put_back(service, client, path, tmp_path, lost):
    """An older journal, or none, is refused in words; once told, what may have been sent is settled first."""
    keys = await fill(
        path, client, client.webhooks.create(**HOOK), update(client, service)
    )
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path, kept, ignore=shutil.ignore_patterns("kept"))
    async with Outbox.open(path, client) as outbox:
        assert await sent(outbox, keys) == [Verdict.APPLIED] * 2
    if lost != "only the journal":
        shutil.copy(kept / "app.db", path)
    if lost != "only the application's file":
        [beside] = tmp_path.glob("*.epoch")
        journal = beside.with_suffix("")
        if lost == "the journal too":
            journal.unlink()
            beside.unlink()
        else:
            shutil.copy(kept / journal.name, journal)
        with pytest.raises(JournalError, match="run the outbox with --restored"):
            async with Outbox.open(path, client):
                pass
    restored = lost != "only the application's file"
    async with Outbox.open(path, client, restored=restored) as outbox:
        expected = Verdict.UNKNOWN if lost == "only the journal" else Verdict.APPLIED
        assert await sent(outbox, keys) == [expected] * 2
        # nothing is left of them, or they are applied
        assert await outbox.retry(*keys) == []
    async with Outbox.open(path, client) as outbox:  # told once
        assert await sent(outbox, []) == []
    assert len(service.ledger.effects()) == 2
    assert (
        service.arrivals("webhooks.create") + service.arrivals("webhooks.update") == 2
    )


async def test_first_start_after_a_restore_that_fails(
    service, client, path, tmp_path, monkeypatch
):
    """The next one need not be told again: what was not moved to the journal when it was copied is in doubt, too."""
    monkeypatch.setattr("invsvc_async.outbox.application_file._PATIENCE", 0.1)
    [first] = await fill(path, client, update(client, service))
    async with Outbox.open(path, client) as outbox:
        await sent(outbox, [first])
    keys = await fill(path, client, client.webhooks.create(**HOOK))
    files_of(path, tmp_path / "kept")
    async with Outbox.open(path, client) as outbox:
        await sent(outbox, keys)
    files_of(tmp_path / "kept" / path.name, path.parent)
    async with aiosqlite.connect(path, isolation_level=None) as own:
        await own.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalError, match="database is locked"):
            async with Outbox.open(path, client, restored=True):
                pass
        await own.execute("ROLLBACK")
    async with Outbox.open(path, client) as outbox:
        assert await sent(outbox, keys) == [Verdict.APPLIED]
        [late] = await enqueue(outbox, update(client, service, "late"))
        await outbox_entries(outbox).move()
        # It is of no copy.
        assert await outbox.drop(late)
    assert service.arrivals("webhooks.create") == 1


@pytest.mark.parametrize("first", ["open", "done"])
async def test_file_put_back_whose_key_is_used_again(
    service, client, path, tmp_path, first
):
    """The journal has another write under the key. That one ends, then the new one is sent, then what came after it."""
    before, after, last = changes(
        client, service.seed_webhook().id, "before", "after", "last"
    )
    kept = shutil.copy(path, tmp_path / "kept.db")
    await fill(path, client, before.keyed("order-1"))
    async with Outbox.open(path, client) as outbox:
        if first == "done":
            await sent(outbox, ["order-1"])
        else:  # the process was killed once its row was in the journal
            await outbox_entries(outbox).move()
    shutil.copy(kept, path)
    await fill(path, client, after.keyed("order-1"), last.keyed("order-2"))
    async with Outbox.open(path, client) as outbox:
        assert await outbox.get("order-1") is None
        assert await sent(outbox, ["order-2", "order-1"]) == [Verdict.APPLIED] * 2
    assert written(service.ledger.effects()) == ["before", "after", "last"]


@pytest.mark.parametrize("moved", [True, False])
async def test_writes_of_a_copy_that_do_not_fit(service, client, path, moved):
    """
    What an older copy has as to do may have been sent: it is UNKNOWN if the code cannot read it, then settled.

    So may what was not moved to the journal when the copy was made.
    """
    keys = await fill(path, client, client.webhooks.create(**HOOK))
    kept = shutil.copy(path, path.with_name("kept"))
    async with Outbox.open(path, client) as outbox:
        assert await sent(outbox, keys) == [Verdict.APPLIED]
    shutil.copy(kept, path)
    for beside in path.parent.glob("app.db-outbox-*"):
        beside.unlink()
    change = "webhooks.create", "webhooks.gone"
    if not moved:
        async with aiosqlite.connect(path) as made:
            await made.execute(
                "UPDATE invsvc_outbox SET intent = replace(intent, ?, ?)", change
            )
            await made.commit()
    async with Outbox.open(path, client, restored=True) as outbox:
        if moved:
            await spoil(outbox, *change)
            await outbox.retry(*keys)
        assert await sent(outbox, keys) == [Verdict.UNKNOWN]
        await spoil(outbox, *reversed(change))
        assert await outbox.retry(*keys) == keys
        assert await sent(outbox, keys) == [Verdict.APPLIED]
    assert service.arrivals("webhooks.create") == 1


@pytest.mark.parametrize(
    ("intent", "verdict"),
    [
        (
            '{"sent":[{"attempt_timeout":30,"end":{"kind":"not applied"}}]}',
            "not applied",
        ),
        ('{"sent":[{"attempt_timeout":30,"end":{"kind":"long"}}]}', "unknown"),
        ('{"sent":[{"attempt_timeout":30}]}', "unknown"),
        ('{"sent":{}}', "unknown"),
        ("{", "unknown"),
        (None, "not applied"),
    ],
)
def test_whether_an_unfit_write_may_have_been_sent(intent, verdict):
    """Its sends say so as far as they can be read; if they cannot, it may have been."""
    entry = Entry(
        key="k", state=State.TO_DO, operation="webhooks.create", intent=intent
    )
    assert verdict_of_unfit(entry, InvalidRequestError("unfit")).verdict == verdict


def files_of(path, to):
    """Copy the application's file at *path*, and all beside it, to the folder *to*."""
    to.mkdir(exist_ok=True)
    for each in path.parent.glob(f"{path.name}*"):
        shutil.copy(each, to / each.name)


@pytest.fixture
def _one_at_a_time(monkeypatch):
    """Make dispatchers read one entry at a time, as if many others were between those of the test."""
    monkeypatch.setattr("invsvc_async.batch.lane_reader._AT_ONCE", 1)


@pytest.mark.usefixtures("_one_at_a_time")
async def test_older_write_of_a_copy_that_is_read_long_before_a_later_one(
    service, client, path, tmp_path
):
    """It is not sent over one that the copy has, too, and that perhaps was sent."""
    hook = service.seed_webhook().id
    keys = await fill(
        path,
        client,
        client.webhooks.update(hook, description="A"),
        client.webhooks.delete(hook).keyed("delete"),
        client.webhooks.update(hook, description="C").keyed("later"),
    )
    files_of(path, tmp_path / "kept")
    service.script("webhooks.delete", "403")
    async with Outbox.open(path, client) as outbox:
        assert (await sent(outbox, keys))[1:] == [Verdict.REFUSED, Verdict.APPLIED]
    files_of(tmp_path / "kept" / path.name, path.parent)
    async with (
        client_of(service) as anew,
        Outbox.open(path, anew, restored=True) as outbox,
    ):
        assert (await sent(outbox, keys))[1:] == [
            Verdict.NOT_APPLIED,
            Verdict.APPLIED,
        ]
        found = await outbox.get("delete")
    assert found.evidence.cause == "perhaps overtaken"
    assert service.arrivals("webhooks.delete") == 1


@pytest.mark.usefixtures("_one_at_a_time")
async def test_retried_writes_of_a_copy_that_are_read_one_after_another(
    service, client, path, tmp_path
):
    """The state is that of A, so B and C have not arrived, or were undone. A retry sends both, in their order."""
    hook = service.seed_webhook().id
    a, b, c = changes(client, hook, *"ABC")
    async with Outbox.open(path, client) as outbox:
        assert await sent(outbox, await enqueue(outbox, a)) == [Verdict.APPLIED]
    keys = await fill(path, client, b, c)
    async with (
        client_of(service) as anew,
        Outbox.open(path, anew, restored=True) as outbox,
    ):
        assert await sent(outbox, keys) == [Verdict.UNKNOWN] * 2
        assert await outbox.retry(*keys) == sorted(keys)
        assert await sent(outbox, keys) == [Verdict.APPLIED] * 2
    assert written(service.ledger.effects()) == [*"ABC"]


async def test_enqueuing_goes_on_through_a_restore(
    service, client, outbox, connection, address
):
    """What the process has stored once may be missing in the copy, so it is stored again."""
    await enqueue(outbox, update(client, service, "before"))
    schema = store_beneath(outbox).schema
    await connection.execute(f"TRUNCATE {schema}.commons, {schema}.entries")
    await connection.execute(CUT_OFF)
    await until_no(store_beneath(outbox)._pool.get_size)
    keys = await enqueue(outbox, update(client, service, "after"))
    async with Outbox.open(address, client) as other:
        assert await sent(other, keys) == [Verdict.APPLIED]


async def test_database_restored_under_an_idle_dispatcher(
    service, client, outbox, connection, caplog
):
    """The words say why nothing is sent, though there is nothing to send. It goes on once it may."""
    with caplog.at_level(logging.ERROR, "invsvc_async.outbox"):
        async with outbox.dispatching(), asyncio.timeout(300):
            await until_no(lambda: store_beneath(outbox)._place is None)
            store_beneath(outbox)._place["timeline"] = "00000077"
            await connection.execute(CUT_OFF)
            await until(lambda: "restored from a backup" in caplog.text)
            # the place was accepted
            assert await ended(outbox, update(client, service)) == [Verdict.APPLIED]


async def test_second_restore_from_a_copy_that_was_made_after_the_first(
    service, client, outbox, connection, address, caplog
):
    """What was enqueued since the first one may have been sent since that copy, so it is settled first."""
    hook, schema = service.seed_webhook().id, store_beneath(outbox).schema
    await sent(
        outbox, await enqueue(outbox, client.webhooks.update(hook, description="first"))
    )
    await go_to_another_timeline(store_beneath(outbox))

    async def refused():
        caplog.clear()
        async with outbox.dispatching(), asyncio.timeout(300):
            await until(lambda: "restored from a backup" in caplog.text)

    await refused()
    [late] = await enqueue(outbox, client.webhooks.update(hook, description="late"))
    await connection.execute(
        f"SET search_path = {schema}; CREATE TABLE copy AS TABLE entries"
    )
    await connection.execute("CREATE TABLE facts_before AS TABLE facts")
    async with Outbox.open(address, client, restored=True) as told:
        assert await sent(told, [late]) == [Verdict.APPLIED]
    await connection.execute(
        TABLES_MADE_ANEW + "TRUNCATE facts; INSERT INTO facts TABLE facts_before"
    )
    await refused()
    async with Outbox.open(address, client, restored=True) as told:
        assert await sent(told, [late]) == [Verdict.APPLIED]
    assert service.arrivals("webhooks.update") == 2


@pytest.mark.parametrize("is_at_end", [False, True])
async def test_older_write_of_a_copy_before_one_that_waited_there(
    service, client, path, tmp_path, monkeypatch, is_at_end
):
    """It is not sent again over a later one that waits aside in the copy, and perhaps was sent since."""
    if is_at_end:
        # reaches: a lane seems to have more if something is heard of it while it is read
        monkeypatch.setattr(ReadPlaces, "have_more", lambda *_: False)
    hook = service.seed_webhook().id
    before, a, x, b = changes(client, hook, "0", "A", "X", "0")
    later = datetime.now(UTC) + timedelta(days=1)
    async with Outbox.open(path, client) as outbox:
        assert await sent(outbox, await enqueue(outbox, before)) == [Verdict.APPLIED]
        [first] = await enqueue(outbox, a)
        async with transaction_of(outbox) as made:
            waits = await outbox.enqueue(made, x, not_before=later)
        [behind] = await enqueue(outbox, b)
        service.script("webhooks.update", "hang")
        async with outbox.dispatching():
            await service.arrived("webhooks.update", 2)
            await until(lambda: are_aside(outbox, waits, behind))
    files_of(path, tmp_path / "kept")
    async with client_of(service) as anew, Outbox.open(path, anew) as outbox:
        assert await outbox.drop(waits)
        assert await sent(outbox, [first, behind]) == [Verdict.APPLIED] * 2
    files_of(tmp_path / "kept" / path.name, path.parent)
    async with (
        client_of(service) as anew,
        Outbox.open(path, anew, restored=True) as outbox,
    ):
        assert await sent(outbox, [first]) == [Verdict.UNKNOWN]
        assert await outbox.retry(first) == [first]
        assert await sent(outbox, [first]) == [Verdict.UNKNOWN]
    assert written(service.ledger.effects()) == ["0", "A", "0"]


async def are_aside(outbox, *keys):
    """Return whether the writes of *keys* wait aside."""
    entries = outbox_entries(outbox)
    found = {each.key for each in await due.first(entries.store, entries.lanes, 9)}
    return found >= {*keys}
