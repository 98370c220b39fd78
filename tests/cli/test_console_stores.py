"""The console of each kind of store, in a file and in a database: it shows what the commands print, and changes it."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from invsvc_async import ConfigurationError, Outbox, events
from invsvc_async.batch import Batch
from invsvc_async.cli.options import misuse
from invsvc_async.events.stores import open_store
from tests.batch.conftest import client_of
from tests.batch.writing import all_of, creates
from tests.cli.console_scenes import FINDING, fill_journal
from tests.cli.opened_console import console_page
from tests.cli.test_events import fill
from tests.cli.test_stores import STATES, Stored, empty, invsvc, stored  # noqa: F401 - pytest finds them by name
from tests.events.conftest import postgres  # noqa: F401 - the same

pytestmark = pytest.mark.one_python
_numbers = itertools.count()


def printed_facts(out):
    """Return the names and texts that a command has printed."""
    lines = [re.fullmatch(r"  (.{16}) (.*)", line) for line in out.splitlines()]
    return {found[1].strip(): found[2] for found in lines if found and found[2]}


def without_ages(facts):
    """Return facts without those that change from second to second."""
    return {
        name: words for name, words in facts.items() if name not in {"age", "process"}
    }


async def test_views(stored, invsvc, service):  # noqa: F811 - fixtures
    """The list, each write and the report are those of the commands."""
    async with console_page(stored.place, stored.kind, service=service) as page:
        about = await page.data("about")
        assert (about["kind"], "secret" in about["name"]) == (stored.kind, False)
        rows = await page.rows()
        assert {key: row["state"] for key, row in rows.items()} == STATES
        assert {*await page.rows(state="open")} == {"waiting"}
        assert {*await page.rows(state="refused")} == {"refused"}
        for key in STATES:
            shown = await page.shown(await page.named(key))
            assert (shown["title"], shown["state"]) == (key, STATES[key])
            _, out, _ = await invsvc(stored.kind, "show", stored.place, key)
            printed = without_ages(printed_facts(out))
            facts = without_ages(shown["facts"])
            # of a batch, in several lines
            assert facts.pop("story", "") in out
            assert facts.items() <= printed.items()
            left = {*printed} - {*facts} - {"story"}
            assert not [name for name in left if not name.startswith("verdict:")]
            assert "private" not in json.dumps(shown)
        assert "gone" in await page.shown("nowhere")
        report = await page.data("report")
        _, out, _ = await invsvc(stored.kind, "report", stored.place)
        lines = ["\t".join(row) for row in report["table"]["rows"]]
        assert out.splitlines()[1 : 1 + len(lines)] == lines
        assert [each["verdict"] for each in report["groups"]] == ["refused", "unknown"]
        watched = json.loads((await page.get("watch/data")).body)
        assert (watched["kind"], watched["console"]) == (stored.kind, True)


async def test_workers(stored, service):  # noqa: F811 - a fixture
    """A store that processes share has a view of them."""
    async with console_page(stored.place, stored.kind, service=service) as page:
        views = (await page.data("about"))["views"]
        assert ("workers" in views) == (stored.form == "database")
        if stored.form == "database":
            titles = (await page.data("workers"))["table"]["titles"]
            assert titles[:3] == ["host", "pid", "state"]
        else:
            assert "problem" in await page.data("workers")


async def test_resolve(stored, service):  # noqa: F811 - a fixture
    """A person's finding is the verdict from then on, for all that ask; nothing is sent."""
    arrived = len(service.ledger.entries)
    async with console_page(stored.place, stored.kind, service=service) as page:
        name = await page.named("unknown")
        asked = await page.ask("resolve", name, **FINDING, by="ann")
        assert asked.body["will"][0] == (
            "Its verdict becomes: applied, of conn_1. It is never sent again."
        )
        assert "ann found it: seen in the dashboard" in asked.body["will"][1]
        [now] = asked.body["now"]
        assert dict(now["facts"])["verdict"] == "unknown"
        done = await page.confirm(asked)
        assert "applied: ann found that it was applied" in done.body["done"]
        shown = await page.shown(name)
        assert (shown["state"], shown["facts"]["evidence"]) == ("applied", "person")
    async with stored.client_of(service) as client:
        if stored.kind == "journal":
            write = client.sheets.save_mapping({"a": "private"}).keyed("unknown")
            outcome = await write.outcome()
            assert outcome.replayed
        elif stored.kind == "batch":
            async with Batch.open(stored.place, client) as batch:
                outcome = await batch.get("unknown")
        else:
            async with Outbox.open(stored.place, client) as outbox:
                outcome = await outbox.get("unknown")
    assert outcome.applied
    assert (outcome.evidence.basis, outcome.evidence.person.by) == ("person", "ann")
    assert len(service.ledger.entries) == arrived


async def test_retry(stored, service):  # noqa: F811 - a fixture
    """What is marked so is sent by the next run, once, and by nothing before."""
    async with console_page(stored.place, stored.kind, service=service) as page:
        arrived = len(service.ledger.entries)
        done = await page.do("retry", await page.named("refused"))
        assert done == "1 write to be done again."
        assert (await page.rows())["refused"]["state"] == "to do"
        assert len(service.ledger.entries) == arrived
    before = len(service.ledger.effects("webhooks.update"))
    async with stored.client_of(service) as client:
        if stored.kind == "batch":
            await stored.write(client)
        elif stored.kind == "outbox":
            await stored.dispatch(client, "refused", "waiting")
    done = len(service.ledger.effects("webhooks.update")) - before
    assert done == (0 if stored.kind == "journal" else 2)


