"""Commands that look at batches, outboxes and journals of clients, and change their writes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
from contextlib import suppress
from hashlib import blake2b
from itertools import product

import aiohttp
import pytest

from invsvc_async import Outbox, WriteError
from invsvc_async.batch import Batch
from invsvc_async.cli.commands.stores import BATCH, JOURNAL, OUTBOX, StoreOptions
from invsvc_async.client import options_of
from invsvc_async.durable.leases import Leases
from invsvc_async.simulator import Simulator
from tests.batch.conftest import HOOK, client_of
from tests.batch.writing import all_of
from tests.cli.conftest import ENVIRONMENT, child
from tests.durable.stores import spoil
from tests.durable.test_sharing import said
from tests.outbox.conftest import enqueue, finished, outbox_at, update, verdict_of
from tests.support.database import database
from tests.support.inside import journal_of
from tests.support.waiting import cancel

pytestmark = pytest.mark.one_python

KIND = {"batch": BATCH, "outbox": OUTBOX, "journal": JOURNAL}
KINDS = tuple(KIND)
AGAIN = {
    "batch": "run the batch",
    "outbox": "whoever sends its writes does it",
    "journal": "run the same write under its key",
}
FORMS = ("file", "database")
# a form of each kind, and a kind of each form; the commands do the same to the others
SAMPLED = {("batch", "file"), ("outbox", "database"), ("journal", "file")}


class Stored:
    """A store of one kind in one form."""

    def __init__(self, kind, form, folder, name):
        self.kind, self.form = kind, form
        name = f"v{blake2b(name.encode(), digest_size=6).hexdigest()}"
        address = database().address
        self.place = {
            ("batch", "database"): database().journal(name, silence=60),
            ("outbox", "database"): outbox_at(name, silence=60),
            (
                "journal",
                "database",
            ): f"{address}{'&' if '?' in address else '?'}journal={name}",
        }.get((kind, form), str(folder / "app.db"))

    def client_of(self, service):
        """Make a client; it has the store if that is its journal."""
        return client_of(
            service, **{"journal": self.place} if self.kind == "journal" else {}
        )

    async def write(self, client, *writes):
        """Do *writes*, one after the other."""
        if self.kind == "batch":
            async with Batch.open(self.place, client, concurrency=1) as batch:
                await all_of(batch, writes)
        elif self.kind == "outbox":
            async with Outbox.open(self.place, client, concurrency=1) as outbox:
                await finished(outbox, *writes)
        else:
            for write in writes:
                with suppress(WriteError):
                    await write.outcome()

    async def dispatch(self, client, *keys):
        """Send what an outbox has, until each of *keys* is applied."""
        async with Outbox.open(self.place, client) as outbox, outbox.dispatching():
            for key in keys:
                assert (await verdict_of(outbox, key)).applied

    async def write_one(self, service):
        """Do an update under the key "k"."""
        async with self.client_of(service) as client:
            await self.write(client, update(client, service, "x").keyed("k"))


@pytest.fixture
def invsvc(invsvc_in_thread):
    """Run a command line beside the service's loop."""
    return invsvc_in_thread


@pytest.fixture(
    params=[
        pytest.param(each, id="-".join(each), marks=() if each in SAMPLED else pytest.mark.slow)
        for each in product(KINDS, FORMS)
    ]
)  # fmt: skip
def empty(request, tmp_path):
    return Stored(*request.param, tmp_path, request.node.nodeid)


@pytest.fixture
async def stored(service, empty, invsvc):
    """Give a store with a write of each sort, named for it; the one that waits was refused before."""
    service.script("webhooks.update", "403", "403")
    service.script("sheets.save_mapping", "reset")
    async with empty.client_of(service) as client:
        refused, waiting, applied = (
            update(client, service, "private").keyed(key)
            for key in ("refused", "waiting", "applied")
        )
        unknown = client.sheets.save_mapping({"a": "private"}).keyed("unknown")
        await empty.write(client, refused, waiting, applied, unknown)
    code, out, _ = await invsvc(empty.kind, "retry", empty.place, "waiting", "--json")
    assert (code, json.loads(out)) == (0, {"to_do": 1})
    return empty


def states(listed):
    """Return the states by the keys."""
    return {each["key"]: each["state"] for each in listed["writes"]}


STATES = {
    "refused": "refused",
    "waiting": "to do",
    "applied": "applied",
    "unknown": "unknown",
}


