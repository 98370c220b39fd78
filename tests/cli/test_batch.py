"""`invsvc batch`: checking a file, running, resuming, interrupting, exit codes."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import stat
import sys
from types import SimpleNamespace

import pytest

from invsvc_async import Batch, JournalError
from invsvc_async.batch import file_check
from invsvc_async.cli.app import run
from invsvc_async.cli.commands import batch as commands
from invsvc_async.cli.secrets_file import SecretsFile
from tests.batch.conftest import client_of
from tests.support.database import database
from tests.support.waiting import until

pytestmark = pytest.mark.one_python
SIGNALS = [
    signal.SIGINT,
    pytest.param(signal.SIGTERM, marks=pytest.mark.untraced),
    pytest.param(signal.SIGHUP, marks=pytest.mark.untraced),
]

CONFIG = """
default_profile = "short"
[profiles.short]
[profiles.short.reconcile]
settle_after_error = 0.1
settle_after_loss = 0.2
"""


@pytest.fixture
def here(service, tmp_path, monkeypatch):
    """Return an empty directory with short windows, and the service's address and key in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INVSVC_BASE_URL", service.base_url)
    monkeypatch.setenv("INVSVC_API_KEY", service.api_key)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    (tmp_path / "invsvc.toml").write_text(CONFIG)
    return tmp_path


@pytest.fixture
def invsvc(here, capsys):
    """Run a command line in a thread, beside the service's loop."""

    async def call(*arguments):
        code = await asyncio.to_thread(run, ["batch", *map(str, arguments)])
        return code, *capsys.readouterr()

    return call


def line(number, **more):
    arguments = {"url": f"https://me.example/{number}", "events": ["invoice.created"]}
    return {
        "operation": "webhooks.create",
        "arguments": arguments,
        "key": f"row-{number}",
    } | more


def write_file(path, *lines):
    path.write_text(
        "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines)
        + "\n"
    )
    return path


async def child(*arguments):
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "invsvc_async.cli", "batch", *map(str, arguments),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


BAD = [
    line(1), "not json", line(2, operation="webhooks.list"), line(3, arguments={"url": "https://a.example"}),
    line(4, arguments={"url": "nowhere", "events": ["invoice.created"]}), line(1), '"text"', line(5, more=1),
    json.dumps(line(6, arguments={"url": "https://a.example/" + "x" * 2**20, "events": ["invoice.created"]})),
]  # fmt: skip
WORDS = ["line 2: is not JSON", "line 3: ", "line 4: ", "line 5: ", "line 6: has the key 'row-1', as line 1",
         "line 7: is not an object", "line 8: has more", "line 9: is 1,04"]  # fmt: skip


async def test_batch_runs_and_is_skipped_when_run_again(service, invsvc, here):
    """A file is written, its secrets kept for the owner alone; run again, nothing is sent."""
    file = write_file(here / "writes.jsonl", *map(line, range(5)))
    code, out, _ = await invsvc(
        file, "--journal", "run.db", "--secrets-to", "secrets.jsonl"
    )
    again, out_again, _ = await invsvc(
        "--journal", "run.db", "--no-secrets", file, "--json"
    )

    secrets = [
        json.loads(each)["secret"]
        for each in (here / "secrets.jsonl").read_text().splitlines()
    ]
    assert (code, again, service.arrivals("webhooks.create"), len(set(secrets))) == (
        0,
        0,
        5,
        5,
    )
    assert stat.S_IMODE((here / "secrets.jsonl").stat().st_mode) == 0o600
    assert "applied          5" in out
    assert json.loads(out_again)["skipped"] == 5


async def test_file_with_bad_lines_sends_nothing(service, invsvc, here):
    """Each bad line is named with its number and reason, and nothing is sent."""
    file = write_file(here / "writes.jsonl", *BAD)
    for more in ((), ("--dry-run",)):
        code, _, err = await invsvc(file, "--journal", "run.db", "--no-secrets", *more)
        assert code == 2
        assert [words for words in WORDS if words not in err] == []
    assert (service.ledger.entries, (here / "run.db").exists()) == ([], False)


