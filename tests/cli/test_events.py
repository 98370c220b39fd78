"""`invsvc events` on a store of each kind: listed, shown, revived, dropped, replayed."""

from __future__ import annotations

import asyncio
import itertools
import json
from datetime import datetime, timedelta, timezone

import pytest

from invsvc_async import ConfigurationError, events
from invsvc_async.cli.app import run
from invsvc_async.cli.event_views import number_in_words
from invsvc_async.events.stores import StateStats, open_store
from tests.cli.conftest import printed
from tests.events.conftest import postgres  # noqa: F401 - pytest finds it by name
from tests.support.waiting import until

pytestmark = pytest.mark.one_python

_numbers = itertools.count()


async def fill(store):
    """Store a dead letter with a terminal escape in it, a handled event with its body, one without, one open."""

    async def one(key, kind, body):
        await store.put(events.Delivery(key=key, type=kind, body=body))
        (entry,) = await store.take(limit=1, lease=10)
        return entry

    await store.bury(
        await one("dead", "invoice.created", b'{"a": "\x1b[2J\\u202e"}'),
        reason="it\x1b[2J broke",
    )
    await store.handled(await one("kept", "invoice.created", b"{}"), body=b"{}")
    await store.handled(await one("gone", "invoice.canceled", b"{}"))
    await store.bury(
        events.Delivery(key=None, type="", body=b"\xff\xfe"), reason="unreadable"
    )
    await store.put(events.Delivery(key="waits", type="receipt.created", body=b"{}"))
    await store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def stored(request, here, offline):
    """Return a function that runs `invsvc events` on a filled store of each kind, and the store."""
    where, table = "events.db", "invsvc_delivery"
    if request.param == "postgres":
        where, table = request.getfixturevalue("postgres"), f"cli_{next(_numbers)}"
    store = (
        events.PostgresStore(where, table=table)
        if request.param == "postgres"
        else open_store(where)
    )
    asyncio.run(fill(store))

    def run(command, *arguments):
        return offline("events", command, where, "--table", table, *arguments)

    return run


def listed(run, *arguments):
    """Return keys by state."""
    ran = run("list", "--json", *arguments)
    assert ran.code == 0
    return [(one["state"], one["key"]) for one in map(json.loads, ran.out.splitlines())]


def test_list(stored):
    """Dead letters by default; other states, types and pages by option."""
    assert listed(stored) == [("dead", "dead"), ("dead", None)]
    assert listed(stored, "--state", "handled", "--type", "invoice.created") == [
        ("handled", "kept")
    ]
    every = listed(stored, "--state", "all")
    assert [key for _, key in every] == ["dead", "kept", "gone", None, "waits"]
    ran = stored("list", "--state", "all", "--limit", "2")
    assert "continue with --after 2" in ran.err
    assert listed(stored, "--state", "all", "--after", "2") == every[2:]
    assert listed(stored, "--state", "all", "--until", "1d") == []
    assert listed(stored, "--state", "all", "--since", "1d") == every
    an_hour_ago = datetime.now(timezone(timedelta(hours=14))) - timedelta(hours=1)
    assert listed(stored, "--state", "all", "--since", str(an_hour_ago)) == every
    assert (
        "Did you mean invoice.created" in stored("list", "--type", "invoice.creatd").err
    )
    ran = stored("list")
    assert ran.out.splitlines()[1].split("\t")[:5] == [
        "1",
        "dead",
        "invoice.created",
        "dead",
        "1",
    ]
    assert "\x1b" not in ran.out


def test_address_first(here, offline, monkeypatch):
    """The address comes before ids, as in other commands; ``--store`` still works, with a note."""
    monkeypatch.delenv("INVSVC_EVENT_STORE", raising=False)
    asyncio.run(fill(open_store("events.db")))
    for words in ("list events.db --state dead", "list --state dead events.db"):
        ran = offline("events", *words.split())
        assert (ran.code, len(ran.out.splitlines()), ran.err) == (0, 3, "")
    assert offline("events", "show", "events.db", "1").code == 0
    assert offline("events", "revive", "events.db", "1").out == "1 event revived\n"
    older = offline("events", "show", "1", "--store", "events.db")
    assert older.code == 0
    assert older.err == "--store: is an older form of invsvc events show ADDRESS\n"
    monkeypatch.setenv("INVSVC_EVENT_STORE", "events.db")
    assert offline("events", "show", "1").code == 0


def test_show(stored):
    """The body is shown whole, without its control characters taking effect."""
    ran = stored("show", "1")
    assert (ran.code, "\x1b" in ran.out) == (0, False)
    assert '{"a": "\\x1b[2J' in ran.out
    assert (
        json.loads(stored("show", "1", "--json").out)["body"]
        == '{"a": "\x1b[2J\\u202e"}'
    )
    assert json.loads(stored("show", "4", "--json").out)["body_base64"] == "//4="
    assert "(deleted)" in stored("show", "3").out
    ran = stored("show", "99")
    assert (ran.code, "no such event" in ran.err) == (1, True)