async def test_list(stored, invsvc):
    """All writes are listed, or those of one state, with the number of all."""
    code, out, _ = await invsvc(stored.kind, "list", stored.place, "--json")
    listed = json.loads(out)
    assert (code, states(listed), listed["total"], listed["at_least"]) == (
        0,
        STATES,
        4,
        False,
    )
    row = next(each for each in listed["writes"] if each["state"] == "refused")
    assert (row["operation"], row["attempts"], row["told"]) == (
        "webhooks.update",
        1,
        stored.kind != "outbox",
    )
    assert {
        each["attempts"] for each in listed["writes"] if each["state"] == "applied"
    } == {1}
    assert 0 <= row["age"] < 600
    for word, keys in {
        "open": {"waiting"}, "not-applied": set(), "not_applied": set(), "unknown": {"unknown"},
        "applied": {"applied"}, "untold": {"refused", "applied", "unknown"} if stored.kind == "outbox" else set(),
        "unacknowledged": {"refused", "applied", "unknown"} if stored.kind == "outbox" else set(),
    }.items():  # fmt: skip
        code, out, _ = await invsvc(
            stored.kind, "list", stored.place, "--state", word, "--json"
        )
        assert (code, {*states(json.loads(out))}) == (0, keys)
    assert (await invsvc(stored.kind, "list", stored.place, "--state", "late"))[0] == 2


async def test_list_by_labels(service, empty, invsvc):
    """Writes with all labels that were asked for are listed, with their labels."""
    command = (empty.kind, "list", empty.place, "--label", "customer=c-1")
    async with empty.client_of(service) as client:
        for key, labels in (("a", {"customer": "c-1", "x": "y"}), ("b", None)):
            write = update(client, service, "x").keyed(key, labels=labels)
            await empty.write(client, write)
    code, out, err = await invsvc(*command)
    assert (code, len(out.splitlines())) == (0, 2)
    assert "customer=c-1 x=y" in out
    assert "1 in all" in err
    _, out, _ = await invsvc(*command, "--label", "x=y", "--json")
    [row] = json.loads(out)["writes"]
    assert (row["key"], row["labels"]) == ("a", {"customer": "c-1", "x": "y"})
    _, out, _ = await invsvc(*command, "--label", "x=z", "--json")
    assert json.loads(out)["total"] == 0
    for wrong in ("x", "x y=z", "customer=c-2"):
        assert (await invsvc(*command, "--label", wrong))[0] == 2


async def test_list_that_is_cut(stored, invsvc):
    """It says how many more there are, and how old the oldest is."""
    code, out, err = await invsvc(stored.kind, "list", stored.place, "--limit", "1")
    assert (code, len(out.splitlines())) == (0, 2)
    assert "4 in all, 3 of them not shown: see --limit; the oldest was stored " in err
    code, out, _ = await invsvc(
        stored.kind, "list", stored.place, "--limit", "1", "--json"
    )
    assert (json.loads(out)["total"], len(json.loads(out)["writes"])) == (4, 1)


async def test_age(stored, invsvc):
    """It is the time since the verdict, or since an open write was stored; the oldest is told of all."""
    async with StoreOptions(stored.place, KIND[stored.kind]).opened() as entries:
        hour = 3_600_000
        await entries.store.rows(
            f"UPDATE {{s}}entries SET added_at = added_at - {5 * hour}, done_at = done_at - {2 * hour}"
        )
        await entries.store.rows(
            f"UPDATE {{s}}entries SET added_at = added_at - {4 * hour} WHERE key LIKE '%applied'"
        )
    _, out, _ = await invsvc(stored.kind, "list", stored.place, "--json")
    hours = {
        each["key"]: round(each["age"] / 3600) for each in json.loads(out)["writes"]
    }
    assert hours == {"refused": 2, "applied": 2, "unknown": 2, "waiting": 5}
    assert round(json.loads(out)["oldest"] / 3600) == 9
    _, out, err = await invsvc(stored.kind, "list", stored.place, "--state", "open")
    assert "5 h" in out.splitlines()[1]
    assert "1 in all; the oldest was stored 5 h ago" in err


@pytest.mark.parametrize("kind", KINDS)
async def test_list_of_no_writes(service, invsvc, tmp_path, kind):
    """It is empty, and the store stays as it is."""
    stored = Stored(kind, "file", tmp_path, kind)
    async with stored.client_of(service) as client:
        await stored.write(
            client, *([update(client, service)] if kind == "journal" else [])
        )
    code, out, err = await invsvc(kind, "list", stored.place, "--json")
    assert (code, json.loads(out)) == (
        0,
        {"total": 0, "at_least": False, "oldest": None, "writes": []},
    ), err


async def test_show(stored, invsvc):
    """It says what became of a write, and the exit code too."""
    for key, code, words in (
        ("applied", 0, "applied"), ("unknown", 3, "no read"), ("refused", 1, "HTTP 403"), ("waiting", 1, "its turn"),
    ):  # fmt: skip
        found, out, _ = await invsvc(stored.kind, "show", stored.place, key)
        assert (found, words in out) == (code, True), out
        found, out, _ = await invsvc(stored.kind, "show", stored.place, key, "--json")
        told = json.loads(out)
        assert (found, told["state"], told["key"]) == (code, STATES[key], key)
        assert "private" not in out
    assert (
        "no process" in (await invsvc(stored.kind, "show", stored.place, "waiting"))[1]
    )
    _, out, _ = await invsvc(stored.kind, "show", stored.place, "applied")
    assert re.search(r"done at +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\+00:00\n", out)
    assert "False" not in out
    code, _, err = await invsvc(stored.kind, "show", stored.place, "nowhere", "--json")
    assert (code, "no write under this key" in json.loads(err)["error"]["message"]) == (
        1,
        True,
    )