async def test_retry_of_an_unknown_one(stored, service):  # noqa: F811 - a fixture
    """The confirmation says that it is settled by reads first; it keeps its sends."""
    async with console_page(stored.place, stored.kind, service=service) as page:
        name = await page.named("unknown")
        asked = await page.ask("retry", name)
        assert any("settled by reads first" in each for each in asked.body["will"])
        assert (await page.confirm(asked)).status == 200
        shown = await page.shown(name)
        assert shown["state"] in {"to do", "sending"}
        assert shown["changes"] == ["resolve"]
        assert (await page.ask("drop", name)).status == 409


async def test_drop(stored, service):  # noqa: F811 - a fixture
    """What was not sent yet is deleted, several at once too, and is not sent then."""
    is_batch = stored.kind == "batch"
    async with console_page(stored.place, stored.kind, service=service) as page:
        names = [await page.named("waiting")]
        if not is_batch:
            names.append(await page.named("refused"))
        many = "1 write" if is_batch else "2 writes"
        assert await page.do("drop", *names) == f"{many} dropped."
        left = {"applied", "unknown"} | ({"refused"} if is_batch else set())
        assert {*await page.rows()} == left
    before = len(service.ledger.entries)
    async with stored.client_of(service) as client:
        if is_batch:
            await stored.write(client)
        elif stored.kind == "outbox":
            async with (
                Outbox.open(stored.place, client) as outbox,
                outbox.dispatching(),
            ):
                await outbox.wait("applied")
    assert len(service.ledger.entries) == before


async def test_row_of_an_outbox_that_was_not_moved(service, tmp_path):
    """What only the application's table has is listed, and can be dropped; what was moved meanwhile is not."""
    place = Stored("outbox", "file", tmp_path, "x").place
    async with client_of(service) as client, Outbox.open(place, client) as outbox:
        for key in ("one", "two"):
            write = client.sheets.save_mapping({"a": "private"}).keyed(key)
            await outbox.enqueue(None, write)
    async with console_page(place, service=service) as page:
        assert {*await page.rows()} == {"one", "two"}
        assert await page.do("drop", "one") == "1 write dropped."
        assert {*await page.rows()} == {"two"}
    assert not service.ledger.entries


# --- event stores


@pytest.fixture(params=["sqlite", "postgres"])
async def event_store(request, tmp_path):
    """Return a filled event store, where it is, and in which table."""
    where, table = str(tmp_path / "events.db"), "invsvc_delivery"
    if request.param == "postgres":
        where = request.getfixturevalue("postgres")
        table = f"console_{next(_numbers)}"
    store = open_store(where, table=table)
    await fill(store)
    yield store, where, table
    await store.close()


async def test_events(event_store):
    """Dead letters are listed first; one is handled again, another deleted, and late duplicates stay known."""
    store, where, table = event_store
    async with console_page(where, "events", table=table) as page:
        about = await page.data("about")
        assert about["kind"] == "events"
        assert re.search("://[^/@]*:[^/@]*@", about["name"]) is None  # no password
        assert [*await page.rows(state="dead")] == ["dead", "4"]
        assert len(await page.rows()) == 5
        [waiting] = (await page.rows(state="open")).values()
        assert (waiting["state"], waiting["key"]) == ("open", "waits")
        counts = await page.data("counts")
        assert [row[:2] for row in counts["table"]["rows"]] == [
            ["open", "1"], ["handled", "2"], ["dead", "2"],
        ]  # fmt: skip
        assert counts["words"].startswith("1 due now")
        assert await page.do("revive", "1") == "1 event revived."
        assert await page.do("drop", "4", "2") == "2 events dropped."
        for number, change in (("3", "drop"), ("1", "revive"), ("99", "drop")):
            assert (await page.ask(change, number)).status == 409
        for wrong in ("x", "0", "-1", str(2**63)):
            assert (await page.ask("drop", wrong)).status == 400
    due = {each.key: each.attempts for each in await store.take(limit=9, lease=10)}
    assert due == {"dead": 1, "waits": 1}
    assert not await store.put(events.Delivery(key="kept", type="x", body=b"{}"))


# --- which store it is


async def test_kind_of_a_file(service, tmp_path):
    """A file says itself which kind of store it is; what is none is refused in words."""
    async with client_of(service) as client:
        async with Batch.open(tmp_path / "run.db", client) as batch:
            await all_of(batch, creates(client, 1))
        async with Outbox.open(tmp_path / "app.db", client):
            pass
    await fill_journal(service, tmp_path)
    await fill(open_store(str(tmp_path / "events.db")))
    for name, kind in (
        ("run", "batch"),
        ("app", "outbox"),
        ("journal", "journal"),
        ("events", "events"),
    ):
        async with console_page(tmp_path / f"{name}.db", service=service) as page:
            assert (await page.data("about"))["kind"] == kind
    async with console_page(f"{tmp_path}/journal.db?namespace=x") as page:
        assert (await page.data("about"))["kind"] == "journal"
    (tmp_path / "text.db").write_text("no database at all, whatever its name is")
    (tmp_path / "empty.db").touch()
    for name, words in (
        ("nowhere.db", "there is no such file"),
        ("text.db", "it cannot be read"),
        ("empty.db", "it is no store"),
        (f"{next(tmp_path.glob('app.db-outbox-*[!rh]')).name}", "it is no store"),
    ):
        with pytest.raises(type(misuse("")), match=words):
            async with console_page(tmp_path / name):
                pass


async def test_address_that_does_not_say_it():
    """An address in a database has to name the store, and no other database is one."""
    for address, error, words in (
        ("postgresql://u:geheim@127.0.0.1:1/x", type(misuse("")), "--kind|say which"),
        ("mysql://u:geheim@127.0.0.1/x", ConfigurationError, "not supported"),
    ):
        with pytest.raises(error, match=words) as raised:
            async with console_page(address):
                pass
        assert "geheim" not in str(raised.value)
