"""`invsvc outbox`: listing, showing, retrying and dropping writes, and sending them."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import re
import secrets
import signal
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from invsvc_async import JournalError, Outbox, Verdict
from invsvc_async.batch.entries import summary_of
from invsvc_async.cli.app import run
from invsvc_async.cli.commands.outbox import work
from invsvc_async.cli.options import SendingOptions
from invsvc_async.durable.entries import not_due
from invsvc_async.outbox.sqlite import SqliteOutbox
from invsvc_async.simulator import Simulator
from tests.batch.conftest import client_of
from tests.cli.conftest import ENVIRONMENT, Terminal, child, printed
from tests.golden.loading import LAST, golden
from tests.outbox.conftest import (
    enqueue,
    outbox_at,
    spoil,
    transaction_of,
    untold,
    update,
    verdict_of,
)
from tests.outbox.test_bad_input import SPOILT
from tests.support.database import connected
from tests.support.inside import outbox_entries, store_beneath
from tests.support.waiting import until

pytestmark = pytest.mark.one_python


@pytest.fixture(params=["PostgreSQL", "SQLite"])
def place(request, tmp_path):
    """Return the address or path of an outbox for this test."""
    if request.param == "SQLite":
        return str(tmp_path / "app.db")
    return outbox_at(f"c{abs(hash(request.node.nodeid))}", silence=1)


@pytest.fixture
def invsvc(invsvc_in_thread):
    """Run a command of the outbox beside the service's loop."""
    return partial(invsvc_in_thread, "outbox")


async def enqueued(outbox, client, service, key):
    """Enqueue an update under *key*."""
    await enqueue(outbox, update(client, service, key).keyed(key))


@asynccontextmanager
async def refused_one(service, place):
    """Yield an outbox with one write, which was refused, and its client."""
    service.script("webhooks.update", "403")
    async with client_of(service) as client, Outbox.open(place, client) as outbox:
        await enqueued(outbox, client, service, "refused")
        async with outbox.dispatching():
            await verdict_of(outbox, "refused")
        yield outbox, client


async def test_verdict_that_nobody_has_had(service, place, invsvc):
    """The last error of ``on_result`` is shown until the write is dropped."""
    async with refused_one(service, place) as (outbox, _):
        entry = await outbox_entries(outbox).entry("refused")
        name = f"untold {entry.done_at} refused"
        await outbox_entries(outbox).facts.put(
            name, "OSError: no"
        )  # as on_result has raised
    for command in (
        ("list", place),
        ("list", place, "--state", "untold"),
        ("show", place, "refused"),
    ):
        assert "OSError: no" in (await invsvc(*command))[1]
    assert (await invsvc("drop", place, "refused"))[:2] == (0, "1 write dropped\n")
    assert (await invsvc("prune", place, "--days", "0"))[0] == 0
    async with client_of(service) as client, Outbox.open(place, client) as outbox:
        assert await outbox_entries(outbox).facts.beginning("untold ") == {}


async def test_error_of_a_callback_is_that_of_one_verdict(
    service, place, invsvc, caplog
):
    """Once another consumer has had it, it is shown with no later verdict of the key; a prune deletes it."""

    def failing(_result):
        raise OSError("no")

    async with refused_one(service, place) as (outbox, _):
        with caplog.at_level(logging.CRITICAL, "invsvc_async.outbox"):
            async with outbox.dispatching(on_result=failing):
                await until(lambda: untold(outbox))
        results = outbox.results()
        await anext(results)
        assert await outbox.retry("refused") == ["refused"]
        await results.aclose()
        async with outbox.dispatching():
            await verdict_of(outbox, "refused")
    assert (out := (await invsvc("list", place))[1]).endswith("\tno\n")
    assert "OSError: no" not in out
    assert (await invsvc("prune", place, "--days", "0"))[0] == 0
    async with client_of(service) as client, Outbox.open(place, client) as outbox:
        assert await untold(outbox) == {}