async def test_bad_lines_can_be_left_out(service, invsvc, here):
    """With `--skip-bad` the others are written, and what was left out is named and counted: exit code 5."""
    file = write_file(here / "writes.jsonl", *BAD)
    code, out, err = await invsvc(
        file, "--journal", "run.db", "--no-secrets", "--skip-bad"
    )
    assert (code, service.arrivals("webhooks.create")) == (5, 1)
    assert "line 2: is not JSON" in err
    assert "skipped lines    8, which are not valid" in out

    code, out, _ = await invsvc(
        file, "--journal", "run.db", "--no-secrets", "--skip-bad"
    )  # which reads none of them again
    assert (code, service.arrivals("webhooks.create")) == (5, 1)
    assert "skipped lines    8, which are not valid" in out

    _, out, _ = await invsvc(
        file, "--journal", "another.db", "--no-secrets", "--skip-bad", "--json"
    )
    assert (json.loads(out)["bad"], json.loads(out)["total"]) == (8, 1)


async def test_table_as_input(service, invsvc, here):
    """Of 20,000 lines that are no JSON the first are named, then the form of the input."""
    file = write_file(
        here / "writes.csv",
        "url,events",
        *["https://a.example,invoice.created"] * 20_000,
    )
    code, _, err = await invsvc(file, "--journal", "run.db")
    assert (code, service.ledger.entries) == (2, [])
    assert len(err.splitlines()) <= 5
    assert "--operation" in err


async def test_many_bad_lines(invsvc, here):
    """The first are named; those that are skipped are all named."""
    file = write_file(here / "writes.jsonl", line(0), *["not JSON"] * 100)
    _, _, err = await invsvc(file, "--journal", "run.db")
    assert (err.count("is not JSON"), "and 80 more" in err) == (20, True)
    skipping = (file, "--journal", "run.db", "--skip-bad", "--no-secrets")
    _, _, err = await invsvc(*skipping)
    assert err.count("is not JSON") == 100


async def test_progress_in_a_file(service, invsvc, here, monkeypatch):
    """Where no bar can be shown, lines say how far the batch is, before its end."""
    monkeypatch.setattr("invsvc_async.cli.progress._EVERY", 0.0)
    file = write_file(here / "w.jsonl", line(1), line(2))
    _, out, _ = await invsvc(file, "--journal", "run.db", "--no-secrets")
    lines = out.splitlines()
    assert lines[0].split("; ")[0] in {"0 of 2", "1 of 2", "2 of 2"}
    assert "2 applied" in next(each for each in lines if each.startswith("2 of 2"))
    _, out, _ = await invsvc(
        "w.jsonl", "--journal", "another.db", "--json", "--no-secrets"
    )
    assert json.loads(out)["total"] == 2


async def test_report_of_a_database_that_is_away(invsvc, monkeypatch):
    """A person waits for seconds, not for a minute."""
    monkeypatch.setattr("invsvc_async.storage.postgres_pool.AT_ONCE", 0.0)
    code, _, err = await invsvc("report", "postgresql://u:hush-hush@127.0.0.1:9/db")
    assert (code, "the batch's database" in err, "hush-hush" in err) == (1, True, False)


async def test_empty_file_is_refused(invsvc, here):
    """An empty file is a mistake, in words."""
    code, _, err = await invsvc(
        write_file(here / "writes.jsonl", ""), "--journal", "run.db", "--no-secrets"
    )
    assert code == 2
    assert "must have one write per line" in err
    assert "contains no writes" in err


async def test_dry_run_as_json(invsvc, here):
    """It is one object: how many are good and bad, and what is wrong with each."""
    file = write_file(here / "w.jsonl", line(1), "not json")
    code, out, _ = await invsvc(
        file, "--journal", "run.db", "--no-secrets", "--dry-run", "--json"
    )
    told = json.loads(out)
    assert (code, told["good"], told["bad"]) == (2, 1, 1)
    assert [
        (each["line"], each["reason"].partition(" (")[0]) for each in told["problems"]
    ] == [(2, "is not JSON in UTF-8")]


@pytest.mark.parametrize(
    ("steps", "code"), [(["403"], 1), (["apply, then reset", "403"], 3)]
)
async def test_exit_code_tells_how_it_ended(service, invsvc, here, steps, code):
    """It is 1 if any write was not applied, 3 if the fate of any is unknown."""
    service.script("webhooks.create", *steps)
    if code == 3:
        service.script("webhooks.list", "pass", *["403"] * 9)
    file = write_file(here / "writes.jsonl", *map(line, range(2)))
    assert (
        await invsvc(file, "--journal", "run.db", "--no-secrets", "--concurrency", "1")
    )[0] == code