async def test_retry(service, stored, invsvc):
    """What is not applied is done again, once; what is applied, open or not there is named."""
    code, out, err = await invsvc(
        stored.kind, "retry", stored.place, "refused", "applied", "waiting", "nowhere"
    )
    assert (code, out) == (0, f"1 write to be done again: {AGAIN[stored.kind]}\n")
    assert [line.split(": ")[1] for line in err.splitlines()] == [
        "applied",
        "waiting",
        "nowhere",
    ]
    assert (await invsvc(stored.kind, "retry", stored.place, "applied"))[0] == 1
    assert (await invsvc(stored.kind, "retry", stored.place))[0] == 2
    before = len(service.ledger.effects("webhooks.update"))
    async with stored.client_of(service) as client:
        if stored.kind == "journal":
            async with StoreOptions(stored.place, JOURNAL).opened(
                reading=True
            ) as entries:
                [(thing,)] = await entries.store.rows(
                    "SELECT thing FROM {s}entries WHERE key LIKE '% refused'"
                )
            write = client.webhooks.update(
                thing.rpartition("/")[2], description="private"
            ).keyed("refused")
            assert (await write.outcome()).applied
        else:
            await stored.write(client)
            if stored.kind == "outbox":
                await stored.dispatch(client, "refused", "waiting")
    done = len(service.ledger.effects("webhooks.update")) - before
    assert done == (1 if stored.kind == "journal" else 2)


@pytest.mark.parametrize(
    "empty",
    [("batch", "file"), ("outbox", "database"), ("outbox", "file")],
    indirect=True,
)
async def test_retry_by_verdict(stored, invsvc):
    """All of a verdict, in any spelling, are done again; an unknown one keeps its sends."""
    for verdict, count in (
        ("not applied", 0),
        ("not_applied", 0),
        ("refused", 1),
        ("refused", 0),
        ("unknown", 1),
    ):
        code, out, _ = await invsvc(
            stored.kind, "retry", stored.place, "--verdict", verdict, "--json"
        )
        assert (code, json.loads(out)) == (0, {"to_do": count})
    _, out, _ = await invsvc(stored.kind, "show", stored.place, "unknown", "--json")
    assert (json.loads(out)["state"], json.loads(out)["attempts"]) == ("to do", 1)
    for wrong, words in (
        ("applied", "applied writes are done"),
        ("late", "must be one of applied"),
    ):
        code, _, err = await invsvc(
            stored.kind, "retry", stored.place, "--verdict", wrong
        )
        assert (code, words in err) == (2, True)


async def test_drop(stored, invsvc):
    """A write that was not sent is deleted; one that is finished too, unless the input of a batch has it."""
    code, out, err = await invsvc(
        stored.kind, "drop", stored.place, "waiting", "waiting", "nowhere", "--json"
    )
    assert (code, json.loads(out)) == (1, {"dropped": ["waiting"], "kept": ["nowhere"]})
    assert "nowhere: not dropped" in json.loads(err)["error"]["message"]
    code, out, _ = await invsvc(stored.kind, "drop", stored.place, "refused")
    is_batch = stored.kind == "batch"
    assert (code, out) == (
        (1, "0 writes dropped\n") if is_batch else (0, "1 write dropped\n")
    )
    _, out, _ = await invsvc(stored.kind, "list", stored.place, "--json")
    assert {*states(json.loads(out))} == {"applied", "unknown"} | (
        {"refused"} if is_batch else set()
    )


async def test_prune(stored, invsvc):
    """What is finished long enough ago goes; what is open or unknown stays, and is told."""
    kept = {"open": 1, "unknown": 1, "other": 2}
    code, out, _ = await invsvc(
        stored.kind, "prune", stored.place, "--days", "1", "--json"
    )
    assert (code, json.loads(out)) == (0, {"pruned": 0, "kept": kept})
    if stored.kind == "outbox":
        assert (await invsvc(stored.kind, "prune", stored.place, "--days", "0"))[
            1
        ].startswith("0 writes")
    options = () if stored.kind == "batch" else ("--unacknowledged",)
    code, out, _ = await invsvc(
        stored.kind, "prune", stored.place, "--days", "0", *options
    )
    assert code == 0
    assert out.splitlines() == [
        "2 writes pruned",
        "  1 left as they are: not finished",
        "  1 left as they are: unknown, so their content is needed to settle them",
    ]
    _, out, _ = await invsvc(stored.kind, "list", stored.place, "--json")
    gone = set() if stored.kind == "batch" else {"refused", "applied"}
    assert {*states(json.loads(out))} == {*STATES} - gone
    if stored.kind == "batch":  # whose keys stay
        _, out, _ = await invsvc("batch", "prune", stored.place, "--days", "0")
        words = "finished later than that, not acknowledged yet, or empty already"
        assert out.splitlines()[::3] == [
            "0 writes pruned",
            f"  2 left as they are: {words}",
        ]