@pytest.mark.parametrize("place", ["SQLite"], indirect=True)
async def test_list_on_a_narrow_terminal(service, place, monkeypatch):
    """Each write has one line, with its state and age; what does not fit is named below."""
    monkeypatch.setenv("COLUMNS", "80")
    key = "customer-17-webhook-description"
    async with client_of(service) as client, Outbox.open(place, client) as outbox:
        await enqueued(outbox, client, service, key)
    monkeypatch.setenv("INVSVC_BASE_URL", service.base_url)
    monkeypatch.setenv("INVSVC_API_KEY", service.api_key)
    text = await asyncio.to_thread(printed, run, ["outbox", "list", place])
    (row,) = [line for line in text.splitlines() if key in line]
    assert row.split()[:5] == [key, "webhooks.update", "to", "do", "0"]
    assert "/webhooks/" not in text
    assert "a wider terminal shows resource, too" in text


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("place", ["SQLite"], indirect=True)
async def test_list_has_one_line_for_each_write(service, place, monkeypatch, width):
    """Also beside labels, errors of ``on_result`` and writes that are not due; ids stay whole."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("INVSVC_BASE_URL", service.base_url)
    monkeypatch.setenv("INVSVC_API_KEY", service.api_key)
    keys = [f"order-2026-00001{number}" for number in range(5)]
    async with refused_one(service, place) as (outbox, client):
        entry = await outbox_entries(outbox).entry("refused")
        await outbox_entries(outbox).facts.put(
            f"untold {entry.done_at} refused", "OSError: the vault is away for now"
        )
        await enqueued_later(outbox, client, service, "later")
        for key in keys:
            write = update(client, service, key)
            await enqueue(outbox, write.keyed(key, labels={"customer": "c-4711"}))
    text = await asyncio.to_thread(printed, run, ["outbox", "list", place])
    lines = text.splitlines()
    first = next(at for at, line in enumerate(lines) if "refused" in line)
    rows = lines[first : first + 2 + len(keys)]
    assert [row.split()[0] for row in rows] == ["refused", "later", *keys]
    assert re.search(r" to do +0 .*2[34] h( |$)", rows[1])
    if width == 120:
        assert re.search(r"no: OSError +wh_\w{24} *$", rows[0])
        assert "a wider terminal shows labels, too" in text


async def sending(place, client, service, folder, **options):
    """Start `invsvc outbox work` on a place with one write, which has arrived at the service."""
    async with Outbox.open(place, client) as outbox:
        await enqueued(outbox, client, service, "one")
    own = {"INVSVC_BASE_URL": service.base_url, "INVSVC_API_KEY": service.api_key}
    working = child(
        "outbox",
        "work",
        place,
        "--json",
        "--no-secrets",
        env={**ENVIRONMENT, **own},
        cwd=folder,
        **options,
    )
    assert json.loads(await asyncio.to_thread(working.stdout.readline)) == {
        "state": "sending"
    }
    await service.arrived("webhooks.update")
    return working


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, pytest.param(signal.SIGHUP, marks=pytest.mark.untraced)],
)
@pytest.mark.parametrize("place", ["PostgreSQL"], indirect=True)
async def test_work_sends_until_interrupted(service, place, tmp_path, number):
    """It sends what is committed; Ctrl-C, or the end of its terminal, ends it with 0."""
    async with client_of(service) as client:
        working = await sending(place, client, service, tmp_path)
        working.send_signal(number)
        out, errors = await asyncio.to_thread(working.communicate)
        assert (working.returncode, errors) == (0, "")
        assert json.loads(out) == {"state": "stopping"}
        async with Outbox.open(place, client) as outbox, outbox.dispatching():
            assert (await verdict_of(outbox, "one")).applied
    assert service.arrivals("webhooks.update") == 1


@pytest.mark.parametrize("place", ["SQLite"], indirect=True)
async def test_work_in_words(service, place, tmp_path):
    """It says where more is shown, what it waits for after Ctrl-C, and that it has stopped."""
    async with client_of(service) as client, Outbox.open(place, client):
        pass
    own = {"INVSVC_BASE_URL": service.base_url, "INVSVC_API_KEY": service.api_key}
    working = child(
        "outbox", "work", place, "--no-secrets", env=ENVIRONMENT | own, cwd=tmp_path
    )
    first = await asyncio.to_thread(working.stderr.readline)
    working.send_signal(signal.SIGINT)
    out, errors = await asyncio.to_thread(working.communicate)
    stopping, stopped = errors.splitlines()
    assert (working.returncode, out) == (0, "")
    assert "`invsvc outbox watch` shows more" in first
    assert stopping.startswith("stopping: ")
    assert stopped == "stopped: the next process sends or settles what is open"


@pytest.fixture
def working(service, monkeypatch):
    """Run `invsvc outbox work` in this loop; looks at the outbox, and lines about it, come at once."""
    monkeypatch.setattr("invsvc_async.cli.progress._EVERY", 0.01)
    monkeypatch.setattr("invsvc_async.cli.progress._LOOK_EVERY", 0.01)
    monkeypatch.setenv("INVSVC_BASE_URL", service.base_url)
    monkeypatch.setenv("INVSVC_API_KEY", service.api_key)
    monkeypatch.setenv("COLUMNS", "200")

    @asynccontextmanager
    async def run_on(screen, place, *, hangs=True):
        with contextlib.redirect_stderr(screen):
            task = asyncio.create_task(
                work(place, sending=SendingOptions(no_secrets=True))
            )
            try:
                await until(lambda: "press Ctrl-C to leave" in screen.getvalue())
                yield
            finally:
                signal.raise_signal(signal.SIGINT)
                if hangs:  # so that it is there for the second signal
                    await until(lambda: "stopping: " in screen.getvalue())
                    signal.raise_signal(signal.SIGINT)
                await task

    return run_on


async def enqueued_later(outbox, client, service, key):
    """Enqueue an update under *key* that is not due."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    async with transaction_of(outbox) as connection:
        write = update(client, service, key).keyed(key)
        await outbox.enqueue(connection, write, not_before=tomorrow)