async def test_exit_code_of_a_batch_that_stopped(service, invsvc, here):
    """It is 3 if the fate of a write is unknown, whatever ended the run."""
    service.script("webhooks.create", "apply, then reset")
    service.script("webhooks.list", "pass", *["403"] * 9)
    file = write_file(here / "writes.jsonl", *map(line, range(2)))
    options = (
        "--journal",
        "run.db",
        "--no-secrets",
        "--concurrency",
        "1",
        "--stop-after",
        "1",
    )
    code, _, err = await invsvc(file, *options)
    assert (code, "stop_after" in err) == (3, True)


async def test_exit_code_of_overtaken_writes(service, invsvc, here):
    """It is 4 if writes were not applied only because newer ones were sent. With --force, they are sent."""
    journey = service.seed_journey()
    service.script("journeys.update", "403")
    lines = [
        json.dumps(
            {
                "operation": "journeys.update",
                "key": name,
                "arguments": {"journey": journey.id, "name": name},
            }
        )
        for name in ("k1", "k2")
    ]
    run = (
        write_file(here / "writes.jsonl", *lines),
        "--journal",
        "run.db",
        "--no-secrets",
    )
    assert (await invsvc(*run))[0] == 1
    assert (await invsvc("retry", "run.db", "--verdict", "refused"))[0] == 0
    code, out, _ = await invsvc(*run)
    assert code == 4
    assert "overtaken" in out
    _, out, _ = await invsvc("report", "run.db")
    assert "overtaken" in out
    assert (await invsvc("retry", "run.db", "k1", "--force"))[0] == 0
    assert (await invsvc(*run))[0] == 0
    assert [
        entry.body["name"] for entry in service.ledger.effects("journeys.update")
    ] == ["k2", "k1"]


async def test_refused_key_stops_it(service, invsvc, here):
    """The exit code is 1 and the reason is shown. Nothing is refused, so a valid key sends all of it."""
    file = write_file(here / "writes.jsonl", *map(line, range(3)))
    service.revoke(service.api_key)
    code, out, err = await invsvc(file, "--journal", "run.db", "--no-secrets", "--json")
    assert (code, json.loads(out)["verdicts"]) == (1, {})
    assert "the service refuses the credential (HTTP 403)" in err


@pytest.mark.parametrize(
    ("limit", "code"), [("2", 1), ("0.05", 1), ("9", 1), ("many", 2), ("1.5", 2)]
)
async def test_stop_after(service, invsvc, here, limit, code):
    """The batch stops after so many failures; a limit that cannot work sends nothing."""
    service.script("webhooks.create", *["422"] * 5)
    file = write_file(here / "writes.jsonl", *map(line, range(5)))
    options = (
        "--journal",
        "run.db",
        "--no-secrets",
        "--concurrency",
        "1",
        "--stop-after",
        limit,
    )
    assert (await invsvc(file, *options))[0] == code
    assert service.arrivals("webhooks.create") == {"2": 2, "0.05": 5, "9": 5}.get(
        limit, 0
    )


@pytest.mark.parametrize("number", SIGNALS)
async def test_signal_ends_it_resumably(service, here, number):
    """A signal lets what is in flight end, says how to resume, and the same command does the rest."""
    service.latency = 0.05
    file = write_file(here / "writes.jsonl", *map(line, range(30)))
    running = await child(
        file, "--journal", "run.db", "--no-secrets", "--concurrency", "3"
    )
    await service.arrived("webhooks.create", 4)
    running.send_signal(number)
    _, err = await running.communicate()
    assert running.returncode == 130
    assert b"run the same command again to resume" in err
    assert b"Traceback" not in err

    rest = await child(
        file, "--journal", "run.db", "--no-secrets", "--concurrency", "3"
    )
    await rest.communicate()
    assert (rest.returncode, service.arrivals("webhooks.create")) == (0, 30)