async def test_report(stored, invsvc, tmp_path):
    """It counts verdicts, groups what is not applied, and writes pages and lines without bodies."""
    page, lines = tmp_path / "page.html", tmp_path / "lines.jsonl"
    command = (stored.kind, "report", stored.place)
    code, out, _ = await invsvc(*command, "--json", "--html", page, "--jsonl", lines)
    told = json.loads(out)
    assert (code, told["total"], told["to_do"], told["sending"]) == (0, 4, 1, 0)
    verdicts = ["applied", "refused", "unknown"]
    assert told["verdicts"] == dict.fromkeys(verdicts, 1)
    assert told["operations"]["webhooks.update"] == {"applied": 1, "refused": 1}
    assert told["failures"] == {"HTTP 403": 1, "ResponseLostError": 1}
    assert (told["attempts"], told["resends"]) == (3, 0)
    groups = {(each["verdict"], each["cause"]): each for each in told["not_applied"]}
    assert {verdict: cause[:8] for verdict, cause in groups} == {
        "refused": "HTTP 403",
        "unknown": "no read",
    }
    assert (
        sorted(json.loads(line)["verdict"] for line in lines.read_text().splitlines())
        == verdicts
    )
    assert "private" not in out + page.read_text() + lines.read_text()
    assert f"{stored.kind.capitalize()} " in page.read_text()
    assert "no read" in groups["unknown", "no read"]["advice"]
    assert [write["key"] for write in groups["unknown", "no read"]["writes"]] == [
        "unknown"
    ]
    assert (await invsvc(*command, "--jsonl", lines)) == (
        0,
        "",
        f"wrote {lines}: 3 results\n",
    )
    _, out, err = await invsvc(*command, "--jsonl", "-")
    assert sorted(json.loads(line)["verdict"] for line in out.splitlines()) == verdicts
    assert err == ""
    _, out, _ = await invsvc(*command)
    for group in groups.values():
        if group["command"] is not None:
            assert f"  $ {group['command']}\n" in out
            step = "resolve" if group["verdict"] == "unknown" else "retry"
        assert group["command"].startswith(f"invsvc {stored.kind} {step} ")


@pytest.mark.untraced
async def test_watch(service, stored, tmp_path):
    """The page has the counts, and what is not applied, in groups."""
    own = {"INVSVC_BASE_URL": service.base_url, "INVSVC_API_KEY": service.api_key}
    watching = child(
        stored.kind,
        "watch",
        stored.place,
        "--json",
        "--no-open",
        env={**ENVIRONMENT, **own},
        cwd=tmp_path,
    )
    urls = json.loads(await asyncio.to_thread(watching.stdout.readline))
    async with (
        aiohttp.ClientSession() as browser,
        browser.get(urls["data_url"]) as answer,
    ):
        told = await answer.json()
    watching.send_signal(signal.SIGINT)
    await asyncio.to_thread(watching.communicate, timeout=300)
    assert (told["kind"], told["done"], told["total"]) == (stored.kind, 3, 4)
    assert told["verdicts"] == {"applied": 1, "refused": 1, "unknown": 1}
    assert sorted(group["verdict"] for group in told["groups"]) == [
        "refused",
        "unknown",
    ]


@pytest.mark.parametrize(
    "empty", [("outbox", "file"), ("outbox", "database")], indirect=True
)
async def test_outbox_as_the_input_of_a_batch(service, stored, invsvc, tmp_path):
    """What is not applied can be written out, corrected and run as a batch."""
    assert (await invsvc("outbox", "report", stored.place, "--failed", "out.jsonl"))[
        0
    ] == 0
    lines = [
        json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()
    ]
    assert [(line["key"], "check" in line) for line in lines] == [
        ("refused", False),
        ("unknown", True),
    ]
    (tmp_path / "out.jsonl").write_text(json.dumps(lines[0]) + "\n")
    code, out, _ = await invsvc("batch", "out.jsonl", "--journal", "new.db", "--json")
    assert (code, json.loads(out)["verdicts"]) == (0, {"applied": 1})


# --- why a write waits