@pytest.mark.parametrize("screen_type", [io.StringIO, Terminal])
async def test_progress_of_work(service, place, working, screen_type):
    """It tells what is open, sent, not due and done, as it is stored; Ctrl-C ends it as ever."""
    service.script("webhooks.update", "pass", "hang")
    async with client_of(service) as client, Outbox.open(place, client) as outbox:
        await enqueued_later(outbox, client, service, "later")
        for key in ("one", "two"):
            await enqueued(outbox, client, service, key)
    screen = screen_type()
    async with working(screen, place):
        words = "outbox: 2 open (1 sending, 1 not due); 1 applied"
        await until(lambda: words in screen.getvalue())
    assert "stopped: the next process" in screen.getvalue()


@pytest.mark.parametrize("place", ["SQLite"], indirect=True)
async def test_progress_while_rows_are_moved(service, place, working, monkeypatch):
    """A row may be in the application's table and in the store for a moment: no more are open than counted."""
    move = SqliteOutbox.move
    may_move = asyncio.Event()

    async def wait_and_move(entries, *names):
        await may_move.wait()
        return await move(entries, *names)

    # reaches: nothing that a user does holds the move for long
    monkeypatch.setattr(SqliteOutbox, "move", wait_and_move)
    service.script("webhooks.update", "hang")
    async with client_of(service) as client, Outbox.open(place, client) as outbox:
        await enqueued(outbox, client, service, "one")
    screen = io.StringIO()
    async with working(screen, place):
        await until(lambda: "outbox: at most 1 open\n" in screen.getvalue())
        may_move.set()
        await until(lambda: "outbox: 1 open (1 sending)\n" in screen.getvalue())


@pytest.mark.parametrize("place", ["SQLite"], indirect=True)
async def test_progress_while_there_is_nothing_to_do(
    service, place, working, monkeypatch
):
    """Off a terminal, what was done before, or is not due, is not told again and again."""
    looks = []

    async def counted(entries):
        looks.append(entries)
        return await summary_of(entries)

    # reaches: nothing else tells that it has looked
    monkeypatch.setattr("invsvc_async.batch.entries.summary_of", counted)
    async with refused_one(service, place) as (outbox, client):
        await enqueued_later(outbox, client, service, "later")
    screen = io.StringIO()
    async with working(screen, place, hangs=False):
        await until(lambda: len(looks) > 15)
        lines = screen.getvalue().splitlines()
    # the row of the one that is not due is moved first, which may be told
    assert len(lines) == len({*lines}) < 5