def test_revive(stored):
    """Dead letters wait again; others are refused, and the exit code says so."""
    ran = stored("revive", "1", "2", "99", "--json")
    assert (ran.code, json.loads(ran.out)) == (1, {"revived": 1, "failed": 2})
    assert "2: it is handled" in ran.err
    assert listed(stored, "--state", "open") == [("open", "dead"), ("open", "waits")]
    ran = stored("revive", "--all")
    assert (ran.code, ran.out) == (0, "1 event revived\n")
    assert listed(stored) == []


def test_drop(stored):
    """The chosen go; keys stay, and what has no key is gone altogether."""
    ran = stored("drop", "--all")
    assert (ran.code, ran.out) == (0, "2 events dropped\n")
    assert listed(stored, "--state", "all") == [
        ("handled", "dead"), ("handled", "kept"), ("handled", "gone"), ("open", "waits"),
    ]  # fmt: skip
    assert stored("drop", "--all", "--state", "open").code == 0
    assert listed(stored, "--state", "open") == []
    ran = stored("drop", "3", "--json")
    assert (ran.code, json.loads(ran.out)) == (1, {"dropped": 0, "failed": 1})


def test_replay(stored):
    """Handled events whose bodies were kept wait again, and only these."""
    ran = stored("replay", "--all", "--since", "2020-01-01", "--json")
    assert (ran.code, json.loads(ran.out)) == (0, {"replayed": 1, "failed": 0})
    assert "1 event passed over: no body was kept" in ran.err
    assert listed(stored, "--state", "open") == [("open", "kept"), ("open", "waits")]
    ran = stored("replay", "3")
    assert (ran.code, "cannot be replayed" in ran.err) == (1, True)


def replayed(run, *arguments):
    """Return how many events were replayed to a handler, how many failed, and the code."""
    ran = run("replay", "--json", *arguments)
    counts = json.loads(ran.out)
    return counts["replayed"], counts["failed"], ran.code


def test_replay_to_one_handler(stored):
    """It gets each event with a body once, also dead letters of others; what is for it can be listed."""
    assert replayed(
        stored, "--all", "--handler", "audit", "--type", "invoice.created"
    ) == (2, 0, 0)
    assert replayed(stored, "--all", "--handler", "audit") == (0, 0, 0), (
        "what waits is for all handlers"
    )
    assert replayed(stored, "1", "3", "--handler", "audit") == (0, 2, 1)
    assert stored("replay", "--all", "--handler", "").code == 2
    ran = stored("list", "--state", "open", "--handler", "audit", "--json")
    found = [json.loads(line) for line in ran.out.splitlines()]
    assert [(one["type"], one["handler"]) for one in found] == [
        ("invoice.created", "audit"), ("invoice.created", "audit"),
    ]  # fmt: skip
    assert "audit" in stored("list", "--state", "open").out

    ran = stored("drop", "--all", "--state", "open", "--handler", "audit", "--json")
    assert json.loads(ran.out) == {"dropped": 2, "failed": 0}
    assert listed(stored, "--state", "open") == [("open", "waits")]


async def _kept_after_no_event(path):
    """Store a body that is no event, and then an event; both were handled, and their bodies are kept."""
    store = open_store(path)
    for key, kind in (
        ("first", "invoice.created"),
        (None, ""),
        ("last", "invoice.created"),
    ):
        await store.put(events.Delivery(key=key, type=kind, body=b"{}"))
        (entry,) = await store.take(limit=1, lease=10)
        await store.handled(entry, body=b"{}")
    await store.close()


def test_replay_to_one_handler_with_no_event_in_between(here, offline):
    """A body that is no event is passed over, and those after it are replayed."""
    asyncio.run(_kept_after_no_event("events.db"))

    def run(command, *arguments):
        return offline("events", command, "--store", "events.db", *arguments)

    assert replayed(run, "--all", "--handler", "audit") == (2, 0, 0)
    assert [key for _, key in listed(run, "--state", "open")] == ["first", "last"]


def test_number_that_was_not_counted_to_its_end():
    """It has a mark."""
    assert (
        number_in_words(StateStats(count=100_000, oldest=1.0, has_more=True))
        == "100,000+"
    )
    assert number_in_words(StateStats(count=100_000, oldest=1.0)) == "100,000"


def test_stats(stored):
    """Each state is counted."""
    found = json.loads(stored("stats", "--json").out)
    backlog = found.pop("backlog")
    assert (backlog["due"], backlog["dead"], backlog["late"] > 0) == (1, 2, True)
    assert not any(one["has_more"] for one in found.values())
    assert {state: one["count"] for state, one in found.items()} == {
        "open": 1,
        "handled": 2,
        "dead": 2,
    }
    lines = stored("stats").out.splitlines()
    assert lines[0] == "state\tevents\toldest"
    assert lines[-1].startswith("1 due now, for up to ")