@pytest.mark.slow
async def test_why_it_waits(service, empty, invsvc):
    """A write in flight, and one behind it, are shown with the process that has them."""
    service.script("webhooks.update", "hang")
    hook = service.seed_webhook().id
    async with empty.client_of(service) as client:
        first, second = (
            client.webhooks.update(hook, description=key).keyed(key)
            for key in ("one", "two")
        )
        async with asyncio.TaskGroup() as group:
            if empty.kind == "journal":
                second.close()
                running = group.create_task(_waited(first))
            else:
                running = group.create_task(empty.write(client, first, second))
            await service.arrived("webhooks.update")
            _, out, _ = await invsvc(empty.kind, "show", empty.place, "one", "--json")
            sent = json.loads(out)
            behind = None
            if empty.kind != "journal":
                behind = json.loads(
                    (await invsvc(empty.kind, "show", empty.place, "two", "--json"))[1]
                )
            running.cancel()
    assert (sent["state"], sent["attempts"], sent["process"]["alive"]) == (
        "sending",
        1,
        True,
    )
    assert (sent["process"]["host"], sent["process"]["pid"]) == (
        socket.gethostname(),
        os.getpid(),
    )
    assert "may have been sent" in sent["waits"]
    if behind is not None:
        assert (behind["state"], behind["after"], behind["attempts"]) == (
            "to do",
            ["one"],
            0,
        )
        assert "earlier writes to the same resource" in behind["waits"]


@pytest.mark.parametrize(
    "empty", [("batch", "database"), ("outbox", "database")], indirect=True
)
async def test_workers(service, empty, invsvc):
    """Each process that sends is listed with its last sign of life, and those that have ended too."""
    await empty.write_one(service)
    async with (
        client_of(service) as client,
        StoreOptions(empty.place, KIND[empty.kind]).opened() as entries,
    ):
        await Leases(entries.store, options_of(client).core.clock).beat(
            said("one", 1234, 5.25, 2)
        )
    code, out, _ = await invsvc(empty.kind, "workers", empty.place, "--json")
    found = {each["pid"]: each for each in json.loads(out)}
    assert (code, {pid: each["state"] for pid, each in found.items()}) == (
        0,
        {os.getpid(): "ended", 1: "working"},
    )
    assert (found[1]["done"], found[1]["rate"], found[1]["alive"]) == (1234, 5.25, True)
    assert found[os.getpid()]["ended"] is True
    _, out, _ = await invsvc(empty.kind, "workers", empty.place)
    head, *lines = out.splitlines()
    assert head.startswith("host\tpid\tstate")
    shown = {
        int(pid): columns for _, pid, *columns in (line.split("\t") for line in lines)
    }
    assert (shown[os.getpid()][0], shown[1][:4]) == (
        "ended",
        ["working", "1,234", "5.2", "2"],
    )


@pytest.mark.parametrize("empty", [("journal", "database")], indirect=True)
async def test_workers_of_a_journal(service, empty, invsvc):
    """Each client that has it open is listed, with what it has done since its last sign of life."""
    async with empty.client_of(service) as client:
        await empty.write(
            client,
            update(client, service, "x").keyed("k"),
            update(client, service, "y"),
        )
        await journal_of(client).life.own.leases.beat()
        code, out, _ = await invsvc("journal", "workers", empty.place, "--json")
        [found] = json.loads(out)
        told = (
            found["host"],
            found["pid"],
            found["done"],
            found["alive"],
            found["state"],
        )
        assert (code, told) == (
            0,
            (socket.gethostname(), os.getpid(), 2, True, "working"),
        )
        assert 0 < found["rate"] <= 2
    _, out, _ = await invsvc("journal", "workers", empty.place, "--json")
    assert json.loads(out) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_workers_of_a_file(service, invsvc, tmp_path, kind):
    """It has none, and the words say where there are some."""
    stored = Stored(kind, "file", tmp_path, kind)
    await stored.write_one(service)
    code, _, err = await invsvc(kind, "workers", stored.place)
    assert (code, "a file has none" in err) == (2, True)


@pytest.mark.parametrize("empty", [("batch", "database")], indirect=True)
@pytest.mark.parametrize("change", ["sends = -1", "seen = 0"])
async def test_process_that_is_gone(service, empty, invsvc, change):
    """A process that has ended, or is silent for too long, is not said to be at work."""
    await empty.write_one(service)
    async with StoreOptions(empty.place, BATCH).opened() as entries:
        await entries.store.rows(
            "UPDATE {s}entries SET state = 0, verdict = NULL, done_at = NULL"
        )
        await entries.store.rows(
            "UPDATE {s}lanes SET owner = (SELECT name FROM {s}members) || '.1'"
        )
        await entries.store.rows("UPDATE {s}members SET sends = 1, seen = {now}")
        _, out, _ = await invsvc("batch", "show", empty.place, "k", "--json")
        assert (
            json.loads(out)["process"]["pid"],
            json.loads(out)["process"]["alive"],
        ) == (os.getpid(), True)
        await entries.store.rows(f"UPDATE {{s}}members SET {change}")
    _, out, _ = await invsvc("batch", "show", empty.place, "k", "--json")
    assert json.loads(out)["process"]["alive"] is False
    assert "no process sends it" in json.loads(out)["waits"]