@pytest.mark.slow
@pytest.mark.parametrize("place", ["PostgreSQL"], indirect=True)
async def test_work_that_is_interrupted_twice(service, place, tmp_path):
    """It does not wait for the write in flight, whose verdict the next process finds."""
    service.script("webhooks.update", "apply, then hang")
    # what is in flight would have the time to get its verdict
    patient = (
        "from invsvc_async import Outbox\n"
        "from invsvc_async.cli import main\n"
        "Outbox.dispatching.__wrapped__.__kwdefaults__['grace'] = 3600.0\n"
        "main()\n"
    )
    async with client_of(service) as client:
        working = await sending(place, client, service, tmp_path, start=("-c", patient))
        requests = service.arrivals()
        working.send_signal(signal.SIGINT)
        assert json.loads(await asyncio.to_thread(working.stdout.readline)) == {
            "state": "stopping"
        }
        working.send_signal(signal.SIGINT)
        out, errors = await asyncio.to_thread(working.communicate)
        assert (working.returncode, out, errors) == (0, "", "")
        assert service.arrivals() == requests  # nothing was settled
        async with Outbox.open(place, client) as outbox, outbox.dispatching():
            assert (await verdict_of(outbox, "one")).applied
    assert service.arrivals("webhooks.update") == 1


@pytest.mark.parametrize("place", ["PostgreSQL"], indirect=True)
async def test_outbox_of_another_credential(service, place, invsvc, monkeypatch):
    """It is not shown as that of this one, and looking does not make it so."""
    async with client_of(service) as client, Outbox.open(place, client):
        pass
    monkeypatch.setenv("INVSVC_API_KEY", "sk_test_another")
    for _ in range(2):
        code, _, errors = await invsvc("list", place)
        assert (code, "it has no outbox" in errors) == (1, True)


def of_new_role():
    """Return the name of a role, the address of an outbox, and that address with the role."""
    role = f"app{secrets.token_hex(4)}"
    place = outbox_at(role)
    its = place.replace("://postgres:@", f"://{role}@")
    assert its != place
    return role, place, its


async def test_schema_for_a_role_that_may_not_create(service, invsvc, monkeypatch):
    """The SQL is enough for it to enqueue, send and prune; without it, it is told what it may not do."""
    role, place, its = of_new_role()
    async with client_of(service) as client, connected() as admin:
        await admin.execute(f"CREATE ROLE {role} LOGIN")
        with pytest.raises(JournalError, match="permission denied"):
            await Outbox.open(its, client).__aenter__()
        code, printed, _ = await invsvc("schema", place, "--role", role)
        assert code == 0
        await admin.execute(printed)
        async with Outbox.open(its, client) as outbox, outbox.dispatching():
            hook = service.seed_webhook().id
            await outbox.send(
                client.webhooks.update(hook, description="of the role").keyed("one")
            )
            assert await outbox.prune(older_than=0, unacknowledged=True) == 1
        await admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    assert service.book().webhooks.items[hook].description == "of the role"


async def test_schema_of_nobody_in_particular(service, invsvc, monkeypatch):
    """Without a base URL, the first that opens the outbox has it, also later; another one gets its own."""
    role, place, its = of_new_role()
    monkeypatch.delenv("INVSVC_BASE_URL")
    monkeypatch.delenv("INVSVC_API_KEY")
    code, printed, said = await invsvc("schema", place, "--role", role)
    assert (code, said) == (0, "")
    async with (
        connected() as admin,
        client_of(service) as client,
        Simulator() as elsewhere,
    ):
        await admin.execute(f"CREATE ROLE {role} LOGIN")
        await admin.execute(printed)
        hook = service.seed_webhook().id
        for text in ("first", "second"):
            async with Outbox.open(its, client) as outbox, outbox.dispatching():
                await outbox.send(
                    client.webhooks.update(hook, description=text).keyed(text)
                )
        async with client_of(elsewhere) as other:
            with pytest.raises(JournalError, match="permission denied"):
                await Outbox.open(its, other).__aenter__()
            async with Outbox.open(place, other) as outbox:
                assert await outbox.get("first") is None
        async with Outbox.open(its, client) as outbox:
            assert await outbox.get("first") is not None
        await admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    assert service.book().webhooks.items[hook].description == "second"