async def test_webhooks_without_a_place_for_their_secrets(service, invsvc, here):
    """Nothing is sent, and both ways on are named; those thrown away on purpose are not lost."""
    file = write_file(here / "writes.jsonl", *map(line, range(5)))
    code, out, err = await invsvc(file, "--journal", "run.db")
    assert (code, out, service.arrivals()) == (2, "", 0)
    assert "--secrets-to" in err
    assert "--no-secrets" in err

    service.script("webhooks.create", "pass", "apply, then reset")
    code, out, _ = await invsvc(file, "--journal", "run.db", "--no-secrets")
    assert (code, "thrown away, as --no-secrets says" in out, "lost" in out) == (
        0,
        True,
        False,
    )
    code, out, _ = await invsvc(file, "--journal", "run.db", "--no-secrets", "--json")
    assert (
        code,
        json.loads(out)["secrets_lost"],
        service.arrivals("webhooks.create"),
    ) == (0, 0, 5)
    report = json.loads((await invsvc("report", "run.db", "--json"))[1])
    assert (
        report["secrets_lost"],
        report["lost_secrets"],
        report["secrets_not_stored"],
    ) == (0, [], 5)
    _, text, _ = await invsvc("report", "run.db")
    assert "5 are not stored: --no-secrets was given" in text
    assert "secrets lost" not in text
    both = await invsvc(
        file, "--journal", "run.db", "--no-secrets", "--secrets-to", "secrets.jsonl"
    )
    assert both[0] == 2


async def test_missing_place_for_secrets_is_told_first(service, invsvc, here):
    """A dry run tells that a run needs one; a run that skips bad lines is refused before it lists them."""
    file = write_file(here / "writes.jsonl", line(1), "bad", line(2))
    command = (file, "--journal", "run.db", "--skip-bad")
    code, _, err = await invsvc(*command, "--dry-run")
    assert (code, "--secrets-to" in err) == (2, True)
    _, _, err = await invsvc(*command, "--dry-run", "--no-secrets")
    assert "--secrets-to" not in err
    code, _, err = await invsvc(*command)
    assert (code, "--secrets-to" in err, "line 2" in err) == (2, True, False)
    assert service.arrivals() == 0


async def test_webhooks_that_an_earlier_run_left(service, invsvc, here):
    """They are done by this run, whatever its own input, so their secrets need a place too."""
    file = write_file(here / "writes.jsonl", *map(line, range(3)))
    service.script("webhooks.create", "422", "422", "422")
    assert (await invsvc(file, "--journal", "run.db", "--secrets-to", "secrets.jsonl"))[
        0
    ] == 1
    await invsvc("retry", "run.db", "--verdict", "refused")
    rename = {
        "operation": "journeys.update",
        "arguments": {"journey": service.seed_journey().id, "name": "x"},
    }
    other = write_file(here / "other.jsonl", rename)
    before = service.arrivals()

    assert (await invsvc(other, "--journal", "run.db"))[0] == 2
    assert (await invsvc(file, "--journal", "run.db"))[0] == 2, (
        "all of its lines were read before"
    )
    assert service.arrivals() == before
    code, out, _ = await invsvc(
        other, "--journal", "run.db", "--secrets-to", "secrets.jsonl", "--json"
    )
    assert (code, json.loads(out)["secrets_lost"]) == (0, 0)
    assert len((here / "secrets.jsonl").read_text().splitlines()) == 3
    assert (await invsvc(other, "--journal", "run.db"))[0] == 0, (
        "no webhook is left to be made"
    )


@pytest.mark.parametrize(
    "words",
    [
        ("worker", "postgresql://127.0.0.1:1/x"),
        ("writes.jsonl", "--journal", "postgresql://127.0.0.1:1/x"),
    ],
)
async def test_shared_batch_needs_a_place_for_secrets(service, invsvc, here, words):
    """Another machine may put webhooks in, at any time."""
    rename = {
        "operation": "journeys.update",
        "arguments": {"journey": "jrn_1", "name": "x"},
    }
    write_file(here / "writes.jsonl", rename)
    code, _, err = await invsvc(*words)
    assert (code, "--no-secrets" in err) == (2, True)