async def _waited(write):
    with suppress(asyncio.CancelledError):
        await write.outcome()


@pytest.mark.parametrize("pid", [2**22 + 1, 1], ids=["gone", "of another process"])
@pytest.mark.parametrize("kind", ["batch", "journal"])
async def test_process_that_was_killed(service, invsvc, tmp_path, kind, pid):
    """A file that a killed process has left says so, and not that it is at work."""
    stored = Stored(kind, "file", tmp_path, kind)
    service.script("webhooks.update", "403")
    await stored.write_one(service)
    spoil(
        stored.place,
        "UPDATE entries SET state = 1, verdict = NULL, done_at = NULL",
        "INSERT OR REPLACE INTO lanes (id, owner) SELECT lane, 'gone.1' FROM entries",
    )
    (tmp_path / "app.db.owner").write_text(
        json.dumps({"pid": pid, "host": socket.gethostname()})
    )
    _, out, _ = await invsvc(kind, "show", stored.place, "k", "--json")
    told = json.loads(out)
    assert (told["state"], told["process"]["alive"]) == ("sending", False)
    assert "no process" in told["waits"]
    _, out, _ = await invsvc(kind, "show", stored.place, "k")
    assert "None" not in out
    assert "alive no" in out


async def test_journal_without_a_base_url(service, invsvc, tmp_path, monkeypatch):
    """What sends nothing needs no service, unless several have a journal of this name."""
    stored = Stored("journal", "database", tmp_path, "nobody")
    await stored.write_one(service)
    monkeypatch.delenv("INVSVC_BASE_URL")
    monkeypatch.delenv("INVSVC_API_KEY")
    for command in ("report", "list", "prune --days 1"):
        name, *words = command.split()
        code, _, err = await invsvc("journal", name, stored.place, *words)
        assert (code, err) == (0, err), command
    code, _, err = await invsvc("journal", "report", f"{stored.place}none")
    assert (code, "it has no journal" in err) == (1, True)
    async with Simulator() as other:
        await stored.write_one(other)
    code, _, err = await invsvc("journal", "report", stored.place)
    assert (code, "INVSVC_BASE_URL" in err) == (1, True)


async def test_why_a_write_is_not_marked(stored, invsvc):
    """Each key that is not marked has its own reason."""
    code, _, err = await invsvc(
        stored.kind, "retry", stored.place, "applied", "waiting", "none"
    )
    told = " ".join(err.split())
    assert code == 1
    assert "applied: not marked: it is applied" in told
    assert "waiting: not marked: it is open" in told
    assert "none: not marked: there is no such write" in told


@pytest.mark.parametrize("kind", ["batch", "outbox"])
async def test_attempts_of_a_killed_process(service, invsvc, tmp_path, kind):
    """A request that an earlier process sent is one, also where the next one sends nothing."""
    stored = Stored(kind, "file", tmp_path, "attempts")
    async with stored.client_of(service) as client:
        service.script("webhooks.create", "apply, then hang")
        write = client.webhooks.create(**HOOK).keyed("k")
        running = asyncio.create_task(stored.write(client, write))
        await service.arrived("webhooks.create")
        await cancel(running)
        if kind == "batch":
            await stored.write(client)
        else:
            await stored.dispatch(client, "k")
    _, out, _ = await invsvc(kind, "show", stored.place, "k", "--json")
    assert (json.loads(out)["verdict"], json.loads(out)["attempts"]) == ("applied", 1)
    assert len(service.ledger.find("webhooks.create")) == 1


async def test_words_for_people(stored, invsvc):
    """Texts say what users say: a resource, and whether the verdict was acknowledged; JSON keeps its names."""
    _, listed, _ = await invsvc(stored.kind, "list", stored.place)
    titles = listed.splitlines()[0].split("\t")
    assert all(titles)
    assert {"resource", "acknowledged"} <= {*titles}
    assert any(line.endswith("\tno") for line in listed.splitlines()) == (
        stored.kind == "outbox"
    )
    _, shown, _ = await invsvc(stored.kind, "show", stored.place, "refused")
    names = {line.split("  ")[1].strip() for line in shown.splitlines()}
    assert {"resource", "acknowledged", "evidence", "time to verdict"} <= names
    assert not {"thing", "told", "basis", "seconds"} & names


# --- keys of a journal