def test_prune(stored):
    """What is left is counted, with the reason."""
    ran = stored("prune", "--older-than", "0s", "--json")
    found = json.loads(ran.out)
    assert (ran.code, found["pruned"]) == (0, 2)
    assert {state: one["count"] for state, one in found["kept"].items()} == {
        "open": 1,
        "handled": 0,
        "dead": 2,
    }
    lines = stored("prune").out.splitlines()
    assert lines[0] == "0 events pruned"
    assert lines[1:] == [
        "kept\tevents\twhy", "open\t1\tnot handled yet", "handled\t0\tless than 30d ago",
        "dead\t2\tuntil dropped: --dead was not given",
    ]  # fmt: skip
    assert (
        stored("prune", "--dead", "0s").out.splitlines()[-1]
        == "dead\t0\tyounger than 0s"
    )
    ran = stored("prune", "--older-than", "yesterday")
    assert (ran.code, "--older-than" in ran.err) == (2, True)


def test_copies_show_the_key_of_their_event(stored):
    """Those for one more handler, too; an event without a key has none."""
    stored("replay", "--all", "--handler", "new")
    copies = [
        json.loads(line)
        for line in stored("list", "--state", "open", "--json").out.splitlines()
    ]
    assert [(one["key"], one["handler"]) for one in copies] == [
        ("waits", ""), ("dead", "new"), ("kept", "new"),
    ]  # fmt: skip


def test_store_that_does_not_exist(here, offline):
    """A misspelt path is refused, and no file is made."""
    ran = offline("events", "stats", "--store", "misspelt.db")
    assert (ran.code, "no such file" in ran.err, list(here.iterdir())) == (2, True, [])


async def _made(path):
    store = open_store(path)
    await store.open()
    await store.close()


@pytest.mark.parametrize(
    "arguments",
    [
        ["revive"], ["drop"], ["replay"], ["revive", "1", "--all"], ["list", "--since", "yesterday"],
        ["list", "--since", "999999d"], ["list", "--since", f"{'9' * 30}d"], ["list", "--after", "9" * 20],
        ["show", "9" * 20], ["revive", "9" * 20], ["prune", "--older-than", f"{'9' * 5000}d"],
        ["prune", "--older-than", ""], ["prune", "--dead", ""],
    ],
)  # fmt: skip
def test_words_that_make_no_sense(here, offline, arguments):
    """A change without a choice, or with two, and numbers out of range are refused."""
    asyncio.run(_made("events.db"))
    assert offline("events", *arguments, "--store", "events.db").code == 2


def test_table_that_does_not_exist(postgres, offline):  # noqa: F811 - the fixture of that name
    """A misspelt table is an error in words, and is not created."""
    for _ in range(2):
        ran = offline("events", "stats", "--store", postgres, "--table", "typo")
        assert (ran.code, "table typo: does not exist" in ran.err) == (1, True)


@pytest.mark.parametrize("place", [":memory:", "", "."])
def test_store_that_is_no_file(place):
    """It is refused in words: SQLite would take it for a database of its own."""
    with pytest.raises(ConfigurationError, match="is not a file"):
        open_store(place)


async def test_reason_on_a_narrow_terminal(here, monkeypatch):
    """A dead letter says why it is one, also where its key does not fit."""
    store = open_store("events.db")
    key = f"sat:evt_{'1' * 40}"
    letter = events.Delivery(key=key, type="invoice.created", body=b"{}")
    await store.bury(letter, reason="KeyError: 'folio_number'")
    await store.close()
    monkeypatch.setenv("COLUMNS", "80")
    text = await asyncio.to_thread(printed, run, ["events", "list", "events.db"])
    assert "folio_number" in text
    assert "a wider terminal shows key, too" in text


async def test_catch_up(service, invsvc_in_thread):
    """What was lost is stored for the receiver, once; the result says what was found, and what no list shows."""
    store = open_store("events.db")
    await store.open()
    await store.close()
    command = ("events", "catch-up", "events.db", "--since", "30m", "--json")
    at = service.clock.now_ms() - 600_000
    lost = service.seed_invoice(created_at=at, status="canceled")
    (code, out, _), (again, known, _) = [await invsvc_in_thread(*command) for _ in "ab"]
    found = json.loads(out)
    assert (code, again) == (0, 0)
    assert (found["objects"], found["handed"], found["known"]) == (1, 2, 0)
    assert (json.loads(known)["handed"], json.loads(known)["known"]) == (0, 2)
    assert found["types"] == ["invoice.created", "invoice.canceled"]
    assert "payment.created" in found["not_listed"]
    assert found["until"].endswith("Z")

    seen = []
    receiver = events.Receiver(
        secrets=["x"], accept_unsigned=True, mode="inbox", store=store
    )

    @receiver.on("invoice.*")
    async def handle(event):
        seen.append((event.type, event.data.uuid, event.is_catch_up))

    async with receiver:
        await until(lambda: len(seen) == 2)
    assert seen == [
        ("invoice.created", lost.uuid, True),
        ("invoice.canceled", lost.uuid, True),
    ]

    service.seed_invoice(created_at=at, uuid="x" * 200)
    code, out, _ = await invsvc_in_thread(*command)
    assert (code, json.loads(out)["passed_over"]) == (1, 1)
    for wrong in (
        ["events.db", "--since", "1m"],
        ["no.db", "--since", "1d"],
        ["events.db"],
    ):
        code, _, err = await invsvc_in_thread("events", "catch-up", *wrong)
        assert (code, "Traceback" in err) == (2, False)