async def test_secrets_that_are_lost_are_named(service, invsvc, here):
    """The summary counts them, and the report says of which webhooks, in text and JSON."""
    service.script("webhooks.create", "apply, then 500")
    file = write_file(here / "writes.jsonl", line(1), line(2))
    _, out, _ = await invsvc(
        file,
        "--journal",
        "run.db",
        "--secrets-to",
        "secrets.jsonl",
        "--concurrency",
        "1",
    )
    _, report, _ = await invsvc("report", "run.db")
    told = json.loads((await invsvc("report", "run.db", "--json"))[1])

    kept = [
        json.loads(each)["key"]
        for each in (here / "secrets.jsonl").read_text().splitlines()
    ]
    (lost,) = {"row-1", "row-2"} - {*kept}
    (hook,) = [one["webhook"] for one in told["lost_secrets"]]
    assert "secrets lost     1; `invsvc batch report run.db` names them" in out
    assert hook.startswith("wh_")
    assert f"  - {lost} (webhooks.create): {hook}" in report
    assert [one["key"] for one in told["lost_secrets"]] == [lost]


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
async def test_worker_takes_part_until_interrupted(service, here, number):
    """A worker does its part of a shared batch, keeps the secrets it sees, and leaves when interrupted."""
    journal = database().journal(f"worker{int(number)}", silence=60)
    service.latency = 0.02
    file = write_file(here / "writes.jsonl", *map(line, range(150)))
    options = ("--journal", journal, "--concurrency", "3")
    helping = await child(
        "worker",
        journal,
        *options[2:],
        "--secrets-to",
        "secrets-theirs.jsonl",
        "--json",
    )
    assert (
        b"settings of invsvc.toml, profile 'short'" in await helping.stderr.readline()
    )
    assert b"waiting for work" in await helping.stderr.readline()
    running = await child(
        file, *options, "--secrets-to", "secrets-ours.jsonl", "--json"
    )
    out, _ = await running.communicate()
    helping.send_signal(number)
    theirs, err = await helping.communicate()

    secrets = [
        (here / name).read_text().splitlines()
        for name in ("secrets-ours.jsonl", "secrets-theirs.jsonl")
    ]
    told = json.loads(out)
    assert (running.returncode, helping.returncode) == (0, 0)
    assert (told["total"], told["done_now"]) == (150, len(secrets[0]))
    assert json.loads(theirs)["done_now"] == len(secrets[1])
    assert min(map(len, secrets)) > 0
    assert sum(map(len, secrets)) == service.arrivals("webhooks.create") == 150
    assert b"Traceback" not in err


async def test_progress_of_a_worker(service, here, monkeypatch):
    """It tells what is open and done in the whole batch, whoever does it, if that has changed."""
    monkeypatch.setattr("invsvc_async.cli.progress._EVERY", 0.01)
    journal = database().journal("worker_progress", silence=60)
    # reaches: the command line would run it in a thread, where no signal can end it
    options = commands._BatchSending(no_secrets=True)
    screen = io.StringIO()
    with contextlib.redirect_stderr(screen):
        working = asyncio.create_task(commands.worker(journal, options=options))
        await until(lambda: "waiting for work" in screen.getvalue())
        async with client_of(service) as client, Batch.open(journal, client) as batch:
            writes = [
                client.webhooks.delete(service.seed_webhook().id) for _ in range(3)
            ]
            async for _ in batch.run(writes):
                pass
            await until(lambda: "batch: 0 open; 3 applied" in screen.getvalue())
        signal.raise_signal(signal.SIGINT)
        assert await working == 0


async def test_worker_of_a_file(invsvc, here):
    """A journal in a file has no workers: the words say what to give instead."""
    code, _, err = await invsvc("worker", "run.db", "--no-secrets")
    assert code == 2
    assert "a journal in a file cannot be shared" in err


async def test_secret_after_a_line_that_was_cut(service, invsvc, here):
    """What a full disk has left of a line costs no other: the next secret has a line of its own."""
    (here / "secrets.jsonl").write_text('{"key":"row-0","id":"wh_0","ur')
    file = write_file(here / "writes.jsonl", line(1), line(2))
    assert (await invsvc(file, "--journal", "run.db", "--secrets-to", "secrets.jsonl"))[
        0
    ] == 0

    cut, *rest = (here / "secrets.jsonl").read_text().splitlines()
    assert cut == '{"key":"row-0","id":"wh_0","ur'
    assert sorted(json.loads(each)["key"] for each in rest) == ["row-1", "row-2"]


async def test_secret_after_one_that_found_no_room(tmp_path, monkeypatch):
    """A secret that comes while another could be written in part only begins a line, too."""
    whole = os.write
    monkeypatch.setattr(os, "write", lambda number, text: whole(number, text[:20]))
    hook = SimpleNamespace(id="wh_1", url="https://me.example/", secret="whsec_1")
    async with SecretsFile(tmp_path / "secrets.jsonl") as secrets:
        with pytest.raises(JournalError, match="No space left"):
            await secrets.take("row-1", hook)
        monkeypatch.undo()
        await secrets.take("row-2", hook)

    _, second = (tmp_path / "secrets.jsonl").read_text().splitlines()
    assert json.loads(second)["key"] == "row-2"