async def test_schema_beside_one_that_the_role_may_not_read(
    service, invsvc, monkeypatch
):
    """What another client has made there before does not matter."""
    role, place, its = of_new_role()
    monkeypatch.delenv("INVSVC_BASE_URL")
    monkeypatch.delenv("INVSVC_API_KEY")
    _, printed, _ = await invsvc("schema", place, "--role", role)
    async with connected() as admin, Simulator() as elsewhere:
        async with client_of(elsewhere) as other, Outbox.open(place, other):
            pass
        await admin.execute(f"CREATE ROLE {role} LOGIN")
        await admin.execute(printed)
        async with client_of(service) as client:
            for _ in range(2):
                async with Outbox.open(its, client) as outbox:
                    assert await outbox.get("first") is None
        await admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_schema_for_tables_of_an_earlier_version(service, invsvc, tmp_path):
    """The SQL brings them up to date; for those of this version there is nothing to do."""
    async with golden(service, "v0_1_0", "outbox", "postgres", tmp_path) as place:
        code, printed, _ = await invsvc("schema", place, "--from", "1")
        assert code == 0
        async with connected(place.partition("&")[0]) as owner:
            await owner.execute(printed)
        async with (
            client_of(service) as client,
            Outbox.open(place, client, reading=True) as outbox,
        ):
            assert store_beneath(outbox).version == LAST
    code, printed, said = await invsvc("schema", place, "--from", f"{LAST}")
    assert (code, printed) == (2, "")
    assert f"tables of version {LAST} need no statements" in said


async def test_schema_of_a_file(invsvc, tmp_path):
    """A file needs none."""
    code, printed, said = await invsvc("schema", str(tmp_path / "app.db"))

    assert (code, printed) == (2, "")
    assert "is a file" in said


@pytest.mark.parametrize("spoilt", SPOILT, ids=["operation", "policy"])
async def test_failed_writes_of_another_version(
    service, place, invsvc, tmp_path, spoilt
):
    """One that this version cannot read is named, and the others are written out."""
    async with refused_one(service, place) as (outbox, client):
        await enqueued(outbox, client, service, "older")
        await spoil(outbox, *spoilt)
        async with outbox.dispatching():
            assert (await verdict_of(outbox, "older")).verdict is Verdict.NOT_APPLIED
        service.script("webhooks.update", "403")
        await enqueued(outbox, client, service, "later")
        async with outbox.dispatching():
            await verdict_of(outbox, "later")
        code, _, err = await invsvc("report", place, "--failed", tmp_path / "out.jsonl")
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert (code, [json.loads(line)["key"] for line in lines]) == (0, ["later"])
    assert "older: its arguments cannot be read by this version" in err


@pytest.mark.parametrize("place", ["PostgreSQL"], indirect=True)
async def test_prune_on_a_machine_that_is_ahead(service, place, invsvc, monkeypatch):
    """Ages are by the clock of the database."""
    async with client_of(service) as client, Outbox.open(place, client) as outbox:
        await enqueued(outbox, client, service, "young")
        async with outbox.dispatching():
            await verdict_of(outbox, "young")
        with monkeypatch.context() as patched:
            ahead = time.time() + 100 * 86_400
            patched.setattr(time, "time", lambda: ahead)
            code, out, _ = await invsvc(
                "prune", place, "--days", "30", "--unacknowledged"
            )
        assert code == 0
        assert "0 writes pruned" in out
        assert (await outbox.get("young")).applied


async def test_writes_that_wait_for_their_time(service, place, invsvc):
    """Lists, one write and the report say when each is due, and what waits behind which."""
    later = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
    async with client_of(service) as client, Outbox.open(place, client) as outbox:
        hook = service.seed_webhook().id
        first, second = (update(client, service, each, hook) for each in "12")
        async with transaction_of(outbox) as made:
            await outbox.enqueue(made, first.keyed("first"), not_before=later)
        await enqueue(outbox, second.keyed("second"))
        async with outbox.dispatching():
            await until(lambda: both_wait(outbox))
    due = later.isoformat()
    _, out, _ = await invsvc("list", place, "--state", "open")
    assert "due at" in out
    assert due in out
    found = json.loads((await invsvc("list", place, "--json"))[1])
    assert [each.get("due_at") for each in found["writes"]] == [due, None]
    shown = json.loads((await invsvc("show", place, "first", "--json"))[1])
    assert shown["waits"].startswith(f"it is due at {due}")
    behind = json.loads((await invsvc("show", place, "second", "--json"))[1])
    assert behind["after"] == ["first"]
    assert "earlier writes" in behind["waits"]
    report = json.loads((await invsvc("report", place, "--json"))[1])
    assert (report["not_due"], report["first_due"]) == (2, due)
    assert f"2, the first one at {due}" in (await invsvc("report", place))[1]
    assert (await invsvc("drop", place, "first", "--yes"))[0] == 0
    assert "not_due" not in json.loads((await invsvc("report", place, "--json"))[1])


async def both_wait(outbox):
    entries = outbox_entries(outbox)
    return (await not_due(entries, 9)).many == 2
