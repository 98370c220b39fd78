"""What has to hold on each system. ``test_pretended.py`` runs it as on macOS and on Windows, too."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import subprocess
import sys
import tomllib
from importlib.util import find_spec

import pytest

from invsvc_async import JournalError, Verdict, export
from invsvc_async.cli.app import run
from invsvc_async.cli.secrets_file import SecretsFile
from invsvc_async.durable import entries
from invsvc_async.profiles import write_profile
from invsvc_async.storage.file_lock import FileLock, WhileOpen, owner_of
from invsvc_async.storage.private_file import write_private
from tests.batch.conftest import HOOK, client_of

pytestmark = pytest.mark.one_python

HOLDS = """
import sys
from pathlib import Path
from invsvc_async.storage.file_lock import FileLock
lock = FileLock(Path(sys.argv[1]), "journal", "")
lock.acquire()
print("acquired", flush=True)
sys.stdin.read()
"""
SENDS = """
import asyncio, sys
from invsvc_async import ApiKey, Client
async def main(base, token, path):
    async with Client(base, ApiKey(token), journal=path) as client:
        await client.webhooks.create(url="https://me.example/killed", events=["invoice.created"])
asyncio.run(main(*sys.argv[1:]))
"""


# --- locks


def test_lock_of_another_process(tmp_path):
    """It is refused in words that name the process; once that is killed, the lock is free."""
    path = tmp_path / "run.db"
    holder = subprocess.Popen(  # noqa: S603 - our own
        [sys.executable, "-c", HOLDS, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with holder:
        assert holder.stdout.readline() == "acquired\n"
        with pytest.raises(JournalError, match=f"in use by process {holder.pid} on "):
            FileLock(path, "journal", "").acquire()
        holder.kill()
    lock = FileLock(path, "journal", "")
    lock.acquire()

    assert owner_of(path)[1] == os.getpid()
    lock.release()


def test_file_that_names_the_owner(tmp_path):
    """It has its name and nothing else, whatever byte the system locks."""
    lock = FileLock(tmp_path / "run.db", "journal", "")
    lock.acquire()
    text = (tmp_path / "run.db.owner").read_bytes()

    assert json.loads(text)["pid"] == os.getpid()
    assert len(text) < 1000
    lock.release()


def test_second_lock_of_one_process(tmp_path):
    """It is refused in words, and the first is not lost by that."""
    first, second = (FileLock(tmp_path / "run.db", "journal", "") for _ in range(2))
    first.acquire()
    for _ in range(2):
        with pytest.raises(JournalError, match="by this process itself"):
            second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_lock_that_is_a_file(tmp_path):
    """One at a time has it, and nothing stays once it is released."""
    first, second = (WhileOpen(tmp_path / "a.lock") for _ in range(2))

    assert first.acquire()
    assert not second.acquire()
    first.release()
    assert second.acquire()
    second.release()
    assert list(tmp_path.iterdir()) == []


# --- writes


def effects_of(service):
    return [each for each in service.ledger.entries if each.applied_at is not None]


@pytest.mark.parametrize("fault", ["apply, then reset", "reset", "apply, then 500"])
async def test_write_whose_answer_is_lost(service, client, fault):
    """Its verdict is that of the service's ledger, and there is at most one effect."""
    service.script("webhooks.create", fault)
    outcome = await client.webhooks.create(**HOOK).outcome()

    assert outcome.verdict is Verdict.APPLIED
    assert len(effects_of(service)) == 1


async def test_write_on_a_connection_that_the_service_closes(service, client):
    """It has one effect, and is told as applied, also where nothing shows that the connection was closed."""
    for number in range(5):
        service.script("webhooks.list", "idle-close 0.01")
        await client.webhooks.list()
        await asyncio.sleep(0.005 * number)  # sleeps: around the moment of the close
        hook = HOOK | {"url": f"https://me.example/{number}"}
        outcome = await client.webhooks.create(**hook).outcome()

        assert outcome.verdict is Verdict.APPLIED
        assert len(effects_of(service)) == number + 1


async def test_key_that_another_opening_of_the_journal_sees(service, tmp_path):
    """A write under a key has one effect, and the second time its verdict comes from the journal."""
    outcomes = []
    for _ in range(2):
        async with client_of(service, journal=tmp_path / "journal.db") as client:
            outcomes.append(await client.webhooks.create(**HOOK).keyed("a").outcome())

    assert [each.verdict for each in outcomes] == [Verdict.APPLIED] * 2
    assert service.arrivals("webhooks.create") == 1


async def test_process_that_is_killed_while_it_writes(service, tmp_path):
    """The next one finds its write in the journal, and says what the ledger says."""
    path = tmp_path / "journal.db"
    service.script("webhooks.create", "apply, then hang")
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SENDS, service.base_url, service.api_key, str(path)
    )
    await service.arrived("webhooks.create")
    child.kill()
    await child.wait()
    async with client_of(service, journal=path) as client:
        found = await client.recover()

    assert [each.verdict for each in found] == [Verdict.APPLIED]
    assert service.arrivals("webhooks.create") == 1


def test_whether_the_owner_lives(tmp_path):
    """The owner goes on: on Windows, to send it signal 0 would end it, so it counts as one that may live."""
    lock = FileLock(tmp_path / "run.db", "journal", "")
    lock.acquire()
    owner = entries._owner_of_file(tmp_path / "run.db")
    lock.release()

    assert (owner.pid, owner.alive) == (os.getpid(), True)


# --- files