@pytest.mark.parametrize("replaced", [False, True])
async def test_file_of_secrets_that_is_deleted_meanwhile(tmp_path, replaced):
    """It is made again, readable only by its owner, or what has replaced it is appended to."""
    path, hook = (
        tmp_path / "secrets.jsonl",
        SimpleNamespace(id="wh_1", url="https://me.example/", secret="whsec_1"),
    )
    async with SecretsFile(path) as secrets:
        await secrets.take("row-1", hook)
        path.unlink()
        if replaced:
            path.write_text("another file")
        await secrets.take("row-2", hook)
        await secrets.take("row-3", hook)

    lines = path.read_text().splitlines()[replaced:]
    assert [json.loads(each)["key"] for each in lines] == ["row-2", "row-3"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.fixture
def pipe(here):
    """Return a named pipe, and a function that writes lines into it once somebody reads."""
    path = here / "pipe"
    os.mkfifo(path)
    return path, lambda *lines: asyncio.create_task(
        asyncio.to_thread(write_file, path, *lines)
    )


async def test_file_that_can_be_read_once_only(
    service, invsvc, here, pipe, monkeypatch
):
    """What comes through a pipe is checked whole and written, and no copy of it is left."""
    monkeypatch.setattr("tempfile.tempdir", str(here / "spool"))
    (here / "spool").mkdir()
    path, feed = pipe
    feeding = feed(*map(line, range(5)))
    code, out, _ = await invsvc(path, "--journal", "run.db", "--no-secrets")
    await feeding

    assert (code, service.arrivals("webhooks.create")) == (0, 5)
    assert "applied          5" in out
    assert list((here / "spool").iterdir()) == []


@pytest.mark.parametrize("number", SIGNALS[:2])
async def test_signal_while_a_pipe_gives_nothing(here, pipe, number):
    """A pipe that gives nothing is waited for until a signal ends it."""
    path, _ = pipe
    running = await child(path, "--journal", "run.db", "--no-secrets")
    # once it is open at both ends, it is being read
    feeding = await asyncio.to_thread(path.open, "wb")
    with feeding:
        running.send_signal(number)
        _, err = await asyncio.wait_for(running.communicate(), 300)
    assert running.returncode in (130, -number)
    assert b"Traceback" not in err


async def test_ctrl_c_while_a_file_is_checked(service, here):
    """It ends the command at once, however many lines are left."""
    file = write_file(here / "writes.jsonl", line(1))
    program = (
        "import os, signal\n"
        "from invsvc_async.batch import file_check\n"
        "from invsvc_async.cli import main\n"
        "def check_file(*_):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('the rest is checked')\n"
        "file_check.check_file = check_file\n"
        "main()\n"
    )
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, "batch", file, "--journal", "run.db", "--no-secrets",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await running.communicate()
    assert (running.returncode, out) == (-signal.SIGINT, b"")
    assert service.arrivals() == 0


@pytest.mark.parametrize("lines", [3, 1])
async def test_file_that_changes_once_it_was_checked(
    service, invsvc, here, monkeypatch, lines
):
    """Writes that are more or fewer than those checked are said to be, whatever was sent by then."""
    file = write_file(here / "writes.jsonl", line(1), line(2))
    checked = file_check.check_file

    def then_changed(*arguments):
        checked(*arguments)
        write_file(file, *map(line, range(1, lines + 1)))

    monkeypatch.setattr(file_check, "check_file", then_changed)
    code, _, err = await invsvc(file, "--journal", "run.db", "--no-secrets")

    assert code == 1
    assert (
        f"the file was changed after the check: it had 2 writes, and now has {lines}"
        in err
    )
    assert "may have been sent" in err
    monkeypatch.setattr(file_check, "check_file", checked)
    code, out, _ = await invsvc(file, "--journal", "run.db", "--no-secrets")
    assert (code, service.arrivals("webhooks.create")) == (0, lines), out


async def test_check_that_lasts_without_a_terminal(service, invsvc, here, monkeypatch):
    """The progress is told on stderr."""
    monkeypatch.setattr(file_check, "_TELL_EVERY", 0.0)
    file = write_file(here / "writes.jsonl", *map(line, range(300)))
    code, out, err = await invsvc(file, "--journal", "run.db", "--dry-run")
    assert code == 0
    assert f"{file}: checked " in err
    assert "checked" not in out