async def test_keys_of_a_journal(service, invsvc, tmp_path):
    """A key is found without its namespace, unless several have it; a write without a key is not run again."""
    place = str(tmp_path / "calls.db")
    service.script("webhooks.update", "403", "403", "403")
    for namespace in ("a", "b"):
        async with client_of(
            service, journal=f"{place}?namespace={namespace}"
        ) as client:
            write = client.webhooks.update(
                service.seed_webhook().id, description="x"
            ).keyed("order 17")
            assert (await write.outcome()).applied is False
    code, _, err = await invsvc("journal", "show", place, "order 17")
    assert (
        code,
        "'order 17' is not unique" in err,
        "a order 17, b order 17" in err,
    ) == (2, True, True)
    assert (await invsvc("journal", "show", place, "b order 17"))[0] == 1
    assert (await invsvc("journal", "drop", place, "a order 17"))[
        1
    ] == "1 write dropped\n"
    _, out, _ = await invsvc("journal", "show", place, "order 17", "--json")
    assert (json.loads(out)["key"], json.loads(out)["namespace"]) == ("order 17", "b")
    _, out, _ = await invsvc("journal", "list", place)
    assert out.splitlines()[1].startswith("b\torder 17\twebhooks.update\t")
    for other in ("17", "order%17"):
        assert (await invsvc("journal", "drop", place, other))[
            1
        ] == "0 writes dropped\n"


@pytest.mark.parametrize("empty", [("journal", "database")], indirect=True)
async def test_retry_beside_the_process_that_did_it(service, empty, invsvc):
    """Nobody waits for that process: the next run of the write does it."""
    service.script("webhooks.update", "403")
    hook = service.seed_webhook().id
    async with client_of(service, journal=empty.place) as client:
        assert (
            await client.webhooks.update(hook, description="x").keyed("k").outcome()
        ).applied is False
        assert (await invsvc("journal", "retry", empty.place, "k"))[0] == 0
        async with (
            client_of(service, journal=empty.place) as other,
            asyncio.timeout(300),
        ):
            assert (
                await other.webhooks.update(hook, description="x").keyed("k").outcome()
            ).applied


async def test_secret_is_not_shown(service, empty, invsvc, tmp_path):
    """What a webhook's receiver is authenticated by is in no output, whoever has it."""
    async with empty.client_of(service) as client:
        write = client.webhooks.create(
            url="https://me.example/", events=["invoice.created"]
        ).keyed("k")
        await empty.write(client, write)
    shown = ""
    for command in (
        ("list",),
        ("show", "k"),
        ("report", "--html", "page.html", "--jsonl", "lines.jsonl"),
    ):
        name, *more = command
        for form in ((), ("--json",)):
            code, out, err = await invsvc(empty.kind, name, empty.place, *more, *form)
            assert code == 0
            shown += out + err
    shown += (tmp_path / "page.html").read_text() + (
        tmp_path / "lines.jsonl"
    ).read_text()
    assert "webhooks.create" in shown
    assert "whsec_" not in shown
    assert service.api_key not in shown


async def test_query_of_an_address_is_not_shown(service, invsvc, tmp_path):
    """It may contain a token of the receiver."""
    stored = Stored("batch", "file", tmp_path, "query")
    async with client_of(service) as client:
        url = "https://me.example/hook?token=hush-hush"
        write = client.webhooks.create(url=url, events=["invoice.created"]).keyed("k")
        async with Batch.open(
            stored.place, client, tag=False, on_secret=lambda *_: None
        ) as batch:
            await all_of(batch, [write])
    for command in (("list", stored.place), ("show", stored.place, "k")):
        for more in ((), ("--json",)):
            _, out, _ = await invsvc("batch", *command, *more)
            assert "me.example/hook" in out
            assert "hush" not in out


@pytest.mark.parametrize("kind", KINDS)
async def test_store_that_is_not_there(service, invsvc, tmp_path, kind):
    """Commands that look make none of a mistyped place, and show no password."""
    for command in ("list", "report", "retry", "prune"):
        more = {"retry": ["key"], "prune": ["--days", "1"]}.get(command, [])
        code, _, err = await invsvc(kind, command, tmp_path / "none.db", *more)
        assert (code, "does not exist" in err) == (1, True)
        code, _, err = await invsvc(
            kind, command, "mysql://user:hush-hush@host/db", *more
        )
        assert (code, "hush-hush" in err) == (2, False)
    assert [*tmp_path.iterdir()] == []


async def test_control_characters_are_shown(service, invsvc, tmp_path):
    """What a terminal would obey is made visible, in tables and in facts."""
    stored = Stored("batch", "file", tmp_path, "control")
    await stored.write_one(service)
    spoil(
        stored.place,
        "UPDATE entries SET operation = 'a' || char(27) || '[31m', thing = 'x' || char(27)",
    )
    for command in (
        ("list", stored.place),
        ("show", stored.place, "k"),
        ("report", stored.place),
    ):
        _, out, _ = await invsvc("batch", *command)
        assert "a\\x1b[31m" in out
        assert "\x1b" not in out