@pytest.mark.parametrize(
    "form",
    [
        "jsonl",
        "csv",
        pytest.param(
            "parquet",
            marks=pytest.mark.skipif(not find_spec("pyarrow"), reason="pyarrow is an extra"),
        ),
    ],
)  # fmt: skip
async def test_export_that_is_stopped_and_gone_on_with(service, client, tmp_path, form):
    """Its files are replaced and deleted where nothing has them open, and nothing stays beside it."""
    target = tmp_path / f"out.{form}"
    service.script("invoices.egress", "pass", *["500"] * 4)
    with pytest.raises(Exception, match="500"):
        await export.invoices(client.invoices.egress(limit=3), target)
    done = await export.invoices(client.invoices.egress(limit=3), target, resume=True)
    await export.invoices(client.invoices.egress(limit=5), target, overwrite=True)

    assert (done.rows, done.resumed) == (12, True)
    assert list(tmp_path.iterdir()) == [target]


async def test_line_ends_of_files(service, client, tmp_path):
    """They are one character on each system, so that files can go from one to another."""
    secrets, text = tmp_path / "secrets.jsonl", tmp_path / "text"
    for key in ("a", "b"):
        hook = await client.webhooks.create(
            **HOOK | {"url": f"https://me.example/{key}"}
        )
        async with SecretsFile(secrets) as sink:
            await sink.take(key, hook)
    write_private(text, "a\nb\n")

    assert secrets.read_bytes().count(b"\n") == 2
    assert b"\r" not in secrets.read_bytes() + text.read_bytes()


async def test_journal_that_another_system_wrote(service, tmp_path):
    """The count of sends beside it has the same bytes on each system."""
    path = tmp_path / "journal.db"
    async with client_of(service, journal=path) as client:
        await client.webhooks.create(**HOOK)
    count = path.with_name("journal.db.epoch").read_bytes()

    assert (len(count), count.count(b"\r")) == (80, 0)


def test_profile_that_is_stored_again(tmp_path):
    """The file is replaced, and nothing stays beside it; its line ends may be those of Windows."""
    path = tmp_path / "invsvc.toml"
    path.write_bytes(b'[profiles.a]\r\nbase_url = "https://a.example/v2"\r\n')
    for name in ("b", "c"):
        settings = {"base_url": "https://b.example/v2"}
        write_profile({"INVSVC_CONFIG": str(path)}, name, settings)

    assert b"\r" not in path.read_bytes()
    assert [*tomllib.loads(path.read_text(encoding="utf-8"))["profiles"]] == [
        "a",
        "b",
        "c",
    ]
    assert list(tmp_path.iterdir()) == [path]


# --- what commands print


class OldTerminal(io.TextIOWrapper):
    """A terminal with an encoding of few characters."""

    def isatty(self):
        return True


@pytest.fixture
def printed(monkeypatch, service):
    """Run a command line whose output is as Windows opens it; return its exit code and the bytes."""
    monkeypatch.setenv("INVSVC_BASE_URL", service.base_url)
    monkeypatch.setenv("INVSVC_API_KEY", service.api_key)

    async def call(*arguments, opened=io.TextIOWrapper):
        out = io.BytesIO()
        stream = opened(out, encoding="cp1252", newline="\r\n")
        monkeypatch.setattr(sys, "stdout", stream)
        code = await asyncio.to_thread(run, [*arguments])
        stream.flush()
        return code, out.getvalue()

    return call


NAME = "Żółć ─ ✓ 😀\r\nsecond\nthird"


async def test_json_for_an_old_encoding(service, printed):
    """No character is lost: what is not ASCII is escaped, so that a reader may take any encoding."""
    hook = service.seed_webhook(description=NAME)
    code, out = await printed("get", "webhooks.get", hook.id, "--json")

    assert code == 0
    assert json.loads(out.decode("ascii"))["description"] == NAME
    assert (out.count(b"\n"), out.count(b"\r")) == (1, 0)


async def test_csv_for_an_old_encoding(service, printed):
    """It is UTF-8 as in a file, and cells keep their line ends."""
    hook = service.seed_webhook(description=NAME)
    code, out = await printed(
        "list", "webhooks", "--csv", "--columns", "id,description"
    )
    rows = list(csv.reader(io.StringIO(out.decode(), newline="")))

    assert code == 0
    assert [hook.id, NAME] in rows


@pytest.mark.parametrize("is_legacy", [False, True])
@pytest.mark.parametrize("opened", [io.TextIOWrapper, OldTerminal])
async def test_table_for_an_old_encoding(
    service, printed, monkeypatch, opened, is_legacy
):
    """What the encoding lacks is replaced, lines of tables too, also on a terminal without escape sequences."""
    monkeypatch.setattr("rich.console.detect_legacy_windows", lambda: is_legacy)
    hook = service.seed_webhook(description=NAME)
    code, out = await printed(
        "list", "webhooks", "--columns", "id,description", opened=opened
    )

    assert code == 0
    assert hook.id.encode() in out


def test_no_time_zones(monkeypatch, capsys):
    """A system without them is told from a wrong name."""
    import zoneinfo

    monkeypatch.setitem(sys.modules, "tzdata", None)
    before = zoneinfo.TZPATH
    zoneinfo.ZoneInfo.clear_cache()
    zoneinfo.reset_tzpath(to=[])
    try:
        code = run(["reconcile", "invoices.egress", "-", "--zone", "Europe/Madrid"])
    finally:
        zoneinfo.reset_tzpath(to=before)

    assert code == 2
    assert "has no time zones" in capsys.readouterr().err