@pytest.mark.parametrize("kind", ["outbox", "journal"])
async def test_beside_an_application_that_has_the_file(service, tmp_path, invsvc, kind):
    """Reading commands work; the others say what to do."""
    stored = Stored(kind, "file", tmp_path, kind)
    async with stored.client_of(service) as client:
        write = update(client, service).keyed("one")
        if kind == "journal":
            assert (await write.outcome()).applied
            await _check_beside(invsvc, kind, stored.place, "applied")
        else:
            async with Outbox.open(stored.place, client) as outbox:
                await enqueue(outbox, write)
                await _check_beside(invsvc, kind, stored.place, "to do")


async def _check_beside(invsvc, kind, place, state):
    code, out, _ = await invsvc(kind, "list", place, "--json")
    assert (code, states(json.loads(out)), json.loads(out)["total"]) == (
        0,
        {"one": state},
        1,
    )
    assert (
        json.loads((await invsvc(kind, "show", place, "one", "--json"))[1])["state"]
        == state
    )
    assert json.loads((await invsvc(kind, "report", place, "--json"))[1])["total"] == 1
    for command in (
        ["retry", place, "one"],
        ["drop", place, "one"],
        ["prune", place, "--days", "1"],
    ):
        code, _, told = await invsvc(kind, *command)
        assert code not in (0, 2)
        assert "process" in " ".join(told.split())


async def test_resolve(service, stored, invsvc):
    """What a person found is the verdict, shown with who and why; what did not happen is done anew."""
    why = ("--because", "seen in the dashboard", "--by", "ann")
    code, out, _ = await invsvc(
        stored.kind,
        "resolve",
        stored.place,
        "unknown",
        "--applied",
        "-",
        *why,
        "--json",
    )
    told = json.loads(out)
    assert (code, told["key"], told["verdict"], told["by"]) == (
        0,
        "unknown",
        "applied",
        "ann",
    )
    assert told["because"] == "seen in the dashboard"
    code, out, _ = await invsvc(stored.kind, "show", stored.place, "unknown", "--json")
    shown = json.loads(out)
    assert (code, shown["verdict"], shown["basis"]) == (0, "applied", "person")
    assert shown["message"] == "ann found that it was applied: seen in the dashboard"
    for key, words in (
        ("unknown", "is final"),
        ("waiting", "was never sent"),
        ("none", "is not there"),
    ):
        code, _, err = await invsvc(
            stored.kind, "resolve", stored.place, key, "--not-applied", *why
        )
        assert (code, words in err) == (1, True), err
    assert service.ledger.effects("sheets.save_mapping") == []


async def test_resolve_as_not_applied(service, stored, invsvc):
    """Then the next run sends it."""
    code, out, _ = await invsvc(
        stored.kind,
        "resolve",
        stored.place,
        "unknown",
        "--not-applied",
        "--because",
        "looked",
    )
    assert (code, "unknown: not applied: " in out) == (0, True)
    code, out, _ = await invsvc(stored.kind, "report", stored.place, "--json")
    groups = json.loads(out)["not_applied"]
    assert {(each["verdict"], each["cause"]) for each in groups} >= {
        ("not applied", "person")
    }
    assert not any(each["verdict"] == "unknown" for each in groups)
    if stored.kind != "journal":
        assert (await invsvc(stored.kind, "retry", stored.place, "unknown"))[0] == 0
    async with stored.client_of(service) as client:
        await stored.write(
            client, client.sheets.save_mapping({"a": "private"}).keyed("unknown")
        )
    assert len(service.ledger.effects("sheets.save_mapping")) == 1


@pytest.mark.parametrize("given", [(), ("--applied", "x", "--not-applied")])
@pytest.mark.parametrize("kind", KINDS)
async def test_resolve_without_a_clear_finding(invsvc, kind, given):
    """It is misuse, and nothing is opened."""
    code, _, err = await invsvc(
        kind, "resolve", "app.db", "k", "--because", "x", *given
    )
    assert (code, "give either --applied or --not-applied" in err) == (2, True)
    code, _, err = await invsvc(kind, "resolve", "app.db", "k", "--applied", "x")
    assert (code, "--because" in err) == (2, True)


async def test_explain_of_a_finding(service, tmp_path, invsvc):
    """The outcome of a person's finding has no history to replay, which is no other verdict of the rules."""
    service.script("sheets.save_mapping", "reset")
    async with client_of(service, journal=tmp_path / "calls.db") as client:
        await client.sheets.save_mapping({"a": "b"}).keyed("k").outcome()
        resolved = await client.resolve("k", applied=True, because="looked", by="ann")
    story = tmp_path / "story.json"
    story.write_text(resolved.to_json())
    code, out, err = await invsvc("explain", story)
    assert (
        code,
        "verdict: applied - ann found that it was applied: looked" in out,
    ) == (0, True)
    assert "it has no history" in err
    code, out, _ = await invsvc("explain", story, "--json")
    assert (code, json.loads(out)["same"]) == (0, True)
